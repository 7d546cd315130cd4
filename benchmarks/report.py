"""How large the page of `pyprof2 report` is, and what writing it takes.

Usage: python -m benchmarks.report [STORE…] [--kernels N] [--distinct N]

Without a store two are made: one of a real trace, its events repeated until there are so many
kernels (see `scale_trace`), and one in which every kernel has an op and a name of its own, of which
nothing can be summed up. A row says how large the file is, what `report` took of CPU and memory,
and beside it what `advise` took, whose findings are on the page.

The claim: under 10 MB, whatever the recording, and no more memory than 1.5 times that of `advise`.
Exit code 1 if it does not hold.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from benchmarks.processes import measure
from benchmarks.scale_trace import scaled
from benchmarks.traces import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE: Final = SHARED / "kineto" / "rn50_v100_w0.json.gz"
LIMIT_BYTES: Final = 10_000_000
LIMIT_MEMORY: Final = 1.5
_COMMAND: Final = (sys.executable, "-m", "pyprof2", "-q")


def main() -> int:
    """Measure, and print a row for each store."""
    parser = argparse.ArgumentParser(description="Measure the page of pyprof2 report.")
    parser.add_argument("stores", nargs="*", type=Path, metavar="STORE")
    parser.add_argument("--kernels", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--distinct", type=int, default=60_000, help="default: %(default)s")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = args.stores or list(_made(folder, args.kernels, args.distinct))
        print(
            f"{'store':24} {'kernels':>9} {'file MB':>8} {'CPU s':>7} {'GB':>6} {'advise GB':>10}"
        )
        return max([_row(store, folder / "page.html") for store in stores], default=0)


def _row(store: Path, page: Path) -> int:
    """Print what the page of a store takes; return 1 if that is more than is claimed."""
    report = measure([*_COMMAND, "report", store, "--force", "-o", page])
    advise = measure([*_COMMAND, "advise", store])
    size = page.stat().st_size
    kernels = _kernels_of(store)
    print(
        f"{store.stem:24} {kernels:>9,} {size / 1e6:>8.2f} {report.cpu_s:>7.1f} "
        f"{report.peak_bytes / 1e9:>6.2f} {advise.peak_bytes / 1e9:>10.2f}",
        flush=True,
    )
    return int(size > LIMIT_BYTES or report.peak_bytes > LIMIT_MEMORY * advise.peak_bytes)


def _made(folder: Path, kernels: int, distinct: int) -> Iterator[Path]:
    """Make the stores."""
    if TRACE.exists():
        data = gzip.decompress(TRACE.read_bytes())
        (folder / "one.json").write_bytes(data)
        copies = -(-kernels // _kernels_of(_parsed(folder / "one.json")))
        yield _store(folder / "repeated.json", scaled(data, copies))
    else:
        print(f"no trace {TRACE}")
    yield _store(folder / "distinct.json", _distinct(distinct))


def _store(trace: Path, parts: Iterator[bytes]) -> Path:
    with trace.open("wb") as file:
        file.writelines(parts)
    return _parsed(trace)


def _parsed(trace: Path) -> Path:
    """Make a store in another process: what this one held would count for those that it starts."""
    store = trace.with_suffix(".pyprof2")
    measure([*_COMMAND, "parse", trace, "-o", store])
    trace.unlink()
    return store


def _kernels_of(store: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in (store / "kernels").glob("*.parquet"))


def _distinct(count: int) -> Iterator[bytes]:
    """Yield a trace of kernels that have nothing in common."""
    yield b'{"schemaVersion": 1, "traceEvents": [\n'
    for number in range(count):
        name = hashlib.sha512(str(number).encode()).hexdigest()
        at, host = 20 * number, {"ph": "X", "pid": 1, "tid": 1}
        events = (
            host | {"cat": "cpu_op", "name": f"my::{name}", "ts": at, "dur": 5},
            host | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 1, "dur": 2,
                    "args": {"correlation": number + 1}},
            {"ph": "X", "cat": "kernel", "name": f"k{name}", "pid": 0, "tid": 7, "ts": at + 4,
             "dur": 9, "args": {"correlation": number + 1, "device": 0, "stream": 7}},
        )  # fmt: skip
        yield b",\n".join(json.dumps(event).encode() for event in events)
        yield b",\n" if number + 1 < count else b"\n"
    yield b"]}\n"


if __name__ == "__main__":
    sys.exit(main())
