#!/usr/bin/env bash
# Installs the big frameworks into .frameworks: PyTorch on CPU, JAX, MPI and numpy, for the tests marked "frameworks".
#
# PyTorch's wheel links CUDA libraries of 2.4 GB that a program on CPUs never calls. They are left out; cuda_stubs.py
# writes empty ones that satisfy the loader. Nothing is done when pins, stubs and Python are those of the last time.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
target=.frameworks
stamp=$target/.installed
wanted=$("$python" -VV; cksum requirements/frameworks.txt tools/cuda_stubs.py tools/frameworks.sh)

if [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then
    echo "frameworks: up to date in $target"
    exit 0
fi

needs_stubs() { [[ $(uname) == Linux ]]; }

if needs_stubs && ! { command -v gcc && command -v readelf; } >/dev/null; then
    echo "frameworks: gcc and readelf are needed to stand in for CUDA's libraries (Debian: apt-get install gcc libc6-dev)" >&2
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends gcc libc6-dev binutils
fi

rm -rf "$target"
"$python" -m venv --without-pip "$target"
# Without dependencies: the pins hold all that is wanted, less the CUDA wheels.
"$python" -m pip --python "$target/bin/python" --disable-pip-version-check install --quiet --progress-bar off \
    --no-deps --require-hashes -r requirements/frameworks.txt
site=$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if needs_stubs; then
    "$python" tools/cuda_stubs.py "$site/torch/lib"
fi
"$target/bin/python" -c 'import jax, mpi4py, numpy, torch; print("frameworks: torch", torch.__version__, "jax", jax.__version__)'
printf '%s\n' "$wanted" >"$stamp"
