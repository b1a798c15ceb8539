"""Channels to an engine: where it is, and with which manners it is called."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Protocol

import grpc.aio

from openengine_sidecar.messages.errors import ConfigurationError

ENDPOINT_OPTION = "--grpc-endpoint"
PLAINTEXT_SCHEMES = frozenset({"http", "grpc"})

KEEPALIVE_MS = 330_000
"""Between two pings of a silent connection. Servers cut a peer that pings more often than every 5 minutes without
data unless they were told otherwise; the margin keeps jitter from counting as a strike."""
KEEPALIVE_TIMEOUT_MS = 20_000
INITIAL_BACKOFF_MS = 200
MAX_BACKOFF_MS = 2_000

_URL = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<rest>.*)", re.DOTALL)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*):(?P<port>[0-9]{1,5})")
_HOST = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)
_MAX_PORT = 65_535


class ChannelConfig(Protocol):
    """What a channel needs to know; EngineConfig is one."""

    @property
    def endpoint(self) -> str:
        """`host:port`."""
        ...

    @property
    def connect_attempt_timeout(self) -> float:
        """Seconds that one attempt to connect may take."""
        ...

    @property
    def max_receive_bytes(self) -> int:
        """Largest message taken from the engine."""
        ...

    @property
    def max_send_bytes(self) -> int:
        """Largest message sent to the engine."""
        ...


def parse_endpoint(text: str, *, option: str = ENDPOINT_OPTION) -> str:
    """Read an endpoint as people write it: `host:port`, `http://host:port` or `grpc://host:port`.

    Args:
        text: the endpoint; IPv6 addresses stand in brackets, a URL may end in one slash.
        option: name of the option, for the error.

    Returns:
        `host:port`.

    Raises:
        ConfigurationError: a scheme that is not plaintext, credentials, a path, a query, a fragment, or no valid
            host and port.
    """
    match = _URL.fullmatch(text)
    scheme, rest = (match["scheme"], match["rest"]) if match else (None, text)
    if scheme is not None:
        _check_scheme(scheme, option)
        rest = rest.removesuffix("/")
    for sign, what in (("@", "credentials"), ("/", "a path"), ("?", "a query"), ("#", "a fragment")):
        if sign in rest:
            raise ConfigurationError(option, f"must not contain {what}")
    return _check_authority(rest, option)


def open_channel(config: ChannelConfig) -> grpc.aio.Channel:
    """Open a channel with a connection of its own; it connects when first used, and again whenever it was cut."""
    return grpc.aio.insecure_channel(f"dns:///{config.endpoint}", options=channel_options(config))


def channel_options(config: ChannelConfig) -> list[tuple[str, int]]:
    """Build the options of a channel."""
    return [
        ("grpc.max_receive_message_length", config.max_receive_bytes),
        ("grpc.max_send_message_length", config.max_send_bytes),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.max_pings_without_data", 0),  # a silent stream may be watched for as long as it lasts
        ("grpc.initial_reconnect_backoff_ms", INITIAL_BACKOFF_MS),
        ("grpc.max_reconnect_backoff_ms", MAX_BACKOFF_MS),
        ("grpc.min_reconnect_backoff_ms", round(config.connect_attempt_timeout * 1000)),
        ("grpc.dns_min_time_between_resolutions_ms", MAX_BACKOFF_MS),  # an engine may return under a new address
        ("grpc.enable_retries", 0),  # who retries must know what was already delivered
        ("grpc.use_local_subchannel_pool", 1),  # else equal channels share one connection
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.enable_http_proxy", 0),  # the engine is a neighbour, and only the edge reads the environment
    ]


def _check_scheme(scheme: str, option: str) -> None:
    if scheme.lower() not in PLAINTEXT_SCHEMES:
        accepted = " and ".join(f"{name}://" for name in sorted(PLAINTEXT_SCHEMES))
        raise ConfigurationError(option, f"scheme {scheme}:// is not supported, only {accepted} (no TLS)")


def _check_authority(authority: str, option: str) -> str:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ConfigurationError(option, f"{authority!r} is not host:port (an IPv6 address needs brackets)")
    if not 1 <= int(match["port"]) <= _MAX_PORT:
        raise ConfigurationError(option, f"port {match['port']} is not between 1 and {_MAX_PORT}")
    if not _is_host(match["host"]):
        raise ConfigurationError(option, f"{match['host']!r} is not a host")
    return authority


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        return _HOST.fullmatch(host) is not None
    try:
        IPv6Address(host[1:-1])
    except AddressValueError:
        return False
    return True
