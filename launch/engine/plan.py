"""The answer an output is heading for: the prompt echoed in a short sentence, with what else the request carried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from google.protobuf import json_format

from openengine_sidecar.launch.engine.model import ToyModel
from openengine_sidecar.proto.rev2 import generation_pb2, input_pb2

INTRODUCTIONS = ("You said", "I heard", "Your words were", "This reached me")
FAULT_KEY = "fault"


def fingerprint(data: bytes) -> str:
    """Return eight hex digits that stand for the data in an answer."""
    return blake2b(data, digest_size=4).hexdigest()


def notes(request: generation_pb2.GenerateRequest, rank: int | None) -> list[str]:
    """Name everything that a request carried beside its prompt, so that a lost field shows in the answer."""
    found = [_media_note(item) for item in request.media]
    if request.media_options.fields:
        text = json_format.MessageToJson(request.media_options, indent=None, sort_keys=True)
        found.append(f"media_options {fingerprint(text.encode())}")
    if request.lora_name:
        found.append(f"adapter {request.lora_name}")
    if request.HasField("priority"):
        found.append(f"priority {request.priority}")
    if rank is not None:
        found.append(f"rank {rank}")
    if request.kv.cache_salt:
        found.append(f"salt {fingerprint(request.kv.cache_salt.encode())}")
    if request.kv.bypass_prefix_cache:
        found.append("bypass")
    found += [f"{key}={value}" for key, value in sorted(request.metadata.items()) if key != FAULT_KEY]
    return found


def _media_note(item: input_pb2.MediaItem) -> str:
    kind = item.WhichOneof("source")
    data: str | bytes = getattr(item, kind) if kind else b""
    raw = data.encode() if isinstance(data, str) else data
    name = input_pb2.Modality.Name(item.modality).removeprefix("MODALITY_").lower()
    return " ".join(filter(None, [name, str(kind), fingerprint(raw), item.mime_type, item.uuid]))


@dataclass(slots=True)
class Plan:
    """A walk over the tokens an output is heading for.

    The answer is followed by its end token; where the end may not come yet (minimum length, ignored end) the walk
    goes on with a space and the answer again.
    """

    tokens: Sequence[int]
    eos: int
    cursor: int = 0

    def target(self, *, may_end: bool) -> int:
        """Return the token to aim for now."""
        if self.tokens[self.cursor] == self.eos and not may_end:
            self.step()
        return self.tokens[self.cursor]

    def step(self) -> None:
        """Move to the next token."""
        self.cursor = (self.cursor + 1) % len(self.tokens)

    def skip(self, count: int) -> None:
        """Move past tokens that an earlier attempt already produced."""
        for _ in range(count):
            self.target(may_end=False)
            self.step()


def echo_plan(model: ToyModel, said: bytes, extra: Sequence[str], index: int) -> Plan:
    """Plan the echo of one output; each index has its own introduction."""
    introduction = INTRODUCTIONS[index % len(INTRODUCTIONS)]
    tail = "".join(f" [{note}]" for note in extra)
    answer = f'{introduction}: "'.encode() + said + f'".{tail}'.encode()
    tokens = model.tokenizer.encode_bytes(answer)
    return Plan([*tokens, model.eos, *model.tokenizer.encode_bytes(b" ")], model.eos)


def fixed_plan(model: ToyModel, answer: bytes) -> Plan:
    """Plan an answer that must be exactly this, and end there."""
    return Plan([*model.tokenizer.encode_bytes(answer), model.eos], model.eos)
