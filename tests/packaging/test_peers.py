from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.packaging.test_wheel import ROOT

PEERS = ROOT / "docs" / "peers.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
HEAD_AND_RULE = 2


def rows() -> list[list[str]]:
    tables = re.findall(r"(?:^\|.*\|\n)+", PEERS.read_text(), re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()[HEAD_AND_RULE:]]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@cache
def names_in(file: str) -> frozenset[str]:
    module = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PEERS.read_text()))))
def test_a_named_test_exists(file: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in names_in(file)


def test_every_feature_is_said_of_both() -> None:
    assert rows()
    assert [row for row in rows() if len(row) != 3 or not all(row)] == []


def test_every_cell_of_ours_says_what_shows_it() -> None:
    assert [ours for _, ours, _ in rows() if not (NAMED.search(ours) or ours.endswith("`run`"))] == []


def test_whatever_looks_like_a_test_is_one() -> None:
    text = PEERS.read_text()
    assert text.count("::") == len(NAMED.findall(text))
