"""What a picture of a step is made of: bars, of which none is shorter than a pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pandas as pd

from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from pyprof2.run import Run

_PIXELS: Final = 2000
COLUMNS: Final = (
    "place", "kind", "label", "start_ns", "length_ns", "height", "count", "busy_ns",
)  # fmt: skip
"""The columns of bars."""
_NEEDED: Final = (
    "rank", "start_ns", "dur_ns", "device", "stream", "category", "op", "layer", "kernel_short",
)  # fmt: skip
SEVERAL: Final = "several"


class Window(NamedTuple):
    """A span of time of a rank.

    Attributes:
        rank: whose.
        step: the number of the step; None: all that was recorded.
        start, end: in ns.
    """

    rank: int
    step: int | None
    start: int
    end: int


def choose_window(run: Run, step: int | None, rank: int | None) -> Window:
    """Return the window of a step, by default of that of median length.

    Raises:
        UsageError: there is no such step or rank.
    """
    ranks = run.idle_windows["rank"].tolist()
    rank = ranks[0] if rank is None else rank
    if rank not in ranks:
        msg = f"rank {rank}: no device of such a rank was recorded; there is {_listed(ranks)}"
        raise UsageError(msg)
    steps = run.steps[run.steps["rank"] == rank]
    if step is None and steps.empty:
        work = _work(run, rank)
        return Window(rank, None, *_bounds(work["start_ns"], work["dur_ns"]))
    if step is None:
        by_length = steps.sort_values("dur_ns", kind="stable")
        step = int(by_length["step"].iloc[(len(steps) - 1) // 2])
    own = steps[steps["step"] == step]
    if own.empty:
        numbers = sorted(set(steps["step"].tolist()))
        msg = f"step {step}: no such step in rank {rank}; there is {_listed(numbers)}"
        raise UsageError(msg)
    return Window(rank, step, *_bounds(own["start_ns"], own["dur_ns"]))


def _bounds(start: pd.Series, duration: pd.Series) -> tuple[int, int]:
    return int(start.min()), int((start + duration).max())


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers)))) or "none"


def _work(run: Run, rank: int) -> pd.DataFrame:
    rows = run.rows(_NEEDED)
    return rows[rows["rank"] == rank]


def bars_of_work(run: Run, window: Window) -> pd.DataFrame:
    """Return kernels and copies of a window, each stream's in a place of its own.

    Returns:
        `COLUMNS`: `kind` is the category, `start_ns` counts from the start of the window, `busy_ns`
        is the time of all that is drawn together; a bar of less than a pixel has the length of
        one, and a `height` below 1, so that its area is right.
    """
    rows = _work(run, window.rank)
    place = "device " + rows["device"].astype("str") + ", stream " + rows["stream"].astype("str")
    op, kernel = rows["op"].astype("str"), rows["kernel_short"].astype("str")
    layer = rows["layer"].astype("str").where(rows["layer"].notna(), "")
    label = op.where(rows["op"].notna(), kernel)
    label = (layer + ": " + label).where(layer != "", label)
    frame = pd.DataFrame(
        {
            "place": place,
            "kind": rows["category"].astype("str"),
            "label": label,
            "start_ns": rows["start_ns"],
            "length_ns": rows["dur_ns"],
        }
    )
    return _merged(frame, window)


def bars_of_idle(run: Run, window: Window) -> pd.DataFrame:
    """Return why devices were idle in a window; columns as `bars_of_work`."""
    rows = run.idle[run.idle["rank"] == window.rank]
    cause = "idle: " + rows["cause"].astype("str")
    frame = pd.DataFrame(
        {
            "place": "device " + rows["device"].astype("str") + ", idle",
            "kind": cause,
            "label": cause,
            "start_ns": rows["start_ns"],
            "length_ns": rows["time_ns"],
        }
    )
    return _merged(frame, window)


def _merged(rows: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Return the rows of a window, cut to it; what begins in one pixel and is shorter is one."""
    end = (rows["start_ns"] + rows["length_ns"]).clip(upper=window.end)
    start = rows["start_ns"].clip(lower=window.start)
    rows = rows.assign(start_ns=start - window.start, length_ns=end - start)[end > start]
    pixel = max(1, (window.end - window.start) // _PIXELS)
    at = rows["start_ns"] // pixel
    is_long = rows["length_ns"] >= pixel
    # Numbers below 0 are bars of their own.
    key = at.where(~is_long, -1 - pd.Series(range(len(rows)), rows.index))
    by = rows.assign(pixel=key).groupby(["place", "pixel"], sort=False)
    bars = by.agg(
        kind=("kind", "first"), kinds=("kind", "nunique"), label=("label", "first"),
        start_ns=("start_ns", "min"), count=("label", "size"), busy_ns=("length_ns", "sum"),
    ).reset_index()  # fmt: skip
    several, is_short = bars["count"] > 1, bars["pixel"] >= 0
    bars["kind"] = bars["kind"].where(bars["kinds"] == 1, SEVERAL)
    words = bars["count"].astype("str") + " shorter than a pixel, " + bars["busy_ns"].astype("str")
    bars["label"] = bars["label"].where(~several, words + " ns in all")
    # A bar of a pixel is as high as it is full: nothing looks longer than it was.
    bars["start_ns"] = bars["start_ns"].where(~is_short, bars["pixel"] * pixel)
    bars["length_ns"] = bars["busy_ns"].where(~is_short, bars["busy_ns"].clip(lower=pixel))
    bars["height"] = bars["busy_ns"] / bars["length_ns"]
    return bars.sort_values(["place", "start_ns"], kind="stable")[list(COLUMNS)]
