from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openengine_sidecar.messages.dynamo import naming
from openengine_sidecar.messages.dynamo.naming import EndpointId

ENDPOINT = EndpointId("dynamo", "backend", "generate")
HUGE_ID = 11172412439659239095


def test_an_endpoint_reads_as_its_path() -> None:
    assert str(ENDPOINT) == "dynamo/backend/generate"
    assert str(ENDPOINT.sibling("load_lora")) == "dynamo/backend/load_lora"


def test_a_subject_carries_the_id_in_hex_without_padding() -> None:
    assert naming.instance_subject(ENDPOINT, 0x35FD088F9EE81931) == "dynamo_backend.generate-35fd088f9ee81931"
    assert naming.instance_subject(ENDPOINT, 0xA) == "dynamo_backend.generate-a"


def test_an_id_above_63_bits_is_not_signed() -> None:
    assert naming.instance_hex(HUGE_ID) == "9b0c61eb7e0b56b7"


@pytest.mark.parametrize("instance_id", [-1, 2**64])
def test_an_id_outside_64_bits_is_refused(instance_id: int) -> None:
    with pytest.raises(ValueError, match="64 unsigned bits"):
        naming.instance_key(ENDPOINT, instance_id)


def test_keys_lie_in_the_buckets_of_the_stock_store() -> None:
    assert naming.instance_key(ENDPOINT, 255) == "v1/instances/dynamo/backend/generate/ff"
    assert naming.card_key(ENDPOINT, 255) == "v1/mdc/dynamo/backend/generate/ff"
    assert naming.card_key(ENDPOINT, 255, "my_lora-a") == "v1/mdc/dynamo/backend/generate/ff/my_lora-a"
    scope = "namespace/dynamo/component/backend/endpoint/generate"
    assert naming.event_channel_key(ENDPOINT, "kv_metrics", 16) == f"v1/event_channels/{scope}/topic/kv_metrics/10"
    assert naming.event_source_key(ENDPOINT, 16) == f"v1/event_sources/{scope}/topic/kv-events/10"


def test_a_path_of_the_tcp_plane_starts_with_the_instance() -> None:
    assert naming.instance_path(ENDPOINT, 255) == "ff/dynamo/backend/generate"


def test_a_key_splits_into_bucket_and_rest() -> None:
    assert naming.split_key("v1/mdc/dynamo/backend/generate/ff") == ("v1/mdc", "dynamo/backend/generate/ff")


@pytest.mark.parametrize("key", ["", "v1/mdc", "v1/mdc/", "v1/other/dynamo", "mdc/dynamo", "/v1/mdc/dynamo"])
def test_a_key_of_no_bucket_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="no discovery bucket"):
        naming.split_key(key)


def test_a_file_is_named_as_the_stock_store_names_it() -> None:
    stock = "namespace%2Fdynamo%2Fcomponent%2Fbackend%2Fendpoint%2Fgenerate%2Ftopic%2Fkv%5Fmetrics%2F489c3a17a3263"
    key = naming.event_channel_key(ENDPOINT, "kv_metrics", 0x489C3A17A3263)
    assert naming.file_name(naming.split_key(key)[1]) == stock


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_file_name_is_plain_ascii_and_leads_back_to_its_key(key: str) -> None:
    name = naming.file_name(key)
    assert name.replace("%", "").isalnum() or not key
    assert name.isascii()
    assert naming.key_of_file(name) == key


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("rwmodel", "rwmodel"),
        ("Foo/Bar.v1_X-y é", "foo_bar_v1_x-y__"),
        ("__.A.b__É/日é-.", "a_b______-_"),
        ("_My/lora-A", "my_lora-a"),
        ("my/lora-A", "my_lora-a"),
    ],
)
def test_a_slug_is_the_stock_one(name: str, slug: str) -> None:
    assert naming.slugify(name) == slug
