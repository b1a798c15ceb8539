"""The loop host: a life led by one asyncio task, its mailbox pumped with as little between as can be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from openengine_sidecar.messages.signals import Cancel, Cause, CauseKind, Drain, Signal, Stop, Terminated
from openengine_sidecar.supervision._children import receive_drain
from openengine_sidecar.supervision._delivery import answer, refuse, unwrap
from openengine_sidecar.supervision._host import Host

if TYPE_CHECKING:
    from openengine_sidecar.supervision._actor import Actor

BURST: Final = 64
"""Messages an actor may handle in a row before others get their turn."""


class LoopHost(Host):
    """Hosts an `Actor`."""

    actor: Actor[Any]

    async def enter(self) -> None:
        """Run on_start."""
        await self.actor.on_start()

    async def leave(self, cause: Cause) -> None:
        """Run on_stop."""
        await self.actor.on_stop(cause)

    async def drain_self(self, drain: Drain) -> None:
        """Run on_drain."""
        await self.actor.on_drain(drain)

    def interrupt(self) -> None:
        """Cancel what the task waits for."""
        self.task.cancel()

    def is_current(self) -> bool:
        """Whether the running task leads this life."""
        return asyncio.current_task() is self.task

    async def pump(self) -> Cause:
        """Handle signals first, then mail; let others run after every burst."""
        inbox = self.cell
        mail, signals = inbox.mail, inbox.signals
        handle, create_waiter = self.actor.on_message, self.system.create_waiter
        burst = left = self.system.burst
        while not self.over:
            if signals:
                cause = await self._on_signal(signals.popleft())
                if cause is not None:
                    return cause
                continue
            if not mail:
                inbox.waiter = waiter = create_waiter()
                if not mail and not signals:  # a thread may have been faster than the flag
                    await waiter
                inbox.waiter = None
                left = burst
                continue
            try:
                item = mail.popleft()
            except IndexError:  # a thread made room meanwhile
                continue
            if type(item) in self.known:
                await handle(item)
            else:
                await self._handle_letter(item)
            left -= 1
            if not left:
                left = burst
                await asyncio.sleep(0)
        return self.outcome

    async def _handle_letter(self, item: Any) -> None:
        letter = unwrap(self, item)
        if letter is None:
            return
        self.letter = letter
        try:
            result = await self.actor.on_message(letter.message)
        except BaseException as error:
            refuse(self, letter, error)
            raise
        finally:
            self.letter = None
        if letter.reply is not None:
            answer(self, letter, result)

    async def _on_signal(self, signal: Signal) -> Cause | None:
        match signal:
            case Stop(reason):
                return self.verdict or Cause(CauseKind.STOPPED, reason)
            case Drain():
                receive_drain(self, signal)
            case Cancel():
                self.pass_cancel_down(signal)
                await self.actor.on_cancel(signal)
            case Terminated():
                await self.actor.on_terminated(signal)
            case _:  # Start, Started, Drained and Escalate are never posted to a mailbox
                pass
        return None
