"""The ranges of a recording by kind, and the steps that some of them are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import Bool, Int, Nest
from pyprof2.analysis.linking.threads import NO_ID, Threads
from pyprof2.columns import lookup
from pyprof2.recording import Recording, code_column, int_column, step_number

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Ranges:
    """The ranges of one kind: where they are, and their texts as codes."""

    thread: Int
    start: Int
    end: Int
    name: Int
    names: list[str]

    def where(self, keep: Bool) -> Ranges:
        """Return the ranges that `keep` marks."""
        return Ranges(
            self.thread[keep], self.start[keep], self.end[keep], self.name[keep], self.names
        )

    def named(self, wanted: Callable[[str], bool]) -> Ranges:
        """Return the ranges whose text is wanted; asked once per distinct text."""
        return self.where(np.array([wanted(text) for text in self.names] or [False])[self.name])

    def nest(self) -> Nest:
        """Sort them for look-ups."""
        return Nest.of(self.thread, self.start, self.end)


def read_ranges(recording: Recording, threads: Threads) -> dict[str, Ranges]:
    """Return the ranges by kind."""
    kind, kinds = code_column(recording.read("ranges", ["kind"]), "kind")
    return {
        text: ranges_at(recording, threads, np.flatnonzero(kind == code))
        for code, text in enumerate(kinds)
    }


def ranges_at(recording: Recording, threads: Threads, rows: Int) -> Ranges:
    """Return the ranges at these rows of the recording's table, of whatever kind they are."""
    thread = threads.number(recording.read("ranges", ["pid", "tid"], rows))
    start, dur = (
        int_column(recording.read("ranges", [name], rows), name, 0)
        for name in ("start_ns", "dur_ns")
    )
    name, names = code_column(recording.read("ranges", ["name"], rows), "name")
    return Ranges(thread, start, start + dur, name, names)


NO_RANGES: Final = Ranges(
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    [],
)


def link_steps(steps: Ranges, threads: Threads, thread: Int, time: Int) -> Int:
    """Return the number of the step range, on any thread of the process, that holds each time."""
    process = threads.process(steps.thread)
    found = Nest.of(process, steps.start, steps.end).innermost(threads.process(thread), time)
    return lookup(_numbers(steps), found, NO_ID)


def link_steps_of_devices(steps: Ranges, threads: Threads, time: Int) -> Int:
    """Return the number of the step that devices saw around each time; such are of no process."""
    own = steps.where(threads.pid(steps.thread) == NO_ID)
    found = own.nest().innermost(np.zeros(len(time), np.int64) + own.thread[:1].sum(), time)
    return lookup(_numbers(own), found, NO_ID)


def _numbers(steps: Ranges) -> Int:
    """Return the number of each step; `NO_ID` of one without."""
    numbers = [step_number(text) for text in steps.names]
    found: Int = np.array([NO_ID if n is None else n for n in numbers] or [NO_ID])[steps.name]
    return found
