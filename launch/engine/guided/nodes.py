"""Patterns as trees, and how a text that satisfies one is written; regular expressions and grammars are both these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openengine_sidecar.launch.engine.guided.draw import Draw

LONGEST_REPEAT = 24
DEEPEST = 12
TALL = 1 << 30
FIRST_PRINTABLE, LAST_PRINTABLE = 0x20, 0x7E


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these inclusive ranges of code points."""

    ranges: tuple[tuple[int, int], ...]

    def has(self, char: str) -> bool:
        """Tell whether the character is one of them."""
        return any(low <= ord(char) <= high for low, high in self.ranges)

    def one(self, draw: Draw) -> str:
        """Choose a character, a printable ASCII one if there is any."""
        printable = [(max(low, FIRST_PRINTABLE), min(high, LAST_PRINTABLE)) for low, high in self.ranges]
        low, high = draw.one_of([pair for pair in printable if pair[0] <= pair[1]] or self.ranges)
        return chr(low + draw.below(high - low + 1))


@dataclass(frozen=True, slots=True)
class Sequence:
    """All parts, one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part `low` to `high` times; `high` None is without end."""

    part: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Reference:
    """A rule of the grammar."""

    name: str


Node = Literal | Chars | Sequence | Choice | Repeat | Reference


@dataclass(frozen=True, slots=True)
class Pattern:
    """A tree with the rules it refers to.

    Attributes:
        heights: for each rule, how deep its shallowest text nests rules; TALL where it never ends.
    """

    root: Node
    rules: Mapping[str, Node] = field(default_factory=dict[str, Node])
    heights: dict[str, int] = field(init=False, default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.heights.update(dict.fromkeys(self.rules, TALL))
        settled = False
        while not settled:
            found = {name: self.height(node) + 1 for name, node in self.rules.items()}
            found = {name: min(height, TALL) for name, height in found.items()}
            settled = found == self.heights
            self.heights.update(found)

    def height(self, node: Node) -> int:
        """Return how deep the shallowest text of a node nests rules."""
        match node:
            case Literal() | Chars():
                return 0
            case Reference(name):
                return self.heights[name]
            case Sequence(parts):
                return max(map(self.height, parts), default=0)
            case Choice(options):
                return min(map(self.height, options), default=0)
            case Repeat(part, low, _):
                return self.height(part) if low else 0

    def write(self, draw: Draw) -> str:
        """Write a text that satisfies the pattern: the echo where it fits, drawn characters where not."""
        return self._write(self.root, draw, 0)

    def _write(self, node: Node, draw: Draw, depth: int) -> str:
        match node:
            case Literal(text):
                return text
            case Chars():
                return node.one(draw)
            case Reference(name):
                return self._write(self.rules[name], draw, depth + 1)
            case Sequence(parts):
                return "".join([self._write(part, draw, depth) for part in parts])
            case Choice(options):
                return self._write(self._option(options, draw, depth), draw, depth)
            case Repeat():
                return self._repeat(node, draw, depth)

    def _option(self, options: tuple[Node, ...], draw: Draw, depth: int) -> Node:
        if depth >= DEEPEST:
            return min(options, key=self.height)
        echoed = [
            option for option in options if isinstance(option, Literal) and option.text.strip() in draw.said.split()
        ]
        return draw.one_of(echoed or [option for option in options if self.height(option) < TALL])

    def _repeat(self, node: Repeat, draw: Draw, depth: int) -> str:
        high = max(LONGEST_REPEAT, node.low) if node.high is None else node.high
        if isinstance(node.part, Chars):
            return _echo(node.part, node.low, high, draw)
        extra = 0 if depth >= DEEPEST or high == node.low else draw.below(min(high - node.low, 2) + 1)
        return "".join([self._write(node.part, draw, depth + 1) for _ in range(node.low + extra)])


def _echo(chars: Chars, low: int, high: int, draw: Draw) -> str:
    fitting = [char for char in draw.said if chars.has(char)][:high]
    kept = [chars.one(draw) if draw.strays() else char for char in fitting]
    kept += [chars.one(draw) for _ in range(max(low, min(1, high)) - len(kept))]
    return "".join(kept)
