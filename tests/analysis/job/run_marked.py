"""Make every kind of collective on three processes with gloo; a program for a test.

Usage: run_marked.py kineto|nvtx FOLDER. With `kineto` each process writes FOLDER/rankN.json, with
no shapes; with `nvtx` somebody records from outside. What it does in each of `STEPS` steps stands
in `step`, and by hand in the test.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pyprof2
from tests.worker_processes import run_workers

RANKS, STEPS, WIDTH = 3, 2, 8


def step(rank: int, pair: Any, models: list[Any]) -> None:
    """Call collectives of the whole group, of ranks 0 and 2 alone, and between two; then train."""
    dist.all_reduce(torch.ones(10))
    works = [dist.all_reduce(torch.ones(20, dtype=torch.float64), async_op=True) for _ in range(2)]
    for work in works:
        work.wait()
    if rank != 1:
        dist.broadcast(torch.ones(30), src=2, group=pair)
    # Rank r sends r + p + 1 numbers to rank p.
    sizes = [rank + peer + 1 for peer in range(RANKS)]
    dist.all_to_all_single(torch.empty(sum(sizes)), torch.ones(sum(sizes)), sizes, sizes)
    dist.all_gather([torch.empty(4) for _ in range(RANKS)], torch.ones(4))
    if rank == 0:
        dist.send(torch.ones(5), dst=1)
        dist.send(torch.ones(6), dst=1)
    if rank == 1:
        dist.recv(torch.empty(5), src=0)
        dist.recv(torch.empty(6), src=0)
    both = [
        dist.P2POp(dist.isend, torch.ones(7), (rank + 1) % RANKS),
        dist.P2POp(dist.irecv, torch.empty(7), (rank - 1) % RANKS),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    dist.barrier()
    for model in models:
        model(torch.ones(2, WIDTH)).sum().backward()


def run(rank: int, sink: Any, folder: str) -> None:
    """Run on one process."""
    torch.set_num_threads(1)
    where = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=RANKS)
    dist.all_reduce(torch.ones(1))  # before anybody counts
    pyprof2.init(sink=sink, energy=False, cpu_peaks=False)
    pair = dist.new_group([0, 2])
    sharded = nn.Linear(WIDTH, WIDTH - 2, bias=False)
    fully_shard(sharded)
    models = [sharded, DistributedDataParallel(nn.Linear(WIDTH, 1))]
    step(rank, pair, models)  # counted, and not recorded
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with profiler if sink == "kineto" else nullcontext():
        for _ in range(STEPS):
            step(rank, pair, models)
            pyprof2.step()
    if sink == "kineto":
        profiler.export_chrome_trace(f"{folder}/rank{rank}.json")
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    """Start the processes; return 0 if all ended well."""
    sink, folder = sys.argv[1:3]
    (Path(folder) / "store").unlink(missing_ok=True)
    return run_workers(run, ((rank, sink, folder) for rank in range(RANKS)))


if __name__ == "__main__":
    sys.exit(main())
