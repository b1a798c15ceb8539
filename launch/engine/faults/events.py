"""What faults on streams share: stacking, editing event by event, and telling tokens and terminals apart."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from openengine_sidecar.launch.engine.faults.registry import Effects, Events, Scene, Transform
from openengine_sidecar.proto.rev2 import generation_pb2

Response = generation_pb2.GenerateResponse
Edit = Callable[[Response, Scene], None]


def stack(transform: Transform, events: Events, scene: Scene) -> Events:
    """Put one fault over a stream, so that closing the result closes both."""
    return _closing(transform(events, scene), events)


async def _closing(outer: Events, inner: Events) -> Events:
    async with aclosing(inner), aclosing(outer):
        async for event in outer:
            yield event


def editing(edit: Edit, *, start: int = 1) -> Effects:
    """Make a fault that edits every event from the `start`-th on in place."""

    async def transform(events: Events, scene: Scene) -> Events:
        number = 0
        async for event in events:
            number += 1
            if number >= start:
                edit(event, scene)
            yield event

    return Effects(stream=transform)


def copy_of(event: Response) -> Response:
    """Return an event like this one."""
    twin = Response()
    twin.CopyFrom(event)
    return twin


class Course:
    """Follows a stream: how many tokens have passed, which event is the terminal."""

    def __init__(self, scene: Scene) -> None:
        self.tokens = 0
        self._open = scene.admitted.outputs

    def ends(self, event: Response) -> bool:
        """Take note of one event, and tell whether it is the terminal of the stream."""
        if event.HasField("token"):
            self.tokens += len(event.token.tokens)
        self._open -= event.HasField("finished")
        return self._open <= 0 or event.HasField("error") or event.HasField("prefill_ready")
