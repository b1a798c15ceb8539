"""When a health poll asks for a real run of the model. Without I/O."""

from __future__ import annotations

from collections.abc import Callable

from openengine_sidecar.messages.engine.control import Health, HealthState

PROBE = "inference_probe"


class Canary:
    """Asks after a while without requests; and once a run failed, every time until one succeeds.

    Args:
        wait: seconds without requests.
        monotonic: the clock, in seconds.
        begun: how many requests the engine was ever given.
        busy: whether it has one now.
    """

    def __init__(
        self, *, wait: float, monotonic: Callable[[], float], begun: Callable[[], int], busy: Callable[[], bool]
    ) -> None:
        self._wait = wait
        self._monotonic = monotonic
        self._begun = begun
        self._busy = busy
        self._known = begun()
        self._since = monotonic()
        self._failing = False
        self._absent = False

    @property
    def due(self) -> bool:
        """Whether the next poll is to ask for a run."""
        if self._failing:
            return True
        begun, now = self._begun(), self._monotonic()
        if begun != self._known or self._busy():
            self._known, self._since = begun, now
        return not self._absent and now - self._since >= self._wait

    def failed(self) -> None:
        """A run failed, or did not end in time."""
        self._failing = True

    def absent(self) -> None:
        """The engine has no such run: never ask again."""
        self._absent, self._failing = True, False

    def judge(self, health: Health) -> HealthState:
        """Take the answer to a poll that asked for a run; returns the state that it stands for.

        An engine whose run failed is not ready, whatever it thinks of itself.
        """
        ready = all(check.state is HealthState.READY for check in health.checks if check.name == PROBE)
        self._failing = not ready
        self._since = self._monotonic()
        return health.state if ready else HealthState.NOT_READY
