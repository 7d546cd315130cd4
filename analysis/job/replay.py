"""Max-plus replay: when all events would start and end, with given durations and lags.

An event starts when the last event that it waits for has ended, `max (end of u + lag)`, and ends
`duration` later. The members of a collective end together: `max over members of start, + x`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.intervals import compiled
from pyprof2.columns import first_rows, lookup, short
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int

    Times = NDArray[Any]

NONE: Final = -1
_SLICE: Final = 1 << 16
_NEVER: Final = -(1 << 62)
"""The lag of an edge that is left out: any other one of its event is later."""


@dataclass(frozen=True)
class Graph:
    """Events and the edges to those that wait for them.

    Attributes:
        duration: of each event.
        base: the start of each event that waits for nothing.
        source, lag: of each edge, sorted by target.
        first: for each event, and one past the last, the position of its first edge.
        order: the events in an order in which no edge goes back.
    """

    duration: Times
    base: Times
    source: Int
    lag: Times
    first: Int
    order: Int

    @classmethod
    def of(
        cls, duration: Times, base: Times, edges: tuple[Int, Int, Times], hint: Times | None = None
    ) -> Graph:
        """Return the graph of these events and edges.

        Args:
            duration: see the class.
            base: see the class.
            edges: source, target, lag.
            hint: times by which the events may be in order already, as recorded.

        Raises:
            UsageError: the events wait for one another in a circle.
        """
        source, target, lag = edges
        if (target[1:] < target[:-1]).any():
            rows = np.argsort(target, kind="stable")
            source, target, lag = source[rows], target[rows], lag[rows]
        first = np.cumsum(np.bincount(target + 1, minlength=len(duration) + 1))
        return cls.by_target(duration, base, (short(source), short(first), lag), hint)

    @classmethod
    def by_target(
        cls, duration: Times, base: Times, edges: tuple[Int, Int, Times], hint: Times | None
    ) -> Graph:
        """Return what `of` does of edges in the order of their targets: source, first, lag."""
        source, first, lag = edges
        order = short(np.argsort(base if hint is None else hint, kind="stable"))
        found = cls(duration, base, source, lag, first, order)
        if hint is None or not found._is_in_order():
            order = short(order_of(len(duration), source, found.target))
        return replace(found, order=order)

    def _is_in_order(self) -> bool:
        place = np.empty_like(self.order)
        place[self.order] = np.arange(len(place), dtype=np.int32)
        # Looked up for all edges at once, these would be as large as the graph.
        for at in range(0, len(place), _SLICE):
            first = self.first[at : at + _SLICE + 1]
            targets = np.repeat(place[at : at + _SLICE], np.diff(first))
            if (place[self.source[first[0] : first[-1]]] >= targets).any():
                return False
        return True

    @property
    def target(self) -> Int:
        """The event that waits, of each edge."""
        return np.repeat(np.arange(len(self.duration), dtype=np.int32), np.diff(self.first))


class Replayed(NamedTuple):
    """Ends of the events, and the edge that the start of each rests on, or -1."""

    end: Times
    binding: Int

    @property
    def last_end(self) -> Any:
        """The latest end; 0 without events."""
        return self.end.max() if len(self.end) else 0


def replay(
    graph: Graph,
    duration: Times | None = None,
    lag: Times | None = None,
    without: Bool | None = None,
    *,
    is_bound: bool = False,
) -> Replayed:
    """Return when the events end.

    Args:
        graph: the events.
        duration: instead of the graph's.
        lag: instead of the graph's.
        without: edges to leave out; an event that would have none left keeps its own.
        is_bound: whether to say on which edges starts rest.
    """
    durations = graph.duration if duration is None else duration
    lags = graph.lag if lag is None else lag
    if without is not None:
        lags = np.where(kept_edges(graph, without), lags, _NEVER)
    kind = np.result_type(durations, graph.base, lags)
    columns = (graph.order, graph.first, graph.source, lags, durations)
    bound = short(np.full(len(graph.order) if is_bound else 0, NONE))
    # A recurrence, in which each start needs the ends before it: it has no form by columns.
    if kind == np.int64:
        ends = graph.base.astype(np.int64)
        if compiled(ends, "replay", bound, *columns, narrow=4):
            return Replayed(ends, bound)
    order, first, sources, lags, durations, end = (c.tolist() for c in (*columns, graph.base))
    binding = [NONE] * len(order)
    for event in order:
        best, edge = end[event], NONE
        for at in range(first[event], first[event + 1]):
            time = end[sources[at]] + lags[at]
            if edge == NONE or time > best:
                best, edge = time, at
        end[event], binding[event] = best + durations[event], edge
    return Replayed(np.array(end, kind), short(np.array(binding[: len(bound)], np.int64)))


def way_back(binding: Int, graph: Graph, last: int) -> Int:
    """Return the last event, the one that its start rests on, and so on."""
    path = short(np.full(len(binding), last))
    if not compiled(path, "way_back", binding, graph.source, narrow=3):
        events = [last][: len(path)]
        while events and (edge := int(binding[events[-1]])) >= 0:
            events.append(int(graph.source[edge]))
        path = np.array(events, np.int64)
    return path[path >= 0]


def kept_edges(graph: Graph, without: Bool) -> Bool:
    """Return which edges are left without some; an event that would have none keeps its own."""
    target = graph.target
    left = np.bincount(target[~without], minlength=len(graph.duration))
    kept: Bool = ~without | (left[target] == 0)
    return kept


def order_of(count: int, source: Int, target: Int) -> Int:
    """Return the events so that no edge goes back.

    Raises:
        UsageError: there is a circle.
    """
    waits = np.bincount(target, minlength=count).tolist()
    rows = np.argsort(source, kind="stable")
    after = target[rows].tolist()
    first = np.searchsorted(source[rows], np.arange(count + 1)).tolist()
    ready = deque(event for event in range(count) if not waits[event])
    order = []
    while ready:
        event = ready.popleft()
        order.append(event)
        for at in range(first[event], first[event + 1]):
            waits[after[at]] -= 1
            if not waits[after[at]]:
                ready.append(after[at])
    if len(order) < count:
        left = [event for event in range(count) if waits[event]]
        raise CircleError(left)
    return np.array(order, np.int64)


class CircleError(UsageError):
    """Events wait for one another in a circle, or for events that do.

    Attributes:
        events: their positions.
    """

    def __init__(self, events: Sequence[int], message: str | None = None) -> None:
        some = ", ".join(map(str, events[:8]))
        text = f"{len(events)} events wait for one another in a circle, among them {some}"
        super().__init__(text if message is None else message)
        self.events = events


def recorded_lags(start: Times, end: Times, source: Int, first: Int) -> Times:
    """Return the lags with which the replay of the recording is the recording.

    The edge of an event whose source ended last carries the rest of the time to its start; the
    others have none, but negative ones where their source ended later than that. Edges are in order
    of their targets, `first` is as in `Graph`.
    """
    lag = np.empty(len(source), np.result_type(start, end))
    if lag.dtype == np.int64 and compiled(
        lag, "recorded_lags", first, source, start, end, narrow=2
    ):
        return lag
    target = np.repeat(np.arange(len(start)), np.diff(first))
    ended = end[source]
    least = np.iinfo(np.int64).min if end.dtype.kind == "i" else -np.inf
    latest = np.full(len(start), least, end.dtype)
    np.maximum.at(latest, target, ended)
    # One is enough where several ended together.
    first = first_rows(np.where(ended == latest[target], target, -1), len(start))
    carries = np.zeros(len(source) + 1, bool)
    carries[first] = True
    over: Times = start[target] - ended
    np.minimum(over, 0, out=over, where=~carries[:-1])
    return over


class Members(NamedTuple):
    """The members of instances as events of a graph.

    Attributes:
        member: the events that are members.
        instance: of each, equal for those of one.
        transfer: how much later than the last start each ends.
    """

    member: Int
    instance: Int
    transfer: Times


def with_instances(
    duration: Times, base: Times, edges: tuple[Int, Int, Times], members: Members
) -> tuple[Times, Times, tuple[Int, Int, Times], Int]:
    """Return events and edges in which the members of an instance end together.

    A member's own event becomes its start, of no duration; all starts of an instance lead to one
    meeting, and this to the transfer of each member, from which the member's followers go on.

    Returns:
        Duration and base of all events, the edges, and for each event the one that is its end.
    """
    count = len(duration)
    if not len(members.member):
        return duration, base, edges, np.arange(count)
    numbers, place = np.unique(members.instance, return_inverse=True)
    meeting = count + place.reshape(-1)
    done = count + len(numbers) + np.arange(len(members.member))
    finish = np.arange(count + len(numbers) + len(done))
    finish[members.member] = done
    source, target, lag = edges
    durations = np.concatenate((duration, np.zeros(len(numbers), duration.dtype), members.transfer))
    durations[members.member] = 0
    none = np.zeros(len(done), lag.dtype)
    joined = (
        np.concatenate((finish[source], members.member, meeting)),
        np.concatenate((target, meeting, done)),
        np.concatenate((lag, none, none)),
    )
    bases = np.concatenate((base, np.zeros(len(numbers) + len(done), base.dtype)))
    return durations, bases, joined, finish


def replay_events(events: pd.DataFrame, edges: pd.DataFrame) -> pd.DataFrame:
    """Return when the events of a table start and end, with a graph that is given.

    Args:
        events: `event` (any key, once each) and `dur_ns`, in any unit, whole or not. Optional:
            `start_ns` as recorded; `instance`, equal for the members of one collective, null for
            others; `transfer_ns`, how long a member takes after the last start (without it the
            duration, less the wait by the recorded starts).
        edges: `before` and `after`, keys of events. Optional `lag_ns`; where the column is missing,
            and starts are recorded, the edge that ended last carries the observed start less its
            end, and all others none; without starts all lags are 0.

    Returns:
        `event`, `start_ns`, `end_ns`, and `after`, the event that the start rests on: of a member
        its own last predecessor. An event without predecessors starts as recorded, else at 0.

    Raises:
        UsageError: a key is unknown or comes twice, or the events wait in a circle.
    """
    keys = pd.Index(events["event"])
    if not keys.is_unique:
        msg = f"event {keys[keys.duplicated()][0]!r} comes twice"
        raise UsageError(msg)
    source, target = (_positions(keys, edges[name]) for name in ("before", "after"))
    rows = np.argsort(target, kind="stable")
    source, target = source[rows], target[rows]
    dur = _numbers(events["dur_ns"])
    has_start = "start_ns" in events
    start = _numbers(events["start_ns"]) if has_start else np.zeros(len(keys), dur.dtype)
    members = _members_of(events, start, dur, has_start=has_start)
    if "lag_ns" in edges:
        lag = _numbers(edges["lag_ns"])[rows]
    elif has_start:
        first = np.cumsum(np.bincount(target + 1, minlength=len(keys) + 1))
        lag = recorded_lags(start, start + dur, source, first)
    else:
        lag = np.zeros(len(source), dur.dtype)
    durations, base, joined, finish = with_instances(dur, start, (source, target, lag), members)
    graph = Graph.of(durations, base, joined)
    found = replay(graph, is_bound=True)
    edge = found.binding[: len(keys)]
    by = lookup(graph.source, edge, NONE)
    starts = np.where(edge < 0, start, lookup(found.end, by, 0) + lookup(graph.lag, edge, 0))
    own = np.arange(len(finish))
    own[finish[: len(keys)]] = np.arange(len(keys))
    names = [None if at < 0 else keys[own[at]] for at in by.tolist()]
    return pd.DataFrame(
        {
            "event": keys,
            "start_ns": starts,
            "end_ns": found.end[finish[: len(keys)]],
            "after": pd.Series(names, dtype=object),
        }
    )


def _positions(keys: pd.Index, wanted: pd.Series) -> Int:
    found = keys.get_indexer(pd.Index(wanted))
    if (found < 0).any():
        msg = (
            f"an edge names event {wanted.iloc[int(np.argmin(found))]!r}, which is not in the table"
        )
        raise UsageError(msg)
    return found.astype(np.int64)


def _numbers(values: pd.Series) -> Times:
    """Return whole numbers as int64, others as floats."""
    found = values.to_numpy()
    return found.astype(np.int64) if found.dtype.kind in "iub" else found.astype(np.float64)


def _members_of(events: pd.DataFrame, start: Times, dur: Times, *, has_start: bool) -> Members:
    known = (
        events["instance"].notna().to_numpy(bool)
        if "instance" in events
        else np.zeros(len(dur), bool)
    )
    rows = np.flatnonzero(known)
    instance = pd.factorize(events["instance"].iloc[rows])[0] if len(rows) else rows
    if "transfer_ns" in events:
        return Members(rows, instance, _numbers(events["transfer_ns"].iloc[rows]))
    transfer = dur[rows]
    if has_start and len(rows):
        last = np.full(instance.max() + 1, start[rows].min(), start.dtype)
        np.maximum.at(last, instance, start[rows])
        transfer = start[rows] + dur[rows] - last[instance]
    return Members(rows, instance, transfer)
