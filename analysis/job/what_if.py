"""The gain of a job from a change, by replay: an interval, or only a bound.

Not modelled, and so the reason why gains differ from a stopwatch's: work that overlaps slows other
work down, clocks change with the load, memory, other algorithms, other jobs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.job.critical_path import walk_back
from pyprof2.analysis.job.job_graph import MEETING, TRANSFER, JobGraph, host_gaps
from pyprof2.analysis.job.rank_graph import COPY, KERNEL, MEMBER, NO_STEP
from pyprof2.analysis.job.replay import replay
from pyprof2.analysis.time.host_clock import clock_words
from pyprof2.columns import combine_keys, sum_at, values_of
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.intervals import Bool, Int


MODEL_ERROR_MAX: Final = 0.02
"""Share of the window above which a gain is only bounded."""
INFERRED: Final = "waits between collectives and other work are inferred"
NOT_MODELLED: Final = (
    "not modelled: that communication slows what runs beside it, clock frequency, memory, other "
    "algorithms, other jobs"
)
UNTIED: Final = "no collective ties the ranks: they were not matched, or clocks cannot be compared"
_AXES: Final = {
    "op": "op", "layer": "layer", "category": "category", "kernel": "kernel_short",
    "kind": "category",
}  # fmt: skip
"""The axes and the columns that hold their names; `kind` is an old name of `category`."""


@dataclass(frozen=True)
class Scenario:
    """A change of durations of events and lags of edges.

    Attributes:
        what: the change, in words.
        duration: of all events; None: as recorded.
        lag: of all edges; None: as recorded.
        note: a remark.
    """

    what: str
    duration: Int | None = None
    lag: Int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Gain:
    """The gain of a change, of the window.

    Attributes:
        what: the change, in words.
        gain_ns: by the replay with inferred edges; None where only the bound is known.
        lo_ns, hi_ns: the interval.
        bound_ns: no more can be gained, whatever the recording lacks.
        window_ns: of the recording.
        model_error: how far the replay without inferred edges is from the recording, of the window.
        note: a remark.
    """

    what: str
    gain_ns: int | None
    lo_ns: int | None
    hi_ns: int | None
    bound_ns: int
    window_ns: int
    model_error: float
    note: str | None = None

    @property
    def gain_pct(self) -> float | None:
        """The gain as a share of the window; None where only the bound is known."""
        return None if self.gain_ns is None else 100 * self.gain_ns / max(1, self.window_ns)


def evaluate(job: JobGraph, change: Scenario) -> Gain:
    """Return what a change gains.

    Where the replay without any inferred wait is too far from the recording, those between
    collectives and other work are taken as true, and that is said. So it is where the gain rests on
    waits that only other ranks or steps show.
    """
    graph, base, window = job.graph, job.last_end, job.window_ns
    with_all = base - int(replay(graph, change.duration, change.lag).last_end)
    bound, doubted = _bound(job, change), _doubted(job)
    error, note = job.error_without(doubted | job.shared), change.note
    if job.clock_error_ns:
        words = clock_words(job.clock_error_ns)
        note = f"{note}; {words}" if note else words
        return Gain(change.what, None, None, None, bound, window, error, note)
    if job.calls is not None and not (job.instance >= 0).any():
        # Several ranks communicate, and no collective of one was matched with another's.
        talks = job.labels.fits("category", "comm".__eq__) & (job.kind == KERNEL)
        if len(values_of(job.rank[talks])) > 1:
            note = f"{note}; {UNTIED}" if note else UNTIED
            return Gain(change.what, None, None, None, bound, window, error, note)
    if error > MODEL_ERROR_MAX:
        return Gain(change.what, None, None, None, bound, window, error, note)
    is_inferred = doubted is not job.inferred
    if not is_inferred and job.shared.any():
        without_shared = replay(graph, change.duration, change.lag, job.shared)
        is_inferred = base - int(without_shared.last_end) != with_all
    gains = [with_all]
    if is_inferred:
        note = f"{note}; {INFERRED}" if note else INFERRED
    leaving_out = [doubted] if doubted is job.inferred else [doubted, job.inferred]
    for without in leaving_out:
        if without.any():
            before = int(replay(graph, without=without).last_end)
            after = int(replay(graph, change.duration, change.lag, without).last_end)
            gains.append(before - after)
    spread = scatter(job, change)
    # The least that the changed work takes is no surer than what it takes call by call.
    bound = min(window, bound + spread)
    hi = max(with_all, min(max(gains) + spread, bound))
    lo = min(with_all, max(min(gains) - spread, min(0, *gains)))
    return Gain(change.what, with_all, lo, hi, bound, window, error, note)


def scatter(job: JobGraph, change: Scenario) -> int:
    """Return two standard errors of a gain: replaced durations scatter from call to call.

    They are of the calls that the critical path loses. How far a recorded duration is from the new
    one times the ratio of both is known from all calls of that name in that step of the rank, on
    the path or not; of a single one, from all those of the rank.
    """
    if change.duration is None:
        return 0
    old, new = job.graph.duration, change.duration
    moved = np.flatnonzero((old != new) & (new > 0))
    rank = job.rank[moved]
    name = combine_keys(rank, job.steps_of(moved), job.labels.codes("kernel_short", moved))
    variance, due = _relative_variance(old[moved], new[moved], name)
    if np.isnan(variance).any():
        every, _ = _relative_variance(old[moved], new[moved], combine_keys(rank))
        variance = np.nan_to_num(np.where(np.isnan(variance), every, variance))
    variance *= due**2
    is_on_path = np.zeros(len(old), bool)
    event, what, _ = walk_back(job)
    is_on_path[event[what.any(axis=1)]] = True
    return int(2 * math.sqrt(variance[is_on_path[moved]].sum()))


def _relative_variance(old: Int, new: Int, name: Int) -> tuple[Floats, Floats]:
    """Return of each call the variance of those of its name, relative, and what it would take.

    The variance of a single one is NaN.
    """
    sums, count = (np.bincount(name, values) for values in (old, new)), np.bincount(name)
    due = new.astype(float) * np.divide(*sums)[name]
    with np.errstate(invalid="ignore"):
        squares = pd.Series((old / due - 1) ** 2).groupby(name, observed=True).sum().to_numpy()
    variance = squares / np.where(count > 1, count - 1, math.nan)
    return variance[name], due


def _doubted(job: JobGraph) -> Bool:
    """Return the inferred edges to leave out in further replays, to see what rests on them."""
    far = job.error_without(job.inferred) > MODEL_ERROR_MAX
    return job.guessed if far and (job.inferred & ~job.guessed).any() else job.inferred


def step_gains(job: JobGraph, change: Scenario) -> pd.DataFrame:
    """Return what a change gains of each step.

    A step lasts until the last work of any rank in it ends, since the step before it ended.

    Returns:
        `step` (null: the whole, where there are no steps), `step_ns`, `gain_ns`, and `lo_ns`, the
        smaller one of the replays with inferred edges and without them.
    """
    graph, inferred = job.graph, _doubted(job)
    steps = np.unique(job.step[job.step > NO_STEP])
    recorded = _lengths(job, steps, job.end)
    gain = recorded - _lengths(job, steps, replay(graph, change.duration, change.lag).end)
    least = gain
    if inferred.any():
        base = _lengths(job, steps, replay(graph, without=inferred).end)
        other = replay(graph, change.duration, change.lag, inferred).end
        least = np.minimum(gain, base - _lengths(job, steps, other))
    names = pd.array(steps if len(steps) else [None], "Int64")
    return pd.DataFrame({"step": names, "step_ns": recorded, "gain_ns": gain, "lo_ns": least})


def _lengths(job: JobGraph, steps: Int, end: Int) -> Int:
    if not len(steps):
        return np.array([int(end.max()) - job.begin])
    last = np.full(len(steps), job.begin)
    own = np.flatnonzero(job.step > NO_STEP)
    np.maximum.at(last, np.searchsorted(steps, job.step[own]), end[own])
    return np.diff(np.maximum.accumulate(last), prepend=job.begin)


def _bound(job: JobGraph, change: Scenario) -> int:
    """Return the most that a change can gain: the window less a lower bound of its new length.

    That bound is the replay without any lag, and the sum of the work of any stream or thread.
    """
    durations = job.graph.duration if change.duration is None else change.duration
    edges_only = replay(job.graph, durations, np.minimum(job.graph.lag, 0))
    least = max(int(edges_only.last_end) - job.begin, _busiest(job, durations))
    return max(0, job.window_ns - least)


def _busiest(job: JobGraph, durations: Int) -> int:
    """Return the largest sum of the work of one stream or thread, less what overlaps in it."""
    lane, graph = job.lane, job.graph
    sums = sum_at(lane, durations, int(lane.max(initial=-1)) + 1)
    early = np.flatnonzero(graph.lag < 0)
    at = lane[np.searchsorted(graph.first, early, "right") - 1]
    same = (at >= 0) & (lane[graph.source[early]] == at)
    np.add.at(sums, at[same], graph.lag[early[same]])
    return int(sums.max(initial=0))


def scale(job: JobGraph, axis: str, pattern: str, factor: float) -> Scenario:
    """Return the change in which the work of an op, layer, kernel or kind takes `factor` as long.

    Args:
        job: the graph.
        axis: `op`, `layer`, `kernel` or `category`.
        pattern: a regular expression, searched for.
        factor: 0 or more.

    Raises:
        UsageError: there is no such axis, or nothing fits the pattern.
    """
    if axis not in _AXES:
        msg = f"no axis {axis!r} to scale; there are {', '.join(_AXES)}"
        raise UsageError(msg)
    column = _AXES[axis]
    try:
        found = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"{pattern!r} is not a regular expression: {error}"
        raise UsageError(msg) from error
    chosen = job.labels.fits(column, lambda word: bool(word and found.search(word)))
    chosen &= np.isin(job.kind, (KERNEL, COPY, MEMBER)) & (job.instance < 0)
    if not chosen.any():
        msg = f"no kernel or copy has {axis} {pattern!r}"
        raise UsageError(msg)
    duration = job.graph.duration.copy()
    duration[chosen] = np.rint(duration[chosen] * factor)
    return Scenario(f"{axis} {pattern} × {factor:g}", duration)


def scale_transfers(job: JobGraph, factor: float, instances: Int | None = None) -> Scenario:
    """Return the change in which the transfers of all instances, or of some, take that factor.

    Collectives that are not matched count with all of their duration: their wait is not known.
    """
    is_transfer = job.kind == TRANSFER
    if instances is not None:
        is_transfer &= np.isin(job.instance, instances)
    duration = np.where(is_transfer, np.rint(job.graph.duration * factor), job.graph.duration)
    return Scenario(f"transfers × {factor:g}", duration.astype(np.int64))


def as_the_others(job: JobGraph, ranks: Sequence[int], roles: Mapping[int, Any]) -> Scenario:
    """Return the change in which ranks take as long as the others of their roles, call by call.

    Each duration and each gap of the host becomes the median of the same call over the others.
    With one other rank the larger of the two becomes the smaller one.

    Raises:
        UsageError: no other rank has the role of one.
    """
    duration, lag, note = job.graph.duration.copy(), job.graph.lag.copy(), None
    for role in dict.fromkeys(roles.get(rank) for rank in ranks):
        own = {rank for rank in ranks if roles.get(rank) == role}
        others = [other for other in roles if other not in own and roles[other] == role]
        if not others:
            listed = ", ".join(map(str, sorted(own)))
            msg = (
                f"rank {listed}: no other rank has its role, so there is nothing to compare it with"
            )
            raise UsageError(msg)
        _replace(job, _Measure(own, others, len(others) == 1), duration, lag)
        if len(others) == 1:
            note = "of two ranks the faster one is the measure"
    return Scenario(as_others_words(ranks), duration, lag, note)


def as_others_words(ranks: Sequence[int]) -> str:
    """Return the change in words: `rank 2 as the others`, `ranks 2, 5 as the others`."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} as the others"


def all_ideal(job: JobGraph, roles: Mapping[int, Any]) -> Scenario:
    """Return the change in which every rank takes the median of its role, call by call."""
    duration, lag = job.graph.duration.copy(), job.graph.lag.copy()
    for role in set(roles.values()):
        same = [rank for rank in roles if roles[rank] == role]
        if len(same) > 1:
            _replace(job, _Measure(set(same), same, len(same) == 2), duration, lag)
    return Scenario("all ranks ideal", duration, lag)


class _Measure(NamedTuple):
    """The ranks whose times are replaced, those of the medians, whether only by smaller ones."""

    ranks: set[int]
    among: Sequence[int]
    only_less: bool


def _replace(job: JobGraph, measure: _Measure, duration: Int, lag: Int) -> None:
    """Put medians in the place of the durations and the gaps of the host of some ranks."""
    own = (job.key >= 0) & (job.instance < 0) & (job.kind < MEETING)
    events = np.flatnonzero(own)
    _put(job, measure, events, (events, duration, job.graph.duration))
    gaps, edges = host_gaps(job)
    known = job.key[gaps] >= 0
    _put(job, measure, gaps[known], (edges[known], lag, job.graph.lag))


def _put(job: JobGraph, measure: _Measure, events: Int, values: tuple[Int, Int, Int]) -> None:
    """Put the medians of the same calls where values of events stand: at, into, of what."""
    at, into, old = values
    rank, key = job.rank[events], job.key[events]
    others = np.isin(rank, list(measure.among))
    median = pd.Series(old[at][others]).groupby(key[others], observed=True).median()
    mine = np.flatnonzero(np.isin(rank, list(measure.ranks)))
    found = median.reindex(key[mine]).to_numpy()
    good = ~np.isnan(found)
    new = np.rint(found[good]).astype(np.int64)
    place = at[mine[good]]
    into[place] = np.minimum(new, old[place]) if measure.only_less else new


def perfect_overlap(job: JobGraph) -> Gain:
    """Return the bound of any schedule: no stream or thread works less than the sum of its work."""
    bound = max(0, job.window_ns - _busiest(job, job.graph.duration))
    note = "a bound: the window less the work of the busiest stream or thread"
    return Gain("perfect overlap", None, None, None, bound, job.window_ns, 0.0, note)


def gains_frame(gains: Sequence[Gain]) -> pd.DataFrame:
    """Return gains as rows, the largest first; shares of the window in %."""
    frame = pd.DataFrame([vars(gain) for gain in gains])
    whole = {"gain_ns": "Int64", "lo_ns": "Int64", "hi_ns": "Int64"}
    frame = frame.astype(whole)
    frame["gain_pct"] = pd.array([gain.gain_pct for gain in gains], "Float64")
    frame["model_error_pct"] = 100 * frame["model_error"]
    return frame.drop(columns="model_error")


_CLASS = ["group_key", "kind", "bytes"]


def links_as_others(job: JobGraph, rates: pd.DataFrame, links: pd.DataFrame) -> Scenario:
    """Return the change in which slow groups transfer as fast as the others of their class.

    Args:
        job: the graph.
        rates: one row per instance: `instance_id`, `group_key`, `kind`, `bytes`.
        links: the slow ones: `group_key`, `kind`, `bytes`, `ratio` to the median of the others.
    """
    known = (rates[_CLASS], links[_CLASS])
    keys = [each.astype(object).where(each.notna(), "") for each in known]
    ratio = dict(zip(map(tuple, keys[1].to_numpy()), links["ratio"].astype(float), strict=True))
    factors = [1 / ratio.get(tuple(key), 1.0) for key in keys[0].to_numpy()]
    by_instance = pd.Series(factors, rates["instance_id"].astype("int64"), dtype=float)
    factor = by_instance.reindex(job.instance).fillna(1.0).to_numpy()
    scaled = np.rint(job.graph.duration * factor).astype(np.int64)
    duration = np.where(job.kind == TRANSFER, scaled, job.graph.duration)
    return Scenario("slow links as the others", duration)


def evenly_spread(job: JobGraph, roles: Mapping[int, Any]) -> Scenario:
    """Return the change in which ranks of a role share the work of each call evenly.

    Each kernel that does not communicate takes the mean of the same call over them: the sum of the
    work stays.
    """
    talks = job.labels.fits("category", "comm".__eq__)
    events = np.flatnonzero((job.kind == KERNEL) & (job.key >= 0) & ~talks)
    numbers = {role: at for at, role in enumerate(dict.fromkeys(roles.values()))}
    role = pd.Series({rank: numbers[each] for rank, each in roles.items()})
    calls = pd.DataFrame(
        {
            "key": job.key[events],
            "role": role.reindex(job.rank[events]).to_numpy(),
            "ns": job.graph.duration[events],
        }
    )
    mean = calls.groupby(["key", "role"], dropna=False, observed=True)["ns"].transform("mean")
    duration = job.graph.duration.copy()
    duration[events] = np.rint(mean.to_numpy(float)).astype(np.int64)
    return Scenario("work spread evenly", duration)
