from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("busy machines", deadline=None)
settings.load_profile("busy machines")

pytest_plugins = ["tests.support.fixtures"]

LONG = os.environ.get("OPENENGINE_TESTS") == "long"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if LONG:
        return
    skip = pytest.mark.skip(reason="takes its time; OPENENGINE_TESTS=long runs it")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)
