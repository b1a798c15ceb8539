"""The edge: command line, configuration, wiring, reference engine, examples."""
