"""What is fixed about each role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openengine_sidecar.launch.engine.options import ROLES
from openengine_sidecar.proto.rev2 import engine_pb2, generation_pb2


@dataclass(frozen=True, slots=True)
class RoleKind:
    """One role: its name on the command line, its number in the schema, and whether its requests bring a session."""

    name: str
    number: engine_pb2.EngineRole
    takes_session: bool = False

    def session_problem(self, kv: generation_pb2.KvOptions) -> str:
        """Say what is wrong with a session being there, or not; empty where nothing is."""
        if kv.HasField("session") == self.takes_session:
            return ""
        return f"an engine of role {self.name} {'needs a' if self.takes_session else 'takes no'} KV session"


_NUMBERS = (engine_pb2.ENGINE_ROLE_AGGREGATED, engine_pb2.ENGINE_ROLE_PREFILL, engine_pb2.ENGINE_ROLE_DECODE)
AGGREGATED, PREFILL, DECODE = (
    RoleKind(name, number, takes_session=number == engine_pb2.ENGINE_ROLE_DECODE)
    for name, number in zip(ROLES, _NUMBERS, strict=True)
)
KINDS = {kind.name: kind for kind in (AGGREGATED, PREFILL, DECODE)}


def rank_problems(kv: generation_pb2.KvOptions, start: int, size: int) -> Iterator[str]:
    """Say what is wrong with the ranks that a request names; a session's own rank decides."""
    named = {"data_parallel_rank": kv.data_parallel_rank} if kv.HasField("data_parallel_rank") else {}
    if kv.HasField("session"):
        named["session.dp_rank"] = kv.session.dp_rank
    if len(set(named.values())) > 1:
        yield "data_parallel_rank is not the session's"
    for field, rank in named.items():
        if not start <= rank < start + size:
            yield f"{field} {rank} is outside {start} .. {start + size - 1}"
