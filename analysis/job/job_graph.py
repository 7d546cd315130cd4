"""The events of all ranks in one graph, in which collectives hold the ranks together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.job.collective_rows import POINT_TO_POINT, SYNCHRONISING
from pyprof2.analysis.job.rank_graph import (
    AWAITED,
    COMM_WAIT,
    INFERRED,
    LAUNCH,
    MEMBER,
    NO_STEP,
    ROOT,
    SHARED_WAIT,
    WAIT,
    RankGraph,
)
from pyprof2.analysis.job.replay import (
    CircleError,
    Graph,
    Members,
    Replayed,
    recorded_lags,
    replay,
    with_instances,
)
from pyprof2.columns import combine_keys, lookup
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.intervals import Bool, Int

MEETING, TRANSFER = 5, 6
"""Kinds of events beside those of a rank: where an instance's members meet, and the transfers."""

INNER: Final = -1
"""The kind of the edges between a member, its meeting and its transfer."""
_COPIES: Final = ("memcpy", "memset")
_LABELS: Final = ("kernel_short", "category", "op", "layer", "source")


class Labels(NamedTuple):
    """The names of events: codes into texts, by column."""

    codes: dict[str, Int]
    texts: dict[str, list[str | None]]

    def text(self, column: str, event: int) -> str | None:
        """Return the text of an event; None where it has none."""
        code = int(self.codes[column][event])
        return None if code < 0 else self.texts[column][code]


@dataclass(frozen=True)
class JobGraph:
    """All events of a job.

    Attributes:
        graph: they and the edges between them, in its order.
        kind, rank, step: of each event.
        instance: of members, meetings and transfers; -1 for others.
        edge_kind: of each edge of the graph.
        start, end: as recorded, of each event.
        labels: of each event.
        key: equal for the same call on several ranks; -1 for none.
        lane: equal for events that run one after another: of one stream, or one thread.
    """

    graph: Graph
    kind: Int
    rank: Int
    step: Int
    instance: Int
    edge_kind: Int
    start: Int
    end: Int
    labels: Labels
    key: Int
    lane: Int

    @cached_property
    def recorded(self) -> Replayed:
        """The replay of the recording as it is."""
        return replay(self.graph)

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
        base = int(self.recorded.last_end)
        return abs(int(replay(self.graph, without=edges).last_end) - base) / max(1, self.window_ns)

    @cached_property
    def begin(self) -> int:
        """Where the window begins: the root of all ranks."""
        roots = self.start[self.kind == ROOT]
        return int(roots.min()) if len(roots) else 0

    @property
    def window_ns(self) -> int:
        """From the roots to the last end."""
        return int(self.recorded.last_end) - self.begin

    @cached_property
    def carried(self) -> Int:
        """The edge of each event whose source ended last as recorded, or -1."""
        return self.recorded.binding

    def is_own(self) -> Bool:
        """Return which events are work of a rank's own: no root, meeting or transfer."""
        own: Bool = (self.kind != ROOT) & (self.kind < MEETING)
        return own


def job_graph(ranks: Sequence[RankGraph], members: Mapping[int, pd.DataFrame]) -> JobGraph:
    """Return the graph of several ranks, whose roots are at one time.

    Args:
        ranks: the graphs of each.
        members: of each rank, in the order of its graph's `member`: `instance_id`, `kind`,
            `match_note`, `members_recorded`, `wait_ns`, `dur_ns`.

    Raises:
        UsageError: collectives wait for one another in a circle; it names their instances.
    """
    offsets = np.cumsum([0, *(len(each.start) for each in ranks)])
    start, end, kind, step = (
        np.concatenate([getattr(each, name) for each in ranks])
        for name in ("start", "end", "kind", "step")
    )
    source, target = (
        np.concatenate([getattr(e.edges, name) + at for e, at in zip(ranks, offsets, strict=False)])
        for name in ("source", "target")
    )
    edge_kind = np.concatenate([each.edges.kind for each in ranks])
    rank = np.repeat([each.rank for each in ranks], np.diff(offsets))
    # The instance of each event whose start and end depend on other ranks, or -1.
    instances = [lookup(met_instances(members[each.rank]), each.member, -1) for each in ranks]
    instance = np.concatenate(instances)
    instance = whole_instances(instance, start, end)
    lag = recorded_lags(start, end, source, target)
    lane = np.concatenate([each.lane for each in ranks])
    lane = combine_keys(rank, lane)
    labels, key = _labels(ranks, instances, kind, step, rank)
    if not (edge_kind == AWAITED).any():
        calls = pd.DataFrame(
            {"rank": rank, "step": step, "name": labels.codes["kernel_short"], "kind": kind,
             "issued": np.concatenate([_issued(each) for each in ranks]),
             "start": start, "end": end}
        )  # fmt: skip
        ties = edge_kind == COMM_WAIT
        more_edges = _shared_waits(calls, source[ties], target[ties], lag[ties])
        source, target, lag = (
            np.r_[old, new] for old, new in zip((source, target, lag), more_edges, strict=True)
        )
        edge_kind = np.r_[edge_kind, np.full(len(more_edges[0]), SHARED_WAIT)]
    graph, extra = _joined(start, end, (source, target, lag), instance)
    more = len(graph.duration) - len(start)
    inner = np.full(len(graph.source) - len(source), INNER)
    order = np.argsort(np.r_[target, extra.targets], kind="stable")
    pad = np.full(more, -1)
    return JobGraph(
        graph,
        np.r_[kind, extra.kinds],
        np.r_[rank, lookup(rank, extra.member, -1)],
        np.r_[step, lookup(step, extra.member, NO_STEP)],
        np.r_[instance, extra.instances],
        np.r_[edge_kind, inner][order],
        np.r_[start, extra.starts],
        np.r_[end, extra.ends],
        Labels(
            {n: np.r_[c, lookup(c, extra.member, -1)] for n, c in labels.codes.items()},
            labels.texts,
        ),
        np.r_[key, pad],
        np.r_[lane, lookup(lane, extra.member, -1)],
    )  # fmt: skip


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
    if not len(source):
        return source, target, lag
    own = ["rank", "step", "name", "kind"]
    by = calls.sort_values("issued", kind="stable").groupby(own)
    calls = calls.assign(n=by.cumcount(), calls=by["start"].transform("size"))
    call = calls.groupby(["name", "kind", "n", "calls"]).ngroup().to_numpy(np.int64)
    where = calls.groupby(["rank", "step"]).ngroup().to_numpy(np.int64)
    seen = pd.DataFrame({"source": call[source], "target": call[target], "lag": lag})
    seen = seen[where[source] == where[target]]
    pairs = seen.groupby(["source", "target"], as_index=False)["lag"].agg(["size", "median"])
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
    least = pd.Series(over).groupby([both["source"], both["target"]]).transform("min")
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


class _Meetings(NamedTuple):
    """The events that instances add: first their meetings, then the transfers of the members."""

    kinds: Int
    instances: Int
    member: Int
    starts: Int
    ends: Int
    targets: Int


def _joined(
    start: Int, end: Int, edges: tuple[Int, Int, Int], instance: Int
) -> tuple[Graph, _Meetings]:
    member = np.flatnonzero(instance >= 0)
    numbers, place = np.unique(instance[member], return_inverse=True)
    place = place.reshape(-1)
    last = np.full(len(numbers), -(1 << 62))
    np.maximum.at(last, place, start[member])
    transfer = end[member] - last[place]
    parts = Members(member, instance[member], transfer)
    durations, base, joined, _ = with_instances(end - start, start, edges, parts)
    extra = _Meetings(
        np.r_[np.full(len(numbers), MEETING), np.full(len(member), TRANSFER)],
        np.r_[numbers, instance[member]],
        np.r_[np.full(len(numbers), -1), member],
        np.r_[last, last[place]], np.r_[last, end[member]],
        joined[1][len(edges[1]):],
    )  # fmt: skip
    hint = np.r_[start, extra.starts]
    try:
        graph = Graph.of(durations, base, joined, hint)
    except CircleError as error:
        where = np.r_[instance, extra.instances][np.array(error.events)]
        names = ", ".join(map(str, np.unique(where[where >= 0])[:8].tolist()))
        msg = f"the ranks wait for one another in a circle, at instances {names}: a wrong match"
        raise CircleError(error.events, msg) from error
    return graph, extra


def _labels(
    ranks: Sequence[RankGraph], instances: Sequence[Int], kind: Int, step: Int, rank: Int
) -> tuple[Labels, Int]:
    """Return the names of events, and the key that the same call has on several ranks."""
    frames = []
    for each in ranks:
        if each.activities is None:
            frame = pd.DataFrame({n: [None] * len(each.start) for n in _LABELS}, dtype=object)
            named = pd.Series("collective", frame.index, dtype=object)
            frame["kernel_short"] = named.where(each.kind == MEMBER, None)
        else:
            first = len(each.start) - each.activities.num_rows
            rows = each.activities.select(list(_LABELS)).to_pandas().astype(object)
            at = each.named_by - first
            frame = rows.reindex(at).reset_index(drop=True)
        frames.append(frame)
    frame = pd.concat(frames, ignore_index=True)
    codes, texts = {}, {}
    for name in _LABELS:
        code, words = pd.factorize(frame[name])
        codes[name], texts[name] = code.astype(np.int64), list(words)
    # The last instance that its rank had issued before each event, or -1: calls are counted from
    # there, so that ranks whose recordings began at different calls, or one of which has a call
    # more, are compared call by call again after the next collective.
    after = []
    for each, instance in zip(ranks, instances, strict=True):
        own, order = lookup(instance, each.named_by, -1), np.argsort(_issued(each), kind="stable")
        at = np.maximum.accumulate(np.where(own[order] >= 0, np.arange(len(order)), -1))
        last = np.full(len(order), -1)
        last[order] = lookup(own[order], at, -1)
        after.append(last)
    where = ["step", "after", "name", "kind"]
    columns = (step, np.concatenate(after), codes["kernel_short"], kind)
    calls = pd.DataFrame({"rank": rank} | dict(zip(where, columns, strict=True)))
    calls["n"] = calls.groupby(["rank", *where]).cumcount()
    key = calls.groupby([*where, "n"]).ngroup().to_numpy(np.int64)
    return Labels(codes, texts), np.where((kind == ROOT) | (codes["kernel_short"] < 0), -1, key)


def _issued(graph: RankGraph) -> Int:
    """Return when each event was launched, on the rank's clock; where not known, when it began."""
    if graph.activities is None:
        return graph.start
    first = len(graph.start) - graph.activities.num_rows
    launch = int_column(graph.activities, "launch_ns", NO_STEP)
    launch = np.where(launch == NO_STEP, int_column(graph.activities, "start_ns", 0), launch)
    return lookup(launch, np.maximum(graph.named_by - first, -1), NO_STEP)


def host_gaps(job: JobGraph) -> tuple[Int, Int]:
    """Return the events that the host starts, and the edges that carry the gaps before them.

    They are launches, and collectives of ranks without device; the gap is the time between the end
    of the event that they waited for and their start.
    """
    events = np.flatnonzero((job.kind == LAUNCH) | (job.kind == MEMBER))
    edge = job.carried[events]
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
    is_copy = np.array([*(word in _COPIES for word in job.labels.texts["category"]), False])
    calls = np.flatnonzero((job.kind == LAUNCH) & ~is_copy[job.labels.codes["category"]])
    both = np.r_[events, calls]
    step = pd.Series(job.step[both], dtype="Int64")
    took = pd.DataFrame(
        {
            "rank": job.rank[both],
            "step": step.mask(step == NO_STEP),
            "host_ns": np.r_[job.graph.lag[edges], job.graph.duration[calls]],
        }
    )
    return took.groupby(["rank", "step"], dropna=False)["host_ns"].sum().reset_index()
