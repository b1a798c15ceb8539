# What the example stacks share; sourced by them. Processes log into files of $run and end, in reverse, with the script.

set -euo pipefail
set -m # each process in a group of its own: Ctrl-C reaches the script alone, which stops them in order

examples="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
model="$(cd -- "$examples/../model" && pwd -P)"
venv="$(cd -- "$examples/../.." && pwd -P)/.venv/bin"
if [ -d "$venv" ]; then PATH="$venv:$PATH"; fi
for needed in openengine-sidecar nats-server; do
    if ! command -v "$needed" >/dev/null; then
        echo "$needed is not on the PATH: run ./launch/demo.sh once, which installs everything" >&2
        exit 1
    fi
done
run="$(mktemp -d)"
pids=()

stop_all() {
    local status=$?
    trap - EXIT INT TERM
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        kill "${pids[$i]}" 2>/dev/null || true
        wait "${pids[$i]}" 2>/dev/null || true
    done
    [ "$status" -eq 0 ] || tail -n 5 "$run"/*.log >&2 || true
    rm -rf "$run"
    exit "$status"
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME COMMAND...: in the background, logging to NAME.log.
start() {
    local name="$1"
    shift
    "$@" >"$run/$name.log" 2>&1 </dev/null &
    pids+=($!)
    echo "started $name" >&2
}

free_port() {
    python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# await WHAT COMMAND...: until the command succeeds, or for a minute.
await() {
    local what="$1" tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        if [ $((tries += 1)) -gt 300 ]; then
            echo "gave up waiting for $what" >&2
            return 1
        fi
        for pid in "${pids[@]}"; do
            kill -0 "$pid" 2>/dev/null || { echo "waiting for $what: a process has ended" >&2 && return 1; }
        done
        sleep 0.2
    done
}

# get URL, post URL <BODY, delete URL: an HTTP request, its answer on standard output; an error status is a failure.
get() { python "$examples/request.py" "$1"; }
post() { python "$examples/request.py" "$1" -; }
delete() { python "$examples/request.py" "$1" "" DELETE; }

lists() { # lists HTTP_PORT MODEL
    get "http://127.0.0.1:$1/v1/models" | grep "\"$2\"" >/dev/null
}

# start_planes [NATS OPTION...]: a NATS server, and the variables that workers and frontends must agree on.
start_planes() {
    local port
    port="$(free_port)"
    export NATS_SERVER="nats://127.0.0.1:$port"
    export DYN_REQUEST_PLANE=nats DYN_EVENT_PLANE=nats DYN_DISCOVERY_BACKEND=file DYN_FILE_KV="$run/store"
    start nats nats-server --addr 127.0.0.1 --port "$port" "$@"
}

# start_aggregated HTTP_PORT [ENGINE OPTION...]: one engine and its worker behind a frontend; $stats shows the engine.
start_aggregated() {
    local http_port="$1" engine_port stats_port
    shift
    engine_port="$(free_port)" stats_port="$(free_port)"
    stats="http://127.0.0.1:$stats_port"
    start engine openengine-sidecar engine --port "$engine_port" --model-path "$model" --served-model-name reference \
        --stats "$stats_port" "$@"
    start worker openengine-sidecar serve --grpc-endpoint "127.0.0.1:$engine_port" --model-path "$model"
    start frontend python -m dynamo.frontend --http-host 127.0.0.1 --http-port "$http_port"
    await "the model" lists "$http_port" reference
}
