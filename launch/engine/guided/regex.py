r"""Regular expressions: literals, escapes, classes, groups, alternation, repeats; matched against the whole text.

Look-around, back references, word boundaries, flags and anchors inside the pattern are refused. `\d`, `\w` and `\s`
are ASCII.
"""

from __future__ import annotations

from openengine_sidecar.launch.engine.guided.nodes import Chars, Choice, Literal, Node, Pattern, Repeat, Sequence
from openengine_sidecar.launch.engine.guided.scanner import (
    Scanner,
    negated,
    read_class,
    read_escape,
    read_quantifier,
)

ANY = Chars(negated(((0x0A, 0x0A),)))


def compile_regex(text: str) -> Pattern:
    """Read a regular expression.

    Raises:
        ConstraintError: it is malformed, or uses what is not supported.
    """
    scanner = Scanner(text)
    scanner.skip("^")
    root = _choice(scanner)
    if scanner.next:
        scanner.refuse("unbalanced )")
    return Pattern(root)


def _choice(scanner: Scanner) -> Node:
    options = [_sequence(scanner)]
    while scanner.skip("|"):
        options.append(_sequence(scanner))
    return options[0] if len(options) == 1 else Choice(tuple(options))


def _sequence(scanner: Scanner) -> Node:
    parts: list[Node] = []
    while scanner.next and scanner.next not in "|)":
        if scanner.next == "$" and scanner.place == len(scanner.text) - 1:
            scanner.take("$")
            break
        part = read_quantifier(scanner, _atom(scanner))
        if isinstance(part, Repeat):
            scanner.skip("?")  # lazy or greedy: the same texts match
        parts.append(part)
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _atom(scanner: Scanner) -> Node:
    char = scanner.take()
    if char == "(":
        return _group(scanner)
    if char == "[":
        return read_class(scanner)
    if char == ".":
        return ANY
    if char == "\\":
        found = read_escape(scanner)
        return Literal(found) if isinstance(found, str) else Chars(found)
    if char in "^$*+?{":
        scanner.refuse(f"{char} is not supported here")
    return Literal(char)


def _group(scanner: Scanner) -> Node:
    if scanner.skip("?P<") or scanner.skip("?<"):
        if scanner.next in {"=", "!"}:
            scanner.refuse("look-behind is not supported")
        while scanner.take() != ">":
            pass
    elif scanner.next == "?" and not scanner.skip("?:"):
        scanner.refuse("look-around and flags are not supported")
    inner = _choice(scanner)
    scanner.take(")")
    return inner
