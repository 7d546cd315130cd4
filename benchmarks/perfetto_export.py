"""How long `pyprof2 export --perfetto` takes, and how much memory, as a recording grows.

Usage: python -m benchmarks.perfetto_export [TRACE …] [--events N …] [--rounds N]

Each trace is read, and its tables are put one after another, later each time, until they have so
many slices: kernels, copies, launches, ops, ranges and pieces of idle time. Each export is a
process of its own, without findings. The claims: the CPU time for each event and the memory are
no larger for ten million events than for one million, but for a quarter.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from benchmarks.processes import measure
from benchmarks.traces import add_traces, existing
from pyprof2.pipeline.assemble import joined
from pyprof2.pipeline.parsing import parse
from pyprof2.store.folder import STORED, StoreWriter, open_parts, ranks_of, read_rank, write_table
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACES: Final = ("rn50_v100_w0",)
SLICES: Final = ("kernels", "copies", "launches", "ops", "ranges", "idle")
PAUSE_NS: Final = 1_000_000
MORE: Final = 1.25


class Result(NamedTuple):
    """What an export took."""

    events: int
    cpu_ns: float
    peak_bytes: int


def main() -> int:
    """Measure, print, and say whether the claims hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add_traces(parser, TRACES)
    parser.add_argument("--events", type=int, nargs="*", default=[10**6, 10**7])
    parser.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    args = parser.parse_args()
    return max((_measure(t, args.events, args.rounds) for t in existing(args.trace)), default=0)


def _measure(trace: Path, sizes: list[int], rounds: int) -> int:
    results = []
    with tempfile.TemporaryDirectory() as folder:
        small = parse(trace, Path(folder) / "small.pyprof2")
        for size in sizes:
            large = Path(folder) / "large.pyprof2"
            events = repeat(small, large, size)
            results.append(_export(large, events, Path(folder) / "out.pftrace", rounds))
            print(
                f"{trace.name.split('.')[0]}: {events / 1e6:.2f} M events, "
                f"{results[-1].cpu_ns / 1e3:.2f} us of CPU each, "
                f"most memory {results[-1].peak_bytes / 1e6:.0f} MB"
            )
    first, last = results[0], results[-1]
    holds = last.cpu_ns < MORE * first.cpu_ns and last.peak_bytes < MORE * first.peak_bytes
    print("the claims hold" if holds else "the claims do not hold")
    return int(not holds)


def repeat(small: Path, large: Path, events: int) -> int:
    """Make a store of the rows of another one, again and again; return its number of slices."""
    (rank,) = ranks_of(small)
    count = math.ceil(events / _slice_count(small))
    trace = read_rank(small, "trace", rank)
    length = trace["end_ns"][0].as_py() - trace["start_ns"][0].as_py() + PAUSE_NS
    shifts = [at * length for at in range(count)]
    with StoreWriter(large, force=True) as writer:
        for name in STORED:
            parts = (
                _merged(joined(name, [small] * count, rank, shifts, [0] * count))
                if name in TABLES and name != "trace"
                else [read_rank(small, name, rank)]
            )
            write_table(writer.folder, name, rank, parts)
        writer.finish({})
    return _slice_count(large)


def _merged(parts: Iterator[pa.Table], size: int = 1 << 17) -> Iterator[pa.Table]:
    """Yield the rows in parts of about that size, as `parse` writes them."""
    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(part)
        if sum(each.num_rows for each in waiting) >= size:
            yield pa.concat_tables(waiting).unify_dictionaries()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).unify_dictionaries()


def _slice_count(store: Path) -> int:
    (rank,) = ranks_of(store)
    return sum(open_parts(store, name, rank).row_count for name in SLICES)


def _export(store: Path, events: int, out: Path, rounds: int) -> Result:
    options = ["--perfetto", "--no-findings", str(store)]
    command = [sys.executable, "-m", "pyprof2", "export", *options]
    used = [measure([*command, "-o", str(out), "--force"]) for _ in range(rounds)]
    cpu_s = min(each.cpu_s for each in used)
    return Result(events, cpu_s / events * 1e9, max(each.peak_bytes for each in used))


if __name__ == "__main__":
    sys.exit(main())
