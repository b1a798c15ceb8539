from __future__ import annotations

import math
from typing import Any

import pytest

from openengine_sidecar.actors.generation.response import MAX_HELD_TEXT, ResponseTranslator
from openengine_sidecar.actors.generation.rules import StreamRules
from openengine_sidecar.messages.dynamo.response import (
    CompletionTokensDetails,
    CompletionUsage,
    FinishReason,
    LLMEngineOutput,
    PromptTokensDetails,
    TopLogprob,
)
from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.engine.generation import (
    Candidate,
    Event,
    Fault,
    FaultCode,
    PromptScored,
    StopMatch,
    TokenDetail,
    Usage,
)
from openengine_sidecar.messages.engine.generation import FinishReason as EngineReason
from openengine_sidecar.messages.errors import (
    EngineCancelledError,
    EngineFailureError,
    EngineProtocolError,
    InvalidRequestError,
    RequestError,
    UnsupportedFeatureError,
)
from tests.generation.builders import USAGE, answered, call, detailed, event, finished, tokens

Out = LLMEngineOutput
MORE = Usage(prompt_tokens=3, completion_tokens=5, total_tokens=8)
END = Out(
    token_ids=[],
    finish_reason=FinishReason.STOP,
    completion_usage=CompletionUsage(prompt_tokens=3, completion_tokens=2, total_tokens=5),
)


def top(rank: int, token_id: int, logprob: float, text: str | None = None) -> TopLogprob:
    return TopLogprob(rank=rank, token_id=token_id, logprob=logprob, token=text)


def spelled(token_id: int, text: str, **more: Any) -> TokenDetail:
    return TokenDetail(token_id=token_id, token=text, **more)


def scored(token_id: int, logprob: float | None = -0.5, rank: int | None = 1, *candidates: Candidate) -> TokenDetail:
    return TokenDetail(token_id=token_id, logprob=logprob, rank=rank, candidates=candidates)


def test_c15_deltas_in_order_and_one_terminal_with_exactly_that_usage() -> None:
    assert answered(call(), tokens(1), tokens(2), finished()) == [Out(token_ids=[1]), Out(token_ids=[2]), END]


def test_c15_the_total_passes_unchanged() -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=999)
    last = answered(call(), tokens(1, 2), finished(usage=usage))[-1]
    assert last.completion_usage == CompletionUsage(prompt_tokens=3, completion_tokens=2, total_tokens=999)


def test_c16_f46_two_outputs_interleave_with_their_index_and_end_once_each() -> None:
    items = answered(
        call(n=2),
        tokens(1),
        tokens(2, index=1),
        finished(EngineReason.LENGTH, usage=None),
        tokens(3, index=1),
        finished(index=1, usage=MORE),
    )
    assert [(item.index, item.token_ids, item.finish_reason) for item in items] == [
        (0, [1], None),
        (1, [2], None),
        (0, [], FinishReason.LENGTH),
        (1, [3], None),
        (1, [], FinishReason.STOP),
    ]
    assert [item.completion_usage is None for item in items] == [True, True, True, True, False]


def test_f46_the_last_tokens_precede_the_terminal_of_the_same_wake_up() -> None:
    assert [item.token_ids for item in answered(call(), tokens(1, 2, 3), finished(usage=MORE))] == [[1, 2, 3], []]


def test_f45_a_delta_of_several_tokens_stays_one_item() -> None:
    assert answered(call(), tokens(1, 2, 3, 4, 5), finished(usage=MORE))[0] == Out(token_ids=[1, 2, 3, 4, 5])


def test_c18_the_prompts_logprobs_end_up_on_the_terminal() -> None:
    prompt = event(
        PromptScored(
            tokens=(
                spelled(84, "u"),
                spelled(
                    82,
                    "s",
                    logprob=-1.5,
                    rank=3,
                    candidates=(Candidate(7, -0.5, "x", 1), Candidate(9, math.nan), Candidate(82, -1.5, "s", 3)),
                ),
                TokenDetail(token_id=68, logprob=-math.inf),
            )
        )
    )
    items = answered(call(prompt_top_n=2), prompt, tokens(1, 2), finished())
    assert [item.engine_data for item in items] == [
        None,
        {
            "prompt_logprobs": [
                None,
                {
                    "82": {"logprob": -1.5, "rank": 3, "decoded_token": "s"},
                    "7": {"logprob": -0.5, "rank": 1, "decoded_token": "x"},
                    "9": {"logprob": -9999.0, "rank": 2},
                },
                {"68": {"logprob": -9999.0}},
            ]
        },
    ]


def test_c18_the_prompts_logprobs_go_up_once_for_all_outputs() -> None:
    prompt = event(PromptScored(tokens=()))
    items = answered(call(n=2, prompt_top_n=1), prompt, finished(usage=None), finished(index=1))
    assert [item.engine_data for item in items] == [None, {"prompt_logprobs": []}]


def test_c19_text_of_its_own_is_consumed_and_tokens_carry_the_answer() -> None:
    assert answered(call(), tokens(text="he"), tokens(1, 2), finished()) == [Out(token_ids=[1, 2]), END]


def test_c19_text_beside_tokens_is_not_said_twice() -> None:
    assert answered(call(), tokens(1, text="h"), tokens(text="e"), tokens(2), finished())[:2] == [
        Out(token_ids=[1]),
        Out(token_ids=[2]),
    ]


def test_text_of_an_output_without_a_single_token_goes_up_at_its_end() -> None:
    items = answered(
        call(n=2), tokens(text="he"), tokens(5, index=1), tokens(text="y"), finished(usage=None), finished(index=1)
    )
    assert [(item.index, item.text) for item in items] == [(1, None), (0, "hey"), (1, None)]


def test_text_without_tokens_is_bounded() -> None:
    translator = ResponseTranslator(call())
    chunk = tokens(text="x" * (MAX_HELD_TEXT // 2))
    assert [translator.outputs(chunk), translator.outputs(chunk)] == [(), ()]
    with pytest.raises(EngineProtocolError) as violation:
        translator.outputs(tokens(text="x"))
    assert violation.value.rule == "text_without_tokens"


def test_text_behind_tokens_is_not_held_at_all() -> None:
    chunk = tokens(text="x" * (MAX_HELD_TEXT // 2 + 1))
    assert answered(call(), tokens(1, 2), chunk, chunk, finished()) == [Out(token_ids=[1, 2]), END]


def test_an_event_that_holds_nothing_makes_no_item() -> None:
    assert answered(call(), tokens(), finished()) == [END]


@pytest.mark.parametrize(
    ("cached", "details"),
    [(None, None), (0, PromptTokensDetails(cached_tokens=0)), (2, PromptTokensDetails(cached_tokens=2))],
)
def test_c20_cached_tokens_absent_are_not_zero(cached: int | None, details: PromptTokensDetails | None) -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5, cached_prompt_tokens=cached)
    last = answered(call(), tokens(1, 2), finished(usage=usage))[-1].completion_usage
    assert last is not None
    assert (last.prompt_tokens_details, last.completion_tokens_details) == (details, None)


@pytest.mark.parametrize(("reasoning", "details"), [(None, None), (0, CompletionTokensDetails(reasoning_tokens=0))])
def test_c20_reasoning_tokens_absent_are_not_zero(
    reasoning: int | None, details: CompletionTokensDetails | None
) -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5, reasoning_tokens=reasoning)
    last = answered(call(), tokens(1, 2), finished(usage=usage))[-1].completion_usage
    assert last is not None
    assert (last.prompt_tokens_details, last.completion_tokens_details) == (None, details)


@pytest.mark.parametrize(
    ("match", "reason", "stop"),
    [
        (StopMatch(token_id=0), FinishReason.STOP, 0),
        (StopMatch(text="END"), FinishReason.STOP, "END"),
        (StopMatch(eos_token_id=257), FinishReason.EOS, 257),
        (StopMatch(eos_token_id=0), FinishReason.EOS, 0),
        (StopMatch(), FinishReason.STOP, None),
        (None, FinishReason.STOP, None),
    ],
)
def test_c21_what_stopped_it_is_told(match: StopMatch | None, reason: FinishReason, stop: str | int | None) -> None:
    last = answered(call(), finished(match=match))[-1]
    assert (last.finish_reason, last.stop_reason) == (reason, stop)


@pytest.mark.parametrize(
    ("engine", "dynamo"), [(EngineReason.LENGTH, FinishReason.LENGTH), (EngineReason.UNKNOWN, FinishReason.STOP)]
)
def test_c70_finish_reasons(engine: EngineReason, dynamo: FinishReason) -> None:
    assert answered(call(), finished(engine))[-1].finish_reason is dynamo


@pytest.mark.parametrize("index", [0, 1])
def test_c22_an_output_the_engine_cancelled_is_no_answer(index: int) -> None:
    translator = ResponseTranslator(call(n=2))
    with pytest.raises(EngineCancelledError, match=f"cancelled output {index} by itself: too slow"):
        translator.outputs(finished(EngineReason.CANCELLED, index=index, message="too slow"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (FaultCode.INVALID_ARGUMENT, InvalidRequestError),
        (FaultCode.UNSUPPORTED_FEATURE, UnsupportedFeatureError),
        (FaultCode.INTERNAL, EngineFailureError),
    ],
)
def test_f39_a_fault_before_the_first_token_is_a_typed_error(code: FaultCode, error: type[RequestError]) -> None:
    with pytest.raises(error) as failure:
        ResponseTranslator(call()).outputs(event(Fault(code=code, message="no")))
    assert failure.value.public == ("no" if failure.value.client_fault else None)


def test_c25_f40_tokens_before_a_fault_are_delivered_and_nothing_after_it() -> None:
    rules, translator = StreamRules(call(), Role.AGGREGATED), ResponseTranslator(call())
    delivered: list[LLMEngineOutput] = []
    for each in [tokens(1), tokens(2), tokens(3)]:
        rules.accept(each)
        delivered.extend(translator.outputs(each))
    fault = event(Fault(code=FaultCode.INTERNAL, message="boom"), USAGE)
    rules.accept(fault)
    with pytest.raises(EngineFailureError, match="boom"):
        translator.outputs(fault)
    assert [item.token_ids for item in delivered] == [[1], [2], [3]]
    assert (rules.terminal, rules.usage) == (True, USAGE)


@pytest.mark.parametrize("late", [tokens(3), finished(), event(Fault(code=FaultCode.INTERNAL, message="late"))])
def test_c69_what_follows_the_end_is_passed_over(late: Event) -> None:
    assert answered(call(), tokens(1, 2), finished(), late) == [Out(token_ids=[1, 2]), END]


def test_logprobs_are_aligned_with_the_tokens() -> None:
    items = answered(
        call(top_n=2),
        detailed(
            scored(72, -0.5, 1, Candidate(72, -0.5, "i", 1), Candidate(80, -1.0, "q", 2)),
            scored(73, -2.0, 3, Candidate(80, -0.25, "", 1), Candidate(81, -0.75, "r", 2)),
        ),
        detailed(scored(74, -0.25)),
        finished(usage=MORE),
    )
    assert [(item.log_probs, item.cum_log_probs) for item in items] == [
        ([-0.5, -2.0], -2.5),
        ([-0.25], -2.75),
        (None, None),
    ]
    assert items[0].top_logprobs == [
        [
            top(1, 72, -0.5),
            top(2, 80, -1.0, "q"),
        ],
        [
            top(3, 73, -2.0),
            top(1, 80, -0.25),
            top(2, 81, -0.75, "r"),
        ],
    ]
    assert items[1].top_logprobs == [[top(1, 74, -0.25)]]


def test_c30_zero_candidates_show_no_alternatives() -> None:
    candidates = (Candidate(72, -0.5), Candidate(80, -1.0))
    items = answered(call(top_n=None), detailed(scored(72, -0.5, None, *candidates)), finished())
    assert items[0].log_probs == [-0.5]
    assert items[0].top_logprobs == [[top(0, 72, -0.5)]]


def test_more_candidates_than_asked_for_are_cut() -> None:
    candidates = [Candidate(token_id, -float(token_id)) for token_id in range(1, 6)]
    items = answered(call(top_n=2), detailed(scored(9, -9.0, 9, *candidates)), finished())
    assert [[top.token_id for top in tops] for tops in items[0].top_logprobs or []] == [[9, 1, 2]]


def test_ranks_the_engine_left_out_are_places() -> None:
    detail = scored(81, -0.75, None, Candidate(80, -0.25), Candidate(81, -0.75))
    items = answered(call(top_n=2), detailed(detail), finished())
    assert items[0].top_logprobs == [[top(2, 81, -0.75), top(1, 80, -0.25)]]


@pytest.mark.parametrize("logprob", [math.nan, -math.inf, math.inf, -1e300, 1e308])
def test_c71_a_logprob_that_is_no_number_becomes_the_floor(logprob: float) -> None:
    detail = scored(72, logprob, 1, Candidate(80, logprob))
    items = answered(call(top_n=1), detailed(detail, scored(73, -0.5)), finished())
    assert items[0].log_probs == [-9999.0, -0.5]
    assert [top.logprob for top in (items[0].top_logprobs or [])[0]] == [-9999.0, -9999.0]


@pytest.mark.parametrize("include_stop", [True, False])
def test_f43_every_list_is_as_long_as_the_tokens(*, include_stop: bool) -> None:
    events = [detailed(scored(72), scored(73)), *([detailed(scored(257))] if include_stop else [])]
    for item in answered(call(top_n=1), *events, finished(match=StopMatch(token_id=257), usage=MORE))[:-1]:
        assert len(item.token_ids) == len(item.log_probs or []) == len(item.top_logprobs or [])


@pytest.mark.parametrize(
    "lacking",
    [detailed(scored(72), scored(257, None)), detailed(scored(257, None)), tokens(257)],
    ids=["one", "all", "details"],
)
def test_f43_a_missing_logprob_is_a_violation(lacking: Event) -> None:
    translator = ResponseTranslator(call(top_n=None))
    with pytest.raises(EngineProtocolError) as violation:
        translator.outputs(lacking)
    assert violation.value.rule == "missing_logprob"


def test_token_texts_go_up_where_the_engine_gave_any() -> None:
    details = (spelled(72, "i"), TokenDetail(token_id=172))
    assert answered(call(), detailed(*details), finished())[0] == Out(token_ids=[72, 172], tokens=["i", None])


def test_details_nobody_asked_for_make_no_logprobs() -> None:
    assert answered(call(), detailed(scored(72)), finished())[0] == Out(token_ids=[72])
