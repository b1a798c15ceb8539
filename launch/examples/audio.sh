#!/usr/bin/env bash
usage() {
    cat <<'HELP'
usage: audio.sh [--port PORT] [--help]

Asks about a recording: starts NATS with room for large messages, the reference engine, this worker and the stock Dynamo
frontend, sends one chat request with two seconds of sound as a data URI (more than NATS takes by default once encoded
with its frame), and checks that the engine received it byte for byte. Then stops everything. Exits 0 when it did.

Run it inside the environment that ./launch/demo.sh makes:  PATH="$PWD/.venv/bin:$PATH" ./launch/examples/audio.sh
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

printf 'max_payload: 16MB\n' >"$run/nats.conf"
start_planes --config "$run/nats.conf"
start_aggregated "$http_port"

python - "$run/request.json" "$run/sound.uri" <<'PYTHON'
import base64, io, json, math, sys, wave

sound = io.BytesIO()
with wave.open(sound, "wb") as file:
    file.setparams((2, 4, 96_000, 0, "NONE", ""))
    file.writeframes(b"".join(int(2e9 * math.sin(i / 69)).to_bytes(4, "little", signed=True) * 2 for i in range(192_000)))
uri = "data:audio/wav;base64," + base64.b64encode(sound.getvalue()).decode()
parts = [{"type": "text", "text": "who sings"}, {"type": "audio_url", "audio_url": {"url": uri}}]
body = {"model": "reference", "max_tokens": 200, "messages": [{"role": "user", "content": parts}]}
open(sys.argv[1], "w").write(json.dumps(body))
open(sys.argv[2], "w").write(uri)
print(f"{len(sound.getvalue())} bytes of sound")
PYTHON
post "http://127.0.0.1:$http_port/v1/chat/completions" <"$run/request.json"
echo

get "$stats/requests" | python -c '
import json, sys
[item] = json.load(sys.stdin)[-1]["request"]["media"]
sent = open(sys.argv[1]).read()
sys.exit(0 if item == {"modality": "MODALITY_AUDIO", "data_uri": sent} else "the engine received something else")
' "$run/sound.uri"
echo "the engine received every byte of it"
