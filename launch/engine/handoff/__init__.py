"""The connector: how a prefill engine's KV sessions reach the decode engine that takes them over."""
