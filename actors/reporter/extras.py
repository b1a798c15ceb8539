"""The optional dependencies of the system server."""

from __future__ import annotations

from importlib.util import find_spec

from openengine_sidecar.messages.errors import ConfigurationError

OPTION = "--system-port (DYN_SYSTEM_PORT)"
_NEEDED = ("aiohttp", "prometheus_client")


def require_http() -> None:
    """Check that the system server can be run, without importing what it needs.

    Raises:
        ConfigurationError: the extra `http` is not installed.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        problem = f"needs {' and '.join(missing)}: pip install 'openengine-sidecar[http]'"
        raise ConfigurationError(OPTION, problem)
