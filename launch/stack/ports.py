"""Loopback ports that stay ours between choosing them and listening on them."""

from __future__ import annotations

import random
import socket
from typing import Final

from openengine_sidecar.launch.stack.errors import PortTakenError, StackError

# Below what Linux, macOS and IANA hand to outgoing connections, so that a server that comes back finds its port free.
_FIRST: Final = 20_000
_LAST: Final = 29_999
_ATTEMPTS: Final = 200


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def require_free(host: str, port: int, remedy: str) -> None:
    """Raises PortTakenError when somebody else listens there; `remedy` says what the user can do."""
    if not is_free(host, port):
        raise PortTakenError(host, port, remedy)


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on, drawn outside the range of outgoing connections."""
    for _ in range(_ATTEMPTS):
        port = random.randint(_FIRST, _LAST)  # noqa: S311 - spreads neighbours apart, hides nothing
        if is_free(host, port):
            return port
    problem = f"no free port between {_FIRST} and {_LAST} on {host}"
    raise StackError(problem)
