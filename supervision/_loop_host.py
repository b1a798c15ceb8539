"""The loop host: a life led by one asyncio task, its mailbox pumped with as little between as can be."""

from __future__ import annotations

import asyncio
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from openengine_sidecar.messages.signals import Cancel, Cause, CauseKind, Drain, Signal, Stop, Terminated
from openengine_sidecar.supervision._delivery import PROMISES, answer, refuse, unwrap
from openengine_sidecar.supervision._host import Host
from openengine_sidecar.supervision._inbox import Letter, Notice
from openengine_sidecar.supervision._switch import Continued, begin
from openengine_sidecar.supervision._watch import heard

if TYPE_CHECKING:
    from openengine_sidecar.supervision._actor import Actor
    from openengine_sidecar.supervision._future import AskFuture

BURST: Final = 64
"""Messages an actor may handle in a row before others get their turn."""


class LoopHost(Host):
    """Hosts an `Actor`."""

    actor: Actor[Any]
    _half_started: Continued | None = None
    _switched: tuple[Continued, Letter] | None = None
    _crash: BaseException | None = None

    async def enter(self) -> None:
        """Run on_start, or what is left of it."""
        if self.verdict is not None:  # spoken before the first step could be interrupted
            self.task.cancel()
        if self._crash is not None:
            raise self._crash
        if self._half_started is not None:
            await self._half_started
        else:
            self.entered = True
            await self.actor.on_start()

    async def leave(self, cause: Cause) -> None:
        """Run on_stop."""
        await self.actor.on_stop(cause)

    async def drain_self(self, drain: Drain) -> None:
        """Run on_drain."""
        await self.actor.on_drain(drain)

    def interrupt(self) -> None:
        """Cancel what the task waits for."""
        if self.begun:
            self.task.cancel()

    def is_current(self) -> bool:
        """Whether the running task leads this life."""
        return asyncio.current_task() is self.task

    async def pump(self) -> Cause:
        """Handle signals first, then mail; let others run after every burst."""
        inbox = self.cell
        mail, signals = inbox.mail, inbox.signals
        burst = left = self.system.burst
        while not self.over:
            if signals:
                cause = await self._on_signal(signals.pop(0))
                if cause is not None:
                    return cause
                continue
            if not mail:
                await self._rest()
                left = burst
                continue
            try:
                item = mail.popleft()
            except IndexError:  # a thread made room meanwhile
                continue
            try:
                if type(item) in self.known:
                    await self.handle(item)
                else:
                    await self._handle_letter(item)
            except self.resumes as error:
                self.resume(error)
            left -= 1
            if not left:
                left = burst
                await self.system.pause()
        return self.outcome

    async def _rest(self) -> None:
        """Sleep until there is something to do, and take over what an asker has begun meanwhile."""
        inbox, system = self.cell, self.system
        waiter = inbox.waiter = system.create_waiter()
        if not inbox.mail and not inbox.signals:  # a thread may have been faster than the flag
            self.parked = system.direct
            try:
                await waiter
            except asyncio.CancelledError as error:
                if self._switched is None:
                    raise
                self._switched[0].interrupt(error)
            finally:
                self.parked = False
        inbox.waiter = None
        if self._crash is not None:
            raise self._crash
        if self._switched is not None:
            await self._finish_switched(*self._switched)

    async def _handle_letter(self, item: Any) -> None:
        letter = unwrap(self, item)
        if letter is None:
            return
        self.letter = letter
        try:
            result = await self.handle(letter.message)
        except BaseException as error:
            refuse(self, letter, error)
            raise
        finally:
            self.letter = None
        answer(self, letter, result)

    def start_now(self) -> None:
        """Run on_start to its first wait, on behalf of whoever waits for it, where that is possible."""
        if not self.system.may_switch():
            return
        self.entered = True
        starting = self.actor.on_start()
        try:
            pending = begin(self, starting)
        except StopIteration:
            self.started()
        except BaseException as error:  # noqa: BLE001 - raised again by the first step of the task
            self._crash = error
        else:
            self._half_started = Continued(starting, pending)

    def handle_now(self, reply: AskFuture[Any]) -> None:
        """Handle the only ask in the mailbox before its asker goes to sleep, where that is possible."""
        cell, system = self.cell, self.system
        mail = cell.mail
        if len(mail) != 1 or cell.signals or get_ident() != system.thread or not system.may_switch():
            return
        if mail[0] is not reply:
            return
        mail.popleft()
        if type(reply.message) not in self.known and unwrap(self, reply) is None:
            return
        self.parked = False
        self.letter = reply
        handler = self.handle(reply.message)
        try:
            pending = begin(self, handler)
        except StopIteration as stop:
            self.letter = None
            self.parked = True
            if reply.postponed or isinstance(stop.value, PROMISES):
                answer(self, reply, stop.value)
            else:
                reply.answer(stop.value)
        except BaseException as error:  # noqa: BLE001 - raised again by the pump, which is about to wake up
            self.letter = None
            refuse(self, reply, error)
            if isinstance(error, self.resumes):
                self.parked = True
                self.resume(error)
            else:
                self._crash = error
        else:
            self._switched = Continued(handler, pending), reply

    async def _finish_switched(self, handler: Continued, letter: Letter) -> None:
        try:
            result = await handler
        except BaseException as error:
            refuse(self, letter, error)
            if not isinstance(error, self.resumes):
                raise
            self.resume(error)
        else:
            answer(self, letter, result)
        finally:
            self._switched = None
            self.letter = None

    async def _on_signal(self, signal: Signal | Notice) -> Cause | None:
        match signal:
            case Stop(reason):
                return self.verdict or Cause(CauseKind.STOPPED, reason)
            case Drain():
                self.receive_drain(signal)
            case Cancel():
                self.pass_cancel_down(signal)
                await self.actor.on_cancel(signal)
            case Terminated():
                await self.actor.on_terminated(signal)
            case Notice():
                terminated = heard(self, signal)
                if terminated is not None:
                    await self.actor.on_terminated(terminated)
            case _:  # Start, Started, Drained and Escalate are never posted to a mailbox
                pass
        return None
