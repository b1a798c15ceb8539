"""LoRA adapters: names, ids, sources, the shared cache, and what may happen to an adapter in which order."""
