"""Reading patterns character by character: what regular expressions and grammars have in common."""

from __future__ import annotations

from typing import NoReturn

from openengine_sidecar.launch.engine.guided.errors import refuse
from openengine_sidecar.launch.engine.guided.nodes import Chars, Node, Repeat

LAST_CODE_POINT = 0x10FFFF
MOST_REPEATS = 4096
SURROGATES = (0xD800, 0xDFFF)
DIGITS = ((0x30, 0x39),)
WORD = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE = ((0x09, 0x0D), (0x20, 0x20))
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
CODE_LENGTHS = {"x": 2, "u": 4, "U": 8}
QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class Scanner:
    """A text and a place in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    @property
    def next(self) -> str:
        """The character at hand, empty at the end."""
        return self.text[self.place : self.place + 1]

    def take(self, expected: str = "") -> str:
        """Read one character, `expected` if given.

        Raises:
            ConstraintError: it is another one, or the end.
        """
        char = self.next
        if not char or (expected and char != expected):
            self.refuse(f"{expected or 'more'} expected")
        self.place += 1
        return char

    def skip(self, text: str) -> bool:
        """Read `text` if it comes now, and tell whether it did."""
        found = self.text.startswith(text, self.place)
        self.place += len(text) if found else 0
        return found

    def refuse(self, problem: str) -> NoReturn:
        """Refuse the constraint for a problem at this place.

        Raises:
            ConstraintError: always.
        """
        refuse(f"{problem} at character {self.place} of {self.text[:80]!r}")

    def number(self) -> int | None:
        """Read a number if one comes now."""
        start = self.place
        while self.next.isdigit():
            self.place += 1
        return int(self.text[start : self.place]) if self.place > start else None


def negated(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return every code point that is in none of the ranges; surrogates are never characters."""
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in sorted([*ranges, SURROGATES]):
        if start < low:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, LAST_CODE_POINT)) if start <= LAST_CODE_POINT else tuple(found)


def read_escape(scanner: Scanner) -> str | tuple[tuple[int, int], ...]:
    r"""Read what follows a backslash: a character, or the ranges of a class such as `\d`.

    Raises:
        ConstraintError: the escape is not known.
    """
    char = scanner.take()
    if char.lower() in CLASSES:
        ranges = CLASSES[char.lower()]
        return ranges if char.islower() else negated(ranges)
    if char in CODE_LENGTHS:
        digits = "".join([scanner.take() for _ in range(CODE_LENGTHS[char])])
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            scanner.refuse(f"no character {digits!r}")
    if char in CONTROLS:
        return CONTROLS[char]
    if char.isalnum():
        scanner.refuse(f"escape \\{char} is not supported")
    return char


def read_class(scanner: Scanner) -> Chars:
    """Read a character class after its opening bracket.

    Raises:
        ConstraintError: it is malformed or empty.
    """
    inverse = scanner.skip("^")
    ranges: list[tuple[int, int]] = []
    while not scanner.skip("]"):
        ranges.extend(_class_item(scanner))
    if not ranges:
        scanner.refuse("empty character class")
    return Chars(negated(tuple(ranges)) if inverse else tuple(ranges))


def _class_item(scanner: Scanner) -> tuple[tuple[int, int], ...]:
    first = _class_char(scanner)
    if not isinstance(first, str):
        return first
    ahead = scanner.text[scanner.place + 1 : scanner.place + 2]
    if scanner.next != "-" or ahead in {"", "]"}:
        return ((ord(first), ord(first)),)
    scanner.take("-")
    last = _class_char(scanner)
    if not isinstance(last, str) or last < first:
        scanner.refuse("bad range in a character class")
    return ((ord(first), ord(last)),)


def _class_char(scanner: Scanner) -> str | tuple[tuple[int, int], ...]:
    return read_escape(scanner) if scanner.skip("\\") else scanner.take()


def read_quantifier(scanner: Scanner, part: Node) -> Node:
    """Read `*`, `+`, `?` or `{m,n}` after a part, if one comes now.

    Raises:
        ConstraintError: the bounds are malformed.
    """
    if scanner.next and scanner.next in QUANTIFIERS:
        low, high = QUANTIFIERS[scanner.take()]
        return Repeat(part, low, high)
    if scanner.next != "{":
        return part
    scanner.take("{")
    bound = scanner.number()
    high = scanner.number() if scanner.skip(",") else bound
    low = bound or 0
    scanner.take("}")
    if low > MOST_REPEATS or (high is not None and not low <= high <= MOST_REPEATS):
        scanner.refuse("bad repeat bounds")
    return Repeat(part, low, high)
