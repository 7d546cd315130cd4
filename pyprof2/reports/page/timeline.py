"""Time lines on the page: of the median and the slowest step, and of others where there is room.

Each activity is a box, until there are too many; Perfetto shows them all. Above the streams are the
phases and layers that they work for, below them why they were idle, and what the host did.
"""

from __future__ import annotations

from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.chunked import frame_of_parts
from pyprof2.analysis.time.slices import greatest_of_runs, merge_short
from pyprof2.analysis.time.step_times import median_step, timed_steps
from pyprof2.api import run_time
from pyprof2.columns import distinct, sum_at, values_of
from pyprof2.pipeline.allocation import release_unused
from pyprof2.recording import TextCodes
from pyprof2.reports.page.steps import lanes, recorded_windows
from pyprof2.reports.page.values import text_column
from pyprof2.tables import IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.api.run import Run

MOST_BOXES: Final = 30_000
MOST_TRACKS: Final = 40
_LEAST: Final = 3000
"""Boxes that a step must be given that is neither the median nor the slowest."""
MOST_THREADS: Final = 3
MOST_RECORDED: Final = 4
"""How many devices have a time line of all that was recorded, beside their steps."""
_ROWS: Final = (
    "rank", "device", "stream", "start_ns", "dur_ns", "kernel_short", "op", "layer",
    "category", "direction", "range",
)  # fmt: skip
_IDLE: Final = ("rank", "device", "start_ns", "time_ns", "cause", "group", "op", "layer")


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
            why = known.get(each.start_ns, "step") if own[1:] else "only"
            window = {
                "rank": each.rank, "device": _number(device["device"]), "step": each.step,
                "why": why, "start_ns": each.start_ns, "end_ns": each.start_ns + each.dur_ns,
            }  # fmt: skip
            (others if why == "step" else first).append(window)
    # Only steps of several ranks: the longest one is the first to be seen.
    yield from sorted(first, key=lambda w: w["start_ns"] - w["end_ns"] if w["why"] == "only" else 0)
    # Where a device had one step, that is the recording.
    if others or len(first) > len(devices):
        yield from islice(_recorded(run, work), MOST_RECORDED)
    yield from others


def _recorded(run: Run, work: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Give the windows of all that was recorded of each device, or of each rank without any."""
    if run.summary["no_gpu"]:
        yield from recorded_windows(run)
    else:
        windows = run_time.idle_windows(run.tables).to_dict("records")
        yield from (_whole(work, row) for row in windows)


def _work(run: Run) -> pd.DataFrame:
    """Return kernels and copies in order of their ids, each stream a track."""
    ranks = [(rank, name) for rank in run.tables.counted_ranks for name in ("kernels", "copies")]
    found = frame_of_parts(
        (part for rank, name in ranks for part in rank.in_parts(name, (*_ROWS, "kernel_id"))),
        _ROWS,
        count=sum(rank.parts(name).row_count for rank, name in ranks),
        by=("rank", "kernel_id"),
    )
    return found.rename(columns={"kernel_short": "name", "stream": "track"})


def _idle(run: Run) -> pd.DataFrame:
    """Return the columns of idle time that its boxes show."""
    count = sum(rank.parts("idle").row_count for rank in run.tables.counted_ranks)
    parts = chain([IDLE.empty()], run_time.idle_parts(run.tables, _IDLE))
    found = frame_of_parts(parts, _IDLE, count=count)
    return found.rename(columns={"time_ns": "dur_ns", "cause": "name", "group": "category"})


def _whole(work: pd.DataFrame, row: dict[Any, Any]) -> dict[str, Any]:
    """Return the window of a device from its first activity to its last."""
    device = _number(row["device"])
    own = (work["rank"].to_numpy() == row["rank"]) & _same(work["device"], device)
    start, length = (work[name].to_numpy(np.int64)[own] for name in ("start_ns", "dur_ns"))
    return {
        "rank": int(row["rank"]),
        "device": device,
        "step": None,
        "why": "recording",
        "start_ns": int(start.min()),
        "end_ns": int((start + length).max()),
    }


def _number(device: Any) -> int | None:
    return None if pd.isna(device) else int(device)


def _same(column: pd.Series, value: Any) -> Bool:
    """Return which rows have a value, or, of null, which have none."""
    same = column.isna() if pd.isna(value) else column == value
    found: Bool = same.to_numpy(bool, na_value=False)
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
        found = cls(work, host, _idle(run), steps)
        # Memory that was let go between columns that stay is a quarter of these.
        release_unused()
        return found

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
    # Rows that stand together are not copied: there may be millions.
    rows = np.flatnonzero(inside)
    first, end = (rows[0], rows[-1] + 1) if len(rows) else (0, 0)
    return frame.iloc[first:end] if len(rows) == end - first else frame.take(rows)


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
    codes: Any = np.zeros(len(rows), np.int8)
    names = pd.Index([None])
    if kind != "idle":
        codes, names = pd.factorize(rows["track"], sort=True, use_na_sentinel=False)
    most = MOST_THREADS if kind == "host" else MOST_TRACKS
    if len(names) > most:
        time = sum_at(codes, rows["dur_ns"].to_numpy(np.int64), len(names))
        keep = np.isin(codes, np.argsort(-time, kind="stable")[:most])
        rows, codes = rows[keep], codes[keep]
    start, length = (rows[each].to_numpy(np.int64) for each in ("start_ns", "dur_ns"))
    busy = rows["busy_ns"].to_numpy(np.int64) if "busy_ns" in rows else None
    bounds = (window["start_ns"], window["end_ns"])
    found = merge_short(codes, start, start + length, bounds, room, busy)
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


class _InOrder(NamedTuple):
    """Activities in order of time: starts, lengths, and categories by number, the last is null."""

    start: Int
    length: Int
    category: Int
    categories: list[str | None]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _InOrder:
        """Return those of rows, whose categories are numbered in the order of the alphabet."""
        start, length = (rows[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
        names = rows["category"].cat.categories
        place = np.r_[np.argsort(np.argsort(names.to_numpy(str))), len(names)]
        return cls(start, length, place[rows["category"].cat.codes], [*sorted(names), None])

    def in_a_row(self, code: Int, texts: Sequence[str]) -> pd.DataFrame:
        """Return the spans of those that follow one another and have one text; -1 has none."""
        rows = np.flatnonzero(code >= 0)
        code, start, length, category = (
            column[rows] for column in (code, self.start, self.length, self.category)
        )
        end = start + length
        latest = np.maximum.accumulate(end)
        # Time that an earlier kernel covers already counts once.
        own = np.maximum(end - np.maximum(start, np.r_[start[:1], latest[:-1]]), 0)
        begins = np.r_[True, code[1:] != code[:-1]][: len(code)]
        first = np.flatnonzero(begins)
        pairs, place = distinct((np.cumsum(begins) - 1) * len(self.categories) + category)
        of, category = np.divmod(pairs, len(self.categories))
        most = greatest_of_runs(
            sum_at(place, length, len(pairs)), np.searchsorted(of, np.arange(len(first)))
        )
        return pd.DataFrame(
            {
                "start_ns": start[first],
                "dur_ns": np.maximum.reduceat(end, first) - start[first],
                "busy_ns": np.add.reduceat(own, first),
                "name": np.array([*texts], object)[code[first]],
                "op": None,
                "category": np.array(self.categories, object)[category[most]],
            }
        )


def spans(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Give tracks of spans: user's ranges, directions, and layers at a few depths.

    Args:
        rows: the kernels and copies of a device in a window: `start_ns, dur_ns`, and as texts
            `range, direction, layer, category`.

    Yields:
        The name of a track, its kind (`phase` or `layer`), and its spans: `start_ns, dur_ns,
        busy_ns` (any kernel of it ran), `name, layer, op` (null), `category` (of most of it).
    """
    start = rows["start_ns"].to_numpy(np.int64)
    if (start[1:] < start[:-1]).any():
        rows = rows.take(np.argsort(start, kind="stable"))
    work = _InOrder.of(rows)
    for name, key in (("range", "range"), ("phase", "direction")):
        code, texts = _codes(rows[key])
        if (code >= 0).any():
            yield name, "phase", work.in_a_row(code, texts).assign(layer=None)
    yield from _layers(work, *_codes(rows["layer"]))


def _codes(texts: pd.Series) -> tuple[Any, list[str]]:
    """Return a column of text as codes, -1 for null, and the texts."""
    return texts.cat.codes.to_numpy(), texts.cat.categories.tolist()


def _layers(
    work: _InOrder, code: Int, paths: Sequence[str]
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Give the layers, each depth a track whose names begin where those above it end."""
    used = values_of(code[code >= 0])
    split = [paths[each].split(".") for each in used.tolist()]
    deepest = max(map(len, split), default=0)
    whole = max(1, int(work.length[code >= 0].sum()))
    prefix_of = np.full(len(paths) + 1, -1)
    above, drawn = 0, 0
    for depth in range(1, 1 + deepest):
        names = TextCodes()
        prefix_of[used] = [names[".".join(e[:depth])] if len(e) >= depth else -1 for e in split]
        prefix = prefix_of[code]
        if sum_at(prefix, work.length, len(names)).max() / whole > _MOST_OF_ALL and depth < deepest:
            above = depth
            continue
        found = work.in_a_row(prefix, [*names])
        short = {name: ".".join(name.split(".")[above:]) for name in found["name"].unique()}
        yield (
            f"layer {depth}",
            "layer",
            found.assign(layer=found["name"], name=found["name"].map(short)),
        )
        above, drawn = depth, drawn + 1
        if drawn == MOST_DEPTHS:
            return
