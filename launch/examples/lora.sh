#!/usr/bin/env bash
usage() {
    cat <<'HELP'
usage: lora.sh [--port PORT] [--help]

Serves a LoRA adapter beside its base model: starts NATS, the reference engine, this worker and the stock Dynamo
frontend, loads an adapter while they run, lists it, chats with the adapter and with the base model, unloads it, and
checks each step. Then stops everything. Exits 0 when all of it went well.

Run it inside the environment that ./launch/demo.sh makes:  PATH="$PWD/.venv/bin:$PATH" ./launch/examples/lora.sh
For an adapter of your own, name its directory (file://), bucket (s3://) or repository (hf://) in the load; the engine
must see the worker's cache, DYN_LORA_PATH, under the same path.
HELP
}

http_port=8000
while [ $# -gt 0 ]; do
    case "$1" in
    --port) http_port="${2:?--port needs a number}" && shift 2 ;;
    -h | --help) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
. "$(dirname -- "$0")/common.sh"

system_port="$(free_port)"
export DYN_LORA_ENABLED=true DYN_LORA_PATH="$run/adapters" DYN_SYSTEM_PORT="$system_port"
frontend="http://127.0.0.1:$http_port/v1" loras="http://127.0.0.1:$system_port/v1/loras"
name="acme/support"

start_planes
start_aggregated "$http_port"

mkdir "$run/support"
echo '{"peft_type": "LORA", "r": 8}' >"$run/support/adapter_config.json"
echo 'weights' >"$run/support/adapter_model.safetensors"

chat() { # chat MODEL: what it answers
    post "$frontend/chat/completions" <<JSON
{"model": "$1", "max_tokens": 100, "messages": [{"role": "user", "content": "good morning"}]}
JSON
}
fail() { echo "lora.sh: $1" >&2 && exit 1; }

echo "load:"
post "$loras" <<JSON
{"lora_name": "$name", "source": {"uri": "file://$run/support"}}
JSON
echo && echo "list:"
get "$loras" && echo
await "the adapter" lists "$http_port" "$name"

chat "$name" | tee "$run/adapter.json" && echo
grep -F "[adapter $name]" "$run/adapter.json" >/dev/null || fail "the adapter did not answer"
chat reference | tee "$run/base.json" && echo
! grep -F "[adapter" "$run/base.json" >/dev/null || fail "an adapter answered for the base model"

echo "unload:"
delete "$loras/$name" && echo
gone() { ! lists "$http_port" "$name"; }
await "the adapter to be gone" gone
! chat "$name" 2>/dev/null || fail "the adapter still answers"
chat reference >/dev/null
echo "the adapter is gone, the base model is not"
