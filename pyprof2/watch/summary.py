"""A recording of a job in a line, and whether the job became slower since the first one.

`python -m pyprof2.watch.summary FOLDER STORE` parses the recordings in a folder into a store and
prints the figures as JSON: in a process of its own, so that the daemon can answer meanwhile.
"""

from __future__ import annotations

import json
import statistics
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

_STEPS: Final = "Optimizer.step#"
_FEWEST: Final = 4
"""Fewer steps have no quartiles."""


def figures(store: Path) -> dict[str, Any]:
    """Return what a store says of its job.

    Returns:
        `ranks`; `steps`, how many times between two steps of an optimizer were recorded, in all
        ranks; `low_ns`, `step_ns`, `high_ns`, their quartiles, null where there are too few;
        `busy_pct`, of the devices, null without any.
    """
    from pyprof2.api.run import load
    from pyprof2.columns import as_text

    run = load(store)
    ranges = run.ranges
    names = as_text(ranges["name"])
    between = times_between(ranges[names.str.startswith(_STEPS)])
    low, middle, high = (
        statistics.quantiles(between, n=4) if len(between) >= _FEWEST else (None,) * 3
    )
    return {
        "ranks": len(run.tables.counted_ranks),
        "steps": len(between),
        "low_ns": low,
        "step_ns": middle,
        "high_ns": high,
        "busy_pct": run.device_shares.get("gpu_utilization_pct"),
    }


def times_between(steps: pd.DataFrame) -> list[int]:
    """Return the times from the end of each step to that of the next one, of each thread, in ns."""
    found: list[int] = []
    for _, own in steps.groupby(["rank", "pid", "tid"], observed=True):
        ends = sorted((own["start_ns"] + own["dur_ns"]).tolist())
        found += [later - earlier for earlier, later in pairwise(ends)]
    return found


def line(now: dict[str, Any], first: dict[str, Any] | None) -> str:
    """Return the summary of a recording, and how it compares with the first one."""
    parts = [f"{now['ranks']} rank{'s' if now['ranks'] != 1 else ''}"]
    if now["step_ns"] is None:
        parts.append(f"{now['steps']} steps of an optimizer: too few to time")
    else:
        parts.append(f"step {now['step_ns'] / 1e6:.3f} ms, the median of {now['steps']}")
    if now["busy_pct"] is not None:
        parts.append(f"GPU busy {now['busy_pct']:.1f} %")
    if first is not None and now["step_ns"] is not None and first["step_ns"] is not None:
        change = 100 * (now["step_ns"] / first["step_ns"] - 1)
        is_slower, is_faster = now["low_ns"] > first["high_ns"], now["high_ns"] < first["low_ns"]
        how = (
            "SLOWER than the first"
            if is_slower
            else "faster than the first"
            if is_faster
            else "within the scatter of the first"
        )
        parts.append(f"{how} ({change:+.1f} %)")
    return ", ".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Parse a folder into a store, and print its figures; say what is wrong instead, and fail."""
    from pyprof2.errors import Pyprof2Error
    from pyprof2.pipeline.parsing import parse

    folder, store = map(Path, arguments)
    try:
        parse([folder], store)
        sys.stdout.write(json.dumps(figures(store)) + "\n")
    except Pyprof2Error as error:
        sys.stderr.write(f"pyprof2: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
