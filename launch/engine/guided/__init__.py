"""Guided decoding: an answer that satisfies the constraint, deterministic, echoing the prompt where there is room."""
