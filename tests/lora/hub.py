"""The part of a Hugging Face hub that adapters are fetched from, on loopback."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.lora.adapters import ADAPTER

LARGE = 1024


class Hub:
    """One repository.

    Attributes:
        files: of the newest commit.
        breaks: how many bytes of the next files to send before their connection breaks.
        status: answered instead of everything.
        ranges: whether it can begin in the middle.
        requests: paths asked for, with the `Range` header.
        tokens: `Authorization` headers seen.
    """

    def __init__(self) -> None:
        self.repo = "owner/adapter"
        self.files: dict[str, bytes] = dict(ADAPTER)
        self.breaks: list[int] = []
        self.status = 0
        self.ranges = True
        self.lie = b""
        self.requests: list[tuple[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode(), usedforsecurity=False).hexdigest()

    def reads(self, name: str) -> list[str]:
        return [wanted for path, wanted in self.requests if path.endswith(f"/{name}")]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path: str) -> bytes | None:
        api = f"/api/models/{self.repo}"
        if path in (f"{api}/revision/main", f"{api}/revision/{self.commit}"):
            return json.dumps({"id": self.repo, "sha": self.commit}).encode()
        if path == f"{api}/tree/{self.commit}":
            return json.dumps([_entry(name, contents) for name, contents in self.files.items()]).encode()
        name = path.removeprefix(f"/{self.repo}/resolve/{self.commit}/")
        return self.lie or self.files[name] if name in self.files else None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, wanted = self.path.partition("?")[0], self.headers.get("Range", "")
                hub.requests.append((path, wanted))
                contents = hub.answer(path)
                if hub.status or contents is None:
                    self.send_response(hub.status or 404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                start = int(wanted.removeprefix("bytes=").removesuffix("-") or 0) if hub.ranges else 0
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(contents) - start))
                self.end_headers()
                room = hub.breaks.pop(0) if hub.breaks and "/resolve/" in path else len(contents)
                self.wfile.write(contents[start : start + room])
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _entry(name: str, contents: bytes) -> Mapping[str, Any]:
    oid = hashlib.sha1(contents, usedforsecurity=False).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(contents), "oid": oid}
    if len(contents) >= LARGE:
        entry["lfs"] = {"oid": hashlib.sha256(contents).hexdigest(), "size": len(contents), "pointerSize": 134}
    return entry
