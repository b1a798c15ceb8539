"""The support matrix, written from the table of fields: `python -m openengine_sidecar.actors.generation.matrix`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from openengine_sidecar.actors.generation.fields import SECTIONS, Fate, Field

_HEADING = """\
# What a request may ask for

Written from the table that also judges requests; do not edit. Every field of a request is in one of three states:

- **carried** to the engine, in the OpenEngine revision 2 field named. Where a capability stands beside it, the engine
  must advertise it: what is not reported permits nothing, and a limit that is not reported limits nothing. Otherwise
  the request is refused (HTTP 400) before the engine hears of it, and the answer names the field, the value, and what
  the engine advertises.
- **refused** whenever it says anything, for the reason given.
- **frontend**: the Dynamo frontend's own business; it is neither refused nor sent.

A field that is in no row is refused by name. A *hint* is refused like anything else, or dropped and counted with
`--drop-unsupported-hints`. Null says nothing anywhere.
"""

_COLUMNS = ("request field", "asked for with", "", "OpenEngine field", "the engine must advertise", "remarks")


def matrix() -> str:
    """Writes the support matrix as Markdown."""
    return "\n".join([_HEADING, *(line for title, rows in SECTIONS.items() for line in _section(title, rows))])


def _section(title: str, rows: tuple[Field, ...]) -> Iterator[str]:
    yield f"## {title}\n"
    yield _line(_COLUMNS)
    yield _line(["---"] * len(_COLUMNS))
    yield from (_line(_cells(row)) for row in rows)
    yield ""


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: Field) -> list[str]:
    needs = "; ".join(f"`{need.capability}` {need.condition}" for need in row.needs)
    return [f"`{row.name}`", row.client, _state(row), f"`{row.carries}`" if row.carries else "", needs, row.note]


def _state(row: Field) -> str:
    fate = f"**{row.fate}**" if row.fate is Fate.REFUSED else str(row.fate)
    return f"{fate}, hint" if row.hint else fate


if __name__ == "__main__":
    sys.stdout.write(matrix())
