"""Steps, from what our annotation marked: where they may begin, and what ends them.

What the marks mean stands in `pyprof2.markers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.parsers._chosen_steps import OPEN_STEP, StepSpan, choose_steps, steps_of_devices
from pyprof2.problems import OPEN_STEPS, STEPS_EMPTY, with_detail

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Sequence

    from pyprof2.markers import StepEvent
    from pyprof2.recording import Spool

MAYBE_STEP: Final = "maybe step"
"""The kind, until a recording is read, of a range that is called like a step."""


class StepMark(NamedTuple):
    """An instant that says something of a step.

    Attributes:
        number: of the step or the batch.
        event: what happens; None: the step `number` begins, or without a number none does.
    """

    start_ns: int
    pid: int | None
    tid: int | None
    number: int | None
    event: StepEvent | None = None


class MarkedStep(NamedTuple):
    """A step: from the mark of its beginning to `end_ns`."""

    mark: StepMark
    end_ns: int
    number: int


@dataclass
class OpSpan:
    """When the first and the last op of a recording began; None without ops."""

    first_ns: int | None = None
    last_ns: int | None = None

    def add(self, first_ns: int, last_ns: int) -> None:
        """Take in some more ops."""
        self.first_ns = first_ns if self.first_ns is None else min(first_ns, self.first_ns)
        self.last_ns = last_ns if self.last_ns is None else max(last_ns, self.last_ns)


class StepRanges:
    """Appends ranges, and decides at the end which of them are the steps of their process.

    The steps are the ranges of the profiler's own schedule; else those that our marks say; else
    the ranges that are called like steps, see `choose_steps`. Where there are better ones, such a
    range is the user's. Where the host has none, they are those that devices saw: of no process.

    Attributes:
        open: the names of those that are no steps.
        count: how many ranges are steps.
        empty_count: how many of them nothing begins in.
    """

    def __init__(self, spool: Spool) -> None:
        self.open: list[str] = []
        self.count = self.empty_count = 0
        self._spool = spool
        self._marks: list[StepMark] = []
        self._held: list[pa.Table] = []
        self._seen: dict[tuple[str, int | None], StepSpan] = {}

    def mark(self, mark: StepMark) -> None:
        """Take up an instant that says something of a step."""
        self._marks.append(mark)

    def see(self, span: StepSpan, number: int | None) -> None:
        """Take up what a stream of a device saw of a range, which has a number of its own."""
        key = span.name, number
        seen = self._seen.get(key, span)
        start, end = min(seen.start_ns, span.start_ns), max(seen.end_ns, span.end_ns)
        self._seen[key] = seen._replace(start_ns=start, end_ns=end)

    def append(self, columns: dict[str, Any], count: int) -> None:
        """Append ranges, as `Spool.append` does; `kind` and `pid` must be among the columns."""
        if not count:
            return
        kinds = self._spool.texts["ranges"]["kind"]
        may_be = np.isin(columns["kind"], [kinds[text] for text in ("step", MAYBE_STEP)])
        if not may_be.any():
            self._spool.append("ranges", columns, count)
            return
        rows = pa.table({name: pa.array(values) for name, values in columns.items()})
        self._held.append(rows.filter(pa.array(may_be)))
        self._append(rows.filter(pa.array(~may_be)))

    def finish(self, ops: OpSpan, end_ns: int) -> int:
        """Append the steps that our marks say, and what was held back; return how many they say.

        Args:
            ops: of the recording, all of which are appended.
            end_ns: of the recording.
        """
        held = [span for rows in self._held for span in self._spans(rows)]
        scheduled = {span.pid for span in held if span.is_scheduled}
        marks: dict[int | None, list[StepMark]] = {}
        for mark in sorted(self._marks, key=lambda mark: mark.start_ns):
            if mark.pid not in scheduled:
                marks.setdefault(mark.pid, []).append(mark)
        marked = [step for own in marks.values() for step in find_steps(own, ops, end_ns)]
        chosen = choose_steps(held, self._spool, {step.mark.pid for step in marked})
        self.open = [name for name, kind in zip(chosen.names, chosen.kinds, strict=True)
                     if kind == OPEN_STEP]  # fmt: skip
        self.empty_count = chosen.empty_count
        # Steps are ranges on the threads that marked their beginnings.
        steps = [
            StepSpan(
                step.mark.start_ns, max(step.mark.start_ns, step.end_ns), step.mark.pid,
                step.mark.tid, f"step#{step.number}",
            )
            for step in marked
        ]  # fmt: skip
        if not held and not steps:
            steps = steps_of_devices(self._seen.values())
        self._append_steps(steps)
        texts, at = self._spool.texts["ranges"], 0
        for rows in self._held:
            own = slice(at, at + rows.num_rows)
            at += rows.num_rows
            for column, words in (("kind", chosen.kinds[own]), ("name", chosen.names[own])):
                codes = pa.array([texts[column][text] for text in words], pa.int32())
                rows = rows.set_column(rows.column_names.index(column), column, codes)  # noqa: PLW2901
            self._append(rows)
        self._held.clear()
        self.count = len(steps) + chosen.kinds.count("step")
        self._marks.clear()
        return len(marked)

    def report(self, problems: Counter[str], skipped: Counter[str]) -> None:
        """Count what is no step, and the steps in which nothing begins."""
        for name in self.open:
            skipped[with_detail(OPEN_STEPS, name)] += 1
        if self.empty_count:
            problems[STEPS_EMPTY] += self.empty_count

    def _spans(self, rows: pa.Table) -> Iterable[StepSpan]:
        """Yield the ranges that may be steps."""
        texts = self._spool.texts["ranges"]
        names, step = list(texts["name"]), texts["kind"]["step"]
        columns = (rows[name].to_pylist() for name in ("start_ns", "dur_ns", "pid", "tid", "name"))
        for start, dur, pid, tid, name, kind in zip(
            *columns, rows["kind"].to_pylist(), strict=True
        ):
            yield StepSpan(start, start + dur, pid, tid, str(names[name]), kind == step)

    def _append_steps(self, steps: Sequence[StepSpan]) -> None:
        if not steps:
            return
        texts = self._spool.texts["ranges"]
        columns = {
            "start_ns": [step.start_ns for step in steps],
            "dur_ns": [step.end_ns - step.start_ns for step in steps],
            "pid": [step.pid for step in steps],
            "tid": [step.tid for step in steps],
            "name": [texts["name"][step.name] for step in steps],
            "kind": [texts["kind"]["step"]] * len(steps),
        }
        self._spool.append("ranges", columns, len(steps))

    def _append(self, rows: pa.Table) -> None:
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        self._spool.append("ranges", columns, rows.num_rows)


def find_steps(marks: Sequence[StepMark], ops: OpSpan, end_ns: int) -> list[MarkedStep]:
    """Return the steps of a process, given its marks in order.

    The steps that the program itself ended count alone. Else it is those that ended in the step of
    an optimizer; in a recording without one, the batches of a DataLoader.
    """
    events = {mark.event for mark in marks}
    if "ended" in events:
        return _ended(marks, ops)
    if None in events:
        return _begun([mark for mark in marks if mark.event is None], ops, end_ns)
    if "stepped" in events:
        return _trained(marks, end_ns)
    return _begun([mark for mark in marks if mark.event == "batch"], ops, end_ns)


def _begun(marks: list[StepMark], ops: OpSpan, end_ns: int) -> list[MarkedStep]:
    """Return the steps that marks begin: each lasts to the next mark, or to the end.

    A step that begins after the last op is none: the loop only asked for another batch.
    """
    while marks and ops.last_ns is not None and marks[-1].start_ns > ops.last_ns:
        end_ns = marks.pop().start_ns
    ends = [*(mark.start_ns for mark in marks[1:]), end_ns]
    pairs = zip(marks, ends, strict=bool(marks))
    return [MarkedStep(mark, end, mark.number) for mark, end in pairs if mark.number is not None]


def _ended(marks: Sequence[StepMark], ops: OpSpan) -> list[MarkedStep]:
    """Return the steps whose ends are marked; the first begins with what was marked before it."""
    ends = [mark for mark in marks if mark.event == "ended"]
    begin = next((m for m in marks if m.event in ("begins", "batch")), ends[0])
    if begin.start_ns >= ends[0].start_ns:
        begin = ends[0] if ops.first_ns is None else ends[0]._replace(start_ns=ops.first_ns)
    return list(_between([begin, *ends]))


def _between(marks: Sequence[StepMark]) -> Iterable[MarkedStep]:
    for mark, end in pairwise(marks):
        if end.number is not None:
            yield MarkedStep(mark, end.start_ns, end.number)


def _trained(marks: Sequence[StepMark], end_ns: int) -> list[MarkedStep]:
    """Return the steps that ended in the step of an optimizer."""
    steps: list[MarkedStep] = []
    begin: StepMark | None = None
    stepped: StepMark | None = None

    def close(at_ns: int) -> None:
        if begin is not None and stepped is not None and stepped.number is not None:
            _add(steps, MarkedStep(begin, at_ns, stepped.number))

    for mark in marks:
        if mark.event in ("begins", "over"):
            close(mark.start_ns)
            begin, stepped = mark if mark.event == "begins" else None, None
        elif mark.event == "stepped":
            if stepped is not None and stepped.number != mark.number:
                # Nothing marked where this one began: where the last one ended.
                close(stepped.start_ns)
                begin = stepped
            stepped = mark
    close(end_ns)
    return steps


def _add(steps: list[MarkedStep], step: MarkedStep) -> None:
    """Append a step; a part of one is joined to what came right before it."""
    last = steps[-1] if steps else None
    if last is not None and (last.number, last.end_ns) == (step.number, step.mark.start_ns):
        steps[-1] = last._replace(end_ns=step.end_ns)
    else:
        steps.append(step)
