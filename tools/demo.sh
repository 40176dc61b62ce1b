#!/usr/bin/env bash
# The demo: train on handwritten digits with two workers on this machine, then look at what came out.
# Called by "make demo", which puts the product's environment first on the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

export ARENA_BACKEND=local # also where a cluster is configured
model=digits-model.npz

say() {
    if [[ -t 1 ]]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi
}
show() {
    say "\$ $*"
    "$@"
}

rm -f "$model"
say "Two workers train on the digits; MPI sums their gradients."
show arena submit mpi -b local --name digits --replace --workers 2 --wait examples/digits/train.py
say "What both ranks wrote:"
show arena logs digits
say "The model:"
ls -l "$model"
python - "$model" <<'PYTHON'
import sys
import numpy as np

model = np.load(sys.argv[1])
print(f"{model['weights'].shape[0]} x {model['weights'].shape[1]} weights from {model['world']} workers, "
      f"{float(model['accuracy']):.0%} of the held-out digits named rightly")
if model["world"] != 2:
    sys.exit("two workers were asked for")
PYTHON
show arena list
show arena get digits
show arena history digits
say "The job stays in the list: .venv/bin/arena logs digits reads it again, .venv/bin/arena delete digits takes it away."
