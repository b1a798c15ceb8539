from __future__ import annotations

import os

# gRPC in this process would start a poller in every child forked from here, whose descriptors are closed by
# then: now and then one aborts before it becomes the program it was forked for. Must stand before gRPC is loaded.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

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
