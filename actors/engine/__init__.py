"""The engine's side: its connection, and the handle that others call it through."""
