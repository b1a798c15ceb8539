"""`python -m tests.chaos --minutes 30 --seed N`: the long run."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import click

from tests.chaos import report
from tests.chaos.run import Plan, run
from tests.chaos.schedule import crashes, schedule


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0.1), default=30.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--streams", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--crashes", "counts", type=(int, int), help="So many actor crashes and engine deaths, back to back.")
@click.option("--most-backoff", "backoff", type=float, default=10.0, help="Longest pause before an actor's next life.")
@click.option("--directory", type=click.Path(path_type=Path, file_okay=False), help="Where logs and report go.")
def main(
    *,
    minutes: float,
    seed: int,
    streams: int,
    workers: int,
    counts: tuple[int, int] | None,
    backoff: float,
    directory: Path | None,
) -> None:
    """Breaks everything for a while and says whether anybody got hurt; exit code 1 when somebody did."""
    home = directory or Path(tempfile.mkdtemp(prefix="chaos-"))
    home.mkdir(parents=True, exist_ok=True)
    duration = minutes * 60
    faults = crashes(seed, *counts, targets=workers) if counts else schedule(seed, duration, targets=workers)
    plan = Plan(seed, faults, streams=streams, stations=workers, duration=duration, most_backoff=backoff)
    result = asyncio.run(run(plan, home, click.echo))
    page = home / "timeline.html"
    page.write_text(report.page(result))
    click.echo(f"\n{report.table(result)}\n\ntimeline: {page}")
    sys.exit(1 if result.problems else 0)


if __name__ == "__main__":
    main()
