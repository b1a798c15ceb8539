#!/usr/bin/env bash
usage() {
    cat <<'HELP'
usage: multimodal.sh [--port PORT] [--help]

Asks about an image and a video: starts NATS, the reference engine, this worker and the stock Dynamo frontend, sends one
chat request whose parts are text, image, text, video, and checks that the engine received both, in that order. Then
stops everything. Exits 0 when it did.

Run it inside the environment that ./launch/demo.sh makes:  PATH="$PWD/.venv/bin:$PATH" ./launch/examples/multimodal.sh
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

start_planes
start_aggregated "$http_port"

image="data:image/png;base64,$(printf 'eight by eight pixels of blue' | base64)"
video="https://media.example/clip.mp4"
post "http://127.0.0.1:$http_port/v1/chat/completions" <<JSON
{"model": "reference", "max_tokens": 200, "messages": [{"role": "user", "content": [
  {"type": "text", "text": "what is this"}, {"type": "image_url", "image_url": {"url": "$image"}},
  {"type": "text", "text": "and this"}, {"type": "video_url", "video_url": {"url": "$video"}}]}]}
JSON
echo

get "$stats/requests" | python -c '
import json, sys
image, video = sys.argv[1:]
media = json.load(sys.stdin)[-1]["request"]["media"]
wanted = [{"modality": "MODALITY_IMAGE", "data_uri": image}, {"modality": "MODALITY_VIDEO", "url": video}]
sys.exit(0 if media == wanted else f"the engine received {media}, not {wanted}")
' "$image" "$video"
echo "the engine received the image, then the video"
