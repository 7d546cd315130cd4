"""The events of all ranks in one graph, in which collectives hold the ranks together."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.job.collective_rows import POINT_TO_POINT, SYNCHRONISING
from pyprof2.analysis.job.rank_graph import (
    AWAITED,
    COMM_WAIT,
    INFERRED,
    ISSUED,
    LAUNCH,
    MEMBER,
    NO_STEP,
    ROOT,
    SHARED_WAIT,
    WAIT,
    RankGraph,
    issued_of,
)
from pyprof2.analysis.job.replay import (
    CircleError,
    Graph,
    Members,
    recorded_lags,
    replay,
    with_instances,
)
from pyprof2.columns import combine_keys, first_rows, lookup, narrow, short
from pyprof2.recording import code_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int

MEETING, TRANSFER = 5, 6
"""Kinds of events beside those of a rank: where an instance's members meet, and the transfers."""

INNER: Final = -1
"""The kind of the edges between a member, its meeting and its transfer."""
_COPIES: Final = ("memcpy", "memset")


@dataclass(frozen=True)
class Labels:
    """The names of events: codes into texts, of each column that is asked for.

    Attributes:
        rows: gives a column of what has names.
        row: that of each event, -1 for none.
    """

    rows: Callable[[str], pa.Table]
    row: Int
    _known: dict[str, tuple[Int, list[str]]] = field(default_factory=dict)

    def of_rows(self, column: str) -> tuple[Int, list[str]]:
        """Return the code of each row, -1 for none, and the texts."""
        if column not in self._known:
            code, words = code_column(self.rows(column), column)
            self._known[column] = narrow(code), words
        return self._known[column]

    def in_order(self, column: str) -> Int:
        """Return the code of each event, -1 for none, by which texts come first."""
        found = lookup(self.of_rows(column)[0], self.row, -1)
        first = first_rows(found, int(found.max(initial=-1)) + 1)
        place = np.append(np.argsort(np.argsort(first, kind="stable")), -1)
        return short(place[found])

    def fits(self, column: str, wanted: Callable[[str], bool]) -> Bool:
        """Return which events have a text that a function wants."""
        codes, texts = self.of_rows(column)
        # Events without a row have the last one.
        fits = np.append(np.array([*map(wanted, texts), False])[codes], False)
        found: Bool = fits[self.row]
        return found

    def text(self, column: str, events: Int) -> list[str | None]:
        """Return the texts of events; None where one has none."""
        words = [*self.of_rows(column)[1], None]
        return [words[code] for code in self.codes(column, events).tolist()]

    def codes(self, column: str, events: Int) -> Int:
        """Return the code of some events, -1 for none."""
        return lookup(self.of_rows(column)[0], self.row[events], -1)


@dataclass(frozen=True)
class JobGraph:
    """All events of a job.

    Attributes:
        graph: they and the edges between them, in its order.
        kind, rank: of each event.
        instance: of members, meetings and transfers; -1 for others.
        edge_kind: of each edge of the graph.
        start: as recorded, of each event.
        labels: of each event.
        steps: of the rows that have labels; `NO_STEP` for none.
        calls: equal for the same call on several ranks, -1 for none; None: there is one rank.
        lane: equal for events that run one after another: of one stream, or one thread.
        clock_error_ns: how far the clocks of host and device of any rank are apart.
    """

    graph: Graph
    kind: Int
    rank: Int
    instance: Int
    edge_kind: Int
    start: Int
    labels: Labels
    steps: Int
    calls: Int | None
    lane: Int
    clock_error_ns: int = 0

    @cached_property
    def step(self) -> Int:
        """The step of each event; `NO_STEP` for none."""
        return self.steps_of(slice(None))

    def steps_of(self, events: Any) -> Int:
        """Return the step of some events; `NO_STEP` for none."""
        return lookup(self.steps.astype(np.int64), self.labels.row[events], NO_STEP)

    @cached_property
    def key(self) -> Int:
        """Equal for the same call on several ranks; -1 for none."""
        if self.calls is not None:
            return self.calls
        is_none = (self.kind == ROOT) | ~self.labels.fits("kernel_short", lambda _: True)
        return np.where(is_none, -1, np.arange(len(self.kind), dtype=np.int32))

    @cached_property
    def binding(self) -> Int:
        """The edge that the start of each event rests on, or -1."""
        return replay(self.graph, is_bound=True).binding

    @property
    def end(self) -> Int:
        """When each event ends, in the recording and so in its replay."""
        found: Int = self.start + self.graph.duration
        return found

    @cached_property
    def last_end(self) -> int:
        """The latest of these; 0 without events."""
        return int(self.end.max()) if len(self.start) else 0

    @cached_property
    def inferred(self) -> Bool:
        """Which edges are inferred."""
        found: Bool = np.isin(self.edge_kind, INFERRED)
        return found

    @cached_property
    def guessed(self) -> Bool:
        """Which edges are inferred, and not between a collective and other work."""
        found: Bool = self.edge_kind == WAIT
        return found

    @cached_property
    def shared(self) -> Bool:
        """Which edges are inferred from the same calls of other ranks or steps."""
        found: Bool = self.edge_kind == SHARED_WAIT
        return found

    def error_without(self, edges: Bool) -> float:
        """Return how far the replay without some edges is from the recording, of the window."""
        if not edges.any():
            return 0.0
        last = int(replay(self.graph, without=edges).last_end)
        return abs(last - self.last_end) / max(1, self.window_ns)

    @cached_property
    def begin(self) -> int:
        """Where the window begins: the root of all ranks."""
        roots = self.start[self.kind == ROOT]
        return int(roots.min()) if len(roots) else 0

    @property
    def window_ns(self) -> int:
        """From the roots to the last end."""
        return self.last_end - self.begin


def job_graph(ranks: Sequence[RankGraph], members: Mapping[int, pd.DataFrame]) -> JobGraph:
    """Return the graph of several ranks, whose roots are at one time.

    Args:
        ranks: the graphs of each.
        members: of each rank, in the order of its graph's `member`: `instance_id`, `kind`,
            `match_note`, `members_recorded`, `wait_ns`, `dur_ns`.

    Raises:
        UsageError: collectives wait for one another in a circle; it names their instances.
    """
    counts = [len(each.start) for each in ranks]
    start, end, kind, steps, lane, edge_kind = (
        _joined(columns)
        for columns in zip(
            *((r.start, r.end, r.kind, r.steps, r.lane, r.edges.kind) for r in ranks), strict=True
        )
    )
    source = _shifted([each.edges.source for each in ranks], counts)
    ends = [each.edges.first[1:] for each in ranks]
    first = np.r_[np.int32(0), _shifted(ends, [len(each.edges.source) for each in ranks])]
    rank = np.repeat(narrow(np.array([each.rank for each in ranks])), counts)
    # The instance of each event whose start and end depend on other ranks, or -1.
    instances = [lookup(met_instances(members[each.rank]), each.member, -1) for each in ranks]
    instance = narrow(whole_instances(_joined(instances), start, end))
    lag = recorded_lags(start, end, source, first)
    named_by = _shifted([each.named_by for each in ranks], [len(each.steps) for each in ranks])
    readers, calls = [each.rows for each in ranks], None
    labels = Labels(
        lambda name: pa.concat_tables(read((name,)) for read in readers).unify_dictionaries(),
        named_by,
    )
    if len(ranks) > 1:
        lane = narrow(combine_keys(rank, lane))
        step = lookup(steps.astype(np.int64), named_by, NO_STEP)
        calls = _keys(ranks, instances, (kind, step, rank), labels.in_order("kernel_short"))
    more = (source[:0], source[:0], lag[:0])
    ties = edge_kind == COMM_WAIT
    if ties.any() and not (edge_kind == AWAITED).any():
        events = pd.DataFrame(
            {"rank": rank, "step": lookup(steps.astype(np.int64), named_by, NO_STEP),
             "name": labels.in_order("kernel_short"), "kind": kind,
             "issued": np.concatenate([_issued(each) for each in ranks]),
             "start": start, "end": end}
        )  # fmt: skip
        target = np.repeat(np.arange(len(start)), np.diff(first))
        more = _shared_waits(events, source[ties], target[ties], lag[ties])
    graph, edge_kind, (kinds, met, member, starts) = _with_meetings(
        start, end, (source, first, lag, edge_kind), more, instance
    )
    return JobGraph(
        graph,
        _joined([kind, kinds]),
        _joined([rank, lookup(rank, member, -1)]),
        _joined([instance, met]),
        edge_kind,
        _joined([start, starts]),
        Labels(labels.rows, _joined([named_by, short(lookup(named_by, member, -1))])),
        steps,
        calls if calls is None else np.r_[calls, np.full(len(member), -1)],
        _joined([lane, lookup(lane, member, -1)]),
        max((each.clock_error_ns for each in ranks), default=0),
    )


def _joined(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return columns one after another; a single one that has rows is not copied."""
    filled = [column for column in columns if len(column)]
    return filled[0] if len(filled) == 1 else np.concatenate(columns)


def _shifted(columns: Sequence[Int], counts: Sequence[int]) -> Int:
    """Return positions in the columns of each rank as those in the joined ones; -1 stays."""
    pairs = zip(columns, np.cumsum([0, *counts]), strict=False)
    # The first one's stay as they are.
    return _joined(
        [short(np.where(column >= 0, column + at, -1)) if at else column for column, at in pairs]
    )


def _shared_waits(calls: pd.DataFrame, source: Int, target: Int, lag: Int) -> tuple[Int, Int, Int]:
    """Return waits for the same calls that some ranks or steps show and others hide.

    A wait shows only where it lets work start later; a rank that computes longer than the others
    hides its own, and would not once it is as fast. The same call is the one of that name, by its
    number in the step, where the step has as many of that name. A wait that any rank or step
    contradicts, because there the one began before the other ended, is given to none.

    Args:
        calls: `rank`, `step`, `name`, `kind`, `issued`, `start`, `end` of each event.
        source: events waited for, of the inferred waits.
        target: the event that waits for each.
        lag: of each.

    Returns:
        Source, target and lag of the waits to be added. The lag is the median of those that show,
        and never so long that the recording's replay would change.
    """
    own = ["rank", "step", "name", "kind"]
    by = calls.sort_values("issued", kind="stable").groupby(own, observed=True)
    calls = calls.assign(n=by.cumcount(), calls=by["start"].transform("size"))
    call = calls.groupby(["name", "kind", "n", "calls"], observed=True).ngroup().to_numpy(np.int64)
    where = calls.groupby(["rank", "step"], observed=True).ngroup().to_numpy(np.int64)
    seen = pd.DataFrame({"source": call[source], "target": call[target], "lag": lag})
    seen = seen[where[source] == where[target]]
    pairs = seen.groupby(["source", "target"], as_index=False, observed=True)["lag"].agg(
        ["size", "median"]
    )
    # The call that it most often seems to have waited for.
    pairs = pairs.sort_values("size", kind="stable").drop_duplicates("target", keep="last")
    events = pd.DataFrame({"event": np.arange(len(call)), "call": call, "where": where})
    both = pairs.merge(events, left_on="source", right_on="call")
    both = both.merge(
        events, left_on=["target", "where"], right_on=["call", "where"], suffixes=("", "_target")
    )
    before, after = both["event"].to_numpy(np.int64), both["event_target"].to_numpy(np.int64)
    start, end = calls["start"].to_numpy(np.int64), calls["end"].to_numpy(np.int64)
    over = start[after] - end[before]
    least = (
        pd.Series(over).groupby([both["source"], both["target"]], observed=True).transform("min")
    )
    known = pd.MultiIndex.from_arrays([source, target])
    new = ~pd.MultiIndex.from_arrays([before, after]).isin(known)
    new &= (least >= 0).to_numpy(bool) & (start[before] < start[after])
    lags = np.clip(both["median"].to_numpy(np.int64), 0, np.maximum(over, 0))
    return before[new], after[new], lags[new]


def met_instances(members: pd.DataFrame) -> Int:
    """Return the instance of each member whose start and end depend on other ranks, or -1.

    They are of kinds in which no member ends before another one starts.
    """
    meets = members["kind"].isin([*SYNCHRONISING, *POINT_TO_POINT]).to_numpy(bool)
    known = meets & members["wait_ns"].notna().to_numpy(bool)
    return np.where(known, members["instance_id"].fillna(-1).to_numpy(np.int64), -1)


def whole_instances(instance: Int, start: Int, end: Int) -> Int:
    """Return the instances without those of one member, and those that end before one starts."""
    if not (instance >= 0).any():
        return instance
    last = np.full(instance.max() + 1, -(1 << 62))
    early = np.full(instance.max() + 1, 1 << 62)
    own = np.flatnonzero(instance >= 0)
    np.maximum.at(last, instance[own], start[own])
    np.minimum.at(early, instance[own], end[own])
    count = np.bincount(instance[own], minlength=len(last))
    good = (count > 1) & (early >= last)
    return np.where((instance >= 0) & lookup(good, instance, 0).astype(bool), instance, -1)


def _with_meetings(
    start: Int,
    end: Int,
    edges: tuple[Int, Int, Int, Int],
    more: tuple[Int, Int, Int],
    instance: Int,
) -> tuple[Graph, Int, tuple[Int, ...]]:
    """Return the graph in which members meet, the kinds of its edges, and what instances add.

    These are first their meetings, then the transfers of the members: kind, instance, member and
    start of each.

    Args:
        start: of each event.
        end: of each.
        edges: source, first, lag and kind, in order of targets.
        more: waits that only others show: source, target, lag.
        instance: of each event.
    """
    member = np.flatnonzero(instance >= 0)
    numbers, place = np.unique(instance[member], return_inverse=True)
    place = place.reshape(-1)
    last = np.full(len(numbers), -(1 << 62))
    np.maximum.at(last, place, start[member])
    extra = (
        np.r_[np.full(len(numbers), MEETING, np.int8), np.full(len(member), TRANSFER, np.int8)],
        np.r_[numbers, instance[member]],
        np.r_[np.full(len(numbers), -1), member],
        np.r_[last, last[place]],
    )
    source, first, lag, edge_kind = edges
    durations, base = end - start, start
    if len(member) or len(more[0]):
        target = np.repeat(np.arange(len(start)), np.diff(first))
        joined = tuple(
            np.r_[old, new] for old, new in zip((source, target, lag), more, strict=True)
        )
        parts = Members(member, instance[member], end[member] - last[place])
        durations, base, joined, _ = with_instances(durations, base, joined, parts)
        source, target, lag = joined
        shared = np.full(len(more[0]), SHARED_WAIT, np.int8)
        inner = np.full(len(target) - len(edge_kind) - len(shared), INNER, np.int8)
        rows = np.argsort(target, kind="stable")
        edge_kind = np.r_[edge_kind, shared, inner][rows]
        source, lag = short(source[rows]), lag[rows]
        first = short(np.cumsum(np.bincount(target + 1, minlength=len(durations) + 1)))
    try:
        graph = Graph.by_target(durations, base, (source, first, lag), _joined([start, extra[3]]))
    except CircleError as error:
        where = np.r_[instance, extra[1]][np.array(error.events)]
        names = ", ".join(map(str, np.unique(where[where >= 0])[:8].tolist()))
        msg = f"the ranks wait for one another in a circle, at instances {names}: a wrong match"
        raise CircleError(error.events, msg) from error
    return graph, edge_kind, extra


def _keys(
    ranks: Sequence[RankGraph], instances: Sequence[Int], columns: tuple[Int, Int, Int], name: Int
) -> Int:
    """Return the key that the same call has on several ranks.

    Args:
        ranks: their graphs.
        instances: of the events of each.
        columns: kind, step and rank of all events.
        name: the code of their names.
    """
    kind, step, rank = columns
    # The last instance that its rank had issued before each event, or -1: calls are counted from
    # there, so that ranks whose recordings began at different calls, or one of which has a call
    # more, are compared call by call again after the next collective.
    after = []
    for each, instance in zip(ranks, instances, strict=True):
        own = np.full(len(each.steps), -1)
        begin = len(instance) - len(own)
        own[each.named_by[begin:]] = instance[begin:]
        own = lookup(own, each.named_by, -1)
        order = np.argsort(_issued(each), kind="stable")
        at = np.maximum.accumulate(np.where(own[order] >= 0, np.arange(len(order)), -1))
        last = np.full(len(order), -1)
        last[order] = lookup(own[order], at, -1)
        after.append(last)
    where = ["step", "after", "name", "kind"]
    calls = pd.DataFrame(
        {"rank": rank} | dict(zip(where, (step, np.concatenate(after), name, kind), strict=True))
    )
    calls["n"] = calls.groupby(["rank", *where], observed=True).cumcount()
    key = calls.groupby([*where, "n"], observed=True).ngroup().to_numpy(np.int64)
    return np.where((kind == ROOT) | (name < 0), -1, key)


def _issued(graph: RankGraph) -> Int:
    """Return when each event was launched, on the rank's clock; where not known, when it began."""
    return lookup(issued_of(graph.rows(ISSUED)), graph.named_by, NO_STEP)


def host_gaps(job: JobGraph) -> tuple[Int, Int]:
    """Return the events that the host starts, and the edges that carry the gaps before them.

    They are launches, and collectives of ranks without device; the gap is the time between the end
    of the event that they waited for and their start.
    """
    events = np.flatnonzero((job.kind == LAUNCH) | (job.kind == MEMBER))
    edge = job.binding[events]
    keep = edge >= 0
    return events[keep], edge[keep]


def host_times(job: JobGraph) -> pd.DataFrame:
    """Return how long each rank's host was at work itself: `rank`, `step`, `host_ns`.

    That is the gaps before its launches, and the calls that launch kernels. Neither includes waits:
    a gap begins where the last event before it ended, be it a call or work of the device, and calls
    of copies, which may wait for the device, are left out. So is the time before its first launch,
    for recordings do not begin at one moment.
    """
    events, edges = host_gaps(job)
    follows = job.kind[job.graph.source[edges]] != ROOT
    events, edges = events[follows], edges[follows]
    is_copy = job.labels.fits("category", _COPIES.__contains__)
    calls = np.flatnonzero((job.kind == LAUNCH) & ~is_copy)
    both = np.r_[events, calls]
    step = pd.Series(job.step[both], dtype="Int64")
    took = pd.DataFrame(
        {
            "rank": job.rank[both].astype(np.int64),
            "step": step.mask(step == NO_STEP),
            "host_ns": np.r_[job.graph.lag[edges], job.graph.duration[calls]],
        }
    )
    return (
        took.groupby(["rank", "step"], dropna=False, observed=True)["host_ns"].sum().reset_index()
    )
