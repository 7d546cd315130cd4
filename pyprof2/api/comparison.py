"""Compare two runs: whether they can be, and what makes the difference of their steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd

from pyprof2.analysis.axes import check_known_once
from pyprof2.api import run_profile, run_time
from pyprof2.api.run import Run, load
from pyprof2.columns import as_text
from pyprof2.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyprof2.analysis.summaries.compare import Comparison, Side
    from pyprof2.analysis.summaries.compared_sides import Chosen

AXES: Final = ("layer", "op", "signature", "source", "range")
"""Columns that the parts of the terms may be summed along."""
_EXTRA: Final = ("source", "range")
_COMMON_PCT: Final = 50
_NAMED: Final = 8


class Compared(NamedTuple):
    """Two runs, compared.

    Attributes:
        a, b: the runs.
        names: how they were named.
        comparison: the terms of the difference.
        differences: why the two may not be comparable, in words; none where they are.
        remarks: what else differs, in words.
        sides: the steps of both that are compared.
    """

    a: Run
    b: Run
    names: tuple[str, str]
    comparison: Comparison
    differences: list[str]
    remarks: list[str]
    sides: tuple[Side, Side]

    @property
    def ranks(self) -> pd.DataFrame:
        """Each rank's step in both runs, and which changed by itself; empty of one rank.

        See `pyprof2.analysis.job.rank_parts.compared_ranks`.
        """
        from pyprof2.analysis.job.rank_parts import compared_ranks

        runs = (self.a, self.b)
        both = zip(runs, self.sides, strict=True)
        return compared_ranks(*(_times_of_ranks(run, side) for run, side in both))

    @property
    def has_ranks(self) -> bool:
        """Whether both have several ranks whose devices did anything."""
        counts = [side.windows["rank"].nunique() for side in self.sides]
        return min(counts) > 1 and not any(run.summary["no_gpu"] for run in (self.a, self.b))

    @property
    def terms(self) -> pd.DataFrame:
        """The terms that add up to the difference of a step; see `Comparison`."""
        return self.comparison.terms


def compare(
    a: Run | Path | str,
    b: Run | Path | str,
    *,
    steps: tuple[int, int] | int | None = None,
    by: str | Sequence[str] = (),
    force: bool = False,
    progress: bool = False,
) -> Compared:
    """Return what makes the difference of two runs' steps, in terms that add up to it exactly.

    Args:
        a: the run before: what `load` returns, a store, or a trace.
        b: the run after.
        steps: a number, or first and last; by default all but the first.
        by: `layer`, `op`, `signature`, `source` or `range`: what the parts can be summed along.
        force: compare what is not comparable as well.
        progress: show a bar on stderr while parsing.

    Raises:
        UsageError: an axis is unknown or named twice, a side has none of the steps, or the runs
            are not comparable and `force` is not set.
    """
    from pyprof2.analysis.summaries.compare import compare_sides

    axes = (by,) if isinstance(by, str) else tuple(by)
    check_known_once(axes, AXES, "of a comparison")
    chosen = (steps, steps) if isinstance(steps, int) else steps
    runs = [each if isinstance(each, Run) else load(each, progress=progress) for each in (a, b)]
    extra = [axis for axis in axes if axis in _EXTRA]
    sides = [_side(run, chosen, extra) for run in runs]
    differences, remarks = _differences(runs, sides)
    if differences and not force:
        refuse(f"not comparable: {'; '.join(differences)}; --allow-mismatch compares all the same")
    found = compare_sides(sides[0], sides[1], extra)
    if not found.layers_match:
        remarks.append("layers have other names: calls are matched by op and direction alone")
    names = (_name(a), _name(b))
    return Compared(runs[0], runs[1], names, found, differences, remarks, (sides[0], sides[1]))


def _times_of_ranks(run: Run, side: Side) -> pd.DataFrame:
    """Return the parts of the windows that are compared, and how late the host was in each step."""
    parts, times = run.ranks.parts, run.ranks.times
    host = times.set_index(["rank", "step"])["host_ns"]
    if parts["step"].isna().all():
        by_rank = times.groupby("rank", observed=True)["host_ns"].sum()
        return parts.assign(host_ns=parts["rank"].map(by_rank))
    chosen = pd.MultiIndex.from_frame(side.windows[["rank", "step", "start_ns"]])
    keys = pd.MultiIndex.from_frame(parts[["rank", "step", "start_ns"]].astype("int64"))
    own = parts[keys.isin(chosen)]
    at = pd.MultiIndex.from_frame(own[["rank", "step"]].astype("int64"))
    late = host[~host.index.duplicated()].reindex(at).to_numpy()
    return own.assign(host_ns=late)


def _name(given: Run | Path | str) -> str:
    return str(given.path if isinstance(given, Run) else given)


def _side(run: Run, chosen: Chosen, extra: Sequence[str]) -> Side:
    from pyprof2.analysis.summaries import compared_sides
    from pyprof2.store.folder import read_table
    from pyprof2.tables import TABLES

    if run.summary["no_gpu"]:
        ranges = read_table(run.path, "ranges", compared_sides.RANGES)
        side = compared_sides.cpu_side(run_profile.rows_of(run.tables), ranges, chosen, extra)
    else:
        ranks, names = run.tables.ranks, ("kernels", "copies")
        steps = read_table(run.path, "steps", compared_sides.STEPS)
        windows = compared_sides.windows_of_steps(steps, chosen)
        idle = compared_sides.idle_by_step(run_time.idle_parts(run.tables, compared_sides.IDLE))
        if windows.empty and chosen is None:
            needed = dict.fromkeys(names, compared_sides.WORK) | {"trace": compared_sides.TRACE}
            recorded = [compared_sides.recorded_windows(rank.several(needed)) for rank in ranks]
            windows, idle = pd.concat(recorded, ignore_index=True), idle.assign(step=0)
        columns = compared_sides.activity_columns(TABLES["kernels"].names, extra)
        parts = (
            (at, part)
            for rank in ranks
            for at, name in enumerate(names)
            for part in rank.in_parts(name, columns)
        )
        side = compared_sides.device_side(parts, windows, idle, extra)
    if side.windows.empty:
        there_is = "pyprof2 prof --by step lists what there is"
        refuse(f"{run.tables.label}: has none of these steps; {there_is}")
    return side


def _differences(runs: Sequence[Run], sides: Sequence[Side]) -> tuple[list[str], list[str]]:
    """Return why two runs may not be comparable, and what else differs."""
    from pyprof2.analysis.summaries.compared_calls import without_casts

    devices = [sorted(set(run.devices["name"].dropna())) for run in runs]
    found: list[str] = []
    remarks: list[str] = []
    if devices[0] != devices[1]:
        # Devices that were not recorded may be the same.
        other = found if all(devices) else remarks
        other.append(f"devices are {_listed(devices[0])} and {_listed(devices[1])}")
    # Mixed precision has casts of its own: they make no other model.
    slices = [without_casts(side.times) for side in sides]
    ops = _common_pct(slices, [own["op"] for own in slices])
    if ops < _COMMON_PCT:
        found.append(f"ops that both have hold {ops:.0f} % of the time: other models")
    remarks += _other_ranks(sides)
    remarks += _other_inputs(sides)
    profilers = [run.summary["profilers"] for run in runs]
    if profilers[0] != profilers[1]:
        remarks.append(f"recorded with {_listed(profilers[0])} and {_listed(profilers[1])}")
    return found, remarks


def _other_inputs(sides: Sequence[Side]) -> Iterator[str]:
    """Yield what else calls work on in most of the time: other shapes, or other dtypes."""
    from pyprof2.analysis.summaries.compared_calls import products, without_dtypes

    # The casts of mixed precision may take longer than the rest, and have shapes of their own.
    slices, of = [products(side.times) for side in sides], " of products"
    if any(own.empty for own in slices):
        slices, of = [side.times for side in sides], ""
    dims = [own["signature"].map(without_dtypes, na_action="ignore") for own in slices]
    shapes = _common_pct(slices, dims)
    if shapes < _COMMON_PCT:
        share = f"{shapes:.0f} % of the time{of}"
        yield f"calls of the same shapes hold {share}: another batch or model size"
        return
    same = _common_pct(slices, [own["signature"] for own in slices])
    if same < _COMMON_PCT:
        dtypes = " and ".join(dtype or "not recorded" for dtype in main_dtypes(sides))
        yield (
            f"calls of the same shapes hold {shapes:.0f} % of the time{of}, of the same dtypes as "
            f"well {same:.0f} %: another precision, most in {dtypes}"
        )


def main_dtypes(sides: Sequence[Side]) -> list[str | None]:
    """Return of each side the floating dtype that most of the time of products is in."""
    from pyprof2.analysis.summaries.compared_calls import main_dtype

    return [main_dtype(side.times) for side in sides]


def _other_ranks(sides: Sequence[Side]) -> Iterator[str]:
    """Yield which ranks only one side has."""
    ranks = [{*side.windows["rank"].tolist()} for side in sides]
    if ranks[0] == ranks[1]:
        return
    more = {"A": ranks[0] - ranks[1], "B": ranks[1] - ranks[0]}
    only = []
    for name, own in more.items():
        named = ", ".join(map(str, sorted(own)[:_NAMED]))
        rest = f" and {len(own) - _NAMED} more" if len(own) > _NAMED else ""
        only += [f"only {name} has rank{'s' * (len(own) > 1)} {named}{rest}"] if own else []
    counts = f"{len(ranks[0])} and {len(ranks[1])} ranks"
    yield f"{counts}: {', '.join(only)}"


def _common_pct(slices: Sequence[pd.DataFrame], keys: Sequence[pd.Series]) -> float:
    """Return the time of slices whose keys both sides have: the smaller of both shares."""
    times = [
        own["time_ns"].groupby(key, observed=True).sum()
        for own, key in zip(slices, keys, strict=True)
    ]
    for time in times:
        time.index = time.index.astype(object)
    common = times[0].index.intersection(times[1].index)
    if not any(len(time) for time in times):
        return 100.0
    return min(100 * float(time[common].sum()) / max(1, float(time.sum())) for time in times)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) or "not recorded"


_GATE: Final = re.compile(
    r"([a-z]{1,20}(?:\.[a-z_]{1,40})?)\s{0,3}>\s{0,3}(\d{1,12}(?:\.\d{1,9})?)\s{0,3}(%|ms|us|MB)"
)
_UNITS: Final = {"ms": 1e6, "us": 1e3, "MB": 1e6}
_TIMES: Final = ("time", "busy", "idle")
_MEMORY: Final = "memory"


@dataclass(frozen=True)
class Gate:
    """A metric, and by how much it may rise.

    Attributes:
        metric: `time`, `busy`, `idle`, `idle.CAUSE` (per step) or `memory` (the peak).
        limit: how much, in `unit`.
        unit: `%` of the run before, `ms`, `us`, or `MB` for memory.
    """

    metric: str
    limit: float
    unit: str


def parse_gate(text: str) -> Gate:
    """Return the gate that `time>3%` or `idle.sync>2ms` names.

    Raises:
        UsageError: it is none.
    """
    found = _GATE.fullmatch(text.strip())
    metric = found[1] if found else ""
    is_time = metric in _TIMES or metric.startswith("idle.")
    units = ("%", "MB") if metric == _MEMORY else ("%", "ms", "us") if is_time else ()
    if found is None or found[3] not in units:
        refuse(
            f"{text!r} is no gate; give METRIC>N with %, ms, us or (memory) MB; METRIC is time, "
            "busy, idle, idle.CAUSE or memory, as in 'time>3%'"
        )
    return Gate(metric, float(found[2]), found[3])


def failures(compared: Compared, gates: Sequence[Gate]) -> list[str]:
    """Return a line for each gate that fails: even at the lower end of the interval.

    Raises:
        UsageError: what a gate is about was not recorded on both sides.
    """
    return [line for gate in gates if (line := _failure(compared, gate)) is not None]


def _failure(compared: Compared, gate: Gate) -> str | None:
    before, after, lower = _values(compared, gate)
    size = _UNITS.get(gate.unit) or before / 100
    # From 0, any rise exceeds any percentage.
    if lower <= gate.limit * size:
        return None
    scale, unit = (_UNITS["ms"], "ms") if gate.metric != _MEMORY else (_UNITS["MB"], "MB")
    return (
        f"{gate.metric} rose from {before / scale:.3f} to {after / scale:.3f} {unit}: more than "
        f"{gate.limit:g} {gate.unit}"
    )


def _values(compared: Compared, gate: Gate) -> tuple[float, float, float]:
    """Return a metric before and after, and the least that it rose by."""
    import pandas as pd

    if gate.metric == _MEMORY:
        before, after = (_peak_bytes(run) for run in (compared.a, compared.b))
        return before, after, after - before
    totals = compared.comparison.totals.set_index("metric")
    if gate.metric not in totals.index:
        return 0.0, 0.0, 0.0
    row: Any = totals.loc[gate.metric]
    before, after = float(row["a_ns"]), float(row["b_ns"])
    return before, after, after - before if pd.isna(row["lo_ns"]) else float(row["lo_ns"])


def _peak_bytes(run: Run) -> float:
    """Return the most that was allocated on a device at once, of all ranks."""
    memory = run.memory
    known = memory["allocated_bytes"].notna()
    on_device = known & (as_text(memory["device_type"]) != "cpu")
    chosen = memory[on_device if on_device.any() else known]
    if chosen.empty:
        how = "record with profile(profile_memory=True)"
        refuse(f"{run.tables.label}: no memory was recorded; {how}")
    return float(chosen["allocated_bytes"].max())
