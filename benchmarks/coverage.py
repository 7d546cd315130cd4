"""How much of the GPU time of real recordings has an op, FLOPs and bytes, a Tensor Core verdict.

Usage: python -m benchmarks.coverage [--traces DIR]

Reads every Kineto trace of a GPU in the folder (by default where the tests look for them), which
others recorded with PyTorch of 2021 to 2026. Of each it prints the share of the kernels' time that
is linked to an op, that of the GPU work whose FLOPs and bytes are known, exactly or with an
assumption that is stated, and that of the kernels' time with a verdict; below them the medians.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import pyprof2
from benchmarks.traces import SHARED
from pyprof2.api import run_profile


def shares(path: Path) -> tuple[float, float, float] | None:
    """Return what is linked, costed and judged of a recording, in %; None without a GPU."""
    run = pyprof2.load(path)
    summary = run.summary
    if summary["no_gpu"] or not summary["kernel_time_ns"]:
        return None
    ledger = summary["ledger"]
    work = sum(ledger.values())
    costed = (
        100 * (work - sum(ledger[name] for name in ("no_shapes", "no_formula", "no_op"))) / work
    )
    verdicts = run_profile.time_by(run.tables, "tensor_core")
    judged = sum(time for verdict, time in verdicts.items() if verdict in ("yes", "no"))
    return summary["linked_pct"] or 0.0, costed, 100 * judged / summary["kernel_time_ns"]


def main() -> None:
    """Print a line for each recording, and the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", type=Path, default=SHARED / "kineto")
    found = []
    for path in sorted(parser.parse_args().traces.glob("*.json.gz")):
        own = shares(path)
        if own is not None:
            found.append(own)
            print(f"{path.name:40}" + "".join(f"{share:8.1f}" for share in own), flush=True)
    medians = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"{f'median of {len(found)}':40}" + "".join(f"{share:8.1f}" for share in medians))


if __name__ == "__main__":
    main()
