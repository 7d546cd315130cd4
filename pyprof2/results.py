"""What is found once and stored: from a rank's canonical tables to its tables of results."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyprof2.analysis.parted import InMemory, parts_of
from pyprof2.analysis.summaries import ledger, spent, summary, sums, utilization
from pyprof2.analysis.time import line_table, steps
from pyprof2.analysis.time.step_windows import only_steps, step_windows
from pyprof2.result_tables import LEDGER, UTILIZATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from pyprof2.analysis.parted import Parted
    from pyprof2.rank_tables import RankTables
    from pyprof2.tables import Table

_OF_STEPS: Final = (*steps.INPUT["ranges"], "pid", "tid")
_OF_WINDOWS: Final = ("launch_ns", "start_ns", "dur_ns")
_TABLES: Final = ("kernels", "copies", "ops", "signatures", "devices", "trace", "idle")


def result_tables(rank: RankTables) -> Iterator[tuple[str, Iterable[pa.Table]]]:
    """Yield the name of each table of results of a rank, with its rows, in parts.

    Args:
        rank: its canonical tables, which are read part by part: of an op, kernel or copy that is
            read no more is kept than what is added up, and some bytes for each op that others name.
    """
    # Of the ranges only steps count, and there may be more frames than anything else.
    ranges = rank.reduced("ranges", _OF_STEPS, only_steps)
    tables: dict[str, Parted] = {name: rank.parts(name) for name in _TABLES}
    tables["ranges"] = InMemory(ranges)
    activities = (parts_of(tables[name], _OF_WINDOWS) for name in ("kernels", "copies"))
    windows = step_windows(ranges, chain.from_iterable(activities))
    yield "steps", [steps.steps_of_rank(tables, windows, rank.rank)]
    yield "summary", [summary.totals(tables, rank.rank).table()]
    bins = ledger.of_tables(tables)
    bins.insert(0, "rank", rank.rank)
    yield "ledger", [_arrow(LEDGER, bins)]
    used = utilization.utilization(tables, windows, rank.devices(), None, rank.rank)
    yield "utilization", [_arrow(UTILIZATION, used)]
    yield "lines", line_table.lines_of_rank(tables, rank.rank)
    found = sums.sums_of_rank(tables, rank.rank)
    yield from zip(("sums", "sum_calls"), ([each] for each in found), strict=True)
    idle = spent.idle_sums(parts_of(tables["idle"], spent.IDLE_INPUT))
    ranks = pa.array([rank.rank] * idle.num_rows, pa.int64())
    yield "idle_sums", [idle.append_column("rank", ranks)]


def _arrow(table: Table, frame: pd.DataFrame) -> pa.Table:
    found = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    return table.conform(found)
