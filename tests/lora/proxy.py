"""A TCP proxy on loopback that breaks connections after so many bytes of the answer."""

from __future__ import annotations

import re
import socket
import struct
import threading
from contextlib import suppress
from typing import Self

_RANGE = re.compile(rb"GET (\S+) .*^range: bytes=(\d+)-", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_CHUNK = 16 * 1024


class CuttingProxy:
    """Passes everything on to one port.

    Attributes:
        victim: name of the file whose connections break.
        cuts: how many bytes of answers each next one of them may carry; when there are none left, they last.
        reset: whether it breaks with a reset instead of an end.
    """

    def __init__(self, target: int) -> None:
        self.victim = "adapter_model.safetensors"
        self.cuts: list[int] = []
        self.reset = False
        self._target = target
        self._asked: list[bytearray] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reads(self, name: str) -> list[int]:
        """The offsets from which a file was asked for, in order."""
        heads = [head for asked in self._asked for head in bytes(asked).split(b"\r\n\r\n")]
        ranges = [found.groups() for found in map(_RANGE.match, heads) if found is not None]
        return [int(start) for path, start in ranges if path.decode().endswith(name)]

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        """Refuse every further connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _spawn(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]  # a method of ours
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            asked = bytearray()
            self._asked.append(asked)
            self._spawn(self._forward, client, server, asked)
            self._spawn(self._answer, server, client, asked)

    def _forward(self, client: socket.socket, server: socket.socket, asked: bytearray) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK):
                asked += data
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket, asked: bytearray) -> None:
        room: int | None = None
        with server, client, suppress(OSError):
            while data := server.recv(_CHUNK):
                if room is None and self.cuts and self.victim.encode() in asked:
                    room = self.cuts.pop(0)
                if room is not None and len(data) >= room:
                    client.sendall(data[:room])
                    if self.reset:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.shutdown(socket.SHUT_RD if self.reset else socket.SHUT_RDWR)
                    return
                if room is not None:
                    room -= len(data)
                client.sendall(data)
