"""The wall clock of one process, wrong on demand: libfaketime, preloaded. Its monotonic clock stays right."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_HOUR: Final = 3600.0
_ASK: Final = "import time, pathlib; p = pathlib.Path({!r}); p.touch(); print(time.time() - p.stat().st_mtime)"


class WallClock:
    """What programs started with its `environment` believe the time of day to be.

    Files keep the time of their file system, also those that such a program touches: so it is where a store is shared
    by hosts whose clocks disagree.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._setting = directory / "setting"
        self._probe = directory / "probe"
        self.shift(0.0)

    @property
    def environment(self) -> dict[str, str]:
        """For the programs; empty where libfaketime is not installed."""
        library = _library()
        if library is None:
            return {}
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._setting),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def shift(self, seconds: float) -> None:
        """Jumps to so many seconds away from the truth."""
        fresh = self._setting.with_suffix(".new")
        fresh.write_text(f"{seconds:+.0f}\n")
        fresh.replace(self._setting)

    def obeys(self) -> bool:
        """Whether a program really believes it; not where the library is missing or made for another machine."""
        self.shift(_HOUR)
        try:
            argv = (sys.executable, "-c", _ASK.format(str(self._probe)))
            asked = subprocess.run(argv, env=self.environment, capture_output=True, check=True)
        finally:
            self.shift(0.0)
        return abs(float(asked.stdout) - _HOUR) < _HOUR / 2


def _library() -> Path | None:
    found = find_spec("libfaketime")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).with_name("vendor") / "libfaketime" / "src" / "libfaketime.so.1"
