from __future__ import annotations

import ast
from pathlib import Path

import pytest

ACTORS = Path(__file__).resolve().parents[2] / "actors"
SOURCES = sorted(ACTORS.rglob("*.py"))
BLOCKING = {"get", "proxy", "stop_all", "result"}


def calls(source: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call)]


def asks(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "ask"
        for inner in ast.walk(node)
    )


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ACTORS)))
def test_f58_nobody_blocks_on_an_answer(source: Path) -> None:
    for call in calls(source):
        if isinstance(call.func, ast.Attribute) and call.func.attr in BLOCKING:
            assert not asks(call.func.value), f"{source}:{call.lineno}"
