from __future__ import annotations

from pathlib import Path

import pytest

from openengine_sidecar.launch.options import values
from openengine_sidecar.messages.engine.discovery import Role


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:50051", "127.0.0.1:50051"),
        ("engine.svc.cluster.local:1", "engine.svc.cluster.local:1"),
        ("http://engine:50051", "engine:50051"),
        ("http://engine:50051/", "engine:50051"),
        ("grpc://engine:65535", "engine:65535"),
        ("[::1]:50051", "[::1]:50051"),
        ("http://[fe80::1]:50051", "[fe80::1]:50051"),
    ],
)
def test_an_engine_address_is_host_and_port(text: str, address: str) -> None:
    assert values.engine_address(text) == address


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("https://engine:50051", "scheme 'https' is not supported"),
        ("grpcs://engine:50051", "scheme 'grpcs' is not supported"),
        ("unix:///run/engine.sock", "scheme 'unix' is not supported"),
        ("http://user:secret@engine:1", "credentials do not belong here"),
        ("http://engine:1/v1", "path, query and fragment"),
        ("http://engine:1?x=1", "path, query and fragment"),
        ("http://engine:1#x", "path, query and fragment"),
        ("engine", "the port is missing"),
        ("engine:", "the port is missing"),
        ("engine:0", "the port is missing"),
        (":50051", "the host is missing"),
        ("a b:50051", "the host is missing or unusable"),
        ("a:1,b:2", "not an address"),
        ("engine:65536", "not an address"),
        ("engine:port", "not an address"),
        ("[::1:50051", "not an address"),
    ],
)
def test_an_address_that_cannot_be_dialled_in_plaintext_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        values.engine_address(text)


def test_the_credentials_of_a_refused_address_are_not_repeated() -> None:
    with pytest.raises(ValueError, match="credentials") as caught:
        values.engine_address("http://user:secret@engine:1")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "-inf", "1e999", "soon", ""])
def test_a_duration_is_finite_and_above_zero(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of seconds above 0"):
        values.seconds(text)


def test_a_duration_may_be_a_fraction_and_zero_only_where_it_makes_sense() -> None:
    assert values.seconds("0.25") == 0.25
    assert values.seconds("0", zero=True) == 0.0
    with pytest.raises(ValueError, match="from 0"):
        values.seconds("-0.1", zero=True)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64MiB", 64 * 1024**2), ("64 mib", 64 * 1024**2), ("2KiB", 2048), ("1GiB", 1024**3), ("7B", 7)],
)
def test_a_size_may_have_a_unit(text: str, size: int) -> None:
    assert values.byte_size(text) == size


@pytest.mark.parametrize("text", ["0", "0MiB", "-1", "64MB", "1.5GiB", "", "MiB"])
def test_a_size_is_at_least_one_byte(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        values.byte_size(text)


@pytest.mark.parametrize(("text", "port"), [("-1", None), ("0", 0), ("8081", 8081), ("65535", 65535)])
def test_port_minus_one_is_off_and_zero_is_any(text: str, port: int | None) -> None:
    assert values.port(text) == port


@pytest.mark.parametrize("text", ["-2", "65536", "http", "8081.0", "1" * 30])
def test_a_port_is_in_range(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        values.port(text)


@pytest.mark.parametrize("text", ["0", "-3", "11", "2.0", "two"])
def test_a_count_is_from_one_to_its_highest(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        values.count(text, highest=10)
    assert values.count("10", highest=10) == 10


def test_nats_servers_get_a_scheme() -> None:
    assert values.nats_servers("one:4222, nats://two:4222,tls://three") == (
        "nats://one:4222",
        "nats://two:4222",
        "tls://three",
    )


@pytest.mark.parametrize("text", ["http://user:secret@one:4222", "nats://", "nats://user:secret@one:99999"])
def test_a_bad_nats_server_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="not a NATS URL") as caught:
        values.nats_servers(text)
    assert "secret" not in str(caught.value)


def test_words_are_distinct_and_in_order() -> None:
    assert values.words("b, a,,b") == ("b", "a")
    with pytest.raises(ValueError, match="the list is empty"):
        values.words(" , ")


def test_a_word_outside_the_supported_ones_is_named() -> None:
    with pytest.raises(ValueError, match="'embeddings' is not supported in this release; supported: chat, completions"):
        values.words("chat,embeddings", among=("chat", "completions"))


def test_what_dynamo_knows_and_we_do_not_is_told_apart_from_nonsense() -> None:
    read = values.one_of("file", later=("etcd",))
    assert read("FILE") == "file"
    with pytest.raises(ValueError, match="'etcd' is not supported in this release; supported: file"):
        read("etcd")
    with pytest.raises(ValueError, match="'disk' is not known; supported: file"):
        read("disk")


def test_every_role_but_the_encoders_is_served() -> None:
    assert [values.served_role(text) for text in ("agg", "prefill", "Decode")] == list(Role)
    with pytest.raises(ValueError, match="'encode' is not supported in this release; supported: agg, prefill, decode"):
        values.served_role("encode")


@pytest.mark.parametrize("text", ["", "a b", "a/b", "a.*", "a>", ".a", "a.", "ä", "a\nb"])
def test_a_name_cannot_break_a_subject_or_a_key(text: str) -> None:
    with pytest.raises(ValueError, match="may hold only"):
        values.name(text)


@pytest.mark.parametrize("text", ["dynamo", "default-vllm-agg", "a.b", "_x", "A1"])
def test_a_name_is_kept_as_it_is(text: str) -> None:
    assert values.name(text) == text


@pytest.mark.parametrize("text", ["health", "", "/", "/a b", "/{x}"])
def test_a_path_of_the_system_server_is_absolute_and_plain(text: str) -> None:
    with pytest.raises(ValueError, match="is not a path such as"):
        values.http_path(text)


def test_a_model_is_a_directory_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert values.model_directory("model") == tmp_path / "model"
    with pytest.raises(ValueError, match="'org/model' is not a directory; models are read from disk"):
        values.model_directory("org/model")


def test_a_store_may_not_exist_yet_but_cannot_be_a_file(tmp_path: Path) -> None:
    assert values.store_directory(str(tmp_path / "later")) == tmp_path / "later"
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is not a directory"):
        values.store_directory(str(tmp_path / "file"))


def test_a_template_is_a_file_that_opens(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").touch()
    assert values.readable_file(str(tmp_path / "chat.jinja")) == tmp_path / "chat.jinja"
    with pytest.raises(ValueError, match="cannot be read: No such file or directory"):
        values.readable_file(str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        values.readable_file(str(tmp_path))


@pytest.mark.parametrize(("text", "form"), [("json", "json"), ("Text", "text"), ("true", "json"), ("0", "text")])
def test_dynamos_truth_value_chooses_the_log_format(text: str, form: str) -> None:
    assert values.log_format(text) == form


@pytest.mark.parametrize(("text", "truth"), [("true", True), ("1", True), ("Off", False), ("no", False)])
def test_a_truth_has_the_usual_words(text: str, truth: bool) -> None:  # noqa: FBT001 - the value under test
    assert values.truth(text) is truth
    with pytest.raises(ValueError, match="neither true nor false"):
        values.truth("perhaps")
