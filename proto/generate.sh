#!/bin/sh
# Regenerates the stubs of every schema, beside the schema or below the directory given as the first argument.
# Uses grpcio-tools of $PYTHON, by default of the repository's .venv.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root/src" # schemas import each other by the path of the Python package
output=${1:-.}
exec "${PYTHON:-$root/.venv/bin/python}" -m grpc_tools.protoc --proto_path=. \
    --python_out="$output" --pyi_out="$output" openengine_sidecar/proto/*/*.proto
