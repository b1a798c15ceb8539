"""In which way to listen to a rank: the fullest past first, then less of it, then the other transport. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import grpc
import msgspec

from openengine_sidecar.actors.kv.sources import RankSource

REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
    }
)
"""Answers that say no to what was asked: asking for less may help, asking again does not."""

OLDEST: Final = 1


class Past(StrEnum):
    """What is asked of the time before a subscription, for logs too."""

    SNAPSHOT = "grpc, from a snapshot"
    REPLAY = "grpc, from a replay"
    NOTHING = "grpc, from now on"
    ZMQ = "zmq"


class Attempt(msgspec.Struct, frozen=True):
    """One way. `start` goes with REPLAY: number of the first batch wanted."""

    past: Past
    start: int | None = None


class Attempts:
    """The ways that are left, for one source of one engine instance."""

    def __init__(self, source: RankSource) -> None:
        self._source = source
        self._absent: set[Past] = set()

    def ways(self, missing: int | None) -> Iterator[Attempt]:
        """Go through the ways; what turns out to be absent meanwhile is left out.

        Args:
            missing: number of the first batch that is known to be missing.
        """
        if self._source.grpc:
            for attempt in self._grpc(missing):
                if attempt.past not in self._absent:
                    yield attempt
        if self._source.zmq is not None:
            yield Attempt(Past.ZMQ)

    def refused(self, attempt: Attempt, status: grpc.StatusCode) -> bool:
        """Take note of how an attempt failed before it brought anything; whether less should be asked for."""
        if status is grpc.StatusCode.UNIMPLEMENTED:
            self._absent.add(attempt.past)
        return status in REFUSALS

    @property
    def hopeless(self) -> bool:
        """Whether no way is left."""
        return next(self.ways(None), None) is None

    def repairs(self, attempt: Attempt) -> bool:
        """Whether listening anew would bring more than going on with this attempt does."""
        zmq = self._source.zmq
        if attempt.past is Past.ZMQ:
            return zmq is not None and bool(zmq.replay_endpoint)
        return not {Past.SNAPSHOT, Past.REPLAY} <= self._absent

    def _grpc(self, missing: int | None) -> Iterator[Attempt]:
        yield Attempt(Past.SNAPSHOT)
        yield Attempt(Past.REPLAY, OLDEST)
        if missing is not None and missing > OLDEST:
            yield Attempt(Past.REPLAY, missing)
        yield Attempt(Past.NOTHING)
