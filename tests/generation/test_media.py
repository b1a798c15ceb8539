from __future__ import annotations

from typing import Any

import pytest

from openengine_sidecar.actors.config import RequestConfig
from openengine_sidecar.actors.generation.capabilities import Offer
from openengine_sidecar.actors.generation.media import media
from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.engine.discovery import Discovery, Role
from openengine_sidecar.messages.engine.generation import MediaItem, MediaSource, Modality
from openengine_sidecar.messages.errors import InvalidRequestError, UnsupportedFeatureError
from tests.generation.builders import FULL, but, called, inbound, merged, nested, translated

PNG = "data:image/png;base64,iVBORw0KGgo="
WAV = "https://host/a.wav"
JPG = "http://host/b.jpg"
MP4 = "data:video/mp4;base64,AAAA"

# As the frontend of Dynamo 1.6.1 sends it for image, audio, image, video.
MIXED: dict[str, Any] = {
    "multi_modal_data": {
        "audio_url": [{"Url": WAV}],
        "video_url": [{"Url": MP4}],
        "image_url": [{"Url": PNG}, {"Url": JPG}],
    },
    "multi_modal_uuids": {"audio_url": [None], "video_url": [None], "image_url": [None, "u2"]},
    "extra_args": {
        "messages": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": "", "detail": None, "uuid": None}},
                    {"type": "audio_url", "audio_url": {"url": WAV}},
                ],
            },
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "tool_calls": None},
            {"role": "assistant", "content": None},
            {
                "role": "tool",
                "tool_call_id": "t",
                "content": [
                    {"type": "image_url", "image_url": {"url": JPG, "detail": "auto"}, "uuid": "u2"},
                    {"type": "video_url", "video_url": {"url": ""}},
                ],
            },
        ],
        "formatted_prompt": "user:a<image><audio><image><video>",
    },
}


def item(modality: Modality, source: MediaSource, value: str | bytes, mime_type: str = "", uuid: str = "") -> MediaItem:
    return MediaItem(modality=modality, source=source, value=value, mime_type=mime_type, uuid=uuid)


def images(*urls: str) -> dict[str, Any]:
    return nested("multi_modal_data.image_url", [{"Url": url} for url in urls])


def audio(data: object = "AAEC", name: object = "wav") -> dict[str, Any]:
    part = {"type": "input_audio", "input_audio": {"data": data, "format": name}}
    return nested("extra_args.messages", [{"role": "user", "content": [part]}])


def test_c43_f49_media_of_several_kinds_keep_the_order_of_the_messages() -> None:
    assert called(MIXED).media == (
        item(Modality.IMAGE, MediaSource.DATA_URI, PNG),
        item(Modality.AUDIO, MediaSource.URL, WAV),
        item(Modality.IMAGE, MediaSource.URL, JPG, uuid="u2"),
        item(Modality.VIDEO, MediaSource.DATA_URI, MP4),
    )


def test_c43_media_of_one_kind_are_in_order_already() -> None:
    assert [image.value for image in called(images(PNG, JPG, PNG)).media] == [PNG, JPG, PNG]


def test_c43_several_kinds_without_messages_are_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="order of several kinds is not known"):
        called({"multi_modal_data": MIXED["multi_modal_data"]})


@pytest.mark.parametrize(
    ("urls", "problem"),
    [([PNG], "more parts than items"), ([PNG, JPG, JPG], "more items than parts"), ([], "more parts")],
)
def test_c43_a_count_that_does_not_match_the_placeholders_is_rejected(urls: list[str], problem: str) -> None:
    counted = merged(MIXED, images(*urls)) | {"multi_modal_uuids": None}
    with pytest.raises(InvalidRequestError, match=problem):
        called(counted)


@pytest.mark.parametrize("uuids", [["a"], ["a", "b", "c"]])
def test_uuids_that_do_not_match_the_items_are_rejected(uuids: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="not one for each image_url"):
        called(images(PNG, JPG) | {"multi_modal_uuids": {"image_url": uuids}})


@pytest.mark.parametrize("uuids", [[], [None], [None, None, None], ["", ""]])
def test_uuids_that_name_nothing_lose_no_item(uuids: list[str | None]) -> None:
    assert (
        called(images(PNG, JPG) | {"multi_modal_uuids": {"image_url": uuids}}).media == called(images(PNG, JPG)).media
    )


def test_uuids_without_items_are_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="multi_modal_uuids"):
        called({"multi_modal_uuids": {"video_url": ["a"]}})


def test_a_uuid_inside_the_address_is_kept() -> None:
    part = {"type": "image_url", "image_url": {"url": "", "uuid": "inner"}}
    changes = images(PNG) | nested("extra_args.messages", [{"content": [part]}])
    assert called(changes).media[0].uuid == "inner"


@pytest.mark.parametrize(
    ("url", "source"),
    [(JPG, MediaSource.URL), ("HTTPS://host/x", MediaSource.URL), (PNG, MediaSource.DATA_URI)],
)
def test_c44_an_address_says_how_it_travels(url: str, source: MediaSource) -> None:
    assert called(images(url)).media == (item(Modality.IMAGE, source, url),)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "s3://bucket/x", "ftp://host/x", "/local", "", "javascript:x"])
def test_any_other_address_is_rejected(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="neither an http"):
        called(images(url))


def test_c44_raw_bytes_carry_their_type() -> None:
    assert called(audio()).media == (item(Modality.AUDIO, MediaSource.RAW_BYTES, b"\x00\x01\x02", "audio/wav"),)


def test_c44_audio_goes_as_a_data_uri_where_no_bytes_are_taken() -> None:
    discovery = but(media_sources=(MediaSource.DATA_URI,))
    uri = "data:audio/mpeg;base64,AAEC"
    assert called(audio(name="mp3"), discovery).media == (item(Modality.AUDIO, MediaSource.DATA_URI, uri),)


@pytest.mark.parametrize(
    ("uri", "mime_type", "value"),
    [
        (PNG, "image/png", b"\x89PNG\r\n\x1a\n"),
        ("data:image/svg+xml;charset=utf-8,%3Csvg%3E", "image/svg+xml", b"<svg>"),
        ("data:;base64,", "", b""),
    ],
)
def test_a_data_uri_goes_as_raw_bytes_where_only_these_are_taken(uri: str, mime_type: str, value: bytes) -> None:
    discovery = but(media_sources=(MediaSource.RAW_BYTES,))
    assert called(images(uri), discovery).media == (item(Modality.IMAGE, MediaSource.RAW_BYTES, value, mime_type),)


@pytest.mark.parametrize(
    "uri", ["data:image/png;base64,AAA*A", "data:image/png;base64,AAA", "data:image/png", "data:image/png;base64,é"]
)
def test_a_data_uri_that_does_not_decode_is_rejected(uri: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"not base64|without a comma"):
        called(images(uri), but(media_sources=(MediaSource.RAW_BYTES,)))


@pytest.mark.parametrize(("data", "name"), [("AA*A", "wav"), ("AAAA", "ogg"), (None, "wav"), ("AAAA", None)])
def test_unusable_audio_is_rejected(data: object, name: object) -> None:
    with pytest.raises(InvalidRequestError):
        called(audio(data, name))


def test_an_audio_part_without_audio_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match="input_audio"):
        called(nested("extra_args.messages", [{"content": [{"type": "input_audio"}]}]))


def test_c44_decoded_media_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="cannot be handed on"):
        called(nested("multi_modal_data.image_url", [{"Decoded": {"rdma": 1}}]))


@pytest.mark.parametrize("kind", ["tensor_url", "image"])
def test_an_unknown_kind_of_media_is_refused(kind: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"multi_modal_data.{kind}"):
        called({"multi_modal_data": {kind: [{"Url": PNG}]}})


def test_an_unknown_kind_of_content_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'file'"):
        called(nested("extra_args.messages", [{"content": [{"type": "file"}]}]))


def in_role(role: Role, changes: dict[str, Any], discovery: Discovery) -> tuple[MediaItem, ...]:
    request = inbound(changes).request
    return media(request, None, Terms("r", Offer(discovery, role), RequestConfig()))


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_c45_a_half_request_takes_what_is_advertised_for_halves(role: Role) -> None:
    assert in_role(role, images(PNG), FULL) == in_role(Role.AGGREGATED, images(PNG), FULL)
    with pytest.raises(UnsupportedFeatureError, match="to list video; the engine advertises image"):
        in_role(role, nested("multi_modal_data.video_url", [{"Url": MP4}]), FULL)


@pytest.mark.parametrize(
    ("changes", "source"),
    [(images(JPG), MediaSource.URL), (images(PNG), MediaSource.DATA_URI), (audio(), MediaSource.DATA_URI)],
)
def test_c45_a_source_that_is_not_listed_is_refused(changes: dict[str, Any], source: MediaSource) -> None:
    listed = () if source is MediaSource.DATA_URI else (MediaSource.DATA_URI, MediaSource.RAW_BYTES)
    with pytest.raises(UnsupportedFeatureError, match=f"source_types to list {source}"):
        called(changes, but(media_sources=listed))


@pytest.mark.parametrize("capability", [None, False])
def test_c45_options_need_their_capability(*, capability: bool | None) -> None:
    with pytest.raises(UnsupportedFeatureError, match="supports_per_request_media_options"):
        called(images(PNG) | {"mm_processor_kwargs": {"fps": 1}}, but(media_options=capability))


def test_c45_options_keyed_by_kind_pass_as_they_are() -> None:
    options = {"image": {"a": [1, None]}, "audio": {}}
    assert called(images(PNG) | {"mm_processor_kwargs": options}).media_options == options


def test_c45_flat_options_go_to_every_kind_that_is_present() -> None:
    assert called(MIXED | {"mm_processor_kwargs": {"fps": 2}}).media_options == {
        "image": {"fps": 2},
        "audio": {"fps": 2},
        "video": {"fps": 2},
    }


@pytest.mark.parametrize("options", [{"image": {"a": 1}, "fps": 2}, {"image": 3}, {"image": {}, "tensor": {}}])
def test_c45_mixed_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="every key is a kind of media"):
        called(images(PNG) | {"mm_processor_kwargs": options})


def test_options_without_media_are_moot_and_counted() -> None:
    translation = translated({"mm_processor_kwargs": {"fps": 1}})
    assert translation.dropped == ("mm_processor_kwargs",)
    assert translation.call == called()


def test_no_options_are_none() -> None:
    assert called(images(PNG) | {"mm_processor_kwargs": {}}).media_options is None


@pytest.mark.parametrize("capability", [None, False])
@pytest.mark.parametrize("changes", [images(PNG), audio(), MIXED], ids=["image", "audio", "mixed"])
def test_c46_f49_media_are_refused_where_the_engine_takes_none(
    *, capability: bool | None, changes: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedFeatureError, match="needs supports_multimodal to be true") as refusal:
        called(changes, but(multimodal=capability))
    assert PNG not in refusal.value.problem


def test_c46_listed_modalities_are_all_that_is_taken() -> None:
    with pytest.raises(UnsupportedFeatureError, match="to list audio; the engine advertises image, video"):
        called(MIXED, but(aggregate_modalities=(Modality.IMAGE, Modality.VIDEO)))


def test_f49_twenty_megabytes_pass_without_a_copy() -> None:
    url = "data:image/png;base64," + "A" * 20_000_000
    request = inbound(images(url))
    entry = (request.request.multi_modal_data or {})["image_url"][0]
    items = media(request.request, None, Terms("r", Offer(FULL, Role.AGGREGATED), RequestConfig()))
    assert items[0].value is entry.url
