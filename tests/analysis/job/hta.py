"""What HolisticTraceAnalysis 0.5.0 makes of a trace, read from its events; only to compare.

It drops the last step, all work whose launch is not recorded, and all digits below a microsecond.
It knows communication by the name `nccl` alone.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path


class Breakdown(NamedTuple):
    """Its temporal breakdown and its overlap; times in us."""

    idle: int
    compute: int
    non_compute: int
    kernel: int
    overlap_pct: float


def _covered(spans: list[tuple[int, int]]) -> int:
    """Return the length of the union; the slow way."""
    total, until = 0, -(1 << 62)
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def breakdown(path: Path) -> Breakdown:
    """Return what HTA says of a recording."""
    with gzip.open(path, "rt", errors="replace") as file:
        events: list[dict[str, Any]] = json.load(file, strict=False)["traceEvents"]
    spans = [e for e in events if e.get("ph") == "X" and "dur" in e]
    steps = [float(e["ts"]) for e in spans if str(e["name"]).startswith("ProfilerStep")]
    launched = {
        e["args"].get("correlation")
        for e in spans
        if str(e.get("cat", "")).lower() in ("cuda_runtime", "cuda_driver", "runtime")
    }
    found: dict[str, list[tuple[int, int]]] = {"K": [], "C": [], "M": []}
    for event in spans:
        category = str(event.get("cat", "")).lower()
        if category not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        begin = float(event["ts"])
        if event["args"].get("correlation") not in launched:
            continue
        if len(steps) > 1 and begin >= max(steps):
            continue
        is_comm = category == "kernel" and event["name"].startswith("nccl")
        kind = "C" if is_comm else "K" if category == "kernel" else "M"
        end = int(np.floor(begin + float(event["dur"])))
        found[kind].append((int(np.ceil(begin)), end))
    k, c, m = found["K"], found["C"], found["M"]
    window = max(e for _, e in [*k, *c, *m]) - min(b for b, _ in [*k, *c, *m])
    busy, compute, comm = _covered([*k, *c, *m]), _covered(k), _covered(c)
    overlap = compute + comm - _covered([*k, *c])
    return Breakdown(window - busy, compute, busy - compute, window, 100 * overlap / comm)
