"""GPU work whose record cannot be right, as findings: too long, at time 0, or there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.summaries.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.intervals import Bool

_HOUR_NS: Final = 3600 * 10**9
TELLING: Final = (
    "start_ns", "dur_ns", "device", "stream", "correlation_id", "graph_node_id", "kernel",
    "grid", "block", "registers", "shared_bytes", "copy_kind",
)  # fmt: skip
"""What a recorder says of a piece of work, and of no other."""
_TIMES_WRONG: Final = "busy time, spans and shares are wrong with it: leave it out, or record again"
_TWICE: Final = "it counts as often as it is there: write the trace again"


def find_odd_work(kernels: pa.Table, copies: pa.Table, rank: int) -> Iterator[Finding]:
    """Yield what is wrong with the GPU work of a rank.

    Work that lasts over an hour; work at time 0 where all other work is over an hour away;
    and work of which all that was recorded is the same, counted without the first of each.

    Args:
        kernels: columns `TELLING` of the rank's `kernels`.
        copies: the same of `copies`.
        rank: its number.
    """
    work = pa.concat_tables([table.select(TELLING) for table in (kernels, copies)])
    start, dur = work["start_ns"].to_numpy(), work["dur_ns"].to_numpy()
    others = np.abs(start[start != 0])
    is_far = bool(len(others)) and int(others.min()) > _HOUR_NS
    for what, count, advice in (
        ("GPU work that lasts over an hour", (dur > _HOUR_NS).sum(), _TIMES_WRONG),
        (
            "GPU work at time 0, hours from all other work",
            (start == 0).sum() * is_far,
            _TIMES_WRONG,
        ),
        ("GPU work that is in the file more than once", _repeats(work).sum(), _TWICE),
    ):
        if count:
            share = 100 * int(count) / len(start)
            yield Finding("problem", what, int(count), share, advice, rank)


def _repeats(work: pa.Table) -> Bool:
    """Return which rows repeat an earlier one in every column."""
    frame: Any = work.select(["start_ns", "dur_ns", "correlation_id"]).to_pandas()
    may_repeat = frame.duplicated(keep=False).to_numpy()
    rows: Any = work.filter(pa.array(may_repeat)).to_pandas()
    repeats: Bool = rows.astype(object).duplicated().to_numpy(dtype=bool)
    return repeats
