"""The layers and lines that are recorded of ops themselves, and what these rest on.

A recorder that knows the ops itself gets the places of those that are in no other one; an op in one
of these is called from there too, and an op that is only made of some from where the first is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.intervals import nearest_marked
from pyprof2.columns import TextColumn, lookup, merge_texts, row_of
from pyprof2.recording import TextCodes, code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.recording import Recording

EVIDENCE: Final = [
    "marker", "record_function_id", "external_id", "around", "inside", "frames", "range", "forward",
]  # fmt: skip
"""The values of column `source_evidence`."""
MARKER, RECORD, EXTERNAL, AROUND, INSIDE, FRAMES, RANGE, FORWARD = range(len(EVIDENCE))


class OwnCalls(NamedTuple):
    """The layers and lines that are recorded of ops themselves.

    Attributes:
        layer, line: of each op; of backward that of its forward op.
        evidence: of the line, as a code into `EVIDENCE`; -1 for none.
        is_placed: whether a place says it.
        is_all: whether nothing else says where ops were called: what is around them says where they
            are not.
    """

    layer: TextColumn
    line: TextColumn
    evidence: Int
    is_placed: Bool
    is_all: bool

    @classmethod
    def of(cls, recording: Recording, ops: Ops) -> OwnCalls:
        """Read it, and find the places of ops around and inside of others."""
        recorded = recording.read("ops", ["layer", "stack"], ops.row)
        layer, line = (code_column(recorded, name) for name in ("layer", "stack"))
        evidence = np.where(line[0] >= 0, MARKER, -1)
        places = recording.places
        if places is None:
            return cls(layer, line, evidence, np.zeros(len(ops), bool), is_all=False)
        ids = int_column(recording.read("ops", [places.column], ops.row), places.column, -1)
        place = lookup(places.rows, row_of(places.ids, ids), -1)
        place, how = _spread(place, ops, EVIDENCE.index(places.evidence))
        placed = _texts(place, places.stacks)
        return cls(
            merge_texts(layer, _texts(place, places.layers)),
            merge_texts(line, placed),
            np.where((evidence < 0) & (placed[0] >= 0), how, evidence),
            place >= 0,
            is_all=True,
        )


def _texts(place: Int, texts: Sequence[str | None]) -> TextColumn:
    """Return the texts of places; equal ones have one code."""
    codes = TextCodes()
    code = np.array([codes[text] if text else -1 for text in texts], np.int64)
    return lookup(code, place, -1), list(codes)


def _spread(place: Int, ops: Ops, evidence: int) -> tuple[Int, Int]:
    """Return the places of all ops that have one, and what they rest on."""
    how = np.where(place >= 0, evidence, -1)
    _from_around(place, how, ops)
    # Nodes of autograd belong to the ops that made them; functions in Python call others.
    made = np.array(
        [*("::" in name and not name.startswith("autograd::") for name in ops.names), False]
    )[ops.name]
    first = np.where(how == evidence, np.arange(len(ops)), len(ops))
    for depth in range(int(ops.depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero((ops.depth == depth) & (first < len(ops)))
        np.minimum.at(first, ops.parent[rows], first[rows])
    rows = np.flatnonzero((place < 0) & made & ~ops.node & (first < len(ops)))
    place[rows], how[rows] = place[first[rows]], INSIDE
    _from_around(place, how, ops)
    return place, how


def _from_around(place: Int, how: Int, ops: Ops) -> None:
    """Give ops the place of the nearest one around them."""
    holder = nearest_marked(ops.parent, place >= 0)
    rows = np.flatnonzero((place < 0) & (holder >= 0) & ~ops.node)
    place[rows], how[rows] = place[holder[rows]], AROUND
