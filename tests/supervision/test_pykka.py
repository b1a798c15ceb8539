from __future__ import annotations

import asyncio
import queue
import threading
from typing import Any

import pykka
import pytest

from openengine_sidecar.supervision import (
    AskFuture,
    Backoff,
    BlockingCallError,
    ChildSpec,
    Strategy,
    Supervisor,
)
from openengine_sidecar.supervision.testing import Gate, Stage
from tests.supervision.cast import Cast, Fail, Say, incarnation


def test_an_ask_future_is_a_pykka_future() -> None:
    future: AskFuture[int] = AskFuture()
    assert isinstance(future, pykka.Future)
    future.set(7)
    assert future.get() == 7
    with pytest.raises(queue.Full):
        future.set(8)
    failed: AskFuture[int] = AskFuture()
    try:
        raise ValueError  # noqa: TRY301 - as pykka's own loop does it
    except ValueError:
        failed.set_exception()
    with pytest.raises(ValueError):  # noqa: PT011 - any will do
        failed.get()
    assert pykka.get_all([future.map(lambda n: n + 1)]) == [8]


def _pykka_ref(stage: Stage, path: str) -> pykka.ActorRef[Any]:
    host = stage.system.host_at(path)
    assert host is not None
    return host.actor_ref


async def test_plain_pykka_may_speak_to_an_actor(stage: Stage, cast: Cast) -> None:
    await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    ref = _pykka_ref(stage, "/stage/a")
    assert ref.is_alive()
    assert await ref.ask(Say("on the loop"), block=False) == "on the loop"
    assert await asyncio.to_thread(ref.ask, Say("from a thread"), timeout=30.0) == "from a thread"
    ref.tell(Say("told"))
    with pytest.raises(BlockingCallError):
        ref.ask(Say("blocking the loop"))


async def test_plain_pykka_may_stop_an_actor(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    ours = _pykka_ref(stage, "/stage/a")
    assert await asyncio.to_thread(ours.stop, timeout=30.0) is True
    assert (await ref.stopped()).normal
    assert not ours.is_alive()
    assert await asyncio.to_thread(ours.stop, timeout=30.0) is False


async def test_the_registry_of_pykka_never_hears_of_us(stage: Stage, cast: Cast) -> None:
    spec = ChildSpec(name="a", factory=cast.echo(), backoff=Backoff(minimum=0.0, maximum=0.0))
    await stage.spawn(ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[spec])))
    stage.ref("sup/a").tell(Fail(ValueError()))
    assert await incarnation(stage.ref("sup/a")) == 2
    assert pykka.ActorRegistry.get_all() == []


class Neighbour(pykka.ThreadingActor):
    def on_receive(self, message: Any) -> Any:
        raise message


async def test_a_pykka_neighbour_that_stops_everybody_does_not_stop_us(stage: Stage, cast: Cast) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    neighbour, victim = Neighbour.start(), Neighbour.start()
    neighbour.tell(SystemExit())
    await asyncio.to_thread(victim.actor_stopped.wait, 30.0)
    assert not victim.is_alive()
    assert await ref.ask(Say("unmoved"), timeout=30.0) == "unmoved"
    await asyncio.to_thread(pykka.ActorRegistry.stop_all)


async def test_our_base_exceptions_never_stop_pykka_neighbours(stage: Stage, cast: Cast) -> None:
    neighbour = Neighbour.start()
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    ref.tell(Fail(SystemExit()))
    await ref.stopped()
    assert neighbour.is_alive()
    await asyncio.to_thread(neighbour.stop)


async def test_thread_actors_run_on_daemon_threads_that_end_with_them(stage: Stage) -> None:
    gate = Gate()
    factory = Cast("thread")(on_message=lambda *_: threading.current_thread())
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    thread: threading.Thread = await ref.ask(Say("who?"), timeout=30.0)
    assert thread.daemon
    assert thread.name == "/stage/a"
    ref.cancel("end")
    await ref.stopped()
    await asyncio.to_thread(thread.join, 30.0)
    assert not thread.is_alive()
    gate.open()
