"""Steps, from what our annotation marked: where they may begin, and what ends them.

What the marks mean stands in `pyprof2.markers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
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
    the ranges that are called like steps. Where there are better ones, such a range is the user's.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._marks: list[StepMark] = []
        self._held: list[pa.Table] = []
        self._scheduled: set[int | None] = set()

    def mark(self, mark: StepMark) -> None:
        """Take up an instant that says something of a step."""
        self._marks.append(mark)

    def append(self, columns: dict[str, Any], count: int) -> None:
        """Append ranges, as `Spool.append` does; `kind` and `pid` must be among the columns."""
        if not count:
            return
        kinds = self._spool.texts["ranges"]["kind"]
        step, maybe = (np.equal(columns["kind"], kinds[text]) for text in ("step", MAYBE_STEP))
        if step.any():
            pid = pa.array(columns["pid"])
            self._scheduled.update(pc.unique(pid.filter(pa.array(step))).to_pylist())
        if not maybe.any():
            self._spool.append("ranges", columns, count)
            return
        rows = pa.table({name: pa.array(values) for name, values in columns.items()})
        self._held.append(rows.filter(pa.array(maybe)))
        self._append(rows.filter(pa.array(~maybe)))

    def finish(self, ops: OpSpan, end_ns: int) -> int:
        """Append the steps that our marks say, and what was held back; return how many they say.

        Args:
            ops: of the recording.
            end_ns: of the recording.
        """
        marks: dict[int | None, list[StepMark]] = {}
        for mark in sorted(self._marks, key=lambda mark: mark.start_ns):
            if mark.pid not in self._scheduled:
                marks.setdefault(mark.pid, []).append(mark)
        steps = [step for own in marks.values() for step in find_steps(own, ops, end_ns)]
        # Steps are ranges on the threads that marked their beginnings.
        texts = self._spool.texts["ranges"]
        columns = {
            "start_ns": [step.mark.start_ns for step in steps],
            "dur_ns": [max(0, step.end_ns - step.mark.start_ns) for step in steps],
            "pid": [step.mark.pid for step in steps],
            "tid": [step.mark.tid for step in steps],
            "name": [texts["name"][f"step#{step.number}"] for step in steps],
            "kind": [texts["kind"]["step"]] * len(steps) if steps else [],
        }
        self._spool.append("ranges", columns, len(steps))
        better = self._scheduled | {step.mark.pid for step in steps}
        kinds = self._spool.texts["ranges"]["kind"]
        for rows in self._held:
            kind = ["annotation" if p in better else "step" for p in rows["pid"].to_pylist()]
            codes = pa.array([kinds[text] for text in kind])
            self._append(rows.drop_columns("kind").append_column("kind", codes))
        self._marks.clear()
        self._held.clear()
        return len(steps)

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
