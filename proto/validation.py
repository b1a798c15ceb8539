"""Which engines this build may serve: the rules for schema revisions and releases."""

from __future__ import annotations

import re
from functools import lru_cache

from loguru import logger

from openengine_sidecar.messages.engine.discovery import Discovery
from openengine_sidecar.messages.errors import DiscoveryError
from openengine_sidecar.proto.dialect import Dialect
from openengine_sidecar.proto.text import peer_text

_COMMIT = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{32}")
_TAG = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")


def validate(discovery: Discovery, dialect: Dialect, *, endpoint: str, pin: str | None = None) -> None:
    """Check revision and release of a discovered engine.

    Args:
        discovery: what the engine said.
        dialect: the schema it was read with.
        endpoint: the engine's name in errors.
        pin: the only release to accept; None accepts every immutable one.

    Raises:
        DiscoveryError: the engine must not be served; asking again does not help.
    """
    check_revision(
        dialect,
        endpoint=endpoint,
        revision=discovery.schema_revision,
        minimum_client=discovery.minimum_client_revision,
    )
    check_release(discovery.schema_release, endpoint=endpoint, pin=pin)


def check_revision(dialect: Dialect, *, endpoint: str, revision: int, minimum_client: int) -> None:
    """Compare the engine's revisions with those of a dialect; a newer engine that still serves us is welcome.

    Raises:
        DiscoveryError: revision 0, an engine older than the dialect's floor, or one that wants newer clients.
    """
    own, floor = dialect.own_revision, dialect.floor_revision
    if revision == 0:
        raise DiscoveryError(endpoint, "it states schema revision 0, which is none")
    if minimum_client > own:
        problem = f"it serves clients from schema revision {minimum_client} on, this build speaks {own}"
        raise DiscoveryError(endpoint, problem)
    if revision < floor:
        raise DiscoveryError(endpoint, f"it speaks schema revision {revision}, this build needs {floor} or later")
    if revision > own:
        _note_newer(endpoint, revision, own)


def check_release(release: str, *, endpoint: str, pin: str | None) -> None:
    """Accept a release that can never come to mean another schema: a commit (40 or 32 hex digits) or a version tag.

    Raises:
        DiscoveryError: the release is empty, moves (a branch), is abbreviated, or is not the pinned one.
    """
    if not (_COMMIT.fullmatch(release) or _TAG.fullmatch(release)):
        said = f"schema release {peer_text(release)!r}" if release else "no schema release"
        problem = f"it states {said}, where a full commit or a version tag is needed"
        raise DiscoveryError(endpoint, problem)
    if pin is not None and release != pin:
        raise DiscoveryError(endpoint, f"it states schema release {release}, pinned is {pin}")


@lru_cache(maxsize=64)
def _note_newer(endpoint: str, revision: int, own: int) -> None:
    """Say once for each engine that it is ahead; discovery repeats, the log need not."""
    logger.info("engine at {} speaks schema revision {}, this build {}; it accepts us", endpoint, revision, own)
