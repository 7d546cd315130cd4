"""Which of the ranges that are called like steps are steps, and which number each has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pyprof2.recording import int_column, renumbered_step, step_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyprof2.recording import Rows, Spool

OPEN_STEP: Final = "open step"
"""The kind of a range that is no step: recording stopped in it, or nothing begins in it any more.
"""
_NO_ID: Final = -(1 << 62)
_STARTS_WORK: Final = re.compile(r"Launch|[Mm]emcpy|[Mm]emset")
"""Calls that start work; others, such as waits, are made by the profiler when it stops, too."""


class StepSpan(NamedTuple):
    """A range that may be a step; of the profiler's own schedule, or called like one."""

    start_ns: int
    end_ns: int
    pid: int | None
    tid: int | None
    name: str
    is_scheduled: bool = False

    @property
    def thread(self) -> tuple[int | None, int | None]:
        """The process and the thread."""
        return self.pid, self.tid


@dataclass
class ChosenSteps:
    """The kinds of ranges that may be steps.

    Attributes:
        kinds: of each: `step`, `annotation` or `OPEN_STEP`.
        names: of each, with another number where one comes again.
        empty_count: how many steps there are in which nothing begins.
    """

    kinds: list[str]
    names: list[str]
    empty_count: int = 0


def choose_steps(
    spans: Sequence[StepSpan], spool: Spool, with_marks: Collection[int | None]
) -> ChosenSteps:
    """Return which of the ranges are steps.

    A range without a length was open when recording stopped. Of those that are called like steps it
    is the outermost ones, of the thread on which most begins in them; those of other threads are
    parts of a step if they have its number and overlap it. A last step in which nothing begins is
    none: only the loop's end.

    Args:
        spans: the ranges.
        spool: of their recording, whose ops and launches are all appended.
        with_marks: the processes whose steps our marks say.
    """
    found = ChosenSteps(["annotation"] * len(spans), [span.name for span in spans])
    scheduled = {span.pid for span in spans if span.is_scheduled}
    may_be = [
        at
        for at, span in enumerate(spans)
        if span.is_scheduled or span.pid not in scheduled | {*with_marks}
    ]
    for at in may_be:
        found.kinds[at] = OPEN_STEP if spans[at].start_ns == spans[at].end_ns else "annotation"
    may_be = [at for at in may_be if found.kinds[at] != OPEN_STEP]
    threads = _by_thread(spans, _outermost(spans, may_be))
    begun = _begun(spans, threads, spool)
    for pid in dict.fromkeys(thread[0] for thread in threads):
        own = [thread for thread in threads if thread[0] == pid]
        steps = _of_process(spans, {thread: threads[thread] for thread in own}, begun)
        counts = [begun[at].of_process for at in steps]
        if any(counts) and not counts[-1]:
            found.kinds[steps.pop()] = OPEN_STEP
            counts.pop()
        if spool.counts["ops"] or spool.counts["launches"]:
            found.empty_count += counts.count(0)
        for at, name in zip(steps, _numbered_on([spans[at] for at in steps]), strict=True):
            found.kinds[at], found.names[at] = "step", name
    return found


def _outermost(spans: Sequence[StepSpan], rows: Sequence[int]) -> list[int]:
    """Return those of the ranges that are in no other one of their thread, in order of time."""
    kept: list[int] = []
    ends: dict[tuple[Any, ...], int] = {}
    for at in sorted(rows, key=lambda at: (spans[at].start_ns, -spans[at].end_ns)):
        span = spans[at]
        if span.is_scheduled or span.end_ns > ends.get(span.thread, span.start_ns):
            kept.append(at)
            ends[span.thread] = span.end_ns
    return kept


def _by_thread(
    spans: Sequence[StepSpan], rows: Iterable[int]
) -> dict[tuple[int | None, int | None], list[int]]:
    threads: dict[tuple[int | None, int | None], list[int]] = {}
    for at in rows:
        threads.setdefault(spans[at].thread, []).append(at)
    return threads


class _Begun(NamedTuple):
    """How many ops and calls begin in a range on its thread, and how many run in it on any."""

    on_thread: int
    of_process: int


def _begun(
    spans: Sequence[StepSpan],
    threads: dict[tuple[int | None, int | None], list[int]],
    spool: Spool,
) -> dict[int, _Begun]:
    """Return what is begun in each range; those of a thread are in order and do not overlap."""
    bounds = {
        thread: np.array([(spans[at].start_ns, spans[at].end_ns) for at in rows], np.int64).T
        for thread, rows in threads.items()
    }
    counts = {thread: np.zeros((2, len(rows)), np.int64) for thread, rows in threads.items()}
    for start, stop, pid, tid in _beginnings(spool) if threads else ():
        for thread, (begin, end) in bounds.items():
            ids = [_NO_ID if each is None else each for each in thread]
            place = np.searchsorted(begin, start, "right") - 1
            own = (pid == ids[0]) & (place >= 0) & (start < end[place])
            # A step has what runs on into it, too.
            reached = np.searchsorted(begin, stop, "left") - 1
            reaches = (pid == ids[0]) & (reached > place)
            counts[thread][0] += np.bincount(place[own & (tid == ids[1])], minlength=len(begin))
            counts[thread][1] += np.bincount(place[own], minlength=len(begin))
            counts[thread][1] += np.bincount(reached[reaches], minlength=len(begin))
    return {
        at: _Begun(*pair)
        for thread, rows in threads.items()
        for at, pair in zip(rows, counts[thread].T.tolist(), strict=True)
    }


def _beginnings(spool: Spool) -> Iterable[tuple[Rows, Rows, Rows, Rows]]:
    """Yield start, end, process and thread of ops and of calls that start work."""
    starts = [bool(_STARTS_WORK.search(name)) for name in spool.texts["launches"]["name"]]
    for table in ("ops", "launches"):
        spool.close(table)
        names = ("start_ns", "dur_ns", "pid", "tid", *(("name",) if table == "launches" else ()))
        for rows in spool.slices(table, names):
            start, dur, pid, tid = (int_column(rows, name, _NO_ID) for name in names[:4])
            if table == "launches":
                kept = np.array([*starts, False])[int_column(rows, "name", -1)]
                start, dur, pid, tid = start[kept], dur[kept], pid[kept], tid[kept]
            yield start, start + dur, pid, tid


def _of_process(
    spans: Sequence[StepSpan],
    threads: dict[tuple[int | None, int | None], list[int]],
    begun: dict[int, _Begun],
) -> list[int]:
    """Return the ranges that are steps of a process, in order of time."""
    most = max(
        threads.values(),
        key=lambda rows: (
            sum(begun[at].on_thread for at in rows),
            sum(spans[at].end_ns - spans[at].start_ns for at in rows),
        ),
    )
    others = [at for rows in threads.values() if rows is not most for at in rows]
    parts = [
        at
        for at in others
        if spans[at].is_scheduled
        or any(
            spans[at].start_ns < spans[step].end_ns
            and spans[step].start_ns < spans[at].end_ns
            and step_number(spans[at].name) == step_number(spans[step].name)
            for step in most
        )
    ]
    return sorted([*most, *parts], key=lambda at: (spans[at].start_ns, spans[at].end_ns))


def _numbered_on(steps: Sequence[StepSpan]) -> list[str]:
    """Return the names of steps in order of time; where numbers come again, they go on.

    Those of one number that overlap are one step.
    """
    names: list[str] = []
    seen: dict[int, int] = {}
    added, epoch, last = 0, 0, -1
    for step in steps:
        number = step_number(step.name)
        if number is None:
            names.append(step.name)
            continue
        if number in seen and step.start_ns >= seen[number]:
            added, epoch = last + 1 - number, epoch + 1
            seen.clear()
        seen[number] = max(step.end_ns, seen.get(number, step.end_ns))
        last = max(last, number + added)
        again = renumbered_step(number + added, epoch, step.name)
        names.append(again if epoch else step.name)
    return names


def steps_of_devices(seen: Iterable[StepSpan]) -> list[StepSpan]:
    """Return the steps that devices saw: the outermost ranges, each to the next one at most."""
    spans = sorted(seen)
    if any(span.is_scheduled for span in spans):
        spans = [span for span in spans if span.is_scheduled]
    steps: list[StepSpan] = []
    for at in _outermost([span._replace(is_scheduled=False) for span in spans], range(len(spans))):
        span = spans[at]
        if span.end_ns == span.start_ns:
            continue
        if steps and span.start_ns < steps[-1].end_ns:
            steps[-1] = steps[-1]._replace(end_ns=span.start_ns)
        steps.append(span)
    return [step._replace(name=name) for step, name in zip(steps, _numbered_on(steps), strict=True)]
