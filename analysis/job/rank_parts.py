"""How a rank's device spent a window, in five parts and idle time; and how two runs differ in it.

K are kernels that do not communicate, C those that do, M copies; `|X|` is the time that at least
one of X runs. Communication that nothing else covers is exposed; of it, where the members are
matched, one part is waiting for the last member, the other is transfer.

All ranks' steps become longer where one becomes slow. So between two runs a rank changed only if
its own times did: kernels that do not communicate, and idle time that its host caused.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.intervals import merged, time_within
from pyprof2.analysis.job.clocks import MAD_TO_SIGMA
from pyprof2.analysis.job.slow_ranks import EXCESS_MIN, Z_MIN
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.columns import values_of
from pyprof2.recording import has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.time.step_windows import StepWindows


INPUT: Final = {
    "kernels": ("kernel_id", "device", "start_ns", "dur_ns", "category"),
    "copies": ("kernel_id", "device", "start_ns", "dur_ns"),
}
"""The columns of the tables from which parts are made."""

PARTS: Final = ("compute_only", "comm_only", "copy_only", "comp_comm", "copy_overlap", "idle")
"""They add up to the window; `comp_comm`: kernels of both kinds at once."""


def five_parts(
    kernels: Iterable[pa.Table],
    copies: Iterable[pa.Table],
    windows: StepWindows | None,
    waits: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return the parts of each device and window.

    Args:
        kernels: of one rank, part by part, columns `INPUT`.
        copies: the same.
        windows: of its steps; None: one, from the first activity to the last.
        waits: of the rank's members, columns `kernel_id`, `start_ns`, `dur_ns`, `wait_ns`.

    Returns:
        `device`, `step` (null for the one window), `start_ns`, `window_ns`, `busy_ns`, each of
        `PARTS` with `_ns`, `exposed_wait_ns`, `exposed_transfer_ns` (null where nothing is
        matched), `compute_ns` and `comm_ns` (`|K|` and `|C|`), `overlap_pct` of communication:
        null without any.
    """
    work: dict[int, _Activities] = {}
    for part in kernels:
        is_comm = has_text(part, "category", ("comm",))
        _add(work, part, {"K": ~is_comm, "C": is_comm})
    for part in copies:
        _add(work, part, {"M": np.ones(part.num_rows, bool)})
    frames = [_parts_of(work[each], windows, waits, each) for each in sorted(work)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["device"])


class _Activities:
    """The activities of a device: the union of those of each kind, `K`, `C` or `M`.

    Attributes:
        members: `kernel_id` of those of kind `C`.
    """

    def __init__(self) -> None:
        self.members: set[int] = set()
        self._spans = {kind: [np.zeros((2, 0), np.int64)] for kind in "KCM"}

    def add(self, kind: str, start: Int, end: Int) -> None:
        """Add some, of which no more is kept than their union."""
        self._spans[kind].append(np.stack(merged(start, end)))

    def union(self, kinds: str) -> tuple[Int, Int]:
        """Return when any of some kinds ran."""
        start, end = np.concatenate([each for kind in kinds for each in self._spans[kind]], axis=1)
        return merged(start, end)

    def time(self, kinds: str, begin: Int, finish: Int, more: tuple[Int, Int] | None = None) -> Int:
        """Return the time in each window in which any of some kinds runs, as `KC`, or of `more`."""
        start, end = self.union(kinds)
        if more is not None:
            start, end = np.r_[start, more[0]], np.r_[end, more[1]]
        return time_within(start, end, begin, finish)


def _add(work: dict[int, _Activities], part: pa.Table, kinds: Mapping[str, Bool]) -> None:
    """Add the activities of a part to those of their devices."""
    device, start = int_column(part, "device", NEVER), int_column(part, "start_ns", 0)
    end, number = start + int_column(part, "dur_ns", 0), part["kernel_id"]
    for each in values_of(device).tolist():
        found = work.setdefault(each, _Activities())
        for kind, chosen in kinds.items():
            own = chosen & (device == each)
            found.add(kind, start[own], end[own])
            if kind == "C":
                found.members.update(number.filter(pa.array(own)).to_pylist())


def _parts_of(
    work: _Activities, windows: StepWindows | None, waits: pd.DataFrame | None, device: int
) -> pd.DataFrame:
    if windows is None:
        start, end = work.union("KCM")
        begin, finish = start[:1], end[-1:]
        step: Int | None = None
    else:
        step, begin, finish = windows
    times = {
        kinds: work.time(kinds, begin, finish) for kinds in ("K", "C", "KC", "KM", "CM", "KCM")
    }
    busy = times["KCM"]
    parts = {
        "compute_only": busy - times["CM"], "comm_only": busy - times["KM"],
        "copy_only": busy - times["KC"], "comp_comm": times["K"] + times["C"] - times["KC"],
    }  # fmt: skip
    parts["copy_overlap"] = busy - sum(parts.values())
    parts["idle"] = finish - begin - busy
    frame = pd.DataFrame({f"{name}_ns": parts[name] for name in PARTS})
    comm = times["C"]
    overlap = np.divide(
        100.0 * parts["comp_comm"], comm, out=np.full(len(comm), np.nan), where=comm > 0
    )
    frame = frame.assign(
        compute_ns=times["K"], comm_ns=comm, overlap_pct=overlap, busy_ns=busy,
        window_ns=finish - begin, start_ns=begin, device=device,
        step=pd.array([None] * len(begin) if step is None else step, "Int64"),
        **_exposed(work, waits, (begin, finish), parts["comm_only"]),
    )  # fmt: skip
    ordinal = frame["device"].astype("Int64")
    return frame.assign(device=ordinal.mask(ordinal == NEVER))


def _exposed(
    work: _Activities, waits: pd.DataFrame | None, window: tuple[Int, Int], alone: Int
) -> dict[str, pd.Series]:
    """Return the exposed communication by wait and transfer, and that of unmatched members."""
    names = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_unmatched_ns")
    rows = waits if waits is not None and len(waits) else None
    if rows is not None:
        known = rows["kernel_id"].isin(work.members)
        rows = rows[(rows["wait_ns"].notna() & known).to_numpy(bool)]
    if rows is None or not len(rows):
        empty = pd.Series([None] * len(alone), dtype="Int64")
        return dict(zip(names, (empty, empty, pd.Series(alone, dtype="Int64")), strict=True))
    start = rows["start_ns"].to_numpy(np.int64)
    until = start + rows["wait_ns"].to_numpy(np.int64)
    end = start + rows["dur_ns"].to_numpy(np.int64)
    other = work.time("KM", *window)
    waiting = work.time("KM", *window, (start, until)) - other
    both = work.time("KM", *window, (start, end)) - other
    found = (waiting, both - waiting, alone - both)
    return {n: pd.Series(v, dtype="Int64") for n, v in zip(names, found, strict=True)}


_ENOUGH: Final = 3
_ERRORS: Final = 2
_EXPOSED_WAIT: Final = "exposed_wait"
_WORDS: Final = {"compute_ns": ("computes longer", "computes less"),
                 "host_ns": ("its host is later", "its host is less late")}  # fmt: skip


def compared_ranks(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Return one row per rank that both runs have.

    Args:
        a: the windows of the steps before: `rank`, `window_ns`, each of `PARTS` with `_ns`,
            `exposed_wait_ns`, `compute_ns`, `host_ns`.
        b: those after.

    Returns:
        `rank`, `a_ns`, `b_ns` (means of the windows), `delta_ns`, `delta_pct`; for each of `PARTS`
        its part of the difference, `PART_delta_ns`, which add up to it; `exposed_wait_delta_ns`
        of communication, null where a side does not know it; `compute_delta_ns`,
        `host_delta_ns`, of the rank's own times; `changed`, in words, null where neither stands
        out.
    """
    ranks = sorted({*a["rank"]} & {*b["rank"]})
    names = ["window", *PARTS, _EXPOSED_WAIT, "compute", "host"]
    before, after = ({n: _means(side, f"{n}_ns") for n in names} for side in (a, b))
    rows = []
    for rank in ranks:
        both = {n: (before[n].get(rank), after[n].get(rank)) for n in names}
        delta = {n: None if x is None or y is None else y - x for n, (x, y) in both.items()}
        x, y = both["window"]
        rows.append(
            {"rank": rank, "a_ns": x, "b_ns": y, "delta_ns": delta.pop("window")}
            | {f"{name}_delta_ns": value for name, value in delta.items()}
        )
    exact = pd.DataFrame(rows, columns=["rank", "a_ns", "b_ns", "delta_ns",
                                        *(f"{n}_delta_ns" for n in names[1:])])  # fmt: skip
    numbers = [name for name in exact if name != "rank"]
    frame = exact.astype(dict.fromkeys(numbers, "Float64"))
    share = 100 * frame["delta_ns"] / frame["a_ns"].where(frame["a_ns"] > 0)
    frame.insert(4, "delta_pct", share)
    return frame.assign(changed=_changed(a, b, ranks))


def _means(side: pd.DataFrame, name: str) -> Mapping[int, Fraction]:
    """Return the exact mean of a column for each rank that knows all of its values."""
    by = side.groupby("rank", observed=True)[name]
    found = pd.DataFrame({"sum": by.sum(min_count=1), "known": by.count(), "all": by.size()})
    return {
        int(rank): Fraction(int(total), int(count))
        for rank, total, known, count in found.itertuples()
        if known == count
    }


def _changed(a: pd.DataFrame, b: pd.DataFrame, ranks: list[int]) -> pd.Series:
    """Return for each rank in words which of its own times changed; null: none.

    It changed by more than three spreads of the ranks' changes, more than 2 % of the step (of
    kernels: of their time), and more than two standard errors over the steps. Neither of two ranks
    stands out.
    """
    words: list[str | None] = [None] * len(ranks)
    if len(ranks) >= _ENOUGH:
        for name, said in _WORDS.items():
            base = "compute_ns" if name == "compute_ns" else "window_ns"
            least = EXCESS_MIN * float(a[base].astype("float64").mean())
            for at, sign in enumerate(_outliers(a, b, ranks, name, least)):
                if sign:
                    both = [words[at], said[0] if sign > 0 else said[1]]
                    words[at] = ", ".join(word for word in both if word)
    return pd.Series(words, dtype=object)


def _outliers(
    a: pd.DataFrame, b: pd.DataFrame, ranks: list[int], name: str, least: float
) -> list[int]:
    sides = [side[side["rank"].isin(ranks)].groupby("rank", observed=True)[name] for side in (a, b)]
    mean = [by.mean().reindex(ranks).to_numpy(np.float64) for by in sides]
    error = [(by.var() / by.size()).reindex(ranks).fillna(0).to_numpy(np.float64) for by in sides]
    delta = mean[1] - mean[0]
    away = delta - np.median(delta)
    spread = MAD_TO_SIGMA * float(np.median(np.abs(away)))
    limit = np.maximum(max(Z_MIN * spread, least), _ERRORS * np.sqrt(error[0] + error[1]))
    return [int(sign) for sign in np.where(np.abs(away) > limit, np.sign(away), 0)]
