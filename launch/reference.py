"""The reference of settings in docs/configuration.md: `python -m openengine_sidecar.launch.reference > FILE`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby

from openengine_sidecar.launch.options import SERVE_SETTINGS
from openengine_sidecar.launch.options.setting import Setting
from openengine_sidecar.launch.tree_command import TREE_SETTINGS

_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m openengine_sidecar.launch.reference`; change the settings, not this file. -->

Every setting is a flag and an environment variable. A flag wins over its variable, the first variable named wins over
the next, and an empty variable counts as unset. Durations are seconds and may be fractions; sizes take a unit
(`64MiB`). Bad values end the command with one line on standard error and exit code 2.
"""
_SERVE = "## `openengine-sidecar serve`\n"
_TREE = "## `openengine-sidecar tree`\n"
_HEAD = "| flag | variable | default | |\n|---|---|---|---|"


def render() -> str:
    """Return the whole reference as Markdown."""
    return "\n".join([_INTRODUCTION, _SERVE, *_sections(SERVE_SETTINGS), _TREE, *_sections(TREE_SETTINGS)])


def _sections(settings: Sequence[Setting]) -> Iterator[str]:
    for heading, members in groupby(settings, key=lambda setting: setting.heading):
        rows = "\n".join(_row(setting) for setting in members)
        yield f"### {heading}\n\n{_HEAD}\n{rows}\n"


def _row(setting: Setting) -> str:
    flags = "<br>".join(f"`{flag} {setting.placeholder}`".replace(" `", "`") for flag in setting.opts)
    variables = "<br>".join(f"`{variable}`" for variable in setting.variables)
    default = "required" if setting.required else f"`{setting.default_text}`" if setting.default_text else ""
    cells = (flags, variables, default, str(setting.help))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(render())
