from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.launch.engine.stopping import Stopper, StopRules
from openengine_sidecar.proto.rev2 import generation_pb2
from tests.engine.caller import EOS, Caller, ask, serving

PIECES = [bytes([byte]) for byte in range(256)] + [b""] * 10
STOP = generation_pb2.FINISH_REASON_STOP


def rules(**fields: Any) -> StopRules:
    defaults: dict[str, Any] = {
        "texts": (),
        "token_ids": frozenset[int](),
        "max_tokens": 1000,
        "min_tokens": 0,
        "ignore_eos": False,
        "include_stop": False,
    }
    return StopRules(**(defaults | fields))


def run(stopper: Stopper, data: bytes) -> tuple[bytes, generation_pb2.StopMatch | None]:
    shown = b""
    for byte in data:
        released, ending = stopper.take(byte)
        shown += bytes(released)
        if ending is not None:
            return shown, ending.match
    return shown + bytes(stopper.flush()), None


@given(
    text=st.text("ab", max_size=30),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    include=st.booleans(),
)
def test_what_is_shown_ends_at_the_first_stop_text(*, text: str, stops: list[str], include: bool) -> None:
    texts = tuple(stop.encode() for stop in stops)
    shown, match = run(Stopper(rules(texts=texts, include_stop=include), PIECES, EOS), text.encode())
    ends = [(text.find(stop) + len(stop), stop) for stop in stops if stop in text]
    if not ends:
        assert (shown, match) == (text.encode(), None)
        return
    end = min(ends)[0]
    assert match is not None
    assert text[:end].endswith(match.stop_text)
    assert shown.decode() == text[: end if include else end - len(match.stop_text)]


@given(st.text("ab", max_size=30), st.text("ab", min_size=2, max_size=5))
def test_nothing_is_shown_that_may_become_a_stop(text: str, stop: str) -> None:
    stopper, shown = Stopper(rules(texts=(stop.encode(),)), PIECES, EOS), b""
    for place, byte in enumerate(text.encode(), start=1):
        released, ending = stopper.take(byte)
        shown += bytes(released)
        if ending is not None:
            return
        held = text.encode()[len(shown) : place]
        assert stop.encode().startswith(held)
        assert len(held) < len(stop)


@pytest.mark.parametrize("include", [False, True])
async def test_a_stop_text_across_tokens(caller: Caller, *, include: bool) -> None:
    stopping = {"conditions": [{"stop_text": "id: "}], "include_stop_in_output": include}
    answer = await caller.generate(ask("hey", stopping=stopping))
    assert answer.text() == ("You said: " if include else "You sa")
    assert bytes(answer.ids()).decode() == answer.text()
    assert answer.finished().reason == STOP
    assert answer.finished().stop_match.stop_text == "id: "
    assert answer.last.usage.completion_tokens == len(answer.ids())


async def test_a_stop_text_of_several_bytes_a_character(caller: Caller) -> None:
    answer = await caller.generate(ask("abc日本x", stopping={"conditions": [{"stop_text": "日本"}]}))
    assert answer.text() == 'You said: "abc'


async def test_a_beginning_of_a_stop_is_released_when_it_fails(caller: Caller) -> None:
    answer = await caller.generate(ask("hey", stopping={"conditions": [{"stop_text": "sad"}, {"stop_text": "said?"}]}))
    assert answer.text() == 'You said: "hey".'


async def test_what_is_held_back_is_released_by_the_length_limit(caller: Caller) -> None:
    answer = await caller.generate(ask(stopping={"max_tokens": 6, "conditions": [{"stop_text": "said"}]}))
    assert answer.text() == "You sa"
    assert answer.finished().reason == generation_pb2.FINISH_REASON_LENGTH


@pytest.mark.parametrize("include", [False, True])
async def test_a_stop_token(caller: Caller, *, include: bool) -> None:
    stopping = {"conditions": [{"stop_token_id": ord("s")}], "include_stop_in_output": include}
    answer = await caller.generate(ask(stopping=stopping))
    assert answer.text() == ("You s" if include else "You ")
    assert answer.finished().stop_match.stop_token_id == ord("s")


async def test_the_end_token_among_the_stops_is_still_the_end(caller: Caller) -> None:
    answer = await caller.generate(
        ask(stopping={"conditions": [{"stop_token_id": EOS}], "include_stop_in_output": True})
    )
    assert answer.finished().stop_match.eos_token_id == EOS
    assert EOS not in answer.ids()


@pytest.mark.parametrize("condition", [{"stop_text": "o"}, {"stop_token_id": ord("o")}])
async def test_no_stop_before_the_minimum(caller: Caller, condition: dict[str, Any]) -> None:
    answer = await caller.generate(ask("foo", stopping={"min_tokens": 5, "conditions": [condition]}))
    assert answer.text() == 'You said: "f'


async def test_stops_hold_for_every_output() -> None:
    async with serving(tokens_per_event=4) as (_, caller):
        request = ask("hey", sampling={"num_sequences": 2}, stopping={"conditions": [{"stop_text": ":"}]})
        answer = await caller.generate(request)
    assert [answer.text(0), answer.text(1)] == ["You said", "I heard"]
