"""The actor tree as text, in plain lines or in colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openengine_sidecar.launch.log_format import escaped
from openengine_sidecar.supervision import ActorState, ActorStatus

COLUMNS = ("actor", "state", "life", "mail", "most", "restarts", "age", "last failure")
BROKEN = frozenset({ActorState.BACKOFF, ActorState.GONE})
MOST_SIBLINGS = 20
_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the view.

    Attributes:
        cells: one text a column, the first one drawn as a tree.
        style: `good`, `warn`, `bad`, or `dim` for what stands in for many.
    """

    cells: tuple[str, ...]
    style: str


def lines(rows: Sequence[ActorStatus], *, most_siblings: int = MOST_SIBLINGS) -> list[Line]:
    """Draw the tree, parents above their children; of many siblings only the first are drawn and the rest counted."""
    children: dict[str, list[ActorStatus]] = {}
    for row in rows:
        children.setdefault(row.path.rpartition("/")[0], []).append(row)
    known = {row.path for row in rows}
    roots = [row for row in rows if row.path.rpartition("/")[0] not in known]
    drawn: list[Line] = []
    for root in roots:
        drawn.append(_line(root, root.path))
        drawn.extend(_below(root.path, children, "", most_siblings))
    return drawn


def _below(path: str, children: dict[str, list[ActorStatus]], indent: str, most: int) -> Iterable[Line]:
    siblings = children.get(path, [])
    shown, hidden = siblings[:most], siblings[most:]
    for position, row in enumerate(shown, start=1):
        last = position == len(siblings)
        yield _line(row, f"{indent}{'└── ' if last else '├── '}{row.path.rpartition('/')[2]}")
        yield from _below(row.path, children, f"{indent}{'    ' if last else '│   '}", most)
    if hidden:
        yield Line((f"{indent}└── and {len(hidden)} more", *[""] * (len(COLUMNS) - 1)), "dim")


def _line(row: ActorStatus, label: str) -> Line:
    cells = (
        f"{label} (traced)" if row.traced else label,
        row.state.value,
        f"#{row.incarnation}",
        str(row.mailbox),
        str(row.high_water),
        str(row.restarts),
        duration(row.age),
        row.last_failure,
    )
    return Line(tuple(escaped(cell) for cell in cells), _style(row))


def _style(row: ActorStatus) -> str:
    if row.state in BROKEN:
        return "bad"
    return "good" if row.state is ActorState.RUNNING and not row.restarts else "warn"


def duration(seconds: float) -> str:
    """Write a duration in its largest two units: `4.2s`, `3m07s`, `5h02m`, `2d03h`."""
    if seconds < _MINUTE:
        return f"{seconds:.1f}s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)}m{int(seconds % _MINUTE):02d}s"
    if seconds < _DAY:
        return f"{int(seconds // _HOUR)}h{int(seconds % _HOUR // _MINUTE):02d}m"
    return f"{int(seconds // _DAY)}d{int(seconds % _DAY // _HOUR):02d}h"


def plain(drawn: Sequence[Line]) -> str:
    """Lay the lines out in columns of plain text."""
    table = [COLUMNS, *(line.cells for line in drawn)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(COLUMNS))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in table)
    return "\n".join(text.rstrip() for text in padded)
