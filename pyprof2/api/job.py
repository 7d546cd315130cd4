"""The Python API of many ranks: what all ranks of a run together say."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.job import critical_path, slow_ranks, waits, what_if
from pyprof2.analysis.job.clocks import clock_frame
from pyprof2.analysis.job.job_graph import JobGraph, host_times, job_graph
from pyprof2.analysis.job.late_hosts import INPUT as HOST_WORK
from pyprof2.analysis.job.late_hosts import OPS, blamed_work, host_blame, host_work, stretches
from pyprof2.analysis.job.rank_graph import RankGraph, rank_graph
from pyprof2.analysis.job.slow_ranks import (
    BUSY,
    ON_HOST,
    OWN,
    VAGUE,
    SlowRank,
    WorstPlace,
    ranks_made_to_wait,
    step_words,
    worst_place,
)
from pyprof2.analysis.job.what_if import links_as_others
from pyprof2.api.displays import Displayed
from pyprof2.api.run_tables import kept
from pyprof2.columns import as_pandas
from pyprof2.errors import UsageError
from pyprof2.pipeline.many_ranks import (
    LATE,
    MANY_RANKS,
    ManyRanks,
    parts_of_rank,
    reduce_store,
    with_kernels,
)
from pyprof2.recording import int_column
from pyprof2.result_tables import PARTS
from pyprof2.store.folder import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.job.reduce import Reduced
    from pyprof2.api.run_tables import RunTables

_OF_STRAGGLERS: Final = (
    "rank", "verdict", "score", "excess_pct", "z", "gain_ns", "lo_ns", "hi_ns", "gain_pct",
    "together",
)  # fmt: skip
MOST_REPLAYED: Final = 300_000
"""Kernels and copies of all ranks that advice and reports replay at most."""
_MOST_AT_TIMES: Final = 4
"""So many ranks that are slow in few steps are replayed without."""
_MOST_TOGETHER: Final = 8
"""So many ranks that stand out are replayed together."""
_ASKED_FOR: Final = 2
"""So many times as many are put into one graph where that is what is asked for."""
_TOO_MANY: Final = (
    "{} ranks are too many for one graph of all their work: --by straggler, or whatif with --rank "
    "or --transfers"
)


@dataclass
class JobOfRanks(Displayed):
    """Results over all ranks of a run together.

    Attributes:
        run: the tables of the run.
        one_clock: whether the user says that its ranks share a clock.
    """

    run: RunTables
    one_clock: bool = False
    _gains: dict[str, what_if.Gain] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def reduced(self) -> Reduced:
        """Members, clocks, and whether there is one clock."""
        return reduce_store(self.run.path, one_clock=self.one_clock)

    @property
    def members(self) -> pd.DataFrame:
        """The members of all ranks, matched, with wait and transfer."""
        return self.reduced.members

    @cached_property
    def clock_frame(self) -> pd.DataFrame:
        """How the ranks' clocks differ, as table `clocks`."""
        return clock_frame(self.reduced.clocks)

    @cached_property
    def bubbles(self) -> pd.DataFrame:
        """Time in which each rank's devices neither computed nor communicated, by step."""
        return slow_ranks.bubbles(self.parts)

    @cached_property
    def graph(self) -> JobGraph:
        """All events of all ranks, and what each waits for.

        Raises:
            UsageError: there are too many, or they are of several jobs.
        """
        self._refuse()
        if self.is_large and self._activities > _ASKED_FOR * MOST_REPLAYED:
            raise UsageError(_TOO_MANY.format(len(self._numbers)))
        found = {rank: self._rank_graph(rank) for rank in self._numbers}
        graphs = [graph for graph, _ in found.values()]
        first = min((int(graph.start[0]) for graph in graphs), default=0)
        for graph in graphs:  # their roots are at one time
            graph.start[0] = graph.end[0] = first
        return job_graph(graphs, {rank: members for rank, (_, members) in found.items()})

    @property
    def not_one_job(self) -> str | None:
        """Why nothing is said of all ranks together: they are of several jobs; else None."""
        return self.reduced.not_one_job

    def _refuse(self) -> None:
        if self.not_one_job is not None:
            raise UsageError(self.not_one_job)

    @property
    def is_replayed(self) -> bool:
        """Whether there is little enough work, of one job, that advice and reports replay it."""
        return self.not_one_job is None and self._activities <= MOST_REPLAYED

    @property
    def _activities(self) -> int:
        summary = self.run.summary
        return int(summary["kernel_count"] + summary["copy_count"])

    @property
    def _numbers(self) -> list[int]:
        return [each.rank for each in self.run.ranks]

    def _members_of(self, rank: int) -> pd.DataFrame:
        found = self.members[self.members["rank"] == rank]
        (tables,) = self.run.of(rank)
        rows = found.sort_values("start_ns", kind="stable").reset_index(drop=True)
        return with_kernels(rows, tables.read("collectives", ("collective_id", "kernel_id")))

    def _rank_graph(self, rank: int) -> tuple[RankGraph, pd.DataFrame]:
        (tables,), members = self.run.of(rank), self._members_of(rank)
        return rank_graph(tables.parts, members, rank, self.reduced.align(rank)), members

    @cached_property
    def roles(self) -> dict[int, Any]:
        """The role of each rank: ranks are compared with those of the same one."""
        found = slow_ranks.roles_of(self.members)
        return {rank: found.get(rank) for rank in self._numbers}

    @cached_property
    def parts(self) -> pd.DataFrame:
        """The window of each step of each device, in parts by what it did, which add up to it.

        See `pyprof2.analysis.job.rank_parts.five_parts`; without steps one window for all.
        """
        if self.is_large:
            return as_pandas(read_table(self.run.path, "parts"), PARTS.never_null)
        frames = [parts_of_rank(each, self._members_of(each.rank)) for each in self.run.ranks]
        return pd.concat(frames, ignore_index=True)

    @cached_property
    def has_no_work(self) -> bool:
        """Whether no device did anything, so that only hosts can be compared."""
        return not self._activities

    @cached_property
    def is_large(self) -> bool:
        """Whether it has too many ranks for one graph: then segments between collectives do."""
        return len(self._numbers) >= MANY_RANKS and not self.is_replayed

    @cached_property
    def many(self) -> ManyRanks:
        """The job by its segments between collectives."""
        self._refuse()
        return ManyRanks(self.run.path, self.reduced, self.roles, self._rank_graph)

    @cached_property
    def times(self) -> pd.DataFrame:
        """For each rank and step how long its devices computed, its host was late, and it was."""
        by = self.parts.astype({"step": "Int64"}).groupby(
            ["rank", "step"], dropna=False, observed=True
        )
        sums = by[["compute_ns", "host_ns"]].sum().assign(window_ns=by["window_ns"].max())
        return sums.reset_index().rename(columns={"compute_ns": "busy_ns"})

    @cached_property
    def _usual_times(self) -> pd.DataFrame:
        """The rows of `times` that means are made of: without steps that a rank begins slowly."""
        slow = {each.step for each in self.run.slow_starts}
        return self.times[~self.times["step"].isin(slow).fillna(value=False).astype(bool)]

    @cached_property
    def _late_hosts(self) -> pd.DataFrame:
        """The idle time that late hosts are to blame for."""
        names = ["rank", "step", "cause", "op", "source", "time_ns"]
        parts = [each.read("idle", names) for each in self.run.ranks]
        idle = pa.concat_tables(parts).unify_dictionaries()
        late = idle.filter(pc.is_in(idle["cause"], pa.array(sorted(LATE))))
        frame: pd.DataFrame = late.to_pandas()
        return frame

    @cached_property
    def scores(self) -> pd.DataFrame:
        """How far each rank's own times are from those of its role; `slow_ranks.scores`."""
        if not self.times.empty:
            return slow_ranks.scores(self._usual_times, self.roles)
        if not self.is_matched or not self.is_replayed:
            return pd.DataFrame(columns=slow_ranks.COLUMNS)
        found = slow_ranks.scores(self._host_times.assign(busy_ns=0), self.roles)
        return found[found["score"] != BUSY].assign(score=OWN).reset_index(drop=True)

    @property
    def is_matched(self) -> bool:
        """Whether any collective ties ranks together."""
        return bool(self.members["instance_id"].notna().any())

    @cached_property
    def standing_out(self) -> pd.DataFrame:
        """The scores by which ranks stand out; what they cost is another question."""
        found = slow_ranks.standing_out(self.scores)
        if found.empty:
            return found
        return found[[self.is_much(ns) for ns in found["excess_ns"]]]

    def is_much(self, excess_ns: float) -> bool:
        """Return whether a rank that takes so much longer in a step may be called slow."""
        return excess_ns >= max(slow_ranks.LEAST_NS, slow_ranks.LEAST_SHARE * self._step_ns)

    @cached_property
    def _step_ns(self) -> float:
        if len(self._usual_times):
            return float(self._usual_times["window_ns"].mean())
        return self.window_ns / max(1, self.members["step"].nunique())

    @cached_property
    def world_size(self) -> int:
        """How many ranks the job has; 0: not recorded."""
        sizes = read_table(self.run.path, "trace", ("world_size",))["world_size"]
        return int(pc.max(sizes).as_py() or 0)

    @cached_property
    def slow_ranks(self) -> list[SlowRank]:
        """The ranks that stand out by their own times, each with what it costs, and where.

        One whose device waits longer for its host, but whose host is no slower than others' and
        that costs nothing, only got behind once: it is not among them. Without a matched
        collective it is not known whom others wait for, and there is none.
        """
        if not self.is_matched or self.not_one_job is not None:
            return []
        rows = self.standing_out
        ranks = sorted(rows["rank"].unique().tolist())
        slow = {rank: self._slow(rank, rows[rows["rank"] == rank]) for rank in ranks}
        known = {r for r, each in slow.items() if each and each.verdict != slow_ranks.HIDDEN}
        has_steps = len(self.times) and self.times["step"].notna().all()
        at_times = slow_ranks.slow_at_times(self._step_scores) if has_steps else []
        for rank in [rank for rank in at_times if rank not in known][:_MOST_AT_TIMES]:
            slow[rank] = self._slow_once(rank) or slow.get(rank)
        return self._together([each for _, each in sorted(slow.items()) if each is not None])

    def _together(self, found: list[SlowRank]) -> list[SlowRank]:
        """Return slow ranks, with what those cost together of which each hides the others.

        A rank is one of them if without it the gain of the others is less, by 1 % of a step.
        """
        known = [slow for slow in found if slow.gain.gain_ns is not None]
        known.sort(key=lambda slow: -slow.excess_ns)
        late = sorted(slow.rank for slow in known[:_MOST_TOGETHER])
        if len(late) < 2:
            return found
        gain, steps = self._without(*late)
        verdicts = {}
        for rank in late:
            rest = self._without(*(each for each in late if each != rank))[1]
            own = steps.assign(lo_ns=steps["lo_ns"] - rest["lo_ns"])
            verdicts[rank] = slow_ranks.verdict(self._only_own(rank, own))
        costly = [rank for rank, verdict in verdicts.items() if verdict != slow_ranks.HIDDEN]
        if len(costly) < len(late):
            gain, steps = self._without(*costly)
        if len(costly) < 2 or gain.gain_ns is None:
            return found
        verdict = slow_ranks.verdict(steps)
        return [
            each._replace(gain=gain, steps=steps, verdict=verdict, together=tuple(costly))
            if each.rank in costly
            else each
            for each in found
        ]

    @cached_property
    def _step_scores(self) -> pd.DataFrame:
        times = self.times
        if self.is_replayed:
            # Idle time after a call that waited counts as its, for as long as that took; a host's
            # own time does not.
            own = self._host_times.astype({"step": "Int64"})
            times = times.drop(columns="host_ns").merge(own, how="left", on=["rank", "step"])
        return slow_ranks.step_scores(times.fillna({"host_ns": 0}), self.roles)

    def _only_own(self, rank: int, steps: pd.DataFrame) -> pd.DataFrame:
        """Return gains of steps, with whether the rank stands out in each by its own times."""
        if self.times.empty or steps["step"].isna().any():
            return steps
        own = self._step_scores[self._step_scores["rank"] == rank]
        slow = own.loc[(own["z"] > slow_ranks.Z_MIN) & (own["share"] > slow_ranks.GAIN_MIN), "step"]
        return steps.assign(stands_out=steps["step"].isin(slow.dropna()))

    def _slow_once(self, rank: int) -> SlowRank | None:
        """Return a rank that is slow in few steps with what these cost; None where nothing."""
        gain, steps = self._without(rank)
        if gain.gain_ns is None:
            return None
        steps = self._only_own(rank, steps)
        costs = slow_ranks.costly(steps)
        verdict = slow_ranks.verdict(steps)
        if verdict == slow_ranks.HIDDEN:
            return None
        when = steps.loc[costs, "step"].astype(int).tolist()
        own = self._step_scores[self._step_scores["rank"] == rank]
        own = own[own["step"].isin(when)]
        by = own.groupby("score", observed=True)[["excess_ns", "middle_ns"]].sum()
        score = str(by["excess_ns"].idxmax())
        excess, middle = (float(by[name].to_dict()[score]) for name in ("excess_ns", "middle_ns"))
        same = [r for r, role in self.roles.items() if r != rank and role == self.roles[rank]]
        if len(same) == 1:  # the median is half way between the two
            excess, middle = 2 * excess, middle - excess
        return SlowRank(
            rank, score, 100 * excess / middle if middle > 0 else float("nan"),
            float(own["z"].max()), len(same), verdict, gain, steps, self._place_of(rank),
            ranks_made_to_wait(self.members, rank), float(excess) / len(when),
            same[0] if len(same) == 1 else None, f" in {step_words(when)}",
        )  # fmt: skip

    def _slow(self, rank: int, own: pd.DataFrame) -> SlowRank | None:
        gain, steps = self._without(rank)
        verdict = None if gain.gain_ns is None else slow_ranks.verdict(steps)
        if verdict not in (None, slow_ranks.STRAGGLER):
            steps = self._only_own(rank, steps)
            verdict = slow_ranks.verdict(steps)
        if verdict in (None, slow_ranks.HIDDEN) and not self._host_is_slow(rank):
            own = own[own["score"] == BUSY]
        if own.empty:
            return None
        worst = own.iloc[int(own["z"].to_numpy("float64").argmax())]
        return SlowRank(
            rank, str(worst["score"]), float(worst["excess_pct"]), float(worst["z"]),
            int(worst["peers"]), verdict, gain, steps, self._place_of(rank),
            ranks_made_to_wait(self.members, rank), float(worst["excess_ns"]),
        )  # fmt: skip

    @cached_property
    def slower_of_two(self) -> list[SlowRank]:
        """The slower rank of each two that are alone with their role, if that costs time.

        Nobody knows which of two is usual, so neither is called a straggler in `stragglers`.
        """
        if not self.is_replayed or not self.is_matched or self.scores.empty:
            return []
        known = {slow.rank for slow in self.slow_ranks}
        found = []
        for pair in slow_ranks.differences(self.scores, self.roles):
            if pair.rank in known or not self.is_much(pair.excess_ns):
                continue
            gain, steps = self._without(pair.rank)
            if gain.gain_ns is not None and slow_ranks.verdict(steps) != slow_ranks.STRAGGLER:
                steps = self._only_own(pair.rank, steps)
            verdict = None if gain.gain_ns is None else slow_ranks.verdict(steps)
            late = pair.score == BUSY or self._host_is_slow(pair.rank)
            if verdict != slow_ranks.HIDDEN and late:
                found.append(SlowRank(
                    pair.rank, pair.score, pair.excess_pct, float("nan"), 1, verdict, gain, steps,
                    self._place_of(pair.rank), ranks_made_to_wait(self.members, pair.rank),
                    pair.excess_ns, pair.other,
                ))  # fmt: skip
        return found

    @cached_property
    def came_late(self) -> critical_path.LateStart | None:
        """The rank that came late into the recording, by 1 % of it or more; None: none did."""
        if not self.is_replayed or self.has_no_work:
            return None
        found = critical_path.late_start(self.graph, self.path_excesses)
        least = max(slow_ranks.LEAST_NS, slow_ranks.GAIN_MIN * self.window_ns)
        return found if found is not None and found.late_ns >= least else None

    @cached_property
    def most_excess_pct(self) -> float | None:
        """By how much of a step a rank takes longer than its role at most; None: not compared.

        Of two ranks one more than the other; of hosts their own time, where it is replayed.
        """
        found = self.scores
        if found.empty or not (found["peers"] > 0).any():
            return None
        excess = found["excess_ns"].where(found["peers"] != 1, 2 * found["excess_ns"])
        window = self._step_ns
        shares = 100 * excess[found["score"] == BUSY] / window
        if self.is_replayed:
            hosts = self._host_times.groupby("rank", observed=True)["host_ns"].sum()
            hosts = hosts.reindex(pd.Index(sorted(self.roles))).fillna(0)
            role = pd.Series({rank: str(role) for rank, role in self.roles.items()})
            late = hosts - hosts.groupby(role, observed=True).transform("median")
            late = late.where(role.groupby(role, observed=True).transform("size") != 2, 2 * late)
            shares = pd.concat([shares, 100 * late / max(1, self.window_ns)])
        else:
            shares = 100 * excess / window
        return max(0.0, float(shares.max()))

    def _host_is_slow(self, rank: int) -> bool:
        """Return whether a rank's host itself takes longer than those of its role."""
        if self.is_large:
            return slow_ranks.host_is_slow(self.many.host_times(rank), rank, self.window_ns)
        same = [each for each, role in self.roles.items() if role == self.roles[rank]]
        hosts = self._host_times.groupby("rank", observed=True)["host_ns"].sum()
        times = hosts.reindex(same).fillna(0)
        return slow_ranks.host_is_slow(times, rank, self.window_ns)

    @cached_property
    def _host_times(self) -> pd.DataFrame:
        return host_times(self.graph)

    @cached_property
    def stragglers(self) -> pd.DataFrame:
        """The ranks that stand out by their own times, each with what it costs.

        Columns `rank`, `verdict`, `score`, `excess_pct`, `z`, `gain_ns`, `lo_ns`, `hi_ns` of the
        window, `gain_pct`; see `slow_ranks`.
        """
        rows = [
            {
                "rank": slow.rank,
                "verdict": slow.verdict or "slow; what it costs is not known",
                "score": slow.score, "excess_pct": slow.excess_pct, "z": slow.z,
                "gain_ns": slow.gain.gain_ns, "lo_ns": slow.gain.lo_ns, "hi_ns": slow.gain.hi_ns,
                "gain_pct": slow.gain.gain_pct,
                "together": ", ".join(map(str, slow.together)) or None,
            }
            for slow in self.slow_ranks
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=_OF_STRAGGLERS)

    def _place_of(self, rank: int) -> WorstPlace | None:
        if self.is_large:
            kind, op, source, excess = self.many.worst_call(rank)
            return WorstPlace(kind, op, source, None, float(excess)) if excess > 0 else None
        if self.has_no_work:
            return self._late_op(rank)
        if self.graph.clock_error_ns:
            return None
        others = [r for r, role in self.roles.items() if r != rank and role == self.roles[rank]]
        place = worst_place(self.path_excesses, self._late_hosts, rank, others)
        if place is None or place.kind not in ON_HOST or place.cause not in (None, *VAGUE):
            return place
        return self._late_op(rank) or place

    def _late_op(self, rank: int) -> WorstPlace | None:
        """Return where a rank's host was late most: in which op or line, or before which op."""
        own = self.blame[(self.blame["rank"] == rank) & (self.blame["worst_ns"] > 0)]
        own = own[own["kind"].isin(("op", *ON_HOST))]
        if own.empty:
            return None
        worst = own.groupby(["kind", "op", "source", "cause"], dropna=False, observed=True)[
            "worst_ns"
        ].sum()
        kind, *texts = worst.index[int(worst.to_numpy(float).argmax())]
        op, source, cause = (text if isinstance(text, str) else None for text in texts)
        return WorstPlace(str(kind), op, source, cause, float(worst.max()))

    def _without(self, *ranks: int) -> tuple[what_if.Gain, pd.DataFrame]:
        """Return what the job gains, and each step of it, with ranks as the others."""
        if self.is_large:
            return self.many.as_the_others(ranks)
        change = what_if.as_the_others(self.graph, ranks, self.roles)
        return what_if.evaluate(self.graph, change), what_if.step_gains(self.graph, change)

    @cached_property
    def bandwidths(self) -> pd.DataFrame:
        """One row per instance of a collective: bytes, transfer, rates."""
        return waits.bandwidths(self.members)

    @cached_property
    def traffic(self) -> pd.DataFrame:
        """Bytes that the collectives of each layer and direction move; `waits.traffic`."""
        table = read_table(self.run.path, "collectives", waits.PLACES)
        return waits.traffic(self.members, as_pandas(table, ("rank", "collective_id")))

    @cached_property
    def slow_links(self) -> pd.DataFrame:
        """The groups whose transfers take longer than those of others."""
        return slow_ranks.slow_links(self.bandwidths, self._ranks_of_groups)

    @cached_property
    def slower_of_two_groups(self) -> pd.DataFrame:
        """The classes of collectives in which one of two groups transfers longer than the other."""
        return slow_ranks.slower_of_two_groups(self.bandwidths)

    def gain_of_links(self) -> what_if.Gain:
        """Return what the job gains if the slower of two groups transfers as the other one."""
        return self.gain(
            "the slower group as the other one",
            lambda: links_as_others(self.graph, self.bandwidths, self.slower_of_two_groups),
        )

    @cached_property
    def _ranks_of_groups(self) -> dict[str, frozenset[int]]:
        of_group: dict[str, frozenset[int]] = {}
        for each in self.run.ranks:
            # The list of a group's ranks is as long as the group: of one rank at a time.
            rows = each.read("collectives", ("group_key", "group_ranks"))
            for at, key in enumerate(rows["group_key"].to_pylist()):
                if key is not None and key not in of_group and rows["group_ranks"][at].is_valid:
                    of_group[key] = frozenset(rows["group_ranks"][at].as_py())
        return of_group

    def ranks_of(self, group_key: str) -> frozenset[int]:
        """Return the ranks of a group; none where that was not recorded."""
        return self._ranks_of_groups.get(group_key, frozenset())

    def gain(self, name: str, make: Callable[[], what_if.Scenario]) -> what_if.Gain:
        """Return what a change gains, by its name: made and replayed once, whoever asks."""
        if name not in self._gains:
            self._gains[name] = what_if.evaluate(self.graph, make())
        return self._gains[name]

    @cached_property
    def imbalance(self) -> pd.DataFrame:
        """The load imbalance of each step and role."""
        return slow_ranks.imbalance(self.times, self.roles)

    @cached_property
    def critical_path(self) -> pd.DataFrame:
        """The stretches of the critical path, which add up to the window.

        Of many ranks a stretch of kind `own` is all that a rank does between two collectives.
        """
        if self.is_large:
            return self.many.job.critical_path()
        return critical_path.critical_path(self.graph)

    @property
    def window_ns(self) -> int:
        """From the first beginning to the last end."""
        return self.many.job.window_ns if self.is_large else self.graph.window_ns

    @cached_property
    def path_excesses(self) -> pd.DataFrame:
        """The critical path with `excess_ns`: each stretch less its median over other ranks."""
        path = self.critical_path
        return path.assign(excess_ns=critical_path.excesses(self.graph, path, self.roles))

    @cached_property
    def blame(self) -> pd.DataFrame:
        """The parts of the critical path by their excess over other ranks, the worst first.

        Where no device works, who was late for each collective by what its host did before it.
        """
        if self.has_no_work:
            return host_blame(self._stretches(), self.members, self.roles)
        path = critical_path.critical_path(self.graph) if self.is_large else self.critical_path
        found = critical_path.blame(self.graph, path, self.roles)
        if found.empty:
            return found
        return blamed_work(self.graph, found, self.roles, self._host_work)

    def _host_work(self, rank: int, start: Int, end: Int) -> pd.DataFrame:
        """Return what a rank's host did in stretches that are on the clock of the reference."""
        (tables,) = self.run.of(rank)
        found = tables.several(HOST_WORK)
        own = int_column(found["launches"], "start_ns", 0)
        aligned = self.reduced.align(rank)(own)
        order = np.argsort(aligned, kind="stable")
        at = np.minimum(np.searchsorted(aligned[order], end), max(0, len(order) - 1))
        shift = end - own[order][at] if len(order) else end - end
        return host_work(found, start - shift, end - shift)

    def _stretches(self) -> list[pd.DataFrame]:
        return [
            stretches(each.read("ops", OPS), self._members_of(each.rank), each.rank)
            for each in self.run.ranks
        ]

    def what_if(
        self,
        *,
        scale: Sequence[tuple[str, str, float]] = (),
        rank: int | Sequence[int] | None = None,
        ideal: bool = False,
        transfers: float | None = None,
        overlap: bool = False,
    ) -> pd.DataFrame:
        """Return what the run would gain without something; one row for each change.

        Args:
            scale: axis (`op`, `layer`, `kernel`, `kind`), regular expression and factor of each.
            rank: this rank, or these together, as the others of their roles.
            ideal: all ranks as the median of their role.
            transfers: factor of the transfers of matched collectives.
            overlap: the bound of perfect overlap.

        Raises:
            UsageError: nothing is asked for, or nothing fits, or the ranks are not of one job.
        """
        gains = []
        ranks = [] if rank is None else [rank] if isinstance(rank, int) else [*dict.fromkeys(rank)]
        for each in ranks:
            self.run.of(each)
        if self.is_large and (ranks or transfers is not None):
            gains += [self._without(*ranks)[0]] if ranks else []
            gains += [] if transfers is None else [self.many.scale_transfers(transfers)]
            ranks, transfers = [], None
        changes = [what_if.scale(self.graph, *each) for each in scale]
        if ranks:
            changes.append(what_if.as_the_others(self.graph, ranks, self.roles))
        if ideal:
            changes.append(what_if.all_ideal(self.graph, self.roles))
        if transfers is not None:
            changes.append(what_if.scale_transfers(self.graph, transfers))
        gains += [what_if.evaluate(self.graph, change) for change in changes]
        gains += [what_if.perfect_overlap(self.graph)] if overlap else []
        if not gains:
            msg = "no change is named: scale, rank, ideal, transfers or overlap"
            raise UsageError(msg)
        return what_if.gains_frame(gains)


@kept
def job_of_ranks(tables: RunTables) -> JobOfRanks:
    """Return the results over all ranks of a run together."""
    return JobOfRanks(tables)
