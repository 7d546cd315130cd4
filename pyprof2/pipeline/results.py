"""The results that are found once and stored, of a rank's canonical tables."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyprof2.analysis.chunked import InMemory, chunks_of
from pyprof2.analysis.summaries import ledger, spent, summary, sums, utilization
from pyprof2.analysis.time import lines, steps
from pyprof2.analysis.time.step_windows import only_steps, step_windows
from pyprof2.store.folder import write_table
from pyprof2.store.rank_tables import RankTables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyprof2.analysis.chunked import ChunkedTable

_OF_STEPS: Final = (*steps.INPUT["ranges"], "pid", "tid")
_OF_WINDOWS: Final = ("launch_ns", "start_ns", "dur_ns")
_TABLES: Final = ("kernels", "copies", "ops", "signatures", "devices", "trace", "idle",
           "graph_nodes")  # fmt: skip


def write_results(folder: Path, rank: int) -> None:
    """Write the tables of results of a rank into a store that has its canonical tables."""
    for name, parts in result_tables(RankTables(folder, rank, own=True)):
        write_table(folder, name, rank, parts)


def result_tables(rank: RankTables) -> Iterator[tuple[str, Iterable[pa.Table]]]:
    """Yield the name of each table of results of a rank, with its rows, in parts.

    Args:
        rank: its canonical tables, which are read part by part: of an op, kernel or copy that is
            read no more is kept than what is added up, and some bytes for each op that others name.
    """
    # Only steps count among the ranges, and there may be more frames than anything else.
    ranges = pa.concat_tables(map(only_steps, rank.in_parts("ranges", _OF_STEPS)))
    tables: dict[str, ChunkedTable] = {name: rank.parts(name) for name in _TABLES}
    tables["ranges"] = InMemory(ranges)
    activities = (chunks_of(tables[name], _OF_WINDOWS) for name in ("kernels", "copies"))
    windows = step_windows(ranges, chain.from_iterable(activities))
    of_steps, used = steps.steps_and_use(tables, windows, rank.rank)
    yield "steps", [of_steps]
    yield "device_use", [used]
    every = tables | {name: rank.parts(name) for name in ("ranges", "launches")}
    yield "summary", [summary.totals(every, rank.rank).table()]
    yield "ledger", [ledger.of_tables(tables, rank.rank)]
    used = utilization.utilization(tables, windows, rank.devices(), None, rank.rank)
    yield "utilization", [used]
    yield "lines", lines.lines_of_rank(tables, rank.rank)
    for name, found in sums.stored_sums(tables, rank.rank).items():
        yield name, [found]
    yield "idle_sums", [spent.idle_sums(chunks_of(tables["idle"], spent.IDLE_INPUT), rank.rank)]
