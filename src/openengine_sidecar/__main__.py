"""`python -m openengine_sidecar` is the command line of the same name."""

from openengine_sidecar.launch.cli import main

if __name__ == "__main__":
    main()
