"""Python frames that never return in a recording: what it says elsewhere of where they ended.

A frame whose return was not recorded ends with its caller, or with the recording. Frames have ids,
and name the id of their caller: a frame has ended where another one begins that an outer frame
called. After the last thing that is known to run in it, it may have ended at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.columns import combine_keys, lookup, order_of, row_of
from pyprof2.problems import FRAMES_ENDLESS
from pyprof2.recording import LostTime, int_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyprof2.recording import Recording, Rows

_KINDS: Final = ("python", "module")
_NONE: Final = -(1 << 62)
_ROUNDED_NS: Final = 1_000
"""Recorders round times to microseconds."""


class _ThreadFrames(NamedTuple):
    """The frames that have ids, by thread and start.

    Attributes:
        row: their places among the ranges.
        thread: a number for each.
        start, end: in ns.
        caller: the place of the frame that called each, on its thread; -1: not known.
        pid, tid: of the thread.
    """

    row: Rows
    thread: Rows
    start: Rows
    end: Rows
    caller: Rows
    pid: Rows
    tid: Rows


def examine_frames(recording: Recording) -> None:
    """End the frames that never return, and count them; note when it is not known what ran."""
    if not recording.spool.known["ranges", "frame_caller"]:
        return
    frames = _read(recording)
    ended = _ends(frames)
    changed = np.flatnonzero(ended < frames.end)
    if not len(changed):
        return
    recording.problems[FRAMES_ENDLESS] += len(changed)
    sure = _sure_until(recording, frames, ended, changed)
    raw = recording.spool.raw("ranges", ("dur_ns",))
    dur = int_column(raw, "dur_ns", 0).copy()
    dur[frames.row[changed]] = (sure - frames.start)[changed]
    recording.spool.replace("ranges", {"dur_ns": dur})
    recording.lost_times += [
        LostTime(pid, tid, begin, end)
        for pid, tid, begin, end in zip(
            *(c[changed].tolist() for c in (frames.pid, frames.tid, sure, ended)), strict=True
        )
        if begin < end
    ]


def _read(recording: Recording) -> _ThreadFrames:
    names = ("kind", "start_ns", "dur_ns", "pid", "tid", "frame_id", "frame_caller")
    raw = recording.spool.raw("ranges", names)
    codes = [recording.spool.texts["ranges"]["kind"].get(kind, -2) for kind in _KINDS]
    own = np.isin(int_column(raw, "kind", -1), codes)
    columns = {name: int_column(raw, name, _NONE) for name in names[1:]}
    row = np.flatnonzero(own & (columns["frame_id"] != _NONE))
    start, dur, pid, tid, number, caller = (columns[name][row] for name in names[1:])
    thread = combine_keys(pid, tid)
    order = order_of(thread, start, -dur)
    row, start, end = row[order], start[order], (start + dur)[order]
    thread, pid, tid, number, caller = (c[order] for c in (thread, pid, tid, number, caller))
    # An id is of one process.
    own_id = combine_keys(np.r_[pid, pid], np.r_[number, caller])
    by_id = np.argsort(own_id[: len(row)], kind="stable")
    found = lookup(by_id, row_of(own_id[by_id], own_id[len(row) :]), -1)
    found = np.where((found >= 0) & (thread[found] == thread), found, -1)
    return _ThreadFrames(row, thread, start, end, found, pid, tid)


def _ends(frames: _ThreadFrames) -> Rows:
    """Return when frames ended at the latest, as far as that is sooner than recorded."""
    start, end, caller = frames.start, frames.end, frames.caller
    ended = end.copy()
    outer_start, outer_end = lookup(start, caller, _NONE), lookup(end, caller, 1 << 62)
    holds = (caller >= 0) & (outer_start <= start) & (start < outer_end)
    # Returns that were recorded have times of their own.
    open_ = (end == end.max(initial=_NONE)) | (holds & (end >= outer_end))
    while True:
        outer = np.where(holds, lookup(ended, caller, 1 << 62), 1 << 62)
        over = ended > outer + _ROUNDED_NS
        if not over.any():
            break
        ended[over] = np.maximum(outer, start)[over]
    # Another frame of an outer one, which began before it.
    last = np.searchsorted(frames.thread, frames.thread, "right")
    for at in np.flatnonzero(open_).tolist():
        stop = at + 1 + int(np.searchsorted(start[at + 1 : last[at]], ended[at]))
        others = outer_start[at + 1 : stop]
        sooner = (others < start[at]) & (caller[at + 1 : stop] >= 0)
        if sooner.any():
            ended[at] = start[at + 1 + int(sooner.argmax())]
    return ended


def _sure_until(
    recording: Recording, frames: _ThreadFrames, ended: Rows, changed: Rows
) -> NDArray[np.int64]:
    """Return until when each frame is known to run: to its end, but for those without a return.

    Those run while frames do that they called; one that called none is around the first op.
    """
    raw = recording.spool.raw("ops", ("pid", "tid", "start_ns", "dur_ns"))
    pid, tid, start, dur = (int_column(raw, name, _NONE) for name in raw.column_names)
    both = combine_keys(np.r_[frames.pid, pid], np.r_[frames.tid, tid])
    of_frame, of_op = np.split(both, [len(frames.end)])
    order = order_of(of_op, start, -dur)
    ops = {number: order[of_op[order] == number] for number in np.unique(of_op).tolist()}
    sure = frames.end.copy()
    sure[changed] = frames.start[changed]
    is_changed = np.zeros(len(sure), bool)
    is_changed[changed] = True
    # Inner ones before outer ones: these began before.
    called = is_changed[frames.caller] & (frames.caller >= 0)
    for at in np.flatnonzero(called | is_changed)[::-1].tolist():
        if is_changed[at] and sure[at] == frames.start[at]:
            own = ops.get(int(of_frame[at]), order[:0])
            first = int(np.searchsorted(start[own], sure[at]))
            if first < len(own) and start[own[first]] < ended[at]:
                sure[at] = min(start[own[first]] + dur[own[first]], ended[at])
        if called[at]:
            outer = frames.caller[at]
            sure[outer] = max(sure[outer], min(sure[at], ended[outer]))
    return sure
