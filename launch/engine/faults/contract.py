"""Events that break the contract's rules on ids, indexes, order and number."""

from __future__ import annotations

from collections.abc import Callable

from openengine_sidecar.launch.engine.faults.events import Course, Response, copy_of, editing
from openengine_sidecar.launch.engine.faults.registry import Argument, Effects, Events, Scene, Transform, fault
from openengine_sidecar.proto.rev2 import generation_pb2, kv_pb2


@fault("wrong-id", "[N] events from the N-th on carry the id of another request")
def wrong_id(argument: Argument) -> Effects:
    """Break "every response carries the request's id"."""

    def edit(event: Response, _scene: Scene) -> None:
        event.request_id += "-of-another"

    return editing(edit, start=argument.count(1))


@fault("missing-index", "[N] events from the N-th on carry no output index")
def missing_index(argument: Argument) -> Effects:
    """Break "output-scoped events carry an index"."""

    def edit(event: Response, _scene: Scene) -> None:
        if event.HasField("token"):
            event.token.ClearField("output_index")
        if event.HasField("finished"):
            event.finished.ClearField("output_index")

    return editing(edit, start=argument.count(1))


@fault("index-out-of-range", "[N] events from the N-th on carry an index past the last output")
def index_out_of_range(argument: Argument) -> Effects:
    """Break "the index is below num_sequences"."""

    def edit(event: Response, scene: Scene) -> None:
        if event.HasField("token"):
            event.token.output_index += scene.admitted.outputs
        if event.HasField("finished"):
            event.finished.output_index += scene.admitted.outputs

    return editing(edit, start=argument.count(1))


@fault("empty-event", "[N] the N-th event has nothing in it but the id")
def empty_event(argument: Argument) -> Effects:
    """Break "a response has exactly one event"."""
    place = argument.count(1)

    async def transform(events: Events, scene: Scene) -> Events:
        number = 0
        async for event in events:
            number += 1
            if number == place:
                yield Response(request_id=scene.request_id)
            yield event

    return Effects(stream=transform)


@fault("second-prompt", "the prompt event comes twice, asked for or not")
def second_prompt(_argument: Argument) -> Effects:
    """Break "prompt at most once"."""
    return Effects(stream=_prompts(2))


@fault("unasked-prompt", "a prompt event comes first, asked for or not")
def unasked_prompt(_argument: Argument) -> Effects:
    """Break "prompt only if asked for"."""
    return Effects(stream=_prompts(1))


def _prompts(count: int) -> Transform:
    async def transform(events: Events, scene: Scene) -> Events:
        for _ in range(count):
            tokens = [generation_pb2.TokenInfo(token_id=token_id) for token_id in scene.admitted.prompt.ids]
            yield Response(request_id=scene.request_id, prompt=generation_pb2.PromptOutput(tokens=tokens))
        async for event in events:
            if not event.HasField("prompt"):
                yield event

    return transform


@fault("token-after-finished", "each output's finished event is followed by one more token of it")
def token_after_finished(_argument: Argument) -> Effects:
    """Break "nothing for that index after finished"."""
    return Effects(stream=_after_finished(_late_token))


@fault("finished-twice", "each output's finished event comes twice")
def finished_twice(_argument: Argument) -> Effects:
    """Break "finished once an index"."""
    return Effects(stream=_after_finished(copy_of))


def _late_token(finished: Response) -> Response:
    token = generation_pb2.TokenOutput(
        output_index=finished.finished.output_index, tokens=[generation_pb2.TokenInfo(token_id=ord("!"))], text="!"
    )
    return Response(request_id=finished.request_id, token=token)


def _after_finished(make: Callable[[Response], Response]) -> Transform:
    async def transform(events: Events, _scene: Scene) -> Events:
        async for event in events:
            yield event
            if event.HasField("finished"):
                yield make(event)

    return transform


@fault("after-terminal", "one more token event follows the terminal")
def after_terminal(_argument: Argument) -> Effects:
    """Break "nothing follows the terminal event"."""

    async def transform(events: Events, scene: Scene) -> Events:
        course = Course(scene)
        async for event in events:
            yield event
            if course.ends(event):
                yield _late_token(event)

    return Effects(stream=transform)


@fault("no-terminal", "[N] the stream closes with OK after N tokens, by default just before its terminal")
def no_terminal(argument: Argument) -> Effects:
    """Break "a stream ends with a terminal event"."""
    limit = argument.count(1 << 62)

    async def transform(events: Events, scene: Scene) -> Events:
        course = Course(scene)
        async for event in events:
            if course.ends(event):
                return
            yield event
            if course.tokens >= limit:
                return

    return Effects(stream=transform)


@fault("prefill-ready", "an aggregated engine hands over a prefill before its first event")
def prefill_ready(_argument: Argument) -> Effects:
    """Break "prefill_ready comes from prefill engines"."""

    async def transform(events: Events, scene: Scene) -> Events:
        session = kv_pb2.KvSessionRef(session_id=scene.request_id, transfer_backend="reference")
        ready = generation_pb2.PrefillReady(kv_session=session)
        yield Response(request_id=scene.request_id, prefill_ready=ready)
        async for event in events:
            yield event

    return Effects(stream=transform)
