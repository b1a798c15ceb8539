"""Ordered media: the i-th item belongs to the i-th placeholder of the prompt.

The request groups items by kind; the order across kinds stands only in the original messages, where inline data is
blanked. So the n-th part of a kind is the n-th item of that kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

from openengine_sidecar.actors.generation.extra import Address, ContentPart, Message
from openengine_sidecar.actors.generation.media_source import addressed, input_audio
from openengine_sidecar.actors.generation.terms import Terms
from openengine_sidecar.messages.dynamo.request import MediaEntry, PreprocessedRequest
from openengine_sidecar.messages.engine.generation import MediaItem, Modality

KINDS = {"image_url": Modality.IMAGE, "video_url": Modality.VIDEO, "audio_url": Modality.AUDIO}
INPUT_AUDIO = "input_audio"
TEXT_PARTS = frozenset({"text", "refusal"})

_DATA = "multi_modal_data"
_MESSAGES = "extra_args.messages"
_OPTIONS = "mm_processor_kwargs"
_DETAIL = f"{_MESSAGES}.image_url.detail"


class _Entry(NamedTuple):
    entry: MediaEntry
    uuid: str | None


def media(request: PreprocessedRequest, messages: list[Message] | None, terms: Terms) -> tuple[MediaItem, ...]:
    """Translates every media item, in the order of the prompt's placeholders.

    Raises:
        InvalidRequestError: an order that is not known, a count that does not match, or an unusable item.
        UnsupportedFeatureError: a kind or form of media that the engine does not take.
    """
    groups = _groups(request, terms)
    if messages is not None:
        return tuple(_in_order(groups, _parts(messages, terms), terms))
    if len(groups) > 1:
        terms.reject(_DATA, list(groups), f"the order of several kinds is not known without {_MESSAGES}")
    return tuple(_item(kind, entry, terms) for kind, group in groups.items() for entry in group)


def media_options(options: dict[str, Any] | None, items: Iterable[MediaItem], terms: Terms) -> dict[str, object] | None:
    """Translates per-request media options: keyed by kind they pass, flat ones go to each kind that is present.

    Without media there is nothing to process: the options are noted as dropped.

    Raises:
        InvalidRequestError: a mixture of both forms.
        UnsupportedFeatureError: the engine takes no such options.
    """
    if not options:
        return None
    present = list(dict.fromkeys(str(item.modality) for item in items))
    if not present:
        terms.dropped.append(_OPTIONS)
        return None
    terms.require(_OPTIONS, options)
    keyed = options.keys() & set(Modality)
    if not keyed:
        return {kind: dict(options) for kind in present}
    if keyed != options.keys() or not all(isinstance(value, dict) for value in options.values()):
        terms.reject(_OPTIONS, options, "either every key is a kind of media with a map behind it, or none is")
    return dict(options)


def _groups(request: PreprocessedRequest, terms: Terms) -> dict[str, list[_Entry]]:
    data = {kind: entries for kind, entries in (request.multi_modal_data or {}).items() if entries}
    for kind, entries in data.items():
        if kind not in KINDS:
            terms.refuse(f"{_DATA}.{kind}", len(entries), "this worker does not know the kind of media")
        terms.require(f"{_DATA}.{kind}", f"{len(entries)} items")
    uuids = {kind: names for kind, names in (request.multi_modal_uuids or {}).items() if any(names)}
    for kind, names in uuids.items():
        if len(names) != len(data.get(kind, ())):
            terms.reject("multi_modal_uuids", names, f"not one for each {kind}")
    return {kind: list(map(_Entry, entries, uuids.get(kind, repeat(None)))) for kind, entries in data.items()}


def _parts(messages: list[Message], terms: Terms) -> Iterator[ContentPart]:
    for message in messages:
        for part in message.content if isinstance(message.content, list) else ():
            if part.type in KINDS or part.type == INPUT_AUDIO:
                yield part
            elif part.type not in TEXT_PARTS:
                terms.refuse(_MESSAGES, part.type, "this worker does not know the kind of content")


def _in_order(groups: dict[str, list[_Entry]], parts: Iterator[ContentPart], terms: Terms) -> Iterator[MediaItem]:
    waiting = {kind: iter(group) for kind, group in groups.items()}
    for part in parts:
        if part.type == INPUT_AUDIO:
            terms.require(f"{_MESSAGES}.{INPUT_AUDIO}", "1 item")
            yield input_audio(part.input_audio, part.uuid or "", terms)
            continue
        entry = next(waiting.get(part.type, iter(())), None)
        if entry is None:
            terms.reject(_MESSAGES, part.type, f"more parts than items in {_DATA}.{part.type}")
        yield _item(part.type, _placed(entry, part, terms), terms)
    for kind, rest in waiting.items():
        if next(rest, None) is not None:
            terms.reject(f"{_DATA}.{kind}", len(groups[kind]), f"more items than parts in {_MESSAGES}")


def _placed(entry: _Entry, part: ContentPart, terms: Terms) -> _Entry:
    address: Address | None = getattr(part, part.type)
    if address is None:
        return entry
    if address.detail not in {None, "auto"}:
        terms.keep_hint(_DETAIL, address.detail)
    return entry._replace(uuid=entry.uuid or address.uuid)


def _item(kind: str, entry: _Entry, terms: Terms) -> MediaItem:
    if entry.entry.url is None:
        terms.refuse(f"{_DATA}.{kind}", "without an address", "decoded and cached media cannot be handed on")
    return addressed(KINDS[kind], entry.entry.url, entry.uuid or "", terms)
