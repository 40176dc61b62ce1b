"""Distributed data parallel training in PyTorch over gloo: every rank learns y = 2x + 1 from its own points.

Start it with `arena run -w 2 ddp.py`, or by hand with `torchrun --nproc-per-node 2 ddp.py`.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def say(text):
    """A line in one piece: ranks of one torchrun write into one pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def train(steps):
    """Train for so many steps; the model's slope and offset, and the last loss."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(1, steps + 1):
        points = torch.rand(64, 1) * 2 - 1
        loss = torch.nn.functional.mse_loss(model(points), 2 * points + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            say(f"rank {rank} of {dist.get_world_size()} step {number} loss {loss.item():.6f}")
    return model.module.weight.item(), model.module.bias.item()


def main():
    """Train, then check that all ranks hold the same model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    # Model, optimizer and loss end with train(): one that is still alive when the group is destroyed can abort the
    # process at its exit.
    slope, offset = train(options.steps)
    models = [None] * dist.get_world_size()
    dist.all_gather_object(models, (slope, offset))
    assert all(model == (slope, offset) for model in models), models
    say(f"rank {dist.get_rank()} of {dist.get_world_size()} model y = {slope:.3f}x + {offset:.3f}")
    dist.barrier()
    dist.destroy_process_group()
    # Threads of the group may still abort a process that ends by itself, after its work is done and right.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
