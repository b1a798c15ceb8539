from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openengine_sidecar.actors.lora.listing import Listing, ListingBuilder, RemoteFile
from openengine_sidecar.messages.errors import LoraRefusedError
from tests.lora.adapters import LIMITS


def file(path: str, size: int = 1, tag: str = "t") -> RemoteFile:
    return RemoteFile(path=path, size=size, key=path, tag=tag)


def listing(*paths: str) -> Listing:
    builder = ListingBuilder("s3://b/a", LIMITS)
    for path in paths:
        builder.add(file(path))
    return builder.build()


def test_a_listing_is_sorted_and_knows_its_size() -> None:
    found = listing("b", "a/b", "a/a")
    assert [it.path for it in found.files] == ["a/a", "a/b", "b"]
    assert found.size == 3


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../a",
        "a/../../b",
        "a/..",
        ".",
        "a//b",
        "a/",
        "a\\..\\b",
        "a\x00",
        "a\nb",
        "\u202ea",
        "a/b/c/d",
        "x" * 256,
        "é" * 128,
    ],
)
def test_paths_that_attack_are_refused(path: str) -> None:
    with pytest.raises(LoraRefusedError, match="s3://b/a: file") as refusal:
        listing("adapter_config.json", path)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b")])
def test_files_in_each_others_way_are_refused(paths: tuple[str, str]) -> None:
    with pytest.raises(LoraRefusedError, match="in the way"):
        listing(*paths)


def test_too_many_files_are_refused_at_the_first_that_is_too_many() -> None:
    builder = ListingBuilder("s3://b/a", LIMITS)
    for number in range(LIMITS.max_files):
        builder.add(file(f"f{number}"))
    with pytest.raises(LoraRefusedError, match="more than 8 files"):
        builder.add(file("one more"))


def test_too_many_bytes_are_refused() -> None:
    builder = ListingBuilder("s3://b/a", LIMITS)
    builder.add(file("a", LIMITS.max_bytes))
    with pytest.raises(LoraRefusedError, match="larger than 100000 bytes"):
        builder.add(file("b", 1))


def test_nothing_is_no_adapter() -> None:
    with pytest.raises(LoraRefusedError, match="there is nothing"):
        listing()


@settings(deadline=None)
@given(st.lists(st.text(max_size=6) | st.from_regex(r"[a./]{1,6}", fullmatch=True), max_size=4))
def test_what_was_listed_can_be_written_inside_a_directory(paths: list[str]) -> None:
    try:
        found = listing(*paths)
    except LoraRefusedError:
        return
    names = [PurePosixPath(it.path) for it in found.files]
    assert all(not name.is_absolute() and ".." not in name.parts for name in names)
    assert not {parent for name in names for parent in name.parents}.intersection(names)


def test_an_entry_is_named_after_its_address_and_its_contents() -> None:
    one = Listing((file("a"),))
    key = one.key("s3://b/adapters/My Adapter/")
    assert key.startswith("My-Adapter-")
    assert key == one.key("s3://b/adapters/My Adapter/")
    others = [
        one.key("s3://b/adapters/my adapter/"),
        one.key("s3://b/adapters_My Adapter/"),
        Listing((file("a", tag="u"),)).key("s3://b/adapters/My Adapter/"),
        Listing((file("a", size=2),)).key("s3://b/adapters/My Adapter/"),
    ]
    assert len({key, *others}) == 5


@pytest.mark.parametrize("address", ["s3://b/..", "hf://o/n@a/b", "s3://b/" + "x" * 500, "s3://b/é.*[a]"])
def test_an_entry_is_one_plain_directory_name(address: str) -> None:
    key = Listing((file("a"),)).key(address)
    assert len(key) < 80
    assert all(c.isalnum() or c == "-" for c in key)
