"""Where a long recording may be cut, so that what comes before and after is linked by itself.

At a cut nothing is under way that linking looks across: no op of any thread, no module's call, no
step of an optimizer, no work of FSDP, no capture of a graph, and no forward op that still waits for
its node of autograd.
Where there are nodes at all, a pass of forward begins there, or what is before it, such as loading
its data, and there are nodes before the next step of an optimizer. Longer ranges, such as the
frames around a whole training, are known on both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from pyprof2.analysis.chunked import ENDLESS
from pyprof2.analysis.intervals import merged
from pyprof2.analysis.linking.directions import is_optimizer_op, is_optimizer_step, is_other_work
from pyprof2.analysis.linking.passes import is_node_name
from pyprof2.columns import order_of
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.recording import Recording

TIMES: Final = {
    "ops": "start_ns", "launches": "start_ns", "ranges": "start_ns", "memory": "time_ns",
    "memory_tags": "time_ns", "weights": "time_ns", "stalls": "start_ns", "flows": "time_ns",
    "activities": "start_ns", "counters": "time_ns", "created_nodes": "time_ns",
}  # fmt: skip
"""The raw tables, and the columns by which their rows are before or after a cut."""
_WHOLE_KINDS: Final = ("module", "layer", "internal")
"""Ranges that are linked as a whole: what is in them depends on all that is in them."""

Spans: TypeAlias = "tuple[Int, Int]"
"""Starts and ends of closed intervals."""
NO_SPANS: Final = (np.empty(0, np.int64), np.empty(0, np.int64))


def begins_capture(call: str) -> bool:
    """Return whether a call begins the capture of a graph."""
    return call.startswith(tuple(f"{api}StreamBeginCapture" for api in ("cuda", "hip", "cu")))


def ends_capture(call: str) -> bool:
    """Return whether a call ends the capture of a graph."""
    return call.startswith(tuple(f"{api}StreamEndCapture" for api in ("cuda", "hip", "cu")))


def find_cuts(recording: Recording, rows_at_least: int) -> Int:
    """Return the times before which a window ends, in order; none where it is too short.

    Args:
        recording: the raw tables.
        rows_at_least: how many rows of all tables a window has, but the last.
    """
    counts = recording.spool.counts
    if sum(counts[table] for table in TIMES) < 2 * rows_at_least or len(recording.pids) > 1:
        # One of several processes may be in the middle of what another has ended.
        return np.empty(0, np.int64)
    times = _quiet_times(recording)
    if not len(times):
        return times
    rows = np.zeros(len(times) + 1, np.int64)
    for table, column in TIMES.items():
        for part in recording.spool.slices(table, (column,)):
            window = np.searchsorted(times, int_column(part, column, 0), "right")
            rows += np.bincount(window, minlength=len(rows))
    before = np.cumsum(rows)
    chosen: list[int] = []
    done, last = 0, int(before[-1]) - rows_at_least
    while (at := int(np.searchsorted(before, done + rows_at_least))) < len(times):
        done = int(before[at])
        if done > last:
            break
        chosen.append(at)
    found: Int = times[chosen]
    return found


def marked_texts(
    recording: Recording, table: str, column: str, is_wanted: Callable[[str], bool]
) -> Bool:
    """Return which codes of a text column are wanted; the last is that of null, -1."""
    texts = recording.spool.texts[table][column]
    return np.array([*map(is_wanted, texts), False])


def _quiet_times(recording: Recording) -> Int:
    """Return the times before which the recording may be cut, but the first.

    They are starts of ops; where the first op is in a capture, the capture's.
    """
    begin, last = _op_spans(recording)
    runs, nodes, has_nodes = _pair_spans(recording)
    if not len(begin) or (has_nodes and not len(runs[0])):
        # Without numbers nothing says where backward has come to its end.
        return begin[:0]
    captures = _capture_spans(recording)
    others = [_flow_spans(recording), _range_spans(recording), captures]
    start, end = merged(*_together([(begin, last), runs, *others]))
    # Between the begin of a module and its first op there is nothing that an op says anything of.
    at = np.minimum(np.searchsorted(begin, start), len(begin) - 1)
    may_be = (begin[at] >= start) & (begin[at] <= end)
    if has_nodes:
        forward = np.sort(runs[0])
        first = forward[np.minimum(np.searchsorted(forward, begin[at]), len(forward) - 1)]
        may_be &= (first >= begin[at]) & (first <= end)
        # Ops that no range is around are other work if they are before a step, and after a node.
        steps = _optimizer_starts(recording)
        node, step = (
            np.r_[times, ENDLESS][np.searchsorted(times, start)] for times in (nodes, steps)
        )
        may_be &= node < step
    found: Int = begin[at[may_be]][1:]
    if not len(captures[0]):
        return found
    capture = np.maximum(np.searchsorted(captures[0], found, "right") - 1, 0)
    is_inside = (captures[0][capture] <= found) & (found <= captures[1][capture])
    return np.where(is_inside, captures[0][capture], found)


def _together(spans: Iterable[Spans]) -> Spans:
    starts, ends = zip(*spans, strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _merged_parts(parts: Iterable[Spans]) -> Spans:
    """Return the stretches of time that the intervals of all parts cover."""
    return merged(*_together([NO_SPANS, *(merged(*part) for part in parts)]))


def _spans(rows: pa.Table) -> Spans:
    start = int_column(rows, "start_ns", 0)
    return start, start + int_column(rows, "dur_ns", 0)


def _op_spans(recording: Recording) -> Spans:
    """Return the stretches of time in which ops run.

    A convolution reaches to the op that follows it, whose input may have its result's shape.
    """
    is_conv = marked_texts(recording, "ops", "op", lambda text: "conv" in text)

    def of_part(rows: pa.Table) -> Spans:
        start, end = _spans(rows)
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        conv = np.flatnonzero(is_conv[int_column(rows, "op", -1)[order]])
        following = np.minimum(np.searchsorted(start, end[conv], "right"), len(start) - 1)
        end[conv] = np.maximum(end[conv], start[following])
        return start, end

    return _merged_parts(map(of_part, recording.spool.slices("ops", ("start_ns", "dur_ns", "op"))))


def _pair_spans(recording: Recording) -> tuple[Spans, Int, bool]:
    """Return from where to where forward ops and the nodes of their number reach.

    In order of time, forward ops of a number are followed by its nodes, until it is used again.
    Nodes whose forward op was not recorded wait for nothing.

    Returns:
        The spans, when nodes with a number begin, in order, and whether there are nodes at all,
        with a number or without.
    """
    (number, start, end, is_node), has_nodes = _numbered(recording)
    if not is_node.any():
        return NO_SPANS, NO_SPANS[0], has_nodes
    order = order_of(number, start)
    number, start, end, is_node = number[order], start[order], end[order], is_node[order]
    goes_on = (number[1:] == number[:-1]) & (is_node[1:] | ~is_node[:-1])
    first = np.flatnonzero(np.r_[True, ~goes_on])
    is_pair = np.logical_or.reduceat(is_node, first) & ~is_node[first]
    runs = start[first][is_pair], np.maximum.reduceat(end, first)[is_pair]
    return runs, np.sort(start[is_node]), has_nodes


def _numbered(recording: Recording) -> tuple[tuple[Int, Int, Int, Bool], bool]:
    """Return of each op with a sequence number this, start, end, and whether it is a node.

    And whether any op is one, with a number or without.
    """
    columns = ("start_ns", "dur_ns", "op", "sequence_nr", "forward_thread", "direction")
    named = marked_texts(recording, "ops", "op", is_node_name)
    backward = marked_texts(recording, "ops", "direction", lambda text: text == "backward")
    numbers, starts, ends, nodes = ([np.empty(0, np.int64)] for _ in range(4))
    has_nodes = False
    for rows in recording.spool.slices("ops", columns):
        number = int_column(rows, "sequence_nr", -1)
        is_node = named[int_column(rows, "op", -1)] | (int_column(rows, "forward_thread", 0) > 0)
        is_node |= backward[int_column(rows, "direction", -1)]
        has_nodes |= bool(is_node.any())
        has_one = number >= 0
        values = (number, *_spans(rows), is_node)
        for kept, column in zip((numbers, starts, ends, nodes), values, strict=True):
            kept.append(column[has_one])
    return (_one(numbers), _one(starts), _one(ends), _one(nodes) > 0), has_nodes


def _one(parts: list[Int]) -> Int:
    """Join the parts, and let go of them: there may be as many rows as ops."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _flow_spans(recording: Recording) -> Spans:
    """Return from where to where the recorder's own pairs reach, and others of the same id."""
    columns = [
        (int_column(rows, "flow_id", -1), int_column(rows, "time_ns", 0))
        for rows in recording.spool.slices("flows", ("flow_id", "time_ns"))
    ]
    if not columns:
        return NO_SPANS
    number, time = _together(columns)
    order = order_of(number, time)
    number, time = number[order], time[order]
    first = np.flatnonzero(np.r_[True, number[1:] != number[:-1]])
    return time[first], np.maximum.reduceat(time, first)


def _range_spans(recording: Recording) -> Spans:
    """Return the stretches of time in which there are ranges that are linked as a whole."""
    of_kind = marked_texts(recording, "ranges", "kind", lambda text: text in _WHOLE_KINDS)
    notes = marked_texts(recording, "ranges", "kind", lambda text: text == "annotation")
    of_name = marked_texts(recording, "ranges", "name", _is_whole)

    def of_part(rows: pa.Table) -> Spans:
        kind, name = int_column(rows, "kind", -1), int_column(rows, "name", -1)
        kept = of_kind[kind] | (notes[kind] & of_name[name])
        start, end = _spans(rows)
        return start[kept], end[kept]

    columns = ("start_ns", "dur_ns", "kind", "name")
    return _merged_parts(map(of_part, recording.spool.slices("ranges", columns)))


def _optimizer_starts(recording: Recording) -> Int:
    """Return when steps of optimizers begin, in order, and ops that only these call."""
    wanted = (
        ("ranges", "name", is_optimizer_step),
        ("ops", "op", is_optimizer_op),
        ("ops", "direction", lambda text: text == "optimizer"),
    )
    found = [NO_SPANS[0]]
    for table, column, is_wanted in wanted:
        marks = marked_texts(recording, table, column, is_wanted)
        found += [
            int_column(rows, "start_ns", 0)[marks[int_column(rows, column, -1)]]
            for rows in (recording.spool.slices(table, ("start_ns", column)) if marks.any() else ())
        ]
    return np.sort(_one(found))


def _capture_spans(recording: Recording) -> Spans:
    """Return the stretches of time in which a thread captures a graph, or several at once.

    What one begins within another, and what it never ends, says nothing of those around: these are
    linked as a whole.
    """
    begins = marked_texts(recording, "launches", "name", begins_capture)
    ends = marked_texts(recording, "launches", "name", ends_capture)
    if not begins.any():
        return NO_SPANS
    parts = []
    for rows in recording.spool.slices("launches", ("name", "start_ns", "tid")):
        name = int_column(rows, "name", -1)
        kept = begins[name] | ends[name]
        columns = (int_column(rows, "tid", -1), int_column(rows, "start_ns", 0), begins[name])
        parts.append([column[kept] for column in columns])
    if not parts:
        return NO_SPANS
    tid, time, is_begin = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = order_of(tid, time)
    first: list[int] = []
    last: list[int] = []
    thread, count = -1, 0
    for row in order.tolist():
        if tid[row] != thread:
            thread, count = tid[row], 0
        if is_begin[row] and not count:
            first.append(time[row])
            last.append(time[row])
        elif count:
            last[-1] = time[row]
        count = max(count + (1 if is_begin[row] else -1), 0)
    return merged(np.array(first, np.int64), np.array(last, np.int64))


def _is_whole(name: str) -> bool:
    return is_optimizer_step(name) or is_other_work(name) or name.startswith("FSDP::")
