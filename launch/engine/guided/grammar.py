"""Grammars: `name ::= ...` rules of quoted texts, classes, references, groups, alternation and repeats.

The root is the rule `root`, or the first one. `#` begins a comment, `.` is any character but a line break.
"""

from __future__ import annotations

import re

from openengine_sidecar.launch.engine.guided.errors import refuse
from openengine_sidecar.launch.engine.guided.nodes import (
    TALL,
    Choice,
    Literal,
    Node,
    Pattern,
    Reference,
    Sequence,
)
from openengine_sidecar.launch.engine.guided.regex import ANY
from openengine_sidecar.launch.engine.guided.scanner import (
    Scanner,
    read_class,
    read_escape,
    read_quantifier,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_RULE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\s*::=")


def compile_grammar(text: str) -> Pattern:
    """Read a grammar.

    Raises:
        ConstraintError: it is malformed, refers to no rule, or a rule never ends.
    """
    reader = _Reader(text)
    rules = reader.rules()
    pattern = Pattern(Reference("root" if "root" in rules else next(iter(rules))), rules)
    endless = [name for name, height in pattern.heights.items() if height >= TALL]
    if endless:
        refuse(f"rule {endless[0]} never ends")
    return pattern


class _Reader:
    def __init__(self, text: str) -> None:
        self._scanner = Scanner(text)
        self._wanted: set[str] = set()

    def rules(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        self._blank()
        while self._scanner.next:
            name = self._name()
            self._blank()
            if not self._scanner.skip("::="):
                self._scanner.refuse("::= expected")
            found[name] = self._choice()
            self._blank()
        if missing := self._wanted - found.keys():
            self._scanner.refuse(f"no rule {min(missing)}")
        if not found:
            self._scanner.refuse("no rules")
        return found

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._scanner.skip("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        self._blank()
        while self._scanner.next and self._scanner.next not in "|)" and not self._at_rule():
            parts.append(read_quantifier(self._scanner, self._atom()))
            self._blank()
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self) -> Node:
        scanner = self._scanner
        if scanner.skip("("):
            inner = self._choice()
            scanner.take(")")
            return inner
        if scanner.skip("["):
            return read_class(scanner)
        if scanner.skip("."):
            return ANY
        if scanner.next in {'"', "'"}:
            return self._quoted(scanner.take())
        name = self._name()
        self._wanted.add(name)
        return Reference(name)

    def _quoted(self, quote: str) -> Node:
        text = ""
        while not self._scanner.skip(quote):
            found = read_escape(self._scanner) if self._scanner.skip("\\") else self._scanner.take()
            if not isinstance(found, str):
                self._scanner.refuse("a class cannot stand in a text")
            text += found
        return Literal(text)

    def _name(self) -> str:
        found = _NAME.match(self._scanner.text, self._scanner.place)
        if found is None:
            self._scanner.refuse("a rule's name expected")
        self._scanner.place = found.end()
        return found[0]

    def _at_rule(self) -> bool:
        return _RULE.match(self._scanner.text, self._scanner.place) is not None

    def _blank(self) -> None:
        scanner = self._scanner
        while scanner.next and (scanner.next.isspace() or scanner.next == "#"):
            if scanner.take() == "#":
                while scanner.next not in {"", "\n"}:
                    scanner.take()
