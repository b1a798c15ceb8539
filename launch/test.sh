#!/usr/bin/env bash
# Every check and every test, from a fresh checkout. Arguments go to pytest:
#
#   ./launch/test.sh                           everything
#   ./launch/test.sh tests/supervision -k drain    the checks, then these tests
#   OPENENGINE_TESTS=long ./launch/test.sh     with the tests that take their time
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/env.sh"
prepare_environment dev
cd "$ROOT"
export PATH="$VENV/bin:$PATH"

summary=""

# stage NAME COMMAND...: stops at the first that fails, saying how far it came.
stage() {
    local name="$1" started=$SECONDS status=0
    shift
    say "== $name"
    "$@" </dev/null || status=$?
    summary+="$(printf '%-22s %s (%s s)' "$name" "$([ "$status" -eq 0 ] && echo passed || echo FAILED)" $((SECONDS - started)))"$'\n'
    if [ "$status" -ne 0 ]; then
        say "== summary"$'\n'"$summary$name failed with exit code $status"
        exit "$status"
    fi
}

stage "ruff check" ruff check
stage "ruff format" ruff format --check
stage "mypy" mypy
stage "basedpyright" basedpyright
stage "import contracts" lint-imports
stage "pytest" python -m pytest "$@"
say "== summary"$'\n'"${summary}all passed"
