"""The event plane as a handle: anybody tells, nobody waits.

What is told waits here, bounded, until the actor that owns the connection sends it. When the plane is slower than the
engine, or away, the oldest is dropped: a router finds the hole in the numbers of what follows, and asks for it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from openengine_sidecar.messages.dynamo.events import EventEnvelope, encode_envelope, event_subject
from openengine_sidecar.messages.dynamo.naming import EndpointId

MESSAGE_WEIGHT: Final = 2048
"""Most that one message weighs, if it holds more than one item."""

_HIGHEST_ID = 2**53 - 1

Item = TypeVar("Item")


class Outlet(Generic[Item]):
    """One publisher of one topic.

    Attributes:
        id: drawn at random; messages are numbered from 0 under it.
        told: how many items were ever told.
        alone: whether a message holds one item only.
        counts: items `published` and `dropped`, for whoever reports them and takes them out.
    """

    def __init__(
        self,
        plane: EventPlane,
        endpoint: EndpointId,
        topic: str,
        encode: Callable[[Sequence[Item]], bytes],
        weigh: Callable[[Item], int],
        *,
        alone: bool,
    ) -> None:
        self.id = secrets.randbelow(_HIGHEST_ID) + 1
        self.subject = event_subject(endpoint, topic)
        self.told = 0
        self.counts: Counter[str] = Counter()
        self.alone = alone
        self._plane = plane
        self._topic = topic
        self._encode = encode
        self._weigh = weigh
        self._sequence = 0

    def tell(self, items: Iterable[Item]) -> None:
        """Publish items, in order; never blocks."""
        weigh = self._weigh
        for item in items:
            self.told += 1
            self._plane.take(self, item, weigh(item))

    def message(self, items: Sequence[Item]) -> bytes:
        """Put items into the next message."""
        envelope = EventEnvelope(
            publisher_id=self.id,
            sequence=self._sequence,
            published_at=time.time_ns() // 1_000_000,
            topic=self._topic,
            payload=self._encode(items),
        )
        self._sequence += 1
        return encode_envelope(envelope)


class EventPlane:
    """What waits to be published, oldest first.

    Args:
        room: most that may wait, by weight; what is heavier than that by itself may wait alone.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting: deque[tuple[Outlet[Any], Any, int]] = deque()
        self._weight = 0
        self._woken = asyncio.Event()

    def outlet(
        self,
        endpoint: EndpointId,
        topic: str,
        encode: Callable[[Sequence[Item]], bytes],
        weigh: Callable[[Item], int],
        *,
        alone: bool = False,
    ) -> Outlet[Item]:
        """Make a publisher.

        Args:
            endpoint: what the events are about.
            topic: name of the topic.
            encode: makes the payload of a message.
            weigh: weight of an item, at least 1.
            alone: whether a message holds one item only.
        """
        return Outlet(self, endpoint, topic, encode, weigh, alone=alone)

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def take(self, outlet: Outlet[Any], item: object, weight: int) -> None:
        """Let an item wait; for outlets."""
        self._waiting.append((outlet, item, weight))
        self._weight += weight
        while self._weight > self._room and len(self._waiting) > 1:
            dropped, _, lighter = self._waiting.popleft()
            dropped.counts["dropped"] += 1
            self._weight -= lighter
        self._woken.set()

    async def next(self) -> tuple[Outlet[Any], list[Any]]:
        """Wait for something to publish: the oldest item, and what else of its outlet fits into the same message."""
        waiting = self._waiting
        while not waiting:
            self._woken.clear()
            await self._woken.wait()
        outlet, item, weight = waiting.popleft()
        items, total = [item], weight
        while waiting and not outlet.alone and waiting[0][0] is outlet and total + waiting[0][2] <= MESSAGE_WEIGHT:
            _, item, weight = waiting.popleft()
            items.append(item)
            total += weight
        self._weight -= total
        return outlet, items
