"""The events of one rank over ZMQ: a PUB socket, and a ROUTER that sends remembered batches again.

Messages are (topic, number, batch), the number as eight bytes, big endian; a batch is MessagePack: time in seconds, a
list of events, the rank. A question to the ROUTER is the first number wanted; the answer is (number, batch) for each,
and at last the number -1 with nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from openengine_sidecar.launch.engine.core import Core
from openengine_sidecar.launch.engine.kv.feed import Batch, KvFeed, Listener
from openengine_sidecar.launch.engine.status import StatusError
from openengine_sidecar.proto.rev2 import kv_pb2

SCHEMA = 1
HIGH_WATER = 100_000
DONE = (-1).to_bytes(8, "big", signed=True)
NUMBERS = frozenset({"decimal_int64"})


class ZmqSource:
    """Serves one rank from `start` to `stop`."""

    # Sockets are Any below: the library's stubs leave the futures of its asyncio sockets open.

    def __init__(self, core: Core, feed: KvFeed) -> None:
        self._core = core
        self._feed = feed
        self._context = zmq.asyncio.Context()
        self._topic = core.options.kv_topic
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> kv_pb2.KvEventSource:
        """Bind, and return what to advertise."""
        host = self._core.options.host
        publisher = self._context.socket(zmq.PUB)
        publisher.set_hwm(HIGH_WATER)
        port = publisher.bind_to_random_port(f"tcp://{host}")
        source = kv_pb2.KvEventSource(
            transport="zmq",
            encoding="msgpack",
            endpoint_addr=kv_pb2.KvEndpoint(host=host, port=port, protocol="tcp"),
            topic=self._topic,
            data_parallel_rank=self._feed.rank,
            schema_version=SCHEMA,
            hwm=HIGH_WATER,
        )
        self._run(self._publish(publisher))
        if self._core.options.kv_history:
            router = self._context.socket(zmq.ROUTER)
            source.replay_endpoint = f"tcp://{host}:{router.bind_to_random_port(f'tcp://{host}')}"
            source.buffer_steps = self._core.options.kv_history
            self._run(self._replay(router))
        return source

    async def stop(self) -> None:
        """Close both sockets."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._context.destroy(linger=0)

    def _run(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _publish(self, publisher: Any) -> None:
        listener = Listener(HIGH_WATER)
        with self._feed.heard_by(listener):
            while (batch := await listener.next()) is not None:
                for heard in self._heard(batch):
                    await publisher.send_multipart([self._topic.encode(), _number(heard), encode_batch(heard)])

    def _heard(self, batch: Batch) -> list[Batch]:
        try:
            return [message.batch for message in self._core.faults.deliver(batch) if message.HasField("batch")]
        except StatusError:
            return []  # there is no subscription to end

    async def _replay(self, router: Any) -> None:
        while True:
            client, *_, question = await router.recv_multipart()
            start = int.from_bytes(question, "big")
            for batch in list(self._feed.history):
                if batch.sequence_number >= start:
                    await router.send_multipart([client, b"", _number(batch), encode_batch(batch)])
            await router.send_multipart([client, b"", DONE, b""])


def encode_batch(batch: Batch) -> bytes:
    """Write a batch the way ZMQ sources do."""
    events = [_event(event) for event in batch.events]
    return msgspec.msgpack.encode([batch.timestamp_unix_nanos / 1e9, events, batch.data_parallel_rank])


def _number(batch: Batch) -> bytes:
    return batch.sequence_number.to_bytes(8, "big")


def _event(event: kv_pb2.KvEvent) -> list[Any]:
    match event.WhichOneof("event"):
        case "block_stored":
            return _stored(event.block_stored)
        case "block_removed":
            return ["BlockRemoved", [_name(found) for found in event.block_removed.block_hashes], "GPU"]
        case "all_blocks_cleared":
            return ["AllBlocksCleared"]
        case _:
            return ["FromTheFuture"]


def _stored(stored: kv_pb2.BlockStored) -> list[Any]:
    keys = [list(key.values) for key in stored.extra_keys]
    return [
        "BlockStored",
        [_name(found) for found in stored.block_hashes],
        _name(stored.parent_block_hash) if stored.HasField("parent_block_hash") else None,
        list(stored.token_ids),
        stored.block_size,
        None,
        "GPU",
        stored.lora_name or None,
        [keys[0], *([None] * (len(stored.block_hashes) - 1))] if keys else None,
    ]


def _name(found: kv_pb2.KvBlockHash) -> int | bytes:
    return int(found.value) if found.encoding in NUMBERS else found.value
