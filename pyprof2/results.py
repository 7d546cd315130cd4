"""What is found once and stored: from a rank's canonical tables to its tables of results."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyprof2.analysis.parted import InMemory
from pyprof2.analysis.summaries import ledger, summary, utilization
from pyprof2.analysis.time import line_table, steps
from pyprof2.analysis.time.spans import recorded_span
from pyprof2.analysis.time.step_windows import only_steps, step_windows
from pyprof2.result_tables import LEDGER, UTILIZATION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import pandas as pd

    from pyprof2.rank_tables import RankTables
    from pyprof2.tables import Table


def _together(*parts: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    needed: defaultdict[str, set[str]] = defaultdict(set)
    for each in parts:
        for name, columns in each.items():
            needed[name].update(columns)
    return dict(needed)


_NEEDED: Final = _together(steps.INPUT, summary.NEEDED, ledger.NEEDED, utilization.NEEDED)
_OPS_OF_KERNELS: Final = ("category",)
"""What utilization needs of ops where kernels do the work; a ledger needs none of them."""
_OF_STEPS: Final = (*steps.INPUT["ranges"], "pid", "tid")


def result_tables(rank: RankTables) -> Iterator[tuple[str, Iterable[pa.Table]]]:
    """Yield the name of each table of results of a rank, with its rows, in parts.

    Args:
        rank: its canonical tables, of which the columns that are needed are read.
    """
    # Of the ranges only steps count, and there may be more frames than anything else.
    ranges = rank.reduced("ranges", _OF_STEPS, only_steps)
    # Nor more columns at once than one of them needs: ops may be millions.
    tables = _read(rank, _NEEDED | {"ops": ()}, ranges)
    windows = step_windows(ranges, [tables["kernels"], tables["copies"]])
    yield "steps", [steps.steps_of_rank(tables, windows, rank.rank)]
    ops = {"ops": rank.read("ops", summary.NEEDED["ops"])}
    yield "summary", [summary.totals(tables | ops, rank.rank).table()]
    del ops
    # Where kernels take no time at all, that of the recording is that of its ops.
    activities = [tables["kernels"], tables["copies"]]
    by_kernels = tables["kernels"].num_rows and recorded_span(activities, tables["trace"])
    tables["ops"] = rank.read("ops", _OPS_OF_KERNELS if by_kernels else _NEEDED["ops"])
    bins = ledger.of_tables(tables)
    bins.insert(0, "rank", rank.rank)
    yield "ledger", [_arrow(LEDGER, bins)]
    used = utilization.utilization(tables, windows, rank.devices(), None, rank.rank)
    yield "utilization", [_arrow(UTILIZATION, used)]
    del tables
    parts = {name: rank.parts(name) for name in line_table.INPUT if name != "ranges"}
    yield "lines", line_table.lines_of_rank(parts | {"ranges": InMemory(ranges)}, rank.rank)


def _read(
    rank: RankTables, needed: Mapping[str, Collection[str]], ranges: pa.Table
) -> dict[str, pa.Table]:
    found = rank.several({name: needed[name] for name in needed if name != "ranges"})
    return found | {"ranges": ranges}


def _arrow(table: Table, frame: pd.DataFrame) -> pa.Table:
    found = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    return table.conform(found)
