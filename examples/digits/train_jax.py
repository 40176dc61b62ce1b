"""The same softmax regression with JAX: one process per worker, joined by jax.distributed, gradients averaged over all.

Start it with `arena submit jax -b local --workers 2 "python train_jax.py"`. By hand, start each process with
COORDINATOR_ADDRESS, COORDINATOR_PORT, NUM_PROCESSES and PROCESS_ID set.
"""

import argparse
import os
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

DIGITS = Path(__file__).with_name("digits.npz")
HELD_OUT = 297
CLASSES = 10


def join():
    """Meet the other processes; without COORDINATOR_ADDRESS this process is alone."""
    jax.config.update("jax_platforms", "cpu")
    if "COORDINATOR_ADDRESS" in os.environ:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
            num_processes=int(os.environ["NUM_PROCESSES"]),
            process_id=int(os.environ["PROCESS_ID"]),
        )


def load():
    """The images scaled to 0..1 with a constant column for the bias, and their labels, in a fixed random order."""
    with np.load(DIGITS) as data:
        images, labels = (data["images"] / 16.0).astype(np.float32), data["labels"].astype(np.int32)
    order = np.random.default_rng(0).permutation(len(labels))
    return np.hstack([images, np.ones((len(images), 1), np.float32)])[order], labels[order]


def mean_loss(weights, images, labels):
    """The cross-entropy of one process' images, averaged."""
    scores = jax.nn.log_softmax(images @ weights)
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


def step(weights, images, labels, *, lr):
    """One step on every process: its own gradient, then the mean over all of them."""
    loss, gradient = jax.value_and_grad(mean_loss)(weights, images, labels)
    return weights - lr * jax.lax.pmean(gradient, "workers"), jax.lax.pmean(loss, "workers")


def main():
    """Train, printing a line per epoch on every rank; rank 0 writes the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100, help="images per step, over all processes")
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--output", type=Path, default=Path("digits-model.npz"))
    options = parser.parse_args()

    join()
    rank, world = jax.process_index(), jax.process_count()
    images, labels = load()
    train_images, train_labels = images[HELD_OUT:], labels[HELD_OUT:]
    mesh = Mesh(np.array(jax.devices()), ("workers",))
    shared, split = PartitionSpec(), PartitionSpec("workers")
    train_step = jax.jit(
        jax.shard_map(
            partial(step, lr=options.lr),
            mesh=mesh,
            in_specs=(shared, split, split),
            out_specs=(shared, shared),
            check_vma=False,  # each worker keeps its own gradient until pmean
        )
    )
    weights = np.zeros((images.shape[1], CLASSES), np.float32)
    share = options.batch // world

    for epoch in range(1, options.epochs + 1):
        losses = []
        for start in range(0, len(train_labels) - options.batch + 1, options.batch):
            mine = slice(start + rank * share, start + (rank + 1) * share)
            batch = [
                jax.make_array_from_process_local_data(NamedSharding(mesh, split), part[mine])
                for part in (train_images, train_labels)
            ]
            weights, loss = train_step(weights, *batch)
            losses.append(float(loss))
        right = float(np.mean((images[:HELD_OUT] @ np.asarray(weights)).argmax(axis=1) == labels[:HELD_OUT]))
        print(f"rank {rank} of {world} epoch {epoch} loss {np.mean(losses):.4f} accuracy {right:.3f}", flush=True)

    if rank == 0:
        np.savez(options.output, weights=np.asarray(weights), accuracy=right, world=world)
        print(f"rank 0 of {world} wrote {options.output}", flush=True)


if __name__ == "__main__":
    main()
