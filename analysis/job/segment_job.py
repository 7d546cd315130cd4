"""A job of many ranks by segments alone: replay, and the gains of changes.

As in `job_graph`, but a rank's work between collectives is one edge. Instances are replayed one
after another, each with all its members at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.job.job_graph import met_instances, whole_instances
from pyprof2.analysis.job.rank_graph import NO_STEP
from pyprof2.analysis.job.replay import CircleError, order_of
from pyprof2.analysis.job.segments import KEYS, MODELS
from pyprof2.analysis.job.what_if import MODEL_ERROR_MAX, Gain
from pyprof2.analysis.time.host_clock import clock_words
from pyprof2.columns import lookup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.analysis.intervals import Int

_NO_PATH: Final = -(1 << 60)


class Nodes(NamedTuple):
    """Members, ordered by instance, then ends of steps, then beginnings of ranks.

    Attributes:
        rank: of each member.
        start, end: as recorded, on one clock; of ends of steps none.
        group: of each member, in the order of replay; those of one group end together.
        meets: whether a member's end depends on its group's last start.
        sinks: rank and step of each end.
    """

    rank: Int
    start: Int
    end: Int
    group: Int
    meets: Int
    sinks: pd.DataFrame
    begins: Int


@dataclass(frozen=True)
class SegmentJob:
    """The segments of a job.

    Attributes:
        nodes: their ends.
        edges: `source`, `target` (nodes), and the keys of segments, in order of `target`.
        lengths: of each edge, by model.
        clock_error_ns: how far the clocks of host and device of any rank are apart.
    """

    nodes: Nodes
    edges: pd.DataFrame
    lengths: Mapping[str, Int]
    clock_error_ns: int

    @cached_property
    def recorded(self) -> Int:
        """The ends of the recording as it is."""
        return self.replay("ns")

    @property
    def begin(self) -> int:
        """Where the first rank begins."""
        return int(self.nodes.begins.min())

    @property
    def window_ns(self) -> int:
        """From the first beginning to the last end."""
        return int(self.recorded.max()) - self.begin

    def replay(self, model: str, lengths: Int | None = None, transfers: float = 1.0) -> Int:
        """Return when the members, the steps and the beginnings end.

        Args:
            model: one of `MODELS`.
            lengths: of the edges, instead of the model's.
            transfers: their factor.
        """
        nodes, length = self.nodes, self.lengths[model] if lengths is None else lengths
        count = len(nodes.start)
        end = np.zeros(count + len(nodes.sinks) + len(nodes.begins), np.int64)
        end[count + len(nodes.sinks) :] = self.begin if model == "unlagged_ns" else nodes.begins
        # The transfer of each member; of one that meets nobody its duration.
        last = np.full(int(nodes.group.max(initial=-1)) + 1, _NO_PATH)
        np.maximum.at(last, nodes.group, nodes.start)
        meets = nodes.meets.astype(bool)
        took = nodes.end - np.where(meets, last[nodes.group], nodes.start)
        took = np.where(meets, np.rint(took * transfers), took).astype(np.int64)
        source, target = (self.edges[name].to_numpy() for name in ("source", "target"))
        of_group = np.searchsorted(nodes.group, np.arange(int(nodes.group.max(initial=-1)) + 2))
        first = np.searchsorted(target, of_group)
        head = np.searchsorted(target, np.arange(count + len(nodes.sinks) + 1))
        # Each instance needs the ends of those before: it has no form by columns.
        for a, b, e, f in zip(of_group, of_group[1:], first, first[1:], strict=False):
            times = end[source[e:f]] + length[e:f]
            start = np.maximum.reduceat(times, head[a:b] - e)
            end[a:b] = (start.max() if nodes.meets[a] else start) + took[a:b]
        rest = head[count]
        times = end[source[rest:]] + length[rest:]
        if len(nodes.sinks):
            end[count : count + len(nodes.sinks)] = np.maximum.reduceat(
                times, head[count:-1] - rest
            )
        return end

    def critical_path(self) -> pd.DataFrame:
        """Return the path that the window's length rests on; its stretches add up to it.

        Returns:
            `rank`, `kind` (`own`: between collectives; `transfer`), `start_ns`, `ns`, `instance`
            (that follows own work, or whose transfer it is; null: the end).
        """
        nodes, count = self.nodes, len(self.nodes.start)
        rows: list[tuple[int, str, int, int, int]] = []
        target = self.edges["target"].to_numpy()
        source, length = self.edges["source"].to_numpy(), self.lengths["ns"]
        node = int(np.argmax(self.recorded)) if len(self.recorded) else count + len(nodes.sinks)
        while node < count + len(nodes.sinks):
            until, instance = int(self.recorded[node]), -1
            if node < count:
                instance = int(nodes.group[node])
                if nodes.meets[node]:  # the member of its instance that started last
                    a, b = np.searchsorted(nodes.group, [instance, instance + 1])
                    node = int(a + np.argmax(nodes.start[a:b]))
                begin = int(nodes.start[node])
                rows.append((int(nodes.rank[node]), "transfer", begin, until - begin, instance))
                until = begin
            first, last = np.searchsorted(target, [node, node + 1])
            edge = first + int(np.argmax(self.recorded[source[first:last]] + length[first:last]))
            node = int(source[edge])
            is_first = node >= count + len(nodes.sinks)
            begin = self.begin if is_first else int(self.recorded[node])
            rank = int(self.edges["rank"].iloc[edge])
            rows.append((rank, "own", begin, until - begin, instance))
        names = ["rank", "kind", "start_ns", "ns", "instance"]
        frame = pd.DataFrame(rows[::-1], columns=names).astype({"instance": "Int64"})
        return frame.assign(instance=frame["instance"].mask(frame["instance"] < 0))

    def changed(self, segments: pd.DataFrame) -> dict[str, Int]:
        """Return the lengths by model, with those of some ranks as other `segments` have them."""
        own = np.flatnonzero(self.edges["rank"].isin(segments["rank"].unique()))
        keys = pd.MultiIndex.from_frame(self.edges.loc[own, list(KEYS)])
        new = segments.set_index(list(KEYS))[list(MODELS)].reindex(keys)
        found = {}
        for name in MODELS:
            found[name] = self.lengths[name].copy()
            found[name][own] = new[name].fillna(_NO_PATH).to_numpy(np.int64)
        return found

    def evaluate(
        self,
        what: str,
        lengths: Mapping[str, Int] | None = None,
        transfers: float = 1.0,
        scatter: int = 0,
    ) -> Gain:
        """Return the gain of a change; see `what_if.evaluate`.

        Args:
            what: the change, in words.
            lengths: of the segments with it, by model; None: as they are.
            transfers: the factor of the transfers.
            scatter: see `what_if.scatter`.
        """
        new = self.lengths if lengths is None else lengths
        whole, without, edges_only = (
            int(self.replay(name, new[name], transfers).max()) for name in MODELS
        )
        base, window = int(self.recorded.max()), self.window_ns
        without_base = int(self.replay("unwaited_ns").max())
        error = abs(without_base - base) / max(1, window)
        bound = max(0, base - edges_only)
        if self.clock_error_ns:
            words = clock_words(self.clock_error_ns)
            return Gain(what, None, None, None, bound, window, error, words)
        if error > MODEL_ERROR_MAX:
            return Gain(what, None, None, None, bound, window, error)
        gain, other = base - whole, without_base - without
        gains = [gain, other]
        hi = max(gain, min(max(gains) + scatter, bound))
        lo = min(gain, max(min(gains) - scatter, min(0, *gains)))
        return Gain(what, gain, lo, hi, bound, window, error)

    def step_gains(self, lengths: Mapping[str, Int]) -> pd.DataFrame:
        """Return the gain of a change in each step; see `what_if.step_gains`."""
        recorded, new, base, other = (
            self._step_lengths(self.replay(name, of[name]))
            for name, of in (
                ("ns", self.lengths), ("ns", lengths),
                ("unwaited_ns", self.lengths), ("unwaited_ns", lengths),
            )
        )  # fmt: skip
        gain = recorded - new
        frame = pd.DataFrame(
            {"step_ns": recorded, "gain_ns": gain, "lo_ns": np.minimum(gain, base - other)}
        ).reset_index()
        has_steps = frame["step"] > NO_STEP
        return frame[has_steps] if has_steps.any() else frame.assign(step=None)

    def _step_lengths(self, end: Int) -> pd.Series:
        nodes = self.nodes
        count = len(nodes.start)
        last = pd.Series(end[count : count + len(nodes.sinks)]).groupby(
            nodes.sinks["step"].to_numpy(), observed=True
        )
        until = last.max().rename_axis("step")
        # Work in no step counts only where there are no steps.
        until = until[until.index > NO_STEP] if (until.index > NO_STEP).any() else until
        return until.cummax().diff().fillna(until.iloc[0] - self.begin).astype("int64")


def segment_job(segments: pd.DataFrame, members: pd.DataFrame) -> SegmentJob:
    """Return the job of all ranks' segments.

    Args:
        segments: `rank`, `source_id`, `target_id`, `step`, `begin_ns` (on one clock), `MODELS`.
        members: of all ranks: `rank`, `collective_id`, `aligned_ns`, `dur_ns`, `instance_id`,
            `kind`, `wait_ns`.

    Raises:
        UsageError: collectives wait for one another in a circle.
    """
    place = _MemberRows.of(members, segments)
    rows = _ordered(members, place.inner(segments))
    count, node = len(rows), np.empty(len(rows), np.int64)
    node[rows["_row"].to_numpy(np.int64)] = np.arange(count)
    sinks = segments.loc[segments["target_id"] < 0, ["rank", "step"]].drop_duplicates()
    begins = segments.groupby("rank", observed=True)["begin_ns"].first()
    first = count + len(sinks)
    source = place.nodes(segments, "source_id", node)
    source = np.where(
        source < 0, first + begins.index.get_indexer(pd.Index(segments["rank"])), source
    )
    target = place.nodes(segments, "target_id", node)
    ends = target < 0
    keys = pd.MultiIndex.from_frame(sinks)
    own = pd.MultiIndex.from_frame(segments.loc[ends, ["rank", "step"]])
    target[ends] = count + keys.get_indexer(own)
    order = np.argsort(target, kind="stable")
    edges = segments[list(KEYS)].assign(source=source, target=target).iloc[order]
    edges = edges.reset_index(drop=True)
    start = rows["aligned_ns"].to_numpy(np.int64)
    end = start + rows["dur_ns"].to_numpy(np.int64)
    nodes = Nodes(
        rows["rank"].to_numpy(np.int64), start, end, rows["_group"].to_numpy(np.int64),
        rows["_meets"].to_numpy(np.int64), sinks.reset_index(drop=True),
        begins.to_numpy(np.int64),
    )  # fmt: skip
    lengths = {name: segments[name].fillna(_NO_PATH).to_numpy(np.int64)[order] for name in MODELS}
    lengths["ns"] = _exact(nodes, edges, lengths["ns"])
    error_ns = int(segments["clock_error_ns"].max()) if len(segments) else 0
    return SegmentJob(nodes, edges, lengths, error_ns)


class _MemberRows(NamedTuple):
    """Where the members of each rank are: `row[offset of the rank + collective_id]`."""

    ranks: pd.Index
    offset: Int
    row: Int

    @classmethod
    def of(cls, members: pd.DataFrame, segments: pd.DataFrame) -> _MemberRows:
        """Return those of members, by rows."""
        ranks = pd.Index(np.union1d(members["rank"].unique(), segments["rank"].unique()))
        at = ranks.get_indexer(pd.Index(members["rank"]))
        number = members["collective_id"].to_numpy(np.int64)
        size = np.zeros(len(ranks) + 1, np.int64)
        np.maximum.at(size, at + 1, number + 1)
        offset = np.cumsum(size)
        row = np.full(int(offset[-1]), -1)
        row[offset[at] + number] = np.arange(len(members))
        return cls(ranks, offset, row)

    def rows(self, segments: pd.DataFrame, end: str) -> Int:
        """Return the rows of the members at one end of segments; -1: it is none."""
        number = segments[end].to_numpy(np.int64)
        at = self.offset[self.ranks.get_indexer(pd.Index(segments["rank"]))] + number
        found: Int = np.where(number >= 0, self.row[np.where(number >= 0, at, 0)], -1)
        return found

    def nodes(self, segments: pd.DataFrame, end: str, node: Int) -> Int:
        """Return the nodes of the members at one end of segments; -1: it is none."""
        return lookup(node, self.rows(segments, end), -1)

    def inner(self, segments: pd.DataFrame) -> tuple[Int, Int]:
        """Return the rows of members that are before and after those segments between them."""
        before, after = (self.rows(segments, name) for name in ("source_id", "target_id"))
        both = (before >= 0) & (after >= 0)
        return before[both], after[both]


def _ordered(members: pd.DataFrame, inner: tuple[Int, Int]) -> pd.DataFrame:
    """Return the members group by group, in an order in which no segment goes back."""
    start = members["aligned_ns"].to_numpy(np.int64)
    end = start + members["dur_ns"].to_numpy(np.int64)
    instance = whole_instances(met_instances(members), start, end)
    alone = int(instance.max(initial=-1)) + 1 + np.arange(len(members))
    _, group = np.unique(np.where(instance >= 0, instance, alone), return_inverse=True)
    group = group.reshape(-1)
    last = np.full(int(group.max(initial=-1)) + 1, _NO_PATH)
    np.maximum.at(last, group, start)
    place = np.empty(len(last), np.int64)
    place[np.argsort(last, kind="stable")] = np.arange(len(last))
    rows = members[["rank", "instance_id", "aligned_ns", "dur_ns"]].assign(
        _group=_in_order(place[group], inner, members["instance_id"]),
        _meets=(instance >= 0).astype(np.int64),
        _row=np.arange(len(members)),
    )
    return rows.sort_values(["_group", "rank"], kind="stable").reset_index(drop=True)


def _in_order(group: Int, inner: tuple[Int, Int], instance: pd.Series) -> Int:
    """Return the groups' numbers so that no segment goes back; by time they mostly are."""
    before, after = (group[rows] for rows in inner)
    if (before < after).all():
        return group
    pairs = np.unique(np.stack((before, after)), axis=1)
    try:
        order = order_of(int(group.max()) + 1, pairs[0], pairs[1])
    except CircleError as error:
        numbers = instance[np.isin(group, error.events)].dropna().unique()
        names = ", ".join(map(str, numbers[:8].tolist()))
        msg = f"the ranks wait for one another in a circle, at instances {names}: a wrong match"
        raise CircleError(error.events, msg) from error
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    found: Int = place[group]
    return found


def _exact(nodes: Nodes, edges: pd.DataFrame, length: Int) -> Int:
    """Return lengths with which the replay of the recording is the recording.

    Drift of a clock makes a segment some ns longer or shorter than on the rank's own clock.
    """
    count = len(nodes.start)
    source, target = (edges[name].to_numpy() for name in ("source", "target"))
    ends = np.r_[nodes.end, np.zeros(len(nodes.sinks), np.int64), nodes.begins]
    inner = target < count
    room = nodes.start[np.where(inner, target, 0)] - ends[source]
    fitting = np.where(inner, np.minimum(length, room), length)
    slack = np.where(inner, room - fitting, np.iinfo(np.int64).max)
    least = np.full(count + len(nodes.sinks), np.iinfo(np.int64).max)
    np.minimum.at(least, target, slack)
    binds = inner & (slack == least[target])
    found: Int = np.where(binds, room, fitting)
    return found
