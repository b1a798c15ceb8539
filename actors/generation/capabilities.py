"""Capabilities: what the engine must advertise before a request may ask for something.

Presence rules throughout: a capability that is not reported permits nothing, a limit that is not reported limits
nothing, and a reported 0 or False is what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openengine_sidecar.messages.engine.discovery import CandidateMode, Capabilities, Discovery, LogprobCapability, Role
from openengine_sidecar.messages.engine.generation import GuideMode, MediaSource, Modality


@dataclass(frozen=True, slots=True)
class Offer:
    """What one engine offers, to a worker in one role."""

    discovery: Discovery
    role: Role

    @property
    def capabilities(self) -> Capabilities:
        """What the engine said that a request may ask for."""
        return self.discovery.capabilities

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """Media that this role may be sent; disaggregated engines advertise theirs apart."""
        if self.role is Role.AGGREGATED:
            return self.capabilities.aggregate_modalities
        return self.capabilities.prefill_decode_modalities


@dataclass(frozen=True, slots=True)
class Need:
    """One capability that a value needs.

    Attributes:
        capability: its revision 2 name.
        condition: what must be advertised, as a phrase (`to be true`).
        permits: whether the offer permits the value.
        advertised: what the engine says of it; None is not reported.
    """

    capability: str
    condition: str
    permits: Callable[[Offer, Any], bool]
    advertised: Callable[[Offer], object]

    def unmet(self, offer: Offer) -> str:
        """Says what is missing, for the client."""
        return f"needs {self.capability} {self.condition}; the engine advertises {describe(self.advertised(offer))}"


def describe(advertised: object) -> str:
    """Puts an advertised value in words: absent, empty and 0 read differently."""
    if advertised is None:
        return "nothing about it"
    if isinstance(advertised, Sequence) and not isinstance(advertised, str):
        return ", ".join(str(item) for item in cast("Sequence[object]", advertised)) or "an empty list"
    return str(advertised).lower() if isinstance(advertised, bool) else str(advertised)


def flag(capability: str, advertised: Callable[[Capabilities], bool | None]) -> Need:
    """A boolean capability; only True permits."""
    return Need(
        capability,
        "to be true",
        lambda offer, _value: advertised(offer.capabilities) is True,
        lambda offer: advertised(offer.capabilities),
    )


def listed(capability: str, member: object, advertised: Callable[[Offer], Sequence[object]]) -> Need:
    """A list that must name `member`."""
    return Need(capability, f"to list {member}", lambda offer, _value: member in advertised(offer), advertised)


def guide_mode(mode: GuideMode) -> Need:
    """The engine must list this form of guided decoding."""
    return listed("guided_decoding.modes", mode, lambda offer: offer.capabilities.guide_modes)


def modality(kind: Modality) -> Need:
    """The engine must list this kind of media for the worker's role."""
    return listed("multimodal_capabilities.*_modalities", kind, lambda offer: offer.modalities)


def source(form: MediaSource) -> Need:
    """The engine must list this way for media to travel."""
    return listed("multimodal_capabilities.source_types", form, lambda offer: offer.capabilities.media_sources)


def _within(value: int, limit: int | None) -> bool:
    return limit is None or value <= limit


def logprobs(name: str, advertised: Callable[[Capabilities], LogprobCapability]) -> tuple[Need, ...]:
    """Logprobs of the prompt or the output; the value is the number of candidates, 0 the chosen token alone."""
    return (
        flag(f"{name}.supported", lambda capabilities: advertised(capabilities).supported),
        Need(
            f"{name}.candidate_selection_modes",
            "to list top_n",
            lambda offer, top_n: top_n == 0 or CandidateMode.TOP_N in advertised(offer.capabilities).modes,
            lambda offer: advertised(offer.capabilities).modes,
        ),
        Need(
            f"{name}.max_top_n",
            "to be absent or at least as large",
            lambda offer, top_n: top_n == 0 or _within(top_n, advertised(offer.capabilities).max_top_n),
            lambda offer: advertised(offer.capabilities).max_top_n,
        ),
    )


OUTPUT_LOGPROBS = logprobs("output_logprobs", lambda capabilities: capabilities.output_logprobs)
PROMPT_LOGPROBS = logprobs("prompt_logprobs", lambda capabilities: capabilities.prompt_logprobs)
GUIDED = flag("guided_decoding.supported", lambda capabilities: capabilities.guided_decoding)
PRIORITY = flag("supports_priority", lambda capabilities: capabilities.priority)
STOP_IN_OUTPUT = flag("supports_stop_in_output", lambda capabilities: capabilities.stop_in_output)
CACHE_SALT = flag("supports_cache_salt", lambda capabilities: capabilities.cache_salt)
CACHE_BYPASS = flag("supports_prefix_cache_bypass", lambda capabilities: capabilities.prefix_cache_bypass)
LORA = flag("supports_lora", lambda capabilities: capabilities.lora)
MULTIMODAL = flag("supports_multimodal", lambda capabilities: capabilities.multimodal)
MEDIA_OPTIONS = flag("supports_per_request_media_options", lambda capabilities: capabilities.media_options)

SEQUENCES = Need(
    "max_num_sequences",
    "to be at least as large",
    lambda offer, n: n <= (offer.capabilities.max_num_sequences or 1),
    lambda offer: offer.capabilities.max_num_sequences,
)
"""One output needs no capability."""

OUTPUT_TOKENS = Need(
    "max_output_tokens",
    "to be absent or at least as large",
    lambda offer, tokens: _within(tokens, offer.discovery.limits.max_output_tokens),
    lambda offer: offer.discovery.limits.max_output_tokens,
)

DATA_PARALLEL = Need(
    "data_parallel_size",
    "to be above 1",
    lambda offer, _rank: (offer.discovery.parallelism.data or 1) > 1,
    lambda offer: offer.discovery.parallelism.data,
)
