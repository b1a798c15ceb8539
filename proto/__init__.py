"""OpenEngine schemas, generated stubs, and one dialect module per schema."""
