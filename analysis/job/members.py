"""The members of a rank completed: by the annotation, by worker threads, with keys of groups.

The annotation writes a marker, a range without length inside the op that it describes. It fills in
what the recorder left out, and never replaces what it recorded.

Collectives that a worker thread does, as gloo's, are only handed over by an op. Such an op returns
at once, so its time is not the collective's: that of the worker's range `gloo:…` is. Work is done
in the order in which it is handed over, whatever the worker calls it (gloo does a reduce_scatter as
an all_reduce).

A group's name is a counter of the process that made it, so two ranks may call one group by two
names. Its ranks and its description are the same everywhere; of several groups with the same ones,
all ranks made them in the same order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.intervals import Nest
from pyprof2.analysis.job.collective_calls import DescribedCall, with_range
from pyprof2.analysis.job.collective_rows import MARKER_KIND, POINT_TO_POINT, is_work, kind_of
from pyprof2.columns import lookup
from pyprof2.markers import parse_marker
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
"""Columns that are taken together where the one beside them is missing: half a group is another."""
_EXACT: Final = ("in_bytes", "dtype")
"""Better than by the shapes of inputs, which are silent on lists in lists, and count the tensor
that a barrier is called with."""


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
        rows: the positions of the ops to search.
    """
    start, dur, thread = (int_column(ops, c, 0)[rows] for c in ("start_ns", "dur_ns", "tid"))
    nest = Nest.of(thread, start, start + dur)
    at = nest.innermost(int_column(ranges, "tid", -1), int_column(ranges, "start_ns", 0))
    return lookup(rows, at, -1)


def with_markers(
    members: pd.DataFrame, at: Int, markers: Mapping[int, list[Marker]]
) -> pd.DataFrame:
    """Return members with missing values taken from their markers.

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
    for names, key in _TOGETHER:
        lacks = frame[key].isna() & words[key].notna()
        if key in _EXACT:
            lacks |= by_shapes & words["in_bytes"].notna()
        for name in names:
            pairs = zip(lacks, frame[name], words[name], strict=True)
            frame[name] = pd.Series([w if own else v for own, v, w in pairs], dtype=object)
    return frame


def _said(markers: list[Marker]) -> dict[str, Any]:
    """Return the columns of table `collectives` that the markers of an op hold."""
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


SAID: Final = ("in_bytes", "out_bytes", "dtype", "bytes_source")
"""The columns of a member that the range of its work may hold."""
_HANDED: Final = re.compile(r"c10d::|_c10d_functional(?:_autograd)?::")


def on_workers(
    members: pd.DataFrame, ranges: pa.Table, said: Mapping[int, DescribedCall]
) -> pd.DataFrame:
    """Return members of ops with the times of the work that they handed over.

    `issued_ns` stays the start of the op. Where there are not as many ops as work, but for those
    that the ends of the recording cut off, or any work began before its op, they are left unpaired:
    the times stay those of the ops. Sizes that an op lacks are those of its work, where that is of
    the same kind.

    Args:
        members: without kernel; `op`, `kind`, `group_size`, `start_ns`, `dur_ns`, `transport`, and
            the columns `SAID`.
        ranges: `name`, `start_ns`, `dur_ns` of the rank.
        said: by row of `ranges`, the descriptions by those that were called with tensors.
    """
    # The ops that may hand work over; those of a group of one rank never do.
    names = members["op"].map(lambda name: bool(_HANDED.match(name or ""))).to_numpy(bool)
    alone = (members["group_size"] == 1).fillna(value=False).to_numpy(bool)
    rows, (work, start, dur) = np.flatnonzero(names & ~alone), _work(ranges)
    order = rows[np.argsort(members["start_ns"].to_numpy(np.int64)[rows], kind="stable")]
    issued = members["start_ns"].to_numpy(np.int64)[order]
    if not len(order):
        return members
    if len(order) != len(start) or start[0] < issued[0]:
        # Work from before the first op is of one before the recording, and that of the last ops may
        # not have ended in it. Which is whose is known where each began before the next op did.
        begun = start >= issued[0]
        work, start, dur = work[begun], start[begun], dur[begun]
        count = len(start)
        if not 0 < count <= len(order) or (start[: len(order) - 1] >= issued[1:][:count]).any():
            return members
    if (start < issued[: len(start)]).any():
        return members
    place = members.index[order[: len(start)]]
    found = members.copy()
    found.loc[place, "start_ns"] = pd.array(start, "Int64")
    found.loc[place, "dur_ns"] = pd.array(dur, "Int64")
    found.loc[place, "transport"] = "gloo"
    found_in = {at: said[row] for at, row in zip(place, work.tolist(), strict=True) if row in said}
    for at, own in found_in.items():
        size = found.loc[at, "group_size"]
        known = DescribedCall(found.loc[at, "kind"], size=None if pd.isna(size) else int(size))
        known = with_range(known, str(found.loc[at, "op"]), [own])
        if known.bytes_source and pd.isna(found.loc[at, "bytes_source"]):
            for name in SAID:
                found.loc[at, name] = getattr(known, name)
    return found


def _work(ranges: pa.Table) -> tuple[Int, Int, Int]:
    """Return row, start and duration of the ranges in which workers communicate, in order."""
    code, names = code_column(ranges, "name")
    works = np.array([*map(is_work, names), False], bool)[code]
    start, dur = (int_column(ranges, name, 0)[works] for name in ("start_ns", "dur_ns"))
    order = np.lexsort((dur, start))
    return np.flatnonzero(works)[order], start[order], dur[order]


_SPECIFIC: Final = ["_ranks", "group_desc"]


def with_group_keys(members: pd.DataFrame) -> pd.DataFrame:
    """Return the members of a rank with `group_key`; null where the ranks are not known.

    Args:
        members: columns `group_ranks`, `group_desc`, `group_name`, in order of time.
    """
    ranks = members["group_ranks"].map(_key, na_action="ignore").astype(object)
    desc = members["group_desc"].astype(object).where(members["group_desc"].notna(), "")
    frame = pd.DataFrame({"_ranks": ranks, "group_desc": desc, "name": members["group_name"]})
    known = frame["_ranks"].notna()
    names = frame[known].drop_duplicates([*_SPECIFIC, "name"])
    order = names["name"].map(_number)
    names = names.assign(_order=order).sort_values("_order", kind="stable")
    names["_ordinal"] = names.groupby(_SPECIFIC, observed=True).cumcount()
    ordinals = {
        (r, d, n if isinstance(n, str) else None): at
        for r, d, n, at in names[["_ranks", "group_desc", "name", "_ordinal"]].itertuples(
            index=False
        )
    }
    keys = [
        None
        if not isinstance(r, str)
        else f"{r}|{d}|{ordinals[r, d, n if isinstance(n, str) else None]}"
        for r, d, n in frame[["_ranks", "group_desc", "name"]].itertuples(index=False)
    ]
    return members.assign(group_key=pd.Series(keys, members.index, dtype=object))


def _number(name: object) -> tuple[int, str]:
    """Return the sort key of a group's name, in order of creation: its number, if it has one."""
    text = name if isinstance(name, str) else ""
    return (int(text), "") if text.isdecimal() and len(text) < 18 else (1 << 60, text)


def _key(ranks: Sequence[int]) -> str:
    """Return ranks as text, sorted, with runs as `0-7`."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in _runs(sorted(ranks)))


def _runs(ranks: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    return runs
