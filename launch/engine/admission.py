"""Synchronous validation of a GenerateRequest: every refusal happens here, before acceptance, with a precise status."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain

import grpc

from openengine_sidecar.launch.engine import features
from openengine_sidecar.launch.engine.adapters import Adapters
from openengine_sidecar.launch.engine.guided.constraint import Constraint, compile_constraint
from openengine_sidecar.launch.engine.guided.errors import ConstraintError
from openengine_sidecar.launch.engine.model import ToyModel
from openengine_sidecar.launch.engine.options import EngineOptions
from openengine_sidecar.launch.engine.prefix import Namespace
from openengine_sidecar.launch.engine.prompt import Prompt, read_prompt
from openengine_sidecar.launch.engine.roles.kinds import KINDS, rank_problems
from openengine_sidecar.launch.engine.status import StatusError, invalid, unimplemented, unknown_adapter, unknown_model
from openengine_sidecar.launch.engine.stopping import StopRules, read_rules
from openengine_sidecar.proto.rev2 import generation_pb2

MAX_STOP_CONDITIONS = 64
MEDIA_KEY = "trt_mm_v1"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A valid request, understood."""

    request: generation_pb2.GenerateRequest
    prompt: Prompt
    rules: StopRules
    outputs: int
    constraint: Constraint | None

    def namespace(self) -> Namespace:
        """Return what keeps this request's prefix apart from others with the same token ids."""
        salt, lora_name = self.request.kv.cache_salt, self.request.lora_name
        media = [_digest(item.SerializeToString(deterministic=True)) for item in self.request.media]
        keys: list[tuple[str, ...]] = [("cache_salt", salt)] if salt else []
        keys += [(MEDIA_KEY, "0", str(int.from_bytes(digest, "big")), "0") for digest in media]
        return Namespace(_digest(b"\0".join([salt.encode(), lora_name.encode(), *media])), lora_name, tuple(keys))


class Admission:
    """Checks requests against one engine's model, adapters, limits and features."""

    def __init__(self, options: EngineOptions, model: ToyModel, has: frozenset[str], adapters: Adapters) -> None:
        self._options = options
        self._role = KINDS[options.role]
        self._model = model
        self._adapters = adapters
        self._lacking = tuple(feature for feature in features.FEATURES if feature.name not in has)

    def check(self, request: generation_pb2.GenerateRequest) -> Admitted:
        """Validate a request.

        Raises:
            StatusError: INVALID_ARGUMENT for what no engine could do, UNIMPLEMENTED for a feature that is not
                advertised, NOT_FOUND for another model or an adapter that is not loaded, FAILED_PRECONDITION for a KV
                session on another role than decode, or none there.
        """
        if not self._model.answers_to(request.model):
            raise unknown_model(request.model)
        for feature in self._lacking:
            if feature.asked(request):
                raise unimplemented(feature.name)
        if request.lora_name and request.lora_name not in self._adapters:
            raise unknown_adapter(request.lora_name)
        ids = self._token_ids(request)
        for problem in chain(_problems(request), self._limit_problems(request), self._prompt_problems(request, ids)):
            raise invalid(problem)
        if problem := self._role.session_problem(request.kv):
            raise StatusError(grpc.StatusCode.FAILED_PRECONDITION, problem)
        prompt = read_prompt(ids, self._model)
        outputs = request.sampling.num_sequences or 1
        return Admitted(request, prompt, self._rules(request, len(ids)), outputs, _constraint(request.guided))

    def _token_ids(self, request: generation_pb2.GenerateRequest) -> Sequence[int]:
        if request.WhichOneof("input") == "prompt":
            return self._model.tokenizer.encode(request.prompt)
        return list(request.token_ids.ids)

    def _limit_problems(self, request: generation_pb2.GenerateRequest) -> Iterator[str]:
        options = self._options
        if request.sampling.num_sequences > options.max_num_sequences:
            yield f"num_sequences exceeds max_num_sequences {options.max_num_sequences}"
        for selection in (request.response.output_candidates, request.response.prompt_candidates):
            if selection.top_n > options.max_top_n:
                yield f"top_n exceeds max_top_n {options.max_top_n}"
            if any(token_id >= self._model.tokenizer.size for token_id in selection.token_ids.ids):
                yield "a candidate token id is outside the vocabulary"
        yield from rank_problems(request.kv, options.data_parallel_start_rank, options.data_parallel_size)

    def _prompt_problems(self, request: generation_pb2.GenerateRequest, ids: Sequence[int]) -> Iterator[str]:
        if not ids:
            yield "the prompt is empty"
        elif max(ids) >= self._model.tokenizer.size:
            yield f"token id {max(ids)} is outside the vocabulary of {self._model.tokenizer.size}"
        elif request.response.prompt_logprob_start >= len(ids):
            yield "prompt_logprob_start is past the prompt"
        yield from self._length_problems(request.stopping, len(ids))

    def _length_problems(self, stopping: generation_pb2.StoppingOptions, prompt_tokens: int) -> Iterator[str]:
        context, most = self._model.context_length, self._options.max_output_tokens
        if prompt_tokens >= context:
            yield f"the prompt has {prompt_tokens} tokens, the context only {context}"
        elif prompt_tokens + stopping.max_tokens > context:
            yield f"{prompt_tokens} prompt tokens and max_tokens {stopping.max_tokens} exceed the context of {context}"
        elif most is not None and stopping.max_tokens > most:
            yield f"max_tokens {stopping.max_tokens} exceeds max_output_tokens {most}"
        elif stopping.min_tokens > (limit := self._longest(stopping, prompt_tokens)):
            yield f"min_tokens {stopping.min_tokens} exceeds the {limit} tokens allowed"

    def _longest(self, stopping: generation_pb2.StoppingOptions, prompt_tokens: int) -> int:
        room = self._model.context_length - prompt_tokens
        allowed = min(room, self._options.max_output_tokens or room)
        return stopping.max_tokens if stopping.HasField("max_tokens") else allowed

    def _rules(self, request: generation_pb2.GenerateRequest, prompt_tokens: int) -> StopRules:
        return read_rules(request.stopping, max_tokens=self._longest(request.stopping, prompt_tokens))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


def _constraint(guided: generation_pb2.GuidedDecoding) -> Constraint | None:
    try:
        return compile_constraint(guided)
    except ConstraintError as error:
        raise invalid(str(error)) from error


def _problems(request: generation_pb2.GenerateRequest) -> Iterator[str]:
    if not request.request_id:
        yield "request_id is empty"
    yield from _sampling_problems(request.sampling)
    stopping, response = request.stopping, request.response
    if stopping.HasField("max_tokens") and stopping.max_tokens < 1:
        yield "max_tokens must be at least 1"
    if len(stopping.conditions) > MAX_STOP_CONDITIONS:
        yield f"more than {MAX_STOP_CONDITIONS} stop conditions"
    if any(not (item.stop_text or item.HasField("stop_token_id")) for item in stopping.conditions):
        yield "a stop condition is empty"
    for side, wanted in (("prompt", response.return_prompt_logprobs), ("output", response.return_output_logprobs)):
        if response.HasField(f"{side}_candidates") and not wanted:
            yield f"{side}_candidates needs return_{side}_logprobs"


def _sampling_problems(sampling: generation_pb2.SamplingParams) -> Iterator[str]:
    bounds = (
        ("temperature", 0.0, math.inf),
        ("min_p", 0.0, 1.0),
        ("frequency_penalty", -2.0, 2.0),
        ("presence_penalty", -2.0, 2.0),
    )
    for name, low, high in bounds:
        value: float = getattr(sampling, name)
        if not (low <= value <= high and math.isfinite(value)):
            yield f"{name} {value} is out of range"
    if sampling.HasField("top_p") and not 0.0 < sampling.top_p <= 1.0:
        yield f"top_p {sampling.top_p} is out of range"
    if sampling.top_k < -1:
        yield f"top_k {sampling.top_k} is out of range"
    if sampling.HasField("repetition_penalty") and not 0.0 < sampling.repetition_penalty < math.inf:
        yield f"repetition_penalty {sampling.repetition_penalty} is out of range"
    if sampling.HasField("num_sequences") and sampling.num_sequences == 0:
        yield "num_sequences must be at least 1"
