from __future__ import annotations

import pytest

from openengine_sidecar.actors.config import EngineConfig
from openengine_sidecar.messages.errors import ConfigurationError
from openengine_sidecar.proto.channels import channel_options, open_channel, parse_endpoint
from openengine_sidecar.proto.rev2_dialect import Method, Revision2
from tests.proto.engine import Config, answering, connected, engine_info, serving

REV2 = Revision2()
PEERS_MINIMUM_PING_INTERVAL_MS = 300_000


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("localhost:50051", "localhost:50051"),
        ("engine.ns.svc.cluster.local:1", "engine.ns.svc.cluster.local:1"),
        ("trt_llm-0:8001", "trt_llm-0:8001"),
        ("127.0.0.1:65535", "127.0.0.1:65535"),
        ("[::1]:50051", "[::1]:50051"),
        ("http://localhost:50051", "localhost:50051"),
        ("http://localhost:50051/", "localhost:50051"),
        ("GRPC://[::1]:50051", "[::1]:50051"),
    ],
)
def test_endpoints(text: str, endpoint: str) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("https://h:1", "scheme https:// is not supported"),
        ("grpcs://h:1", "scheme grpcs:// is not supported"),
        ("unix:///tmp/s", "scheme unix:// is not supported"),
        ("dns:///h:1", "scheme dns:// is not supported"),
        ("unix:/tmp/s", "a path"),
        ("http://user:secret@h:1", "credentials"),
        ("user@h:1", "credentials"),
        ("http://h:1/path", "a path"),
        ("http://h:1//", "a path"),
        ("h:1/", "a path"),
        ("http://h:1?x=1", "a query"),
        ("http://h:1#f", "a fragment"),
        ("", "not host:port"),
        ("h", "not host:port"),
        ("http://h", "not host:port"),
        ("h:", "not host:port"),
        ("h:x", "not host:port"),
        ("h:٣", "not host:port"),
        ("h:-1", "not host:port"),
        ("h:1\n", "not host:port"),
        ("::1:50051", "not host:port"),
        ("h:0", "port 0 is not between"),
        ("h:65536", "port 65536 is not between"),
        (":1", "not a host"),
        ("a b:1", "not a host"),
        ("-h:1", "not a host"),
        ("a..b:1", "not a host"),
        ("h\n:1", "not a host"),
        ("[::g]:1", "not a host"),
        ("[127.0.0.1]:1", "not a host"),
        ("a" * 254 + ":1", "not a host"),
    ],
)
def test_endpoints_that_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as refusal:
        parse_endpoint(text, option="--option")
    assert refusal.value.option == "--option"


def test_credentials_of_a_refused_endpoint_are_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_endpoint("http://user:secret@h:1")
    assert "secret" not in str(refusal.value)


def test_f50_pings_stay_below_what_a_default_peer_tolerates() -> None:
    options = dict(channel_options(EngineConfig(endpoint="h:1")))
    assert options["grpc.keepalive_time_ms"] > PEERS_MINIMUM_PING_INTERVAL_MS
    assert options["grpc.keepalive_permit_without_calls"] == 0


def test_options_follow_the_configuration_and_repeat_no_name() -> None:
    config = EngineConfig(endpoint="h:1", max_receive_bytes=11, max_send_bytes=12, connect_attempt_timeout=1.5)
    options = channel_options(config)
    named = dict(options)
    assert len(named) == len(options)
    assert named["grpc.max_receive_message_length"] == 11
    assert named["grpc.max_send_message_length"] == 12
    assert named["grpc.min_reconnect_backoff_ms"] == 1500
    assert named["grpc.max_reconnect_backoff_ms"] <= 5_000
    assert named["grpc.enable_retries"] == 0


async def test_channels_are_connections_of_their_own() -> None:
    async with serving({Method.GET_ENGINE_INFO: answering(engine_info())}) as engine:
        channels = [open_channel(Config(engine.endpoint)) for _ in range(3)]
        for channel in channels:
            assert await REV2.speaks(channel, timeout=5)
        for channel in channels:
            await channel.close(None)
        assert len({call.peer for call in engine.calls}) == len(channels)


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with connected({Method.GET_ENGINE_INFO: answering(engine_info())}) as (_, channel):
        assert await REV2.speaks(channel, timeout=5)
