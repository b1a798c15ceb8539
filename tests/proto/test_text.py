from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openengine_sidecar.proto.text import peer_text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain text, ünïcode 漢字", "plain text, ünïcode 漢字"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31mred\x00\x7f", r"\x1b[31mred\x00\x7f"),
        ("a\u202eb\u2028c", r"a\u202eb\u2028c"),
        ("\ud800", r"\ud800"),
        ("", ""),
    ],
)
def test_what_does_not_print_is_escaped(text: str, safe: str) -> None:
    assert peer_text(text) == safe


@pytest.mark.parametrize(("length", "kept"), [(9, 9), (10, 10), (11, 10), (10_000, 10)])
def test_length_is_bounded(length: int, kept: int) -> None:
    text = peer_text("x" * length, limit=10)
    assert len(text) == kept
    assert text.endswith("…") == (length > kept)


def test_escapes_count_towards_the_bound() -> None:
    assert peer_text("\n" * 8, limit=10) == r"\n\n\n\n\…"


@settings(max_examples=100)
@given(st.text(max_size=40))
def test_any_text_becomes_one_bounded_printable_line(text: str) -> None:
    safe = peer_text(text, limit=20)
    assert safe.isprintable()
    assert len(safe) <= 20
