"""The steps of inference servers, the work that each launched, and the times of a step.

Work belongs to the step whose range holds the beginning of its launch: while a step's range is open
the device mostly works for the step before, so nothing is given to a step by time.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.hardware.kernel_names import bounded
from pyprof2.analysis.intervals import merged, time_within, union_length
from pyprof2.analysis.serving.batches import Batch, batch_from, batch_of
from pyprof2.analysis.serving.generate import INPUT as GENERATE_INPUT
from pyprof2.analysis.serving.generate import calls_in_generate, is_generating
from pyprof2.analysis.time.cause_names import CODES, call_cause
from pyprof2.analysis.time.queue import awaited_work
from pyprof2.columns import lookup, row_of
from pyprof2.recording import code_column, int_column
from pyprof2.result_tables import SERVING_STEPS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyprof2.analysis.intervals import Bool, Int

_WORK: Final = ("device", "stream", "start_ns", "dur_ns", "launch_ns", "launch_id")
INPUT: Final = {
    "kernels": _WORK,
    "copies": _WORK,
    "launches": ("launch_id", "start_ns", "dur_ns", "pid", "tid", "name"),
    "ranges": ("start_ns", "dur_ns", "pid", "tid", "name", "kind", "domain"),
}
"""The columns of the canonical tables that the table `serving_steps` is made of."""

OUTSIDE: Final = "outside"
_GRAPH_LAUNCH: Final = re.compile(r"GraphLaunch")
_BLOCKING_COPY: Final = bounded(r"[Mm]emcpy(?!.*Async)")
_NONE: Final = -1
_OF_DEVICES: Final = "device annotation"
_NOT_OF_HOST: Final = ("python", "module", _OF_DEVICES)


class _StreamRange(NamedTuple):
    """When a stream of a device worked for a range of the host's."""

    device: int
    stream: int
    start: int
    end: int


class _Range(NamedTuple):
    """The range of a step on its thread.

    Attributes:
        start, end: of the outermost range that names the step.
        inner_start, inner_end: of the innermost.
        batch: what they say.
        seen_as: what the ranges of all streams that saw it have in common; None: the host did.
        of_devices: where each stream saw it.
    """

    thread: tuple[int, int]
    start: int
    end: int
    inner_start: int
    inner_end: int
    batch: Batch
    seen_as: str | None = None
    of_devices: tuple[_StreamRange, ...] = ()


class _LaunchedWork(NamedTuple):
    """The activities of the devices of a rank.

    Attributes:
        start, end: in ns.
        own_ns: of each the time in which no activity of its device that began before it ran.
        step: the position of the step that launched each; -1: none.
        launch_ns: when each was launched.
        by_graph: whether a graph's launch did.
        elsewhere: whether another thread than that of the step did.
        by_range: whether only the range of the device says so.
    """

    start: Int
    end: Int
    own_ns: Int
    step: Int
    launch_ns: Int
    by_graph: Bool
    elsewhere: Bool
    by_range: Bool


def serving_steps(
    tables: Mapping[str, pa.Table], rank: int, pattern: re.Pattern[str] | None = None
) -> pa.Table:
    """Return the table `serving_steps` of a rank; no row without a range of a server's.

    Args:
        tables: canonical ones of the rank, with the columns `INPUT`.
        rank: its number.
        pattern: of the names of the user's own server; see `batches.batch_from`.
    """
    steps = _ranges_of_steps(tables, pattern)
    if not steps:
        return SERVING_STEPS.empty()
    work, waits = _work_of(tables, steps), _calls_that_wait(tables)
    order = np.argsort(work.step, kind="stable")
    bounds = np.searchsorted(work.step[order], np.arange(-1, len(steps) + 1))
    outside, *own = (order[first:last] for first, last in pairwise(bounds.tolist()))
    rows = [_row(at, each, own[at], work, waits) for at, each in enumerate(steps)]
    for row, following in pairwise(rows):
        if None not in (row["start_ns"], following["start_ns"]):
            row["period_ns"] = following["start_ns"] - row["start_ns"]
    if len(outside):
        rows.append({"phase": OUTSIDE, **_times(work, outside)})
    ranked = [row | {"rank": rank} for row in rows]
    return pa.Table.from_pylist(ranked, schema=SERVING_STEPS.schema())


class StepsWork(NamedTuple):
    """The steps of a rank, and the activities of its devices: kernels, then copies.

    Attributes:
        batches: of each step.
        step: of each activity the position of the step that launched it; -1: none.
        own_ns: of each the time in which no activity of its device that began before it ran.
        by_graph: whether a graph's launch launched it.
    """

    batches: list[Batch]
    step: Int
    own_ns: Int
    by_graph: Bool


def work_of_steps(
    tables: Mapping[str, pa.Table], pattern: re.Pattern[str] | None = None
) -> StepsWork:
    """Return the steps and which activities are theirs; arguments as of `serving_steps`."""
    steps = _ranges_of_steps(tables, pattern)
    work = _work_of(tables, steps)
    batches = [each.batch for each in steps]
    return StepsWork(batches, work.step, work.own_ns, work.by_graph)


def input_of(
    ranges: pa.Table, needed: Mapping[str, Collection[str] | None]
) -> dict[str, Collection[str] | None]:
    """Return the columns needed of each table, with those in which shapes are if names say none.

    Args:
        ranges: of the rank; of them the name is asked for.
        needed: such as `INPUT`.
    """
    _, names = code_column(ranges, "name")
    return {**needed, **(GENERATE_INPUT if is_generating(names) else {})}


def _ranges_of_steps(
    tables: Mapping[str, pa.Table], pattern: re.Pattern[str] | None
) -> list[_Range]:
    """Return the ranges of steps in order of time; of two in one another both name one step."""
    ranges = tables["ranges"]
    codes, names = code_column(ranges, "name")
    batches = [(pattern and batch_from(name, pattern)) or batch_of(name) for name in names]
    is_step = np.array([batch is not None for batch in (*batches, None)])[codes]
    kinds, kind_names = code_column(ranges, "kind")
    of_host = np.array([name not in _NOT_OF_HOST for name in (*kind_names, None)])[kinds]
    of_device = np.array([name == _OF_DEVICES for name in (*kind_names, None)])[kinds]
    # The reader keeps ranges of devices only where no launch is recorded.
    by_device = bool((is_step & of_device).any())
    at = np.flatnonzero(is_step & (of_device if by_device else of_host))
    domains, texts = code_column(ranges, "domain")
    start, dur, pid, tid = (
        int_column(ranges, name, _NONE)[at] for name in ("start_ns", "dur_ns", "pid", "tid")
    )
    # A range without a length was open when recording stopped: its work is not all there.
    order = np.lexsort((-dur, start))
    order = order[dur[order] > 0]
    columns = (column[order].tolist() for column in (codes[at], domains[at], start, dur, pid, tid))
    by_thread: dict[tuple[int, int], list[list[_Range]]] = {}
    for code, domain, begin, length, *thread in zip(*columns, strict=True):
        if (batch := batches[code]) is not None:
            times = begin, begin + length
            place = thread[0], thread[1]
            seen = (_StreamRange(*place, *times),) if by_device else ()
            common = texts[domain] if by_device and domain >= 0 else None
            one = _Range(place, *times, *times, batch, common, seen)
            _put(by_thread.setdefault(place, []), one)
    if not by_thread and "ops" in tables:
        return [
            _Range(each.thread, *2 * (each.start, each.end), each.batch)
            for each in calls_in_generate(tables)
        ]
    steps = [step for nests in by_thread.values() for nest in nests for step in _steps_in(nest)]
    return sorted(_over_streams(steps), key=lambda step: (step.start, step.thread))


def _over_streams(steps: list[_Range]) -> list[_Range]:
    """Return the steps, those that several streams saw put together."""
    found: list[_Range] = []
    seen: dict[str, int] = {}
    for step in steps:
        if step.seen_as is None or step.seen_as not in seen:
            if step.seen_as is not None:
                seen[step.seen_as] = len(found)
            found.append(step)
            continue
        other = found[seen[step.seen_as]]
        found[seen[step.seen_as]] = other._replace(
            start=min(other.start, step.start),
            end=max(other.end, step.end),
            inner_start=min(other.inner_start, step.inner_start),
            inner_end=max(other.inner_end, step.inner_end),
            of_devices=other.of_devices + step.of_devices,
        )
    return found


def _put(nests: list[list[_Range]], one: _Range) -> None:
    """Add a range, which begins after those before it, to the nest that it is in, or a new one."""
    if nests and one.end <= nests[-1][0].end:
        nests[-1].append(one)
    else:
        nests.append([one])


def _steps_in(nest: list[_Range]) -> list[_Range]:
    """Return the steps of a range and those in it: one, or several that are side by side in it."""
    outer, *rest = nest
    inside: list[list[_Range]] = []
    for each in rest:
        _put(inside, each)
    found = [step for each in inside for step in _steps_in(each)]
    if len(found) == 1:
        return [_named_twice(outer, found[0])]
    return found or [outer]


def _named_twice(outer: _Range, inner: _Range) -> _Range:
    """Return a step that two ranges name, by the one that says more."""
    both = outer.batch, inner.batch
    batch = max(reversed(both), key=lambda each: each.known_count)
    tokens = [(each.context.sq, each.generation.sq) for each in both]
    differ = [
        words
        for words, first, other in (
            ("phase", *(each.phase for each in both)),
            ("tokens in context", *(each[0] for each in tokens)),
            ("tokens in generation", *(each[1] for each in tokens)),
        )
        if first != other and None not in (first, other)
    ]
    if differ:
        words = f"{both[0].dialect} and {both[1].dialect} differ in {differ[0]}"
        batch = batch.without_sums(words)
    return outer._replace(inner_start=inner.inner_start, inner_end=inner.inner_end, batch=batch)


def _work_of(tables: Mapping[str, pa.Table], steps: Sequence[_Range]) -> _LaunchedWork:
    """Return the activities of a rank's devices, each with the step that launched it."""
    both = pa.concat_tables([tables[name].select(_WORK) for name in ("kernels", "copies")])
    device, stream, start, dur, launch_ns, launch_id = (
        int_column(both, name, _NONE) for name in _WORK
    )
    launches = tables["launches"]
    at = row_of(int_column(launches, "launch_id", _NONE), launch_id)
    pid, tid = (lookup(int_column(launches, name, _NONE), at, _NONE) for name in ("pid", "tid"))
    codes, names = code_column(launches, "name")
    is_graph = np.array([bool(_GRAPH_LAUNCH.search(name)) for name in names], bool)
    by_graph = lookup(lookup(is_graph, codes, 0), at, 0).astype(bool)
    step, elsewhere = np.full(len(start), _NONE), np.zeros(len(start), np.int64)
    of_other = step.copy()
    for thread in sorted({each.thread for each in steps}):
        own = np.array([at for at, each in enumerate(steps) if each.thread == thread])
        begin = np.array([steps[at].start for at in own])
        end = np.array([steps[at].end for at in own])
        place = np.searchsorted(begin, launch_ns, "right") - 1
        inside = (at >= 0) & (pid == thread[0]) & (place >= 0) & (launch_ns < end[place])
        here = inside & (tid == thread[1])
        step[here] = own[place[here]]
        of_other[inside] = own[place[inside]]
        elsewhere += inside
    # Where steps of several threads are open, another thread's launch is of nobody knows which.
    is_other = (step == _NONE) & (elsewhere == 1)
    step[is_other] = of_other[is_other]
    by_range = _of_streams(step, (device, stream, start), steps)
    own_ns = np.zeros(len(start), np.int64)
    for each in np.unique(device):
        rows = np.flatnonzero(device == each)
        rows = rows[np.argsort(start[rows], kind="stable")]
        first, last = start[rows], (start + dur)[rows]
        until = np.maximum.accumulate(np.append(first[:1], last[:-1]))
        own_ns[rows] = np.maximum(last - np.maximum(first, until), 0)
    return _LaunchedWork(start, start + dur, own_ns, step, launch_ns, by_graph, is_other, by_range)


def _of_streams(step: Int, places: tuple[Int, Int, Int], steps: Sequence[_Range]) -> Bool:
    """Give activities to the steps in whose range on their stream they begin, if it is one.

    Args:
        step: of each activity; those that are found are set.
        places: device, stream and start of each.
        steps: in order.

    Returns:
        Which were found so.
    """
    device, stream, start = places
    seen = [(at, each) for at, own in enumerate(steps) for each in own.of_devices]
    found = np.zeros(len(step), bool)
    for place in {(each.device, each.stream) for _, each in seen}:
        rows = np.flatnonzero((device == place[0]) & (stream == place[1]))
        own = [(at, each) for at, each in seen if (each.device, each.stream) == place]
        count, total = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for sign, times in ((1, [each.start for _, each in own]), (-1, [e.end for _, e in own])):
            order = np.argsort(times, kind="stable")
            passed = np.searchsorted(np.array(times)[order], start[rows], "right")
            sums = np.cumsum(np.append(0, np.array([at for at, _ in own])[order]))
            count += sign * passed
            total += sign * sums[passed]
        # Where one range is open, the sum of those that are is its step.
        step[rows[count == 1]] = total[count == 1]
        found[rows[count == 1]] = True
    return found


def _calls_that_wait(tables: Mapping[str, pa.Table]) -> dict[tuple[int, int], tuple[Int, Int]]:
    """Return starts and ends of calls that wait for the device, by thread, disjoint."""
    launches = tables["launches"]
    codes, names = code_column(launches, "name")
    is_wait = np.array(
        [call_cause(n) == CODES["sync"] or bool(_BLOCKING_COPY.search(n)) for n in names], bool
    )
    start, dur, pid, tid, ids = (
        int_column(launches, name, _NONE)
        for name in ("start_ns", "dur_ns", "pid", "tid", "launch_id")
    )
    # A copy that is asynchronous by its name may still return when it is done.
    copied, began, took = (
        int_column(tables["copies"], name, _NONE) for name in ("launch_id", "start_ns", "dur_ns")
    )
    order = np.argsort(copied, kind="stable")
    copy = lookup(order, row_of(copied[order], ids), _NONE)
    waits = (copy >= 0) & (awaited_work(start, start + dur, copy, began + took) >= 0)
    at = np.flatnonzero(lookup(is_wait, codes, 0).astype(bool) | waits)
    start, dur, pid, tid = (column[at] for column in (start, dur, pid, tid))
    threads = set(zip(pid.tolist(), tid.tolist(), strict=True))
    own = {thread: (pid == thread[0]) & (tid == thread[1]) for thread in threads}
    return {thread: merged(start[rows], (start + dur)[rows]) for thread, rows in own.items()}


def _row(
    at: int,
    step: _Range,
    own: Int,
    work: _LaunchedWork,
    waits: Mapping[tuple[int, int], tuple[Int, Int]],
) -> dict[str, Any]:
    """Return the row of a step, with the positions of its own work."""
    batch, launch_ns = step.batch, work.launch_ns[own]
    whole = np.array([step.start]), np.array([step.end])
    waited = time_within(*waits[step.thread], *whole) if step.thread in waits else [0]
    sums = {
        f"{kind}_{name}": value
        for kind, each in (("c", batch.context), ("g", batch.generation))
        for name, value in vars(each).items()
    }
    most_out = (batch.generation.sq, batch.context.req)
    moment = work.start[own] if step.of_devices else launch_ns
    inner = own[(moment >= step.inner_start) & (moment < step.inner_end)]
    return {
        "serving_step": at,
        "dialect": batch.dialect,
        "phase": batch.phase,
        "requests": batch.requests,
        **sums,
        "padded": batch.padded,
        "contradiction": batch.contradiction,
        "host_start_ns": None if step.of_devices else step.start,
        "host_ns": None if step.of_devices else step.end - step.start,
        "wait_ns": None if step.of_devices else int(waited[0]),
        # Drafts may be refused, and a chunk need not end its prompt.
        "out_least": batch.generation.req,
        "out_most": None if most_out.count(None) else sum(filter(None, most_out)),
        **_times(work, own, inner if len(inner) else own),
    }


def _times(work: _LaunchedWork, own: Int, forward: Int | None = None) -> dict[str, int | None]:
    """Return the times of activities of devices, and how they were launched.

    Args:
        work: of a rank.
        own: the positions in it that count.
        forward: those of them that the span goes around; None: it has none.
    """
    by_graph, by_range = (int(each[own].sum()) for each in (work.by_graph, work.by_range))
    found: dict[str, int | None] = {
        "launched": len(own) - by_graph - by_range,
        "launched_by_graph": by_graph,
        "by_device_range": by_range,
        "launched_elsewhere": int(work.elsewhere[own].sum()),
        "device_ns": int(work.own_ns[own].sum()),
    }
    if forward is not None and len(forward):
        start, end = work.start[forward], work.end[forward]
        busy_ns, span_ns = union_length(start, end), int(end.max() - start.min())
        found |= {
            "start_ns": int(start.min()), "span_ns": span_ns, "busy_ns": busy_ns,
            "gap_ns": span_ns - busy_ns,
        }  # fmt: skip
    return dict.fromkeys(("start_ns", "span_ns", "busy_ns", "gap_ns", "period_ns")) | found
