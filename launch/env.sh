# shellcheck shell=bash
# Sourced by demo.sh and test.sh: makes the virtual environment they run in.
#
#   . launch/env.sh
#   prepare_environment demo|dev     # sets ROOT, VENV and PYTHON
#
# VENV chooses the directory (default: .venv in the checkout). A stamp in it remembers what was installed, so that
# a second run takes no time; remove the directory to start afresh. Needs Python 3.11 or later and the package index.

ROOT="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
VENV="${VENV:-$ROOT/.venv}"
case "$VENV" in /*) ;; *) VENV="$PWD/$VENV" ;; esac
PYTHON="$VENV/bin/python"
INSTALL_LOGS="$ROOT/.run/install"
FRONTEND_REQUIREMENTS="$ROOT/launch/requirements-frontend.txt"

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

# A usable Python: new enough and able to make virtual environments. A shim on the path may be neither.
find_python() {
    local candidate
    for candidate in python3.13 python3.12 python3.11 python3 python; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# step TITLE LOGNAME COMMAND...: runs a command with its output in a log; dots show that it lives.
step() {
    local title="$1" log="$INSTALL_LOGS/$2.log" started=$SECONDS ticker status=0
    shift 2
    printf '  %s ' "$title" >&2
    (while sleep 3 </dev/null >/dev/null 2>&1; do printf '.' >&2; done) &
    ticker=$!
    # shellcheck disable=SC2064
    trap "kill $ticker 2>/dev/null" EXIT
    "$@" >"$log" 2>&1 </dev/null || status=$?
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    trap - EXIT
    if [ "$status" -ne 0 ]; then
        say " failed"
        tail -n 12 "$log" | sed 's/^/    /' >&2
        die "$title failed with exit code $status; its whole output is in $log"
    fi
    say " $((SECONDS - started)) s"
}

# What the environment depends on, as one line: where the checkout is, its requirements, the Python in use.
fingerprint() {
    "$PYTHON" - "$ROOT" "$ROOT/pyproject.toml" "$FRONTEND_REQUIREMENTS" <<'PYTHON'
import hashlib
import pathlib
import sys

root, *files = sys.argv[1:]
parts = [root.encode(), sys.version.encode(), *(pathlib.Path(file).read_bytes() for file in files)]
print(hashlib.sha256(b"\0".join(parts)).hexdigest())
PYTHON
}

is_prepared() {
    local extra stamp
    [ -x "$PYTHON" ] || return 1
    stamp="$(fingerprint)" || return 1
    for extra in "$1" dev; do # dev holds all that demo does
        if [ "$(cat "$VENV/.installed-$extra" 2>/dev/null)" = "$stamp" ]; then return 0; fi
    done
    return 1
}

pip_install() { "$PYTHON" -m pip --disable-pip-version-check install "$@"; }

prepare_environment() {
    local extra="$1" python version
    if is_prepared "$extra"; then return; fi
    say "Preparing $VENV (once; logs in $INSTALL_LOGS)"
    mkdir -p "$INSTALL_LOGS" || die "cannot write to $INSTALL_LOGS"
    if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then # absent, or left half made
        python="$(find_python)" || die "no Python 3.11 or later that has venv and ensurepip is on the path" \
            "(tried python3.13, python3.12, python3.11, python3, python; on Debian: apt install python3-venv)"
        step "creating a virtual environment with $("$python" --version 2>&1)" venv "$python" -m venv "$VENV"
    fi
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "$VENV holds an older Python than 3.11: remove it, or name another directory in VENV"
    version="$(sed -n 's/^ai-dynamo-runtime==//p' "$FRONTEND_REQUIREMENTS")"
    step "upgrading pip" pip pip_install --upgrade pip
    step "installing openengine-sidecar[$extra] and what the frontend imports" packages \
        pip_install --editable "$ROOT[$extra]" --requirement "$FRONTEND_REQUIREMENTS"
    step "installing the stock Dynamo frontend $version" frontend pip_install --no-deps "ai-dynamo==$version"
    fingerprint >"$VENV/.installed-$extra"
}
