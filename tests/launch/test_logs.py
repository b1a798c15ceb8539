from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, NoReturn

import pytest
from loguru import logger

from openengine_sidecar.launch.log_filter import LogFilter
from openengine_sidecar.launch.log_format import escaped
from openengine_sidecar.launch.logs import LogOptions, configure

pytestmark = pytest.mark.usefixtures("clean_environment")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    logger.remove()
    logging.captureWarnings(capture=False)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture
def lines() -> Callable[..., list[str]]:
    def collect(options: LogOptions, act: Callable[[], object], stream: io.StringIO | None = None) -> list[str]:
        target = stream or io.StringIO()
        configure(options, stream=target)
        act()
        return target.getvalue().splitlines()

    return collect


JSON = LogOptions(json=True)
TEXT = LogOptions()
Collect = Callable[..., list[str]]


def raise_(error: Exception) -> NoReturn:
    raise error


def parsed(lines: list[str]) -> dict[str, Any]:
    (line,) = lines
    fields: dict[str, Any] = json.loads(line)
    return fields


def test_a_json_record_has_its_keys_and_then_what_was_bound(lines: Collect) -> None:
    bound = logger.bind(actor="/sidecar/serving/gate", request_id="r-1", tokens=3, share=0.5, cause=None)
    record = parsed(lines(JSON, lambda: bound.warning("ended")))
    moment = record.pop("time")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment)
    assert record == {
        "level": "WARNING",
        "message": "ended",
        "target": __name__,
        "actor": "/sidecar/serving/gate",
        "request_id": "r-1",
        "tokens": 3,
        "share": 0.5,
        "cause": None,
    }


def test_a_bound_name_cannot_replace_a_key_of_the_record(lines: Collect) -> None:
    record = parsed(lines(JSON, lambda: logger.bind(level="none", message="m").info("kept")))
    assert (record["level"], record["message"]) == ("INFO", "kept")
    assert (record["extra.level"], record["extra.message"]) == ("none", "m")


def test_values_that_json_has_no_word_for_become_text(lines: Collect) -> None:
    bound = logger.bind(big=2**64, nan=float("nan"), many=(1, 2), surrogate="\udcff")
    record = parsed(lines(JSON, lambda: bound.info("x")))
    assert (record["big"], record["nan"], record["many"]) == (str(2**64), "nan", "(1, 2)")
    assert record["surrogate"] == "\\udcff"


def test_a_text_line_carries_actor_request_and_extras(lines: Collect) -> None:
    bound = logger.bind(actor="/sidecar/serving/gate", request_id="r-1", tokens=3, cause='it "broke"')
    (line,) = lines(TEXT, lambda: bound.info("ended"))
    assert line.split(" ", 1)[1] == 'INFO    /sidecar/serving/gate [r-1] ended tokens=3 cause="it \\"broke\\""'


@pytest.mark.parametrize("options", [TEXT, JSON])
def test_nothing_a_peer_wrote_breaks_a_record_in_two(options: LogOptions, lines: Collect) -> None:
    hostile = "a\nINFO forged\r\x1b[2J\u2028\x85\u202e\ttail"
    bound = logger.bind(request_id=hostile, detail=hostile, actor=hostile)
    (line,) = lines(options, lambda: bound.info("{}", hostile))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202e]", line)
    assert line.count("INFO forged") == 4


@pytest.mark.parametrize("options", [TEXT, JSON])
def test_an_exceptions_text_cannot_forge_a_record(options: LogOptions, lines: Collect) -> None:
    def fail() -> None:
        try:
            raise_(RuntimeError("peer said\n2026-01-01T00:00:00.000Z INFO forged\x1b[2J"))
        except RuntimeError:
            logger.exception("failed")

    first, *rest = lines(options, fail)
    assert "failed" in first
    assert all(line.startswith("    ") and "\x1b" not in line for line in rest)
    assert "RuntimeError: peer said" in first + "".join(rest)
    assert "\x1b" not in first


def test_the_variables_of_a_failure_stay_out_of_the_log(lines: Collect) -> None:
    def fail(password: str) -> None:
        assert password
        raise RuntimeError

    def act() -> None:
        try:
            fail("hunter".upper())
        except RuntimeError:
            logger.exception("failed")

    assert "HUNTER" not in "".join(lines(TEXT, act))


def test_colour_is_for_terminals_only(lines: Collect, monkeypatch: pytest.MonkeyPatch) -> None:
    act = lambda: logger.bind(request_id="r").error("x")  # noqa: E731 - one act, three streams
    assert "\x1b[31mERROR" in lines(TEXT, act, Terminal())[0]
    assert "\x1b" not in lines(TEXT, act)[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in lines(TEXT, act, Terminal())[0]


def test_json_is_never_coloured(lines: Collect) -> None:
    parsed(lines(JSON, lambda: logger.info("x"), Terminal()))


def test_local_time_carries_its_offset(lines: Collect) -> None:
    record = parsed(lines(LogOptions(json=True, local_time=True), lambda: logger.info("x")))
    offset = datetime.fromisoformat(record["time"]).utcoffset()
    assert offset == datetime.now().astimezone().utcoffset()
    assert isinstance(offset, timedelta)


def test_records_of_the_standard_library_keep_their_loggers_name(lines: Collect) -> None:
    record = parsed(lines(JSON, lambda: logging.getLogger("nats.aio.client").warning("lost %s", "one")))
    assert (record["target"], record["level"], record["message"]) == ("nats.aio.client", "WARNING", "lost one")


def test_the_standard_librarys_text_is_not_a_template(lines: Collect) -> None:
    record = parsed(lines(JSON, lambda: logging.getLogger("grpc").error("{broken} {0}")))
    assert record["message"] == "{broken} {0}"


def test_the_standard_librarys_exceptions_come_along(lines: Collect) -> None:
    def act() -> None:
        try:
            raise_(KeyError(1))
        except KeyError:
            logging.getLogger("asyncio").exception("task died")

    assert "KeyError: 1" in parsed(lines(JSON, act))["exception"]


def test_the_filter_decides_by_part(lines: Collect) -> None:
    def act() -> None:
        logging.getLogger("nats").debug("kept")
        logging.getLogger("grpc").debug("dropped")
        logger.debug("dropped")
        logger.warning("kept")

    kept = lines(LogOptions(json=True, filter=LogFilter.parse("info,nats=debug")), act)
    assert [json.loads(line)["message"] for line in kept] == ["kept", "kept"]


def test_warnings_become_records(lines: Collect) -> None:
    def act() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(capture=True)
            warnings.warn("old", DeprecationWarning, stacklevel=1)

    record = parsed(lines(JSON, act))
    assert record["target"] == "py.warnings"
    assert "DeprecationWarning: old" in record["message"]


def test_a_second_setup_replaces_the_first(lines: Collect) -> None:
    first = io.StringIO()
    configure(JSON, stream=first)
    assert len(lines(JSON, lambda: logging.getLogger("x").error("once"))) == 1
    assert first.getvalue() == ""


def test_escaping_leaves_printable_text_alone() -> None:
    assert escaped("größe 日本語 🙂 \\n") == "größe 日本語 🙂 \\n"
    assert escaped("\x00\x7f\ud800") == "\\x00\\x7f\\ud800"
