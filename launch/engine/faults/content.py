"""Events whose content is wrong: usage, tokens, logprobs, reasons, sizes."""

from __future__ import annotations

from collections.abc import Callable

from openengine_sidecar.launch.engine.faults.events import Course, Response, editing
from openengine_sidecar.launch.engine.faults.registry import Argument, Effects, Events, Scene, fault
from openengine_sidecar.launch.engine.wire import UNDECODABLE
from openengine_sidecar.proto.rev2 import generation_pb2

LOGPROBS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
PADDING_TAG = b"\xfa\x3e"  # field 1007, length delimited: no schema has it
CONTINUED = 128  # a varint byte at or above it is followed by another


@fault("usage-missing", "no event carries usage")
def usage_missing(_argument: Argument) -> Effects:
    """Break "usage stands on the last response"."""

    def edit(event: Response, _scene: Scene) -> None:
        event.ClearField("usage")

    return editing(edit)


@fault("usage-twice", "every token event carries usage too")
def usage_twice(_argument: Argument) -> Effects:
    """Break "usage only on the last response"."""

    def edit(event: Response, scene: Scene) -> None:
        if event.HasField("token"):
            prompt, tokens = len(scene.admitted.prompt.ids), scene.active.record.tokens
            event.usage.prompt_tokens = prompt
            event.usage.completion_tokens = tokens
            event.usage.total_tokens = prompt + tokens

    return editing(edit)


@fault("usage-early", "with several outputs, the first finished event carries the usage and the last does not")
def usage_early(_argument: Argument) -> Effects:
    """Break "usage stands on the last response" the other way round."""

    async def transform(events: Events, scene: Scene) -> Events:
        course = Course(scene)
        first = True
        async for event in events:
            ends = course.ends(event)
            if event.HasField("finished") and scene.admitted.outputs > 1:
                if first:
                    event.usage.prompt_tokens = len(scene.admitted.prompt.ids)
                    event.usage.completion_tokens = event.usage.total_tokens = scene.active.record.tokens
                elif ends:
                    event.ClearField("usage")
                first = False
            yield event

    return Effects(stream=transform)


@fault("usage-mismatch", "[completion|cached|reasoning|total] that number of the usage cannot be")
def usage_mismatch(argument: Argument) -> Effects:
    """Report usage that contradicts itself or the stream."""
    kind = argument.among(("completion", "cached", "reasoning", "total"))

    def edit(event: Response, _scene: Scene) -> None:
        if event.HasField("usage"):
            _contradict(event.usage, kind)

    return editing(edit)


def _contradict(usage: generation_pb2.Usage, kind: str) -> None:
    if kind == "completion":
        usage.completion_tokens += 7
    elif kind == "cached":
        usage.cached_prompt_tokens = usage.prompt_tokens + 1
    elif kind == "reasoning":
        usage.reasoning_tokens = usage.completion_tokens + 1
    else:
        usage.total_tokens += 7


@fault("reasoning-tokens", "N the usage reports N reasoning tokens, which is allowed")
def reasoning_tokens(argument: Argument) -> Effects:
    """Report reasoning tokens, 0 included."""
    tokens = argument.count(0)

    def edit(event: Response, _scene: Scene) -> None:
        if event.HasField("usage"):
            event.usage.reasoning_tokens = tokens

    return editing(edit)


@fault("cumulative", "each token event repeats all earlier tokens of its output")
def cumulative(_argument: Argument) -> Effects:
    """Break "deltas only"."""

    async def transform(events: Events, _scene: Scene) -> Events:
        tokens: dict[int, list[generation_pb2.TokenInfo]] = {}
        texts: dict[int, str] = {}
        async for event in events:
            if event.HasField("token"):
                index = event.token.output_index
                tokens[index] = [*tokens.get(index, []), *event.token.tokens]
                texts[index] = texts.get(index, "") + event.token.text
                whole = generation_pb2.TokenOutput(output_index=index, tokens=tokens[index], text=texts[index])
                event.token.CopyFrom(whole)
            yield event

    return Effects(stream=transform)


@fault("split-text", "text and token ids come in separate events, which is allowed")
def split_text(_argument: Argument) -> Effects:
    """Send what the contract allows but few servers do: text alone, then tokens alone."""

    async def transform(events: Events, scene: Scene) -> Events:
        async for event in events:
            if event.HasField("token") and event.token.text:
                text = generation_pb2.TokenOutput(output_index=event.token.output_index, text=event.token.text)
                yield Response(request_id=scene.request_id, token=text)
                event.token.ClearField("text")
            yield event

    return Effects(stream=transform)


@fault("no-text", "token ids come without text, which is allowed")
def no_text(_argument: Argument) -> Effects:
    """Leave the text to the client."""

    def edit(event: Response, _scene: Scene) -> None:
        if event.HasField("token"):
            event.token.ClearField("text")

    return editing(edit)


@fault("logprob", "[nan|inf|-inf] every logprob is that, candidates included")
def logprob(argument: Argument) -> Effects:
    """Send logprobs that JSON cannot carry."""
    value = LOGPROBS[argument.among(tuple(LOGPROBS))]

    def edit(info: generation_pb2.TokenInfo) -> None:
        if info.HasField("logprob"):
            info.logprob = value
        for candidate in info.candidates:
            candidate.logprob = value

    return editing(_each_token(edit))


@fault("missing-logprob", "no token has the logprob that was asked for")
def missing_logprob(_argument: Argument) -> Effects:
    """Break "logprobs when asked for"."""

    def edit(info: generation_pb2.TokenInfo) -> None:
        info.ClearField("logprob")
        info.ClearField("rank")
        info.ClearField("candidates")

    return editing(_each_token(edit))


def _each_token(edit: Callable[[generation_pb2.TokenInfo], None]) -> Callable[[Response, Scene], None]:
    def edit_all(event: Response, _scene: Scene) -> None:
        for info in (*event.token.tokens, *event.prompt.tokens):
            edit(info)

    return edit_all


@fault("reason", "[N] finished events carry the reason number N, by default 9, which the schema does not know")
def reason(argument: Argument) -> Effects:
    """Send a finish reason of another schema."""
    number = argument.count(9)

    def edit(event: Response, _scene: Scene) -> None:
        if event.HasField("finished"):
            event.finished.reason = number  # type: ignore[assignment]  # unknown numbers are the point
            event.finished.ClearField("stop_match")

    return editing(edit)


@fault("no-stop-match", "finished events do not say what matched, which servers do")
def no_stop_match(_argument: Argument) -> Effects:
    """Leave out the stop match."""

    def edit(event: Response, _scene: Scene) -> None:
        if event.HasField("finished"):
            event.finished.ClearField("stop_match")

    return editing(edit)


@fault("extra-tokens", "[N] N more tokens come just before the terminal, past max_tokens")
def extra_tokens(argument: Argument) -> Effects:
    """Break the length limit."""
    more = argument.count(1)

    async def transform(events: Events, scene: Scene) -> Events:
        course = Course(scene)
        async for event in events:
            if course.ends(event) and event.HasField("finished"):
                infos = [generation_pb2.TokenInfo(token_id=ord("+")) for _ in range(more)]
                index = event.finished.output_index
                token = generation_pb2.TokenOutput(output_index=index, tokens=infos, text="+" * more)
                yield Response(request_id=scene.request_id, token=token)
            yield event

    return Effects(stream=transform)


@fault("huge", "N the first event is padded, with a field no schema has, to at least N bytes")
def huge(argument: Argument) -> Effects:
    """Send a valid message of any size."""
    size = argument.count(1 << 20)

    async def transform(events: Events, _scene: Scene) -> Events:
        first = True
        async for event in events:
            yield _padded(event, size) if first else event
            first = False

    return Effects(stream=transform)


def _padded(event: Response, size: int) -> Response:
    length, varint = size, bytearray()
    while length >= CONTINUED:
        varint.append(length % CONTINUED + CONTINUED)
        length //= CONTINUED
    padding = PADDING_TAG + varint + bytes([length]) + bytes(size)
    return Response.FromString(event.SerializeToString() + padding)


@fault("garbage", "[N] the N-th event is bytes that are no message")
def garbage(argument: Argument) -> Effects:
    """Send what does not decode."""
    place = argument.count(1)

    async def transform(events: Events, _scene: Scene) -> Events:
        number = 0
        async for event in events:
            number += 1
            yield UNDECODABLE if number == place else event

    return Effects(stream=transform)
