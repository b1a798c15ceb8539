from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openengine_sidecar.launch.engine.guided.draw import Draw
from openengine_sidecar.launch.engine.guided.errors import ConstraintError
from openengine_sidecar.launch.engine.guided.regex import compile_regex

SAID = "my name is Bob, 42 years"
ATOMS = ["a", "é", r"\d", r"\W", "[a-f]", "[^x]", ".", r"\.", "(?:ab|c)", "(x)", "(?:y|)", r"[\w-]", r"\x41", r"\n"]
QUANTIFIERS = ["", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"]


def write(pattern: str, said: str = SAID, seed: str = "s", *, varied: bool = False) -> str:
    return compile_regex(pattern).write(Draw(seed, said, varied=varied))


@given(
    parts=st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from(QUANTIFIERS)), max_size=6),
    said=st.text(max_size=20),
    varied=st.booleans(),
)
def test_what_is_written_matches(*, parts: list[tuple[str, str]], said: str, varied: bool) -> None:
    pattern = "".join(atom + quantifier for atom, quantifier in parts)
    assert re.fullmatch(pattern, write(pattern, said, varied=varied), re.ASCII)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("[a-z ]+", "my name is ob  years"),
        (r"\d+", "42"),
        (r"^\d{1}$", "4"),
        ("name=[A-Z][a-z]{0,3}", None),
        ("(?:yes|no|42)", "42"),
        ("", ""),
        ("abc", "abc"),
        ("a|a", "a"),
        (r"\$\^\|", "$^|"),
        (r"[\]-]", None),
        ("(?P<year>2[0-9])", None),
    ],
)
def test_the_echo_fills_what_is_open(pattern: str, text: str | None) -> None:
    found = write(pattern)
    assert re.fullmatch(pattern, found)
    assert text is None or found == text


def test_seeds_choose() -> None:
    assert len({write("[a-z]{8}", "", seed) for seed in "abc"}) == 3
    assert write("[a-z]{8}", "", "a") == write("[a-z]{8}", "", "a")


def test_straying_departs_from_the_echo() -> None:
    text = "a long enough text to stray from"
    found = write("[a-z ]{10,}", text, varied=True)
    assert found != text
    assert re.fullmatch("[a-z ]{10,}", found)


@pytest.mark.parametrize(
    "pattern",
    [
        *["(", ")", "a)", "[a", "[]", "[z-a]", "a{2", "a{3,2}", "a{99999}", "*", "a**", "{2}", "a^b", "a$b", "\\"],
        *["(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?i)a", "(?P<n", r"\b", r"\1", r"\p{L}", r"\xzz", r"\UFFFFFFFF"],
    ],
)
def test_what_is_not_supported_is_refused(pattern: str) -> None:
    with pytest.raises(ConstraintError):
        compile_regex(pattern)
