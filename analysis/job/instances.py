"""Which members belong together: by number, else by order where the ranks' sequences agree.

Nothing is matched by a guess: where the ranks differ, the note says how and where it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.job.collective_rows import POINT_TO_POINT, SYNCHRONISING
from pyprof2.columns import as_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS: Final = (
    "rank", "collective_id", "step", "start_ns", "dur_ns", "issued_ns", "stream", "kind", "dtype",
    "group_key", "group_desc", "group_size", "seq", "in_bytes", "out_bytes", "peer", "coalesced",
    "uneven", "send_bytes_to_others", "recv_bytes_from_others", "seq_source", "seq_since",
)  # fmt: skip
"""The columns of `collectives` that matching and the steps after it read."""

_NO_STEP: Final = -(1 << 62)
_CUT: Final = "not all ranks were recorded when it was called"
_MOST_CUT: Final = 8
"""A recording that begins with the others begins at most so many collectives apart from them."""
_SAME_SIZE: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""Kinds in which every member has as many bytes."""
_ALONE: Final = "only one of its ranks is recorded"
_ONE: Final = "a group of one rank: nothing is communicated"
_NO_CLOCK: Final = (
    "neither numbers nor steps, and the ranks do not share a clock: a recording that begins one "
    "step later would look the same"
)
_GROUPS: Final = "groups are not recorded, and there is more than one: {}"
_LOST: Final = "unmatched: none of rank {} matches it; those after it are matched by their times"
_MOST_OF_STEP: Final = 1 << 32
"""No step has so many collectives."""
_NO_STEP_HERE: Final = "outside of any step"
_OTHER_JOB: Final = "of another job, or of another start of it"


class Recordings(NamedTuple):
    """Facts about the recordings together.

    Attributes:
        one_clock: whether all ranks' times are of one clock.
        other_job: ranks that are of another job.
    """

    one_clock: bool
    other_job: frozenset[int] = frozenset()


def match_members(members: pd.DataFrame, recordings: Recordings) -> pd.DataFrame:
    """Return the members with `instance_id`, `members_recorded`, `match` and `match_note`.

    Args:
        members: `COLUMNS` of all ranks.
        recordings: whether the ranks share a clock, and which are not to be matched.
    """
    frame = members.reset_index(drop=True)
    found = pd.DataFrame(
        {"key": pd.Series(None, frame.index, object), "match": "unmatched", "match_note": None},
        frame.index,
    ).astype(object)
    one = (frame["group_size"] == 1).fillna(value=False).to_numpy(bool)
    other = frame["rank"].isin(recordings.other_job).to_numpy(bool)
    found.loc[one, "match_note"] = _ONE
    found.loc[other & ~one, "match_note"] = _OTHER_JOB
    left = ~one & ~other
    for rule in (_by_marker, _by_pair, _by_number, _by_order):
        rows = frame[left]
        if not len(rows):
            break
        result = rule(rows, recordings)
        found.loc[result.index, list(result)] = result
        left &= ~frame.index.isin(result.index)
    return _numbered(frame, found)


def _numbered(frame: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Give each key a number, in order of its first start, and count its members."""
    known = found["key"].notna()
    codes, _ = pd.factorize(found["key"])
    first = frame["start_ns"].where(known).groupby(codes, observed=True).min()
    order = first[first.index >= 0].sort_values(kind="stable").index
    number = np.full(len(first) + 1, -1, np.int64)
    number[order.to_numpy()] = np.arange(len(order))
    instance = np.where(known, number[codes], -1)
    size = np.bincount(instance[instance >= 0], minlength=1)
    count = np.where(instance >= 0, size[instance], 1)
    return frame.assign(
        instance_id=pd.Series(instance, frame.index, dtype="Int64").mask(instance < 0),
        members_recorded=pd.Series(count, frame.index, dtype="Int64"),
        match=found["match"],
        match_note=found["match_note"],
    )


def _by_pair(rows: pd.DataFrame, _: Recordings) -> pd.DataFrame:
    """Match the n-th send of one rank to another with the n-th recv of the other from it."""
    rows = rows[rows["kind"].isin(POINT_TO_POINT)]
    is_send = (rows["kind"] == "send").to_numpy(bool)
    peer = rows["peer"].astype("Int64")
    known = rows["peer"].notna() & rows["group_key"].notna()
    note = pd.Series("its peer or its group is not recorded", rows.index, object)
    result = pd.DataFrame({"key": None, "match": "unmatched", "match_note": note}, rows.index)
    result = result.astype(object)
    if not known.any():
        return result
    rank = rows["rank"].astype("Int64")
    pairs = pd.DataFrame(
        {
            "group": rows["group_key"],
            "source": rank.where(is_send, peer),
            "target": peer.where(is_send, rank),
            "step": rows["step"].fillna(_NO_STEP),
            "kind": rows["kind"],
            "when": _issue(rows),
        }
    )[known.to_numpy(bool)].sort_values("when", kind="stable")
    where = ["group", "source", "target", "step"]
    pairs["n"] = pairs.groupby([*where, "kind"], dropna=False, observed=True).cumcount()
    pairs["pair"] = pairs.groupby([*where, "n"], dropna=False, observed=True)["kind"].transform(
        "nunique"
    )
    matched = pairs[pairs["pair"] == 2]
    keys = pd.Series(list(zip(*(matched[c] for c in (*where, "n")), strict=True)), matched.index)
    result.loc[matched.index, "key"] = keys
    result.loc[matched.index, "match"] = "order"
    result.loc[matched.index, "match_note"] = None
    alone = pairs.index.difference(matched.index)
    result.loc[alone, "match_note"] = "the other end is not recorded"
    return result


def _by_marker(rows: pd.DataFrame, _: Recordings) -> pd.DataFrame:
    """Match by group and the number of our annotation, where all ranks began to count as one.

    A send has the number of the recv of its peer. Groups in which a rank began at another place, or
    at an unknown one, are left to the other rules.
    """
    marked = (rows["seq_source"] == "marker").to_numpy(bool) & rows["seq"].notna().to_numpy(bool)
    rows = rows[marked & rows["group_key"].notna().to_numpy(bool)]
    since = rows.groupby("group_key", observed=True)["seq_since"]
    rows = rows[(since.transform("nunique", dropna=False) == 1) & rows["seq_since"].notna()]
    if not len(rows):
        return pd.DataFrame(columns=["key", "match", "match_note"])
    rank, peer = rows["rank"].astype("Int64"), rows["peer"].astype("Int64")
    is_pair = rows["kind"].isin(POINT_TO_POINT).to_numpy(bool)
    is_send = (rows["kind"] == "send").to_numpy(bool)
    ends = {
        "_from": rank.where(is_send, peer).where(is_pair, -1).fillna(-2),
        "_to": peer.where(is_send, rank).where(is_pair, -1).fillna(-2),
        "_sign": _signature(rows).where(~is_pair, "pair"),
    }
    return _same_number(rows.assign(**ends), ["group_key", "_from", "_to", "seq"], "marker")


def _by_number(rows: pd.DataFrame, _: Recordings) -> pd.DataFrame:
    """Match by group and number, as the recorder has it."""
    recorded = (rows["seq_source"] != "marker").to_numpy(bool) & rows["seq"].notna().to_numpy(bool)
    rows = rows[rows["group_key"].notna().to_numpy(bool) & recorded]
    rows = rows.assign(_sign=as_text(rows["kind"]))
    return _same_number(rows, ["group_key", "seq"], "seq")


def _same_number(rows: pd.DataFrame, by: list[str], word: str) -> pd.DataFrame:
    """Match members of one number; a number that comes twice on a rank is not matched."""
    keys = rows.groupby(by, observed=True)
    twice = rows.duplicated(["rank", *by], keep=False)
    bad = twice.groupby([rows[name] for name in by], observed=True).transform("any")
    differs = keys["_sign"].transform("nunique") > 1
    alone = keys["rank"].transform("nunique") == 1
    note = pd.Series(None, rows.index, object)
    note[alone] = _ALONE
    note[differs] = "members with this number are of different kinds or sizes"
    note[bad] = "a rank has this number twice: a restart, or the counter began again"
    good = ~(bad | differs | alone)
    key = pd.Series(list(zip(*(rows[name] for name in by), strict=True)), rows.index, object)
    match = pd.Series("unmatched", rows.index, object).mask(good, word)
    return pd.DataFrame({"key": key.where(good, None), "match": match, "match_note": note})


def _by_order(rows: pd.DataFrame, recordings: Recordings) -> pd.DataFrame:
    """Match the n-th collective of a group in a step, where all ranks' sequences agree."""
    has_group = rows["group_key"].notna()
    parts = [
        _ordered(rows[has_group], "group_key", "order", recordings),
        _ordered(rows[~has_group], "kind", "order_kind", recordings),
    ]
    return pd.concat([part for part in parts if len(part)])


def _ordered(rows: pd.DataFrame, axis: str, rule: str, recordings: Recordings) -> pd.DataFrame:
    result = pd.DataFrame({"key": None, "match": "unmatched", "match_note": None}, rows.index)
    result = result.astype(object)
    if not len(rows):
        return result
    frame = pd.DataFrame(
        {
            "rank": rows["rank"].astype("int64"),
            "axis": rows[axis].astype(object),
            "step": rows["step"].fillna(_NO_STEP).astype("int64"),
            "sign": _signature(rows),
            "when": _issue(rows),
        }
    )
    refused = _refused(rows, frame, rule, recordings)
    result["match_note"] = refused
    frame = frame[refused.isna()].sort_values(["when"], kind="stable")
    if not len(frame):
        return result
    where = ["axis", "step"]
    frame["n"] = frame.groupby([*where, "rank"], observed=True).cumcount()
    if rows["kind"].isin(SYNCHRONISING).all():
        whole, frame = frame, _cut_alike(frame, rows)
        result.loc[whole.index.difference(frame.index), "match_note"] = _CUT
    frame, again = _resynchronised(frame, rows, recordings)
    ranks = _expected(frame)
    at = frame.groupby([*where, "n"], observed=True)
    there, signs = at["rank"].transform("nunique"), at["sign"].transform("nunique")
    bad = (there != ranks) | (signs != 1)
    first = frame["n"].where(bad).groupby([frame[c] for c in where], observed=True).transform("min")
    again = again.reindex(frame.index)
    good = first.isna() | (frame["n"] < first) | (again & ~bad)
    alone = ranks == 1
    keys = pd.Series(list(zip(frame["axis"], frame["step"], frame["n"], strict=True)), frame.index)
    result.loc[frame.index, "key"] = keys.where(good & ~alone, None)
    result.loc[frame.index, "match"] = pd.Series(rule, frame.index).where(
        good & ~alone, "unmatched"
    )
    result.loc[frame.index[alone.to_numpy(bool)], "match_note"] = _ALONE
    differs = frame[~good & ~alone]
    lost = differs[again[differs.index]]
    known: dict[Any, set[int]] = {}
    if len(lost):
        known = frame.groupby(where, observed=True)["rank"].agg(set).to_dict()
    for (axis_key, step, _), part in lost.groupby([*where, "n"], observed=True):
        missing = sorted(known[axis_key, step] - {*part["rank"]})
        result.loc[part.index, "match_note"] = _LOST.format(", ".join(map(str, missing)))
    for place, part in differs[~again[differs.index]].groupby(where, observed=True):
        whole = frame[(frame["axis"] == place[0]) & (frame["step"] == place[1])]
        result.loc[part.index, "match_note"] = _difference(
            whole, axis, rows, int(first[part.index[0]])
        )
    return result


def _resynchronised(
    frame: pd.DataFrame, rows: pd.DataFrame, recordings: Recordings
) -> tuple[pd.DataFrame, pd.Series]:
    """Return the members, and which of them are numbered by the time at which they met.

    Where a rank lost a collective, all later ones of the step have other numbers on it. There each
    has the number of the member of the rank with most that it met: on one clock, or on clocks as
    far apart as the ends of collectives are in the nearest step of which no rank lost any. What met
    no one, or two that met one, have numbers of their own, which no other rank has.
    """
    again = pd.Series(data=False, index=frame.index)
    place = frame.groupby(["axis", "step"], observed=True).ngroup()
    count = frame.groupby([place, frame["rank"]], observed=True).size()
    sizes = count.groupby(level=0, observed=True).agg(["min", "max"])
    lost = sizes.index[sizes["min"] < sizes["max"]]
    if not len(lost):
        return frame, again
    start = rows["start_ns"].astype("int64").reindex(frame.index)
    end = start + rows["dur_ns"].astype("int64").reindex(frame.index)
    frame, is_lost = frame.assign(_start=start, _end=end), place.isin(lost)
    whole = frame[~is_lost]
    members = place.groupby(place, observed=True).indices
    apart: dict[tuple[int, int], pd.DataFrame] = {}
    for number in lost:
        own = frame.iloc[members[number]]
        ranks: dict[Any, pd.DataFrame] = dict(iter(own.groupby("rank", observed=True)))
        most = max(ranks, key=lambda rank: len(ranks[rank]))
        shifts = dict.fromkeys(ranks, 0)
        if not recordings.one_clock:
            here = ranks[most]["_end"].median()
            for rank in ranks:
                if (most, rank) not in apart:
                    apart[most, rank] = _apart(whole, most, rank)
                steps = apart[most, rank]
                if len(steps):
                    nearest = int((steps["when"] - here).abs().to_numpy().argmin())
                    shifts[rank] = round(float(steps["apart"].iloc[nearest]))
            if any(apart[most, rank].empty for rank in ranks):
                continue
        again[own.index] = True
        for rank, part in ranks.items():
            if rank != most:
                frame.loc[part.index, "n"] = _met(ranks[most], part, shifts[rank])
    return frame.drop(columns=["_start", "_end"]), again


def _apart(whole: pd.DataFrame, one: int, other: int) -> pd.DataFrame:
    """Return how much later collectives end on another rank's clock, in the middle of each step.

    Args:
        whole: members of steps of which no rank lost any: `axis`, `step`, `n`, `rank`, `_end`.
        one: a rank.
        other: another one.

    Returns:
        A row per step of both, with `when` on the clock of `one`, and `apart`.
    """
    keys = ["axis", "step", "n", "sign"]
    ends = [whole[whole["rank"] == rank].set_index(keys)["_end"] for rank in (one, other)]
    both = pd.concat(ends, axis=1, keys=["when", "other"], join="inner")
    both = both.assign(apart=both["other"] - both["when"])
    return both.groupby(level=["axis", "step"], observed=True)[["when", "apart"]].median()


def _met(whole: pd.DataFrame, part: pd.DataFrame, shift: int) -> NDArray[np.int64]:
    """Return for each member of a rank the number of the one of another rank that it met.

    Args:
        whole: the members of the other rank, in order.
        part: those of the rank, in order.
        shift: how much later the clock of the rank is.
    """
    start, end = (part[name].to_numpy() - shift for name in ("_start", "_end"))
    begins, ends = (whole[name].to_numpy() for name in ("_start", "_end"))
    middle = ends[:-1] + np.diff(ends) // 2
    at = np.searchsorted(middle, end)  # the one whose end is nearest
    met = (start <= ends[at]) & (begins[at] <= end)
    # In the order of their launches; where they do not end in it, on several streams, nearest says
    # nothing.
    met &= bool((np.diff(ends) > 0).all() and (np.diff(end) > 0).all())
    met &= whole["sign"].to_numpy()[at] == part["sign"].to_numpy()
    met &= (np.bincount(at, minlength=len(ends)) == 1)[at]
    alone = len(whole) + 1 + part["rank"].to_numpy() * _MOST_OF_STEP + np.arange(len(part))
    return np.where(met, whole["n"].to_numpy()[at], alone)


def _cut_alike(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the members outside of steps, numbered so that those of one number met.

    Recordings that begin at one instant cut a job where some ranks have called a collective and
    others have not. On one clock no member ends before all have begun, so that a rank's numbers are
    known where only one way to count gives equal calls that all met; else they stay as they are.
    """
    start = rows["start_ns"].astype("int64").reindex(frame.index)
    end = start + rows["dur_ns"].astype("int64").reindex(frame.index)
    frame = frame.assign(_start=start, _end=end)
    whole = pd.Series(data=True, index=frame.index)
    for _, own in frame[frame["step"] == _NO_STEP].groupby("axis", observed=True):
        ranks = [part for _, part in own.groupby("rank", observed=True)]
        shifts = [_shift(ranks[0], part) for part in ranks]
        known = [shift for shift in shifts if shift is not None]
        if len(known) < len(shifts) or not any(known):
            continue
        last = min(len(part) + shift for part, shift in zip(ranks, known, strict=True))
        for part, shift in zip(ranks, known, strict=True):
            number = part["n"] + shift - max(known)
            frame.loc[part.index, "n"] = number
            whole[part.index] = (number >= 0) & (number < last - max(known))
    return frame[whole].drop(columns=["_start", "_end"])


def _shift(one: pd.DataFrame, other: pd.DataFrame) -> int | None:
    """Return how many calls later than `one` the other rank begins; None: not known."""
    found = []
    for shift in range(-_MOST_CUT, _MOST_CUT + 1):
        a = one.iloc[max(0, shift) :]
        b = other.iloc[max(0, -shift) :]
        count = min(len(a), len(b))
        a, b = a.iloc[:count], b.iloc[:count]
        same = (a["sign"].to_numpy() == b["sign"].to_numpy()).all()
        began = np.maximum(a["_start"].to_numpy(), b["_start"].to_numpy())
        met = (began <= np.minimum(a["_end"].to_numpy(), b["_end"].to_numpy())).all()
        if count > 2 * _MOST_CUT and same and met:
            found.append(shift)
    return found[0] if len(found) == 1 else None


def _expected(frame: pd.DataFrame) -> pd.Series:
    """Return how many ranks have each row's step at all, and any member of its group."""
    of_axis = frame.groupby("axis", observed=True)["rank"].agg(set)
    of_step = frame.groupby("step", observed=True)["rank"].agg(set)
    pairs = frame[["axis", "step"]].drop_duplicates()
    count = {
        (axis, step): len(of_axis[axis] & of_step[step])
        for axis, step in pairs.itertuples(index=False)
    }
    keys = zip(frame["axis"], frame["step"], strict=True)
    return pd.Series([count[key] for key in keys], frame.index)


def _refused(
    rows: pd.DataFrame, frame: pd.DataFrame, rule: str, recordings: Recordings
) -> pd.Series:
    """Return why members are not matched by order at all; null: they may be."""
    note = pd.Series(None, rows.index, object)
    no_step = frame["step"] == _NO_STEP
    why_not = _NO_STEP_HERE if (~no_step).any() else _NO_CLOCK
    note[no_step & (not recordings.one_clock)] = why_not
    if rule == "order_kind":
        note[frame["axis"].to_numpy() == "other"] = "its kind is not recorded"
        # The kinds that a rank has in more than one group, and the evidence.
        several: dict[str, str] = {}
        for column, word in (("stream", "streams"), ("group_size", "sizes of groups")):
            count = rows.groupby(["rank", "kind"], observed=True)[column].nunique().reset_index()
            for rank, kind, number in count[count[column] > 1].itertuples(index=False):
                several.setdefault(str(kind), f"rank {rank} has {kind} of {number} {word}")
        for kind, why in several.items():
            note[frame["axis"].to_numpy() == kind] = _GROUPS.format(why)
    return note


def _signature(rows: pd.DataFrame) -> pd.Series:
    """Return a text that is equal on all members: kind, element type, and bytes where they are."""
    dtype, size = rows["dtype"].astype(object), rows["in_bytes"].astype(object)
    if dtype.isna().any():  # not recorded on some rank
        dtype = pd.Series(None, rows.index, object)
    same = rows["kind"].isin(_SAME_SIZE).to_numpy(bool)
    known = rows.groupby("kind", observed=True)["in_bytes"].transform(lambda s: s.notna().all())
    size = size.where(same & known.to_numpy(bool), None)
    texts = zip(as_text(rows["kind"]), dtype, size, strict=True)
    return pd.Series([f"{k} {d} {s}" for k, d, s in texts], rows.index)


def _issue(rows: pd.DataFrame) -> pd.Series:
    """Return the times that members are ordered by: of their launch, which streams do not swap.

    One without a launch was issued before the next one on its stream that has one.
    """
    start = rows["start_ns"].astype("int64")
    issued = rows["issued_ns"].astype("Int64")
    if not issued.isna().any():
        return issued.astype("int64")
    order = rows.assign(_issued=issued).sort_values("start_ns", kind="stable")
    queue = [order["rank"], order["stream"].astype("Int64").fillna(-1)]
    later = order.groupby(queue, observed=True)["_issued"].bfill()
    known = pd.Series(later, order.index).reindex(rows.index)
    filled = issued.fillna(known - 1).fillna(start).astype("int64")
    return filled.where(issued.notna().to_numpy(bool), np.minimum(filled, start))


def _difference(whole: pd.DataFrame, axis: str, rows: pd.DataFrame, at: int) -> str:
    """Return in words how the sequences of two ranks differ."""
    counts = whole.groupby("rank", observed=True).size()
    most: Any = counts.idxmax()
    least: Any = counts.idxmin()
    if axis == "kind":
        what = str(whole["axis"].iloc[0])
    else:
        some = rows.loc[whole.index]
        kinds = as_text(some["kind"]).unique()
        desc = some["group_desc"].dropna()
        group = str(desc.iloc[0]) if len(desc) and desc.iloc[0] else str(whole["axis"].iloc[0])
        what = f"{kinds[0] if len(kinds) == 1 else 'collectives'} of group {group}"
    if counts[most] == counts[least]:
        return f"unmatched: all ranks have {counts[most]} {what}; first difference at {at}"
    return (
        f"unmatched: rank {least} has {counts[least]}, rank {most} has {counts[most]} {what}; "
        f"first difference at {at}"
    )
