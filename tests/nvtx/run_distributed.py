"""Train models on two processes, with and without the annotation; a program for a test.

Usage: run_distributed.py FILE. It writes a JSON object there: what rank 0 found for each model,
and FILE.json: the trace of one of them.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from pyprof2.nvtx.annotation import init, shutdown, start
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder
from tests.worker_processes import run_workers


def parallel(kind: str, model: nn.Sequential) -> nn.Module:
    if kind == "ddp":
        return DistributedDataParallel(model)
    if kind == "tensor":
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        return parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return model


def train(kind: str, rank: int) -> list[list[float]]:
    torch.manual_seed(0)
    model = parallel(kind, nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 8), float(rank + step))).sum().backward()
        optimizer.step()
    parameters: list[Any] = list(model.parameters())
    values = [p.full_tensor() if kind != "ddp" else p for p in parameters]
    return [value.flatten().tolist() for value in values]


def work(rank: int, folder: str) -> None:
    """Run on one process."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = {kind: compare(kind, rank) for kind in ("ddp", "fsdp", "tensor")}
    if rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(found))
    record(rank)
    dist.destroy_process_group()


def record(rank: int) -> None:
    """Record the sharded training with torch.profiler; rank 0 writes the trace."""
    init(sink="kineto")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        train("fsdp", rank)
    shutdown()
    if rank == 0:
        profiler.export_chrome_trace(f"{sys.argv[1]}.json")
    dist.barrier()


def compare(kind: str, rank: int) -> dict[str, Any]:
    without = train(kind, rank)
    recorder = Recorder()
    start(Options(), recorder.sink())
    with_annotation = train(kind, rank)
    shutdown()
    dist.barrier()
    return findings(recorder, same=with_annotation == without)


def findings(recorder: Recorder, *, same: bool) -> dict[str, Any]:
    collectives = [m for m in recorder.markers("op") if m.op and m.op.startswith("c10d::")]
    return {
        "same": same,
        "balanced": recorder.is_balanced,
        "process": [[m.rank, m.world_size] for m in recorder.markers("process")],
        "collectives": sorted({(m.op, m.bytes, m.group, m.ranks) for m in collectives}),
        "directions": sorted({f"{m.op} {m.direction}" for m in collectives}),
        "sums": sorted(
            {
                (m.layer, m.direction, m.bytes, m.group, m.ranks)
                for m in recorder.markers("op")
                if m.op == "_c10d_functional::all_reduce"
            }
        ),
        "products": sorted(
            {f"{i.op} {i.layer} {i.direction}" for i in recorder.markers("op") if "mm" in str(i.op)}
        ),
        "layers of backward": sorted(
            {str(item.layer) for item in recorder.ops("aten::mm", "backward")}
        ),
        "layers of gradients": sorted(
            {str(m.layer) for m in recorder.markers("op") if m.accumulate}
        ),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_workers(work, ((rank, folder) for rank in range(2))))
