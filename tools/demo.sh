#!/usr/bin/env bash
# The demo: train on handwritten digits with two workers on this machine, then look at what came out.
# Called by "make demo", which puts the product's environment first on the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

export ARENA_BACKEND=local # also where a cluster is configured
model=digits-model.npz

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() {
    say "\$ $*"
    "$@"
}

rm -f "$model"
say "Two workers train on the digits; MPI sums their gradients."
show arena submit mpi -b local --name digits --replace --workers 2 --wait "python examples/digits/train.py"
show arena logs digits
say "The model they wrote:"
ls -l "$model"
python - "$model" <<'PYTHON'
import sys
import numpy as np

model = np.load(sys.argv[1])
print(f"{model['weights'].shape[0]} x {model['weights'].shape[1]} weights from {model['world']} workers, "
      f"{float(model['accuracy']):.0%} of the held-out digits named rightly")
PYTHON
show arena list
show arena get digits
show arena history digits
