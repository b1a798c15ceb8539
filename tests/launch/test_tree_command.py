from __future__ import annotations

import asyncio
import io
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from openengine_sidecar.actors.config import ReporterConfig, WorkerIdentity
from openengine_sidecar.actors.reporter.actor import Reporter
from openengine_sidecar.launch import cli, tree_screen
from openengine_sidecar.launch.tree_view import lines
from openengine_sidecar.supervision import ActorState, ActorSystem, ChildSpec
from tests.launch.test_tree_view import actor

pytestmark = pytest.mark.usefixtures("clean_environment")


class Worker:
    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.asked: list[str] = []
        worker = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                worker.asked.append(self.path)
                status, body = worker.answers.pop(0)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    thread = threading.Thread(target=worker.server.serve_forever, args=(0.01,))
    thread.start()
    yield worker
    worker.server.shutdown()
    thread.join()
    worker.server.server_close()


@pytest.fixture(params=["rich", "plain"])
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    if request.param == "plain":
        monkeypatch.setattr(tree_screen, "find_spec", lambda _: None)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


def tree_of(*paths: str) -> tuple[int, bytes]:
    return 200, msgspec.json.encode([actor(path) for path in paths])


def after(pictures: int) -> Callable[[float], None]:
    left = [pictures]

    def sleep(_: float) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    return sleep


def test_once_shows_the_tree_and_exits(worker: Worker, capsys: pytest.CaptureFixture[str]) -> None:
    worker.answers = [tree_of("/sidecar", "/sidecar/reporter")]
    assert cli.run(["tree", "--system-port", str(worker.port), "--once"]) == 0
    text = capsys.readouterr().out
    assert "└── reporter" in text
    assert "\x1b" not in text
    assert worker.asked == ["/actors"]


def test_the_live_view_goes_on_until_interrupted(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.answers = [tree_of("/first"), tree_of("/second"), (500, b""), tree_of("/third")]
    monkeypatch.setattr("openengine_sidecar.launch.tree_command.time.sleep", after(4))
    assert cli.run(["tree", "--system-port", str(worker.port)]) == 0
    text = capsys.readouterr().out
    assert text.index("/first") < text.index("/second") < text.index("answered 500") < text.index("/third")


def test_on_a_terminal_live_pictures_replace_each_other(terminal: io.StringIO) -> None:
    with tree_screen.screen(terminal, live=True) as show:
        for note in ("one", "two"):
            show(lines([actor("/sidecar")]), note)
    first, second = terminal.getvalue().index("one"), terminal.getvalue().index("two")
    assert re.search(r"\x1b\[\d*[HA]", terminal.getvalue()[first:second])


def test_on_a_terminal_a_single_picture_stays(terminal: io.StringIO) -> None:
    with tree_screen.screen(terminal, live=False) as show:
        show(lines([actor("/sidecar", state=ActorState.BACKOFF)]), "")
    assert not re.search(r"\x1b\[\d*[HA]", terminal.getvalue())
    assert "backoff" in terminal.getvalue()


def test_with_rich_a_broken_actor_is_red(terminal: io.StringIO, request: pytest.FixtureRequest) -> None:
    with tree_screen.screen(terminal, live=False) as show:
        show(lines([actor("/sidecar", state=ActorState.BACKOFF)]), "")
    assert ("\x1b[1;31m" in terminal.getvalue()) is ("rich" in request.node.name.partition("[")[2])


@pytest.mark.parametrize("answer", [(404, b""), (200, b"{"), (200, b'[{"path": 1}]')])
def test_an_answer_that_is_no_tree_is_one_line_and_exit_1(
    answer: tuple[int, bytes], worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.answers = [answer]
    assert cli.run(["tree", "--system-port", str(worker.port), "--once"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert str(worker.port) in captured.err


def test_nobody_there_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert cli.run(["tree", "--system-port", str(port)]) == 1
    assert f"no worker shows its actors at 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "0"])
def test_a_server_that_is_off_cannot_be_asked(
    port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DYN_SYSTEM_PORT", port)
    assert cli.run(["tree"]) == 2
    assert "DYN_SYSTEM_PORT" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_worker_that_listens_everywhere_is_asked_here(
    host: str, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYN_SYSTEM_HOST", host)
    worker.answers = [tree_of("/sidecar")]
    assert cli.run(["tree", "--system-port", str(worker.port), "--once"]) == 0


def test_actor_names_cannot_command_the_terminal(worker: Worker, capsys: pytest.CaptureFixture[str]) -> None:
    worker.answers = [tree_of("/a\x1b[2J", "/[red]b")]
    assert cli.run(["tree", "--system-port", str(worker.port), "--once"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "/[red]b" in text


async def test_the_command_shows_the_tree_of_a_living_reporter() -> None:
    system = ActorSystem()
    reporter = Reporter(ReporterConfig(port=0), WorkerIdentity(instance_id=1))
    await system.start(ChildSpec(name="reporter", factory=lambda: reporter))
    assert reporter.address is not None
    arguments = ("-m", "openengine_sidecar", "tree", "--once", "--system-port", str(reporter.address[1]))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    await system.stop()
    assert process.returncode == 0
    assert "/reporter" in output.decode()
    assert "running" in output.decode()
