"""KV events of one rank, from an engine's stream to NATS: `python -m tests.bench.bench_kv [--rate N] [--seconds N]`.

Three processes beside the NATS server: one sends ready-made batches at the rate, one counts what arrives at NATS, and
this one holds what is measured, the rank's publisher and the owner of the event plane on a loop of their own. Each
event stores a chain of two blocks of 16 tokens or removes it again, so that the cache stays as large as it is.
Nothing is asserted: numbers of one machine are no test.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc.aio
import msgspec
import nats
import psutil
from loguru import logger
from nats.aio.msg import Msg

from openengine_sidecar.actors.config import KvConfig, NatsConfig, WorkerIdentity
from openengine_sidecar.actors.engine.client import Attachment, EngineClient
from openengine_sidecar.actors.events.plane import EventPlane
from openengine_sidecar.actors.events.publisher import EventPublisher
from openengine_sidecar.actors.kv.rank_publisher import Follow, RankContext, RankPublisher
from openengine_sidecar.actors.kv.sources import RankSource
from openengine_sidecar.actors.kv.telling import Offices, Telling
from openengine_sidecar.launch.stack import programs
from openengine_sidecar.launch.stack.ports import free_port
from openengine_sidecar.launch.stack.stack import Stack
from openengine_sidecar.messages.facts import EventPlaneState, KvCounted
from openengine_sidecar.proto.rev2 import kv_pb2
from openengine_sidecar.proto.rev2_dialect import Revision2
from openengine_sidecar.supervision import Actor, ActorSystem, ChildSpec, Ref

BLOCK_SIZE: Final = 16
CHAIN: Final = 2
KEPT: Final = 4096
METHOD: Final = "SubscribeKvEvents"
SERVICE: Final = "openengine.v1.OpenEngine"
DONE_SECONDS: Final = 60.0
MEBIBYTE: Final = 1024 * 1024


# What feeds, and what listens: processes of their own.


def batches(size: int) -> Iterator[bytes]:
    """Batches of so many events, for ever: chains come, and the oldest go."""
    numbers = itertools.count(1)

    def event() -> kv_pb2.KvEvent:
        number = next(numbers)
        if number > KEPT and number % 2:
            return kv_pb2.KvEvent(block_removed=kv_pb2.BlockRemoved(block_hashes=_hashes(number // 2)))
        chain = number if number <= KEPT else KEPT // 2 + number // 2
        tokens = [chain * CHAIN + n // BLOCK_SIZE for n in range(CHAIN * BLOCK_SIZE)]
        stored = kv_pb2.BlockStored(block_hashes=_hashes(chain), token_ids=tokens, block_size=BLOCK_SIZE, medium=1)
        return kv_pb2.KvEvent(block_stored=stored)

    for sequence in itertools.count(1):
        batch = kv_pb2.KvEventBatch(sequence_number=sequence, events=[event() for _ in range(size)])
        yield kv_pb2.SubscribeKvEventsResponse(batch=batch).SerializeToString()


def _hashes(chain: int) -> list[kv_pb2.KvBlockHash]:
    return [kv_pb2.KvBlockHash(value=b"%d" % (chain * CHAIN + n), encoding="int64") for n in range(CHAIN)]


async def feed(port: int, count: int, size: int, rate: float) -> None:
    """Serve one subscription: everything made beforehand, `rate` events a second, 0 as fast as it is read."""
    made = list(itertools.islice(batches(size), count // size))

    async def subscribe(raw: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        asked = kv_pb2.SubscribeKvEventsRequest.FromString(raw)
        if asked.include_snapshot or asked.start_sequence_number:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "live only")
        begun, sent = time.monotonic(), 0
        for batch in made:
            ahead = sent / rate - (time.monotonic() - begun) if rate else 0
            if ahead > 0:
                await asyncio.sleep(ahead)
            yield batch
            sent += size
        await asyncio.Event().wait()

    server = grpc.aio.server()
    handler = grpc.unary_stream_rpc_method_handler(subscribe)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("fed", flush=True)
    await server.wait_for_termination()


async def listen(url: str, count: int) -> None:
    """Count events until all have come, then print how many, and in how many messages."""
    events = messages = 0
    last = 0
    complete = asyncio.Event()

    async def take(message: Msg) -> None:
        nonlocal events, messages, last
        payload = msgspec.msgpack.decode(msgspec.msgpack.decode(message.data)["payload"])
        events += sum(event["event"]["event_id"] > last for event in payload)
        last = max(last, payload[-1]["event"]["event_id"])
        messages += 1
        if events >= count:
            complete.set()

    connection = await nats.connect(url)
    await connection.subscribe(">", cb=take, pending_msgs_limit=10**9, pending_bytes_limit=10**12)
    await connection.flush()
    print("listening", flush=True)
    with suppress(TimeoutError):
        await asyncio.wait_for(complete.wait(), DONE_SECONDS)
    print(events, messages, flush=True)


# What is measured.


class Root(Actor[ChildSpec]):
    """Starts whom it is told to."""

    async def on_message(self, message: ChildSpec) -> Ref[Any]:
        return await self.spawn(message)


class Nobody(Actor[Any]):
    """Registrar and gate: takes everything."""

    async def on_message(self, message: Any) -> None:
        del message


class Ear(Actor[EventPlaneState | KvCounted]):
    """Hears of the event plane, and adds up what was counted."""

    def __init__(self, connected: asyncio.Event, counted: dict[str, int]) -> None:
        super().__init__()
        self._connected, self._counted = connected, counted

    async def on_start(self) -> None:
        self.subscribe(EventPlaneState, KvCounted)

    async def on_message(self, message: EventPlaneState | KvCounted) -> None:
        if isinstance(message, EventPlaneState):
            self._connected.set()
        else:
            for outcome, number in message.outcomes.items():
                self._counted[outcome] = self._counted.get(outcome, 0) + number


async def publish(url: str, port: int, listener: subprocess.Popen[str]) -> tuple[float, float, float, dict[str, int]]:
    """Publish until the listener has counted; returns CPU seconds, wall seconds, MiB grown, and what was counted."""
    system = ActorSystem()
    root = await system.start(ChildSpec(name="root", factory=Root))

    async def spawn(name: str, factory: Callable[[], Actor[Any]]) -> Ref[Any]:
        ref: Ref[Any] = await root.ask(ChildSpec(name=name, factory=factory), timeout=10)
        return ref

    connected, counted = asyncio.Event(), dict[str, int]()
    await spawn("ear", lambda: Ear(connected, counted))
    nobody = await spawn("nobody", Nobody)
    client = EngineClient(f"127.0.0.1:{port}")
    channel = grpc.aio.insecure_channel(client.endpoint)
    client.attach(Attachment(Revision2(), (channel,), channel))
    config, plane = KvConfig(), EventPlane(KvConfig().queue_blocks)
    offices = Offices(registrar=nobody, gate=nobody)
    telling = Telling(identity=WorkerIdentity(instance_id=7), client=client, plane=plane, offices=offices)
    await spawn("events", lambda: EventPublisher(plane, NatsConfig(servers=(url,)), name="bench"))
    await connected.wait()
    context = RankContext(telling=telling, config=config, block_size=BLOCK_SIZE, blocks=4 * KEPT)
    order = Follow(source=RankSource(grpc=True), instance="bench")
    gc.collect()
    process = psutil.Process()
    before, spent, begun = process.memory_info().rss, time.process_time(), time.perf_counter()
    await spawn("rank", lambda: RankPublisher(context, 0, order))
    await asyncio.to_thread(listener.wait)
    cpu, wall = time.process_time() - spent, time.perf_counter() - begun
    gc.collect()
    grown = (process.memory_info().rss - before) / MEBIBYTE
    await system.stop()
    await channel.close()
    return cpu, wall, grown, counted


def part(*arguments: object) -> subprocess.Popen[str]:
    """Start this file in another process, and wait until that is ready."""
    argv = (sys.executable, "-m", "tests.bench.bench_kv", *map(str, arguments))
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def measure(url: str, count: int, size: int, rate: float) -> None:
    port = free_port()
    feeder = part("--feed", port, "--count", count, "--batch", size, "--rate", rate)
    listener = part("--listen", url, "--count", count)
    try:
        cpu, wall, grown, counted = asyncio.run(publish(url, port, listener))
    finally:
        feeder.kill()
        feeder.wait()
    assert listener.stdout is not None
    arrived, messages = map(int, listener.stdout.read().split())
    asked = f"{rate:,.0f}/s" if rate else "as fast as read"
    print(
        f"{asked:>16}, batches of {size}: {arrived:,} of {count:,} events arrived in {messages:,} messages, "
        f"{arrived / wall:,.0f}/s; {1e6 * cpu / arrived:.1f} us of CPU each, {cpu / wall:.0%} of a core; "
        f"{counted.get('dropped', 0)} dropped; RSS {grown:+.1f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=20_000, help="events a second (default 20,000)")
    parser.add_argument("--seconds", type=float, default=10, help="for so long at that rate (default 10)")
    parser.add_argument("--feed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--listen", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    logger.remove()
    if asked.feed:
        asyncio.run(feed(asked.feed, asked.count, asked.batch, asked.rate))
    elif asked.listen:
        asyncio.run(listen(asked.listen, asked.count))
    else:
        count = int(asked.rate * asked.seconds) // 64 * 64
        with tempfile.TemporaryDirectory() as directory, Stack(Path(directory)) as stack:
            nats_port = free_port()
            server = stack.start(programs.nats_program(nats_port))
            url = programs.await_nats(server, nats_port)
            for size in (1, 8, 64):
                measure(url, count, size, asked.rate)
            measure(url, count, 8, 0)


if __name__ == "__main__":
    main()
