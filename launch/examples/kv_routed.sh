#!/usr/bin/env bash
usage() {
    cat <<'HELP'
usage: kv_routed.sh [--port PORT] [--serve] [--help]

Requests go where their prefix is cached: starts NATS, two engines that tell of their caches, a worker beside each, and
the stock Dynamo frontend in KV mode; holds some conversations at once, prints where each turn went with the part
of its prompt that was cached there, and checks the hit rate. Then stops everything, or with --serve serves
http://127.0.0.1:PORT/v1 (8000) until Ctrl-C.

Run it inside the environment that ./launch/demo.sh makes:  PATH="$PWD/.venv/bin:$PATH" ./launch/examples/kv_routed.sh
Workers forward KV events wherever the engine offers them; serve --help has the options that begin with --kv.
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

# On few cores the frontend's router may freeze with the default number of threads.
export DYN_RUNTIME_NUM_WORKER_THREADS=8

start_planes
for number in 1 2; do
    engine_port="$(free_port)"
    start "engine-$number" openengine-sidecar engine --port "$engine_port" --model-path "$model" \
        --served-model-name reference --kv-events grpc --token-delay-ms 5
    start "worker-$number" openengine-sidecar serve --grpc-endpoint "127.0.0.1:$engine_port" --model-path "$model"
done
start frontend python -m dynamo.frontend --http-host 127.0.0.1 --http-port "$http_port" --router-mode kv

both_registered() { [ "$(find "$run/store/v1/mdc" -type f -name '*generate*' | wc -l)" -eq 2 ]; }
await "both workers" both_registered
await "the model" lists "$http_port" reference
answers() {
    post "http://127.0.0.1:$http_port/v1/chat/completions" <<'JSON'
{"model": "reference", "max_tokens": 1, "messages": [{"role": "user", "content": "ready?"}]}
JSON
}
await "an answer" answers

python "$examples/conversations.py" "http://127.0.0.1:$http_port/v1" reference

if [ -n "$serve" ]; then
    echo "serving http://127.0.0.1:$http_port/v1 until Ctrl-C"
    wait -n # whichever ends first, ends all
fi
