"""Between mailbox and handler: everything but the plain tell of a known type, which goes straight through."""

from __future__ import annotations

import asyncio
import concurrent.futures
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

from openengine_sidecar.supervision._counters import Count
from openengine_sidecar.supervision._dead_letters import DeadReason
from openengine_sidecar.supervision._future import AskFuture
from openengine_sidecar.supervision._inbox import Envelope, Letter, Tick
from openengine_sidecar.supervision._tracing import log_message
from openengine_sidecar.supervision.errors import ActorGoneError, UnknownMessageError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host


LETTERS: frozenset[type] = frozenset({Envelope, AskFuture})
PROMISES: tuple[type[Any], ...] = (asyncio.Future, concurrent.futures.Future, AskFuture)
Promise = asyncio.Future[Any] | concurrent.futures.Future[Any] | AskFuture[Any]


def unwrap(host: Host, item: Any) -> Letter | None:
    """Turn what came out of the mailbox into a letter to handle; None if it is not to be handled."""
    if host.cell.crowd:
        host.cell.let_in()
    if isinstance(item, Tick):
        if host.timers.get(item.key) is not item:
            return None
        del host.timers[item.key]
        item = item.message
    letter = _as_letter(item)
    reply = letter.reply
    if reply is not None and (reply.done or reply.deadline <= host.system.clock.monotonic()):
        host.system.counters.add(Count.EXPIRED_ASKS)
        reply.expire()
        return None
    if not host.vocabulary.understands(letter.message):
        _refuse_unknown(host, letter)
        return None
    if host.cell.traced:
        log_message(host.cell, letter)
    letter.postponed = False
    return letter


def answer(host: Host, letter: Letter, result: object) -> None:
    """Give the asker the handler's result, or once it is there what the returned future brings."""
    reply = letter.reply
    if reply is None or letter.postponed:
        return
    if _is_promise(result):
        _defer(host, reply, result)
    else:
        reply.answer(result)


def refuse(host: Host, letter: Letter, error: BaseException) -> None:
    """The handler failed: the asker hears of it too, and is never left waiting."""
    if letter.reply is None:
        return
    if isinstance(error, Exception):
        letter.reply.fail(error)
    else:
        letter.reply.fail(ActorGoneError(host.cell.path, f"ended by {type(error).__name__} while answering"))


async def await_promise(result: object) -> None:
    """Wait for a future of whatever kind; anything else is no reason to wait."""
    if not _is_promise(result):
        return
    if isinstance(result, concurrent.futures.Future):
        await asyncio.wrap_future(result)
    else:
        await result


def _is_promise(result: object) -> TypeGuard[Promise]:
    return isinstance(result, PROMISES)


def _as_letter(item: Any) -> Letter:
    return item if type(item) in LETTERS else Envelope(item)


def _refuse_unknown(host: Host, letter: Letter) -> None:
    if letter.reply is not None:
        letter.reply.fail(UnknownMessageError(host.cell.path, type(letter.message).__name__))
        letter = Envelope(letter.message, letter.sender)
    host.cell.bury(letter, DeadReason.UNKNOWN_MESSAGE)


def _defer(host: Host, reply: AskFuture[Any], promise: Promise) -> None:
    reply.deferred = True
    if isinstance(promise, AskFuture):
        promise.when_done(lambda: _pass_on_reply(reply, promise))
    elif isinstance(promise, asyncio.Future):  # not a thread-safe one
        host.system.run_on_loop(promise.add_done_callback, partial(_pass_on, host, reply))
    else:
        promise.add_done_callback(partial(_pass_on, host, reply))


def _pass_on(host: Host, reply: AskFuture[Any], done: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
    if done.cancelled():
        reply.fail(ActorGoneError(host.cell.path, "gave the answer up"))
        return
    error = done.exception()
    if error is not None:
        reply.fail(error)
    else:
        reply.answer(done.result())


def _pass_on_reply(reply: AskFuture[Any], done: AskFuture[Any]) -> None:
    if done.error is not None:
        reply.fail(done.error)
    else:
        reply.answer(done.value)
