"""Where the time of a run went: idle time and its causes, steps and their parts, lines, energy."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyprof2.api.run_tables import OfTables
from pyprof2.columns import as_pandas
from pyprof2.store.folder import STORED
from pyprof2.tables import ENERGY_KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

    from pyprof2.analysis.summaries.line_profile import LineProfile, LineQuery
    from pyprof2.analysis.summaries.spent import Spent
    from pyprof2.analysis.time.step_times import TimedStep
    from pyprof2.store.rank_tables import RankTables


class RunTime(OfTables):
    """The time of a run."""

    @cached_property
    def spent(self) -> Spent:
        """Where the time of the devices went, in steps or in all that was recorded.

        See `pyprof2.analysis.summaries.spent.Spent`.
        """
        from pyprof2.analysis.summaries.spent import IDLE_INPUT, idle_sums_without, spent

        tables = self._tables
        idle = tables.table("idle_sums").to_pylist()
        slow: dict[int, list[TimedStep]] = {}
        for each in tables.slow_starts:
            slow.setdefault(each.rank, []).append(each)
        idle = [row for row in idle if row["rank"] not in slow]
        for number, own in slow.items():
            (rank,) = tables.of(number)
            parts = rank.in_parts("idle", [*IDLE_INPUT, "start_ns"])
            idle += idle_sums_without(parts, own, number)
        return spent(tables.summary, tables.steps, idle, lambda: self.recorded_parts)

    @property
    def mean_step_ns(self) -> float | None:
        """The mean time of a step over all ranks in ns, as every screen has it; None without steps.

        It is from the step's beginning until the last work ends that it launched. A first step
        that took much longer than the others is left out.
        """
        usual = [each.dur_ns for each in self.windows if each not in self.slow_starts]
        return sum(usual) / len(usual) if usual else None

    @property
    def windows(self) -> list[TimedStep]:
        """The window of each step once, in order of rank and time."""
        return self._tables.windows

    @property
    def slow_starts(self) -> set[TimedStep]:
        """The first steps that took much longer than the others of their rank; no mean has them."""
        return self._tables.slow_starts

    def idle_parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of the table `idle` in parts, so that not all of it is in memory."""
        for rank in self._tables.ranks:
            yield from rank.in_parts("idle", columns)

    def idle_table(self, normal_gap_us: float | None = None) -> pa.Table:
        """Return the table `idle` as Arrow, found anew where an argument is given.

        Args:
            normal_gap_us: how long a gap of queued work, or the time from a launch to its start,
                may be that needs no other reason; None: 30 us.
        """
        from pyprof2.analysis.time.idle import GRAPHS, INPUT, idle_of_ranks

        if normal_gap_us is None:
            return self._tables.table("idle")
        normal_ns = round(1000 * normal_gap_us)
        ranks = self._tables.ranks
        needed = INPUT | GRAPHS
        parts = [idle_of_ranks(each.several(needed), each.source_root, normal_ns) for each in ranks]
        return pa.concat_tables(parts).unify_dictionaries()

    @cached_property
    def idle_windows(self) -> pd.DataFrame:
        """How long each device was recorded, active, busy and idle.

        See `pyprof2.analysis.time.recordings.windows_of_ranks`.
        """
        from pyprof2.analysis.time.idle import INPUT
        from pyprof2.analysis.time.recordings import windows_of_ranks

        times = ("rank", "device", "start_ns", "dur_ns")
        needed = {"kernels": times, "copies": times, "trace": INPUT["trace"]}

        def of_rank(rank: RankTables) -> pd.DataFrame:
            # Threads of Arrow's, which read a table at once, keep memory of their own.
            read = {name: [*rank.in_parts(name, own)] for name, own in needed.items()}
            return windows_of_ranks({name: pa.concat_tables(own) for name, own in read.items()})

        return self._tables.of_each(of_rank)

    @cached_property
    def host_time(self) -> pd.DataFrame:
        """The host's time in steps where no device worked (ops, data, Python); else no row.

        See `pyprof2.analysis.time.host_time.host_time`.
        """
        parts = [STORED["idle"].empty(), *self.host_times.values()]
        table = pa.concat_tables(parts).unify_dictionaries()
        return as_pandas(table, STORED["idle"].never_null)

    @cached_property
    def host_times(self) -> dict[int, pa.Table]:
        """The tables of `host_time`, by rank; nothing where a device worked."""
        from pyprof2.analysis.time.host_time import host_time
        from pyprof2.analysis.time.idle import INPUT

        ranks = self._tables.ranks if self.idle_windows.empty else []
        found = {rank.rank: host_time(rank.several(INPUT), rank.source_root) for rank in ranks}
        return {rank: table for rank, table in found.items() if table.num_rows}

    def idle_sums_and_windows(
        self, axes: Sequence[str], rank: int | None, normal_gap_us: float | None
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return what of the idle time is added up along axes, and the windows of its devices."""
        from pyprof2.analysis.summaries.idle_profile import ADDED, added_up, select_rank
        from pyprof2.analysis.time.host_time import host_windows

        windows = self.idle_windows
        every: Iterable[pa.Table]
        if windows.empty:
            windows = host_windows(self.host_time)
            every = self.host_times.values()
        elif normal_gap_us is None:
            needed = dict.fromkeys((*axes, *ADDED, "rank"))
            every = self.idle_parts([n for n in STORED["idle"].names if n in needed])
        else:
            every = [self.idle_table(normal_gap_us)]
        parts = chain([STORED["idle"].empty()], every)
        keys = axes if rank is None else [*axes, *({"rank"} - {*axes})]
        found = as_pandas(added_up(parts, keys), STORED["idle"].never_null)
        return select_rank(found, windows, rank)

    def idle_and_windows(
        self, rank: int | None = None, normal_gap_us: float | None = None
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the rows that `pyprof2 idle` sums up, and how long what they are of was recorded.

        Those of `idle_table` and `idle_windows`, or, where no device worked, `host_time` and its
        windows.

        Args:
            rank: only this one.
            normal_gap_us: see `idle_table`.

        Raises:
            UsageError: there is nothing of the rank.
        """
        from pyprof2.analysis.summaries.idle_profile import select_rank
        from pyprof2.analysis.time.host_time import host_windows

        if self.idle_windows.empty:
            return select_rank(self.host_time, host_windows(self.host_time), rank)
        whole = as_pandas(self.idle_table(normal_gap_us), STORED["idle"].never_null)
        return select_rank(whole, self.idle_windows, rank)

    def _of_queues(
        self, analysis: Callable[[pa.Table, pa.Table, pa.Table], pa.Table]
    ) -> pd.DataFrame:
        """Return the result of an analysis of the kernels, copies and launches of each rank."""
        from pyprof2.analysis.time.idle import INPUT

        needed = {name: INPUT[name] for name in ("kernels", "copies", "launches")}

        def of_rank(rank: RankTables) -> pd.DataFrame:
            frame = as_pandas(analysis(*rank.several(needed).values()))
            frame.insert(0, "rank", rank.rank)
            return frame

        return self._tables.of_each(of_rank)

    @property
    def launch_delays(self) -> pd.DataFrame:
        """How long each kernel and copy waited after its launch.

        See `pyprof2.analysis.time.queue.launch_delays`.
        """
        from pyprof2.analysis.time.queue import launch_delays

        return self._of_queues(launch_delays)

    @property
    def queue(self) -> pd.DataFrame:
        """How much was queued and running on each stream, at every change.

        See `pyprof2.analysis.time.queue.queue_depth`.
        """
        from pyprof2.analysis.time.queue import queue_depth

        return self._of_queues(queue_depth)

    @cached_property
    def _parts(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The parts of the windows of steps, and of all that was recorded."""
        import pandas as pd

        from pyprof2.analysis.time.gaps import NEVER
        from pyprof2.analysis.time.step_parts import INPUT, step_parts
        from pyprof2.analysis.time.step_windows import OF_WINDOWS, StepWindows

        found = []
        for rank in self._tables.ranks:
            windows = StepWindows.of(rank.read("steps", OF_WINDOWS))
            tables = {name: rank.chunked(name, columns) for name, columns in INPUT.items()}
            both = [each.assign(rank=rank.rank) for each in step_parts(tables, windows)]
            at = both[0]["window"].to_numpy("int64")
            both[0] = both[0].assign(step=windows.step[at], start_ns=windows.start[at])
            found.append(both)
        of_steps, whole = (pd.concat(each, ignore_index=True) for each in zip(*found, strict=True))
        for each in (of_steps, whole):
            device = each["device"].astype("Int64")
            each["device"] = device.mask(device == NEVER)
        return of_steps, whole

    @property
    def step_parts(self) -> pd.DataFrame:
        """The parts that the windows of steps are made of, and add up to.

        One row per device, window and part, with `rank`, `device`, `step`, `start_ns` of the
        window, `part` and `time_ns`; see `pyprof2.analysis.time.step_parts.step_parts`.
        """
        return self._parts[0][["rank", "device", "step", "start_ns", "part", "time_ns"]]

    @property
    def recorded_parts(self) -> pd.DataFrame:
        """The parts that all that was recorded of each device is made of, and adds up to.

        One row per device and part, with `rank`, `device`, `part` and `time_ns`; see
        `pyprof2.analysis.time.step_parts.step_parts`.
        """
        return self._parts[1][["rank", "device", "part", "time_ns"]]

    @cached_property
    def plugin_steps(self) -> pd.DataFrame:
        """A row for each step by what was at work, as the TensorBoard plugin counts it."""
        from pyprof2.analysis.time.plugin_steps import plugin_steps

        parts = [plugin_steps(rank, rank.rank) for rank, _ in self._tables.counted]
        return as_pandas(pa.concat_tables(parts), ("rank",))

    @cached_property
    def use_over_steps(self) -> pd.DataFrame:
        """How each device was used from the start of the first step to the end of the last.

        The table `device_use`.
        """
        return self._tables.frame("device_use")

    @cached_property
    def device_shares(self) -> dict[str, float | None]:
        """GPU utilization, SM efficiency and occupancy over all steps, in %; null where unknown.

        Without steps they are from the first activity to the last.
        """
        from pyprof2.analysis.time.step_times import mean_shares

        if self._tables.steps:
            return mean_shares(self._tables.steps, "dur_ns")
        return mean_shares(self._tables.table("device_use").to_pylist(), "window_ns")

    @cached_property
    def _utilization(self) -> pa.Table:
        return self._tables.table("utilization")

    @cached_property
    def utilization(self) -> pd.DataFrame:
        """MFU and HFU of each step; see `pyprof2.analysis.summaries.utilization.utilization`."""
        from pyprof2.analysis.summaries.utilization import COLUMNS

        return as_pandas(self._utilization).astype(COLUMNS)

    @cached_property
    def utilization_rows(self) -> list[dict[str, Any]]:
        """The rows of `utilization` that means are made of: without slow first steps.

        Null is None; they take less to read.
        """
        rows: list[dict[str, Any]] = self._utilization.to_pylist()
        # A number comes again in another span.
        again = Counter((each.rank, each.step) for each in self.windows)
        slow = [(each.rank, each.step) for each in self.slow_starts]
        slow = [each for each in slow if again[each] == 1]
        return [row for row in rows if (row["rank"], row["step"]) not in slow]

    @cached_property
    def energy(self) -> pd.DataFrame:
        """The energy that a step takes, one row per counter; empty where none was read.

        See `pyprof2.analysis.time.energy.energy`.
        """
        import pandas as pd

        from pyprof2.analysis.time.energy import RANGES, energy
        from pyprof2.result_tables import ENERGY

        steps = self._tables.frame("steps")
        # Names of ranges are long, and most recordings have no reading.
        having = self._tables.with_ranges(ENERGY_KIND)
        parts = [energy(rank.read("ranges", RANGES), steps, rank.rank) for rank in having]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=ENERGY.names)

    def line_profile(self, query: LineQuery) -> LineProfile:
        """Return what lines cost; see `pyprof2.analysis.summaries.line_profile`."""
        from pyprof2.analysis.summaries.line_profile import line_profile

        stacks, roots = {}, {}
        for rank in self._tables.ranks:
            stacks[rank.rank] = rank.read("stacks", ["stack_id", "caller_id", "line"])
            roots[rank.rank] = next(iter(rank.source_roots), None)
        # Not kept: there may be as many rows as a tenth of the kernels.
        lines = as_pandas(self._tables.table("lines"), STORED["lines"].never_null)
        return line_profile(lines, stacks, self._tables.frame("steps"), query, roots)
