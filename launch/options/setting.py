"""How a setting is declared: its flag, its variables, its heading in the help, and the fields it fills."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast, get_type_hints

import click

from openengine_sidecar.actors.config import SidecarConfig
from openengine_sidecar.launch.options.kinds import TEXT, Kind

_MEBIBYTE = 1024**2
_OWN_PREFIX = "DYN_SIDECAR_"
SECTIONS: dict[str, type[Any]] = get_type_hints(SidecarConfig)


class Setting(click.Option):
    """One setting of a command.

    A setting that was not given has the value None, or False for a plain flag: defaults live in the configuration
    classes alone.

    Attributes:
        heading: the part of `--help` it is listed under.
        fields: fields of `SidecarConfig` it fills, each as `section.field`.
        default_text: the default as the help shows it, empty where there is nothing to show.
    """

    def __init__(
        self,
        flags: Sequence[str],
        variables: Sequence[str],
        *,
        heading: str,
        text: str,
        fields: Sequence[str] = (),
        default_text: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(list(flags), envvar=list(variables), help=text, **options)
        self.heading = heading
        self.fields = tuple(fields)
        self.default_text = _default_text(self.fields) if default_text is None else default_text

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that set it, the first one winning."""
        return tuple(cast("list[str]", self.envvar))

    @property
    def placeholder(self) -> str:
        """What stands for the value in the help; empty for a plain flag."""
        return "" if self.is_flag else f"<{self.metavar or self.type.name}>"

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Name flags and variables, where a value is refused."""
        del ctx
        return f"{', '.join(self.opts)} ({', '.join(self.variables)})" if self.variables else ", ".join(self.opts)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the two columns of the help."""
        del ctx
        flags = f"{', '.join(self.opts)} {self.placeholder}".strip()
        notes = [f"env: {', '.join(self.variables)}"] if self.variables else []
        notes += ["required"] if self.required else []
        notes += [f"default: {self.default_text}"] if self.default_text else []
        return flags, f"{self.help} [{'; '.join(notes)}]"


class Heading:
    """A part of the help, and the maker of the settings listed under it.

    Attributes:
        title: the heading's text.
    """

    def __init__(self, title: str) -> None:
        self.title = title

    def setting(
        self, flags: Sequence[str], variables: Sequence[str], text: str, *fields: str, **options: Any
    ) -> Setting:
        """Declare a setting with several flags or variables."""
        return Setting(flags, variables, heading=self.title, text=text, fields=fields, **options)

    def dynamo(self, flag: str, variable: str, kind: Kind, text: str, *fields: str, **options: Any) -> Setting:
        """Declare a setting under Dynamo's own names."""
        return self.setting((flag,), (variable,), text, *fields, type=kind, **options)

    def own(self, flag: str, field: str, kind: Kind, text: str, **options: Any) -> Setting:
        """Declare a setting that Dynamo has no name for: its variable is the flag's name after `DYN_SIDECAR_`."""
        return self.setting((flag,), (_own_variable(flag),), text, field, type=kind, **options)

    def switch(self, flag: str, field: str, text: str) -> Setting:
        """Declare one of our own that takes no value."""
        return self.setting((flag,), (_own_variable(flag),), text, field, type=click.BOOL, is_flag=True)

    def refused(self, flag: str, variable: str, reason: str, *, switch: bool = False) -> Setting:
        """Declare a setting that Dynamo knows and this release does not have."""
        text = "Not supported in this release."
        options: dict[str, Any] = {"type": click.BOOL, "is_flag": True} if switch else {"type": TEXT}
        return self.setting((flag,), (variable,), text, callback=refused(reason), **options)


def _own_variable(flag: str) -> str:
    return _OWN_PREFIX + flag.removeprefix("--").replace("-", "_").upper()


def refused(reason: str) -> Callable[[click.Context, click.Parameter, object], None]:
    """Make the callback of a setting that Dynamo knows and this release does not: any use but `false` is an error."""

    def refuse(ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value:
            problem = f"not supported in this release: {reason}."
            raise click.BadParameter(problem, ctx, param)

    return refuse


def default_of(path: str) -> Any:
    """Return the default of a configuration field named `section.field`, or None where the field is required."""
    section, _, name = path.partition(".")
    default = {field.name: field.default for field in dataclasses.fields(SECTIONS[section])}[name]
    return None if default is dataclasses.MISSING else default


def _default_text(fields: Sequence[str]) -> str:
    return shown(default_of(fields[0])) if fields else ""


def shown(value: object) -> str:
    """Write a default the way it is given on the command line."""
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(str(entry) for entry in cast("tuple[object, ...]", value))
        case float():
            return f"{value:g}" if value.is_integer() else f"{value:.3g}"
        case int() if value >= _MEBIBYTE and value % _MEBIBYTE == 0:
            return f"{value // _MEBIBYTE}MiB"
        case _:
            return "" if value is None else str(value)
