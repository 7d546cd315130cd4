"""How fast `parse` and `prof` are on large traces, and whether memory grows with the file.

Usage: python -m benchmarks.kineto_parse [TRACE …] [--small BYTES] [--large BYTES]

From each real trace a small and a large one are made (100 MB and 1 GB of JSON), and parsed and
profiled in processes of their own. The claim: the peaks of memory of `parse` differ by less than
the Arrow tables of the larger file take.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.processes import Usage, measure
from benchmarks.traces import add_traces, existing

TRACES: Final = ("tl_owlv2_h100", "rn50_v100_w0")
COUNTS: Final = (
    "kernel_count", "copy_count", "op_count", "kernel_time_ns", "busy_ns", "launched_count",
    "linked_count", "shapes_count", "backward_count", "backward_paired_count", "recompute_count",
)  # fmt: skip
COUNT: Final = f"""
import json, sys, pyprof2
run = pyprof2.load(sys.argv[1])
counts = {{name: run.summary[name] for name in {COUNTS}}}
print(json.dumps(counts | {{"events": int(run.trace.event_count[0])}}))
"""
PYPROF2: Final = [sys.executable, "-m", "pyprof2"]


class Result(NamedTuple):
    """What parsing and profiling one file took, and what came out."""

    parse: Usage
    prof: Usage
    counts: dict[str, int]
    table_bytes: int


def main() -> int:
    """Measure, print, and say whether the claim holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add_traces(parser, TRACES)
    parser.add_argument("--small", type=int, default=10**8, help="default: %(default)s")
    parser.add_argument("--large", type=int, default=10**9, help="default: %(default)s")
    args = parser.parse_args()
    traces = existing(args.trace)
    return max((_compare(trace, args.small, args.large) for trace in traces), default=0)


def _compare(trace: Path, small: int, large: int) -> int:
    print(f"{trace.name}")
    with tempfile.TemporaryDirectory() as folder:
        few, many = (_run(trace, size, Path(folder)) for size in (small, large))
    more, tables = many.parse.peak_bytes - few.parse.peak_bytes, many.table_bytes
    verdict = "yes" if more < tables else "NO"
    print(
        f"  peak of parse: {more / 1e6:.0f} MB more for the large file, whose tables take "
        f"{tables / 1e6:.0f} MB: less? {verdict}"
    )
    events = few.counts["events"], many.counts["events"]
    exact = all(many.counts[name] * events[0] == few.counts[name] * events[1] for name in COUNTS)
    print(f"  every count of kernels and links grows as events do: {'yes' if exact else 'NO'}")
    return int(more >= tables or not exact)


def _run(trace: Path, size: int, folder: Path) -> Result:
    big, store = folder / f"{size}.json.gz", folder / f"{size}.pyprof2"
    measure([sys.executable, "-m", "benchmarks.scale_trace", trace, big, "--bytes", str(size)])
    parse = measure([*PYPROF2, "parse", "-q", big, "-o", store])
    prof = measure([*PYPROF2, "prof", "-q", store, "--by", "op"])
    words = [sys.executable, "-c", COUNT, str(store)]
    counts = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    manifest = json.loads((store / "manifest.json").read_text())
    result = Result(parse, prof, json.loads(counts), manifest["ranks"][0]["table_bytes"])
    events = result.counts["events"]
    print(
        f"  {size / 1e6:6.0f} MB: {events} events, "
        f"parse {events / parse.cpu_s / 1e3:.0f} k events/s "
        f"({parse.cpu_s:.1f} s CPU, {parse.peak_bytes / 1e6:.0f} MB), "
        f"prof {prof.cpu_s:.1f} s CPU, {prof.peak_bytes / 1e6:.0f} MB"
    )
    return result


if __name__ == "__main__":
    sys.exit(main())
