"""The faults in force: those given to the engine, and those a single request carries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from google.protobuf.message import Message

from openengine_sidecar.launch.engine.faults.events import stack
from openengine_sidecar.launch.engine.faults.registry import (
    Answer,
    Events,
    Fault,
    FaultScriptError,
    KvMessage,
    Scene,
    parse,
)
from openengine_sidecar.launch.engine.plan import FAULT_KEY
from openengine_sidecar.launch.engine.status import invalid
from openengine_sidecar.messages.errors import ConfigurationError
from openengine_sidecar.proto.rev2 import generation_pb2, kv_pb2

OPTION = "--fault"
_IN_PROMPT = re.compile(rb"<<fault ([^>]+)>>")


class FaultSet:
    """What an engine does wrong, now.

    A request brings faults of its own under the metadata key `fault`, several separated by `;`; with `in_prompts`
    also as `<<fault NAME>>` in the text it says, for clients that cannot set metadata.
    """

    def __init__(self, texts: Iterable[str], used: Counter[str], *, in_prompts: bool) -> None:
        self._used = used
        self._in_prompts = in_prompts
        self._faults: list[Fault] = []
        self.play(texts)

    def play(self, texts: Iterable[str]) -> None:
        """Replace the engine's faults.

        Raises:
            ConfigurationError: a text is no fault.
        """
        try:
            self._faults = [parse(text) for text in texts]
        except FaultScriptError as error:
            raise ConfigurationError(OPTION, str(error)) from error

    def of_request(self, request: generation_pb2.GenerateRequest, said: bytes) -> list[Fault]:
        """Return the faults that a request brings.

        Raises:
            StatusError: INVALID_ARGUMENT for a text that is no fault.
        """
        texts = [text for text in request.metadata.get(FAULT_KEY, "").split(";") if text.strip()]
        if self._in_prompts:
            texts += [found.decode(errors="replace") for found in _IN_PROMPT.findall(said)]
        try:
            return [parse(text) for text in texts]
        except FaultScriptError as error:
            raise invalid(str(error)) from error

    def refuse(self, request: generation_pb2.GenerateRequest, own: Sequence[Fault]) -> None:
        """Let faults refuse a request.

        Raises:
            StatusError: one does.
        """
        for fault in (*self._faults, *own):
            if fault.effects.refuse is not None and self._take(fault):
                fault.effects.refuse(request)

    def over(self, events: Events, scene: Scene, own: Sequence[Fault]) -> Events:
        """Put every fault that acts on streams over a stream."""
        for fault in (*self._faults, *own):
            if fault.effects.stream is not None and self._take(fault):
                events = stack(fault.effects.stream, events, scene)
        return events

    async def around(self, method: str, answer: Answer) -> Message:
        """Answer a unary call through the first fault that concerns it.

        Raises:
            StatusError: the fault, or the answer itself, says so.
        """
        for fault in self._faults:
            if fault.effects.call is not None and method in fault.effects.methods and self._take(fault):
                return await fault.effects.call(answer)
        return await answer()

    def deliver(self, batch: kv_pb2.KvEventBatch) -> Iterable[KvMessage]:
        """Say what a subscriber hears in place of a batch: the first fault on KV events decides.

        Raises:
            StatusError: the subscription ends.
        """
        for fault in self._faults:
            if fault.effects.deliver is not None and self._take(fault):
                return fault.effects.deliver(batch)
        return (KvMessage(batch=batch),)

    def _take(self, fault: Fault) -> bool:
        acts = fault.take()
        self._used[fault.name] += acts
        return acts
