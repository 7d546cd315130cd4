"""Time lines on the page: of the median and the slowest step, and of others where there is room.

Each activity is a box, until there are too many; Perfetto shows them all. Above the streams are the
phases and layers that they work for, below them why they were idle, and what the host did.
"""

from __future__ import annotations

import itertools
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.time.slices import merge_short
from pyprof2.analysis.time.step_times import median_step, timed_steps
from pyprof2.columns import as_pandas
from pyprof2.pipeline.allocation import release_unused
from pyprof2.reports.page.steps import lanes, recorded_windows
from pyprof2.reports.page.values import text_column
from pyprof2.tables import IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.api.run import Run

MOST_BOXES: Final = 30_000
MOST_TRACKS: Final = 40
_LEAST: Final = 3000
"""Boxes that a step must be given that is neither the median nor the slowest."""
MOST_THREADS: Final = 3
MOST_RECORDED: Final = 4
"""How many devices have a time line of all that was recorded, beside their steps."""
_ROWS: Final = ("rank", "device", "stream", "start_ns", "dur_ns", "kernel_short", "op", "layer",
                "category", "direction", "range")  # fmt: skip
_IDLE: Final = ("rank", "device", "start_ns", "time_ns", "cause", "group", "op", "layer")
_NO_NUMBER: Final = -1


def timeline_of(run: Run, zero: dict[int, int]) -> list[dict[str, Any]]:
    """Return the time lines, those of median and slowest steps first."""
    source = _Recorded.of(run)
    found, left = [], MOST_BOXES
    windows = list(_windows(run, source.work))
    sure = sum(window["why"] != "step" for window in windows)
    for at, window in enumerate(windows):
        room = left // max(1, sure - at) if at < sure else left
        if room < (MOST_TRACKS if at < sure else _LEAST):
            break
        line = window | {"tracks": list(source.tracks(window, room))}
        drawn = sum(len(track["boxes"]["start_ns"]) for track in line["tracks"])
        if at >= sure and drawn > left:
            break
        left -= drawn
        # Times count from the first that was recorded of the rank.
        first = zero[line["rank"]]
        for track in line["tracks"]:
            track["boxes"]["start_ns"] = [start - first for start in track["boxes"]["start_ns"]]
        found.append(line | {name: line[name] - first for name in ("start_ns", "end_ns")})
    return found


def _windows(run: Run, work: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Give the windows to draw: of each device median and slowest step, then the others."""
    devices = run.steps[["rank", "device"]].drop_duplicates().to_dict("records")
    if run.steps.empty:
        yield from _recorded(run, work)
        return
    windows = timed_steps(run.steps)
    first: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for device in devices:
        own = [window for window in windows if window.rank == device["rank"]]
        usual = median_step(windows, device["rank"])
        slowest = max(own, key=attrgetter("dur_ns"))
        known = {usual.start_ns: "median", slowest.start_ns: "slowest"}
        for each in own:
            why = known.get(each.start_ns, "step")
            window = {
                "rank": each.rank, "device": _number(device["device"]), "step": each.step,
                "why": why, "start_ns": each.start_ns, "end_ns": each.start_ns + each.dur_ns,
            }  # fmt: skip
            (others if why == "step" else first).append(window)
    yield from first
    # Where a device had one step, that is the recording.
    if others or len(first) > len(devices):
        yield from itertools.islice(_recorded(run, work), MOST_RECORDED)
    yield from others


def _recorded(run: Run, work: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Give the windows of all that was recorded of each device, or of each rank without any."""
    if run.summary["no_gpu"]:
        yield from recorded_windows(run)
    else:
        yield from (_whole(work, row) for row in run.idle_windows.to_dict("records"))


def _work(run: Run) -> pd.DataFrame:
    """Return kernels and copies, each stream a track."""
    return run.rows(_ROWS).rename(columns={"kernel_short": "name", "stream": "track"})


def _idle(run: Run) -> pd.DataFrame:
    """Return the columns of idle time that its boxes show."""
    parts = [IDLE.schema(_IDLE).empty_table(), *run.idle_parts(_IDLE)]
    found = as_pandas(pa.concat_tables(parts).unify_dictionaries(), IDLE.never_null)
    parts.clear()
    release_unused()
    return found.rename(columns={"time_ns": "dur_ns", "cause": "name", "group": "category"})


def _whole(work: pd.DataFrame, row: dict[Any, Any]) -> dict[str, Any]:
    """Return the window of a device from its first activity to its last."""
    device = _number(row["device"])
    own = work[(work["rank"] == row["rank"]) & _same(work["device"], device)]
    return {
        "rank": int(row["rank"]),
        "device": device,
        "step": None,
        "why": "recording",
        "start_ns": int(own["start_ns"].min()),
        "end_ns": int((own["start_ns"] + own["dur_ns"]).max()),
    }


def _number(device: Any) -> int | None:
    return None if pd.isna(device) else int(device)


def _same(values: pd.Series, device: int | None) -> Bool:
    numbers = values.to_numpy(np.int64, na_value=_NO_NUMBER)
    found: Bool = numbers == (_NO_NUMBER if device is None else device)
    return found


class _Recorded(NamedTuple):
    """The rows that time lines are made of: of devices, of threads of the host, and idle time."""

    work: pd.DataFrame
    host: pd.DataFrame
    idle: pd.DataFrame
    steps: pd.DataFrame

    @classmethod
    def of(cls, run: Run) -> _Recorded:
        """Return that of a run."""
        host = lanes(run)
        work = host.iloc[:0] if run.summary["no_gpu"] else _work(run)
        steps = run.steps[["rank", "device", "start_ns", "dur_ns", "step"]]
        return cls(work, host, _idle(run), steps)

    def tracks(self, window: dict[str, Any], room: int) -> Iterator[dict[str, Any]]:
        """Give the tracks of a window, of about `room` boxes, in the order in which they stand."""
        host = _inside(self.host, window)
        if self.work.empty:
            yield from _tracks(host, window, room, "thread")
            return
        work = _inside(self.work, window)
        half = max(2, room // 2)
        yield from _marks(_inside(self.steps, window), window)
        for name, kind, found in spans(work):
            yield from _tracks(found.assign(track=name), window, half // 12, kind)
        yield from _tracks(work, window, half, "stream")
        yield from _tracks(_inside(self.idle, window), window, half // 2, "idle")
        yield from _tracks(host, window, half // 6, "host")


def _inside(frame: pd.DataFrame, window: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of the rank of a window, and of its device if they have one, that are in it.

    Rows that reach over its ends are, too.
    """
    start = frame["start_ns"].to_numpy(np.int64)
    inside = start < window["end_ns"]
    inside &= start + frame["dur_ns"].to_numpy(np.int64) > window["start_ns"]
    inside &= frame["rank"].to_numpy() == window["rank"]
    if "device" in frame:
        inside &= _same(frame["device"], window["device"])
    # A frame of a million rows is not copied where all of it is asked for.
    chosen: pd.DataFrame = frame if inside.all() else frame[inside]
    return chosen


def _marks(steps: pd.DataFrame, window: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the track of the steps, where any is recorded."""
    names = [f"step {number}" for number in steps["step"]]
    none = pd.Series([None] * len(steps), dtype=object)
    rows = steps.assign(track="step", name=names, op=none, layer=none, category=none)
    yield from _tracks(rows, window, MOST_TRACKS, "step")


def _tracks(
    rows: pd.DataFrame, window: dict[str, Any], room: int, kind: str
) -> Iterator[dict[str, Any]]:
    """Give the tracks of a kind, those with the most time."""
    codes, names = np.zeros(len(rows), np.int64), pd.Index([None])
    if kind != "idle":
        codes, names = pd.factorize(rows["track"], sort=True, use_na_sentinel=False)
    most = MOST_THREADS if kind == "host" else MOST_TRACKS
    start, length = (rows[each].to_numpy(np.int64) for each in ("start_ns", "dur_ns"))
    time = np.zeros(len(names), np.int64)
    np.add.at(time, codes, length)
    busiest = np.argsort(-time, kind="stable")[:most]
    keep = np.flatnonzero(np.isin(codes, busiest))
    busy = rows["busy_ns"].to_numpy(np.int64)[keep] if "busy_ns" in rows else None
    bounds = (window["start_ns"], window["end_ns"])
    track, start = codes[keep].astype(np.int64), start[keep]
    found = merge_short(track, start, start + length[keep], bounds, room, busy)
    found = found._replace(longest=keep[found.longest])
    for each in np.unique(found.track).tolist():
        own = found.track == each
        longest = rows.iloc[found.longest[own]]
        values: dict[str, Int] = {
            "start_ns": found.start, "dur_ns": found.end - found.start, "count": found.merged,
            "busy_ns": found.busy_ns,
        }  # fmt: skip
        boxes = {name: numbers[own].tolist() for name, numbers in values.items()}
        boxes |= {each: text_column(longest[each]) for each in ("name", "op", "layer", "category")}
        yield {"name": _name(kind, names[each]), "kind": kind, "boxes": boxes}


def _name(kind: str, of: Any) -> str:
    if kind == "idle" or isinstance(of, str):
        return of if isinstance(of, str) else kind
    return f"no {kind}" if pd.isna(of) else f"{kind} {of}"


MOST_DEPTHS: Final = 3
_MOST_OF_ALL: Final = 0.95
"""Names below one that holds more of the time than this are shown instead of it."""


def spans(work: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Give tracks of spans: user's ranges, directions, and layers at a few depths.

    Args:
        work: the kernels and copies of a device in a window: `start_ns, dur_ns, range, direction,
            layer, category`.

    Yields:
        The name of a track, its kind (`phase` or `layer`), and its spans: `start_ns, dur_ns,
        busy_ns` (any kernel of it ran), `name, layer, op` (null), `category` (of most of it).
    """
    work = work.sort_values("start_ns", kind="stable").reset_index(drop=True)
    for name, key in (("range", "range"), ("phase", "direction")):
        found = _in_a_row(work, work[key].astype(object))
        if len(found):
            yield name, "phase", found.assign(layer=None)
    yield from _layers(work)


def _layers(work: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Give the layers, each depth a track whose names begin where those above it end."""
    work = work[work["layer"].notna()].reset_index(drop=True)
    codes, paths = pd.factorize(work["layer"].astype(object))
    split = [str(path).split(".") for path in paths]
    time = work["dur_ns"].to_numpy(np.int64)
    above, drawn = 0, 0
    for depth in range(1, 1 + max(map(len, split), default=0)):
        names = [".".join(each[:depth]) if len(each) >= depth else None for each in split]
        prefix = pd.Series(np.array([*names, None], object)[codes])
        share = pd.Series(time).groupby(prefix).sum().max() / max(1, time.sum())
        if share > _MOST_OF_ALL and depth < max(map(len, split)):
            above = depth
            continue
        found = _in_a_row(work, prefix)
        short = {name: ".".join(name.split(".")[above:]) for name in found["name"].unique()}
        yield (
            f"layer {depth}",
            "layer",
            found.assign(layer=found["name"], name=found["name"].map(short)),
        )
        above, drawn = depth, drawn + 1
        if drawn == MOST_DEPTHS:
            return


def _in_a_row(work: pd.DataFrame, key: pd.Series) -> pd.DataFrame:
    """Return the spans of kernels that follow one another and have one key; null has none."""
    known = key.notna().to_numpy()
    work, key = work[known], key[known]
    if work.empty:
        return pd.DataFrame(columns=["start_ns", "dur_ns", "busy_ns", "name", "op", "category"])
    start = work["start_ns"].to_numpy(np.int64)
    end = start + work["dur_ns"].to_numpy(np.int64)
    latest = np.maximum.accumulate(end)
    # Time that an earlier kernel covers already counts once.
    own = np.maximum(end - np.maximum(start, np.r_[start[0], latest[:-1]]), 0)
    codes = pd.factorize(key)[0]
    group = np.cumsum(np.r_[0, codes[1:] != codes[:-1]])
    first = np.flatnonzero(np.diff(group, prepend=-1))
    until = np.maximum.reduceat(end, first)
    category = work["category"].astype(object).reset_index(drop=True)
    time = pd.Series(end - start).groupby([group, category], dropna=False).sum()
    most = time.groupby(level=0).idxmax().str[1]
    return pd.DataFrame(
        {
            "start_ns": start[first],
            "dur_ns": until - start[first],
            "busy_ns": np.add.reduceat(own, first),
            "name": key.to_numpy()[first],
            "op": None,
            "category": most.to_numpy(),
        }
    )
