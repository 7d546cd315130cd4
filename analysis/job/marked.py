"""What our annotation says of collectives: their group, their number in it, and what they move.

The marker is a range without length inside the op that it is of. It stands in for what the
recorder did not say, and never for what it did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.intervals import Nest
from pyprof2.analysis.job.kinds import MARKER_KIND, POINT_TO_POINT, kind_of
from pyprof2.columns import lookup
from pyprof2.markers import parse_marker
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.analysis.intervals import Int
    from pyprof2.markers import Marker

_ROOTED: Final = frozenset({"broadcast", "reduce", "gather", "scatter"})
_BYTES: Final = ("in_bytes", "out_bytes", "send_bytes_to_others", "recv_bytes_from_others")
_GROUP: Final = ("group_name", "group_desc", "group_size", "group_ranks")
_TOGETHER: Final = (
    (("seq", "seq_source", "seq_since"), "seq"),
    (_GROUP, "group_ranks"),
    (("group_desc",), "group_desc"),
    (("in_bytes", "out_bytes", "bytes_source"), "in_bytes"),
    (("send_bytes_to_others", "recv_bytes_from_others"), "send_bytes_to_others"),
    (("dtype",), "dtype"),
    (("peer",), "peer"),
    (("root",), "root"),
    (("asynchronous",), "asynchronous"),
    (("uneven",), "uneven"),
)
"""What is taken as a whole where the column beside it is missing: half a group is another group."""
_EXACT: Final = ("in_bytes", "dtype")
"""Better than by the shapes of inputs, which say nothing of lists in lists, and too much of the
tensor that a barrier is called with."""


def markers_of_ops(ranges: pa.Table, ops: pa.Table, rows: Int) -> dict[int, list[Marker]]:
    """Return the markers inside of ops, by the op's position, in order of time.

    Args:
        ranges: `start_ns`, `tid`, `name`, `kind` of the rank.
        ops: `start_ns`, `dur_ns`, `tid` of the rank.
        rows: the positions of ops that communicate.
    """
    chosen = ranges.filter(pc.equal(ranges["kind"].cast(pa.string()), MARKER_KIND))
    if not chosen.num_rows or not len(rows):
        return {}
    at = ops_around(chosen, ops, rows)
    when = int_column(chosen, "start_ns", 0)
    texts = chosen["name"].cast(pa.string()).to_pylist()
    found: dict[int, list[Marker]] = {}
    for place in np.argsort(when, kind="stable").tolist():
        marker = parse_marker(texts[place]) if at[place] >= 0 else None
        if marker is not None:
            found.setdefault(int(at[place]), []).append(marker)
    return found


def ops_around(ranges: pa.Table, ops: pa.Table, rows: Int) -> Int:
    """Return the position of the innermost op in which each range begins; -1: in none.

    Args:
        ranges: `start_ns`, `tid`.
        ops: `start_ns`, `dur_ns`, `tid`.
        rows: the positions of the ops that are looked at.
    """
    start, dur, thread = (int_column(ops, c, 0)[rows] for c in ("start_ns", "dur_ns", "tid"))
    nest = Nest.of(thread, start, start + dur)
    at = nest.innermost(int_column(ranges, "tid", -1), int_column(ranges, "start_ns", 0))
    return lookup(rows, at, -1)


def with_markers(
    members: pd.DataFrame, at: Int, markers: Mapping[int, list[Marker]]
) -> pd.DataFrame:
    """Return members with what is missing taken from their markers.

    Args:
        members: columns of table `collectives`.
        at: of each the position of its op, as in `markers`.
        markers: of the calls that the op makes; several are one collective of all their bytes.
    """
    said = [_said(markers.get(row, [])) for row in at.tolist()]
    frame = members.reset_index(drop=True).assign(seq_since=None)
    if not markers or not len(frame):
        return frame
    words = pd.DataFrame(said).astype(object)
    by_shapes = frame["bytes_source"] == "input_dims"
    for names, tells in _TOGETHER:
        lacks = frame[tells].isna() & words[tells].notna()
        if tells in _EXACT:
            lacks |= by_shapes & words["in_bytes"].notna()
        for name in names:
            pairs = zip(lacks, frame[name], words[name], strict=True)
            frame[name] = pd.Series([w if own else v for own, v, w in pairs], dtype=object)
    return frame


def _said(markers: list[Marker]) -> dict[str, Any]:
    """Return the columns of table `collectives` that the markers of an op tell."""
    names = (*_GROUP, *_BYTES, "seq", "seq_source", "seq_since", "bytes_source", "dtype", "peer")
    found = dict.fromkeys((*names, "root", "asynchronous", "uneven"))
    if not markers:
        return found
    first, ranks = markers[0], _ranks(markers[0])
    kind = kind_of(first.op or "") or "other"
    found |= {
        "group_name": first.group,
        "group_desc": first.desc,
        "group_size": None if ranks is None else len(ranks),
        "group_ranks": ranks,
        "seq": first.number,
        "seq_source": None if first.number is None else "marker",
        "seq_since": first.since,
        "asynchronous": not first.waits,
        "peer": first.peer if kind in POINT_TO_POINT else None,
        "root": first.peer if kind in _ROOTED else None,
        **_moved(markers, kind),
    }
    return found


def _ranks(marker: Marker) -> list[int] | None:
    if marker.span is None:
        return None if marker.ranks is None else list(marker.ranks)
    first, size, step = marker.span
    return list(range(first, first + size * step, step)) if step else None


def _moved(markers: list[Marker], kind: str) -> dict[str, Any]:
    counts = [[m.in_bytes, m.out_bytes, m.sent_bytes, m.received_bytes] for m in markers]
    sums = [None if None in of_one else sum(of_one) for of_one in zip(*counts, strict=True)]
    into, out, sent, received = sums
    if kind == "send":
        sent, received = into, 0
    elif kind == "recv":
        sent, received = 0, out
    dtypes = {marker.dtype for marker in markers}
    return {
        **dict(zip(_BYTES, (into, out, sent, received), strict=True)),
        "bytes_source": None if into is None else "marker",
        "dtype": dtypes.pop() if len(dtypes) == 1 else None,
        "uneven": any(m.uneven for m in markers) if kind == "all_to_all" else None,
    }
