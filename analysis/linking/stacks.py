"""Which frames were around each op: every stack once, and the line in it that is the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.intervals import depths, nearest_marked
from pyprof2.columns import (
    TextColumn,
    combine_keys,
    distinct,
    groups_of,
    int_array,
    lookup,
    text_array,
)
from pyprof2.frames import STACK_SEPARATOR, frame_line, is_own_path, library_of
from pyprof2.recording import TextCodes, code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.intervals import Int, Nest
    from pyprof2.analysis.linking.ranges import Ranges


OWN: Final = "(own)"
"""The library of what the user's own code calls directly."""


class Around(NamedTuple):
    """The range around each row: its stack and its text, -1 for none."""

    stack: Int
    text: TextColumn


class Stacks:
    """Stacks by number; what two have in common is there once.

    A stack is the number of its innermost frame, which knows the stack that called it.
    """

    def __init__(self) -> None:
        self._ids: dict[tuple[int, int], int] = {}
        self._lines = TextCodes()
        self._callers: list[int] = []

    def add(self, caller: int, line: str) -> int:
        """Return the stack of a frame at `line` that the stack `caller` called, -1 for none."""
        stack = self._ids.setdefault((caller, self._lines[line]), len(self._ids))
        if stack == len(self._callers):
            self._callers.append(caller)
        return stack

    def of_texts(self, texts: TextColumn) -> Int:
        """Return the stack of each row of texts, see `pyprof2.frames`; -1 for null."""
        codes, words = texts
        stacks = [self._below(-1, (word or "").split("\n")) for word in words]
        return lookup(np.array(stacks, np.int64), codes, -1)

    def _below(self, stack: int, lines: Sequence[str]) -> int:
        """Return the stack of lines, the innermost first, that another stack called."""
        for line in reversed(lines):
            stack = self.add(stack, line) if line else stack
        return stack

    def common(self, stacks: Sequence[int]) -> int:
        """Return the innermost stack that all of some stacks have in common, -1 for none."""
        paths = []
        for number in stacks:
            path, at = [], number
            while at >= 0:
                path.append(at)
                at = self._callers[at]
            paths.append(path[::-1])
        same = -1
        for level in zip(*paths, strict=False):
            if len(set(level)) > 1:
                break
            same = level[0]
        return same

    def of_calls(self, calls: Ranges, nest: Nest) -> Int:
        """Return the stack of each range whose text says from where a call is made.

        A text goes no further out than to the user's own code; what called that is the text of the
        range around it.

        Args:
            calls: the ranges.
            nest: the same, sorted.
        """
        parent = nest.parents()
        depth = depths(parent)
        stack = np.full(len(parent), -1)
        for level in range(int(depth.max(initial=-1)) + 1):
            rows = np.flatnonzero(depth == level)
            around = Around(
                lookup(stack, parent[rows], -1), (lookup(calls.name, parent[rows], -1), calls.names)
            )
            stack[rows] = self.called((calls.name[rows], calls.names), around)
        return stack

    def called(self, texts: TextColumn, around: Around) -> Int:
        """Return the stack of each row of texts, inside of the range around it; -1 for null."""
        codes, words = texts
        rows = np.flatnonzero(codes >= 0)
        columns = codes[rows], around.stack[rows], around.text[0][rows]
        _, first, place = np.unique(combine_keys(*columns), return_index=True, return_inverse=True)
        found = [
            self._called(
                words[code] or "", stack, around.text[1][outer] or "" if outer >= 0 else ""
            )
            for code, stack, outer in zip(*(c[first].tolist() for c in columns), strict=True)
        ]
        stacks = np.full(len(codes), -1)
        stacks[rows] = np.array(found, np.int64)[place] if found else stacks[rows]
        return stacks

    def _called(self, text: str, stack: int, outer_text: str) -> int:
        """Return the stack of a text, inside of another one that ends in `outer_text`."""
        lines, outer = text.split("\n"), outer_text.split("\n") if outer_text else []
        shared = 0
        while shared < min(len(lines), len(outer)) and lines[-1 - shared] == outer[-1 - shared]:
            shared += 1
        # The outer lines that both share are the same calls.
        if shared:
            for _ in outer[shared:]:
                stack = self._callers[stack]
        return self._below(stack, lines[: len(lines) - shared])

    def at(self, frames: Ranges, thread: Int, time: Int) -> Int:
        """Return the stack of Python frames at each (thread, time); -1 where none is around it."""
        lines = [frame_line(name) for name in frames.names]
        frames = frames.where(
            np.array([line is not None for line in lines] or [False])[frames.name]
        )
        nest = frames.nest()
        parent = nest.parents()
        depth = depths(parent)
        stack = np.full(len(parent), -1)
        for level in range(int(depth.max(initial=-1)) + 1):
            rows = np.flatnonzero(depth == level)
            caller = lookup(stack, parent[rows], -1)
            first, place = groups_of(combine_keys(caller, frames.name[rows]))
            pairs = zip(caller[first].tolist(), frames.name[rows][first].tolist(), strict=True)
            found = [self.add(outer, lines[name] or "") for outer, name in pairs]
            stack[rows] = np.array(found, np.int64)[place]
        return lookup(stack, nest.innermost(thread, time), -1)

    def lines_of(self, stack: Int) -> TextColumn:
        """Return the text of each stack, the innermost line first; see `of_texts`."""
        pairs, lines = list(self._ids), list(self._lines)
        used, code = distinct(stack)
        texts: list[str | None] = []
        for number in used.tolist():
            path, at = [], number
            while at >= 0:
                at, line = pairs[at]
                path.append(lines[line])
            texts.append("\n".join(path) or None)
        return code, texts

    def table(self) -> pa.Table:
        """Return the canonical table `stacks` without the column `rank`."""
        pairs = np.array(list(self._ids), np.int64).reshape(-1, 2)
        return pa.table(
            {
                "stack_id": pa.array(np.arange(len(pairs))),
                "caller_id": int_array(pairs[:, 0], -1),
                "line": text_array((pairs[:, 1], list(self._lines))),
            }
        )


def choose_lines(stacks: pa.Table, root: str | None) -> tuple[TextColumn, TextColumn]:
    """Return for each stack the innermost line of the user's own, and its innermost line.

    The user's own is what is below the folder `root`; in a stack without such, or without a root,
    what is in no package, see `pyprof2.frames.is_own_path`.

    Args:
        stacks: `stacks` of one rank, in order of `stack_id`.
        root: the folder of the user's own code.
    """
    caller = int_column(stacks, "caller_id", -1)
    code, lines = code_column(stacks, "line")
    own = np.full(len(code), -1)
    for folder in dict.fromkeys((root, None)):
        is_own = [is_own_path(line.rpartition(":")[0], folder) for line in lines]
        found = nearest_marked(caller, np.array(is_own or [False])[code])
        own = np.where(own >= 0, own, lookup(code, found, -1))
    return (own, lines), (code, lines)


def with_lines(rows: pa.Table, stacks: pa.Table, root: str | None) -> pa.Table:
    """Return rows of `kernels`, `copies` or `ops` with `source` chosen anew by another root.

    Args:
        rows: columns `source` and `stack_id`, of one rank; those with a `shared_source` keep none.
        stacks: the rank's table `stacks`, in order of `stack_id`.
        root: the folder of the user's own code.
    """
    (own, lines), _ = choose_lines(stacks, root)
    codes = lookup(own, int_column(rows, "stack_id", -1), -1)
    if "shared_source" in rows.column_names:
        codes = np.where(rows["shared_source"].is_valid().to_numpy(), -1, codes)
    place = rows.column_names.index("source")
    return rows.set_column(place, rows.schema.field(place), text_array((codes, lines)))


def stack_texts(rows: pa.Table, stacks: pa.Table) -> TextColumn:
    """Return the whole stack of each row, outermost first.

    Args:
        rows: with `stack_id`.
        stacks: the table of that name; a caller stands before what it calls.
    """
    stack = int_column(rows, "stack_id", -1)
    line, lines = code_column(stacks, "line")
    caller = int_column(stacks, "caller_id", -1).tolist()
    used, code = distinct(stack)
    texts: list[str | None] = []
    for number in used.tolist():
        path, at = [], number
        while at >= 0:
            path.append(lines[line[at]])
            at = caller[at]
        texts.append(STACK_SEPARATOR.join(reversed(path)) or None)
    return code, texts


def libraries(rows: pa.Table) -> TextColumn:
    """Return the library of each row: of its innermost line, `(own)` where that is the user's."""
    library, lines = code_column(rows, "library_source")
    source, sources = code_column(rows, "source")
    place = {line: code for code, line in enumerate(lines)}
    own = lookup(np.array([place.get(line, -1) for line in sources], np.int64), source, -1)
    names = [library_of(line) for line in lines]
    is_own = (library >= 0) & (own == library)
    return np.where(is_own, len(names), library), [*names, OWN]
