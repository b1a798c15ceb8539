from __future__ import annotations

import pytest

from openengine_sidecar.launch.log_filter import LEVELS, LogFilter


def admits(text: str, target: str, level: str, actor: str = "") -> bool:
    return LogFilter.parse(text).admits(target, actor, LEVELS[level])


def test_without_directives_everything_from_info_is_kept() -> None:
    assert admits("", "anything", "info")
    assert not admits("", "anything", "debug")


def test_a_bare_level_is_for_everything() -> None:
    assert admits("debug", "anything", "debug")
    assert not admits("WARN", "anything", "info")
    assert not admits("off", "anything", "critical")


@pytest.mark.parametrize("name", ["actors.engine", "openengine_sidecar.actors.engine", "actors::engine"])
def test_a_module_of_the_package_may_be_named_in_short(name: str) -> None:
    text = f"info,{name}=debug"
    assert admits(text, "openengine_sidecar.actors.engine.connection", "debug")
    assert admits(text, "openengine_sidecar.actors.engine", "debug")
    assert not admits(text, "openengine_sidecar.actors.engines", "debug")
    assert not admits(text, "openengine_sidecar.actors", "debug")


def test_the_longest_name_wins_whatever_the_order() -> None:
    for text in ("nats=off,nats.aio=debug", "nats.aio=debug,nats=off"):
        assert admits(text, "nats.aio.client", "debug")
        assert not admits(text, "nats.js", "critical")


def test_an_actor_path_wins_over_its_module() -> None:
    text = "actors=error,/sidecar/serving/gate=debug"
    assert admits(text, "openengine_sidecar.actors.gate", "debug", actor="/sidecar/serving/gate/1")
    assert not admits(text, "openengine_sidecar.actors.gate", "info", actor="/sidecar/serving/gates")


def test_the_lowest_level_lets_every_directive_through() -> None:
    assert LogFilter.parse("warn,a=trace,/b=debug").lowest == LEVELS["trace"]
    assert LogFilter.parse("off").lowest == LEVELS["off"]


@pytest.mark.parametrize("text", ["loud", "a=loud", "=info", "info,[span]=debug", "a b=info", "a="])
def test_a_directive_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a level|does not name"):
        LogFilter.parse(text)
