"""The request side: the gate that admits, and one stream per request in flight."""
