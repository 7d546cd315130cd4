"""Where the time of a run went: idle time and its causes, steps and their parts, lines, energy."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyprof2.api import run_serving
from pyprof2.api.run_tables import kept
from pyprof2.columns import as_pandas
from pyprof2.store.folder import STORED
from pyprof2.tables import ENERGY_KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

    from pyprof2.analysis.summaries.line_profile import LineProfile, LineQuery
    from pyprof2.analysis.summaries.spent import Spent
    from pyprof2.analysis.time.step_times import TimedStep
    from pyprof2.api.run_tables import RunTables
    from pyprof2.store.rank_tables import RankTables


@kept
def spent_of(tables: RunTables) -> Spent:
    """Where the time of the devices went, in steps or in all that was recorded.

    See `pyprof2.analysis.summaries.spent.Spent`.
    """
    from pyprof2.analysis.summaries.spent import IDLE_INPUT, idle_sums_without, spent

    idle = tables.table("idle_sums").to_pylist()
    slow: dict[int, list[TimedStep]] = {}
    for each in tables.slow_starts:
        slow.setdefault(each.rank, []).append(each)
    idle = [row for row in idle if row["rank"] not in slow]
    for number, own in slow.items():
        (rank,) = tables.of(number)
        parts = rank.in_parts("idle", [*IDLE_INPUT, "start_ns"])
        idle += idle_sums_without(parts, own, number)
    return spent(tables.summary, tables.steps, idle, lambda: recorded_parts(tables))


def idle_parts(tables: RunTables, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield columns of the table `idle` in parts, so that not all of it is in memory."""
    for rank in tables.ranks:
        yield from rank.in_parts("idle", columns)


def idle_table(tables: RunTables, normal_gap_us: float | None = None) -> pa.Table:
    """Return the table `idle` as Arrow, found anew where an argument is given.

    Args:
        tables: of the run.
        normal_gap_us: how long a gap of queued work, or the time from a launch to its start,
            may be that needs no other reason; None: 30 us.
    """
    from pyprof2.analysis.time.idle import GRAPHS, INPUT, idle_of_ranks

    if normal_gap_us is None:
        return tables.table("idle")
    normal_ns = round(1000 * normal_gap_us)
    ranks = tables.ranks
    needed = INPUT | GRAPHS
    parts = [idle_of_ranks(each.several(needed), each.source_root, normal_ns) for each in ranks]
    return pa.concat_tables(parts).unify_dictionaries()


@kept
def idle_windows(tables: RunTables) -> pd.DataFrame:
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

    return tables.of_each(of_rank)


@kept
def host_time(tables: RunTables) -> pd.DataFrame:
    """The host's time in steps where no device worked (ops, data, Python); else no row.

    See `pyprof2.analysis.time.host_time.host_time`.
    """
    parts = [STORED["idle"].empty(), *host_times(tables).values()]
    table = pa.concat_tables(parts).unify_dictionaries()
    return as_pandas(table, STORED["idle"].never_null)


@kept
def host_times(tables: RunTables) -> dict[int, pa.Table]:
    """The tables of `host_time`, by rank; nothing where a device worked."""
    from pyprof2.analysis.time.host_time import host_time
    from pyprof2.analysis.time.idle import INPUT

    ranks = tables.ranks if idle_windows(tables).empty else []
    found = {rank.rank: host_time(rank.several(INPUT), rank.source_root) for rank in ranks}
    return {rank: table for rank, table in found.items() if table.num_rows}


def idle_sums_and_windows(
    tables: RunTables,
    axes: Sequence[str],
    rank: int | None = None,
    normal_gap_us: float | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of `idle_and_windows` added up along axes, which are read in parts.

    Args:
        tables: of the run.
        axes: some of those of `Run.idle_profile`.
        rank: only this one.
        normal_gap_us: see `idle_table`.

    Returns:
        See `pyprof2.analysis.summaries.idle_profile.added_up`; and the windows.

    Raises:
        UsageError: an axis is unknown, or there is nothing of the rank.
    """
    from pyprof2.analysis.summaries.idle_profile import ADDED, added_up, check_axes, select_rank
    from pyprof2.analysis.time.host_time import host_windows

    check_axes(axes)
    if "phase" in axes:
        # The phase is that of the work that ended each row.
        idle, windows = idle_and_windows(tables, rank, normal_gap_us)
        return run_serving.with_phases(tables, idle).assign(max_ns=idle["time_ns"]), windows
    windows = idle_windows(tables)
    every: Iterable[pa.Table]
    if windows.empty:
        windows = host_windows(host_time(tables))
        every = host_times(tables).values()
    elif normal_gap_us is None:
        needed = dict.fromkeys((*axes, *ADDED, "rank"))
        every = idle_parts(tables, [n for n in STORED["idle"].names if n in needed])
    else:
        every = [idle_table(tables, normal_gap_us)]
    parts = chain([STORED["idle"].empty()], every)
    keys = axes if rank is None else [*axes, *({"rank"} - {*axes})]
    found = as_pandas(added_up(parts, keys), STORED["idle"].never_null)
    return select_rank(found, windows, rank)


def idle_and_windows(
    tables: RunTables, rank: int | None = None, normal_gap_us: float | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows that `pyprof2 idle` sums up, and how long what they are of was recorded.

    Those of `idle_table` and `idle_windows`, or, where no device worked, `host_time` and its
    windows.

    Args:
        tables: of the run.
        rank: only this one.
        normal_gap_us: see `idle_table`.

    Raises:
        UsageError: there is nothing of the rank.
    """
    from pyprof2.analysis.summaries.idle_profile import select_rank
    from pyprof2.analysis.time.host_time import host_windows

    if idle_windows(tables).empty:
        return select_rank(host_time(tables), host_windows(host_time(tables)), rank)
    whole = as_pandas(idle_table(tables, normal_gap_us), STORED["idle"].never_null)
    return select_rank(whole, idle_windows(tables), rank)


def _of_queues(
    tables: RunTables, analysis: Callable[[pa.Table, pa.Table, pa.Table], pa.Table]
) -> pd.DataFrame:
    """Return the result of an analysis of the kernels, copies and launches of each rank."""
    from pyprof2.analysis.time.idle import INPUT

    needed = {name: INPUT[name] for name in ("kernels", "copies", "launches")}

    def of_rank(rank: RankTables) -> pd.DataFrame:
        frame = as_pandas(analysis(*rank.several(needed).values()))
        frame.insert(0, "rank", rank.rank)
        return frame

    return tables.of_each(of_rank)


def launch_delays(tables: RunTables) -> pd.DataFrame:
    """How long each kernel and copy waited after its launch.

    See `pyprof2.analysis.time.queue.launch_delays`.
    """
    from pyprof2.analysis.time.queue import launch_delays

    return _of_queues(tables, launch_delays)


def queue(tables: RunTables) -> pd.DataFrame:
    """How much was queued and running on each stream, at every change.

    See `pyprof2.analysis.time.queue.queue_depth`.
    """
    from pyprof2.analysis.time.queue import queue_depth

    return _of_queues(tables, queue_depth)


@kept
def _parts(tables: RunTables) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The parts of the windows of steps, and of all that was recorded."""
    import pandas as pd

    from pyprof2.analysis.time.gaps import NEVER
    from pyprof2.analysis.time.step_parts import INPUT, step_parts
    from pyprof2.analysis.time.step_windows import OF_WINDOWS, StepWindows

    found = []
    for rank in tables.ranks:
        windows = StepWindows.of(rank.read("steps", OF_WINDOWS))
        read = {name: rank.parts(name) for name in INPUT}
        both = [each.assign(rank=rank.rank) for each in step_parts(read, windows)]
        at = both[0]["window"].to_numpy("int64")
        both[0] = both[0].assign(step=windows.step[at], start_ns=windows.start[at])
        found.append(both)
    of_steps, whole = (pd.concat(each, ignore_index=True) for each in zip(*found, strict=True))
    for each in (of_steps, whole):
        device = each["device"].astype("Int64")
        each["device"] = device.mask(device == NEVER)
    return of_steps, whole


def step_parts(tables: RunTables) -> pd.DataFrame:
    """The parts that the windows of steps are made of, and add up to.

    One row per device, window and part, with `rank`, `device`, `step`, `start_ns` of the
    window, `part` and `time_ns`; see `pyprof2.analysis.time.step_parts.step_parts`.
    """
    return _parts(tables)[0][["rank", "device", "step", "start_ns", "part", "time_ns"]]


def recorded_parts(tables: RunTables) -> pd.DataFrame:
    """The parts that all that was recorded of each device is made of, and adds up to.

    One row per device and part, with `rank`, `device`, `part` and `time_ns`; see
    `pyprof2.analysis.time.step_parts.step_parts`.
    """
    return _parts(tables)[1][["rank", "device", "part", "time_ns"]]


@kept
def plugin_steps(tables: RunTables) -> pd.DataFrame:
    """A row for each step by what was at work, as the TensorBoard plugin counts it."""
    from pyprof2.analysis.time.plugin_steps import plugin_steps

    parts = [plugin_steps(rank, rank.rank) for rank, _ in tables.counted]
    return as_pandas(pa.concat_tables(parts), ("rank",))


@kept
def device_shares(tables: RunTables) -> dict[str, float | None]:
    """GPU utilization, SM efficiency and occupancy over all steps, in %; null where unknown.

    Without steps they are from the first activity to the last.
    """
    from pyprof2.analysis.time.step_times import mean_shares

    if tables.steps:
        return mean_shares(tables.steps, "dur_ns")
    return mean_shares(tables.table("device_use").to_pylist(), "window_ns")


@kept
def utilization(tables: RunTables) -> pd.DataFrame:
    """MFU and HFU of each step; see `pyprof2.analysis.summaries.utilization.utilization`."""
    from pyprof2.analysis.summaries.utilization import COLUMNS

    return as_pandas(tables.table("utilization")).astype(COLUMNS)


@kept
def utilization_rows(tables: RunTables) -> list[dict[str, Any]]:
    """The rows of `utilization` that means are made of: without slow first steps.

    Null is None; they take less to read.
    """
    rows: list[dict[str, Any]] = tables.table("utilization").to_pylist()
    # A number comes again in another span.
    again = Counter((each.rank, each.step) for each in tables.windows)
    slow = [(each.rank, each.step) for each in tables.slow_starts]
    slow = [each for each in slow if again[each] == 1]
    return [row for row in rows if (row["rank"], row["step"]) not in slow]


@kept
def energy(tables: RunTables) -> pd.DataFrame:
    """The energy that a step takes, one row per counter; empty where none was read.

    See `pyprof2.analysis.time.energy.energy`.
    """
    import pandas as pd

    from pyprof2.analysis.time.energy import RANGES, energy
    from pyprof2.result_tables import ENERGY

    steps = tables.frame("steps")
    # Names of ranges are long, and most recordings have no reading.
    having = tables.with_ranges(ENERGY_KIND)
    parts = [energy(rank.read("ranges", RANGES), steps, rank.rank) for rank in having]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=ENERGY.names)


@kept
def lines_are_functions(tables: RunTables) -> bool:
    """Return whether Python frames were recorded, whose line is where a function begins."""
    return bool(tables.with_ranges("python"))


def line_profile(tables: RunTables, query: LineQuery) -> LineProfile:
    """Return what lines cost; see `pyprof2.analysis.summaries.line_profile`."""
    from pyprof2.analysis.summaries.line_profile import line_profile

    stacks, roots = {}, {}
    for rank in tables.ranks:
        stacks[rank.rank] = rank.read("stacks", ["stack_id", "caller_id", "line"])
        roots[rank.rank] = next(iter(rank.source_roots), None)
    # Not kept: there may be as many rows as a tenth of the kernels.
    lines = as_pandas(tables.table("lines"), STORED["lines"].never_null)
    return line_profile(lines, stacks, tables.frame("steps"), query, roots)
