"""Where the tree is drawn: with rich where it is installed, else as plain text; on a terminal in place."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

from openengine_sidecar.launch import tree_view
from openengine_sidecar.launch.log_format import escaped
from openengine_sidecar.launch.tree_view import Line

if TYPE_CHECKING:
    from rich.table import Table

Show = Callable[[Sequence[Line], str], None]
CLEAR = "\x1b[H\x1b[2J"
_STYLES = {"good": "green", "warn": "yellow", "bad": "bold red", "dim": "dim"}


@contextmanager
def screen(stream: TextIO, *, live: bool) -> Generator[Show, None, None]:
    """Open a screen on the stream, and yield what shows a picture and a note below it.

    On a terminal live pictures replace each other; elsewhere they follow one another, as plain text.
    """
    if not stream.isatty():
        yield _plain(stream)
    elif find_spec("rich") is None:
        yield _plain(stream, before=CLEAR if live else "")
    else:
        with _rich(stream, live=live) as show:
            yield show


def _plain(stream: TextIO, *, before: str = "") -> Show:
    def show(drawn: Sequence[Line], note: str) -> None:
        below = f"{escaped(note)}\n" if note else ""
        stream.write(f"{before}{tree_view.plain(drawn)}\n{below}")
        stream.flush()

    return show


@contextmanager
def _rich(stream: TextIO, *, live: bool) -> Generator[Show, None, None]:
    from rich.console import Console  # noqa: PLC0415 - an extra, and slow to import
    from rich.live import Live  # noqa: PLC0415 - same

    console = Console(file=stream, highlight=False)
    if not live:
        yield lambda drawn, note: console.print(_table(drawn, note))
        return
    with Live(console=console, auto_refresh=False) as picture:
        yield lambda drawn, note: picture.update(_table(drawn, note), refresh=True)


def _table(drawn: Sequence[Line], note: str) -> Table:
    from rich.table import Table  # noqa: PLC0415 - an extra, and slow to import
    from rich.text import Text  # noqa: PLC0415 - same

    table = Table(*tree_view.COLUMNS, box=None, header_style="bold", caption=escaped(note), caption_justify="left")
    for line in drawn:
        table.add_row(*(Text(cell) for cell in line.cells), style=_STYLES[line.style])
    return table
