from __future__ import annotations

import importlib
import types

import pytest

from openengine_sidecar import supervision
from openengine_sidecar.supervision import testing

CONTRACT = {
    "Actor",
    "ActorSystem",
    "Backoff",
    "ChildSpec",
    "Clock",
    "INFINITY",
    "KILL",
    "LoopClock",
    "Mailbox",
    "Overflow",
    "Ref",
    "Restart",
    "RestartBudget",
    "Strategy",
    "Supervisor",
    "ThreadActor",
}


@pytest.mark.parametrize("facade", [supervision, testing])
def test_the_facade_exports_what_is_visible_and_nothing_else(facade: types.ModuleType) -> None:
    visible = {
        name
        for name, value in vars(facade).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert set(facade.__all__) == visible
    assert len(set(facade.__all__)) == len(facade.__all__)


@pytest.mark.parametrize("facade", [supervision, testing])
def test_the_facade_is_sorted_constants_first(facade: types.ModuleType) -> None:
    names = list(facade.__all__)
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def test_the_contract_is_there() -> None:
    assert set(supervision.__all__) >= CONTRACT


def test_every_error_of_the_kit_is_exported() -> None:
    errors = importlib.import_module("openengine_sidecar.supervision.errors")
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.SupervisionError)
    }
    assert raised <= set(supervision.__all__)
    for name in raised:
        assert name in (errors.__doc__ or "")
