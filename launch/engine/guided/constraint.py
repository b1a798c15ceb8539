"""One guided-decoding constraint of a request, compiled."""

from __future__ import annotations

from typing import Protocol

from openengine_sidecar.launch.engine.guided.draw import Draw
from openengine_sidecar.launch.engine.guided.errors import refuse
from openengine_sidecar.launch.engine.guided.grammar import compile_grammar
from openengine_sidecar.launch.engine.guided.regex import compile_regex
from openengine_sidecar.launch.engine.guided.schema import SchemaPattern
from openengine_sidecar.proto.rev2 import generation_pb2

BACKENDS = frozenset({"", "auto", "reference"})
ANY_OBJECT = '{"type":"object"}'


class Constraint(Protocol):
    """Something that only some texts satisfy."""

    def write(self, draw: Draw) -> str:
        """Write a text that satisfies it.

        Raises:
            ConstraintError: none does.
        """
        ...


class Alternatives:
    """One of a few texts: the first that the prompt mentions, else a drawn one.

    Raises:
        ConstraintError: there are none.
    """

    def __init__(self, choices: tuple[str, ...]) -> None:
        if not choices:
            refuse("choice without choices")
        self._choices = choices

    def write(self, draw: Draw) -> str:
        """Choose."""
        mentioned = [choice for choice in self._choices if choice and choice in draw.said]
        return mentioned[0] if mentioned and not draw.strays() else draw.one_of(self._choices)


def compile_constraint(guided: generation_pb2.GuidedDecoding) -> Constraint | None:
    """Compile a request's constraint; None where it has none.

    Raises:
        ConstraintError: it is malformed, nested too deeply, or uses what this engine does not know.
    """
    try:
        return _compile(guided)
    except RecursionError:
        refuse("the constraint is nested too deeply")


def _compile(guided: generation_pb2.GuidedDecoding) -> Constraint | None:
    if guided.backend not in BACKENDS:
        refuse(f"guided decoding backend {guided.backend!r} is not there")
    match guided.WhichOneof("guide"):
        case "json_schema":
            return SchemaPattern(guided.json_schema)
        case "json_object":
            return SchemaPattern(ANY_OBJECT)
        case "regex":
            return compile_regex(guided.regex)
        case "ebnf_grammar":
            return compile_grammar(guided.ebnf_grammar)
        case "choice":
            return Alternatives(tuple(guided.choice.choices))
        case _:
            return None
