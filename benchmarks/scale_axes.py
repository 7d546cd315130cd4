"""How the CPU time of `parse` and `prof` grows along axes that recordings grow along.

Usage: python -m benchmarks.scale_axes [--axis NAME …] [--sizes N] [--rounds N] [--most FRACTION]

Traces are made, of one axis each: devices, steps, nested ops, distinct names of kernels, streams.
Along each there are several sizes, the largest that is named below, each half of the next. What a
trace without the axis takes, the start, is taken away, and an exponent fitted to the rest by least
squares of the logarithms: 1 is linear in the file. The claim: at most 1.1 for each axis. Exit code
1 if it does not hold.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.processes import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT: Final = 1.1
_COMMAND: Final = (sys.executable, "-m", "pyprof2", "-q")
_HOST: Final = {"ph": "X", "pid": 1, "tid": 1}


def main() -> int:
    """Measure, and print a row for each axis and command."""
    parser = argparse.ArgumentParser(description="Fit how CPU time grows along axes.")
    parser.add_argument("--axis", nargs="*", choices=tuple(AXES), default=tuple(AXES))
    parser.add_argument("--sizes", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--most", type=float, default=1.0, help="of the largest sizes")
    args = parser.parse_args()
    print(f"{'axis':10}{'command':10}{'sizes and CPU s':60}{'exponent':>9}")
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        start = _measured(Path(name), _launched(range(1)), args.rounds)
        for axis in args.axis:
            make, most = AXES[axis]
            most = int(most * args.most)
            sizes = [most >> shift for shift in range(args.sizes - 1, -1, -1)]
            took = [_measured(Path(name), make(size), args.rounds) for size in sizes]
            for at, command in enumerate(("parse", "prof")):
                seconds = [each[at] for each in took]
                exponent = fitted(sizes, [each - start[at] for each in seconds])
                worst = max(worst, exponent, key=lambda each: np.inf if np.isnan(each) else each)
                pairs = zip(sizes, seconds, strict=True)
                words = ", ".join(f"{size:,}: {each:.2f}" for size, each in pairs)
                print(f"{axis:10}{command:10}{words:60}{exponent:>9.2f}", flush=True)
    return int(not worst <= LIMIT)


def fitted(sizes: list[int], seconds: list[float]) -> float:
    """Return the exponent of the power of the sizes that the seconds are; 0 where they are none.

    NaN: a size was refused.
    """
    if np.isnan(seconds).any():
        return np.nan
    known = [(size, each) for size, each in zip(sizes, seconds, strict=True) if each > _LEAST_S]
    if len(known) < 2:
        return 0.0
    size, took = np.log(np.array(known, float)).T
    return float(np.polyfit(size, took, 1)[0])


_LEAST_S: Final = 0.05
"""Less than this above the start is what a machine scatters."""


def _measured(folder: Path, events: Iterator[dict[str, Any]], rounds: int) -> tuple[float, float]:
    """Return the CPU seconds of parsing a trace and of the first screen of its store."""
    trace, store = folder / "trace.json", folder / "store"
    with trace.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        for number, event in enumerate(events):
            file.write((",\n" if number else "") + json.dumps(event))
        file.write("\n]}\n")
    parsed, shown = [], []
    for _ in range(rounds):
        try:
            parsed.append(measure([*_COMMAND, "parse", trace, "--force", "-o", store]).cpu_s)
            shown.append(measure([*_COMMAND, "prof", store]).cpu_s)
        except SystemExit as error:
            print(error, file=sys.stderr)
            return np.nan, np.nan
    return statistics.median(parsed), statistics.median(shown)


def _launched(
    numbers: range, *, devices: int = 1, streams: int = 1, names: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield ops, calls and kernels, which go around devices, streams and names."""
    for number in numbers:
        at = 20 * number
        yield _HOST | {"cat": "cpu_op", "name": "aten::add", "ts": at, "dur": 15}
        yield _HOST | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 1, "dur": 2,
                       "args": {"correlation": number + 1}}  # fmt: skip
        device, stream = number % devices, 7 + number % streams
        yield {"ph": "X", "cat": "kernel", "name": f"kernel_{number % names}", "pid": device,
               "tid": stream, "ts": at + 4, "dur": 9,
               "args": {"correlation": number + 1, "device": device, "stream": stream}}  # fmt: skip


def _devices(size: int) -> Iterator[dict[str, Any]]:
    yield from _launched(range(20 * size), devices=size)


def _steps(size: int) -> Iterator[dict[str, Any]]:
    for step in range(size):
        yield _HOST | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": 40 * step,
                       "dur": 39}  # fmt: skip
        yield from _launched(range(2 * step, 2 * step + 2))


def _nested(size: int) -> Iterator[dict[str, Any]]:
    """Yield ops, each of which holds the next one, and a launch in the innermost one."""
    for number in range(size):
        yield _HOST | {"cat": "cpu_op", "name": f"aten::op{number % 100}", "ts": number,
                       "dur": 2 * (size - number) + 20}  # fmt: skip
    for event in _launched(range(1)):
        yield event | {"ts": event["ts"] + size}


def _names(size: int) -> Iterator[dict[str, Any]]:
    yield from _launched(range(size), names=size)


def _streams(size: int) -> Iterator[dict[str, Any]]:
    yield from _launched(range(4 * size), streams=size)


AXES: Final[dict[str, tuple[Callable[[int], Iterator[dict[str, Any]]], int]]] = {
    "devices": (_devices, 1_000),
    "steps": (_steps, 100_000),
    "nested": (_nested, 150_000),
    "names": (_names, 60_000),
    "streams": (_streams, 10_000),
}
"""The axes: what makes a trace of a size, and the largest."""


if __name__ == "__main__":
    sys.exit(main())
