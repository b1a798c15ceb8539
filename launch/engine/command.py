"""`openengine-sidecar engine`: the reference engine's command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from openengine_sidecar.launch.engine.options import ROLES, SCHEMA_RELEASE, SHIPPED_MODEL, EngineOptions

PREFIX = "REFERENCE_ENGINE"
DEFAULTS = EngineOptions()
POSITIVE = click.IntRange(min=1)
KV_ENCODINGS = ("decimal_int64", "int64", "bytes", "sha256", "hex", "utf8")
SECONDS = click.FloatRange(min=0, min_open=True)


def _list_scripts(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's call
    if not wanted:
        return
    from openengine_sidecar.launch.engine.faults import FAULTS  # noqa: PLC0415 - help answers without gRPC
    from openengine_sidecar.launch.engine.features import FEATURES  # noqa: PLC0415

    formatter = ctx.make_formatter()
    with formatter.section("Faults (--fault NAME[:ARG][,KEY=VALUE][@FIRST_N])"):
        formatter.write_dl([(name, FAULTS[name].help) for name in sorted(FAULTS)])
    with formatter.section("Features (--without NAME)"):
        formatter.write_text(", ".join(feature.name for feature in FEATURES))
    click.echo(formatter.getvalue())
    ctx.exit()


@click.command("engine", short_help="Run the reference engine, a simulator.", context_settings={"show_default": True})
@click.option("--host", default=DEFAULTS.host, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on; 0 picks one.")
@click.option(
    "--model-path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=SHIPPED_MODEL,
    show_default="the shipped toy model",
    help="Model directory; its vocabulary must be byte level.",
)
@click.option("--served-model-name", metavar="NAME", help="Name clients use.  [default: the directory's]")
@click.option("--alias", "aliases", multiple=True, metavar="NAME", help="Further name of the model; repeatable.")
@click.option("--token-delay-ms", type=click.FloatRange(min=0), default=0.0, help="Pace of every output.")
@click.option("--tokens-per-event", type=POSITIVE, default=1, help="Tokens generated before an event is sent.")
@click.option("--seed", type=int, default=0, help="Makes sampling without a seed repeatable.")
@click.option("--max-context-length", type=POSITIVE, metavar="TOKENS", help="[default: the model's]")
@click.option("--max-output-tokens", type=POSITIVE, metavar="TOKENS", help="[default: not limited, not advertised]")
@click.option("--max-num-sequences", type=POSITIVE, default=DEFAULTS.max_num_sequences, help="Outputs of a request.")
@click.option("--max-top-n", type=POSITIVE, default=DEFAULTS.max_top_n, help="Logprob candidates of a token.")
@click.option("--kv-block-size", type=POSITIVE, default=DEFAULTS.kv_block_size, metavar="TOKENS")
@click.option("--total-kv-blocks", type=POSITIVE, default=DEFAULTS.total_kv_blocks, metavar="BLOCKS")
@click.option("--max-running-requests", type=POSITIVE, default=DEFAULTS.max_running_requests, help="The rest queue.")
@click.option("--max-loras", type=POSITIVE, default=DEFAULTS.max_loras, help="LoRA adapters held at once.")
@click.option("--role", type=click.Choice(ROLES), default=DEFAULTS.role, help="Part it plays.")
@click.option("--kv-port", type=click.IntRange(0, 65535), default=0, help="Where a prefill engine hands over; 0 picks.")
@click.option("--kv-session-ttl", type=SECONDS, default=DEFAULTS.kv_session_ttl, help="Of sessions nobody takes.")
@click.option("--kv-abort-cleanup/--no-kv-abort-cleanup", default=True, help="Whether aborts by KV session free it.")
@click.option("--data-parallel-size", type=POSITIVE, default=1)
@click.option("--data-parallel-start-rank", type=click.IntRange(min=0), default=0)
@click.option("--kv-events", multiple=True, type=click.Choice(["grpc", "zmq"]), help="Offer KV events; repeatable.")
@click.option(
    "--kv-event-encoding", type=click.Choice(KV_ENCODINGS), default=DEFAULTS.kv_event_encoding, help="Of block hashes."
)
@click.option("--kv-snapshots/--no-kv-snapshots", default=True, help="Offer what a cache holds to new subscribers.")
@click.option("--kv-history", type=click.IntRange(min=0), default=DEFAULTS.kv_history, help="Batches kept for replay.")
@click.option("--minimal", is_flag=True, help="Advertise and honour nothing optional.")
@click.option("--without", multiple=True, metavar="FEATURE", help="Deny one feature; repeatable.")
@click.option("--reasoning-parser", default="", metavar="NAME", help="Advertised as it is.")
@click.option("--tool-call-parser", default="", metavar="NAME", help="Advertised as it is.")
@click.option("--schema-release", default=SCHEMA_RELEASE, metavar="TEXT", help="Advertised as it is.")
@click.option("--schema-revision", type=click.IntRange(min=0), default=2, help="Advertised as it is.")
@click.option("--minimum-client-revision", type=click.IntRange(min=0), default=1, help="Advertised as it is.")
@click.option("--start-delay", type=click.FloatRange(min=0), default=0.0, metavar="SECS", help="STARTING for so long.")
@click.option("--health", default="ready", metavar="SCRIPT", help="Answers to Health, such as starting*3,hang,ready.")
@click.option("--fault", "faults", multiple=True, metavar="NAME[:ARG]", help="Misbehave; repeatable.")
@click.option("--answer", "answers", multiple=True, metavar="METHOD=JSON", help="Change an answer; repeatable.")
@click.option("--prompt-faults", is_flag=True, help="Take faults from prompts too, written <<fault NAME>>.")
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_scripts, help="List faults and features."
)
@click.option("--ping-strikes-after", type=click.FloatRange(min=0), metavar="SECS", help="Strike closer pings.")
@click.option("--keep-requests", type=click.IntRange(min=0), default=DEFAULTS.keep_requests, help="Requests shown.")
@click.option("--stats", metavar="PORT|FILE", help="Counters as JSON over loopback HTTP (0 picks a port) or in a file.")
@click.pass_context
def engine(
    ctx: click.Context,
    /,
    *,
    token_delay_ms: float,
    stats: str | None,
    without: tuple[str, ...],
    kv_events: tuple[str, ...],
    **values: Any,
) -> None:
    """Run the reference engine: a deterministic OpenEngine server that echoes its prompts.

    It is an engine simulator: no model, no GPU. It prints `listening on HOST:PORT` once it serves.
    """
    options = EngineOptions(
        token_delay=token_delay_ms / 1000, without=frozenset(without), kv_events=frozenset(kv_events), **values
    )
    from openengine_sidecar.launch.engine.process import run  # noqa: PLC0415 - help answers without gRPC

    ctx.exit(run(options, stats))


for _option in engine.params:
    if isinstance(_option, click.Option) and _option.expose_value:
        _option.envvar = PREFIX + _option.opts[0].removeprefix("-").replace("-", "_").upper()
        _option.show_envvar = True
