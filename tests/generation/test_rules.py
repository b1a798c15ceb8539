from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from openengine_sidecar.actors.generation.rules import StreamRules
from openengine_sidecar.messages.engine.discovery import Role
from openengine_sidecar.messages.engine.generation import (
    Empty,
    Event,
    Fault,
    FaultCode,
    FinishReason,
    GenerateCall,
    KvSession,
    MediaItem,
    MediaSource,
    Modality,
    PrefillReady,
    PromptScored,
    TokenDetail,
    Tokens,
    Usage,
)
from openengine_sidecar.messages.errors import EngineProtocolError
from tests.generation.builders import ID, USAGE, call, event, finished, tokens

SESSION = KvSession(session_id="s", transfer_backend="nixl", dp_rank=0, wire=b"")
PROMPT = event(PromptScored(tokens=(TokenDetail(token_id=84),)))
FAULT = event(Fault(code=FaultCode.INTERNAL, message="boom"))
HANDOFF = event(PrefillReady(session=SESSION), USAGE)


def judged(of: GenerateCall, events: Sequence[Event], role: Role = Role.AGGREGATED) -> StreamRules:
    rules = StreamRules(of, role)
    for each in events:
        rules.accept(each)
    return rules


def broken_rule(of: GenerateCall, events: Sequence[Event], role: Role = Role.AGGREGATED) -> str:
    rules = judged(of, events[:-1], role)
    with pytest.raises(EngineProtocolError) as violation:
        rules.accept(events[-1])
    assert violation.value.request_id == ID
    assert not rules.terminal
    return violation.value.rule


def test_c15_tokens_and_one_finish_are_a_stream() -> None:
    rules = judged(call(), [tokens(1), tokens(2), finished()])
    rules.closed()
    assert (rules.terminal, rules.usage, rules.output_tokens, rules.oddities) == (True, USAGE, 2, {})


def test_c16_outputs_interleave_and_end_one_by_one() -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=4, total_tokens=7)
    rules = StreamRules(call(n=2), Role.AGGREGATED)
    early = [tokens(1), tokens(2, index=1), tokens(3), finished(usage=None), tokens(4, index=1)]
    for each in early:
        rules.accept(each)
        assert not rules.terminal
    rules.accept(finished(index=1, usage=usage))
    assert (rules.terminal, rules.usage, rules.oddities) == (True, usage, {})


def test_c17_usage_on_an_early_finish_is_a_violation() -> None:
    assert broken_rule(call(n=2), [tokens(1), finished(usage=USAGE)]) == "early_usage"


def test_c17_a_last_finish_without_usage_is_a_violation() -> None:
    assert broken_rule(call(n=2), [finished(usage=None), finished(index=1, usage=None)]) == "missing_usage"


@pytest.mark.parametrize("early", [tokens(1, usage=USAGE), event(PromptScored(tokens=()), USAGE)])
def test_c17_usage_before_the_last_event_is_a_violation(early: Event) -> None:
    assert broken_rule(call(prompt_top_n=1), [early]) == "early_usage"


@pytest.mark.parametrize("position", [0, 1, 2])
def test_c18_the_prompt_may_come_anywhere_before_the_end(position: int) -> None:
    events = [tokens(1), tokens(2)]
    events.insert(position, PROMPT)
    assert judged(call(prompt_top_n=1), [*events, finished()]).terminal


def test_c18_a_prompt_that_was_asked_for_must_come() -> None:
    assert broken_rule(call(prompt_top_n=1), [tokens(1, 2), finished()]) == "missing_prompt"


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([msgspec.structs.replace(tokens(1), request_id=f"{ID}9")], "wrong_request_id"),
        ([event(Empty())], "empty_event"),
        ([tokens(1, index=None)], "missing_index"),
        ([finished(index=None)], "missing_index"),
        ([tokens(1, index=2)], "index_out_of_range"),
        ([tokens(1, index=-1)], "index_out_of_range"),
        ([finished(index=2)], "index_out_of_range"),
        ([finished(usage=None), tokens(1)], "after_finished"),
        ([finished(usage=None), finished(usage=None)], "after_finished"),
        ([PROMPT], "unasked_prompt"),
        ([HANDOFF], "unasked_handoff"),
        ([event(Tokens(index=0, token_ids=[1, 2], details=(TokenDetail(token_id=1),)))], "misaligned_details"),
        ([event(Tokens(index=0, token_ids=[1], details=(TokenDetail(token_id=2),)))], "misaligned_details"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_c68_a_broken_rule_is_named(events: list[Event], rule: str) -> None:
    assert broken_rule(call(n=2), events) == rule


def test_c68_a_second_prompt_is_a_violation() -> None:
    assert broken_rule(call(prompt_top_n=1), [PROMPT, PROMPT]) == "unasked_prompt"


def test_c68_a_violation_of_one_stream_does_not_touch_another() -> None:
    healthy = StreamRules(call(), Role.AGGREGATED)
    healthy.accept(tokens(1))
    broken_rule(call(), [event(Empty())])
    healthy.accept(tokens(2))
    healthy.accept(finished())
    assert healthy.terminal


@pytest.mark.parametrize("events", [[], [tokens(1)], [PROMPT]])
def test_c69_closing_before_the_terminal_is_a_violation(events: list[Event]) -> None:
    rules = judged(call(prompt_top_n=1), events)
    with pytest.raises(EngineProtocolError) as violation:
        rules.closed()
    assert (violation.value.rule, violation.value.retryable) == ("no_terminal", True)


@pytest.mark.parametrize("late", [tokens(3), finished(), FAULT, event(Empty()), PROMPT])
def test_c69_an_event_behind_the_terminal_is_counted_and_the_result_stays(late: Event) -> None:
    rules = judged(call(), [tokens(1, 2), finished(), late, late])
    assert rules.oddities == {"event_after_terminal": 2}
    assert (rules.usage, rules.output_tokens) == (USAGE, 2)
    rules.closed()


def test_c70_an_unknown_finish_reason_is_counted() -> None:
    assert judged(call(), [tokens(1, 2), finished(FinishReason.UNKNOWN)]).oddities == {"unknown_finish_reason": 1}


@pytest.mark.parametrize(
    ("usage", "oddity"),
    [
        (Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5, cached_prompt_tokens=4), "cached_exceeds_prompt"),
        (
            Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5, reasoning_tokens=3),
            "reasoning_exceeds_completion",
        ),
        (Usage(prompt_tokens=3, completion_tokens=9, total_tokens=12), "completion_differs"),
        (Usage(prompt_tokens=9, completion_tokens=2, total_tokens=11), "prompt_differs"),
    ],
)
def test_c71_odd_usage_is_counted_and_kept(usage: Usage, oddity: str) -> None:
    rules = judged(call(), [tokens(1, 2), finished(usage=usage)])
    assert (rules.oddities, rules.usage) == ({oddity: 1}, usage)


def test_f45_more_tokens_than_its_usage_knows_are_repeats() -> None:
    with pytest.raises(EngineProtocolError) as violation:
        judged(call(max_tokens=None), [tokens(1), tokens(1, 2), finished()])
    assert violation.value.rule == "repeated_tokens"


def test_c71_media_may_lengthen_the_prompt() -> None:
    image = MediaItem(modality=Modality.IMAGE, source=MediaSource.URL, value="https://h/x")
    usage = Usage(prompt_tokens=500, completion_tokens=2, total_tokens=502)
    of = msgspec.structs.replace(call(), media=(image,))
    assert judged(of, [tokens(1, 2), finished(usage=usage)]).oddities == {}


def test_c71_a_total_that_does_not_add_up_is_no_rule() -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=999)
    assert judged(call(), [tokens(1, 2), finished(usage=usage)]).oddities == {}


@pytest.mark.parametrize("events", [[tokens(1, 2, 3)], [tokens(1), tokens(1, 2)]], ids=["at once", "repeated"])
def test_c71_f45_more_tokens_than_asked_for_are_a_violation(events: list[Event]) -> None:
    assert broken_rule(call(max_tokens=2), events) == "too_many_tokens"


def test_f45_each_output_has_its_own_bound() -> None:
    events = [tokens(1, 2), tokens(3, 4, index=1)]
    assert judged(call(n=2, max_tokens=2), events).output_tokens == 4
    assert broken_rule(call(n=2, max_tokens=2), [*events, tokens(5, index=1)]) == "too_many_tokens"


def test_f45_several_tokens_in_one_event_are_fine() -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=10, total_tokens=13)
    events = [tokens(*range(5)), tokens(*range(5)), finished(FinishReason.LENGTH, usage=usage)]
    assert judged(call(max_tokens=10), events).oddities == {}


def test_an_event_that_holds_nothing_new_is_counted() -> None:
    assert judged(call(), [tokens(), tokens(1, 2), finished()]).oddities == {"empty_tokens": 1}


@pytest.mark.parametrize("usage", [None, USAGE])
@pytest.mark.parametrize("before", [[], [tokens(1, 2)], [tokens(1, 2), finished(usage=None)]])
def test_c25_a_fault_ends_everything_with_or_without_usage(before: list[Event], usage: Usage | None) -> None:
    rules = judged(call(n=2), [*before, msgspec.structs.replace(FAULT, usage=usage)])
    assert (rules.terminal, rules.usage) == (True, usage)
    rules.closed()


@pytest.mark.parametrize("usage", [None, USAGE])
def test_c22_a_cancelled_end_needs_neither_usage_nor_prompt(usage: Usage | None) -> None:
    assert judged(call(prompt_top_n=1), [tokens(1, 2), finished(FinishReason.CANCELLED, usage=usage)]).terminal


def test_c34_a_prefill_may_send_tokens_before_its_handoff() -> None:
    rules = judged(call(), [tokens(1, 2), HANDOFF], Role.PREFILL)
    assert (rules.terminal, rules.usage) == (True, USAGE)


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH, FinishReason.UNKNOWN])
def test_c35_a_prefill_does_not_finish(reason: FinishReason) -> None:
    assert broken_rule(call(), [finished(reason)], Role.PREFILL) == "finished_prefill"


def test_c35_a_cancelled_prefill_is_no_violation() -> None:
    assert judged(call(), [finished(FinishReason.CANCELLED)], Role.PREFILL).terminal


@pytest.mark.parametrize(
    ("handoff", "rule"),
    [
        (event(PrefillReady(session=None), USAGE), "missing_session"),
        (event(PrefillReady(session=SESSION)), "missing_usage"),
    ],
)
def test_c36_a_handoff_needs_session_and_usage(handoff: Event, rule: str) -> None:
    assert broken_rule(call(), [handoff], Role.PREFILL) == rule


@pytest.mark.parametrize("role", [Role.AGGREGATED, Role.DECODE])
def test_c36_a_handoff_belongs_to_prefills(role: Role) -> None:
    assert broken_rule(call(), [HANDOFF], role) == "unasked_handoff"
