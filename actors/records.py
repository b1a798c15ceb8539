"""What others ask of the Registrar."""

from __future__ import annotations

import msgspec

NOT_REGISTERED = "this worker is not registered now"
"""What PublishRecord is answered while the worker's own records do not stand."""


class PublishRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Asked: keep this record beside the worker's own. Answers None when it stands, else what was in the way.

    It stands until WithdrawRecord, or until the worker is withdrawn: say it again at every Registered.
    """

    key: str
    value: bytes


class WithdrawRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Asked: take this record out. Answers None when it is gone, else what was in the way."""

    key: str
