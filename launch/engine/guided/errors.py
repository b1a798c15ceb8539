"""What is wrong with a constraint."""

from __future__ import annotations

from typing import NoReturn


class ConstraintError(ValueError):
    """A constraint is malformed, uses what this engine does not know, or cannot be satisfied."""


def refuse(problem: str) -> NoReturn:
    """Refuse a constraint.

    Raises:
        ConstraintError: always.
    """
    raise ConstraintError(problem)
