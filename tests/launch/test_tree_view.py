from __future__ import annotations

from typing import Any

import msgspec
import pytest

from openengine_sidecar.launch.tree_view import COLUMNS, duration, lines, plain
from openengine_sidecar.supervision import ActorState, ActorStatus

QUIET = ActorStatus(
    path="/sidecar",
    kind="Supervisor",
    state=ActorState.RUNNING,
    incarnation=1,
    mailbox=0,
    high_water=0,
    restarts=0,
    last_failure="",
    age=1.0,
    traced=False,
)


def actor(path: str, **changes: Any) -> ActorStatus:
    return msgspec.structs.replace(QUIET, path=path, **changes)


def labels(*rows: ActorStatus, most_siblings: int = 20) -> list[str]:
    return [line.cells[0] for line in lines(rows, most_siblings=most_siblings)]


def test_children_hang_below_their_parents() -> None:
    rows = [actor(path) for path in ("/s", "/s/reporter", "/s/serving", "/s/serving/engine", "/s/serving/gate")]
    assert labels(*rows) == [
        "/s",
        "├── reporter",
        "└── serving",
        "    ├── engine",
        "    └── gate",
    ]


def test_a_branch_that_goes_on_is_drawn_beside_its_children() -> None:
    rows = [actor(path) for path in ("/s", "/s/a", "/s/a/x", "/s/b")]
    assert labels(*rows) == ["/s", "├── a", "│   └── x", "└── b"]


def test_of_many_siblings_the_rest_is_counted() -> None:
    rows = [actor("/gate"), *(actor(f"/gate/{number}") for number in range(2000))]
    assert labels(*rows, most_siblings=2) == ["/gate", "├── 0", "├── 1", "└── and 1998 more"]


def test_an_actor_whose_parent_is_missing_is_shown_all_the_same() -> None:
    assert labels(actor("/s/x"), actor("/s/x/y")) == ["/s/x", "└── y"]


def test_no_actors_are_an_empty_table() -> None:
    assert plain(lines([])).split() == " ".join(COLUMNS).split()


def test_every_column_is_filled() -> None:
    row = actor(
        "/s",
        state=ActorState.BACKOFF,
        incarnation=3,
        mailbox=4,
        high_water=5,
        restarts=2,
        last_failure="failed: ValueError: no\nway",
        age=125.0,
        traced=True,
    )
    (line,) = lines([row])
    assert line.cells == (
        "/s (traced)",
        "backoff",
        "#3",
        "4",
        "5",
        "2",
        "2m05s",
        "failed: ValueError: no\\nway",
    )


@pytest.mark.parametrize(
    ("changes", "style"),
    [
        ({}, "good"),
        ({"restarts": 1}, "warn"),
        ({"state": ActorState.STARTING}, "warn"),
        ({"state": ActorState.BACKOFF}, "bad"),
        ({"state": ActorState.GONE}, "bad"),
        ({"last_failure": "long ago"}, "good"),
    ],
)
def test_the_style_says_how_it_fares(changes: dict[str, Any], style: str) -> None:
    assert lines([actor("/s", **changes)])[0].style == style


def test_plain_text_keeps_its_columns_and_no_trailing_blanks() -> None:
    text = plain(lines([actor("/s"), actor("/s/longer-name", state=ActorState.DRAINING, last_failure="x")]))
    head, first, second = text.splitlines()
    assert head.index("state") == first.index("running") == second.index("draining")
    assert not [line for line in text.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (59.94, "59.9s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (86399, "23h59m"),
        (190000, "2d04h"),
    ],
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
