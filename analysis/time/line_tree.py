"""The tree of lines: file, the lines of the calls that led to an op, and the op.

A node is its parent with one more word: a thread, a file, a line, an op, or a remainder in
brackets. Its total is its own and that of its children, in integers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.intervals import depths
from pyprof2.frames import is_own_path
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int

NO_OP: Final = "(no op)"
NO_SOURCE: Final = "(no source)"
LIBRARY_CODE: Final = "(library code)"
BETWEEN_OPS: Final = "(between ops)"
THREAD, FILE, LINE, OP, REST = "thread", "file", "line", "op", "rest"
"""The kinds of nodes; `REST` is a remainder."""

_DIGITS: Final = re.compile(r"\d+")


class LinePlace(NamedTuple):
    """Where a row of the table `lines` belongs, None for what it lacks.

    Attributes:
        thread: what the tree is of; None: of the steps.
        lines: of the calls that led to the op, the outermost first.
        own: whether one of them is the user's own.
        op: the call at the last of them.
    """

    thread: str | None
    lines: tuple[str, ...]
    own: bool
    op: str | None


class Tree:
    """Nodes by number; a parent comes before its children.

    Attributes:
        parent: of each node, -1 for none.
        kind, text: of each node.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int, str, str], int] = {}
        self._first: list[bool] = []
        self._modules: list[tuple[str, ...] | None] = []

    @property
    def parent(self) -> Int:
        """The parent of each node, -1 for none."""
        return np.array([parent for parent, _, _ in self._found], np.int64)

    @property
    def kind(self) -> list[str]:
        """The kind of each node."""
        return [kind for _, kind, _ in self._found]

    @property
    def text(self) -> list[str]:
        """The word that each node adds."""
        return [text for _, _, text in self._found]

    @property
    def module(self) -> list[str | None]:
        """The common beginning of the layers below each node; None where there is none."""
        return [".".join(names) if names else None for names in self._modules]

    @property
    def is_first(self) -> Bool:
        """Which nodes are lines that stand on no node above them: of a recursion the outermost."""
        return np.array(self._first, bool)

    def add(self, place: LinePlace, remainder: str) -> int:
        """Return the node of a place; what has neither line nor op is the remainder."""
        node = -1 if place.thread is None else self._child(-1, THREAD, place.thread)
        if not place.lines:
            rest = remainder if place.op is None else NO_SOURCE
            node = self._child(node, REST, rest)
        elif not place.own:
            node = self._child(node, REST, LIBRARY_CODE)
        if place.lines:
            node = self._child(node, FILE, place.lines[0].rpartition(":")[0])
        seen: set[str] = set()
        for line in place.lines:
            node = self._child(node, LINE, line, is_first=line not in seen)
            seen.add(line)
        return node if place.op is None else self._child(node, OP, place.op)

    def lines_in_one_place(self) -> dict[str, int]:
        """Return the lines that are one node each, with their nodes."""
        nodes: dict[str, list[int]] = {}
        for (_, kind, text), node in self._found.items():
            if kind == LINE:
                nodes.setdefault(text, []).append(node)
        return {text: found[0] for text, found in nodes.items() if len(found) == 1}

    def _child(self, parent: int, kind: str, text: str, *, is_first: bool = False) -> int:
        node = self._found.setdefault((parent, kind, text), len(self._found))
        if node == len(self._first):
            self._first.append(is_first)
            self._modules.append(None)
        return node

    def enter(self, node: int, layer: str | None, parents: Sequence[int]) -> None:
        """Note that work of a layer is at a node; None: of no layer."""
        names = () if layer is None else tuple(layer.split("."))
        while node >= 0 and (known := self._modules[node]) != ():
            self._modules[node] = names if known is None else _common(known, names)
            node = parents[node]

    def totals(self, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each node its own and what is below it.

        Args:
            own: a row for each node, of one or more columns.
        """
        total, parent = own.copy(), self.parent
        depth = depths(parent)
        for level in range(int(depth.max(initial=0)), 0, -1):
            rows = np.flatnonzero(depth == level)
            np.add.at(total, parent[rows], total[rows])
        return total


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that two paths begin with; a star stands for numbers that differ."""
    names: list[str] = []
    for one, other in zip(first, second, strict=False):
        if one != other and _folded(one) != _folded(other):
            break
        names.append(one if one == other else _folded(one))
    return tuple(names)


def _folded(name: str) -> str:
    return _DIGITS.sub("*", name)


class StackLines:
    """The lines of the stacks of one rank, and whether any is the user's own."""

    def __init__(self, stacks: pa.Table, root: str | None) -> None:
        """Read a rank's table `stacks`, in order of `stack_id`.

        Args:
            stacks: the table.
            root: the folder of the user's own code.
        """
        self._caller = int_column(stacks, "caller_id", -1).tolist()
        code, lines = code_column(stacks, "line")
        self._line = [lines[at] for at in code.tolist()]
        self._is_own = {line: self._owned(line, root) for line in lines}

    @staticmethod
    def _owned(line: str, root: str | None) -> bool:
        path = line.rpartition(":")[0]
        return is_own_path(path, root) or is_own_path(path)

    def lines(self, stack: int) -> tuple[str, ...]:
        """Return the lines of a stack, the outermost first; none of -1."""
        found = []
        while stack >= 0:
            found.append(self._line[stack])
            stack = self._caller[stack]
        return tuple(reversed(found))

    def has_own(self, lines: Iterable[str]) -> bool:
        """Whether one of the lines is the user's own."""
        return any(self.is_own(line) for line in lines)

    def is_own(self, line: str) -> bool:
        """Whether a line is the user's own."""
        return self._is_own[line] if line in self._is_own else self._owned(line, None)
