"""What profilers say held a thread or a stream up: the canonical table `stalls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import last_not_after
from pyprof2.analysis.time.host_state import Events
from pyprof2.analysis.time.pieces import Bounds, Pieces
from pyprof2.columns import combine_keys, lookup
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.threads import Threads

_NULL: Final = -(1 << 62)
_ALL: Final = -1
"""Stands for the thread of a stall that holds up all of them."""


def _is(kinds: Sequence[str], kind: str) -> Bool:
    """Return for each code whether it is a kind; the last one is none."""
    return np.array([*(each == kind for each in kinds), False])


class Stalls:
    """The stalls of one recording, by kind."""

    def __init__(self, stalls: pa.Table, threads: Threads) -> None:
        code, kinds = code_column(stalls, "kind")
        is_threads = int_column(stalls, "tid", _NULL) != _NULL
        thread = np.where(is_threads, threads.number(stalls), _ALL)
        device, of_device = int_column(stalls, "device", _NULL), _is(kinds, "device_wait")[code]
        self._devices = np.unique(device[of_device])
        self._first_free = int(thread.max(initial=-1)) + 1
        thread[of_device] = self.device_thread(device[of_device])
        events = Events.of(stalls, threads)
        self._events = Events(events.row, thread[events.row], events.start, events.end)
        self._code, self._kinds = code, kinds
        place = np.stack([int_column(stalls, name, _NULL) for name in ("device", "stream")])
        start = int_column(stalls, "start_ns", 0)
        waits = self._of_kind("stream_wait")
        rows = np.flatnonzero(waits)
        order = rows[np.lexsort((start[rows], *place[::-1, rows]))]
        self._wait_place, self._wait_start = place[:, order], start[order]
        self._held: dict[str, tuple[Events, Bounds]] = {}

    def _of_kind(self, kind: str) -> Bool:
        found: Bool = _is(self._kinds, kind)[self._code]
        return found

    def _holding(self, kind: str) -> tuple[Events, Bounds]:
        """Return the stalls of a kind that hold threads up, and when they begin and end."""
        if kind not in self._held:
            events = self._events.where(self._of_kind(kind)[self._events.row])
            both = np.concatenate((events.start, events.end))
            self._held[kind] = events, Bounds(np.tile(events.thread, 2), both)
        return self._held[kind]

    def device_thread(self, device: Int) -> Int:
        """Return what stands for the thread of the waits of each device: no thread of a stall."""
        at = np.searchsorted(self._devices, device)
        known = np.r_[self._devices, _NULL][at] == device
        return self._first_free + np.where(known, at, len(self._devices))

    def cut(self, pieces: Pieces, thread: Int, kind: str) -> Pieces:
        """Return the pieces, cut where stalls of the kind begin and end on their thread.

        Args:
            pieces: of intervals.
            thread: of each interval.
            kind: of the stalls.
        """
        _, bounds = self._holding(kind)
        pieces = pieces.cut(bounds, thread[pieces.of])
        return pieces.cut(bounds, np.full(len(pieces), _ALL))

    def holds(self, thread: Int, time: Int, kind: str) -> Bool:
        """Return whether a stall of the kind holds each thread up at an instant."""
        events, _ = self._holding(kind)
        held: Bool = events.at(thread, time) >= 0
        return held | (events.at(np.full(len(time), _ALL), time) >= 0)

    def last_wait(self, device: Int, stream: Int, time: Int) -> Int:
        """Return when the last wait of each stream before a time was asked for, or long ago."""
        count = len(self._wait_start)
        if not count:
            return np.full(len(time), _NULL)
        devices, streams = np.concatenate((self._wait_place, np.stack((device, stream))), axis=1)
        key = combine_keys(devices, streams)  # sorts as both do, as the waits are
        start = self._wait_start
        return lookup(start, last_not_after(key[:count], start, key[count:], time), _NULL)
