"""The reference engine's KV events: what changed in its prefix caches, for whoever listens."""
