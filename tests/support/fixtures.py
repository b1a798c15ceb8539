"""Real processes as fixtures; loaded by tests/conftest.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openengine_sidecar.launch.stack.openai import OpenAIEndpoint
from openengine_sidecar.launch.stack.stack import Stack
from tests.support.openai import OpenAIClient
from tests.support.site import Lab, Site

FAILED = pytest.StashKey[bool]()
SHOWN_LINES = 40


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


@contextmanager
def showing_logs(request: pytest.FixtureRequest, stack: Stack) -> Generator[None]:
    """Shows, when the test failed, how each process's log ends."""
    yield
    if request.node.stash.get(FAILED, False):
        for process in stack.processes:
            print(f"--- {process.log}, exit code {process.exit_code}\n{process.tail(SHOWN_LINES)}")  # noqa: T201


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """NATS and a store that the tests of a module share: whoever breaks one takes a `private_site`.

    Not of the session: the frontend keeps an inotify instance for every endpoint it ever saw, of which a user has 128.
    """
    site = Site(tmp_path_factory.mktemp("site"))
    with site.stack:
        site.start_nats()
        yield site


@pytest.fixture(scope="module")
def frontend(site: Site) -> OpenAIEndpoint:
    """The stock frontend with its default options."""
    return site.start_frontend()


@pytest.fixture(scope="module")
def migrating_frontend(site: Site) -> OpenAIEndpoint:
    """A stock frontend that resumes a broken stream elsewhere, twice at most."""
    return site.start_frontend("--migration-limit", "2", name="migrating-frontend")


@pytest.fixture
def private_site(tmp_path: Path) -> Iterator[Site]:
    """A site with nothing running, for one test."""
    site = Site(tmp_path)
    with site.stack:
        yield site


@pytest.fixture
def lab(site: Site, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Engines and workers of one test on the shared site."""
    lab = Lab(site, tmp_path)
    with showing_logs(request, lab.stack):
        yield lab
    lab.stack.kill()


@pytest.fixture(scope="module")
def module_lab(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Engines and workers that the tests of one module share, where none of them does harm."""
    lab = Lab(site, tmp_path_factory.mktemp("lab"))
    yield lab
    lab.stack.kill()


@pytest.fixture
async def client(lab: Lab, frontend: OpenAIEndpoint) -> AsyncIterator[OpenAIClient]:
    """A client of the lab's model at the default frontend."""
    async with lab.client(frontend) as client:
        yield client
