"""Pictures of a run for notebooks, as figures of plotly.

Every text of a recording is escaped: plotly would take a part of HTML for what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.hardware.verdict import find_peaks, named_device
from pyprof2.errors import UsageError
from pyprof2.reports.notebook import escape
from pyprof2.reports.plot_timeline import bars_of_idle, bars_of_work, choose_window
from pyprof2.units import counted, format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plotly.graph_objects import Figure

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.reports.plot_timeline import Window
    from pyprof2.run import Run

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


@dataclass(frozen=True)
class Plots:
    """The pictures of a run: `run.plot`."""

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
        figure = go.Figure(_dots(go, known))
        roofs = list(self._roofs())
        corners = [flops / bandwidth for _, flops, bandwidth in roofs]
        for name, flops, bandwidth in roofs:
            x = _roof_range(known["intensity"], flops / bandwidth, corners)
            y = np.minimum(x * bandwidth, flops) / 1e12
            figure.add_scatter(x=x, y=y, mode="lines", name=escape(name), hoverinfo="name")
        share = 100 * known["time_ns"].sum() / max(1, rows["time_ns"].sum())
        figure.update_layout(title=f"Signatures under the roof: {share:.1f} % of the time")
        return _with_log_axes(figure, "FLOP per byte", "TFLOP/s")

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
        if self.run.device is not None:
            return [named_device(self.run.device)]
        found = [find_peaks(row) for row in self.run.table("devices").to_pylist()]
        return list({each.name: each for each in found if each is not None}.values())

    def timeline(self, step: int | None = None, rank: int | None = None) -> Figure:
        """Return what each stream of a rank did in a step, and why devices were idle.

        What takes less than a pixel is drawn together.

        Args:
            step: its number; None: the step of median length; without steps all is drawn.
            rank: whose; None: the first one with a device.

        Raises:
            UsageError: plotly is not installed, there is no such step, or no device worked.
        """
        go = _plotly()
        if self.run.idle_windows.empty:
            raise UsageError(_NO_WORK)
        window = choose_window(self.run, step, rank)
        bars = pd.concat([bars_of_work(self.run, window), bars_of_idle(self.run, window)])
        figure = go.Figure([_bars(go, str(n), own) for n, own in bars.groupby("kind", sort=False)])
        figure.update_layout(barmode="overlay", title=_title(window), colorway=_colours())
        figure.update_xaxes(title="ms", range=[0, (window.end - window.start) / _MS])
        figure.update_yaxes(autorange="reversed")
        return figure

    def steps(self) -> Figure:
        """Return what the device did in each step, as one bar for each window.

        Raises:
            UsageError: plotly is not installed.
        """
        go = _plotly()
        steps = self.run.steps
        names = [_step_name(row, steps) for row in steps.to_dict("records")]
        figure = go.Figure()
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
        from pyprof2.reports.plot_ranks import heat_map

        return heat_map(_plotly(), self.run.ranks, measure)

    def rank_parts(self) -> Figure:
        """Return the parts that each rank's time is made of, as a bar for each rank.

        Raises:
            UsageError: plotly is not installed, or no device worked.
        """
        from pyprof2.reports.plot_ranks import bars_of_parts

        return bars_of_parts(_plotly(), self.run.ranks)

    def idle(self) -> Figure:
        """Return the idle time of all devices by cause, one colour for each group.

        Without a device: what the thread that holds the steps did and waited for.

        Raises:
            UsageError: plotly is not installed.
        """
        go = _plotly()
        causes = self.run.idle_profile(by=("group", "cause"))
        figure = go.Figure()
        for group, rows in causes.groupby("group", sort=False, observed=True):
            figure.add_bar(
                x=rows["time_ns"] / _MS, y=rows["cause"].astype(str), name=str(group),
                orientation="h", text=[_share(share) for share in rows["window_pct"]],
            )  # fmt: skip
        what = "What steps waited for" if self.run.idle_windows.empty else "Why devices were idle"
        figure.update_layout(title=f"{what}, with the share of the recorded time")
        figure.update_xaxes(title="ms")
        order = causes["cause"].astype(str).tolist()
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
        msg = "pictures need the package plotly; install 'pyprof2[plot]'"
        raise UsageError(msg) from error
    return go


def _colours() -> list[str]:
    """Return colours enough for all categories and causes."""
    from plotly.colors import qualitative

    return [*qualitative.Dark24, *qualitative.Light24]


def _with_log_axes(figure: Figure, x: str, y: str) -> Figure:
    figure.update_xaxes(type="log", title=x, exponentformat="power")
    figure.update_yaxes(type="log", title=y, exponentformat="power")
    return figure


def _facts(row: Mapping[Any, Any]) -> Iterator[str]:
    yield _short(row["signature"])
    times = counted(row["count"], "time")
    yield f"{format_time(row['time_ns'])}, {row['share_pct']:.1f} %, {times}"
    yield f"{format_rate(row['tflops'])} TFLOP/s, {format_rate(row['gbps'])} GB/s"
    yield _of_roof(row["roofline_pct"])


def _dots(go: Any, rows: pd.DataFrame) -> Any:
    area = rows["time_ns"] / max(1, rows["time_ns"].max() if len(rows) else 1)
    hover = ["<br>".join(_facts(row)) for row in rows.to_dict("records")]
    size = np.maximum(_SMALLEST_DOT, _LARGEST_DOT * np.sqrt(area))
    return go.Scatter(
        x=rows["intensity"], y=rows["tflops"], mode="markers", name="signatures", text=hover,
        hoverinfo="text", marker={"size": size, "opacity": 0.6},
    )  # fmt: skip


def _of_roof(share: float) -> str:
    return "roof not known" if np.isnan(share) else f"{share:.1f} % of its roof"


def _roof_range(intensity: pd.Series, corner: float, corners: Sequence[float]) -> Any:
    """Return where a roof is drawn: around all dots and the corners of all, with its own."""
    low = min([intensity.min(), min(corners) / 10]) if len(intensity) else min(corners) / 10
    high = max([intensity.max(), max(corners) * 2]) if len(intensity) else max(corners) * 2
    return np.array([low, corner, high])


def _bars(go: Any, name: str, rows: pd.DataFrame) -> Any:
    return go.Bar(
        base=rows["start_ns"] / _MS, x=rows["length_ns"] / _MS, y=rows["place"],
        width=_THICK * rows["height"], orientation="h", name=escape(name),
        text=[_short(label) for label in rows["label"]], textposition="none",
        customdata=rows["busy_ns"] / _MS, hovertemplate=_HOVER,
        marker={"line": {"width": 0}},
    )  # fmt: skip


def _share(share: float) -> str:
    return f"{share:.1f} %" if share >= 0.05 else "&lt;0.1 %"


def _title(window: Window) -> str:
    what = "All that was recorded" if window.step is None else f"Step {window.step}"
    return f"{what}, rank {window.rank}: {format_time(window.end - window.start)}"


def _step_name(row: dict[Any, Any], steps: pd.DataFrame) -> str:
    several = [name for name in ("rank", "device") if len(set(steps[name].tolist())) > 1]
    return ", ".join([str(row["step"]), *(f"{name} {row[name]}" for name in several)])


def _short(text: Any) -> str:
    shown = str(text)
    return escape(shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…")
