"""What examples on the pages call `train.py`: it says where it stands and writes a model."""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.1)
options = parser.parse_args()
rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
for epoch in range(1, options.epochs + 1):
    print(f"epoch {epoch} rank {rank} of {world} lr {options.lr}")
if rank == "0":
    with open("model.txt", "w", encoding="utf-8") as file:
        file.write(f"lr {options.lr}\n")
