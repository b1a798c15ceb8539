"""Which log records are kept: `info,actors.engine=debug,nats=off`, the syntax of `DYN_LOG`."""

from __future__ import annotations

from dataclasses import dataclass

PACKAGE = "openengine_sidecar."
LEVELS = {
    "trace": 5,
    "debug": 10,
    "info": 20,
    "warn": 30,
    "warning": 30,
    "error": 40,
    "critical": 50,
    "off": 100,
}
_DEFAULT = LEVELS["info"]


@dataclass(frozen=True, slots=True)
class LogFilter:
    """A level for everything, and levels for parts named by module, by logger or by actor path.

    A module of this package may be named without the package. The longest name that fits wins; an actor path
    (it begins with `/`) wins over a module.

    Attributes:
        level: the level where nothing else fits.
        targets: levels by module or logger name, longest name first.
        actors: levels by actor path, longest path first.
    """

    level: int = _DEFAULT
    targets: tuple[tuple[str, int], ...] = ()
    actors: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> LogFilter:
        """Read the directives, separated by commas.

        Raises:
            ValueError: a directive is not `level` or `name=level`.
        """
        level = _DEFAULT
        targets: dict[str, int] = {}
        actors: dict[str, int] = {}
        for directive in filter(None, (part.strip() for part in text.split(","))):
            name, separator, word = directive.rpartition("=")
            if not separator:
                level = _level(word)
            elif name.startswith("/"):
                actors[name.rstrip("/")] = _level(word)
            else:
                targets[_target(name)] = _level(word)
        return cls(level, _longest_first(targets), _longest_first(actors))

    @property
    def lowest(self) -> int:
        """The lowest level that any record can pass with."""
        return min(self.level, *(level for _, level in self.targets + self.actors), LEVELS["off"])

    def admits(self, target: str, actor: str, level: int) -> bool:
        """Tell whether a record of this origin and level is kept."""
        return level >= self._threshold(target, actor)

    def _threshold(self, target: str, actor: str) -> int:
        for path, level in self.actors:
            if actor == path or actor.startswith(f"{path}/"):
                return level
        name = target.removeprefix(PACKAGE)
        for prefix, level in self.targets:
            if name == prefix or name.startswith(f"{prefix}."):
                return level
        return self.level


EVERYTHING_FROM_INFO = LogFilter()


def _target(name: str) -> str:
    target = name.strip().replace("::", ".")
    if not target or any(character in "[]{}\"' " for character in target):
        message = f"{name!r} does not name a module, a logger or an actor"
        raise ValueError(message)
    return target.removeprefix(PACKAGE)


def _level(word: str) -> int:
    level = LEVELS.get(word.strip().lower())
    if level is None:
        message = f"{word!r} is not a level; levels: {', '.join(LEVELS)}"
        raise ValueError(message)
    return level


def _longest_first(levels: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(levels.items(), key=lambda item: (-len(item[0]), item[0])))
