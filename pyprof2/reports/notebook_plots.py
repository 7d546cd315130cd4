"""Plots of a run for notebooks, as figures of plotly: `run.plot`.

Every text of a recording is escaped: plotly takes some HTML in texts for mark-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.hardware.verdict import find_peaks, named_device
from pyprof2.analysis.job.rank_parts import PARTS
from pyprof2.api import run_profile, run_time
from pyprof2.columns import as_text
from pyprof2.errors import UsageError, refuse, without
from pyprof2.reports.notebook import escape
from pyprof2.reports.page.job import HEAT, heat_of, standing_out
from pyprof2.reports.page.values import column_values
from pyprof2.reports.ranks import answers, by_rank
from pyprof2.units import counted, format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plotly.graph_objects import Figure

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.api.job import JobOfRanks
    from pyprof2.api.run import Run


_STATES: Final = {
    "compute_only_ns": "compute",
    "comp_comm_overlap_ns": "compute and communication",
    "comm_only_ns": "communication",
    "copy_overlap_ns": "copies beside kernels",
    "copy_only_ns": "copies",
    "idle_ns": "idle",
}
"""The columns of table `steps` that add up to its windows, and their names."""
_MS: Final = 1e6
_LONGEST: Final = 120
_THICK: Final = 0.9
_HOVER: Final = "%{text}<br>at %{base:.3f} ms, %{customdata:.6f} ms<extra>%{fullData.name}</extra>"
_SMALLEST_DOT, _LARGEST_DOT = 4.0, 40.0
_NO_WORK: Final = "no work of a device was recorded, so there is nothing to draw"
_PIXELS: Final = 2000
COLUMNS: Final = (
    "place", "kind", "label", "start_ns", "length_ns", "height", "count", "busy_ns",
)  # fmt: skip
"""The columns of bars."""
_NEEDED: Final = (
    "rank", "start_ns", "dur_ns", "device", "stream", "category", "op", "layer", "kernel_short",
)  # fmt: skip
SEVERAL: Final = "several"
_WORDS: Final = {
    "compute_only": "computing alone", "comm_only": "communicating alone",
    "copy_only": "copying alone", "comp_comm": "computing beside communication",
    "copy_overlap": "copies beside something", "idle": "idle",
}  # fmt: skip


_GREY: Final = "#767b82"
"""It is read on white and on black."""
_AXIS: Final = {"gridcolor": "rgba(118, 123, 130, 0.3)", "zerolinecolor": _GREY}
_LOOK: Final[dict[str, Any]] = {
    "paper_bgcolor": "rgba(0, 0, 0, 0)", "plot_bgcolor": "rgba(0, 0, 0, 0)",
    "font": {"color": _GREY}, "xaxis": _AXIS, "yaxis": _AXIS,
}  # fmt: skip
"""Figures lie on the notebook's own colour, light or dark."""


@dataclass(frozen=True)
class Plots:
    """The plots of a run: `run.plot`."""

    run: Run

    def roofline(self) -> Figure:
        """Return a dot for each signature under the roofs of the device, its area the time.

        Signatures whose FLOPs or bytes are not known are left out; the title says how much of the
        time the others are.

        Raises:
            UsageError: plotly is not installed.
        """
        go = _plotly()
        rows = self.run.profile(by="signature")
        known = rows.dropna(subset=["intensity", "tflops"])
        known = known[(known["intensity"] > 0) & (known["tflops"] > 0)]
        area = known["time_ns"] / max(1, known["time_ns"].max() if len(known) else 1)
        figure = go.Figure(
            go.Scatter(
                x=known["intensity"], y=known["tflops"], mode="markers", name="signatures",
                text=["<br>".join(_facts(row)) for row in known.to_dict("records")],
                hoverinfo="text",
                marker={
                    "size": np.maximum(_SMALLEST_DOT, _LARGEST_DOT * np.sqrt(area)),
                    "opacity": 0.6,
                },
            ),
            layout=_LOOK,
        )  # fmt: skip
        roofs = list(self._roofs())
        corners = [flops / bandwidth for _, flops, bandwidth in roofs]
        # A roof is drawn around all dots and the corners of all roofs.
        seen = known["intensity"].tolist()
        low = min([*seen, *(corner / 10 for corner in corners)], default=0.0)
        high = max([*seen, *(corner * 2 for corner in corners)], default=0.0)
        for name, flops, bandwidth in roofs:
            x = np.array([low, flops / bandwidth, high])
            y = np.minimum(x * bandwidth, flops) / 1e12
            figure.add_scatter(x=x, y=y, mode="lines", name=escape(name), hoverinfo="name")
        share = 100 * known["time_ns"].sum() / max(1, rows["time_ns"].sum())
        figure.update_layout(title=f"Signatures under the roof: {share:.1f} % of the time")
        figure.update_xaxes(type="log", title="FLOP per byte", exponentformat="power")
        figure.update_yaxes(type="log", title="TFLOP/s", exponentformat="power")
        return figure

    def _roofs(self) -> Iterator[tuple[str, float, float]]:
        """Yield name, FLOP/s and bytes per second of each roof; those of one height are one."""
        for device in self._devices():
            heights: dict[float, list[str]] = {}
            units = {"matrix": device.matrix_flop_per_s, "vector": device.vector_flop_per_s}
            for unit, peaks in units.items():
                for dtype, flops in peaks.items():
                    heights.setdefault(flops, []).append(f"{dtype} {unit}")
            for flops, names in sorted(heights.items()) if device.memory_bytes_per_s else ():
                yield f"{device.name}: {', '.join(names)}", flops, device.memory_bytes_per_s or 1

    def _devices(self) -> list[Device]:
        if self.run.tables.device is not None:
            return [named_device(self.run.tables.device)]
        found = [find_peaks(row) for row in self.run.table("devices").to_pylist()]
        return list({each.name: each for each in found if each is not None}.values())

    def timeline(self, step: int | None = None, rank: int | None = None) -> Figure:
        """Return the work of each stream of a rank in a step, and why devices were idle.

        Activities shorter than a pixel are drawn together.

        Args:
            step: its number; None: the step of median length; without steps all is drawn.
            rank: whose; None: the first one with a device.

        Raises:
            UsageError: plotly is not installed, there is no such step, or no device worked.
        """
        go = _plotly()
        from plotly.colors import qualitative

        if run_time.idle_windows(self.run.tables).empty:
            raise UsageError(_NO_WORK)
        window = choose_window(self.run, step, rank)
        bars = pd.concat([bars_of_work(self.run, window), bars_of_idle(self.run, window)])
        figure = go.Figure(
            [
                go.Bar(
                    base=own["start_ns"] / _MS, x=own["length_ns"] / _MS, y=own["place"],
                    width=_THICK * own["height"], orientation="h", name=escape(str(kind)),
                    text=[_short(label) for label in own["label"]], textposition="none",
                    customdata=own["busy_ns"] / _MS, hovertemplate=_HOVER,
                    marker={"line": {"width": 0}},
                )
                for kind, own in bars.groupby("kind", sort=False, observed=True)
            ],
            layout=_LOOK,
        )  # fmt: skip
        # Enough for all categories and causes.
        colours = [*qualitative.Dark24, *qualitative.Light24]
        what = "All that was recorded" if window.step is None else f"Step {window.step}"
        title = f"{what}, rank {window.rank}: {format_time(window.end - window.start)}"
        figure.update_layout(barmode="overlay", title=title, colorway=colours)
        figure.update_xaxes(title="ms", range=[0, (window.end - window.start) / _MS])
        figure.update_yaxes(autorange="reversed")
        return figure

    def steps(self) -> Figure:
        """Return the states of the device in each step, as one bar for each window.

        Raises:
            UsageError: plotly is not installed.
        """
        go = _plotly()
        steps = self.run.steps
        several = [name for name in ("rank", "device") if len(set(steps[name].tolist())) > 1]
        names = [
            ", ".join([str(row["step"]), *(f"{name} {row[name]}" for name in several)])
            for row in steps.to_dict("records")
        ]
        figure = go.Figure(layout=_LOOK)
        known = [each for each in _STATES if steps[each].notna().any()]
        for column in known or ["dur_ns"]:
            time = steps[column].astype("float64") / _MS
            figure.add_bar(x=names, y=time, name=_STATES.get(column, "step"))
        figure.update_layout(barmode="stack", title="Steps", xaxis={"type": "category"})
        figure.update_yaxes(title="ms")
        return figure

    def ranks(self, measure: str = "window_ns") -> Figure:
        """Return each step of each rank as a field, those ranks that stand out at the top.

        Of more than 48 ranks most are in groups, whose medians are shown, and of more than 100
        steps each column is several, of which the largest is shown.

        Args:
            measure: `window_ns`, `compute_ns`, `exposed_wait_ns`, `exposed_transfer_ns`,
                `comm_only_ns` or `idle_ns`.

        Raises:
            UsageError: plotly is not installed, there is no such measure, or no device worked.
        """
        return heat_map(_plotly(), self.run.ranks, measure)

    def rank_parts(self) -> Figure:
        """Return the parts that each rank's time is made of, as a bar for each rank.

        Raises:
            UsageError: plotly is not installed, or no device worked.
        """
        return bars_of_parts(_plotly(), self.run.ranks)

    def idle(self) -> Figure:
        """Return the idle time of all devices by cause, one colour for each group.

        Without a device: the ops and waits of the thread that holds the steps.

        Raises:
            UsageError: plotly is not installed.
        """
        go = _plotly()
        causes = self.run.idle_profile(by=("group", "cause"))
        figure = go.Figure(layout=_LOOK)
        for group, rows in causes.groupby("group", sort=False, observed=True):
            figure.add_bar(
                x=rows["time_ns"] / _MS, y=as_text(rows["cause"]), name=str(group),
                orientation="h", text=[_share(share) for share in rows["window_pct"]],
            )  # fmt: skip
        no_device = run_time.idle_windows(self.run.tables).empty
        what = "What steps waited for" if no_device else "Why devices were idle"
        figure.update_layout(title=f"{what}, with the share of the recorded time")
        figure.update_xaxes(title="ms")
        order = as_text(causes["cause"]).tolist()
        figure.update_yaxes(categoryorder="array", categoryarray=order[::-1])
        return figure


def _plotly() -> Any:
    """Return plotly's module of figures; it is loaded when something is drawn.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise UsageError(without("a picture", "plotly")) from error
    return go


def _facts(row: Mapping[Any, Any]) -> Iterator[str]:
    yield _short(row["signature"])
    times = counted(row["count"], "time")
    yield f"{format_time(row['time_ns'])}, {row['share_pct']:.1f} %, {times}"
    yield f"{format_rate(row['tflops'])} TFLOP/s, {format_rate(row['gbps'])} GB/s"
    share = row["roofline_pct"]
    yield "roof not known" if np.isnan(share) else f"{share:.1f} % of its roof"


def _share(share: float) -> str:
    return f"{share:.1f} %" if share >= 0.05 else "&lt;0.1 %"


def _short(text: Any) -> str:
    shown = str(text)
    return escape(shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…")


class DrawnSpan(NamedTuple):
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


def choose_window(run: Run, step: int | None, rank: int | None) -> DrawnSpan:
    """Return the window of a step, by default of that of median length.

    Raises:
        UsageError: there is no such step or rank.
    """
    ranks = run_time.idle_windows(run.tables)["rank"].tolist()
    rank = ranks[0] if rank is None else rank
    if rank not in ranks:
        refuse(f"rank {rank}: no device of such a rank was recorded; there is {_listed(ranks)}")
    steps = run.steps[run.steps["rank"] == rank]
    if step is None and steps.empty:
        work = _work(run, rank)
        return DrawnSpan(rank, None, *_bounds(work["start_ns"], work["dur_ns"]))
    if step is None:
        by_length = steps.sort_values("dur_ns", kind="stable")
        step = int(by_length["step"].iloc[(len(steps) - 1) // 2])
    own = steps[steps["step"] == step]
    if own.empty:
        numbers = sorted(set(steps["step"].tolist()))
        refuse(f"step {step}: no such step in rank {rank}; there is {_listed(numbers)}")
    return DrawnSpan(rank, step, *_bounds(own["start_ns"], own["dur_ns"]))


def _bounds(start: pd.Series, duration: pd.Series) -> tuple[int, int]:
    return int(start.min()), int((start + duration).max())


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers)))) or "none"


def _work(run: Run, rank: int) -> pd.DataFrame:
    rows = run_profile.rows_of(run.tables, _NEEDED)
    return rows[rows["rank"] == rank]


def bars_of_work(run: Run, window: DrawnSpan) -> pd.DataFrame:
    """Return kernels and copies of a window, each stream's in a place of its own.

    Returns:
        `COLUMNS`: `kind` is the category, `start_ns` counts from the start of the window, `busy_ns`
        is the time of all that is drawn together; a bar of less than a pixel has the length of
        one, and a `height` below 1, so that its area is right.
    """
    rows = _work(run, window.rank)
    place = "device " + as_text(rows["device"]) + ", stream " + as_text(rows["stream"])
    op, kernel = as_text(rows["op"]), as_text(rows["kernel_short"])
    layer = as_text(rows["layer"]).where(rows["layer"].notna(), "")
    label = op.where(rows["op"].notna(), kernel)
    label = (layer + ": " + label).where(layer != "", label)
    frame = pd.DataFrame(
        {
            "place": place,
            "kind": as_text(rows["category"]),
            "label": label,
            "start_ns": rows["start_ns"],
            "length_ns": rows["dur_ns"],
        }
    )
    return _merged(frame, window)


def bars_of_idle(run: Run, window: DrawnSpan) -> pd.DataFrame:
    """Return why devices were idle in a window; columns as `bars_of_work`."""
    rows = run.idle[run.idle["rank"] == window.rank]
    cause = "idle: " + as_text(rows["cause"])
    frame = pd.DataFrame(
        {
            "place": "device " + as_text(rows["device"]) + ", idle",
            "kind": cause,
            "label": cause,
            "start_ns": rows["start_ns"],
            "length_ns": rows["time_ns"],
        }
    )
    return _merged(frame, window)


def _merged(rows: pd.DataFrame, window: DrawnSpan) -> pd.DataFrame:
    """Return the rows of a window, cut to it; shorter ones that begin in one pixel are one."""
    end = (rows["start_ns"] + rows["length_ns"]).clip(upper=window.end)
    start = rows["start_ns"].clip(lower=window.start)
    rows = rows.assign(start_ns=start - window.start, length_ns=end - start)[end > start]
    pixel = max(1, (window.end - window.start) // _PIXELS)
    at = rows["start_ns"] // pixel
    is_long = rows["length_ns"] >= pixel
    # Numbers below 0 are bars of their own.
    key = at.where(~is_long, -1 - pd.Series(range(len(rows)), rows.index))
    by = rows.assign(pixel=key).groupby(["place", "pixel"], sort=False, observed=True)
    bars = by.agg(
        kind=("kind", "first"), kinds=("kind", "nunique"), label=("label", "first"),
        start_ns=("start_ns", "min"), count=("label", "size"), busy_ns=("length_ns", "sum"),
    ).reset_index()  # fmt: skip
    several, is_short = bars["count"] > 1, bars["pixel"] >= 0
    bars["kind"] = bars["kind"].where(bars["kinds"] == 1, SEVERAL)
    words = as_text(bars["count"]) + " shorter than a pixel, " + as_text(bars["busy_ns"])
    bars["label"] = bars["label"].where(~several, words + " ns in all")
    # A bar of a pixel is as high as it is full: nothing looks longer than it was.
    bars["start_ns"] = bars["start_ns"].where(~is_short, bars["pixel"] * pixel)
    bars["length_ns"] = bars["busy_ns"].where(~is_short, bars["busy_ns"].clip(lower=pixel))
    bars["height"] = bars["busy_ns"] / bars["length_ns"]
    return bars.sort_values(["place", "start_ns"], kind="stable")[list(COLUMNS)]


def heat_map(go: Any, job: JobOfRanks, measure: str) -> Figure:
    """Return a field for each rank, or group of them, and step; those that stand out at the top.

    Args:
        go: plotly's module of figures.
        job: the ranks.
        measure: one of `HEAT`.

    Raises:
        UsageError: there is no such measure, or no device did anything.
    """
    if measure not in HEAT:
        refuse(f"no measure {measure!r}; there are {', '.join(HEAT)}")
    _check(job)
    found = heat_of(job.parts, standing_out(job, by_rank(job)))
    row, at, value = (column_values(found["cells"], name) for name in ("row", "column", measure))
    field = np.full((len(found["rows"]), len(found["steps"])), np.nan)
    for place, step, ns in zip(row, at, value, strict=True):
        field[place, step] = np.nan if ns is None else ns / _MS
    labels = [escape(each["label"]) for each in found["rows"]]
    figure = go.Figure(
        go.Heatmap(
            z=field, x=found["steps"], y=labels, colorscale="Blues", colorbar={"title": "ms"},
            hovertemplate="%{y}, step %{x}: %{z:.6f} ms<extra></extra>",
        ),
        layout=_LOOK,
    )  # fmt: skip
    said = "<br>".join(escape(text) for text in answers(job)[:3])
    figure.update_layout(title=f"{measure.removesuffix('_ns')} by rank and step<br>{said}")
    figure.update_xaxes(type="category", title="step")
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def bars_of_parts(go: Any, job: JobOfRanks) -> Figure:
    """Return a bar for each rank: the parts that its recorded time is made of.

    Raises:
        UsageError: no device did anything.
    """
    _check(job)
    ranks = by_rank(job)
    figure = go.Figure(layout=_LOOK)
    names = [f"rank {rank}" for rank in ranks["rank"]]
    for part in PARTS:
        time = ranks[f"{part}_ns"].astype("float64") / _MS
        if time.any():
            figure.add_bar(x=names, y=time, name=_WORDS[part])
    figure.update_layout(barmode="stack", title="Parts of each rank", xaxis={"type": "category"})
    figure.update_yaxes(title="ms")
    return figure


def _check(job: JobOfRanks) -> None:
    if job.parts.empty:
        raise UsageError(_NO_WORK)
