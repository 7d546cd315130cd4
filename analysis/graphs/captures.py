"""Captures in a recording: which launches make the nodes of a graph, instead of running.

A captured launch lies between a call that begins a capture and the one that ends it on the same
thread; it may be on another thread of the process, as those of backward are. What it launches does
not run, so no GPU activity has its id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.graphs.nodes import COPY_WORD
from pyprof2.analysis.graphs.sequences import UNKNOWN_WORD, WordWindows, mixed
from pyprof2.analysis.linking.cuts import begins_capture, ends_capture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.kernels import Launches
    from pyprof2.analysis.linking.threads import Threads

_COPIES: Final = re.compile(r"Mem(?:cpy|set)")
_KERNELS: Final = re.compile(r"Launch\w*Kernel")
_BATCH: Final = (
    re.compile(r"\bcapture_(\d{1,9})_\w+"),
    re.compile(r"\bstep\[\w+ bs=(\d{1,9})\b"),
    re.compile(r"\bexecute_(\d{1,9})_"),
)
_CAPTURE_RANGE: Final = _BATCH[0]
_BLITS: Final = ("__amd_rocclr_copy", "__amd_rocclr_fill")
"""How the names of kernels begin by which AMD's runtime copies and fills."""


def node_word(kernel: str) -> str:
    """Return the word of a kernel: its name, or that of all copies and fills."""
    name = kernel.removesuffix(".kd")
    return COPY_WORD if name.startswith(_BLITS) else name


def captured_batch(text: str) -> int | None:
    """Return the size of the batch that the range around a capture says; None: it says none."""
    found = _CAPTURE_RANGE.search(text)
    return int(found[1]) if found else None


def replayed_batch(text: str) -> int | None:
    """Return the size of the batch that the ranges around a replay say; None: they say none."""
    for pattern in _BATCH[1:]:
        if found := pattern.search(text):
            return int(found[1])
    return None


class Calls(NamedTuple):
    """The names of launches' calls, as what they are for.

    Attributes:
        begins, ends: whether the call begins or ends a capture.
        is_kernel, is_copy: whether it makes a node of that kind.
    """

    begins: Bool
    ends: Bool
    is_kernel: Bool
    is_copy: Bool

    @classmethod
    def of(cls, code: Int, names: Sequence[str]) -> Calls:
        """Look at each name once."""
        kinds = [
            (
                begins_capture(name), ends_capture(name),
                bool(_KERNELS.search(name)) and "Graph" not in name,
                bool(_COPIES.search(name)) and "Graph" not in name,
            )
            for name in names
        ]  # fmt: skip
        table = np.array([*kinds, (False,) * 4], bool)
        return cls(*(table[code, at] for at in range(4)))


class CapturedGraph(NamedTuple):
    """A capture: the call that begins it, and its launches, in order."""

    begin: int
    launches: Int


def find_captures(
    launches: Launches, threads: Threads, calls: Calls, has_work: Bool
) -> list[CapturedGraph]:
    """Return the captures whose end is recorded, in order of time.

    Of two that are open at once, each has the launches of its own thread; where others launch
    meanwhile, neither is known.

    Args:
        launches: all of a recording, in order of time.
        threads: of them.
        calls: what each call is for.
        has_work: whether a GPU activity has its id.
    """
    process = threads.process(launches.thread)
    spans = _spans(launches, calls)
    may_be = (calls.is_kernel | calls.is_copy) & ~has_work
    found = []
    for begin, end in spans:
        inside = np.arange(begin + 1, end)
        inside = inside[may_be[inside] & (process[inside] == process[begin])]
        rivals = [
            other for other in spans
            if other != (begin, end) and other[0] < end and begin < other[1]
            and process[other[0]] == process[begin]
        ]  # fmt: skip
        if rivals:
            known = {int(launches.thread[at]) for at, _ in ((begin, end), *rivals)}
            if not np.isin(launches.thread[inside], sorted(known)).all():
                continue
            inside = inside[launches.thread[inside] == launches.thread[begin]]
        if len(inside):
            found.append(CapturedGraph(begin, inside))
    return found


def _spans(launches: Launches, calls: Calls) -> list[tuple[int, int]]:
    """Return the calls that begin and end each capture, in order of the former."""
    rows = np.flatnonzero(calls.begins | calls.ends)
    opened: dict[int, list[int]] = {}
    found, spoilt = [], set()
    for row in rows.tolist():
        thread = int(launches.thread[row])
        waiting = opened.setdefault(thread, [])
        if calls.begins[row]:
            waiting.append(row)
        elif waiting:
            # It is not known which one ends of several that one thread has begun.
            if len(waiting) > 1:
                spoilt.update(waiting)
            found.append((waiting.pop(), row))
    return sorted(span for span in found if span[0] not in spoilt)


def with_warm_up_names(captured: Sequence[Int], keys: Int, eager: Int, words: Int) -> Int:
    """Return the words of launches, with those of a warm-up where a capture has none.

    A warm-up is a stretch of eager launches with the same ops, calls and kinds; where there are
    several, all must say the same of a node.

    Args:
        captured: the launches of each capture.
        keys: a number for op, call and kind of every launch.
        eager: the launches that ran, in order.
        words: of every launch.
    """
    filled = words.copy()
    windows = WordWindows(keys[eager])
    for rows in captured:
        if (words[rows] != UNKNOWN_WORD).all():
            continue
        wanted = np.array([mixed(keys[rows]).sum(dtype=np.uint64)], np.uint64)
        said: Int | None = None
        agrees = np.ones(len(rows), bool)
        for _, begins in windows.of_sum(len(rows), wanted):
            for begin in begins.tolist():
                stretch = eager[begin : begin + len(rows)]
                if not np.array_equal(keys[stretch], keys[rows]):
                    continue
                said = words[stretch] if said is None else said
                agrees &= words[stretch] == said
        if said is not None:
            missing = (words[rows] == UNKNOWN_WORD) & agrees
            filled[rows[missing]] = said[missing]
    return filled
