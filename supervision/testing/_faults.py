"""Faults on demand: actors that crash when a test says so."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from openengine_sidecar.messages.signals import Cause
from openengine_sidecar.supervision._behaviour import Behaviour
from openengine_sidecar.supervision._spec import ChildSpec
from openengine_sidecar.supervision._system import ActorSystem
from openengine_sidecar.supervision.errors import ActorGoneError


class InjectedError(Exception):
    """A failure that a test asked for."""


def crash_at(spec: ChildSpec, n: int, error: Callable[[], BaseException] = InjectedError) -> ChildSpec:
    """A spec whose actor raises instead of handling its `n`-th message, counted from 1 over all its lives."""
    handled = itertools.count(1)

    def strikes() -> bool:
        return next(handled) == n

    def factory() -> Behaviour[Any]:
        return _sabotaged(spec.factory(), strikes, error)

    return msgspec.structs.replace(spec, factory=factory)


def crash_now(system: ActorSystem, path: str, error: BaseException | None = None) -> None:
    """Make the actor that lives at `path` fail, whatever it is doing. On the system's loop.

    Raises:
        ActorGoneError: nobody lives there.
    """
    host = system.host_at(path)
    if host is None:
        raise ActorGoneError(path)
    host.conclude(Cause.of(error if error is not None else InjectedError("crashed by a test")))


def _sabotaged(
    actor: Behaviour[Any], strikes: Callable[[], bool], error: Callable[[], BaseException]
) -> Behaviour[Any]:
    target: Any = actor
    handle = target.on_message

    if inspect.iscoroutinefunction(handle):

        async def handle_on_loop(message: object) -> object:
            if strikes():
                raise error()
            return await handle(message)

        target.on_message = handle_on_loop
    else:

        def handle_in_thread(message: object) -> object:
            if strikes():
                raise error()
            return handle(message)

        target.on_message = handle_in_thread
    return actor
