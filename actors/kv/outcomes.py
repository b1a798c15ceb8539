"""What became of batches and events: the closed list of things that are counted."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """Label of one counted thing: every event, and every batch that was not the one due."""

    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"
    EMPTY = "empty"
    """An event about no block."""

    IGNORED_KIND = "ignored_kind"
    """An event of a kind that this build does not know."""

    IGNORED_MEDIUM = "ignored_medium"
    """Blocks on a medium that this build does not know."""

    IGNORED_GROUP = "ignored_group"
    """Blocks of layers that do not see the whole prefix (sliding windows, state spaces): they say nothing of it."""

    IGNORED_ADAPTER = "ignored_adapter"
    """Blocks of an adapter without a name: routers hash the name."""

    IGNORED_KEY = "ignored_key"
    """Blocks whose hashes hold something that routers cannot reproduce."""

    SUBSCRIBED = "subscribed"
    """A subscription began: the first, or one that follows one that ended or had a gap."""

    ENDED = "ended"
    """A subscription ended, or none was accepted."""

    REPEATED_BATCH = "repeated_batch"
    GAP = "gap"
    RESTART = "restart"

    WRONG_RANK = "wrong_rank"
    WRONG_BLOCK_SIZE = "wrong_block_size"
    WRONG_TOKEN_COUNT = "wrong_token_count"  # noqa: S105 - a label
    WRONG_TOKEN_ID = "wrong_token_id"  # noqa: S105 - a label
