"""Commands whose help lists settings under headings, and a group that imports a command only to run it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import click

from openengine_sidecar.launch.options.setting import Setting


class GroupedCommand(click.Command):
    """A command that lists each `Setting` under its heading, other options last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, one section a heading, in order of declaration."""
        for heading, records in self._records(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def _records(self, ctx: click.Context) -> Mapping[str, list[tuple[str, str]]]:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                heading = param.heading if isinstance(param, Setting) else "Other"
                sections.setdefault(heading, []).append(record)
        return sections


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command lives, and the line that the group's help shows for it."""

    module: str
    attribute: str
    summary: str

    def load(self) -> click.Command:
        """Import the command."""
        return cast("click.Command", getattr(importlib.import_module(self.module), self.attribute))


class LazyGroup(click.Group):
    """A group of commands imported on first use."""

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **options: Any) -> None:
        super().__init__(*args, **options)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in order of declaration."""
        del ctx
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name."""
        del ctx
        return self.lazy[cmd_name].load() if cmd_name in self.lazy else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries()))

    def _summaries(self) -> Iterator[tuple[str, str]]:
        for name, command in self.lazy.items():
            yield name, command.summary
