"""Control of LoRA adapters as Dynamo's workers have it, and the cards that adapters are shown with.

The same bodies and answers travel over the request plane (`load_lora`, `unload_lora`, `list_loras`, one item back) and
over HTTP on the system port. Fields that this build does not know are ignored, as they are by the stock workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from openengine_sidecar.messages.dynamo.cards import Lora, ModelCard
from openengine_sidecar.messages.dynamo.naming import slugify
from openengine_sidecar.messages.dynamo.parsing import Part, parsing

LOAD_LORA: Final = "load_lora"
UNLOAD_LORA: Final = "unload_lora"
LIST_LORAS: Final = "list_loras"


class LoraSource(msgspec.Struct, frozen=True):
    """Where an adapter lies: `file://`, `s3://` or `hf://`."""

    uri: str


class LoadLora(msgspec.Struct, frozen=True):
    """Body of a load."""

    lora_name: str
    source: LoraSource


class UnloadLora(msgspec.Struct, frozen=True):
    """Body of an unload."""

    lora_name: str


class LoraAnswerStatus(StrEnum):
    """How a control call went."""

    SUCCESS = "success"
    ERROR = "error"


class LoraAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The one item that answers a control call.

    Attributes:
        message: what was done, or why not; a listing has none.
        loras: of a listing: adapter name to id.
        count: of a listing.
    """

    status: LoraAnswerStatus
    message: str | UnsetType = UNSET
    lora_name: str | UnsetType = UNSET
    lora_id: int | UnsetType = UNSET
    loras: Mapping[str, int] | UnsetType = UNSET
    count: int | UnsetType = UNSET

    @property
    def ok(self) -> bool:
        """Whether it tells of a success."""
        return self.status is LoraAnswerStatus.SUCCESS


def lora_success(message: str, name: str, lora_id: int | None = None) -> LoraAnswer:
    """Answer to a load or an unload that was done, now or earlier."""
    return LoraAnswer(
        status=LoraAnswerStatus.SUCCESS,
        message=message,
        lora_name=name,
        lora_id=UNSET if lora_id is None else lora_id,
    )


def lora_error(message: str, name: str | None = None) -> LoraAnswer:
    """Answer to a call that was not done."""
    return LoraAnswer(status=LoraAnswerStatus.ERROR, message=message, lora_name=UNSET if name is None else name)


def lora_listing(loras: Mapping[str, int]) -> LoraAnswer:
    """Answer to a list."""
    return LoraAnswer(status=LoraAnswerStatus.SUCCESS, loras=dict(loras), count=len(loras))


def read_load(body: object) -> LoadLora:
    """Reads the decoded body of a load.

    Raises:
        WireError: part `body`: a field is missing or of the wrong type.
    """
    with parsing(Part.BODY):
        return msgspec.convert(body, LoadLora)


def read_unload(body: object) -> UnloadLora:
    """Reads the decoded body of an unload.

    Raises:
        WireError: as `read_load`.
    """
    with parsing(Part.BODY):
        return msgspec.convert(body, UnloadLora)


def adapter_card(base: ModelCard, name: str, lora_id: int, *, max_loras: int | None = None) -> ModelCard:
    """Card of an adapter of the base card's model, for `card_record`; the base model keeps its aliases to itself.

    Args:
        base: card of the model that the adapter extends, as this worker publishes it.
        name: the adapter, as clients name it.
        lora_id: its id at the engine.
        max_loras: how many adapters the engine holds at once, where known.
    """
    return msgspec.structs.replace(
        base,
        display_name=name,
        slug=slugify(name),
        aliases=UNSET,
        lora=Lora(name=name, max_gpu_lora_count=UNSET if max_loras is None else max_loras),
        user_data={"lora_adapter": True, "lora_id": lora_id},
    )
