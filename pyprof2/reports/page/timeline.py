"""Time lines on the page: of the median and the slowest step, and of others where there is room.

Activities are boxes, merged where one could not see them apart; Perfetto shows them all.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.time.slices import merge_short
from pyprof2.analysis.time.step_times import median_step, timed_steps
from pyprof2.columns import as_pandas
from pyprof2.reports.page.host import lanes, recorded_windows
from pyprof2.reports.page.values import text_column
from pyprof2.tables import IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.api.run import Run

MOST_BOXES: Final = 20_000
MOST_TRACKS: Final = 40
_ROWS: Final = ("rank", "device", "stream", "start_ns", "dur_ns", "kernel_short", "op", "layer",
                "category")  # fmt: skip
_IDLE: Final = ("rank", "device", "start_ns", "time_ns", "cause", "group", "op", "layer")
_NO_NUMBER: Final = -1


def timeline_of(run: Run, zero: dict[int, int]) -> list[dict[str, Any]]:
    """Return the time lines, those of median and slowest steps first."""
    on_host = run.summary["no_gpu"]
    rows = lanes(run) if on_host else _work(run)
    idle = _idle(run)
    found, left = [], MOST_BOXES
    windows = list(_windows(run))
    sure = sum(window["why"] != "step" for window in windows)
    for at, window in enumerate(windows):
        room = left // max(1, sure - at) if at < sure else left
        if room < MOST_TRACKS:
            break
        line = _line(rows, idle, window, room, "thread" if on_host else "stream")
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


def _windows(run: Run) -> Iterator[dict[str, Any]]:
    """Give the windows to draw: of each device median and slowest step, then the others."""
    devices = run.steps[["rank", "device"]].drop_duplicates().to_dict("records")
    if run.steps.empty:
        on_devices = (_whole(run, row) for row in run.idle_windows.to_dict("records"))
        yield from recorded_windows(run) if run.summary["no_gpu"] else on_devices
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
    yield from others


def _work(run: Run) -> pd.DataFrame:
    """Return kernels and copies, each stream a track."""
    return run.rows(_ROWS).rename(columns={"kernel_short": "name", "stream": "track"})


def _idle(run: Run) -> pd.DataFrame:
    """Return the columns of idle time that its boxes show."""
    parts = [IDLE.schema(_IDLE).empty_table(), *run.idle_parts(_IDLE)]
    return as_pandas(pa.concat_tables(parts).unify_dictionaries(), IDLE.never_null)


def _whole(run: Run, row: dict[Any, Any]) -> dict[str, Any]:
    """Return the window of a device from its first activity to its last."""
    own = run.rows(("rank", "device", "start_ns", "dur_ns"))
    device = _number(row["device"])
    own = own[(own["rank"] == row["rank"]) & _same(own["device"], device)]
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


def _line(
    rows: pd.DataFrame, idle: pd.DataFrame, window: dict[str, Any], room: int, kind: str
) -> dict[str, Any]:
    """Return the tracks of a window: the streams or threads, and the idle time."""
    begin, finish = window["start_ns"], window["end_ns"]

    def inside(frame: pd.DataFrame, length: str) -> pd.DataFrame:
        start = frame["start_ns"].to_numpy(np.int64)
        within = (start < finish) & (start + frame[length].to_numpy(np.int64) > begin)
        own = frame["rank"].to_numpy() == window["rank"]
        chosen: pd.DataFrame = frame[within & own & _same(frame["device"], window["device"])]
        return chosen

    work = inside(rows, "dur_ns")
    gaps = inside(idle, "time_ns").assign(track=0)
    gaps = gaps.drop(columns=["category"], errors="ignore")
    gaps = gaps.rename(columns={"time_ns": "dur_ns", "cause": "name", "group": "category"})
    half = max(1, room // 2)
    tracks = [*_tracks(gaps, window, half, "idle")]
    used = sum(len(track["boxes"]["start_ns"]) for track in tracks)
    return window | {"tracks": [*_tracks(work, window, room - used, kind), *tracks]}


def _tracks(
    rows: pd.DataFrame, window: dict[str, Any], room: int, kind: str
) -> Iterator[dict[str, Any]]:
    """Give the tracks of a kind, the streams with the most time."""
    rows = rows.reset_index(drop=True)
    codes, names = pd.factorize(rows["track"], sort=True, use_na_sentinel=False)
    busiest = rows.groupby(codes)["dur_ns"].sum().nlargest(MOST_TRACKS).index
    keep = np.isin(codes, busiest)
    rows, track = rows[keep].reset_index(drop=True), codes[keep].astype(np.int64)
    start = rows["start_ns"].to_numpy(np.int64)
    end = start + rows["dur_ns"].to_numpy(np.int64)
    found = merge_short(track, start, end, window["start_ns"], window["end_ns"], room)
    for each in np.unique(found.track).tolist():
        own = found.track == each
        name = "idle" if kind == "idle" else _name(kind, names[each])
        longest = rows.iloc[found.longest[own]]
        values: dict[str, Int] = {
            "start_ns": found.start, "dur_ns": found.end - found.start, "count": found.merged,
            "busy_ns": found.busy_ns,
        }  # fmt: skip
        boxes = {name: numbers[own].tolist() for name, numbers in values.items()}
        boxes |= {each: text_column(longest[each]) for each in ("name", "op", "layer", "category")}
        yield {"name": name, "kind": kind, "boxes": boxes}


def _name(kind: str, number: Any) -> str:
    return f"no {kind}" if pd.isna(number) else f"{kind} {number}"
