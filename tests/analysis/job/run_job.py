"""Train on four processes with gloo, recorded one file per rank; a program for a test.

Usage: run_job.py ddp|fsdp FOLDER [RANK]. It writes rank0.json … there. The process RANK, if one is
named, sleeps for 20 ms in every step.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import multiprocessing
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pyprof2

RANKS, STEPS, WIDTH, BATCH = 4, 4, 64, 16
DELAY_S = 0.02


def network(kind: str) -> nn.Module:
    """Return two linear layers, replicated (one bucket of gradients), or sharded by layer."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    if kind == "ddp":
        return DistributedDataParallel(model)
    for layer in (model[0], model[2]):
        fully_shard(layer, reshard_after_forward=True)
    return model


def load(rank: int, late: int) -> torch.Tensor:
    """Return a batch; on one rank it takes longer."""
    if rank == late:
        time.sleep(DELAY_S)
    return torch.full((BATCH, WIDTH), float(rank))


def train(kind: str, rank: int, late: int) -> None:
    """Make `STEPS` steps; each ends for all ranks at once."""
    torch.manual_seed(0)
    model = network(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(load(rank, late)).sum().backward()
        optimizer.step()
        pyprof2.step()


def work(rank: int, kind: str, folder: str, late: int, store: str) -> None:
    """Run on one process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    train(kind, rank, -1)  # what is made once is made before
    dist.barrier()
    pyprof2.init(sink="kineto")
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        train(kind, rank, late)
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    """Start the processes; return 0 if all ended well."""
    kind, folder = sys.argv[1:3]
    late = int(sys.argv[3]) if len(sys.argv) > 3 else -1
    store = Path(folder) / "store"
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=work, args=(rank, kind, folder, late, str(store)))
        for rank in range(RANKS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(abs(worker.exitcode or 0) for worker in workers)


if __name__ == "__main__":
    sys.exit(main())
