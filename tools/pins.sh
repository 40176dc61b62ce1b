#!/usr/bin/env bash
# Writes requirements/*.txt: pins with hashes for Python 3.11 and newer, without any download address. Needs uv.
# Pins that exist are kept where they still fit; "tools/pins.sh --upgrade" takes the newest.
set -euo pipefail
cd "$(dirname "$0")/.."

pins() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links "$@"
}

pins "$@" --extra dev pyproject.toml --output-file requirements/dev.txt
pins "$@" --constraint requirements/dev.txt --extra demo pyproject.toml --output-file requirements/demo.txt

all=$(mktemp)
trap 'rm -f "$all"' EXIT
cp requirements/frameworks.txt "$all" 2>/dev/null || true
pins "$@" --constraint requirements/dev.txt requirements/frameworks.in --output-file "$all"
# A package is one line and its hashes below, indented.
awk '/^[^ ]/ {drop = /^(nvidia|cuda|triton)/} !drop' "$all" >requirements/frameworks.txt

if grep -nE '://|^-' requirements/*.txt; then
    echo "pins: an address or an option stands in the pins" >&2
    exit 1
fi
