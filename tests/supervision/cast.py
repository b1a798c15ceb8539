from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from openengine_sidecar.messages.signals import Cancel, Cause, Drain, Terminated
from openengine_sidecar.supervision import Actor, Ref, ThreadActor
from openengine_sidecar.supervision.testing import Gate

Script = Callable[..., Any]
Factory = Callable[[], Any]


class Say(msgspec.Struct, frozen=True):
    text: str


class Fail(msgspec.Struct, frozen=True):
    error: BaseException


class Who(msgspec.Struct, frozen=True):
    pass


class LoopPlayer(Actor[object]):
    def __init__(self, scripts: dict[str, Script]) -> None:
        super().__init__()
        self.scripts = scripts

    async def on_start(self) -> None:
        await self._play("on_start")

    async def on_message(self, message: object) -> object:
        return await self._play("on_message", message)

    async def on_drain(self, drain: Drain) -> None:
        await self._play("on_drain", drain)

    async def on_cancel(self, cancel: Cancel) -> None:
        if "on_cancel" in self.scripts:
            await self._play("on_cancel", cancel)
        else:
            await super().on_cancel(cancel)

    async def on_terminated(self, terminated: Terminated) -> None:
        await self._play("on_terminated", terminated)

    async def on_stop(self, cause: Cause) -> None:
        await self._play("on_stop", cause)

    async def _play(self, name: str, *args: object) -> object:
        if name not in self.scripts:
            return None
        result = self.scripts[name](self, *args)
        if inspect.iscoroutine(result):
            return await result
        if not inspect.isgenerator(result):
            return result
        step: Any = result.send
        trouble: Any = None
        while True:
            try:
                gate: Gate = step(trouble)
            except StopIteration as stop:
                return stop.value
            try:
                await gate.passage()
            except BaseException as error:  # noqa: BLE001 - the script shall have it
                step, trouble = result.throw, error
            else:
                step, trouble = result.send, None


class ThreadPlayer(ThreadActor[object]):
    def __init__(self, scripts: dict[str, Script]) -> None:
        super().__init__()
        self.scripts = scripts

    def on_start(self) -> None:
        self._play("on_start")

    def on_message(self, message: object) -> object:
        return self._play("on_message", message)

    def on_drain(self, drain: Drain) -> object:
        return self._play("on_drain", drain)

    def on_cancel(self, cancel: Cancel) -> None:
        if "on_cancel" in self.scripts:
            self._play("on_cancel", cancel)
        else:
            super().on_cancel(cancel)

    def on_terminated(self, terminated: Terminated) -> None:
        self._play("on_terminated", terminated)

    def on_stop(self, cause: Cause) -> None:
        self._play("on_stop", cause)

    def _play(self, name: str, *args: object) -> object:
        if name not in self.scripts:
            return None
        result = self.scripts[name](self, *args)
        if not inspect.isgenerator(result):
            return result
        step: Any = result.send
        trouble: Any = None
        while True:
            try:
                gate: Gate = step(trouble)
            except StopIteration as stop:
                return stop.value
            try:
                gate.block(self.cancelled if step == result.send else None)
            except BaseException as error:  # noqa: BLE001 - the script shall have it
                step, trouble = result.throw, error
            else:
                step, trouble = result.send, None


class Cast:
    """Makes actors of one kind from scripts: plain functions of (actor, argument), or generators that yield gates."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, **scripts: Script) -> Factory:
        player = LoopPlayer if self.kind == "loop" else ThreadPlayer
        return lambda: player(scripts)

    def echo(self) -> Factory:
        return self(on_message=answer)


def answer(actor: Any, message: object) -> object:
    match message:
        case Say(text):
            return text
        case Fail(error):
            raise error
        case Who():
            return actor.incarnation
        case _:
            return message


def held_by(gate: Gate) -> Script:
    def script(_actor: Any, *_: object) -> Generator[Gate, None, None]:
        yield gate

    return script


def tell_of(log: list[Any], what: str) -> Script:
    def script(actor: Any, *_: object) -> None:
        log.append((what, actor.name))

    return script


async def incarnation(ref: Ref[Any]) -> int:
    lives: int = await ref.ask(Who(), timeout=60.0)
    return lives
