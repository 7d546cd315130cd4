"""A job of 1000 ranks of 50,000 kernels each: what the reduce takes, beside the map of one rank.

Usage: python -m benchmarks.many_ranks [RANKS] [STEPS]

Two ranks are made of a real one (1575 launches and 10 collectives in a step) and parsed, the second
20 % slower: that is the map, which a cluster does for all ranks at once. The store of the large job
has the rows of the first for all ranks but one. Then the reduce runs, in a process of its own: it
matches 320,000 parts of collectives, aligns the clocks, finds the straggler, and replays the job
without it. Kernels are read of the straggler and of eight others.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.traces import SHARED
from pyprof2.api.run import load
from pyprof2.pipeline import many_ranks, parsing
from pyprof2.pipeline.many_ranks import reduce_store
from tests.analysis.job.real_job import Setup, simulate, write
from tests.analysis.job.real_program import step_program

if TYPE_CHECKING:
    from pyprof2.api.job import JobOfRanks

TRACE: Final = "kineto/hta_diff_control_a100.json.gz"
SLOW: Final = 1.2
READ: Final = ("kernels", "copies", "launches", "stalls")
REDUCED: Final = (
    "collectives",
    "trace",
    "parts",
    "segments",
    "steps",
    "idle",
    "summary",
    "ledger",
    "utilization",
)


def main() -> None:
    """Print the size of the job, seconds and memory."""
    ranks, steps = (int(text) for text in [*sys.argv[1:], "1000", "32"][:2])
    with tempfile.TemporaryDirectory() as folder:
        base, setup = _base(Path(folder), steps)
        store = _large(base, Path(folder) / "job.pyprof2", ranks)
        lost = 1000 * (simulate(setup).last - simulate(setup.healthy()).last)
        print(f"{ranks} ranks x {len(setup.program) * steps} launches; lost {lost / 1e6:.3f} ms")
        code = "import sys; from benchmarks.many_ranks import reduce; reduce(sys.argv[1])"
        subprocess.run([sys.executable, "-c", code, str(store)], check=True)


def _base(folder: Path, steps: int) -> tuple[Path, Setup]:
    """Return the store of two ranks, with their parts and segments, and what they are."""
    setup = Setup(step_program(SHARED / TRACE, 1011), 2, steps, host=0.2, slow={1: SLOW})
    write(setup, simulate(setup), folder)
    for module in (many_ranks, parsing):
        module.MANY_RANKS = 2  # type: ignore[attr-defined]
    begin = time.process_time()
    store = parsing.parse([folder / f"rank{rank}.json" for rank in (0, 1)], folder / "base.pyprof2")
    print(
        f"map: {(time.process_time() - begin) / 2:.1f} s of CPU a rank, from JSON to its segments"
    )
    return store, setup


def _large(base: Path, out: Path, ranks: int) -> Path:
    """Write the store of many ranks: rank 7 is the slow one."""
    out.mkdir()
    for name in (*REDUCED, *READ):
        (out / name).mkdir()
        # Kernels are read of the slow rank and its peers alone; those of others are left out.
        chosen = {7, *_peers(ranks)} if name in READ else range(ranks)
        for rank in chosen:
            table = pq.read_table(base / name / f"rank-{int(rank == 7)}.parquet")
            pq.write_table(_of_rank(table, rank, ranks), out / name / f"rank-{rank}.parquet")
    for name in ("signatures", "devices"):
        shutil.copytree(base / name, out / name)
    manifest: dict[str, Any] = json.loads((base / "manifest.json").read_text())
    manifest["ranks"] = [manifest["ranks"][0] | {"rank": rank} for rank in range(ranks)]
    (out / "manifest.json").write_text(json.dumps(manifest))
    return out


def _peers(ranks: int) -> list[int]:
    others = [rank for rank in range(ranks) if rank != 7]
    return [others[round(at)] for at in np.linspace(0, len(others) - 1, 8).astype(int)]


def _of_rank(table: pa.Table, rank: int, ranks: int) -> pa.Table:
    """Return a table as that of another rank of a larger group, on a clock of its own."""
    columns = {"rank": rank, "world_size": ranks, "group_size": ranks}
    for name, value in columns.items():
        if name in table.column_names:
            at = table.column_names.index(name)
            field = table.schema.field(at)
            table = table.set_column(at, field, pa.array([value] * len(table), field.type))
    for name in ("start_ns", "issued_ns", "begin_ns", "launch_ns", "end_ns"):
        if name in table.column_names and rank != 7:
            at = table.column_names.index(name)
            moved = pc.add(table[name], 1_000_003 * rank)
            table = table.set_column(at, table.schema.field(at), moved)
    return table


def reduce(store: str) -> None:
    """Run the reduce, and print what it takes."""
    begin = time.process_time()
    reduce_store(Path(store))
    print(f"matching, clocks, waits: {time.process_time() - begin:.1f} s")
    job: JobOfRanks = load(Path(store)).ranks
    found = job.stragglers
    print(found.to_string(index=False))
    print(f"path: {job.critical_path['ns'].sum() == job.window_ns}, imbalance {len(job.imbalance)}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"together: {time.process_time() - begin:.1f} s of CPU, peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
