from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from openengine_sidecar.launch.stack.errors import ChatError
from openengine_sidecar.launch.stack.openai import OpenAIEndpoint, Summary
from openengine_sidecar.launch.stack.ports import free_port

Serve = Callable[..., OpenAIEndpoint]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[ThreadingHTTPServer] = []

    def start(*lines: str, status: int = 200) -> OpenAIEndpoint:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                self.end_headers()
                self.wfile.write("".join(f"{line}\n" for line in lines).encode())

            def log_request(self, code: object = "-", size: object = "-") -> None:
                """Keep the test's output clean."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return OpenAIEndpoint("127.0.0.1", server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def chunk(content: str | None = None, finish: str | None = None, **rest: Any) -> str:
    choices = [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]
    return "data: " + json.dumps({"choices": choices, **rest})


def ask(endpoint: OpenAIEndpoint, summary: Summary) -> list[str]:
    return list(endpoint.chat("m", "hi", max_tokens=4, summary=summary))


def test_a_stream_is_yielded_piece_by_piece_and_summed_up(serve: Serve) -> None:
    usage = 'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}'
    endpoint = serve(chunk("Hel"), "", ": a comment", chunk("lo", "stop"), usage, "data: [DONE]")
    summary = Summary()
    assert ask(endpoint, summary) == ["Hel", "lo"]
    assert (summary.prompt_tokens, summary.completion_tokens, summary.finish_reason) == (5, 2, "stop")


def test_an_error_within_the_stream_keeps_its_code(serve: Serve) -> None:
    endpoint = serve(chunk("Hel"), 'data: {"error":{"message":"engine gone","code":503}}', "data: [DONE]")
    with pytest.raises(ChatError, match="engine gone") as failure:
        ask(endpoint, Summary())
    assert failure.value.status == 503


def test_a_refusal_shows_what_the_server_said(serve: Serve) -> None:
    with pytest.raises(ChatError, match="HTTP 404: no such model") as failure:
        ask(serve("no such model", status=404), Summary())
    assert failure.value.status == 404


def test_a_stream_without_its_end_is_an_error(serve: Serve) -> None:
    with pytest.raises(ChatError, match="before its end"):
        ask(serve(chunk("Hel")), Summary())


def test_models_lists_ids(serve: Serve) -> None:
    assert serve('{"object":"list","data":[{"id":"a"},{"id":"b"}]}').models() == ["a", "b"]


def test_nobody_there_is_not_live_and_lists_nothing() -> None:
    endpoint = OpenAIEndpoint("127.0.0.1", free_port())
    assert not endpoint.is_live()
    assert endpoint.models() == []
    with pytest.raises(ChatError):
        ask(endpoint, Summary())


def test_summary_tells_latency_and_pace() -> None:
    summary = Summary(
        asked=10.0, first=10.25, last=12.25, prompt_tokens=7, completion_tokens=41, finish_reason="length"
    )
    expected = "41 tokens, first after 250 ms, then 20.0 tokens/s (prompt 7 tokens, finish reason length)"
    assert str(summary) == expected


def test_summary_of_one_token_has_no_pace() -> None:
    summary = Summary(asked=1.0, first=1.5, last=1.5, prompt_tokens=7, completion_tokens=1, finish_reason="length")
    assert str(summary) == "1 tokens, first after 500 ms (prompt 7 tokens, finish reason length)"


def test_summary_of_nothing_says_so() -> None:
    assert str(Summary()) == "no token came"
