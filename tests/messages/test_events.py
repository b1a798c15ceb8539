from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from openengine_sidecar.messages.dynamo.control import Codec
from openengine_sidecar.messages.dynamo.encoding import ENCODERS
from openengine_sidecar.messages.dynamo.events import (
    CLEARED,
    LOAD_TOPIC,
    ActiveLoad,
    CacheEvent,
    Change,
    EventEnvelope,
    InvalidRange,
    RecentEvents,
    RecoveryAnswer,
    RecoveryRequest,
    Removed,
    RouterEvent,
    StorageTier,
    Stored,
    StoredBlock,
    TooNew,
    TreeDump,
    decode_recovery_request,
    encode_answer,
    encode_envelope,
    encode_events,
    encode_load,
    event_subject,
    recovery_endpoint,
)
from openengine_sidecar.messages.dynamo.naming import KV_EVENTS_TOPIC, EndpointId
from openengine_sidecar.messages.dynamo.two_part import decode_frame
from openengine_sidecar.messages.errors import WireError

VECTORS = Path(__file__).parents[1] / "kv" / "vectors"
ENDPOINT = EndpointId("dynamo", "backend", "generate")
WORKER = 2**64 - 1


def stock(name: str) -> bytes:
    return (VECTORS / f"{name}.bin").read_bytes()


def plain(raw: bytes | msgspec.Raw) -> Any:
    return msgspec.msgpack.decode(raw)


def event(data: Change | str, *, tier: StorageTier = StorageTier.DEVICE) -> RouterEvent:
    return RouterEvent(worker_id=WORKER, storage_tier=tier, event=CacheEvent(event_id=7, data=data, dp_rank=3))  # type: ignore[arg-type] # any text, to see it refused


@pytest.mark.parametrize("name", ["stored", "removed", "two"])
def test_cache_events_are_written_as_the_stock_worker_writes_them(name: str) -> None:
    raw = stock(f"{name}.event")
    envelope = msgspec.msgpack.decode(raw, type=EventEnvelope)
    events = msgspec.msgpack.decode(envelope.payload, type=list[RouterEvent])
    assert envelope.topic == KV_EVENTS_TOPIC
    assert encode_events(events) == envelope.payload
    assert encode_envelope(envelope) == raw


def test_load_is_written_as_the_stock_worker_writes_it() -> None:
    envelope = msgspec.msgpack.decode(stock("load.event"), type=EventEnvelope)
    load = msgspec.msgpack.decode(envelope.payload, type=ActiveLoad)
    assert envelope.topic == LOAD_TOPIC
    assert encode_load(load) == envelope.payload


@pytest.mark.parametrize("name", ["dump", "recent", "too_new", "too_new_end", "invalid_range"])
def test_answers_are_written_as_the_stock_worker_writes_them(name: str) -> None:
    raw = stock(f"{name}.answer")
    answer = msgspec.convert(plain(raw)["data"], RecoveryAnswer)
    frame = ENCODERS[Codec.MSGPACK].bare(encode_answer(answer, Codec.MSGPACK))
    assert decode_frame(frame).body == raw


@pytest.mark.parametrize(("name", "start"), [("whole", None), ("gap", 1)])
def test_a_routers_question_is_read(name: str, start: int | None) -> None:
    raw = stock(f"{name}.question")
    expected = RecoveryRequest(**plain(raw))
    assert expected.start_event_id == start
    assert decode_recovery_request(raw, Codec.MSGPACK) == expected
    assert decode_recovery_request(msgspec.json.encode(plain(raw)), Codec.JSON) == expected


def test_a_question_may_leave_out_what_an_older_router_did_not_know() -> None:
    raw = msgspec.msgpack.encode({"worker_id": WORKER, "dp_rank": 0, "start_event_id": 4, "new": "field"})
    expected = RecoveryRequest(worker_id=WORKER, dp_rank=0, start_event_id=4)
    assert decode_recovery_request(raw, Codec.MSGPACK) == expected


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "question",
    [
        {},
        {"worker_id": 1},
        {"worker_id": -1, "dp_rank": 0},
        {"worker_id": 1, "dp_rank": 2**32},
        {"worker_id": 1, "dp_rank": 0, "start_event_id": "4"},
        [1, 0],
    ],
)
def test_a_question_that_does_not_parse_is_a_wire_error(codec: Codec, question: Any) -> None:
    encode = msgspec.msgpack.encode if codec is Codec.MSGPACK else msgspec.json.encode
    with pytest.raises(WireError) as caught:
        decode_recovery_request(encode(question), codec)
    assert caught.value.part == "body"


def test_a_truncated_question_is_a_wire_error() -> None:
    with pytest.raises(WireError):
        decode_recovery_request(stock("gap.question")[:-3], Codec.MSGPACK)


def test_clearing_is_a_bare_word() -> None:
    (written,) = plain(encode_events([event(CLEARED)]))
    assert written["event"] == {"event_id": 7, "data": "cleared", "dp_rank": 3}


def test_lower_tiers_and_the_largest_ids_are_spelled_out() -> None:
    stored = Change(stored=Stored(parent_hash=WORKER, blocks=[StoredBlock(WORKER, 0)]))
    (written,) = plain(encode_events([event(stored, tier=StorageTier.HOST_PINNED)]))
    assert (written["worker_id"], written["storage_tier"]) == (WORKER, "host_pinned")
    assert written["event"]["data"]["stored"]["parent_hash"] == WORKER


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (RecoveryAnswer(error="no"), {"Error": "no"}),
        (
            RecoveryAnswer(tree_dump=TreeDump(events=[], last_event_id=0)),
            {"TreeDump": {"events": [], "last_event_id": 0, "reset_scope": "all"}},
        ),
        (
            RecoveryAnswer(events=RecentEvents(events=[event(Change(removed=Removed([5])))], last_event_id=7)),
            {
                "Events": {
                    "events": [
                        {
                            "worker_id": WORKER,
                            "storage_tier": "device",
                            "residency_domain": "worker",
                            "event": {"event_id": 7, "data": {"removed": {"block_hashes": [5]}}, "dp_rank": 3},
                        }
                    ],
                    "last_event_id": 7,
                }
            },
        ),
        (
            RecoveryAnswer(too_new=TooNew(requested_start=9, requested_end=None, newest_available=7)),
            {"TooNew": {"requested_start": 9, "requested_end": None, "newest_available": 7}},
        ),
        (
            RecoveryAnswer(invalid_range=InvalidRange(start_id=3, end_id=1)),
            {"InvalidRange": {"start_id": 3, "end_id": 1}},
        ),
    ],
)
def test_an_answer_says_one_thing_in_either_codec(answer: RecoveryAnswer, expected: dict[str, Any]) -> None:
    assert plain(encode_answer(answer, Codec.MSGPACK)) == expected
    assert msgspec.json.decode(encode_answer(answer, Codec.JSON)) == expected


def test_names_of_subjects_and_of_the_recovery_endpoint() -> None:
    assert event_subject(ENDPOINT, KV_EVENTS_TOPIC) == "namespace.dynamo.component.backend.endpoint.generate.kv-events"
    assert recovery_endpoint(ENDPOINT, 255) == EndpointId("dynamo", "backend", "worker_kv_query_source_ff")
