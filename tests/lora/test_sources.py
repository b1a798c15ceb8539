from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openengine_sidecar.actors.lora.sources import (
    MAX_ADDRESS,
    HubPlace,
    LocalPlace,
    Place,
    S3Place,
    is_transient,
    parse_address,
    require,
)
from openengine_sidecar.messages.errors import LoraRefusedError


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("/adapters/one", LocalPlace("/adapters/one")),
        ("//adapters//one/", LocalPlace("/adapters/one")),
        ("/adapters/a%20b", LocalPlace("/adapters/a%20b")),
        ("file:///adapters/one", LocalPlace("/adapters/one")),
        ("FILE:///adapters/one/", LocalPlace("/adapters/one")),
        ("file://localhost/adapters/one", LocalPlace("/adapters/one")),
        ("file:///adapters/a%20b", LocalPlace("/adapters/a b")),
        ("s3://bucket/one", S3Place("bucket", "one")),
        ("s3://my.bucket-1/some/adapters/one/", S3Place("my.bucket-1", "some/adapters/one")),
        ("s3://bucket/what ever?#%20", S3Place("bucket", "what ever?#%20")),
        ("hf://owner/name", HubPlace("owner/name")),
        ("hf://name", HubPlace("name")),
        ("hf://owner/na_me.v1@refs/pr/1", HubPlace("owner/na_me.v1", "refs/pr/1")),
        ("hf://owner/name@0123abcd", HubPlace("owner/name", "0123abcd")),
    ],
)
def test_addresses_as_people_write_them(address: str, place: Place) -> None:
    assert parse_address(address) == place


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("", "1 to 2048 printable"),
        ("/" + "x" * MAX_ADDRESS, "1 to 2048 printable"),
        ("/adapters/\n", "printable"),
        ("/adapters/\x00", "printable"),
        ("/adapters/\u202eeno", "printable"),
        ("adapters/one", "not absolute"),
        ("./one", "not absolute"),
        ("~/one", "not absolute"),
        ("/adapters/../etc", r"must not contain \. or \.\."),
        ("/..", "must not contain"),
        ("/adapters/./one", "must not contain"),
        ("file://adapters/one", "three slashes"),
        ("file://host/adapters/one", "three slashes"),
        ("file://", "three slashes"),
        ("file:///adapters/../etc", "must not contain"),
        ("file:///adapters/%2e%2e/etc", "must not contain"),
        ("file:///adapters/one%00", "printable"),
        ("file:///adapters/one?x=1", "a path alone"),
        ("file:///adapters/one#x", "a path alone"),
        ("s3://", "name of a bucket"),
        ("s3:///one", "name of a bucket"),
        ("s3://bu cket/one", "name of a bucket"),
        ("s3://../one", "name of a bucket"),
        ("s3://bucket", "prefix of one adapter"),
        ("s3://bucket/", "prefix of one adapter"),
        ("s3://bucket/a/../b", "prefix of one adapter"),
        ("s3://bucket/a//b", "prefix of one adapter"),
        ("hf://", "hf://owner/name"),
        ("hf://owner/", "hf://owner/name"),
        ("hf://owner/name/inner", "hf://owner/name"),
        ("hf://../name", "hf://owner/name"),
        ("hf://owner/na..me", "hf://owner/name"),
        ("hf://owner/name@", "hf://owner/name"),
        ("hf://owner/name@../x", "hf://owner/name"),
        ("hf://owner/name?x=1", "hf://owner/name"),
        ("http://host/one", "only file://, s3:// and hf://"),
        ("://", "only file://"),
    ],
)
def test_c49_addresses_that_attack_or_confuse_are_refused(address: str, problem: str) -> None:
    with pytest.raises(LoraRefusedError, match=problem) as refusal:
        parse_address(address)
    assert str(refusal.value).isprintable()


@settings(deadline=None)
@given(st.text(max_size=30) | st.from_regex(r"(file|s3|hf|)(://)?[a-z./%2e@-]{0,20}", fullmatch=True))
def test_an_accepted_address_never_steps_out(address: str) -> None:
    try:
        place = parse_address(address)
    except LoraRefusedError:
        return
    match place:
        case LocalPlace(path):
            assert path.startswith("/")
            assert not {".", ".."}.intersection(path.split("/"))
        case S3Place(_, prefix):
            assert not {"", ".", ".."}.intersection(prefix.split("/"))
        case HubPlace(repo, revision):
            assert ".." not in repo + revision


def test_a_missing_extra_says_what_to_install() -> None:
    with pytest.raises(LoraRefusedError, match=r"pip install 'openengine-sidecar\[s3\]'"):
        require("no_such_library.inner", "s3", "s3://bucket/one")


def test_a_library_that_is_itself_incomplete_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "incomplete_library.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        require("incomplete_library", "s3", "s3://bucket/one")


@pytest.mark.parametrize(
    ("status", "passes"), [(400, False), (403, False), (404, False), (408, True), (429, True), (500, True), (503, True)]
)
def test_which_statuses_pass(*, status: int, passes: bool) -> None:
    assert is_transient(status) is passes
