from __future__ import annotations

import re
from pathlib import Path

from openengine_sidecar.launch import reference
from openengine_sidecar.launch.options import SERVE_SETTINGS
from openengine_sidecar.launch.tree_command import TREE_SETTINGS

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_reference_is_what_the_settings_say() -> None:
    assert DOCUMENT.read_text() == reference.render(), (
        "stale: run python -m openengine_sidecar.launch.reference > docs/configuration.md"
    )


def test_every_flag_and_every_variable_is_in_it() -> None:
    text = reference.render()
    for setting in SERVE_SETTINGS + TREE_SETTINGS:
        for name in (*setting.opts, *setting.variables):
            assert re.search(rf"`{name}[ `]", text)


def test_every_row_has_its_four_cells() -> None:
    rows = [line for line in reference.render().splitlines() if line.startswith("| `")]
    assert len(rows) == len(SERVE_SETTINGS + TREE_SETTINGS)
    assert all(len(re.split(r"(?<!\\)\|", row)) == 6 for row in rows)
