"""Messages put aside until the actor is ready for them: what a state machine postpones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openengine_sidecar.supervision.errors import MailboxFullError

if TYPE_CHECKING:
    from openengine_sidecar.supervision._host import Host


def stash(host: Host, message: object) -> None:
    """Put the message being handled aside; an ask stays unanswered meanwhile.

    Raises:
        MailboxFullError: as many messages are put aside as the mailbox may hold.
    """
    capacity = host.cell.mailbox.capacity
    if len(host.stashed) >= capacity:
        raise MailboxFullError(host.cell.path, capacity)
    letter = host.letter
    if letter is None:
        host.stashed.append(message)
    else:
        letter.postponed = True
        host.stashed.append(letter)


def unstash(host: Host) -> None:
    """Put everything back, in its order, before the mail that waits."""
    host.cell.mail.extendleft(reversed(host.stashed))
    host.stashed.clear()
    host.cell.wake()
