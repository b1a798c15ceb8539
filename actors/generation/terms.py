"""The terms of one translation: who asks, what the engine offers, and every way of saying no."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Never, cast

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.generation.capabilities import Offer
from openengine_sidecar.actors.generation.fields import FIELDS, Fate, attribute_paths
from openengine_sidecar.messages.dynamo.request import InboundRequest, PreprocessedRequest
from openengine_sidecar.messages.errors import HandoffError, InvalidRequestError, UnsupportedFeatureError

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 60


@dataclass(frozen=True, slots=True)
class Terms:
    """Judges one request's values against the table of fields.

    Attributes:
        dropped: names of the hints that were dropped, for counting; filled while the request is translated.
    """

    request_id: str
    offer: Offer
    config: RequestConfig
    dropped: list[str] = field(default_factory=list)

    def permits(self, name: str, value: object) -> bool:
        """Whether the engine advertises all that the field needs for this value."""
        return all(need.permits(self.offer, value) for need in FIELDS[name].needs)

    def require(self, name: str, value: object) -> None:
        """Insists on what the field needs.

        Raises:
            UnsupportedFeatureError: the engine does not advertise it.
        """
        for need in FIELDS[name].needs:
            if not need.permits(self.offer, value):
                self.refuse(name, value, need.unmet(self.offer))

    def keep_hint(self, name: str, value: object) -> bool:
        """Whether to carry a hint; one the engine cannot honour is dropped and noted where the configuration allows.

        Raises:
            UnsupportedFeatureError: the engine cannot honour it, and hints are not to be dropped.
        """
        row = FIELDS[name]
        if row.fate is Fate.CARRIED and self.permits(name, value):
            return True
        if not self.config.drop_unsupported_hints:
            self.require(name, value)
            self.refuse(name, value, row.note)
        self.dropped.append(name)
        return False

    def reject(self, name: str, value: object, problem: str) -> Never:
        """Ends the request for a value that no engine could take.

        Raises:
            InvalidRequestError: always.
        """
        raise InvalidRequestError(self.request_id, f"{_named(name)} is {_shown(value)}: {problem}")

    def refuse(self, name: str, value: object, problem: str) -> Never:
        """Ends the request for something that this engine, or its schema, cannot do.

        Raises:
            UnsupportedFeatureError: always.
        """
        raise UnsupportedFeatureError(self.request_id, f"{_named(name)} is {_shown(value)}: {problem}")

    def mismatch(self, problem: str) -> Never:
        """Ends the request because the two halves of a disaggregated pair do not fit.

        Raises:
            HandoffError: always.
        """
        raise HandoffError(self.request_id, problem)

    def refuse_what_cannot_travel(self, inbound: InboundRequest) -> None:
        """Refuses every field that says something and that the table does not let pass.

        Raises:
            UnsupportedFeatureError: names the first such field.
        """
        for name, path in _REFUSED:
            self._judge(name, _reach(inbound.request, path))
        for name, value in inbound.unknown.items():
            self._judge(name, value)
        for name, value in _flat("extra_args", inbound.request.extra_args or {}):
            self._judge(name, value)

    def _judge(self, name: str, value: object) -> None:
        if value is None:
            return
        row = FIELDS.get(name)
        if row is None:
            self.refuse(name, value, "this worker does not know the field, and drops nothing in silence")
        if row.fate is Fate.REFUSED and value not in row.harmless:
            self.refuse(name, value, row.note)


def _named(name: str) -> str:
    client = FIELDS[name].client if name in FIELDS else ""
    return f"{name} ({client})" if client and client != name.rpartition(".")[2] else name


def _shown(value: object) -> str:
    return str(value) if isinstance(value, StrEnum) else _SHOWN.repr(value)


def _flat(path: str, values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        if key == "nvext" and isinstance(value, dict):
            yield from _flat(f"{path}.nvext", cast("dict[str, object]", value))
        else:
            yield f"{path}.{key}", value


def _reach(value: object, path: tuple[str, ...]) -> object:
    for name in path:
        value = getattr(value, name, None)
    return value


_PATHS = attribute_paths(PreprocessedRequest)
_REFUSED = tuple((name, _PATHS[name]) for name, row in FIELDS.items() if row.fate is Fate.REFUSED and name in _PATHS)
