from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResponseView(_message.Message):
    __slots__ = ("prefill_ready",)
    PREFILL_READY_FIELD_NUMBER: _ClassVar[int]
    prefill_ready: PrefillReadyView
    def __init__(self, prefill_ready: _Optional[_Union[PrefillReadyView, _Mapping]] = ...) -> None: ...

class PrefillReadyView(_message.Message):
    __slots__ = ("kv_session",)
    KV_SESSION_FIELD_NUMBER: _ClassVar[int]
    kv_session: bytes
    def __init__(self, kv_session: _Optional[bytes] = ...) -> None: ...

class RequestView(_message.Message):
    __slots__ = ("kv",)
    KV_FIELD_NUMBER: _ClassVar[int]
    kv: KvOptionsView
    def __init__(self, kv: _Optional[_Union[KvOptionsView, _Mapping]] = ...) -> None: ...

class KvOptionsView(_message.Message):
    __slots__ = ("session", "data_parallel_rank", "bypass_prefix_cache", "cache_salt")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    DATA_PARALLEL_RANK_FIELD_NUMBER: _ClassVar[int]
    BYPASS_PREFIX_CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    data_parallel_rank: int
    bypass_prefix_cache: bool
    cache_salt: str
    def __init__(self, session: _Optional[bytes] = ..., data_parallel_rank: _Optional[int] = ..., bypass_prefix_cache: _Optional[bool] = ..., cache_salt: _Optional[str] = ...) -> None: ...
