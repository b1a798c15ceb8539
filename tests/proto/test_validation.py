from __future__ import annotations

from collections.abc import Iterator

import pytest
from loguru import logger

from openengine_sidecar.messages.engine.discovery import Discovery
from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.proto import validation
from openengine_sidecar.proto.rev2_dialect import Revision2
from openengine_sidecar.proto.validation import validate

COMMIT = "cea19cb06acf03c911b84d5c147e519b60dd92a6"
REV2 = Revision2()


def _discovery(*, revision: int = 2, minimum: int = 1, release: str = COMMIT) -> Discovery:
    return Discovery(
        dialect="rev2",
        engine_name="toy",
        engine_version="1",
        instance_id="i",
        schema_revision=revision,
        minimum_client_revision=minimum,
        schema_release=release,
        role=None,
        supported_models=("m",),
        model_id="m",
        served_model_name="m",
    )


@pytest.fixture
def lines() -> Iterator[list[str]]:
    validation._note_newer.cache_clear()
    seen: list[str] = []
    handler = logger.add(seen.append, format="{message}", level="INFO")
    yield seen
    logger.remove(handler)


@pytest.mark.parametrize(
    ("revision", "minimum", "problem"),
    [
        (0, 0, "schema revision 0"),
        (0, 1, "schema revision 0"),
        (1, 1, "speaks schema revision 1, this build needs 2 or later"),
        (2, 3, "serves clients from schema revision 3 on, this build speaks 2"),
        (9, 3, "serves clients from schema revision 3 on"),
    ],
)
def test_c07_revisions_that_do_not_fit(revision: int, minimum: int, problem: str) -> None:
    with pytest.raises(DiscoveryError, match=f"here: .*{problem}"):
        validate(_discovery(revision=revision, minimum=minimum), REV2, endpoint="here")


@pytest.mark.parametrize("minimum", [0, 1, 2])
def test_c07_the_same_revision_is_accepted_in_silence(minimum: int, lines: list[str]) -> None:
    validate(_discovery(minimum=minimum), REV2, endpoint="here")
    assert lines == []


def test_c07_a_newer_engine_that_accepts_us_is_accepted_and_logged_once(lines: list[str]) -> None:
    for _ in range(2):
        validate(_discovery(revision=3, minimum=2), REV2, endpoint="here")
    assert lines == ["engine at here speaks schema revision 3, this build 2; it accepts us\n"]


@pytest.mark.parametrize(
    "release", [COMMIT, COMMIT.upper(), "768a93c7b44e40f28c692ad0b471a8f2", "v0.1.0", "v1.2.3-rc.1+b"]
)
def test_c08_immutable_releases(release: str) -> None:
    validate(_discovery(release=release), REV2, endpoint="here")
    validate(_discovery(release=release), REV2, endpoint="here", pin=release)


@pytest.mark.parametrize(
    "release",
    [
        "",
        "main",
        "cea19cb",
        COMMIT[:39],
        COMMIT + "0",
        f"{COMMIT}\n",
        "v1",
        "v1.2",
        "0.1.0",
        "v٣.1.0",
        "release/1.0",
        "V1.2.3",
    ],
)
def test_c08_releases_that_may_change_or_are_none(release: str) -> None:
    with pytest.raises(DiscoveryError, match="a full commit or a version tag is needed"):
        validate(_discovery(release=release), REV2, endpoint="here", pin=release or None)


def test_c08_another_release_than_the_pinned_one() -> None:
    with pytest.raises(DiscoveryError, match=r"states schema release v0\.1\.0, pinned is v0\.1\.1"):
        validate(_discovery(release="v0.1.0"), REV2, endpoint="here", pin="v0.1.1")
