"""What is to be known of each call wherever it stands: where its line is, what it launched.

A call may hand work over long before that runs. So this is found for all calls beforehand, in
order of time, and takes some bytes for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import last_not_after
from pyprof2.analysis.parted import ENDLESS, Parted
from pyprof2.analysis.time.causes import BLOCKING, CODES
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.host_ranges import BELOW_ROOT, OWN, TOLD
from pyprof2.analysis.time.host_state import Calls, Lines
from pyprof2.analysis.time.rows_in_time import RowsInTime
from pyprof2.columns import lookup
from pyprof2.recording import int_column

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.time.host_facts import HostFacts

CALL_COLUMNS: Final = ("launch_id", "name", "op_id", "start_ns", "dur_ns", "pid", "tid")
"""The columns of `launches` that calls are read from."""
_BLOCKING: Final = [CODES[name] for name in BLOCKING]


@dataclass(frozen=True)
class CallFacts:
    """By call: rows are ids, or those of the calls that were chosen.

    Attributes:
        launching: whether it launched any work.
        waited: of those, whether its thread asked for a wait since it launched any before.
        line: of those and the ones that may block, the line of the user's own that its thread was
            at when it began, as a code, -1 for none.
    """

    launching: Bool
    waited: Bool
    line: NDArray[np.int32]

    @classmethod
    def of_launches(cls, launching: Bool) -> CallFacts:
        """Begin with the ids of the calls that launched work."""
        return cls(launching, np.zeros(len(launching), bool), np.full(len(launching), -1, np.int32))

    def of(self, launch_id: Int) -> CallFacts:
        """Return what is known of some calls."""
        return CallFacts(self.launching[launch_id], self.waited[launch_id], self.line[launch_id])

    def at(self, column: str, row: Int) -> Int:
        """Return a column at these rows; of row -1 nothing is known, and no line."""
        return lookup(getattr(self, column), row, -1 if column == "line" else 0)


def read_calls(launches: Parted, launching: Bool, facts: HostFacts) -> CallFacts:
    """Return what is to be known of all calls.

    Args:
        launches: the canonical table.
        launching: by id whether a call launched work; longer than the greatest id.
        facts: of the recording.
    """
    found = CallFacts.of_launches(launching)
    rows, told = RowsInTime(launches, CALL_COLUMNS), RowsInTime(facts.told, TOLD.names)
    waits = _Waits(len(facts.threads.pids) * len(facts.threads.tids))
    begins = np.unique(launches.bounds("start_ns")[0])
    for until in [*begins[begins < ENDLESS].tolist(), ENDLESS]:
        calls = Calls.of(rows.take_until(until).unify_dictionaries(), facts.threads)
        if not len(calls.start):
            continue
        launches_work = launching[calls.launch_id]
        own = np.flatnonzero(launches_work)
        found.waited[calls.launch_id[own]] = waits.between(calls, own)
        if facts.lines:
            asked = np.flatnonzero(launches_work | np.isin(calls.cause, _BLOCKING))
            lines = _lines_from(told, calls.start, facts)
            found.line[calls.launch_id[asked]] = lines.at(calls.thread[asked], calls.start[asked])
    return found


def _lines_from(told: RowsInTime, times: Int, facts: HostFacts) -> Lines:
    """Return the lines at some times; what ended before them is held no longer."""
    since = int(times.min())

    def wanted(rows: pa.Table) -> Bool:
        start, dur, tells = (int_column(rows, n, 0) for n in ("start_ns", "dur_ns", "tells"))
        found: Bool = (tells & (BELOW_ROOT | OWN) > 0) & (start + dur > since)
        return found

    told.keep(wanted(told.rows))
    return Lines(told.read_until(int(times.max()) + 1, wanted), facts.threads)


class _Waits:
    """The calls of each thread that let a stream wait, window by window."""

    def __init__(self, thread_count: int) -> None:
        self._last_wait = np.full(thread_count, NEVER)
        self._last_launch = np.full(thread_count, NEVER)

    def between(self, calls: Calls, own: Int) -> Bool:
        """Return whether there is a wait between a launch and the one before it on its thread.

        Args:
            calls: those of a window; calls of later ones begin later.
            own: the rows of those that launched work.
        """
        begin, waiting = calls.start[own], np.flatnonzero(calls.is_wait)
        wait = _latest(self._last_wait, calls, waiting, own, begin)
        launch = _latest(self._last_launch, calls, own, own, begin - 1)
        for last, rows in ((self._last_wait, waiting), (self._last_launch, own)):
            np.maximum.at(last, calls.thread[rows], calls.start[rows])
        found: Bool = (wait > NEVER) & (wait >= launch)
        return found


def _latest(before: Int, calls: Calls, among: Int, of: Int, time: Int) -> Int:
    """Return the latest start of some calls on the threads of others, not after a time."""
    row = among[np.lexsort((calls.start[among], calls.thread[among]))]
    thread = calls.thread[of]
    at = last_not_after(calls.thread[row], calls.start[row], thread, time)
    return np.where(at >= 0, lookup(calls.start[row], at, NEVER), before[thread])
