from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openengine_sidecar.actors.lora.names import MAX_NAME, check_free, check_name, shown
from openengine_sidecar.messages.dynamo.naming import EndpointId, card_key, slugify
from openengine_sidecar.messages.errors import LoraRefusedError

ENDPOINT = EndpointId("dynamo", "backend", "generate")


@pytest.mark.parametrize(
    "name", ["a", "my/lora-A", "_My/lora-A", "org/name@main", "0", "a.b:c+d=e~f", "a/b/c/d", "x" * MAX_NAME]
)
def test_names_as_people_give_them_are_accepted(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "must not be empty"),
        ("x" * 300, "at most 200 characters, not 300"),
        ("x" * (MAX_NAME + 1), "at most 200"),
        ("../a", "each part"),
        ("a/../b", "each part"),
        ("a/..", "each part"),
        (".", "each part"),
        ("/etc/passwd", "each part"),
        ("a/", "each part"),
        ("a//b", "each part"),
        ("-rf", "each part"),
        (".hidden", "each part"),
        ("_", "letter or a digit"),
        ("__/_", "each part|letter or a digit"),
        ("a b", "not ' '"),
        ("a\n", r"not '\\n'"),
        ("a\x00", r"not '\\x00'"),
        ("a\x7f", r"not '\\x7f'"),
        ("a\\b", r"not '\\\\'"),
        ("a?b", r"not '\?'"),
        ("a#b", "not '#'"),
        ("a%2e%2e", "not '%'"),
        ("é", r"not '\\xe9'"),
        ("模型", r"not '\\u6a21'"),
        ("\u202egpj", r"not '\\u202e'"),
        ("\ud800", r"not '\\ud800'"),
    ],
)
def test_c49_names_that_attack_or_confuse_are_refused(name: str, problem: str) -> None:
    with pytest.raises(LoraRefusedError, match=problem) as refusal:
        check_name(name)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 2 * MAX_NAME


@settings(deadline=None)
@given(st.text(max_size=MAX_NAME + 20) | st.from_regex(r"[a-z_./-]{1,12}", fullmatch=True))
def test_an_accepted_name_is_harmless_wherever_it_goes(name: str) -> None:
    try:
        check_name(name)
    except LoraRefusedError:
        return
    assert re.fullmatch(r"[!-~]+", name)
    assert not {"", ".", ".."}.intersection(name.split("/"))
    assert card_key(ENDPOINT, 1, slugify(name)) != card_key(ENDPOINT, 1)


def test_names_of_the_base_model_are_taken() -> None:
    with pytest.raises(LoraRefusedError, match="base: is a name of the base model"):
        check_free("base", [], {"base", "alias"})


@pytest.mark.parametrize(("name", "other"), [("a.b", "a/b"), ("A", "a"), ("_a", "a"), ("my/lora-A", "my_lora-a")])
def test_f29_names_that_would_share_a_card_are_refused_with_both(name: str, other: str) -> None:
    with pytest.raises(LoraRefusedError) as refusal:
        check_free(name, ["else", other], ())
    assert name in str(refusal.value)
    assert other in refusal.value.problem


def test_the_same_name_again_is_free() -> None:
    check_free("a", ["a", "b"], {"base"})


def test_what_is_shown_of_a_name_is_short_and_prints() -> None:
    assert shown("") == "''"
    assert shown("a\nb") == r"a\nb"
    assert len(shown("x" * 1000)) == 80
