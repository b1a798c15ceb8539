from __future__ import annotations

from pathlib import Path

from openengine_sidecar.actors.generation.fields import FIELDS, SECTIONS
from openengine_sidecar.actors.generation.matrix import matrix

WRITTEN = Path(__file__).parents[2] / "docs" / "support-matrix.md"


def test_the_written_matrix_is_the_table() -> None:
    assert WRITTEN.read_text() == matrix()


def test_every_field_has_one_row() -> None:
    rows = [line for line in matrix().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [field.name for section in SECTIONS.values() for field in section]
    assert len(FIELDS) == len(rows)


def test_every_row_says_where_a_field_goes_or_why_not() -> None:
    assert all(field.carries or field.note for field in FIELDS.values())
