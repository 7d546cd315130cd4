"""Findings on the timeline: each at the rows that are its evidence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.recording import int_column
from pyprof2.reports.perfetto.rank import FINDINGS, TIMES, Rank, lane_name
from pyprof2.reports.perfetto.slices import constant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.reports.perfetto.wire import Ints
    from pyprof2.store.parts import TableParts

_EVIDENCE: Final = re.compile(r"(?<!\w)(\w+):([\d,]+)")
_KEYS: Final = {
    "kernels": "kernel_id", "copies": "kernel_id", "ops": "op_id", "launches": "launch_id",
    "ranges": "range_id", "stalls": "stall_id",
}  # fmt: skip
_SHOWN: Final = (
    "finding", "severity", "at_stake_lo_ns", "at_stake_hi_ns", "expected_ns", "limit", "source",
    "remedy", "evidence",
)  # fmt: skip


def write_findings(rank: Rank, found: Sequence[Mapping[str, Any]]) -> None:
    """Write findings, each on a track of its own.

    A finding is shown at the rows that it names as evidence; one that
    names none is shown over all that was recorded.

    Args:
        rank: whose.
        found: rows of the table of findings that fire, None for null.
    """
    for at, finding in enumerate(found):
        group = rank.writer.track("findings", rank.root, place=FINDINGS)
        parts = list(_evidence(rank, finding["evidence"] or "")) or [_recorded(rank)]
        start, duration = (np.concatenate(column) for column in zip(*parts, strict=True))
        table = pa.table({"start_ns": start, "dur_ns": duration})
        for name in _SHOWN:
            kind = pa.int64() if name.endswith("_ns") else pa.string()
            column = pa.array([finding[name]] * table.num_rows, kind)
            column = column if kind == pa.int64() else column.dictionary_encode()
            table = table.append_column(name, column)
        rule: str = finding["rule"]

        def track(_: int, lane: int, rule: str = rule, at: int = at, group: int = group) -> int:
            return rank.writer.track(lane_name(rule, lane), group, place=at)

        title = constant(rule, table.num_rows)
        rank.write_slices(table, title, np.zeros(table.num_rows, np.int64), track, _SHOWN)


def _recorded(rank: Rank) -> tuple[Ints, Ints]:
    trace = rank.tables.read("trace", ["start_ns", "end_ns"])
    start, end = pc.min(trace["start_ns"]).as_py() or 0, pc.max(trace["end_ns"]).as_py() or 0
    return np.array([start]), np.array([max(0, end - start)])


def _evidence(rank: Rank, text: str) -> Iterator[tuple[Ints, Ints]]:
    """Yield start and duration of the rows that a finding names, if there are any."""
    for name, numbers in _EVIDENCE.findall(text):
        ids = np.array([int(number) for number in numbers.split(",") if number], np.int64)
        if name in _KEYS:
            yield from _times_of(rank.parts(name), _KEYS[name], ids)


def _times_of(table: TableParts, key: str, ids: Ints) -> Iterator[tuple[Ints, Ints]]:
    least, greatest = table.bounds(key)
    for part in range(len(table)):
        if ((least[part] <= ids) & (ids <= greatest[part])).any():
            found = table.read(part, [key, *TIMES])
            own = found.filter(pc.is_in(found[key], pa.array(ids)))
            start, duration = (int_column(own, name, 0) for name in TIMES)
            yield start, duration
