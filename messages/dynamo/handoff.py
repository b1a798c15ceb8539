"""`disaggregated_params` as this worker writes it: what a prefill answers, and what its decode half is given.

Opaque to the frontend, which turns it into JSON values on the way. A KV session is bytes there, as base64 text: nothing
in between can round a number of it or drop a field.

    {"format": "openengine.kv_session.v1", "session": "CgNhYmM...", "schema_version": 1, "readable": {...}}
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, Literal

import msgspec

from openengine_sidecar.messages.dynamo.parsing import Part
from openengine_sidecar.messages.errors import WireError

FORMAT: Final = "openengine.kv_session.v1"


class KvHandoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One handoff.

    Attributes:
        format: tells it from what other workers write.
        session: the session's serialized message, base64.
        schema_version: of the session's attributes, as the prefill engine's connector states it.
        readable: what the session says, for people and logs; nobody computes with it.
    """

    format: Literal["openengine.kv_session.v1"]
    session: str
    schema_version: int | None = None
    readable: dict[str, Any] = {}

    def wire(self) -> bytes:
        """The session's bytes.

        Raises:
            WireError: the text is not base64.
        """
        try:
            return base64.b64decode(self.session, validate=True)
        except (binascii.Error, ValueError) as error:
            problem = f"the handoff's session is not base64: {error}"
            raise WireError(Part.BODY, problem) from error


def pack_handoff(wire: bytes, *, schema_version: int | None, readable: dict[str, Any]) -> KvHandoff:
    """Write a handoff."""
    return KvHandoff(
        format=FORMAT, session=base64.b64encode(wire).decode(), schema_version=schema_version, readable=readable
    )


def read_handoff(value: object) -> KvHandoff:
    """Read what a prefill answered.

    Raises:
        WireError: it is none of this worker's handoffs.
    """
    try:
        return msgspec.convert(value, KvHandoff)
    except (msgspec.ValidationError, RecursionError) as error:
        problem = f"disaggregated_params is no {FORMAT}: {error}"
        raise WireError(Part.BODY, problem) from error
