"""Start-up time and idle memory of `serve`, printed: `python -m tests.bench.bench_startup [--runs N]`.

Time runs from exec to the moment both discovery records are there, with an engine that is ready; memory is what the
idle worker holds afterwards. Nothing is asserted: numbers of one machine are no test.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from tests.support.site import Engine, Lab, Site

MEBIBYTE = 1024 * 1024
SETTLE_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="workers started one after another (default 5)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as directory:
        site = Site(Path(directory))
        lab = Lab(site, Path(directory))
        with site.stack, lab.stack:
            site.start_nats()
            engine = lab.engine()
            report([measure(lab, engine, number) for number in range(runs)])


def measure(lab: Lab, engine: Engine, number: int) -> tuple[float, float, float]:
    """Start one worker; return seconds to its registration, CPU seconds of that, and MiB it holds when idle."""
    begun = time.monotonic()
    worker = lab.worker(engine, name=f"worker-{number}")
    worker.process.until(lambda: bool(lab.cards() and lab.instances()), what="registration", timeout=60)
    registered = time.monotonic() - begun
    process = psutil.Process(worker.pid)
    spent = process.cpu_times()
    time.sleep(SETTLE_SECONDS)
    resident = process.memory_info().rss / MEBIBYTE
    worker.terminate()
    worker.process.wait(60)
    return registered, spent.user + spent.system, resident


def report(measured: list[tuple[float, float, float]]) -> None:
    rows = (("exec to registered", "s"), ("CPU time of that", "s"), ("idle memory", "MiB RSS"))
    for (label, unit), values in zip(rows, zip(*measured, strict=True), strict=True):
        print(
            f"{label:20} median {statistics.median(values):7.2f}  best {min(values):7.2f}"
            f"  worst {max(values):7.2f}  {unit}  ({len(values)} runs)"
        )


if __name__ == "__main__":
    main()
