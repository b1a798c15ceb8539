"""The thread host: a life led by a thread of its own, for work that blocks. Its loop-side task only waits and decides.

A thread cannot be cancelled. It is asked to (`ThreadActor.cancelled`), and abandoned as a daemon if it does not listen.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pykka

from openengine_sidecar.messages.signals import Cancel, Cause, CauseKind, Drain, Signal, Stop, Terminated
from openengine_sidecar.supervision._clock import within
from openengine_sidecar.supervision._delivery import answer, await_promise, refuse, unwrap
from openengine_sidecar.supervision._host import Host
from openengine_sidecar.supervision._inbox import Bell, Notice
from openengine_sidecar.supervision._life import KILL_GRACE
from openengine_sidecar.supervision._watch import heard

if TYPE_CHECKING:
    from openengine_sidecar.supervision._cell import Cell
    from openengine_sidecar.supervision._system import ActorSystem
    from openengine_sidecar.supervision._thread_actor import ThreadActor


class ThreadHost(Host, pykka.ThreadingActor):  # type: ignore[misc] # _create_actor_inbox: see Host
    """Hosts a `ThreadActor`."""

    use_daemon_thread = True
    actor: ThreadActor[Any]

    def __init__(self, cell: Cell, actor: ThreadActor[Any]) -> None:
        super().__init__(cell, actor)
        self.cancelled = Cancellation()
        self._bell = Bell()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._between: deque[Job] = deque()
        self._open_jobs = 0
        self._asleep = False
        self._pumping = False
        self._leaving = False
        self._drain_job: Job | None = None
        self._thread: int | None = None

    async def enter(self) -> None:
        """Start the thread and run on_start in it."""
        self.system.threads.add(self)
        pykka.ThreadingActor._start_actor_loop(self)  # noqa: SLF001 - pykka's hook, which runs _actor_loop in a thread
        await self._in_thread(self.actor.on_start)

    async def pump(self) -> Cause:
        """Let the thread handle signals and mail until something ends this life."""
        self._pumping = True
        try:
            cause: Cause = await self._in_thread(self._pump)
        finally:
            self._pumping = False
        return cause

    async def leave(self, cause: Cause) -> None:
        """Run on_stop in the thread, its last job."""
        if self._leaving:
            return
        self._leaving = True
        last = self._queue_last(cause)
        if cause.kind is CauseKind.KILLED:
            await within(self.system.clock, last, KILL_GRACE)
        else:
            await last

    async def drain_self(self, drain: Drain) -> None:
        """Run on_drain in the thread, between two messages; it may return a future that ends the drain."""
        job = Job(lambda: self.actor.on_drain(drain), self.system.loop.create_future())
        self._drain_job = job
        self._between.append(job)
        self.cell.wake()
        await await_promise(await job.done)

    def request_stop(self, reason: str = "stopped") -> None:
        """End after the current message, or at once if the thread is held up in on_drain: the time for that is over."""
        super().request_stop(reason)
        if self._drain_job is not None and self._drain_job.running:
            self.interrupt()

    def interrupt(self) -> None:
        """Ask the thread to give up what it does."""
        self.cancelled.set()
        self.cell.wake()

    def on_interrupt(self, callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Have `callback()` called if this life is interrupted meanwhile."""
        return self.cancelled.calling(callback)

    def abandon(self) -> None:
        """Go on without the thread; once it returns it still runs on_stop, and nothing else."""
        super().abandon()
        self.interrupt()
        if not self._leaving:
            self._leaving = True
            self._queue_last(self.outcome)
        self.task.cancel()

    def finish(self, cause: Cause) -> None:
        """The life is over."""
        self.system.threads.discard(self)
        super().finish(cause)

    def is_current(self) -> bool:
        """Whether the calling thread leads this life."""
        return threading.get_ident() == self._thread

    def busy(self) -> bool:
        """Whether the thread has, or is about to have, something to do. Loop thread only."""
        if self.over or self.napping:
            return False
        if self._pumping and self._open_jobs == 1:
            return not self._asleep or bool(self.cell.mail or self.cell.signals or self._between)
        return self._open_jobs > 0

    # Below this line: in the thread, but for _in_thread and _queue_last.

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        try:
            return await self._queue(call)
        except asyncio.CancelledError:
            self.interrupt()
            raise

    def _queue(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        job = Job(call, self.system.loop.create_future())
        self._open_jobs += 1
        job.done.add_done_callback(self._job_done)
        self._jobs.put(job)
        return job.done

    def _queue_last(self, cause: Cause) -> asyncio.Future[Any]:
        done = self._queue(lambda: self.actor.on_stop(cause))
        self._jobs.put(None)
        return done

    def _job_done(self, done: asyncio.Future[Any]) -> None:
        self._open_jobs -= 1
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more

    def _actor_loop(self) -> None:
        self._thread = threading.get_ident()
        threading.current_thread().name = self.cell.path
        self.mark()
        while (job := self._jobs.get()) is not None:
            job.run(self.system)

    def _pump(self) -> Cause:
        inbox = self.cell
        mail, signals = inbox.mail, inbox.signals
        while self.verdict is None and not self.over:
            if self._between:
                self._between.popleft().run(self.system)
            elif signals:
                cause = self._on_signal(signals.pop(0))
                if cause is not None:
                    return cause
            elif not mail:
                self._sleep()
            else:
                self._handle(mail)
        return self.verdict or self.outcome

    def _sleep(self) -> None:
        inbox = self.cell
        inbox.waiter = self._bell
        self._asleep = True
        if not (inbox.mail or inbox.signals or self._between or self.verdict is not None or self.over):
            self._bell.sleep()
        self._asleep = False
        if not self.over:
            inbox.waiter = None

    def _handle(self, mail: deque[Any]) -> None:
        try:
            item = mail.popleft()
        except IndexError:  # another thread made room meanwhile
            return
        try:
            if type(item) in self.known:
                self.handle(item)
            else:
                self._handle_letter(item)
        except self.resumes as error:
            self.resume(error)

    def _handle_letter(self, item: Any) -> None:
        letter = unwrap(self, item)
        if letter is None:
            return
        self.letter = letter
        try:
            result = self.handle(letter.message)
        except BaseException as error:
            refuse(self, letter, error)
            raise
        finally:
            self.letter = None
        answer(self, letter, result)

    def _on_signal(self, signal: Signal | Notice) -> Cause | None:
        match signal:
            case Stop(reason):
                return self.verdict or Cause(CauseKind.STOPPED, reason)
            case Drain():
                self.system.run_on_loop(self.receive_drain, signal)
            case Cancel():
                self.system.run_on_loop(self.pass_cancel_down, signal)
                self.actor.on_cancel(signal)
            case Terminated():
                self.actor.on_terminated(signal)
            case Notice():
                terminated = heard(self, signal)
                if terminated is not None:
                    self.actor.on_terminated(terminated)
            case _:  # the other signals never travel through a mailbox
                pass
        return None


class Cancellation(threading.Event):
    """An event that also calls back."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], None]] = []

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Generator[None]:
        """Call `callback()` if it is set meanwhile, on the thread that sets it; at once if it is set already."""
        self._callbacks.append(callback)
        if self.is_set():
            callback()
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    def set(self) -> None:
        """Set it, for good."""
        super().set()
        for callback in tuple(self._callbacks):
            callback()


class Job:
    """A call for the thread, and the loop's future of its outcome."""

    __slots__ = ("_call", "done", "running")

    def __init__(self, call: Callable[[], Any], done: asyncio.Future[Any]) -> None:
        self._call = call
        self.done = done
        self.running = False

    def run(self, system: ActorSystem) -> None:
        """Make the call and report; in the thread."""
        self.running = True
        try:
            result = self._call()
        except StopIteration as error:  # no future may carry it
            system.call_from_thread(self._fail, RuntimeError(f"raised StopIteration: {error}"))
        except BaseException as error:  # noqa: BLE001 - travels to the loop, where it ends this life
            system.call_from_thread(self._fail, error)
        else:
            system.call_from_thread(self._finish, result)
        finally:
            self.running = False

    def _finish(self, result: Any) -> None:
        if not self.done.done():
            self.done.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)
