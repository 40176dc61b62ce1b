"""Softmax regression on handwritten digits, data-parallel: each rank has its share of the images, MPI sums gradients.

Start it with `arena submit mpi -b local --workers 2 train.py`, or by hand with `mpiexec -n 2 python train.py`.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

DIGITS = Path(__file__).with_name("digits.npz")
HELD_OUT = 297  # images that no rank trains on
CLASSES = 10


def load():
    """The images scaled to 0..1 with a constant column for the bias, and their labels, in a fixed random order."""
    with np.load(DIGITS) as data:
        images, labels = data["images"] / 16.0, data["labels"].astype(int)
    order = np.random.default_rng(0).permutation(len(labels))
    return np.hstack([images, np.ones((len(images), 1))])[order], labels[order]


def loss_and_gradient(weights, images, labels):
    """The cross-entropy of these images, summed, and its gradient."""
    scores = images @ weights
    scores -= scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    loss = -np.log(probabilities[np.arange(len(labels)), labels]).sum()
    probabilities[np.arange(len(labels)), labels] -= 1
    return loss, images.T @ probabilities


def summed(comm, value):
    """The sum of the ranks' arrays, the same on every rank."""
    total = np.empty_like(value)
    comm.Allreduce(value, total)
    return total


def accuracy(weights, images, labels):
    """The share of these images that the model names rightly."""
    return float(np.mean((images @ weights).argmax(axis=1) == labels))


def say(line):
    """Print a line in one piece: mpiexec mixes what its ranks write, and print() writes text and line end apart."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main():
    """Train, printing a line per epoch on every rank; rank 0 writes the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=100, help="images per step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--output", type=Path, default=Path("digits-model.npz"))
    options = parser.parse_args()

    comm = MPI.COMM_WORLD
    rank, world = comm.Get_rank(), comm.Get_size()
    images, labels = load()
    train, held_out = slice(HELD_OUT, None), slice(HELD_OUT)
    train_images, train_labels = images[train], labels[train]
    weights = np.zeros((images.shape[1], CLASSES))

    for epoch in range(1, options.epochs + 1):
        total_loss = np.zeros(1)
        for start in range(0, len(train_labels), options.batch):
            mine = slice(start + rank, start + options.batch, world)
            loss, gradient = loss_and_gradient(weights, train_images[mine], train_labels[mine])
            total_loss += loss
            weights -= options.lr / options.batch * summed(comm, gradient)
        loss = summed(comm, total_loss)[0] / len(train_labels)
        right = accuracy(weights, images[held_out], labels[held_out])
        say(f"rank {rank} of {world} epoch {epoch} loss {loss:.4f} accuracy {right:.3f}")

    if rank == 0:
        np.savez(options.output, weights=weights, accuracy=right, world=world)
        say(f"rank 0 of {world} wrote {options.output}")


if __name__ == "__main__":
    main()
