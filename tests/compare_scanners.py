"""Whether the two scanners of the Kineto reader see the same in a file.

Usage: python -m tests.compare_scanners [--count N] [--seed S]

Run as a program it damages traces, as `make fuzz` does, and compares what the scanners see in them.

The texts that stand for it are everything that a builder reads, value by value, of whatever type:
`repr` tells 1 from 1.0 and "1".
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from pyprof2.errors import TraceError
from pyprof2.parsers._json import JsonStream
from pyprof2.parsers.kineto import SCANNERS
from tests import fuzz_traces, mutate_trace
from tests.compare_readers import compare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyprof2.parsers._kineto_columns import EventColumns, Scan


def listed(events: EventColumns) -> dict[str, list[Any]]:
    """Return the columns of events as lists; times of events that have none are no times."""
    times = {"start_ns": events.start_ns, "dur_ns": events.dur_ns}
    return {
        "name": events.name.to_list(),
        "pid": events.pid.to_list(),
        "tid": events.tid.to_list(),
        **{key: np.where(events.timed, time, 0).tolist() for key, time in times.items()},
        "timed": events.timed.tolist(),
        **{
            key: values.tolist() if isinstance(values, np.ndarray) else values.to_list()
            for key, values in events.args.items()
        },
    }


def seen(path: Path, scanner: str) -> Iterator[str]:
    """Yield what a scanner makes of each piece of a file, and in the end what it counted."""
    stream = JsonStream(path, "traceEvents")
    scan = SCANNERS[scanner](stream).scan
    try:
        for text in stream.chunks():
            yield _text_of(scan(text))
    except TraceError as error:
        yield str(error)
    yield f"{sorted(stream.problems.items())} {stream.is_given_up}"


def _text_of(scan: Scan) -> str:
    groups = [(events.group, listed(events)) for events in scan.groups]
    return repr((scan.count, sorted(scan.skipped.items()), groups))


def difference(path: Path) -> str | None:
    """Return where two scanners first see something else in a file; None if they never do."""
    pairs = zip(*(seen(path, scanner) for scanner in ("python", "compiled")), strict=True)
    for number, (one, other) in enumerate(pairs):
        if one != other:
            at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            near = slice(max(0, at - 60), at + 60)
            return f"piece {number}: {one[near]!r} and {other[near]!r}"
    return None


def differences(seeds: Sequence[int], folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbers of the damaged traces that scanners see differently, and where."""
    bases = fuzz_traces.KINDS["traces"].bases()
    path = folder / "damaged"
    for seed in seeds:
        mutate_trace.mutate(seed, bases).write(path)
        found = difference(path)
        if found is not None:
            yield seed, found


def main() -> int:
    """Compare the scanners on damaged traces, and say on which they differ."""
    return compare("traces", "scanners", differences if "compiled" in SCANNERS else None)


if __name__ == "__main__":
    sys.exit(main())
