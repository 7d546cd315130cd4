"""What a folder of ranks takes with one process, with two, and on two workers of Dask.

Usage: python -m benchmarks.many_files [TRACE] [--ranks N] [--bytes N] [--rounds N]

A trace is made of so many bytes of JSON, and named for each rank; the folder is parsed in turns,
each way in a process of its own. Beside the time on the clock stands the CPU time of all, and of
the process alone that hands out the files: what it does by itself no other core can do. The claim
is 0.6 of the time on the clock; it needs two cores that have nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.traces import SHARED

TRACE: Final = SHARED / "kineto" / "tl_owlv2_h100.json.gz"
WAYS: Final = ("one", "two", "dask")
KEPT: Final = {"MALLOC_MMAP_THRESHOLD_": 8 << 20, "MALLOC_TRIM_THRESHOLD_": 64 << 20}
"""What Dask's workers keep of the memory that they let go, as docs/api.rst advises."""


def main() -> int:
    """Make the folder, and print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("trace", type=Path, nargs="?", default=TRACE, metavar="TRACE")
    parser.add_argument("--ranks", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--bytes", type=int, default=4 * 10**7, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.trace.exists():
        print(f"no trace {args.trace}")
        return 0
    if args.measure:
        print(json.dumps(_measured(args.measure, args.trace)))
        return 0
    found: dict[str, list[list[float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "ranks")
        folder.mkdir()
        first = folder / "rank-0.json.gz"
        words = ["benchmarks.scale_trace", args.trace, first, "--bytes", str(args.bytes)]
        subprocess.run([sys.executable, "-m", *words], check=True)
        for rank in range(1, args.ranks):
            os.link(first, folder / f"rank-{rank}.json.gz")
        for _ in range(args.rounds):
            for way in WAYS:
                words = ["benchmarks.many_files", folder, "--measure", way]
                done = subprocess.run(
                    [sys.executable, "-m", *words], check=True, stdout=subprocess.PIPE
                )
                found[way].append(json.loads(done.stdout))
    print(f"{'way':6}{'wall s':>8}{'CPU s':>8}{'its own':>9}")
    for way, rounds in found.items():
        wall, cpu, own = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"{way:6}{wall:8.1f}{cpu:8.1f}{own:9.1f}")
    return 0


def _measured(way: str, folder: Path) -> tuple[float, float, float]:
    """Parse a folder; return seconds on the clock, of CPU, and of CPU in this process."""
    from pyprof2.api.run import parse
    from pyprof2.pipeline.allocation import give_memory_back

    give_memory_back()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        executor = None
        if way == "dask":
            from dask import config
            from distributed import Client, LocalCluster

            config.set({f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in KEPT.items()})
            cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            client = stack.enter_context(Client(stack.enter_context(cluster)))
            executor = client.get_executor()
        began, own = time.monotonic(), time.process_time()
        parse(folder, Path(name, "store"), jobs=2 if way == "two" else 1, executor=executor)
        wall, own = time.monotonic() - began, time.process_time() - own
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return wall, sum(each.ru_utime + each.ru_stime for each in used), own


if __name__ == "__main__":
    sys.exit(main())
