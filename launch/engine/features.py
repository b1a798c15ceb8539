"""The one table of optional features: what is advertised is what is honoured, because both read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from google.protobuf.message import Message

from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.messages.errors import ConfigurationError
from openengine_sidecar.proto.rev2 import generation_pb2, input_pb2, model_pb2

Asked = Callable[[generation_pb2.GenerateRequest], bool]
Advertise = Callable[[model_pb2.ModelInfo, bool], None]


@dataclass(frozen=True, slots=True)
class Feature:
    """One optional feature.

    Attributes:
        name: what `without` and refusals call it.
        asked: whether a request needs it.
        advertise: writes into ModelInfo that the feature is there (True) or denied (False).
        built: False for what this engine does not do at all; such a row only denies.
    """

    name: str
    asked: Asked
    advertise: Advertise
    built: bool = True


def _flag(path: str) -> Advertise:
    owner, _, leaf = path.rpartition(".")

    def advertise(info: model_pb2.ModelInfo, granted: bool) -> None:  # noqa: FBT001 - a row's answer
        setattr(_message(info, owner), leaf, granted)

    return advertise


def _listed(path: str, number: int, flag: str = "") -> Advertise:
    owner, _, leaf = path.rpartition(".")

    def advertise(info: model_pb2.ModelInfo, granted: bool) -> None:  # noqa: FBT001
        message = _message(info, owner)
        if flag and not message.HasField(flag):
            setattr(message, flag, granted)
        if granted:
            getattr(message, leaf).append(number)
            if flag:
                setattr(message, flag, True)

    return advertise


def _unsaid(_info: model_pb2.ModelInfo, _granted: bool) -> None:  # noqa: FBT001
    """Advertise nothing in ModelInfo: the feature shows in a limit or in EngineInfo."""


def _message(info: model_pb2.ModelInfo, path: str) -> Message:
    found: Message = attrgetter(path)(info) if path else info
    return found


def _returns(field: str) -> Asked:
    return lambda request: getattr(request.response, field)


def _wants(field: str, kind: str) -> Asked:
    return lambda request: (
        request.response.HasField(field) and getattr(request.response, field).WhichOneof("selection") == kind
    )


def _guide(kind: str) -> Asked:
    return lambda request: request.guided.WhichOneof("guide") == kind


def _modality(*numbers: int) -> Asked:
    return lambda request: any(item.modality in numbers for item in request.media)


def _source(kind: str) -> Asked:
    return lambda request: any(item.WhichOneof("source") == kind for item in request.media)


def _rows() -> Iterator[Feature]:
    yield Feature("text_input", lambda r: r.WhichOneof("input") == "prompt", _flag("supports_text_input"))
    yield Feature("token_ids_input", lambda r: r.WhichOneof("input") == "token_ids", _flag("supports_token_ids_input"))
    for side in ("prompt", "output"):
        owner = f"generation.{side}_logprobs"
        yield Feature(f"{side}_logprobs", _returns(f"return_{side}_logprobs"), _flag(f"{owner}.supported"))
        modes = model_pb2.CandidateTokenSelectionMode
        for kind in ("top_n", "token_ids", "all"):
            mode = modes.Value(f"CANDIDATE_TOKEN_SELECTION_MODE_{kind.upper()}")
            asked = _wants(f"{side}_candidates", kind)
            yield Feature(f"{side}_{kind}", asked, _listed(f"{owner}.candidate_selection_modes", mode))
    for kind in ("json_schema", "json_object", "regex", "ebnf_grammar", "choice", "structural_tag"):
        mode = model_pb2.GuidedDecodingMode.Value(f"GUIDED_DECODING_MODE_{kind.upper()}")
        listed = _listed("generation.guided_decoding.modes", mode, "supported")
        yield Feature(f"guided_{kind}", _guide(kind), listed, built=kind != "structural_tag")
    yield Feature("num_sequences", lambda r: r.sampling.num_sequences > 1, _unsaid)
    yield Feature("priority", lambda r: r.HasField("priority"), _flag("generation.supports_priority"))
    stop = _flag("generation.supports_stop_in_output")
    yield Feature("stop_in_output", lambda r: r.stopping.include_stop_in_output, stop)
    yield Feature("cache_salt", lambda r: bool(r.kv.cache_salt), _flag("generation.supports_cache_salt"))
    bypass = _flag("generation.supports_prefix_cache_bypass")
    yield Feature("prefix_cache_bypass", lambda r: r.kv.bypass_prefix_cache, bypass)
    yield Feature("data_parallel_rank", lambda r: r.kv.HasField("data_parallel_rank"), _unsaid)
    yield Feature("lora", lambda r: bool(r.lora_name), _flag("supports_lora"))
    yield from _media_rows()


def _media_rows() -> Iterator[Feature]:
    yield Feature("multimodal", lambda r: bool(r.media), _flag("supports_multimodal"))
    for kind in ("image", "video", "audio"):
        number = input_pb2.Modality.Value(f"MODALITY_{kind.upper()}")
        # The schema reads an unset modality as image.
        asked = _modality(number, input_pb2.MODALITY_UNSPECIFIED) if kind == "image" else _modality(number)
        yield Feature(f"media_{kind}", asked, _listed("multimodal_capabilities.aggregate_modalities", number))
    for kind in ("url", "data_uri", "raw_bytes"):
        number = input_pb2.MediaSourceType.Value(f"MEDIA_SOURCE_TYPE_{kind.upper()}")
        yield Feature(f"media_{kind}", _source(kind), _listed("multimodal_capabilities.source_types", number))
    options = _flag("multimodal_capabilities.supports_per_request_media_options")
    yield Feature("media_options", lambda r: bool(r.media_options.fields), options)


FEATURES: tuple[Feature, ...] = tuple(_rows())
OPTION = "--without"
NEEDED = frozenset({"token_ids_input"})


def granted(options: EngineOptions) -> frozenset[str]:
    """Return the names of the features that an engine with these options has.

    Raises:
        ConfigurationError: `without` names no feature.
    """
    names = {feature.name for feature in FEATURES}
    if unknown := options.without - names:
        raise ConfigurationError(OPTION, f"no such feature: {', '.join(sorted(unknown))}")
    if options.minimal:
        return NEEDED - options.without
    return frozenset(feature.name for feature in FEATURES if feature.built) - options.without


def advertise(info: model_pb2.ModelInfo, has: frozenset[str], *, minimal: bool) -> None:
    """Write the features into `info`: granted ones true, denied ones false, or unsaid by a minimal engine."""
    for feature in FEATURES:
        if feature.name in has or not minimal:
            feature.advertise(info, feature.name in has)
