"""What an actor costs: the kit's loop-hosted actors against pykka's ThreadingActor, in one run.

    python -m tests.bench.bench_actors

Prints rates and ratios of the best of several rounds, and the memory of two thousand live actors.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import psutil
import pykka

from openengine_sidecar.supervision import Actor, ActorSystem, ChildSpec, Mailbox, Ref, Restart

PASSES: Final = 3
ROUNDS: Final = 3
TELLS: Final = 20_000
ASKS: Final = 4_000
STARTS: Final = 1_000
LIVE: Final = 2_000
ROOMY: Final = Mailbox(capacity=TELLS + 1)


class Counter(Actor[int]):
    """Counts, and answers with the count."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    async def on_message(self, message: int) -> int:
        self.seen += message
        return self.seen


class Nursery(Actor[int]):
    """Starts temporary children."""

    async def on_message(self, message: int) -> None:
        for number in range(message):
            spec = ChildSpec(name=f"{len(self.children)}-{number}", factory=Counter, restart=Restart.TEMPORARY)
            await self.spawn(spec)


class PykkaCounter(pykka.ThreadingActor):
    """The same on plain pykka."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def on_receive(self, message: Any) -> int:
        self.seen += message
        return self.seen


async def timed(work: Callable[[], Awaitable[object]], count: int) -> float:
    """Operations a second, of the best round."""
    rates = []
    for _ in range(ROUNDS):
        gc.collect()
        started = time.perf_counter()
        await work()
        rates.append(count / (time.perf_counter() - started))
    print(".", end="", file=sys.stderr, flush=True)
    return max(rates)


async def ours() -> dict[str, float]:
    system = ActorSystem()
    ref: Ref[int] = await system.start(ChildSpec(name="counter", factory=Counter, mailbox=ROOMY))
    other = ActorSystem()
    nursery: Ref[int] = await other.start(ChildSpec(name="nursery", factory=Nursery))

    async def tell() -> None:
        for _ in range(TELLS):
            ref.tell(1)
        await ref.ask(0, timeout=60)

    async def ask() -> None:
        for _ in range(ASKS):
            await ref.ask(1, timeout=60)

    async def start() -> None:
        await nursery.ask(STARTS, timeout=60)

    rates = {"tell": await timed(tell, TELLS), "ask": await timed(ask, ASKS), "start": await timed(start, STARTS)}
    await system.stop()
    await other.stop()
    return rates


async def theirs() -> dict[str, float]:
    ref = PykkaCounter.start()
    started: list[pykka.ActorRef[PykkaCounter]] = []

    async def tell() -> None:
        for _ in range(TELLS):
            ref.tell(1)
        ref.ask(0, timeout=60)

    async def ask() -> None:
        for _ in range(ASKS):
            ref.ask(1, timeout=60)

    async def start() -> None:
        for _ in range(STARTS // 5):
            started.append(PykkaCounter.start())
            started[-1].ask(0, timeout=60)  # ours returns when the child is ready; this is how plain pykka knows

    rates = {"tell": await timed(tell, TELLS), "ask": await timed(ask, ASKS), "start": await timed(start, STARTS // 5)}
    for each in (ref, *started):
        each.stop(timeout=60)
    return rates


async def memory() -> float:
    """MiB of RSS that two thousand live actors add."""
    system = ActorSystem()
    nursery: Ref[int] = await system.start(ChildSpec(name="nursery", factory=Nursery))
    gc.collect()
    before = psutil.Process().memory_info().rss
    await nursery.ask(LIVE, timeout=60)
    gc.collect()
    added = psutil.Process().memory_info().rss - before
    await system.stop()
    return added / 2**20


async def main() -> None:
    added = await memory()
    passes = [(await ours(), await theirs()) for _ in range(PASSES)]
    mine, plain = ({name: max(rates[name] for rates in side) for name in side[0]} for side in zip(*passes, strict=True))
    print(file=sys.stderr)
    print(f"{'':8}{'ours':>12}{'pykka':>12}{'ratio':>8}")
    for name, rate in mine.items():
        print(f"{name:8}{rate:>10,.0f}/s{plain[name]:>10,.0f}/s{rate / plain[name]:>7.1f}x")
    ratio = statistics.geometric_mean(rate / plain[name] for name, rate in mine.items())
    print(f"{'mean':8}{'':24}{ratio:>7.1f}x")
    print(f"{LIVE:,} live actors: {added:.1f} MiB")


if __name__ == "__main__":
    asyncio.run(main())
