"""One actor a concern: what it owns, what it hears, what it says."""
