"""What an actor costs, against pykka's ThreadingActor, in one run: `python -m tests.bench.bench_actors`.

Both sides are spoken to from the event loop's thread. Rounds of the two alternate, and the table compares the best
round of each: whatever makes a round slower than that is the machine's doing. `start` is pykka's start() alone, which
returns before on_start has run; `ready` adds the round trip by which plain pykka finds out. Ours returns ready.
Nothing is asserted: numbers of one machine are no test.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
import pykka
from loguru import logger

from openengine_sidecar.supervision import Actor, ActorSystem, ChildSpec, Mailbox, Ref

TELLS: Final = 20_000
ASKS: Final = 3_000
STARTS: Final = 200
LIVE: Final = 2_000
MEBIBYTE: Final = 1024 * 1024
TARGETS: Final = {"tell": "4x", "ask": "5x", "start": "8x", "ready": "8x"}


class Counter(Actor[int]):
    """Counts, and answers with the count."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    async def on_message(self, message: int) -> int:
        self.seen += message
        return self.seen


class Nursery(Actor[int]):
    """Starts as many children as it is told; told to start none, ends those it has."""

    async def on_message(self, message: int) -> None:
        for number in range(message):
            await self.spawn(ChildSpec(name=f"{self.incarnation}-{number}", factory=Counter))
        if not message:
            children = tuple(self.children.values())
            for child in children:
                child.cancel("the round is over")
            await asyncio.gather(*(child.stopped() for child in children))


class PykkaCounter(pykka.ThreadingActor):
    """The same on plain pykka."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def on_receive(self, message: Any) -> int:
        self.seen += message
        return self.seen


@dataclass
class Row:
    """Seconds an operation took, round by round."""

    ours: list[float] = field(default_factory=list)
    pykka: list[float] = field(default_factory=list)

    def line(self, name: str) -> str:
        """One line of the table."""
        mine, theirs = min(self.ours) * 1e6, min(self.pykka) * 1e6
        return f"{name:8}{mine:10.2f} us{theirs:10.2f} us{theirs / mine:9.1f}x{TARGETS[name]:>10}"


async def seconds(work: Callable[[], Awaitable[object]], count: int) -> float:
    """Seconds an operation takes, over `count` of them."""
    gc.collect()
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) / count


class Ours:
    """The operations on a system of ours."""

    def __init__(self, counter: Ref[int], nursery: Ref[int]) -> None:
        self.counter = counter
        self.nursery = nursery

    async def tell(self) -> None:
        for _ in range(TELLS):
            self.counter.tell(1)
        await self.counter.ask(0, timeout=60)

    async def ask(self) -> None:
        for _ in range(ASKS):
            await self.counter.ask(1, timeout=60)

    async def start(self) -> None:
        await self.nursery.ask(STARTS, timeout=60)

    async def clear(self) -> None:
        await self.nursery.ask(0, timeout=60)


class Pykka:
    """The operations on plain pykka."""

    def __init__(self) -> None:
        self.counter = PykkaCounter.start()
        self.started: list[pykka.ActorRef[PykkaCounter]] = []

    async def tell(self) -> None:
        for _ in range(TELLS):
            self.counter.tell(1)
        self.counter.ask(0, timeout=60)

    async def ask(self) -> None:
        for _ in range(ASKS):
            self.counter.ask(1, timeout=60)

    async def start(self) -> None:
        self.started.extend(PykkaCounter.start() for _ in range(STARTS))

    async def ready(self) -> None:
        for _ in range(STARTS):
            self.started.append(PykkaCounter.start())
            self.started[-1].ask(0, timeout=60)

    def clear(self) -> None:
        for ref in self.started:
            ref.stop(timeout=60)
        self.started.clear()


async def compare(rounds: int) -> dict[str, Row]:
    """Let both sides do the same, turn by turn; a first round warms up."""
    system, pool, pykka_side = ActorSystem(), ActorSystem(), Pykka()
    mailbox = Mailbox(capacity=TELLS + 1)
    counter = await system.start(ChildSpec(name="counter", factory=Counter, mailbox=mailbox))
    ours = Ours(counter, await pool.start(ChildSpec(name="nursery", factory=Nursery)))
    rows = {name: Row() for name in TARGETS}
    for number in range(rounds + 1):
        taken = {"tell": (await seconds(ours.tell, TELLS), await seconds(pykka_side.tell, TELLS))}
        taken["ask"] = (await seconds(ours.ask, ASKS), await seconds(pykka_side.ask, ASKS))
        started = await seconds(ours.start, STARTS)
        taken["start"] = (started, await seconds(pykka_side.start, STARTS))
        pykka_side.clear()
        taken["ready"] = (started, await seconds(pykka_side.ready, STARTS))
        pykka_side.clear()
        await ours.clear()
        for name, (mine, theirs) in taken.items() if number else ():
            rows[name].ours.append(mine)
            rows[name].pykka.append(theirs)
    await system.stop()
    await pool.stop()
    pykka_side.counter.stop()
    return rows


async def memory() -> float:
    """MiB of RSS that two thousand live actors add."""
    system = ActorSystem()
    nursery = await system.start(ChildSpec(name="nursery", factory=Nursery))
    gc.collect()
    before = psutil.Process().memory_info().rss
    await nursery.ask(LIVE, timeout=60)
    gc.collect()
    added = psutil.Process().memory_info().rss - before
    await system.stop()
    return added / MEBIBYTE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each side (default 15)")
    rounds = parser.parse_args().rounds
    logger.remove()
    added = asyncio.run(memory())
    rows = asyncio.run(compare(rounds))
    print(f"{'':8}{'ours':>13}{'pykka':>13}{'ratio':>10}{'target':>10}")
    for name, row in rows.items():
        print(row.line(name))
    print(f"{LIVE:,} live actors: {added:.1f} MiB (target: below 25)")


if __name__ == "__main__":
    main()
