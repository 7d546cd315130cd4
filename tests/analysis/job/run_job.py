"""Train on four processes with gloo, recorded one file per rank; a program for a test.

Usage: run_job.py ddp|fsdp FOLDER [RANK [kineto|nvtx]]. It writes rank0.json … there, unless
somebody records from outside, and clock0.txt …, what each process noted by its own clock. The
process RANK, if one is named, sleeps for 20 ms in every step.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pyprof2
from tests.worker_processes import run_workers

RANKS, STEPS, WIDTH, BATCH = 4, 5, 64, 16
DELAY_S = 0.02
BETWEEN: list[int] = []
"""From the last op before the batch of each step to its first one, by this process's clock; ns."""
HANDED: list[int] = []
"""When this process was asked for the sum of the gradients of each step; ns, by one clock."""


def network(kind: str) -> nn.Module:
    """Return two linear layers, replicated (one bucket of gradients), or sharded by layer."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    if kind == "ddp":
        replicated = DistributedDataParallel(model)
        replicated.register_comm_hook(None, note_and_sum)
        return replicated
    for layer in (model[0], model[2]):
        fully_shard(layer, reshard_after_forward=True)
    fully_shard(model)  # has no weights of its own; it tells FSDP the layers' names
    return model


def note_and_sum(_state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Do what DDP does by itself, and note when."""
    HANDED.append(time.monotonic_ns())
    return allreduce_hook(dist.distributed_c10d._get_default_group(), bucket)


note_and_sum.__annotations__.clear()  # DDP looks at them, and knows no texts


def read(rank: int, late: int) -> float:
    """Return what a batch is filled with; on one rank that takes longer."""
    if rank == late:
        time.sleep(DELAY_S)
    BETWEEN[-1] = time.monotonic_ns() - BETWEEN[-1]
    return float(rank)


def load(rank: int, late: int) -> torch.Tensor:
    """Return a batch."""
    return torch.full((BATCH, WIDTH), read(rank, late))  # this line is late


def train(kind: str, rank: int, late: int) -> None:
    """Make `STEPS` steps; each ends for all ranks at once."""
    torch.manual_seed(0)
    model = network(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.zeros(1)
        BETWEEN.append(time.monotonic_ns())
        model(load(rank, late)).sum().backward()
        optimizer.step()
        pyprof2.step()


def work(rank: int, kind: str, folder: str, late: int, sink: str) -> None:
    """Run on one process."""
    torch.set_num_threads(1)
    where = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=RANKS)
    train(kind, rank, -1)  # what is made once is made before
    dist.barrier()
    pyprof2.init(sink="kineto" if sink == "kineto" else "nvtx", energy=False, cpu_peaks=False)
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    )
    with profiler if sink == "kineto" else nullcontext():
        train(kind, rank, late)
    if sink == "kineto":
        profiler.export_chrome_trace(f"{folder}/rank{rank}.json")
    noted = {"between": BETWEEN[-STEPS:], "handed": HANDED[-STEPS:]}
    Path(f"{folder}/clock{rank}.txt").write_text(json.dumps(noted))
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    """Start the processes; return 0 if all ended well."""
    kind, folder = sys.argv[1:3]
    late = int(sys.argv[3]) if len(sys.argv) > 3 else -1
    sink = sys.argv[4] if len(sys.argv) > 4 else "kineto"
    return run_workers(work, ((rank, kind, folder, late, sink) for rank in range(RANKS)))


if __name__ == "__main__":
    sys.exit(main())
