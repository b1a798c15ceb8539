"""Supervisors: actors that do nothing but keep their children alive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Never

from openengine_sidecar.messages.signals import Cancel
from openengine_sidecar.supervision._actor import Actor
from openengine_sidecar.supervision._host import Host
from openengine_sidecar.supervision._keeper import Plan
from openengine_sidecar.supervision._spec import (
    PROGRAMMING_ERRORS,
    AutoShutdown,
    ChildSpec,
    Restart,
    RestartBudget,
    Strategy,
)
from openengine_sidecar.supervision._supervisor_host import SupervisorHost
from openengine_sidecar.supervision.errors import ChildSpecError


class Supervisor(Actor[Never]):
    """Starts its children top to bottom, each ready before the next; drains and stops them bottom to top.

    An incident - a child failed, or its restart did - is counted once and answered by the strategy after the culprit's
    back-off. Once the budget is spent, and at once for an error no restart can mend, the supervisor itself fails.

    Args:
        strategy: which siblings share the fate of a failed child.
        children: the static children, in order.
        budget: how many incidents are answered.
        auto_shutdown: when to end because significant children ended by themselves.
        fatal: errors to escalate at once, besides the programming errors.
        programming_errors: errors that are bugs, which a restart would only repeat.

    Raises:
        ChildSpecError: two children share a name, or a significant child can never end this supervisor.
    """

    _host_type: ClassVar[type[Host]] = SupervisorHost

    def __init__(
        self,
        *,
        strategy: Strategy,
        children: Sequence[ChildSpec],
        budget: RestartBudget = RestartBudget(),  # noqa: B008 - frozen
        auto_shutdown: AutoShutdown = AutoShutdown.NEVER,
        fatal: tuple[type[BaseException], ...] = (),
        programming_errors: tuple[type[BaseException], ...] = PROGRAMMING_ERRORS,
    ) -> None:
        super().__init__()
        _check(children, auto_shutdown)
        self.plan = Plan(
            strategy=strategy,
            children=tuple(children),
            budget=budget,
            auto_shutdown=auto_shutdown,
            fatal=fatal + programming_errors,
        )

    async def on_start(self) -> None:
        """Start the children in order."""
        host = self._host
        if isinstance(host, SupervisorHost):
            await host.keeper.bring_up()

    async def on_message(self, message: Never) -> None:
        """Supervisors understand no mail."""

    async def on_cancel(self, cancel: Cancel) -> None:
        """The children were told; end with them."""
        del cancel
        self.stop()


def _check(children: Sequence[ChildSpec], auto_shutdown: AutoShutdown) -> None:
    names = [spec.name for spec in children]
    if len(set(names)) < len(names):
        msg = f"children need names of their own: {', '.join(names)}"
        raise ChildSpecError(msg)
    for spec in children:
        if spec.significant and (spec.restart is Restart.PERMANENT or auto_shutdown is AutoShutdown.NEVER):
            msg = f"{spec.name} is significant, but its end can never end its supervisor"
            raise ChildSpecError(msg)
