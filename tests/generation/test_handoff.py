from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.generation.handoff import session_in
from openengine_sidecar.messages.engine.discovery import Discovery, Parallelism, Role
from openengine_sidecar.messages.engine.generation import FinishReason, GenerateCall, PrefillReady, Usage
from openengine_sidecar.messages.errors import HandoffError, InvalidRequestError
from openengine_sidecar.proto.handoff.session_pb2 import RequestView
from openengine_sidecar.proto.rev2_dialect.requests import encode
from tests.generation.builders import (
    BARE,
    ID,
    answered_by,
    called,
    event,
    finished,
    inbound,
    merged,
    nested,
    tokens,
    translated,
)
from tests.generation.handoffs import (
    ODD_BUT_FINE,
    PAIRED,
    handed,
    params,
    reference,
    session,
    wire_of,
    with_connector,
)

CACHED = Usage(prompt_tokens=3, completion_tokens=0, total_tokens=3, cached_prompt_tokens=2)


def decoding(changes: dict[str, Any] | None = None, discovery: Discovery = PAIRED, **how: Any) -> GenerateCall:
    return called(handed() if changes is None else changes, discovery, role=Role.DECODE, **how)


def refusal(changes: dict[str, Any] | None, discovery: Discovery = PAIRED, **how: Any) -> str:
    with pytest.raises(HandoffError) as error:
        decoding(changes, discovery, **how)
    assert (error.value.request_id, error.value.status, error.value.client_fault) == (ID, 500, False)
    return error.value.problem


def prefilled(wire: bytes, usage: Usage = CACHED, discovery: Discovery = PAIRED) -> dict[str, Any]:
    """The handoff of a prefill, after the JSON hops through a frontend."""
    translation = translated(None, discovery, role=Role.PREFILL)
    ready = event(PrefillReady(session=session(wire)), usage)
    [item] = answered_by(translation, ready, role=Role.PREFILL)
    assert (item.token_ids, item.finish_reason) == ([], "length")
    return dict(json.loads(msgspec.json.encode(item.disaggregated_params)))


@pytest.mark.parametrize(
    "stops", [{"max_tokens": 30, "min_tokens": 20}, {"max_tokens": 1, "min_tokens": 5}, {"max_tokens": None}]
)
def test_c33_a_prefill_makes_one_token_and_no_least_number(stops: dict[str, Any]) -> None:
    call = called({"stop_conditions": stops}, role=Role.PREFILL)
    assert (call.stopping.max_tokens, call.stopping.min_tokens) == (1, None)
    assert call.stopping.stop_token_ids == (257,)


def test_c33_everything_else_of_a_request_is_the_same_for_its_prefill() -> None:
    changes = merged(nested("sampling_options.temperature", 0.5), nested("output_options.logprobs", 2))
    whole, prefill = called(changes), called(changes, role=Role.PREFILL)
    assert msgspec.structs.replace(prefill, stopping=whole.stopping) == whole


def test_c33_a_prompt_without_room_for_the_answer_is_refused_before_its_prefill() -> None:
    with pytest.raises(InvalidRequestError, match="leaves no room"):
        called({"token_ids": [1] * 100}, role=Role.PREFILL)


@pytest.mark.parametrize(
    ("routing", "rank"),
    [({"prefill_dp_rank": 4, "dp_rank": 3}, 4), ({"dp_rank": 3}, 3), ({"prefill_dp_rank": 2}, 2), ({}, None)],
)
def test_the_prefills_rank_is_the_routers(routing: dict[str, int], rank: int | None) -> None:
    assert called({"routing": routing}, role=Role.PREFILL).data_parallel_rank == rank


def test_a_rank_that_the_prefill_engine_has_not_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"routing.prefill_dp_rank is 6: the engine's ranks are 2 to 5"):
        called({"routing": {"prefill_dp_rank": 6}}, role=Role.PREFILL)


def test_c39_with_a_session_no_rank_is_named() -> None:
    call = decoding(merged(handed(), {"routing": {"dp_rank": 3, "prefill_dp_rank": 4}}))
    assert call.data_parallel_rank is None
    assert not RequestView.FromString(encode(call)).kv.HasField("data_parallel_rank")


def test_c37_f35_a_session_reaches_the_decode_engine_byte_for_byte() -> None:
    known = reference(attributes=ODD_BUT_FINE, dp_rank=2)
    known.endpoints.add(host="fe80::1", port=65_535, protocol="rdma")
    wire = b"\x4a\x03new" + known.SerializeToString()
    call = decoding(nested("prefill_result.disaggregated_params", prefilled(wire)))
    assert call.kv_session is not None
    assert call.kv_session.wire == wire
    assert RequestView.FromString(encode(call)).kv.session == wire


@pytest.mark.parametrize("endpoints", [[], [{"host": "h", "port": 1}]])
def test_f35_a_session_may_name_no_endpoint_or_no_protocol(endpoints: list[dict[str, Any]]) -> None:
    wire = wire_of(endpoints=endpoints)
    call = decoding(nested("prefill_result.disaggregated_params", prefilled(wire)))
    assert call.kv_session is not None
    assert call.kv_session.wire == wire


@pytest.mark.parametrize("number", [2.0**53 + 2, -(2.0**60), float("nan"), float("inf")])
def test_c38_f35_a_number_that_json_rounds_is_refused_before_the_engine_hears_of_it(number: float) -> None:
    assert "scale" in refusal(handed(wire_of(attributes={"layout": {"scale": [1.0, number]}})))


@pytest.mark.parametrize("number", [2.0**53, -(2.0**53), 0.0, 1.5])
def test_c38_a_number_that_json_carries_passes(number: float) -> None:
    assert decoding(handed(wire_of(attributes={"n": number}))).kv_session is not None


@pytest.mark.parametrize("endpoint", [{"host": "h"}, {"host": "h", "port": 65_536}, {"port": 1}, {}])
def test_c38_f35_an_endpoint_that_cannot_be_connected_to_is_refused(endpoint: dict[str, Any]) -> None:
    assert "session.endpoints[1]" in refusal(handed(wire_of(endpoints=[{"host": "h", "port": 1}, endpoint])))


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"format": "another", "session": ""},
        params(b"", format="openengine.kv_session.v2"),
        {"format": "openengine.kv_session.v1"},
        {"format": "openengine.kv_session.v1", "session": 5},
        {"format": "openengine.kv_session.v1", "session": "not base64!"},
        params(b"\xff\xff"),
        params(wire_of(), schema_version="1"),
        [],
        "text",
        {"sample_handle": "162d", "completed_tokens": [1]},
    ],
    ids=str,
)
def test_a_handoff_of_another_kind_is_refused(bad: object) -> None:
    assert refusal(nested("prefill_result.disaggregated_params", bad))


@pytest.mark.parametrize("changes", [{}, {"prefill_result": {}}, nested("prefill_result.disaggregated_params", None)])
def test_c39_f36_a_decode_needs_a_session(changes: dict[str, Any]) -> None:
    assert "prefill" in refusal(changes)


@pytest.mark.parametrize("role", [Role.AGGREGATED, Role.PREFILL])
@pytest.mark.parametrize("result", [handed(), {"prefill_result": {}}])
def test_c39_a_session_belongs_to_decodes(role: Role, result: dict[str, Any]) -> None:
    with pytest.raises(HandoffError, match=f"serves as {role}"):
        called(result, PAIRED, role=role)


def test_the_size_of_a_session_is_bounded_on_both_sides() -> None:
    wire = wire_of(attributes={"state": "x" * 1000})
    config = RequestConfig(max_session_bytes=1000)
    assert "--max-session-bytes" in refusal(handed(wire), config=config)
    translation = translated(None, PAIRED, role=Role.PREFILL, config=config)
    with pytest.raises(HandoffError, match="--max-session-bytes"):
        answered_by(translation, event(PrefillReady(session=session(wire)), CACHED), role=Role.PREFILL)
    assert len(prefilled(wire)["readable"]["attributes"]) <= 2048


@pytest.mark.parametrize(
    ("fields", "discovery", "word"),
    [
        ({"transfer_backend": "ucx"}, PAIRED, "backend ucx"),
        ({}, with_connector(protocols=("rdma",)), "over tcp"),
        ({"dp_rank": 6}, PAIRED, "rank 6, the engine's are 2 to 5"),
        ({"dp_rank": 1}, PAIRED, "rank 1"),
    ],
)
def test_c40_a_session_of_another_connector_is_refused(fields: dict[str, Any], discovery: Discovery, word: str) -> None:
    assert word in refusal(handed(wire_of(**fields)), discovery)


@pytest.mark.parametrize(("theirs", "ours", "fits"), [(1, 1, True), (2, 1, False), (None, 1, True), (2, None, True)])
def test_c40_the_profile_of_the_attributes_is_compared_where_both_are_known(
    theirs: int | None,
    ours: int | None,
    fits: bool,  # noqa: FBT001 - a column of the table
) -> None:
    changes = handed(**({} if theirs is None else {"schema_version": theirs}))
    discovery = with_connector(schema_version=ours)
    if fits:
        assert decoding(changes, discovery).kv_session == session()
    else:
        assert "schema 2" in refusal(changes, discovery)


@pytest.mark.parametrize(
    ("fields", "discovery"),
    [
        ({"transfer_backend": "ucx"}, BARE),
        ({"transfer_backend": ""}, PAIRED),
        ({"transfer_backend": "ucx"}, with_connector(transfer_backend="")),
        ({}, with_connector(protocols=())),
        ({"dp_rank": 40}, BARE),
    ],
)
def test_c40_what_one_side_does_not_say_is_left_to_the_engine(fields: dict[str, Any], discovery: Discovery) -> None:
    wire = wire_of(**fields)
    call = decoding(handed(wire), discovery)
    assert call.kv_session is not None
    assert call.kv_session.wire == wire


def test_a_lone_rank_takes_its_own_sessions() -> None:
    lone = msgspec.structs.replace(PAIRED, parallelism=Parallelism(data=4, data_rank=3))
    assert decoding(handed(wire_of(dp_rank=3)), lone).kv_session == session(dp_rank=3)
    assert "rank 2" in refusal(handed(wire_of(dp_rank=2)), lone)


def test_people_can_read_a_handoff() -> None:
    discovery = with_connector(msgspec.structs.replace(PAIRED, instance_id="e-1"))
    handoff = prefilled(wire_of(attributes={"room": "18446744073709551615"}), discovery=discovery)
    assert handoff["schema_version"] == 1
    assert handoff["readable"] == {
        "session_id": "s-1",
        "transfer_backend": "nixl",
        "endpoints": ["tcp://10.0.0.1:7000"],
        "dp_rank": 2,
        "attributes": '{"room": "18446744073709551615"}',
        "engine": "any 1",
        "instance_id": "e-1",
        "schema_release": "cea19cb",
    }


def test_what_people_read_is_nobodys_input() -> None:
    changes = handed(readable={"session_id": "another", "anything": [2**63]})
    assert decoding(changes).kv_session == session()


@pytest.mark.parametrize(
    ("prefill", "own", "shown"),
    [({"cached_tokens": 512}, None, 512), ({"cached_tokens": 0}, 3, 0), (None, 3, 3), ({}, None, None), (None, 0, 0)],
)
def test_f48_the_prefills_cached_tokens_are_the_answers(
    prefill: dict[str, int] | None, own: int | None, shown: int | None
) -> None:
    changes = merged(handed(), {"prefill_result": {"prompt_tokens_details": prefill}})
    translation = translated(merged(changes, nested("sampling_options.n", 2)), PAIRED, role=Role.DECODE)
    usage = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5, cached_prompt_tokens=own)
    items = answered_by(
        translation,
        tokens(1),
        tokens(2, index=1),
        finished(usage=None),
        finished(index=1, usage=usage),
        role=Role.DECODE,
    )
    [told] = [item.completion_usage for item in items if item.completion_usage is not None]
    assert (told.prompt_tokens, told.completion_tokens, told.total_tokens) == (3, 2, 5)
    details = told.prompt_tokens_details
    assert (None if details is None else details.cached_tokens) == shown


@pytest.mark.parametrize("cached", [-1, "5", 1.5, True])
def test_f48_cached_tokens_that_are_no_number_are_refused(cached: object) -> None:
    changes = merged(handed(), nested("prefill_result.prompt_tokens_details.cached_tokens", cached))
    with pytest.raises(InvalidRequestError, match="cached_tokens"):
        translated(changes, PAIRED, role=Role.DECODE)


def test_f48_the_prefills_own_usage_stands_on_its_handoff() -> None:
    translation = translated(None, PAIRED, role=Role.PREFILL)
    [item] = answered_by(translation, event(PrefillReady(session=session()), CACHED), role=Role.PREFILL)
    assert item.completion_usage is not None
    assert item.completion_usage.prompt_tokens_details is not None
    assert (item.completion_usage.prompt_tokens, item.completion_usage.prompt_tokens_details.cached_tokens) == (3, 2)


def test_a_session_is_found_whatever_else_is_wrong_with_the_request() -> None:
    wire = wire_of(attributes={"n": float("nan")}, endpoints=[{}])
    request = inbound(merged(handed(wire, schema_version=9), {"token_ids": []})).request
    assert session_in(request) == session(wire)


@pytest.mark.parametrize("changes", [{}, nested("prefill_result.disaggregated_params", {"any": 1}), handed(b"\xff")])
def test_no_session_is_made_up(changes: dict[str, Any]) -> None:
    assert session_in(inbound(changes).request) is None


@given(st.binary(max_size=200))
def test_f35_any_bytes_are_refused_or_carried_untouched(wire: bytes) -> None:
    try:
        call = decoding(handed(wire), BARE)
    except HandoffError:
        return
    assert call.kv_session is not None
    assert RequestView.FromString(encode(call)).kv.session == wire


def test_c35_tokens_of_a_prefill_are_no_output() -> None:
    translation = translated(None, PAIRED, role=Role.PREFILL)
    assert answered_by(translation, tokens(1), role=Role.PREFILL, whole=False) == []


def test_a_handoff_is_a_text_and_little_else() -> None:
    handoff = prefilled(wire_of())
    assert base64.b64decode(handoff["session"]) == wire_of()
    assert set(handoff) == {"format", "session", "schema_version", "readable"}
    assert FinishReason.LENGTH == "length"
