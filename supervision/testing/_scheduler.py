"""A scheduler that draws lots: the interleavings of a seed are many, and can be had again."""

from __future__ import annotations

import asyncio
import random


class SeededScheduler:
    """Lets one of the actors that could run go next, drawn with a seeded die, and only for one message.

    Give it to one `ActorSystem`; with the same seed and the same test the same interleaving comes out.
    """

    burst = 1

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - to be predictable is its purpose
        self._ready: list[_Lot] = []

    def create_waiter(self) -> asyncio.Future[None]:
        """Make what a sleeping actor waits for."""
        return _Lot(self)

    def enter(self, lot: _Lot) -> None:
        """An actor could run."""
        self._ready.append(lot)
        if len(self._ready) == 1:
            lot.get_loop().call_soon(self._draw)

    def _draw(self) -> None:
        lot = self._ready.pop(self._random.randrange(len(self._ready)))
        if self._ready:
            lot.get_loop().call_soon(self._draw)
        lot.win()


class _Lot(asyncio.Future[None]):
    """A waiter that is not woken when it could be, but when it is drawn."""

    def __init__(self, scheduler: SeededScheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._entered = False

    def set_result(self, _result: None) -> None:
        """Take part in the draw."""
        if not self._entered:
            self._entered = True
            self._scheduler.enter(self)

    def win(self) -> None:
        """Wake up."""
        if not self.done():
            super().set_result(None)
