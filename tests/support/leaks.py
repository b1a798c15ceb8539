from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Census:
    """What a process holds at one moment."""

    sockets: int
    files: int
    threads: int
    children: int

    @classmethod
    def of(cls, pid: int) -> Census:
        process = psutil.Process(pid)
        with process.oneshot():
            return cls(
                sockets=sum(1 for connection in process.net_connections() if connection.status != psutil.CONN_NONE),
                files=process.num_fds(),
                threads=process.num_threads(),
                children=len(process.children(recursive=True)),
            )

    def within(self, limit: Census) -> bool:
        """Whether no number here is larger than there."""
        return (
            self.sockets <= limit.sockets
            and self.files <= limit.files
            and self.threads <= limit.threads
            and self.children <= limit.children
        )
