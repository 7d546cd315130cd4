"""Why a step takes as long as it does where no device worked: one cause for every instant.

The thread that holds the steps, else the one that is in ops for the longest, is what a step waits
for. Its work at an instant is found as in the gap of a device that the host is late for, see
`idle_causes`; what it waits for another thread or process in is `sync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.chunked import InMemory, whole
from pyprof2.analysis.time.cause_names import CODES, GROUPS_WITHOUT_DEVICE
from pyprof2.analysis.time.gaps import NEVER, Gaps, read_activities
from pyprof2.analysis.time.host_ranges import FLAGGED, in_memory, read_host
from pyprof2.analysis.time.host_state import Events, Host, Stalls, State, read_calls
from pyprof2.analysis.time.idle import IN_PARTS, in_key_order, numbered
from pyprof2.analysis.time.idle_causes import OTHER, THREADS, Handover, idle_causes, idle_rows
from pyprof2.analysis.time.recordings import recorded_window, recordings, source_root, window_with
from pyprof2.analysis.time.step_windows import step_windows
from pyprof2.columns import text_array
from pyprof2.recording import code_column, int_column
from pyprof2.tables import IDLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.time.host_ranges import HostFacts

STEPPING: Final = "stepping"
"""The value of column `thread` for the thread that holds the steps."""
_WHO: Final = dict(zip(THREADS, (STEPPING, THREADS[OTHER]), strict=True))


def host_time(tables: Mapping[str, pa.Table], root: str | None = None) -> pa.Table:
    """Return what the steps of all ranks waited for, ops included, where no device worked.

    Args:
        tables: the columns `idle.INPUT` of the canonical tables of all ranks.
        root: the folder of the user's own code; None: that which each recording names.

    Returns:
        Rows as of table `idle`, of no device; `group` is one of `GROUPS_WITHOUT_DEVICE`, `thread`
        is `STEPPING` or `other`. Their times add up to the recording window of each rank; nothing
        of a rank without ops.
    """
    parts = [IDLE.empty()]
    for rank, own in recordings(tables):
        if own["ops"].num_rows:
            rows = _of_recording(own, root or source_root(own["trace"]))
            parts.append(IDLE.conform(numbered(rows, rank, own["trace"])))
    return pa.concat_tables(parts).unify_dictionaries()


def host_windows(times: pd.DataFrame) -> pd.DataFrame:
    """Return how long the host of each rank was recorded, and in ops.

    Args:
        times: what `host_time` returns.

    Returns:
        One row per rank: `rank`, `device` (null), `window_ns`, `busy_ns` (in ops), `idle_ns`.
    """
    in_ops = times["time_ns"].where(times["cause"] == "host_op", 0)
    by = pd.DataFrame({"rank": times["rank"], "window_ns": times["time_ns"], "busy_ns": in_ops})
    windows = by.astype("int64").groupby("rank", as_index=False, observed=True).sum()
    windows["idle_ns"] = windows["window_ns"] - windows["busy_ns"]
    windows.insert(1, "device", pd.Series(pd.NA, windows.index, "Int64"))
    return windows


class _HostAlone(Host):
    """A host without a device: it waits for other threads and processes only."""

    def __init__(self, facts: HostFacts, tables: Mapping[str, pa.Table]) -> None:
        """Read all that was recorded, see `idle.in_key_order`."""
        launches = tables["launches"]
        most = int(int_column(launches, "launch_id", -1).max(initial=-1))
        known = read_calls(InMemory(launches), np.zeros(most + 2, bool), facts)
        super().__init__(facts, launches, tables["ops"], whole(facts.flagged, FLAGGED.names), known)

    def state(self, thread: Int, time: Int) -> State:
        """Return what each thread does at an instant; to wait is no Python that runs."""
        state = super().state(thread, time)
        waits = (state.cause == CODES["host_python"]) & (self.waiting.at(thread, time) >= 0)
        return state._replace(cause=np.where(waits, CODES["sync"], state.cause))


def _of_recording(tables: Mapping[str, pa.Table], root: str | None) -> pa.Table:
    """Return the rows of one recording, without the column `rank`."""
    tables = in_key_order(tables)
    facts = read_host({n: InMemory(tables[n]) for n in IN_PARTS}, tables["stalls"], root, in_memory)
    host = _HostAlone(facts, tables)
    start = int_column(tables["ops"], "start_ns", 0)
    end = start + int_column(tables["ops"], "dur_ns", 0)
    first, last = window_with(start, end, recorded_window(tables["trace"]))
    no_calls = np.zeros(0, np.int64)
    nothing = read_activities(tables["kernels"], tables["copies"], no_calls, no_calls)
    # A gap from start to end, which nothing ends and the host fills.
    gap = Gaps(*(np.array([each]) for each in (NEVER, first, last, -1, 1, *[NEVER] * 3, -1)))
    none, until, known = np.array([-1]), np.array([last]), np.ones(1, bool)
    # The thread that is in steps for the longest; without steps the one that is in ops.
    events = Events.of(facts.steps, facts.threads)
    if not len(events.row):
        events = Events.of(tables["ops"], facts.threads)
    events = events.union()
    times = np.bincount(events.thread, events.end - events.start, minlength=1)
    handover = Handover(none, until, until, ~known, known, np.array([int(times.argmax())]))
    stalls = Stalls(tables["stalls"], facts.threads)
    causes = idle_causes(gap, nothing, host, stalls, handover=handover)
    rows = idle_rows(causes, step_windows(tables["ranges"], []), gap, nothing, host, tables["ops"])
    return _renamed(
        _renamed(rows, "cause", "group", GROUPS_WITHOUT_DEVICE), "thread", "thread", _WHO
    )


def _renamed(rows: pa.Table, read: str, name: str, texts: Mapping[str, str]) -> pa.Table:
    """Return the rows with a column that has for each text of another one what `texts` says."""
    code, known = code_column(rows, read)
    column = text_array((code, [texts[each] for each in known]))
    return rows.set_column(rows.column_names.index(name), name, column)
