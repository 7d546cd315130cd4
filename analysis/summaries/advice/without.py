"""How much earlier a rank would be done without parts of its host's work: by replay.

The host is one line: GPU calls one after another, each as long after the one before as recorded,
less what is left out. A call that waited goes on as long after the activity that it waited for. An
activity starts when its launch and the one before it on its stream allow it, each with the lag that
was recorded, or the usual one where the other decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pandas as pd

from pyprof2.analysis.intervals import Bool, Int, merged, time_within
from pyprof2.analysis.time.cause_names import BLOCKING
from pyprof2.analysis.time.queue import awaited_work, last_ended
from pyprof2.columns import combine_keys

_MOST_EVENTS: Final = 500_000
"""A replay of more takes too long."""
_LAUNCHED: Final = 0.98
"""The least share of activities whose launch is recorded."""
_TRUE: Final = 0.02
"""How far a replay with nothing left out may be from what was recorded, as a share of it."""
_CLOCKS_NS: Final = 2_000
_CLOCK_NS: Final = 1_000
"""Times of some recorders are whole us."""
_WAIT_NS: Final = 30_000
_USUAL_NS: Final = 1_000
_NONE: Final = -1


class Frames(Protocol):
    """The tables of a rank: `RankFacts` has them."""

    def count(self, name: str) -> int:
        """Return how many rows a table has."""

    def rows(self, name: str, *columns: str) -> pd.DataFrame:
        """Return columns of a table."""

    def work(self, *columns: str) -> pd.DataFrame:
        """Return columns of kernels, and then of copies."""


@dataclass(frozen=True)
class Replay:
    """The calls and activities of a rank, in order of their starts.

    Attributes:
        start, end: of the calls.
        waited: by call the activity that it waited for, or -1.
        launch: by activity its call.
        stream: of each activity, a small number.
        began, ended: of each activity, as recorded.
        by_launch, by_stream: its lags after the start of its launch, and after its stream's last.
        behind: the activity of another stream that it waited for, or -1.
        first, finish: when the recording of the host began and ended.
    """

    start: Int
    end: Int
    waited: Int
    launch: Int
    stream: Int
    began: Int
    ended: Int
    by_launch: Int
    by_stream: Int
    behind: Int
    first: int
    finish: int

    @classmethod
    def of(cls, facts: Frames) -> Replay | None:
        """Return what was recorded of a rank; None where that is not enough."""
        if sum(map(facts.count, ("kernels", "copies", "launches"))) > _MOST_EVENTS:
            return None
        calls = facts.rows("launches", "launch_id", "start_ns", "dur_ns", "cause")
        work = facts.work("start_ns", "dur_ns", "launch_id", "device", "stream")
        if not len(work):
            return None
        calls = calls.sort_values("start_ns", kind="stable")
        launch = pd.Series(np.arange(len(calls)), calls["launch_id"]).reindex(work["launch_id"])
        known = launch.notna().to_numpy(bool)
        if known.mean() < _LAUNCHED:
            return None
        work = work[known].assign(call=launch[known].to_numpy(np.int64))
        work = work.sort_values(["call", "start_ns"], kind="stable")
        start, began = (table["start_ns"].to_numpy(np.int64) for table in (calls, work))
        end = start + calls["dur_ns"].to_numpy(np.int64)
        ended = began + work["dur_ns"].to_numpy(np.int64)
        place = (work[name].fillna(-1).to_numpy(np.int64) for name in ("device", "stream"))
        call, stream = work["call"].to_numpy(), combine_keys(*place)
        before = (
            pd.Series(ended)
            .groupby(stream, observed=True)
            .shift(fill_value=_NONE)
            .to_numpy(np.int64)
        )
        late = before <= end[call]
        after, behind = began - start[call], began - before
        usual = [int(np.median(lag)) if len(lag) else _USUAL_NS for lag in (
            after[late], behind[~late & (behind >= 0) & (behind <= _WAIT_NS)])]  # fmt: skip
        by_launch = np.where(late, after, np.minimum(after, usual[0]))
        by_stream = np.where(late & (before >= 0), np.minimum(behind, usual[1]), behind)
        lags = (by_launch, np.where(before >= 0, by_stream, 0))
        free = np.maximum(start[call] + by_launch, np.where(before >= 0, before + usual[1], _NONE))
        other = last_ended(ended, began)
        waits = (began - free > _CLOCKS_NS) & (other >= 0) & (began - ended[other] <= _WAIT_NS)
        waits &= (stream[other] != stream) & (other < np.arange(len(began)))
        lags[1][waits & (before >= 0)] = usual[1]
        lags[0][waits] = np.minimum(lags[0], usual[0])[waits]
        own = np.searchsorted(call, np.arange(len(calls)), "right") - 1
        own = np.where((own >= 0) & (call[own] == np.arange(len(calls))), own, _NONE)
        woken = awaited_work(start, end, own, ended)
        blocks = (woken >= 0) & calls["cause"].isin(BLOCKING).to_numpy(bool)
        blocks &= call[woken] <= np.arange(len(calls))
        trace = facts.rows("trace", "start_ns", "end_ns")
        first = min([int(start[0]), *trace["start_ns"].dropna().tolist()])
        finish = max([int(end.max()), *trace["end_ns"].dropna().tolist()])
        found = cls(
            start, end, np.where(blocks, woken, _NONE), call, stream, began, ended, *lags,
            np.where(waits, other, _NONE), first, finish,
        )  # fmt: skip
        whole = max(finish, int(ended.max()))
        off = abs(found._done(np.zeros(0, np.int64), np.zeros(0, np.int64)) - whole)
        return found if off <= _TRUE * (whole - first) else None

    def gain_ns(self, start: Int, end: Int, *, keeps: bool = False) -> int:
        """Return how much earlier all is done without what the host does in some intervals.

        Args:
            start: of the intervals, disjoint and in order.
            end: of each.
            keeps: whether work that was launched in them is handed over all the same.
        """
        nothing = np.zeros(0, np.int64)
        return self._done(nothing, nothing) - self._done(start, end, keeps=keeps)

    def _done(self, start: Int, end: Int, *, keeps: bool = False) -> int:
        """Return when host and device are done; see `gain_ns`."""
        inside = _inside(start, end, self.start)
        latest = np.maximum.accumulate(self.end)
        since = np.r_[self.first, np.minimum(latest[:-1], self.start[1:])]
        gaps = self.start - since - time_within(start, end, since, self.start)
        lengths = self.end - self.start - time_within(start, end, self.start, self.end)
        made, ends = self._replayed(gaps, lengths, inside, keeps=keeps)
        last = int(latest[-1])
        rest = self.finish - last - int(
            time_within(start, end, np.array([last]), np.array([max(last, self.finish)]))[0]
        )  # fmt: skip
        return max(made + rest, ends)

    def _replayed(self, gaps: Int, lengths: Int, inside: Bool, *, keeps: bool) -> tuple[int, int]:
        """Return when the last call returns, and when the last activity ends."""
        # A recurrence, in which each start needs the ends before it: it has no form by columns.
        first = np.searchsorted(self.launch, np.arange(len(gaps) + 1)).tolist()
        takes = (self.ended - self.began).tolist()
        woke = (self.end - np.where(self.waited >= 0, self.ended[self.waited], 0)).tolist()
        held = np.where(inside, _NONE, self.waited).tolist()
        since = (self.began - np.where(self.behind >= 0, self.ended[self.behind], 0)).tolist()
        by_launch, by_stream = self.by_launch.tolist(), self.by_stream.tolist()
        streams, behind, gone = self.stream.tolist(), self.behind.tolist(), inside.tolist()
        ends, free = [0] * len(takes), [0] * (int(self.stream.max(initial=-1)) + 1)
        clock = self.first
        for call, (gap, length) in enumerate(zip(gaps.tolist(), lengths.tolist(), strict=True)):
            clock += gap
            for at in range(first[call], first[call + 1]):
                stream = streams[at]
                if gone[call] and not keeps:
                    ends[at] = free[stream]
                    continue
                ready = max(clock + by_launch[at], free[stream] + by_stream[at])
                if behind[at] >= 0:
                    ready = max(ready, ends[behind[at]] + since[at])
                ends[at] = free[stream] = ready + takes[at]
            waits = held[call]
            clock = clock + length if waits < 0 else max(clock, ends[waits] + woke[call])
        return clock, max(free, default=0)


def blocks_around(facts: Frames, calls: pd.DataFrame, *, wide: bool) -> tuple[Int, Int]:
    """Return the outermost op around each call, or the call itself, as disjoint intervals.

    Args:
        facts: of the rank.
        calls: some of its GPU calls.
        wide: also what the thread does before and after it, up to other ops and calls.
    """
    columns = ("pid", "tid", "start_ns", "dur_ns")
    tables = [facts.rows("ops", *columns), facts.rows("launches", *columns), calls]
    pid, tid, start, length = (
        np.concatenate([table[name].to_numpy("int64", na_value=_NONE) for table in tables])
        for name in ("pid", "tid", "start_ns", "dur_ns")
    )
    thread = combine_keys(pid, tid)
    is_asked = np.arange(len(start)) >= len(start) - len(calls)
    parts = [(start[:0], start[:0])]
    for each in np.unique(thread[is_asked]).tolist():
        own = thread == each
        # A call that begins as another ends, by the clocks, is not inside of it.
        unsure = np.minimum(length[own] // 2, _CLOCK_NS)
        begin, end = merged(start[own], start[own] + length[own] - unsure)
        end = np.minimum(end + _CLOCK_NS, np.r_[begin[1:], end[-1:] + _CLOCK_NS])
        at = np.unique(np.searchsorted(begin, start[own & is_asked], "right") - 1)
        if wide:
            first = np.r_[begin[:1], end[:-1]][at]
            parts.append((first, np.r_[begin[1:], end[-1:]][at]))
        else:
            parts.append((begin[at], end[at]))
    first, last = (np.concatenate(column) for column in zip(*parts, strict=True))
    return merged(first, last)


def _inside(start: Int, end: Int, time: Int) -> Bool:
    """Return which times are in any of the intervals."""
    found: Bool = time_within(start, end, time, time + 1) > 0
    return found
