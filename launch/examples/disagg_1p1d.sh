#!/usr/bin/env bash
usage() {
    cat <<'HELP'
usage: disagg_1p1d.sh [--port PORT] [--serve] [--help]

Prefill here, decode there: starts NATS, a prefill and a decode engine, a worker beside each, and the stock Dynamo
frontend, which pairs the two; asks once, and checks with both engines that the decode engine went on from the prefill
engine's KV and that nothing is left. Then stops everything, or with --serve serves http://127.0.0.1:PORT/v1 (8000)
until Ctrl-C.

Run it inside the environment that ./launch/demo.sh makes:  PATH="$PWD/.venv/bin:$PATH" ./launch/examples/disagg_1p1d.sh
The workers learn their roles from their engines; for an engine that does not say, give --disaggregation-mode.
HELP
}

http_port=8000 serve=
while [ $# -gt 0 ]; do
    case "$1" in
    --port) http_port="${2:?--port needs a number}" && shift 2 ;;
    --serve) serve=yes && shift ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
. "$(dirname -- "$0")/common.sh"

prefill_port="$(free_port)" prefill_stats="$(free_port)"
decode_port="$(free_port)" decode_stats="$(free_port)"
one_engine=(openengine-sidecar engine --model-path "$model" --served-model-name reference)

start_planes
start prefill-engine "${one_engine[@]}" --role prefill --port "$prefill_port" --stats "$prefill_stats"
start decode-engine "${one_engine[@]}" --role decode --port "$decode_port" --stats "$decode_stats"
start prefill-worker openengine-sidecar serve --grpc-endpoint "127.0.0.1:$prefill_port" --model-path "$model"
start decode-worker openengine-sidecar serve --grpc-endpoint "127.0.0.1:$decode_port" --model-path "$model"
start frontend python -m dynamo.frontend --http-host 127.0.0.1 --http-port "$http_port"
await "the model" lists "$http_port" reference

ask() {
    post "http://127.0.0.1:$http_port/v1/chat/completions" >"$run/answer.json" <<'JSON'
{"model": "reference", "max_tokens": 64, "messages": [{"role": "user", "content": "Who computed this prompt?"}]}
JSON
}
await "an answer" ask # the frontend lists a pair some milliseconds before it can use it
cat "$run/answer.json" && echo

counts() { # counts STATS_PORT "NAME=NUMBER..."
    get "http://127.0.0.1:$1/stats" | python -c '
import json, sys
sessions = json.load(sys.stdin)["sessions"]
sys.exit(any(sessions[name] != int(number) for name, number in (entry.split("=") for entry in sys.argv[1].split())))
' "$2"
}
await "the prefill engine to be rid of its session" counts "$prefill_stats" "created=1 taken=1 live=0"
await "the decode engine to have taken it" counts "$decode_stats" "pulled=1 failed=0"
echo "the decode engine went on from the prefill engine's session, and none is left"

if [ -n "$serve" ]; then
    echo "serving http://127.0.0.1:$http_port/v1 until Ctrl-C"
    wait -n # whichever ends first, ends all
fi
