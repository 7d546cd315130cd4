"""Idle time summed along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.axes import check_known_once
from pyprof2.analysis.chunked import RunningCodes
from pyprof2.columns import combinations, int_array, text_array
from pyprof2.errors import refuse
from pyprof2.recording import int_column
from pyprof2.tables import IDLE, TEXT, Column
from pyprof2.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from pyprof2.analysis.intervals import Int

AXES: Final = (
    "cause", "group", "source", "op", "layer", "call", "step", "thread", "device", "rank", "note",
    "phase",
)  # fmt: skip
"""The axes of sums of idle time: columns of the table `idle`, and the phase of a server."""
OUTLINE: Final = ("group", "cause", "call", "op", "note", "source")
"""The axes that an outline is made of."""
ADDED: Final = ("count", "time_ns")
_NULL: Final = -(1 << 62)
_APART: Final = 4
"""Parts hold at most so many times the combinations that there are, before they are added up."""

SUMMARY_COLUMNS: Final = (
    Column("count", pa.int64(), "Parts of gaps."),
    Column("time_ns", pa.int64(), "Their time.", "ns"),
    Column("share_pct", pa.float64(), "Share of the idle time.", "%"),
    Column("window_pct", pa.float64(), "Share of the time that was recorded.", "%"),
    Column("mean_ns", pa.float64(), "Mean time of an interval.", "ns"),
    Column("max_ns", pa.int64(), "Time of the longest interval.", "ns"),
)


def check_axes(axes: Sequence[str]) -> None:
    """Raise UsageError for an axis that there is not, or that is named twice."""
    check_known_once(axes, AXES, "of idle time")


def select_rank(
    idle: pd.DataFrame, windows: pd.DataFrame, rank: int | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of a rank, of all by default.

    Raises:
        UsageError: none of its devices did anything.
    """
    if rank is None or windows.empty:
        return idle, windows
    ranks = sorted(set(windows["rank"].tolist()))
    if rank not in ranks:
        there = ", ".join(map(str, ranks))
        refuse(f"rank {rank}: no device of such a rank was recorded; ranks with one: {there}")
    return idle[idle["rank"] == rank], windows[windows["rank"] == rank]


def summarize_idle(idle: pd.DataFrame, axes: Sequence[str], window_ns: int) -> pd.DataFrame:
    """Return idle time summed along axes, the longest first.

    Args:
        idle: what `added_up` returns of the table `idle`, or its rows with `max_ns`, their time.
        axes: some of `AXES`; they must be among the columns.
        window_ns: the time that was recorded, of all devices.

    Returns:
        The axes, and `SUMMARY_COLUMNS`. Rows whose value of an axis is null are summed, too.
    """
    import pandas as pd

    check_axes(axes)
    by = idle.groupby(list(axes), dropna=False, observed=True, sort=True)
    sums = pd.DataFrame({"count": by["count"].sum(), "time_ns": by["time_ns"].sum()})
    sums["share_pct"] = 100 * sums["time_ns"] / max(1, int(idle["time_ns"].sum()))
    sums["window_pct"] = 100 * sums["time_ns"] / max(1, window_ns)
    sums["mean_ns"] = sums["time_ns"] / sums["count"].clip(lower=1)
    sums["max_ns"] = by["max_ns"].max()
    return sums.reset_index().sort_values(
        "time_ns", ascending=False, kind="stable", ignore_index=True
    )


def added_up(parts: Iterable[pa.Table], axes: Sequence[str]) -> pa.Table:
    """Return rows of the table `idle` added up along axes, as they come in parts.

    Args:
        parts: columns `ADDED` and the axes, of the whole table.
        axes: columns of the table `idle`.

    Returns:
        The axes, and `count`, `time_ns` and `max_ns`, the time of the longest row, of each
        combination that there is, in the order of the first row of each.
    """
    texts = {name: RunningCodes() for name in axes if IDLE.schema([name]).field(0).type == TEXT}
    sums = _IdleSums(len(axes))
    for part in parts:
        keys = [
            texts[name].add(part, name) if name in texts else int_column(part, name, _NULL)
            for name in axes
        ]
        count, time = (int_column(part, name, 0) for name in ADDED)
        sums.add(*(np.asarray(key, np.int64) for key in keys), count, time, time)
    sums.settle()
    columns = {
        name: text_array((key, texts[name].texts)) if name in texts else int_array(key, _NULL)
        for name, key in zip(axes, sums.columns, strict=False)
    }
    sums_of = dict(zip((*ADDED, "max_ns"), sums.columns[len(axes) :], strict=True))
    return pa.table(columns | {name: pa.array(each) for name, each in sums_of.items()})


class _IdleSums:
    """Two sums and the largest of a third number, by whole numbers together.

    Attributes:
        columns: the numbers, and then the sums, once they are settled.
    """

    def __init__(self, width: int) -> None:
        self.columns: list[Int] = [np.empty(0, np.int64)] * (width + 3)
        self._width, self._parts = width, [self.columns]

    def add(self, *columns: Int) -> None:
        """Take more rows."""
        self._parts.append(self._added(columns))
        if sum(len(part[0]) for part in self._parts) > _APART * len(self.columns[0]):
            self.settle()

    def settle(self) -> None:
        """Add up what the parts have of each combination."""
        self.columns = self._added(
            [np.concatenate(each) for each in zip(*self._parts, strict=True)]
        )
        self._parts = [self.columns]

    def _added(self, columns: Sequence[Int]) -> list[Int]:
        keys, values = columns[: self._width], columns[self._width :]
        first, place = combinations(keys)
        found = np.zeros((2, len(first)), np.int64)
        longest = np.full(len(first), -1)
        for sums, each in zip(found, values, strict=False):
            np.add.at(sums, place, each)
        np.maximum.at(longest, place, values[2])
        return [*(key[first] for key in keys), *found, longest]


NO_OP: Final = "(no op)"
"""The words for a host that is in no op and no call."""

OUTLINE_TEXTS: Final = ("group", "cause", "doing", "source")
"""The columns of text of an outline; in a row that sums others up the inner ones are blank."""


def idle_outline(idle: pd.DataFrame, window_ns: int, most: int = 3) -> pd.DataFrame:
    """Return idle time by group, in it by cause, and in that by what the host was doing.

    Args:
        idle: rows of the table `idle`, or what `added_up` returns along `OUTLINE`.
        window_ns: the time that was recorded, of all devices.
        most: how many doings of a cause to show by themselves; the others are a row.

    Returns:
        `OUTLINE_TEXTS`, `count`, `time_ns`, `share_pct` and `window_pct`, the longest first; a row
        of a group or a cause comes before those that it sums up.
    """
    import pandas as pd

    texts = idle[["call", "op", "note"]].astype("object")
    is_unknown = idle["cause"].astype("object") == "unknown"
    note = texts["note"].where(is_unknown & texts["note"].notna(), "")
    doing = texts["call"].fillna(texts["op"].fillna(note))
    source = idle["source"].astype("object").fillna("")
    rows = idle[["group", "cause", "count", "time_ns"]].assign(
        doing=doing.to_numpy(), source=source.to_numpy()
    )
    found: list[dict[str, Any]] = []
    for group, of_group in _longest_first(rows, ["group"]):
        found.append({"group": group[0]} | _sums(of_group))
        for cause, of_cause in _longest_first(of_group, ["cause"]):
            found.append({"cause": cause[0]} | _sums(of_cause))
            found += _doings(of_cause, most)
    outline = pd.DataFrame(found, columns=[*OUTLINE_TEXTS, "count", "time_ns"])
    outline = outline.fillna(dict.fromkeys(OUTLINE_TEXTS, "")).astype(
        {"count": "int64", "time_ns": "int64"}
    )
    outline["share_pct"] = 100 * outline["time_ns"] / max(1, int(idle["time_ns"].sum()))
    outline["window_pct"] = 100 * outline["time_ns"] / max(1, window_ns)
    return outline


def _longest_first(rows: pd.DataFrame, by: list[str]) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    groups: Any = rows.groupby(by, observed=True, sort=True)
    return sorted(groups, key=lambda item: -int(item[1]["time_ns"].sum()))


def _sums(rows: pd.DataFrame) -> dict[str, Any]:
    return {name: int(rows[name].sum()) for name in ("count", "time_ns")}


def _doings(rows: pd.DataFrame, most: int) -> list[dict[str, Any]]:
    """Return what the host was doing, the longest first, and the rest as one; none if unknown."""
    by = _longest_first(rows, ["doing", "source"])
    if [names for names, _ in by] == [("", "")]:
        return []
    found: list[dict[str, Any]] = [
        {"doing": doing or NO_OP, "source": source} | _sums(own)
        for (doing, source), own in by[:most]
    ]
    rest = [own for _, own in by[most:]]
    if rest:
        sums = {n: sum(_sums(own)[n] for own in rest) for n in ("count", "time_ns")}
        found.append({"doing": f"({counted(len(rest), 'other')})"} | sums)
    return found
