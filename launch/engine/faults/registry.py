"""The registry of faults: each has a name, a line of documentation, and one or more places where it acts.

A fault is written `NAME[:VALUE][,KEY[=VALUE]...][@N]`; `@N` limits one given to the engine to the first N requests (or
calls) that it concerns. New faults register themselves with `@fault` in a module that the package imports.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from openengine_sidecar.launch.engine.admission import Admitted
from openengine_sidecar.launch.engine.handoff.sessions import SessionStore
from openengine_sidecar.launch.engine.requests import ActiveRequest
from openengine_sidecar.proto.rev2 import generation_pb2, kv_pb2

Events = AsyncGenerator[generation_pb2.GenerateResponse, None]
_SCRIPT = re.compile(r"(?P<name>[a-z][a-z0-9_-]*)(?::(?P<value>[^,@]*))?(?P<options>(?:,[^,@]+)*)(?:@(?P<times>\d+))?")


class FaultScriptError(ValueError):
    """A fault's text is not one, or its argument is unusable."""

    def __init__(self, fault: str, found: str, wanted: str) -> None:
        super().__init__(f"{fault}: {found!r} is not {wanted}")


@dataclass(frozen=True, slots=True)
class Argument:
    """What follows a fault's name."""

    fault: str
    value: str = ""
    options: dict[str, str] = field(default_factory=dict[str, str])

    def text(self, default: str) -> str:
        """Return the value in lower case, or the default."""
        return self.value.lower() or default

    def among(self, choices: tuple[str, ...]) -> str:
        """Return the value, one of the choices, the first by default.

        Raises:
            FaultScriptError: it is none of them.
        """
        found = self.text(choices[0])
        if found not in choices:
            raise FaultScriptError(self.fault, found, f"one of {', '.join(choices)}")
        return found

    def count(self, default: int) -> int:
        """Return the value as a number, not negative.

        Raises:
            FaultScriptError: it is no such number.
        """
        return self._number(self.value, default)

    def option(self, key: str, default: int) -> int:
        """Return the option of that key as a number, not negative.

        Raises:
            FaultScriptError: it is no such number.
        """
        return self._number(self.options.get(key, ""), default)

    def seconds(self) -> float | None:
        """Return the value as seconds, None when there is none.

        Raises:
            FaultScriptError: it is no number.
        """
        try:
            return float(self.value) if self.value else None
        except ValueError as error:
            raise FaultScriptError(self.fault, self.value, "a number of seconds") from error

    def _number(self, text: str, default: int) -> int:
        if text and not text.isdigit():
            raise FaultScriptError(self.fault, text, "a number")
        return int(text) if text else default


@dataclass(frozen=True, slots=True)
class Scene:
    """The request in whose stream a fault acts.

    Attributes:
        die: ends the engine as a crash would.
        sessions: what a prefill engine holds.
    """

    admitted: Admitted
    active: ActiveRequest
    die: Callable[[], None]
    sessions: SessionStore | None = None

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.admitted.request.request_id


Refuse = Callable[[generation_pb2.GenerateRequest], None]
Transform = Callable[[Events, Scene], Events]
Answer = Callable[[], Awaitable[Message]]
Wrap = Callable[[Answer], Awaitable[Message]]
KvMessage = kv_pb2.SubscribeKvEventsResponse
Deliver = Callable[[kv_pb2.KvEventBatch], Iterable[KvMessage]]


@dataclass(frozen=True, slots=True)
class Effects:
    """Where a fault acts.

    Attributes:
        refuse: refuses a request before acceptance, by raising StatusError.
        stream: changes the events of a request.
        call: stands around the answers of the unary `methods`.
        deliver: decides what a subscriber of KV events hears in place of a batch; may raise StatusError.
    """

    refuse: Refuse | None = None
    stream: Transform | None = None
    call: Wrap | None = None
    methods: frozenset[str] = frozenset()
    deliver: Deliver | None = None


Make = Callable[[Argument], Effects]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One entry of the registry."""

    name: str
    help: str
    make: Make


FAULTS: dict[str, FaultKind] = {}


def fault(name: str, help: str) -> Callable[[Make], Make]:  # noqa: A002 - the word users see
    """Register a fault; `help` says what its argument means and what it does."""

    def register(make: Make) -> Make:
        FAULTS[name] = FaultKind(name, help, make)
        return make

    return register


@dataclass(slots=True)
class Fault:
    """A fault ready to act; `left` counts down to none, None is without end."""

    name: str
    effects: Effects
    left: int | None = None

    def take(self) -> bool:
        """Tell whether it acts now, and use it up by one."""
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0


def parse(text: str) -> Fault:
    """Read one fault.

    Raises:
        FaultScriptError: there is no such fault, or its argument is unusable.
    """
    found = _SCRIPT.fullmatch(text.strip())
    name = found["name"].replace("_", "-") if found else text
    if found is None or name not in FAULTS:
        raise FaultScriptError(text, name, f"one of {', '.join(sorted(FAULTS))}")
    options = dict(_option(part) for part in found["options"].split(",") if part)
    effects = FAULTS[name].make(Argument(name, found["value"] or "", options))
    return Fault(name, effects, int(found["times"]) if found["times"] else None)


def _option(part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    return key.strip(), value.strip()
