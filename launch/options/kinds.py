"""The kinds of value the command line takes, as click wants them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from openengine_sidecar.launch.options import values

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType


class Kind(_ParamType):
    """A value read by a function from text; what the function refuses with ValueError is bad usage."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Convert text to the value."""
        try:
            return self._read(str(value).strip())
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


TEXT = Kind("text", str)
TRUTH = Kind("true|false", values.truth)
SECONDS = Kind("secs", values.seconds)
SECONDS_OR_ZERO = Kind("secs", partial(values.seconds, zero=True))
COUNT = Kind("number", values.count)
CONNECTIONS = Kind("number", partial(values.count, highest=1024))
CONTEXT_LENGTH = Kind("tokens", partial(values.count, highest=2**32 - 1))
BYTES = Kind("bytes", values.byte_size)
PORT = Kind("port", values.port)
ENGINE_ADDRESS = Kind("host:port", values.engine_address)
NATS_SERVERS = Kind("url,...", values.nats_servers)
WORDS = Kind("text,...", values.words)
ENDPOINT_TYPES = Kind("type,...", partial(values.words, among=("chat", "completions")))
ROLE = Kind("agg|prefill|decode", values.served_role)
NAME = Kind("name", values.name)
HTTP_PATH = Kind("path", values.http_path)
MODEL_DIRECTORY = Kind("directory", values.model_directory)
STORE_DIRECTORY = Kind("directory", values.store_directory)
READABLE_FILE = Kind("file", values.readable_file)
DISCOVERY_BACKEND = Kind("file", values.one_of("file", later=("etcd", "kubernetes", "mem")))
REQUEST_PLANE = Kind("nats", values.one_of("nats", later=("tcp",)))
RESPONSE_PLANE = Kind("tcp", values.one_of("tcp", later=("quic",)))
EVENT_PLANE = Kind("nats|zmq", values.one_of("nats", "zmq"))
KV_EVENTS = Kind("auto|required|off", values.kv_events)
LOG_FILTER = Kind("filter", values.log_filter)
LOG_FORMAT = Kind("text|json", values.log_format)
