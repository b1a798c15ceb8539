#!/usr/bin/env bash
# One command from a fresh checkout to a streamed answer: NATS, the reference engine, this worker and the stock
# Dynamo frontend on this machine. Takes the options of `openengine-sidecar up`:
#
#   ./launch/demo.sh                   ask something, then serve http://127.0.0.1:8000/v1 until Ctrl-C
#   ./launch/demo.sh --once "hello"    ask that, print the answer, stop everything
#   ./launch/demo.sh --help            all options
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/env.sh"
prepare_environment demo
exec "$PYTHON" -m openengine_sidecar up "$@"
