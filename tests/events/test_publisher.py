from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import nats
import pytest
from nats.aio.msg import Msg

from openengine_sidecar.actors.config import NatsConfig
from openengine_sidecar.actors.events.plane import EventPlane, Outlet
from openengine_sidecar.actors.events.publisher import LINGER, EventPublisher
from openengine_sidecar.messages.dynamo.events import EventEnvelope
from openengine_sidecar.messages.dynamo.naming import EndpointId
from openengine_sidecar.messages.facts import EventPlaneState
from openengine_sidecar.supervision import INFINITY, ChildSpec
from openengine_sidecar.supervision.testing import Probe, Stage
from tests.support.site import Site
from tests.support.waiting import eventually

ENDPOINT = EndpointId("ns", "component", "generate")
SUBJECT = "namespace.ns.component.component.endpoint.generate.numbers"


def encode(items: Sequence[int]) -> bytes:
    return b"\0" * sum(items)


def outlet(plane: EventPlane) -> Outlet[int]:
    """Its items are numbers of bytes, each as heavy as that."""
    return plane.outlet(ENDPOINT, "numbers", encode, lambda item: item)


@asynccontextmanager
async def publishing(plane: EventPlane, site: Site, on: Stage | None = None) -> AsyncIterator[Probe]:
    async with on or Stage(auto_jump=True) as stage:
        probe = await stage.probe()
        probe.subscribe(EventPlaneState)
        config = NatsConfig(servers=(site.planes.nats_url,), reconnect_wait=0.05)
        await stage.spawn(
            ChildSpec(
                name="events",
                factory=lambda: EventPublisher(plane, config, name="test"),
                shutdown=INFINITY,  # a real socket has to be flushed, which no virtual time is long enough for
            )
        )
        yield probe


@asynccontextmanager
async def heard(site: Site) -> AsyncIterator[list[EventEnvelope]]:
    envelopes: list[EventEnvelope] = []

    async def take(message: Msg) -> None:
        assert message.subject == SUBJECT
        envelopes.append(msgspec.msgpack.decode(message.data, type=EventEnvelope))

    connection = await nats.connect(site.planes.nats_url, reconnect_time_wait=0, max_reconnect_attempts=-1)
    await connection.subscribe("namespace.>", cb=take)
    await connection.flush()
    yield envelopes
    await connection.close()


def states(probe: Probe) -> list[bool]:
    return [fact.connected for fact in probe.heard if isinstance(fact, EventPlaneState)]


async def test_messages_are_numbered_from_zero_under_an_id_of_their_own(site: Site) -> None:
    plane = EventPlane(10_000)
    ours = outlet(plane)
    async with heard(site) as envelopes, publishing(plane, site):
        for item in (1, 2, 3):
            ours.tell([item])
            await eventually(lambda item=item: len(envelopes) == item, "it came")
    assert [envelope.sequence for envelope in envelopes] == [0, 1, 2]
    assert {(envelope.publisher_id, envelope.topic) for envelope in envelopes} == {(ours.id, "numbers")}
    assert [len(envelope.payload) for envelope in envelopes] == [1, 2, 3]


async def test_what_follows_a_message_at_once_gathers_for_the_next(site: Site) -> None:
    plane, stage = EventPlane(10_000), Stage()
    ours = outlet(plane)
    async with heard(site) as envelopes, publishing(plane, site, stage) as probe:
        await eventually(lambda: states(probe) == [True], "it is connected")
        for item in (1, 2, 3):
            ours.tell([item])
            await eventually(lambda: envelopes, "the first is there at once")
        assert len(envelopes) == 1
        await stage.clock.advance(LINGER)
        await eventually(lambda: len(envelopes) == 2, "the others came")
    assert [len(envelope.payload) for envelope in envelopes] == [1, 2 + 3]


async def test_what_is_told_before_there_is_a_server_is_sent_when_it_comes(private_site: Site) -> None:
    plane = EventPlane(1_000)
    ours = outlet(plane)
    async with publishing(plane, private_site) as probe:
        ours.tell([500, 400])
        ours.tell([100, 1])
        private_site.start_nats()
        async with heard(private_site) as envelopes:
            await eventually(lambda: ours.counts["published"] == 3, "what there was room for is sent")
            ours.tell([7])
            await eventually(lambda: envelopes and envelopes[-1].payload == encode([7]), "the newest came")
    assert ours.counts == {"published": 4, "dropped": 1}
    assert True in states(probe)


async def test_a_server_that_went_and_came_is_found_again(private_site: Site) -> None:
    plane = EventPlane(1_000)
    ours = outlet(plane)
    server = private_site.start_nats()
    async with publishing(plane, private_site) as probe:
        await eventually(lambda: states(probe) == [True], "it is connected")
        server.kill()
        await eventually(lambda: states(probe) == [True, False], "it noticed")
        ours.tell([5])
        private_site.start_nats()
        async with heard(private_site) as envelopes:
            await eventually(lambda: states(probe) == [True, False, True], "it is connected again")
            ours.tell([6])
            await eventually(lambda: envelopes and envelopes[-1].payload[-6:] == encode([6]), "the newest came")
    assert ours.counts["published"] == 2


async def test_what_the_server_does_not_take_whole_goes_in_two_and_what_cannot_be_cut_is_counted(site: Site) -> None:
    plane = EventPlane(10_000_000)
    half = 600_000
    ours = plane.outlet(ENDPOINT, "numbers", encode, lambda _: 1)
    async with heard(site) as envelopes, publishing(plane, site):
        ours.tell([half, half])
        await eventually(lambda: len(envelopes) == 2, "both came")
        ours.tell([3 * half])
        ours.tell([9])
        await eventually(lambda: len(envelopes) == 3, "the next came")
    assert [len(envelope.payload) for envelope in envelopes] == [half, half, 9]
    assert ours.counts == {"published": 3, "dropped": 1}


@pytest.mark.parametrize("many", [1, 100])
async def test_what_waits_at_the_end_is_still_sent(site: Site, many: int) -> None:
    plane = EventPlane(10_000)
    ours = outlet(plane)
    async with heard(site) as envelopes:
        async with publishing(plane, site) as probe:
            await eventually(lambda: states(probe) == [True], "it is connected")
            ours.tell([1] * many)
        await eventually(lambda: sum(len(envelope.payload) for envelope in envelopes) == many, "all came")
