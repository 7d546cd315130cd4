"""Link GPU activities: number them, find their launch, and take over what their op knows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import Bool, Int, combine_keys, last_not_after
from pyprof2.analysis.link import NO_ID
from pyprof2.recording import Recording, code_column, int_column

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.analysis.link import Ops, Threads

LINKS: Final = ["none", "correlation", "external_id", "graph", "range"]


@dataclass(frozen=True)
class Launches:
    """The launches in the order of their ids, and the op around each by position, -1 for none."""

    row: Int
    thread: Int
    start: Int
    correlation: Int
    op: Int
    is_graph: Bool


def link_launches(recording: Recording, ops: Ops, threads: Threads) -> Launches:
    """Return the launches in start order, each with the innermost op that holds its start."""
    row, start, _ = _in_time_order(recording, "launches")
    table = recording.read("launches", ["pid", "tid", "name"], row)
    thread = threads.number(table)
    name, names = code_column(table, "name")
    is_graph = np.array(["GraphLaunch" in text for text in names] or [False])[name]
    del table
    correlation = int_column(
        recording.read("launches", ["correlation_id"], row), "correlation_id", NO_ID
    )
    return Launches(row, thread, start, correlation, ops.nest.innermost(thread, start), is_graph)


def _in_time_order(recording: Recording, name: str) -> tuple[Int, Int, Int]:
    """Return the order of a raw table's rows, and their starts and durations in that order.

    Ties: longer first, then by correlation, which grows with the order of the launches.
    """
    start, dur, correlation = (
        int_column(recording.read(name, [column]), column, missing)
        for column, missing in (("start_ns", 0), ("dur_ns", 0), ("correlation_id", NO_ID))
    )
    row = np.lexsort((correlation, -dur, start))
    return row, start[row], dur[row]


@dataclass(frozen=True)
class Activities:
    """GPU activities in the order of their ids; launch and op by position, -1 for none."""

    id: Int
    row: Int
    start: Int
    dur: Int
    launch: Int
    op: Int
    link: Int
    is_kernel: Bool

    def __len__(self) -> int:
        return len(self.row)

    def at(self, rows: Int | Bool | slice) -> Activities:
        """Return some of them."""
        return Activities(*(getattr(self, field.name)[rows] for field in fields(self)))


def link_activities(
    recording: Recording, launches: Launches, ops: Ops, threads: Threads
) -> Activities:
    """Return kernels and copies in start order, each with its launch and its op.

    A launch is found by its correlation id, within the process where the file tells the process;
    of several of one id it is the last that starts not after the kernel.
    """
    row, start, dur = _in_time_order(recording, "activities")
    table = recording.read("activities", ["pid", "correlation_id", "recorded_id", "kind"], row)
    kind, kinds = code_column(table, "kind")
    is_kernel = np.array([text == "kernel" for text in kinds] or [False])[kind]
    launch = _launches_of(table, start, launches, threads)
    op = np.where(launch >= 0, launches.op[launch], -1) if len(launches.op) else launch
    by_time = "range" if recording.ops_are_ranges else "correlation"
    link = np.where(op >= 0, LINKS.index(by_time), LINKS.index("none"))
    link[_named_by_recorder(recording, table, op, ops)] = LINKS.index("external_id")
    if len(launches.is_graph):
        link[(launch >= 0) & launches.is_graph[launch]] = LINKS.index("graph")
    return Activities(np.arange(len(row)), row, start, dur, launch, op, link, is_kernel)


def _launches_of(table: pa.Table, start: Int, launches: Launches, threads: Threads) -> Int:
    correlation = int_column(table, "correlation_id", NO_ID)
    pid = int_column(table, "pid", NO_ID)
    # Kineto does not say which process a kernel belongs to: there the id alone must do.
    by_process = bool((pid != NO_ID).any())
    of_launch = threads.pids[threads.process(launches.thread)]
    pids = np.concatenate((of_launch, pid))
    keys = combine_keys(
        pids if by_process else np.zeros_like(pids),
        np.concatenate((launches.correlation, correlation)),
    )
    key, wanted = keys[: len(of_launch)], keys[len(of_launch) :]
    order = np.lexsort((launches.start, key))
    found = last_not_after(key[order], launches.start[order], wanted, start)
    # A clock that drifts can put the kernel before its launch.
    first = np.searchsorted(key[order], wanted)
    late = (found < 0) & (first < len(order))
    late[late] = key[order][first[late]] == wanted[late]
    found[late] = first[late]
    result = np.where(found >= 0, order[found], -1) if len(order) else found
    return np.where(correlation == NO_ID, -1, result)


def _named_by_recorder(recording: Recording, table: pa.Table, op: Int, ops: Ops) -> Bool:
    """Return for which activities the recorder's own id names the op that encloses the launch."""
    if not recording.trusts_recorded_id or not len(ops):
        return np.zeros(len(op), bool)
    of_op = int_column(recording.read("ops", ["recorded_id"]), "recorded_id", NO_ID)
    named = int_column(table, "recorded_id", NO_ID)
    return np.asarray((op >= 0) & (named != NO_ID) & (of_op[ops.row[op]] == named), bool)
