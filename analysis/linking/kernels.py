"""Link kernels and copies, those of CUDA graphs too: number them, find their launch and its op.

A kernel of a replayed graph has the launch of the graph; its op ran when that was captured, see
`pyprof2.analysis.graphs`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.linking.threads import (
    NO_ID,
    ProcessEvidence,
    candidates,
    choose_processes,
)
from pyprof2.columns import combine_keys, lookup, order_of
from pyprof2.problems import (
    DEVICE_SHARED,
    UNKNOWN_PROCESS,
    WORK_AT_ZERO,
    WORK_BEFORE_LAUNCH,
    with_detail,
)
from pyprof2.recording import Recording, code_column, int_column
from pyprof2.units import format_time

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.analysis.linking.threads import Threads

_KEYS: Final = ("pid", "correlation_id", "recorded_id", "kind", "device", "process")
LINKS: Final = [
    "none", "correlation", "external_id", "graph", "range", "graph_id", "graph_names",
    "graph_order", "compiled",
]  # fmt: skip

_CLOCK_NS: Final = 1_000
"""Clocks of host and device agree no better than this."""
UNSURE: Final = "several processes have a launch of its correlation id"
"""The `link_note` of an activity whose process is not known."""


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
    row = order_of(start, -dur, correlation)
    return row, start[row], dur[row]


@dataclass(frozen=True)
class LinkedActivities:
    """GPU activities in the order of their ids; launch and op by position, -1 for none.

    A whole graph that was recorded as one activity counts as a kernel. `is_unsure`: several
    processes have a launch of its id, and nothing says which of them it is. A kernel of a replayed
    graph has no op, but a `node`, row of `graph_nodes`; a note on how that was found, as a code;
    and, as ids of activities, the first one of the call of its op in this replay, and of the call
    of the op whose counts it shares; -1 where these are not known.
    """

    id: Int
    row: Int
    start: Int
    dur: Int
    launch: Int
    op: Int
    link: Int
    is_kernel: Bool
    is_whole_graph: Bool
    is_unsure: Bool
    node: Int
    replay_note: Int
    call: Int
    cost_call: Int

    def __len__(self) -> int:
        return len(self.row)

    def at(self, rows: Int | Bool | slice) -> LinkedActivities:
        """Return some of them."""
        return LinkedActivities(*(getattr(self, field.name)[rows] for field in fields(self)))


def link_activities(
    recording: Recording, launches: Launches, ops: Ops, threads: Threads
) -> LinkedActivities:
    """Return kernels and copies in start order, each with its launch and its op.

    A launch is found by its process and correlation id; of several of one id it is the last that
    starts not after the kernel. Where the file does not say the process of the GPU's work, and
    there are several, see `pyprof2.analysis.linking.threads`.
    """
    row, start, dur = _in_time_order(recording, "activities")
    table = recording.read("activities", _KEYS, row)
    kind, kinds = code_column(table, "kind")
    is_whole_graph = np.array([text == "graph" for text in kinds] or [False])[kind]
    is_kernel = np.array([text == "kernel" for text in kinds] or [False])[kind] | is_whole_graph
    launch, unsure = _launches_of(recording, table, start, launches, threads)
    ahead = np.where(launch >= 0, lookup(launches.start, launch, 0) - start, 0)
    early = ahead >= _CLOCK_NS
    if recording.problems[WORK_AT_ZERO]:  # those are counted already
        early &= start != 0
    if early.any():
        # By the least power of ten that the time is not above.
        power, count = np.unique(np.ceil(np.log10(ahead[early])), return_counts=True)
        for each, times in zip(power.tolist(), count.tolist(), strict=True):
            key = with_detail(WORK_BEFORE_LAUNCH, format_time(10 ** int(each)))
            recording.problems[key] += times
    op = np.where(launch >= 0, launches.op[launch], -1) if len(launches.op) else launch
    by_time = "range" if recording.ops_are_ranges else "correlation"
    link = np.where(op >= 0, LINKS.index(by_time), LINKS.index("none"))
    if recording.trusts_recorded_id and len(ops):
        # The recorder's own id names the op that encloses the launch.
        of_op = int_column(recording.read("ops", ["recorded_id"]), "recorded_id", NO_ID)
        named = int_column(table, "recorded_id", NO_ID)
        same = (op >= 0) & (named != NO_ID) & (of_op[ops.row[op]] == named)
        link[same] = LINKS.index("external_id")
    is_replayed = np.zeros(len(row), bool)
    if len(launches.is_graph):
        is_replayed = (launch >= 0) & launches.is_graph[launch]
    link[is_replayed | is_whole_graph] = LINKS.index("graph")
    # The op around the launch of a graph is the one that replays it, not that of its kernels.
    op = np.where(is_replayed & ~is_whole_graph, -1, op)
    none: Int = np.broadcast_to(np.array(-1, np.int64), len(row))
    return LinkedActivities(
        np.arange(len(row)), row, start, dur, launch, op, link, is_kernel, is_whole_graph, unsure,
        none, none, none, none,
    )  # fmt: skip


def _launches_of(
    recording: Recording, table: pa.Table, start: Int, launches: Launches, threads: Threads
) -> tuple[Int, Bool]:
    """Return the launch of each activity, and of which several processes may be the one."""
    correlation = int_column(table, "correlation_id", NO_ID)
    pid = int_column(table, "pid", NO_ID)
    of_launch = threads.pids[threads.process(launches.thread)]
    unsure = np.zeros(len(pid), bool)
    if not (pid != NO_ID).any():
        # Kineto does not say which process an activity belongs to: mostly there is only one.
        pid, unsure = _processes(recording, table, start, launches, of_launch)
    keys = combine_keys(
        np.concatenate((of_launch, pid)), np.concatenate((launches.correlation, correlation))
    )
    key, wanted = keys[: len(of_launch)], keys[len(of_launch) :]
    found, _ = candidates(key, launches.start, wanted, start)
    return np.where(correlation == NO_ID, -1, found), unsure


def _processes(
    recording: Recording, table: pa.Table, start: Int, launches: Launches, of_launch: Int
) -> tuple[Int, Bool]:
    """Return the process id of each activity, `NO_ID` where it is not known, and where not."""
    pids = np.unique(of_launch)
    if len(pids) < 2:
        return np.full(len(start), pids[0] if len(pids) else NO_ID), np.zeros(len(start), bool)
    correlation = int_column(table, "correlation_id", NO_ID)
    of_call = int_column(
        recording.read("launches", ["recorded_id"], launches.row), "recorded_id", -1
    )
    recorded = int_column(table, "recorded_id", NO_ID)
    has_call, is_before, named = (np.zeros((len(pids), len(start)), bool) for _ in range(3))
    for at, pid in enumerate(pids.tolist()):
        own = np.flatnonzero(of_launch == pid)
        call, is_before[at] = candidates(
            launches.correlation[own], launches.start[own], correlation, start
        )
        has_call[at] = (call >= 0) & (correlation != NO_ID)
        if recording.trusts_recorded_id:
            named[at] = has_call[at] & (lookup(of_call[own], call, -1) == recorded)
            # An id of another op speaks against the launch.
            has_call[at] &= named[at] | (recorded <= 0) | (lookup(of_call[own], call, -1) <= 0)
    is_before &= has_call
    evidence = ProcessEvidence(
        has_call,
        np.where(is_before.any(axis=0), is_before, has_call),
        named,
        _labelled(recording, table, pids),
    )
    chosen, unsure = choose_processes(evidence, int_column(table, "device", -1), correlation)
    if unsure.any():
        recording.problems[UNKNOWN_PROCESS] += int(unsure.sum())
    used = np.unique(np.stack((int_column(table, "device", -1), chosen))[:, chosen >= 0], axis=1)[0]
    if len(shared := np.unique(used[:-1][used[1:] == used[:-1]])):
        recording.problems[DEVICE_SHARED] += len(shared)
    return lookup(pids, chosen, NO_ID), unsure


def _labelled(recording: Recording, table: pa.Table, pids: Int) -> Bool:
    """Return by process and activity whether the file may write one label before the ids of both.

    Where labels say anything, an activity whose label no process has is of none of them.
    """
    code, labels = code_column(table, "process")
    place = {label: at for at, label in enumerate(labels)}
    names = [recording.process_labels.get(pid) for pid in pids.tolist()]
    of_pid = np.array([-1 if name is None else place.get(name, -2) for name in names])
    if of_pid.max() < 0:
        return np.ones((len(pids), len(code)), bool)
    same: Bool = (code == -1) | (of_pid == -1)[:, None] | (of_pid[:, None] == code)
    return same
