"""Templates: the launches that the nodes of a graph may be, with what is known of their ops.

A template is a capture, or a stretch of eager launches. The nodes of all templates are rows of one
table of numbers; texts are codes of dictionaries that it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.costs.attribute import COUNTS
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.columns import narrow
from pyprof2.recording import TextCodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.graphs.sequences import WordWindows
    from pyprof2.analysis.intervals import Int
    from pyprof2.columns import TextColumn

OP_TEXTS: Final = (
    "op", "signature", "layer", "source", "library_source", "stack", "direction", "forward_op",
    "params", "category", "compute_dtype", "cost_status", "cost_note",
)  # fmt: skip
TEXTS: Final = ("kernel", "size", *OP_TEXTS)
"""The columns of text: `kernel` is the word of a node, `size` its grid and block, or its bytes."""
OP_NUMBERS: Final = (*COUNTS, "recompute", "is_nested", "in_product")
OP_IDS: Final = ("op_id", "cost_op_id", "forward_op_id")
IDS: Final = (*OP_IDS, "sequence_nr")
"""Numbers that mean something only in the recording that they are of: its ops are in the store."""
CALLS: Final = ("call", "cost_call")
"""Numbers of op calls within a template's recording: a node's own, and the one that accounts."""
NUMBERS: Final = (*OP_NUMBERS, *IDS, *CALLS, "is_copy", "stream", "recorded_id")

COPY_WORD: Final = "*"
"""The word of all copies and fills."""


class NodeTable:
    """Rows of nodes: texts as codes, -1 for none, and numbers, `NO_ID` for none.

    Attributes:
        texts: the dictionary of each column of text.
    """

    def __init__(self) -> None:
        self.texts: dict[str, TextCodes] = {name: TextCodes() for name in TEXTS}
        # In as little memory as they can be: of eager launches there may be millions.
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (*TEXTS, *NUMBERS)}
        self.count = 0

    def codes(self, name: str, column: TextColumn) -> Int:
        """Return a column of text as codes of the table's own dictionary; only used ones enter."""
        codes, words = column
        used = np.unique(codes[codes >= 0])
        place = np.full(len(words) + 1, -1, np.int64)
        known = self.texts[name]
        for code in used.tolist():
            text = words[code]
            place[code] = -1 if not text else known[text]
        return place[codes]

    def append(
        self, count: int, texts: Mapping[str, TextColumn], numbers: Mapping[str, Int]
    ) -> int:
        """Append nodes; columns that are missing are null. Return the number of the first."""
        for name in TEXTS:
            column = self.codes(name, texts[name]) if name in texts else np.full(count, -1)
            self._parts[name].append(narrow(column))
        for name in NUMBERS:
            # None of them is negative.
            column = numbers.get(name, np.full(count, NO_ID))
            self._parts[name].append(narrow(np.maximum(column, -1)))
        self.count += count
        return self.count - count

    def extend(self, other: NodeTable) -> int:
        """Append nodes of another recording. Return the number of the first."""
        texts = {name: (other.column(name), other.words(name)) for name in TEXTS}
        kept = [name for name in NUMBERS if name not in IDS]
        return self.append(other.count, texts, {name: other.column(name) for name in kept})

    def column(self, name: str) -> Int:
        """Return a column of all nodes."""
        return self.at(name, slice(None))

    def at(self, name: str, rows: Int | slice) -> Int:
        """Return a column of some nodes."""
        parts = self._parts[name]
        if len(parts) != 1:
            parts[:] = [np.concatenate(parts)] if parts else [np.empty(0, np.int64)]
        found = parts[0][rows].astype(np.int64)
        if name not in TEXTS:
            found[found < 0] = NO_ID
        return found

    def words(self, name: str) -> list[str]:
        """Return the texts of a column, by code."""
        return list(self.texts[name])


@dataclass(frozen=True)
class Template:
    """A capture, or a stretch of eager launches.

    Attributes:
        first, end: its rows among the nodes.
        file: the name of the recording that it is in.
        is_capture: whether it was captured.
        own: whether that is the recording that is read.
        number: of the capture in its file, from 1.
        rank: of the recording, None where it does not say it.
        turn: the range around it that captures were made in, -1 for none.
        batch: the size of the batch that the range says.
    """

    first: int
    end: int
    file: str
    is_capture: bool
    own: bool
    number: int = 1
    rank: int | None = None
    turn: int = -1
    batch: int | None = None

    def __len__(self) -> int:
        return self.end - self.first


@dataclass
class Templates:
    """Templates, and their nodes.

    Attributes:
        windows: by the first node of eager stretches, the sums of their words, and hashes of all
            that is known of each node.
    """

    nodes: NodeTable = field(default_factory=NodeTable)
    each: list[Template] = field(default_factory=list)
    windows: dict[int, tuple[WordWindows, Int]] = field(default_factory=dict)

    def extend(self, others: Sequence[Templates]) -> None:
        """Take up those of other recordings."""
        for other in others:
            first = self.nodes.extend(other.nodes)
            turns = 1 + max((each.turn for each in self.each), default=-1)
            self.each += [
                replace(
                    each, first=each.first + first, end=each.end + first, own=False,
                    turn=each.turn + turns if each.turn >= 0 else -1,
                )
                for each in other.each
            ]  # fmt: skip
