"""Deterministic choices for constrained answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")
VARIATION = 6
LETTERS = "abcdefgh"


@dataclass(slots=True)
class Draw:
    """A source of choices fixed by its seed.

    Attributes:
        said: what the answer should echo where the constraint leaves room.
        varied: whether the answer strays from the echo, as with a temperature above 0.
    """

    seed: str
    said: str
    varied: bool
    _count: int = 0

    def below(self, limit: int) -> int:
        """Return a number in 0 .. limit - 1."""
        self._count += 1
        digest = blake2b(f"{self.seed}/{self._count}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % limit

    def one_of(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[self.below(len(options))]

    def echo(self) -> str:
        """Return what was said, with some letters replaced where the answer is to stray."""
        return "".join([self.one_of(LETTERS) if char.isalpha() and self.strays() else char for char in self.said])

    def strays(self) -> bool:
        """Tell whether to depart from the echo here."""
        return self.varied and self.below(VARIATION) == 0
