from __future__ import annotations

import socket

import pytest

from openengine_sidecar.launch.stack.errors import PortTakenError
from openengine_sidecar.launch.stack.ports import free_port, is_free, require_free

HOST = "127.0.0.1"


def test_a_free_port_can_be_listened_on() -> None:
    port = free_port()
    with socket.create_server((HOST, port)):
        assert not is_free(HOST, port)


def test_a_free_port_is_no_port_of_outgoing_connections() -> None:
    assert 20_000 <= free_port() < 30_000


def test_a_taken_port_is_named_with_the_remedy() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"{HOST}:{port} is taken .*: choose another"):
            require_free(HOST, port, "choose another")


def test_a_port_left_a_moment_ago_is_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)) as client, server.accept()[0] as accepted:
            accepted.close()
            client.recv(1)
    assert is_free(HOST, port)
