from __future__ import annotations

import pytest

from openengine_sidecar.proto.rev2 import generation_pb2
from tests.engine.caller import ASSISTANT, BOS, EOS, TURN_END, USER, Caller, Request, ask, chat, serving

LENGTH = generation_pb2.FINISH_REASON_LENGTH
STOP = generation_pb2.FINISH_REASON_STOP


async def test_the_last_user_message_is_echoed(caller: Caller) -> None:
    ids = [BOS, USER, *b"first", TURN_END, ASSISTANT, *b"no", TURN_END, USER, *b"second", TURN_END, ASSISTANT]
    answer = await caller.generate(Request(request_id="r", token_ids={"ids": ids}))
    assert answer.text() == 'You said: "second".'


async def test_a_prompt_without_turns_is_echoed_whole(caller: Caller) -> None:
    answer = await caller.generate(Request(request_id="r", prompt="just text"))
    assert answer.text() == 'You said: "just text".'


async def test_tokens_are_deltas_and_the_terminal_carries_usage(caller: Caller) -> None:
    answer = await caller.generate(ask("hey"))
    said = b'You said: "hey".'
    assert answer.kinds == ["token"] * len(said) + ["finished"]
    assert answer.ids() == list(said)
    assert [event.HasField("usage") for event in answer.events] == [False] * len(said) + [True]
    usage = answer.last.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, len(said), 7 + len(said))
    assert usage.HasField("cached_prompt_tokens")
    assert not usage.HasField("reasoning_tokens")
    assert all(event.request_id == "r" and event.token.HasField("output_index") for event in answer.events[:-1])
    assert answer.finished().reason == STOP
    assert answer.finished().stop_match.eos_token_id == EOS


async def test_the_same_request_gets_the_same_answer(caller: Caller) -> None:
    first, second = [await caller.generate(ask(sampling={"temperature": 1.5})) for _ in range(2)]
    assert first.events == second.events


@pytest.mark.parametrize("text", ["héllo", "日本語", "🤗👍", "a\x00b", "mixed é 日 🤗"])
@pytest.mark.parametrize("tokens_per_event", [1, 3])
async def test_text_never_splits_a_character(text: str, tokens_per_event: int) -> None:
    async with serving(tokens_per_event=tokens_per_event) as (_, caller):
        answer = await caller.generate(ask(text))
    assert answer.text() == f'You said: "{text}".'
    assert "\ufffd" not in answer.text()
    assert bytes(answer.ids()).decode() == answer.text()


async def test_a_character_cut_by_the_length_limit_shows_as_replacement(caller: Caller) -> None:
    answer = await caller.generate(ask("日", stopping={"max_tokens": len('You said: "') + 1}))
    assert answer.text() == 'You said: "\ufffd'
    assert answer.last.usage.completion_tokens == len('You said: "') + 1


@pytest.mark.parametrize("limit", [1, 5, 16])
async def test_max_tokens_is_the_length(caller: Caller, limit: int) -> None:
    answer = await caller.generate(ask("hey", stopping={"max_tokens": limit}))
    assert len(answer.ids()) == limit
    assert answer.finished().reason == LENGTH
    assert not answer.finished().HasField("stop_match")


async def test_the_end_counts_as_a_token_of_the_limit(caller: Caller) -> None:
    answer = await caller.generate(ask("hey", stopping={"max_tokens": 17}))
    assert answer.finished().reason == STOP
    assert answer.last.usage.completion_tokens == 16


async def test_ignoring_the_end_goes_on_to_the_limit(caller: Caller) -> None:
    answer = await caller.generate(ask("hey", stopping={"max_tokens": 50, "ignore_eos": True}))
    assert answer.finished().reason == LENGTH
    assert answer.text() == ('You said: "hey". ' * 4)[:50]
    assert EOS not in answer.ids()


async def test_a_minimum_delays_the_end_to_the_next_one(caller: Caller) -> None:
    answer = await caller.generate(ask("hey", stopping={"min_tokens": 20}))
    assert answer.finished().reason == STOP
    assert answer.text() == 'You said: "hey". You said: "hey".'


async def test_without_limit_the_context_is_the_limit() -> None:
    async with serving(max_context_length=40) as (_, caller):
        answer = await caller.generate(ask("hey", stopping={"ignore_eos": True}))
    assert answer.finished().reason == LENGTH
    assert answer.last.usage.total_tokens == 40


async def test_max_output_tokens_is_the_limit_where_it_is_lower() -> None:
    async with serving(max_output_tokens=9) as (_, caller):
        answer = await caller.generate(ask("hey"))
    assert len(answer.ids()) == 9


async def test_outputs_are_interleaved_and_end_each_for_itself(caller: Caller) -> None:
    answer = await caller.generate(ask("hey", sampling={"num_sequences": 3}))
    assert [answer.text(index) for index in range(3)] == [
        'You said: "hey".',
        'I heard: "hey".',
        'Your words were: "hey".',
    ]
    assert [event.token.output_index for event in answer.events[:6]] == [0, 1, 2, 0, 1, 2]
    assert answer.kinds.count("finished") == 3
    assert [event.HasField("usage") for event in answer.events].count(True) == 1
    assert answer.last.finished.output_index == 2
    assert answer.last.usage.completion_tokens == sum(len(answer.ids(index)) for index in range(3))
    place = answer.kinds.index("finished")
    assert answer.events[place].finished.output_index == 1
    assert not any(event.token.output_index == 1 and event.HasField("token") for event in answer.events[place:])


async def test_tokens_of_a_step_come_before_its_ends(caller: Caller) -> None:
    answer = await caller.generate(ask("hey", sampling={"num_sequences": 2}, stopping={"max_tokens": 3}))
    assert answer.kinds[-3:] == ["token", "finished", "finished"]


async def test_a_resumed_answer_goes_on_where_it_stopped(caller: Caller) -> None:
    whole = await caller.generate(ask("hello", sampling={"temperature": 1.2, "seed": 7}))
    cut = whole.ids()[:9]
    rest = Request(request_id="2", token_ids={"ids": [*chat("hello"), *cut]}, sampling={"temperature": 1.2, "seed": 7})
    assert cut + (await caller.generate(rest)).ids() == whole.ids()


async def test_several_tokens_may_share_an_event() -> None:
    async with serving(tokens_per_event=5) as (_, caller):
        answer = await caller.generate(ask("hey"))
        cut = await caller.generate(ask("hey", stopping={"max_tokens": 7}))
    assert [len(event.token.tokens) for event in answer.events[:-1]] == [5, 5, 5, 1]
    assert answer.text() == 'You said: "hey".'
    assert [len(event.token.tokens) for event in cut.events[:-1]] == [5, 2]


async def test_everything_beside_the_prompt_shows_in_the_answer() -> None:
    async with serving(data_parallel_size=4) as (_, caller):
        request = ask(
            "look",
            priority=-3,
            kv={"data_parallel_rank": 2, "cache_salt": "tenant", "bypass_prefix_cache": True},
            media=[
                {"modality": "MODALITY_IMAGE", "url": "http://x/1.png", "uuid": "u-1"},
                {"modality": "MODALITY_AUDIO", "raw_bytes": b"\x00\x01", "mime_type": "audio/wav"},
                {"data_uri": "data:,x"},
            ],
            metadata={"b": "2", "a": "1"},
        )
        request.media_options.update({"image": {"detail": "low"}})
        text = (await caller.generate(request)).text()
        request.media[0].url = "http://x/2.png"
        changed = (await caller.generate(request)).text()
    assert text.startswith('You said: "look". [image url ')
    for note in (
        "u-1]",
        "[audio raw_bytes ",
        "audio/wav]",
        "[unspecified data_uri ",
        "[media_options ",
        "[priority -3]",
    ):
        assert note in text
    for note in ("[rank 2]", "[salt ", "[bypass]", "[a=1] [b=2]"):
        assert note in text
    assert "tenant" not in text
    assert changed != text
    assert changed.partition("[audio")[2] == text.partition("[audio")[2]
