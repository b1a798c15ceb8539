"""Texts that came from a peer, made fit for logs, errors and answers."""

from __future__ import annotations

DETAIL_LIMIT = 512
MESSAGE_LIMIT = 2048


def peer_text(text: str, *, limit: int = DETAIL_LIMIT) -> str:
    r"""Bound a peer's text and escape what does not print.

    A newline in a log line is a forged log line, and a bidirectional mark re-orders what a reader sees: everything
    that is not printable comes out as an escape (`\n`, `\x1b`, `\u202e`).

    Args:
        text: as the peer sent it.
        limit: most characters kept; a longer text ends in an ellipsis.
    """
    safe = text[:limit]
    if not safe.isprintable():
        safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in safe)
    return f"{safe[: limit - 1]}…" if len(text) > limit or len(safe) > limit else safe
