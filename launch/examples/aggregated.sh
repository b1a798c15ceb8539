#!/usr/bin/env bash
usage() {
    cat <<'HELP'
usage: aggregated.sh [--port PORT] [--help]

One aggregated worker in front of one engine, as plain commands to copy from: NATS, the reference engine, this
worker, the stock Dynamo frontend. Serves http://127.0.0.1:PORT/v1 (8000) until Ctrl-C, then stops all four.

Run it inside the environment that ./launch/demo.sh makes:  PATH="$PWD/.venv/bin:$PATH" ./launch/examples/aggregated.sh
To serve a real engine, leave out the reference engine and give the worker its --grpc-endpoint and --model-path.
HELP
}

set -euo pipefail
http_port=8000
while [ $# -gt 0 ]; do
    case "$1" in
    --port) http_port="${2:?--port needs a number}" && shift 2 ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done

model="$(cd -- "$(dirname -- "$0")/../model" && pwd -P)"
run="$(mktemp -d)"
nats_port="${NATS_PORT:-4222}"
engine_port="${ENGINE_PORT:-50051}"

# What the worker and the frontend must agree on.
export NATS_SERVER="nats://127.0.0.1:$nats_port"
export DYN_REQUEST_PLANE=nats DYN_EVENT_PLANE=nats
export DYN_DISCOVERY_BACKEND=file DYN_FILE_KV="$run/store"

pids=()
stop_all() {
    trap - EXIT INT TERM
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do # the last started first
        kill "${pids[$i]}" 2>/dev/null || true
        wait "${pids[$i]}" 2>/dev/null || true
    done
    rm -rf "$run"
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
set -m # each in a process group of its own: Ctrl-C reaches this script alone, which stops them in order

nats-server --addr 127.0.0.1 --port "$nats_port" &
pids+=($!)

openengine-sidecar engine --host 127.0.0.1 --port "$engine_port" --model-path "$model" --served-model-name reference &
pids+=($!)

openengine-sidecar serve --grpc-endpoint "127.0.0.1:$engine_port" --model-path "$model" &
pids+=($!)

python -m dynamo.frontend --http-host 127.0.0.1 --http-port "$http_port" &
pids+=($!)

wait -n # whichever ends first, ends all
