from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from loguru import logger

from openengine_sidecar.supervision import Backoff, ChildSpec, Strategy, SupervisionError, Supervisor
from openengine_sidecar.supervision.testing import Probe, Stage
from tests.supervision.cast import Cast, Fail, Say, incarnation


class BrokenError(Exception):
    pass


@pytest.fixture
def lines(quiet: None) -> Iterator[list[str]]:
    del quiet
    logger.enable("openengine_sidecar.supervision")
    heard: list[str] = []
    sink = logger.add(heard.append, level="INFO", format="{level} {extra[actor]} {message}")
    yield heard
    logger.remove(sink)


async def test_the_messages_of_one_actor_can_be_followed_at_run_time(
    stage: Stage, cast: Cast, probe: Probe, lines: list[str]
) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    other = await stage.spawn(ChildSpec(name="b", factory=cast.echo()))
    await ref.ask(Say("not yet"), timeout=1.0)
    stage.system.trace("/stage/a", enabled=True)
    assert stage.system.snapshot()[2].traced
    ref.tell(Say("told"), sender=probe.ref)
    await ref.ask(Say("asked"), timeout=1.0)
    await other.ask(Say("somebody else's"), timeout=1.0)
    stage.system.trace("/stage/a", enabled=False)
    await ref.ask(Say("no more"), timeout=1.0)
    assert [line.strip() for line in lines] == [
        "INFO /stage/a told from /stage/probe: Say(text='told')",
        "INFO /stage/a asked: Say(text='asked')",
    ]


async def test_a_trace_outlives_the_life_it_was_begun_in(stage: Stage, cast: Cast, lines: list[str]) -> None:
    spec = ChildSpec(name="a", factory=cast.echo(), backoff=Backoff(minimum=0.0, maximum=0.0))
    await stage.spawn(ChildSpec(name="sup", factory=lambda: Supervisor(strategy=Strategy.ONE_FOR_ONE, children=[spec])))
    stage.system.trace("/stage/sup/a", enabled=True)
    ref = stage.ref("sup/a")
    ref.tell(Fail(BrokenError()))
    assert await incarnation(ref) == 2
    traced = [line for line in lines if line.startswith("INFO")]
    assert [line.split()[2] for line in traced] == ["told:", "asked:"]


async def test_long_messages_are_cut(stage: Stage, cast: Cast, lines: list[str]) -> None:
    ref = await stage.spawn(ChildSpec(name="a", factory=cast.echo()))
    stage.system.trace("/stage/a", enabled=True)
    await ref.ask(Say("x" * 10_000), timeout=1.0)
    assert len(lines[0]) < 300


async def test_nobody_can_be_traced_where_nobody_lives(stage: Stage) -> None:
    with pytest.raises(SupervisionError, match="nobody lives at /stage/nobody"):
        stage.system.trace("/stage/nobody", enabled=True)


def _failing(_: Any, message: Fail) -> None:
    raise message.error


async def test_a_traceback_is_shown_once(stage: Stage, cast: Cast, lines: list[str]) -> None:
    for name in "abc":
        ref = await stage.spawn(ChildSpec(name=name, factory=cast(on_message=_failing)))
        ref.tell(Fail(BrokenError("again")))
        await ref.stopped()
    errors = [line for line in lines if line.startswith("ERROR")]
    assert len(errors) == 3
    assert [line.count("Traceback") for line in errors] == [1, 0, 0]
