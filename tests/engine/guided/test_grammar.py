from __future__ import annotations

import re

import pytest

from openengine_sidecar.launch.engine.guided.draw import Draw
from openengine_sidecar.launch.engine.guided.errors import ConstraintError
from openengine_sidecar.launch.engine.guided.grammar import compile_grammar

ARITHMETIC = """
# sums of products
root   ::= sum
sum    ::= sum "+" product | product
product::= number ("*" number)*   # left to right
number ::= [1-9] [0-9]{0,2} | "(" sum ")"
"""
GREETING = """greeting ::= "hi " name '!' | "bye"
name ::= [A-Z]
   [a-z]+"""


def write(grammar: str, said: str = "", seed: str = "s") -> str:
    return compile_grammar(grammar).write(Draw(seed, said, varied=False))


@pytest.mark.parametrize("seed", [str(number) for number in range(30)])
def test_sums_are_sums(seed: str) -> None:
    text = write(ARITHMETIC, seed=seed)
    assert re.fullmatch(r"[0-9+*()]+", text)
    while (reduced := re.sub(r"\((\d+)\)|(\d+)[+*](\d+)", "1", text)) != text:
        text = reduced
    assert re.fullmatch(r"\d+", text)


@pytest.mark.parametrize("seed", [str(number) for number in range(10)])
def test_the_first_rule_is_the_root_and_lines_may_break(seed: str) -> None:
    assert re.fullmatch("hi [A-Z][a-z]+!|bye", write(GREETING, "there", seed))


def test_an_option_that_was_said_is_taken() -> None:
    grammar = 'root ::= "red" | "green" | "blue"'
    assert write(grammar, "i like green best") == "green"


def test_escapes_in_texts() -> None:
    assert write(r'root ::= "a\n\t\"\\\x41\u00e9" .? ').startswith('a\n\t"\\Aé')


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        ("", "no rules"),
        ("# nothing", "no rules"),
        ("root", "::= expected"),
        ('root ::= "a', "more expected"),
        ("root ::= other", "no rule other"),
        ("root ::= root", "never ends"),
        ('root ::= "a" | two\ntwo ::= "b" two', "never ends"),
        ('root ::= ("a"', "expected"),
        ("root ::= [", "more expected"),
        (r'root ::= "\d"', "class cannot stand"),
        ("root ::= ?", "name expected"),
    ],
)
def test_what_is_wrong_is_said(grammar: str, problem: str) -> None:
    with pytest.raises(ConstraintError, match=problem):
        compile_grammar(grammar)
