"""A run as a trace of Perfetto's, written in a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pandas as pd

from pyprof2.reports.files import open_binary
from pyprof2.reports.perfetto.chrome import ChromeWriter
from pyprof2.reports.perfetto.device import (
    write_idle,
    write_memory,
    write_samples,
    write_steps,
    write_work,
)
from pyprof2.reports.perfetto.host import write_launches, write_ops, write_ranges
from pyprof2.reports.perfetto.job import write_findings, write_job
from pyprof2.reports.perfetto.packets import Writer
from pyprof2.reports.perfetto.rank import Rank

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

MOST_ROWS_FOR_FINDINGS: Final = 2_000_000
"""Rules and replay look at a whole recording at once; of a longer one both are left out."""
_ROWS: Final = ("kernels", "copies", "launches", "ops", "ranges")
_PARTS: Final = (
    write_steps, write_idle, write_work, write_memory, write_samples, write_ops, write_launches,
    write_ranges,
)  # fmt: skip


@dataclass(frozen=True)
class PerfettoQuery:
    """Which trace to write, and where.

    Attributes:
        path: the file; None: stdout.
        rank: only this one; None: all.
        findings: whether to look for findings, and for the critical path.
        chrome: write the same as JSON of Chrome's trace event format.
    """

    path: Path | None = None
    rank: int | None = None
    findings: bool = True
    chrome: bool = False


def show(run: Run, query: PerfettoQuery) -> list[str]:
    """Write the trace, and return lines on missing parts.

    Raises:
        UsageError: there is no such rank, or the bytes would go to a terminal.
        StoreError: a table is damaged.
    """
    run.tables.of(query.rank)
    too_many = row_count(run, query.rank) > MOST_ROWS_FOR_FINDINGS
    wants = query.findings and not too_many
    found = run.advise().to_dict("records") if wants else []
    fires = [
        {str(name): None if pd.isna(value) else value for name, value in row.items()}
        for row in found
        if row["status"] == "fires"
    ]
    shifts = _shifts(run)
    with open_binary(query.path, "a trace") as write:
        writer = ChromeWriter(write, _first(run)) if query.chrome else Writer(write)
        for at, tables in enumerate(run.tables.ranks):
            if query.rank in {None, tables.rank}:
                rank = Rank(tables, writer, at, shifts[tables.rank])
                write_findings(rank, [row for row in fires if row["rank"] == tables.rank])
                write_job(rank, run.ranks, replayed=wants and run.ranks.is_replayed)
                for write_part in _PARTS:
                    write_part(rank)
        writer.close()
    if query.findings and too_many:
        return [
            "too long to look for findings and the critical path; 'pyprof2 advise' and 'ranks' do"
        ]
    return []


def row_count(run: Run, rank: int | None = None) -> int:
    """Return the number of rows that become slices, but for idle time."""
    return sum(tables.parts(name).row_count for tables in run.tables.of(rank) for name in _ROWS)


def _first(run: Run) -> int:
    """Return the first time of the first rank."""
    starts: list[int | None] = (
        run.tables.ranks[0].read("trace", ["start_ns"])["start_ns"].to_pylist()
    )
    return min((start for start in starts if start is not None), default=0)


def _shifts(run: Run) -> dict[int, int]:
    """Return the shift of each rank's times to the clock of the first one.

    Where the recordings do not say when they were made, each keeps its own clock.
    """
    bases = {}
    for tables in run.tables.ranks:
        unix = tables.read("trace", ["unix_ns"])["unix_ns"].to_pylist()
        bases[tables.rank] = unix[0] if unix else None
    known = [base for base in bases.values() if base is not None]
    if len(known) < len(bases):
        return dict.fromkeys(bases, 0)
    return {rank: base - known[0] for rank, base in bases.items() if base is not None}
