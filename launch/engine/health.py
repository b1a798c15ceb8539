"""Health answers by script, so that a test can say what each question is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import grpc

from openengine_sidecar.messages.errors import ConfigurationError
from openengine_sidecar.proto.rev2 import lifecycle_pb2

_ENTRY = re.compile(r"(?P<answer>[a-z_]+|\d+)(?:\*(?P<times>\d+))?")
_STATES = {name.removeprefix("HEALTH_STATE_").lower(): number for name, number in lifecycle_pb2.HealthState.items()}
OPTION = "--health"
REFUSALS = frozenset({"hang", "overloaded", *(status.name.lower() for status in grpc.StatusCode)} - {"ok"})


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: a state number (one the schema does not know included), or a name of `REFUSALS`."""

    state: int | None = None
    refusal: str | None = None


class HealthScript:
    """A list such as `starting*3,unavailable,ready`: each entry answers that many questions, the last all others.

    Entries are the schema's state names in lower case, a bare number, a gRPC status in lower case (`overloaded` is
    RESOURCE_EXHAUSTED), or `hang`.
    """

    def __init__(self, text: str) -> None:
        self._last = Answer()
        self._answers: Iterator[Answer] = iter(())
        self.play(text)

    def play(self, text: str) -> None:
        """Start over with another script.

        Raises:
            ConfigurationError: the text is no script.
        """
        entries = [_parse(part.strip()) for part in text.lower().split(",")]
        self._answers = iter([answer for answer, times in entries for _ in range(times)])
        self._last = entries[-1][0]

    def next(self) -> Answer:
        """Return the answer to the next question."""
        return next(self._answers, self._last)


def _parse(entry: str) -> tuple[Answer, int]:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise ConfigurationError(OPTION, f"{entry!r} is not an entry such as ready or starting*3")
    name, times = found["answer"], int(found["times"] or 1)
    if name.isdigit():
        return Answer(state=int(name)), times
    if name in _STATES:
        return Answer(state=_STATES[name]), times
    if name in REFUSALS:
        return Answer(refusal=name), times
    raise ConfigurationError(OPTION, f"{name!r} is neither a health state nor one of {', '.join(sorted(REFUSALS))}")
