from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from openengine_sidecar.supervision import (
    Actor,
    ActorSystem,
    ChildSpec,
    Count,
    DeadReason,
    Mailbox,
    MailboxFullError,
    Overflow,
    Ref,
    ThreadActor,
)
from openengine_sidecar.supervision.testing import Gate, Probe, Stage
from tests.supervision.cast import Cast, Say, held_by

SMALL = 3


class Number(msgspec.Struct, frozen=True):
    n: int


async def test_mail_of_one_sender_arrives_in_order(stage: Stage, cast: Cast) -> None:
    handled: list[int] = []
    factory = cast(on_message=lambda _, message: handled.append(message.n))
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    for n in range(500):
        ref.tell(Number(n))
    await stage.clock.settle()
    assert handled == list(range(500))


async def test_mail_of_each_thread_arrives_in_order(stage: Stage, cast: Cast) -> None:
    handled: list[tuple[int, int]] = []
    factory = cast(on_message=lambda _, message: handled.append(message))
    ref = await stage.spawn(ChildSpec(name="a", factory=factory, mailbox=Mailbox(capacity=10_000)))
    finished = Gate()

    def send(sender: int) -> None:
        for n in range(1000):
            ref.tell((sender, n))
        finished.block()

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    await finished.reached(4)
    finished.open()
    for thread in threads:
        thread.join()
    await stage.clock.settle()
    assert len(handled) == 4000
    for sender in range(4):
        assert [n for who, n in handled if who == sender] == list(range(1000))


async def test_signals_overtake_mail(stage: Stage, cast: Cast) -> None:
    gate, log = Gate(), []

    def handle(_: Any, message: object) -> Any:
        yield gate
        log.append(message)

    factory = cast(on_message=handle, on_cancel=lambda _, cancel: log.append(cancel.reason))
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    for n in range(3):
        ref.tell(Number(n))
    await gate.reached()
    ref.cancel("overtakes")
    gate.open()
    await stage.clock.settle()
    assert log == [Number(0), "overtakes", Number(1), Number(2)]


async def test_stop_does_not_wait_for_the_mail(stage: Stage, cast: Cast) -> None:
    gate, handled = Gate(), []

    def handle(_: Any, message: object) -> Any:
        yield gate
        handled.append(message)

    factory = cast(on_message=handle)
    ref = await stage.spawn(ChildSpec(name="a", factory=factory))
    for n in range(10):
        ref.tell(Number(n))
    await gate.reached()
    ref.cancel("stop")
    gate.open()
    await ref.stopped()
    assert handled == [Number(0)]
    assert [letter.message for letter in stage.system.dead_letters] == [Number(n) for n in range(1, 10)]
    assert stage.system.dead_letters.counts[DeadReason.STOPPED] == 9


async def test_a_busy_actor_lets_others_run(stage: Stage) -> None:
    order: list[str] = []

    class Busy(Actor[Number]):
        async def on_message(self, message: Number) -> None:
            del message
            order.append(self.name)

    busy = await stage.spawn(ChildSpec(name="busy", factory=Busy))
    other = await stage.spawn(ChildSpec(name="other", factory=Busy))
    for n in range(200):
        busy.tell(Number(n))
    other.tell(Number(0))
    await stage.clock.settle()
    assert order.index("other") == 64
    assert len(order) == 201


async def test_the_sender_is_known_where_it_says_so(stage: Stage, cast: Cast, probe: Probe) -> None:
    senders: list[Any] = []
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=lambda actor, _: senders.append(actor.sender))))
    ref.tell(Number(1), sender=probe.ref)
    ref.tell(Number(2))
    await stage.clock.settle()
    assert senders == [probe.ref, None]


class Open(Actor[Number | Say]):
    async def on_message(self, message: Number | Say) -> object:
        return message


class OpenThread(ThreadActor[Number | Say]):
    def on_message(self, message: Number | Say) -> object:
        return message


@pytest.mark.parametrize("actor", [Open, OpenThread])
async def test_a_message_outside_the_protocol_is_a_dead_letter(stage: Stage, actor: type[Any], probe: Probe) -> None:
    ref: Ref[Any] = await stage.spawn(ChildSpec(name="a", factory=actor))
    ref.tell("who knows", sender=probe.ref)
    assert await ref.ask(Number(1), timeout=1.0) == Number(1)
    (letter,) = stage.system.dead_letters
    assert (letter.message, letter.recipient, letter.sender) == ("who knows", "/stage/a", "/stage/probe")
    assert letter.reason is DeadReason.UNKNOWN_MESSAGE
    assert stage.system.dead_letters.counts[DeadReason.UNKNOWN_MESSAGE] == 1


async def test_mail_to_an_address_nobody_lives_at_is_a_dead_letter(stage: Stage, cast: Cast) -> None:
    ref = stage.ref("later")
    assert [ref.is_alive] == [False]
    ref.tell(Say("too early"))
    await stage.spawn(ChildSpec(name="later", factory=cast.echo()))
    assert ref.is_alive
    assert await ref.ask(Say("in time"), timeout=1.0) == "in time"
    ref.cancel("end")
    await ref.stopped()
    ref.tell(Say("too late"))
    assert [(letter.message, letter.reason) for letter in stage.system.dead_letters] == [
        (Say("too early"), DeadReason.NEVER_LIVED),
        (Say("too late"), DeadReason.GONE),
    ]


async def test_a_spawned_child_is_not_mistaken_for_its_namesake(stage: Stage, cast: Cast) -> None:
    first = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    first.cancel("end")
    await first.stopped()
    second = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    first.tell(Say("for the first"))
    assert first == second == stage.ref("a")
    assert len({first, second, stage.ref("a")}) == 1
    assert not first.is_alive
    assert second.is_alive
    assert stage.system.dead_letters.counts[DeadReason.GONE] == 1


async def _full(stage: Stage, cast: Cast, overflow: Overflow) -> tuple[Ref[Any], Gate, list[Any]]:
    gate, handled = Gate(), []

    def handle(_: Any, message: object) -> Any:
        yield gate
        handled.append(message)

    spec = ChildSpec(name="a", factory=cast(on_message=handle), mailbox=Mailbox(capacity=SMALL, overflow=overflow))
    ref = await stage.spawn(spec)
    ref.tell(Number(0))
    await gate.reached()
    for n in range(1, SMALL + 1):
        ref.tell(Number(n))
    return ref, gate, handled


async def test_a_full_mailbox_refuses(stage: Stage, cast: Cast) -> None:
    ref, gate, handled = await _full(stage, cast, Overflow.REJECT)
    with pytest.raises(MailboxFullError, match="mailbox of /stage/a is full"):
        ref.tell(Number(99))
    with pytest.raises(MailboxFullError):
        await ref.ask(Number(99), timeout=1.0)
    gate.open()
    await stage.clock.settle()
    assert handled == [Number(n) for n in range(SMALL + 1)]
    assert stage.system.counters[Count.REJECTIONS] == 2


async def test_a_full_mailbox_drops_what_comes(stage: Stage, cast: Cast) -> None:
    ref, gate, handled = await _full(stage, cast, Overflow.DROP_NEW)
    ref.tell(Number(99))
    gate.open()
    await stage.clock.settle()
    assert handled == [Number(n) for n in range(SMALL + 1)]
    assert [letter.message for letter in stage.system.dead_letters] == [Number(99)]
    assert stage.system.dead_letters.counts[DeadReason.DROPPED_NEW] == 1


async def test_a_full_mailbox_drops_what_is_oldest(stage: Stage, cast: Cast) -> None:
    ref, gate, handled = await _full(stage, cast, Overflow.DROP_OLD)
    ref.tell(Number(99))
    gate.open()
    await stage.clock.settle()
    assert handled == [Number(0), Number(2), Number(3), Number(99)]
    assert [letter.message for letter in stage.system.dead_letters] == [Number(1)]
    assert stage.system.dead_letters.counts[DeadReason.DROPPED_OLD] == 1


async def test_dropping_the_oldest_spares_timers(stage: Stage, cast: Cast) -> None:
    gate, handled = Gate(), []

    def handle(actor: Any, message: object) -> Any:
        actor.schedule("tick", 1.0, Say("tick"))
        yield gate
        handled.append(message)

    mailbox = Mailbox(capacity=1, overflow=Overflow.DROP_OLD)
    ref = await stage.spawn(ChildSpec(name="a", factory=cast(on_message=handle), mailbox=mailbox))
    ref.tell(Number(0))
    await gate.reached()
    await stage.clock.advance(1.0)
    for n in range(1, 4):
        ref.tell(Number(n))
    gate.open()
    await stage.clock.settle()
    assert handled[0] == Number(0)
    assert {repr(message) for message in handled[1:]} == {repr(Say("tick")), repr(Number(3))}


async def test_the_mailbox_shows_its_depth_and_high_water(stage: Stage, cast: Cast) -> None:
    _, gate, _ = await _full(stage, cast, Overflow.REJECT)
    status = stage.system.snapshot()[-1]
    assert (status.mailbox, status.high_water) == (SMALL, SMALL)
    gate.open()
    await stage.clock.settle()
    status = stage.system.snapshot()[-1]
    assert (status.mailbox, status.high_water) == (0, SMALL)


async def test_no_letter_is_lost_when_a_mailbox_closes_under_fire(stage: Stage, cast: Cast) -> None:
    handled: list[object] = []
    factory = cast(on_message=lambda _, message: handled.append(message))
    ref = await stage.spawn(ChildSpec(name="a", factory=factory, mailbox=Mailbox(capacity=100_000)))
    started = Gate()
    started.open()
    finished = Gate()

    def send() -> None:
        started.block()
        for n in range(5000):
            ref.tell(n)
        finished.block()

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    await started.reached(3)
    ref.cancel("in the middle of it")
    await ref.stopped()
    await finished.reached(3)
    finished.open()
    for thread in threads:
        thread.join()
    assert len(handled) + stage.system.dead_letters.total == 15_000


async def test_mail_waits_while_its_receiver_starts(stage: Stage, cast: Cast) -> None:
    gate, handled = Gate(), []
    factory = cast(on_start=held_by(gate), on_message=lambda _, message: handled.append(message))
    stage.background(stage.spawn(ChildSpec(name="a", factory=factory)))
    await gate.reached()
    stage.ref("a").tell(Say("early"))
    gate.open()
    await stage.clock.settle()
    assert handled == [Say("early")]


async def test_the_last_dead_letters_are_kept_and_all_are_counted(stage: Stage) -> None:
    nowhere = stage.ref("nowhere")
    for n in range(300):
        nowhere.tell(Number(n))
    assert len(stage.system.dead_letters) == 256
    assert next(iter(stage.system.dead_letters)).message == Number(44)
    assert stage.system.dead_letters.total == 300


async def test_mail_told_to_a_closed_loop_is_a_dead_letter() -> None:
    held: list[tuple[ActorSystem, Ref[Any]]] = []

    def run_elsewhere() -> None:
        import asyncio  # noqa: PLC0415

        async def main() -> None:
            system = ActorSystem()
            held.append((system, await system.start(ChildSpec(name="root", factory=Probe))))

        asyncio.run(main())

    thread = threading.Thread(target=run_elsewhere)
    thread.start()
    thread.join()
    system, ref = held[0]
    ref.tell(Say("anybody?"))
    assert system.dead_letters.total == 1


class ClosesFirst(deque[Any]):
    """A mailbox that is closed, as by another thread, between a teller's look at it and its letter."""

    def __init__(self, close: Callable[[], None]) -> None:
        super().__init__()
        self._close = close

    def append(self, item: Any) -> None:
        self._close()
        super().append(item)


async def test_a_letter_that_comes_in_while_the_mailbox_closes_is_not_lost(stage: Stage, cast: Cast) -> None:
    for name in ("told", "put"):
        ref = await stage.spawn(ChildSpec(name=name, factory=cast.echo()))
        assert await ref.ask(Say("x"), timeout=60.0) == "x"
        await stage.clock.settle()
        cell = ref.resolve()
        cell.mail = ClosesFirst(cell.seal)
        if name == "told":
            ref.tell(Say(name))
        else:
            cell.put(Say(name))
    assert [letter.message for letter in stage.system.dead_letters] == [Say("told"), Say("put")]
