"""Facts for rules: the tables of one rank, and what several rules need of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.hardware.missed_tensor_cores import missed_reasons
from pyprof2.analysis.hardware.verdict import devices_of
from pyprof2.analysis.intervals import time_within
from pyprof2.analysis.memory.curves import curves_of_rank
from pyprof2.analysis.memory.profile import MemoryProfile
from pyprof2.analysis.serving.steps import names_steps
from pyprof2.analysis.summaries.advice.server_facts import ServerFacts
from pyprof2.analysis.time.causes import CAUSES, NAMES, call_cause
from pyprof2.analysis.time.host_ranges import loading_ranges
from pyprof2.analysis.time.host_time import host_windows
from pyprof2.analysis.time.idle import INPUT as IDLE
from pyprof2.analysis.time.recordings import windows_of_ranks
from pyprof2.analysis.time.step_windows import StepWindows, step_windows
from pyprof2.columns import text_array
from pyprof2.tables import MEMORY, MEMORY_TAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.job.job_graph import JobGraph
    from pyprof2.analysis.job.slow_ranks import SlowRank
    from pyprof2.analysis.job.what_if import Gain, Scenario
    from pyprof2.analysis.summaries.advice.without import Replay

_WORK: Final = (
    "rank", "kernel_id", "start_ns", "dur_ns", "launch_ns", "launch_id", "device", "device_type",
    "stream", "step", "kernel", "kernel_short", "category", "op", "op_id", "signature", "layer",
    "source", "direction", "flops", "bytes", "compute_dtype", "tensor_core",
    "tensor_core_eligible", "params", "copy_kind", "grid", "block", "blocks_per_sm", "bound",
    "link",
)  # fmt: skip
INPUT: Final = {
    "kernels": _WORK,
    "copies": _WORK,
    "launches": ("rank", "launch_id", "start_ns", "dur_ns", "pid", "tid", "name"),
    "ops": ("rank", "op_id", "start_ns", "dur_ns", "pid", "tid", "op", "source"),
    "ranges": ("rank", "range_id", "start_ns", "dur_ns", "pid", "tid", "name", "kind", "domain"),
    "memory": tuple(MEMORY.names),
    "memory_tags": tuple(MEMORY_TAGS.names),
    "stalls": ("rank", "stall_id", "start_ns", "dur_ns", "kind"),
    "idle": (
        "rank", "gap_id", "device", "start_ns", "time_ns", "step", "group", "cause", "op",
        "source", "layer", "call", "drained", "op_id", "launch_id", "kernel_id",
    ),
    "trace": ("rank", "start_ns", "end_ns", "source_root", "world_size", "profiler", "span"),
}  # fmt: skip
"""The columns of the canonical tables that rules need."""

_RECORDED: Final = ("kernels", "copies", "trace")
_LONGEST_FIRST: Final = ("idle", "ops", "launches", "stalls")
"""The other tables: to make a DataFrame takes the most memory while there are few yet."""

_HOST_GROUPS: Final = ("host waits for the device", "host late")
HOST_CAUSES: Final = tuple(cause.name for cause in CAUSES if cause.group in _HOST_GROUPS)
"""Causes of idle time that less work on the host can shorten."""

_NEARLY_ALL: Final = 0.95

_SHORT: Final = (
    "kernel_id", "launch_id", "op_id", "gap_id", "range_id", "stall_id", "device",
    "stream", "step", "pid", "tid", "place",
)  # fmt: skip
_LARGEST_SHORT: Final = 2**31 - 1

_TALKS: Final = re.compile(r"::ep::(?:cuda::)?(?:inter|intra)node|deep_?ep|nvshmem", re.IGNORECASE)
"""Kernels that move tokens between experts on other devices."""


class Together(Protocol):
    """Facts about all ranks together: `pyprof2.api.job.JobOfRanks`."""

    @property
    def is_replayed(self) -> bool:
        """Whether there is little enough work to replay without being asked."""

    @property
    def graph(self) -> JobGraph:
        """All events of all ranks."""

    @property
    def roles(self) -> dict[int, Any]:
        """The role of each rank."""

    @property
    def scores(self) -> pd.DataFrame:
        """How far each rank's own times are from those of its role."""

    @property
    def slow_ranks(self) -> list[SlowRank]:
        """The ranks that stand out, each with what it costs."""

    @property
    def slow_links(self) -> pd.DataFrame:
        """The groups whose transfers take longer than those of others."""

    @property
    def imbalance(self) -> pd.DataFrame:
        """The load imbalance of each step and role."""

    @property
    def bandwidths(self) -> pd.DataFrame:
        """One row per instance of a collective."""

    @property
    def members(self) -> pd.DataFrame:
        """The members of all ranks, with wait and transfer."""

    @property
    def parts(self) -> pd.DataFrame:
        """The parts of each device's windows."""

    def ranks_of(self, group_key: str) -> frozenset[int]:
        """The ranks of a group."""

    def gain(self, name: str, make: Callable[[], Scenario]) -> Gain:
        """The gain of a change, by its name: made and replayed once, however many ranks ask."""


@dataclass(frozen=True)
class RankFacts:
    """One rank.

    Attributes:
        rank: its number.
        tables: by name, as DataFrames, without those of memory; kernels and copies have a column
            `place`, the position of their device in `devices`, kernels `missed`, why they missed
            the Tensor Cores, launches `cause`, the kind of the call, ops and ranges `loads`.
        window_ns: the recorded time, of all its devices.
        steps: when each step was.
        devices: what was recorded of each device, with its peaks, after an empty one.
        world_size: how many ranks the job has, 1 where that is not recorded.
        profiler: `kineto` or `nsight`.
        memory: of its devices.
        job: what is known of all ranks together; None where one was recorded.
        server: what it did as an inference server; None: nothing, or no device worked.
        compile_events: rows of the manifest: why compiled graphs are not fewer.
        is_cpu: whether no device worked: then `idle` is what `host_time` returns, all time of the
            thread that holds the steps, and `window_ns` the time recorded of it.
    """

    rank: int
    tables: Mapping[str, pd.DataFrame]
    window_ns: int
    steps: StepWindows
    devices: Sequence[tuple[Mapping[str, Any], Device | None]]
    world_size: int
    profiler: str
    memory: MemoryProfile
    job: Together | None = None
    server: ServerFacts | None = None
    compile_events: Sequence[Mapping[str, Any]] = ()
    is_cpu: bool = False

    def __getitem__(self, name: str) -> pd.DataFrame:
        """Return a table."""
        return self.tables[name]

    @cached_property
    def kernel_time_ns(self) -> int:
        """The summed time of all kernels."""
        return int(self["kernels"]["dur_ns"].sum())

    @cached_property
    def host_idle_ns(self) -> int:
        """The idle time that the host is to blame for: what shortening its work can gain.

        The latency of a launch is idle time only where the launch came too late.
        """
        return int(self.idle_of(*HOST_CAUSES, "launch_latency")["time_ns"].sum())

    @cached_property
    def has_steps(self) -> bool:
        """Whether steps were recorded."""
        return bool(len(self.steps.step))

    @cached_property
    def has_stacks(self) -> bool:
        """Whether Python frames were recorded."""
        return bool((self["ranges"]["kind"] == "python").any())

    @cached_property
    def is_coupled(self) -> bool:
        """Whether the rank waits for others, so that its own gain may be lost on theirs."""
        return self.world_size > 1 or bool(is_comm(self["kernels"]).any())

    @cached_property
    def devices_count(self) -> int:
        """How many devices worked; 1 where none did."""
        return max(1, int(self["idle"]["device"].nunique(dropna=False)))

    @cached_property
    def replay(self) -> Replay | None:
        """The replay that says how much earlier all is done without parts; None: there is none."""
        from pyprof2.analysis.summaries.advice.without import Replay

        return None if self.is_cpu else Replay.of(self)

    def idle_of(self, *causes: str) -> pd.DataFrame:
        """Return the idle time that has one of the causes."""
        idle = self["idle"]
        return idle[idle["cause"].isin(causes)]

    def calls_of(self, *causes: str) -> pd.DataFrame:
        """Return the GPU calls of some kinds."""
        calls = self["launches"]
        return calls[calls["cause"].isin(causes)]

    def share(self, time_ns: float) -> float:
        """Return a time as a share of what was recorded, in percent."""
        return 100 * time_ns / max(1, self.window_ns)

    def kernel_share(self, time_ns: float) -> float:
        """Return a time as a share of the kernels' time, in percent."""
        return 100 * time_ns / max(1, self.kernel_time_ns)

    def without(self, steps: Collection[int]) -> RankFacts:
        """Return what was recorded outside of the windows of some steps."""
        wanted = np.isin(self.steps.step, list(steps))
        start, end = self.steps.start[wanted], self.steps.end[wanted]
        tables = dict(self.tables)
        for name in ("kernels", "copies", "idle"):
            tables[name] = tables[name][~tables[name]["step"].isin(steps).to_numpy(bool)]
        for name in ("launches", "ops", "ranges", "stalls"):
            times = tables[name]["start_ns"].to_numpy("int64")
            tables[name] = tables[name][time_within(start, end, times, times + 1) == 0]
        kept = StepWindows(*(column[~wanted] for column in self.steps))
        left = self.window_ns - self.devices_count * int((end - start).sum())
        return replace(self, tables=tables, window_ns=max(1, left), steps=kept)


def facts_of_ranks(
    tables: Mapping[str, pa.Table],
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None = None,
) -> Iterator[RankFacts]:
    """Yield what was recorded of each rank whose devices did anything.

    Args:
        tables: columns `INPUT` of the canonical tables of all ranks.
        devices: rows of the canonical table `devices`.
        override: a device's name, or a file that describes one, to use instead of the recorded.
    """
    ranks = sorted(set(tables["trace"]["rank"].to_pylist()))

    def of_rank(rank: int) -> Callable[[str], pa.Table]:
        return lambda name: tables[name].filter(pc.equal(tables[name]["rank"], rank))

    yield from facts_of_parts(map(of_rank, ranks), devices, override)


def facts_of_parts(
    parts: Iterable[Callable[[str], pa.Table]],
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None = None,
    job: Together | None = None,
) -> Iterator[RankFacts]:
    """Yield what was recorded of each rank whose devices did anything.

    Args:
        parts: for each rank what returns a canonical table of it by its name, columns `INPUT`;
            asked for one after another, so that few of them are in memory together.
        devices: as for `facts_of_ranks`.
        override: the same.
        job: what is known of all ranks together; None where one was recorded.
    """
    for read in parts:
        # The table that takes the most memory for a while comes first.
        memory = _memory_of(read)
        own = {name: read(name) for name in ("kernels", "copies", "ranges", "trace")}
        # It copies what it is given: of a million kernels only what it needs.
        windows = windows_of_ranks({n: own[n].select(IDLE[n]) for n in _RECORDED})
        if len(windows):
            judge = partial(devices_of, devices=devices, override=override)
            yield replace(_of_rank(own, read, windows, judge, memory), job=job)


def facts_of_host(read: Callable[[str], pa.Table], times: pa.Table) -> RankFacts:
    """Return what was recorded of a rank without a device.

    Args:
        read: returns a canonical table of it by its name, columns `INPUT`.
        times: of it, see `host_time.host_time`; there is a row at least.
    """
    own = {name: read(name) for name in ("kernels", "copies", "ranges", "trace")}
    windows = host_windows(times.select(["rank", "cause", "time_ns"]).to_pandas())
    idle = times.select(INPUT["idle"])
    judge = partial(devices_of, devices=[], override=None)
    facts = _of_rank(
        own, lambda name: idle if name == "idle" else read(name), windows, judge, _memory_of(read)
    )
    return replace(facts, is_cpu=True)


def _memory_of(read: Callable[[str], pa.Table]) -> MemoryProfile:
    """Return the memory of the devices of a rank."""
    rank = next(iter(read("trace")["rank"].to_pylist()), 0)
    tags = read("memory_tags")
    curves = list(curves_of_rank(read("memory"), tags, rank))
    pa.default_memory_pool().release_unused()
    return MemoryProfile(Path(), curves, tags=tags)


def _of_rank(
    own: dict[str, pa.Table],
    read: Callable[[str], pa.Table],
    windows: pd.DataFrame,
    judge: Callable[[pa.Table], tuple[Int, Sequence[tuple[Mapping[str, Any], Device | None]]]],
    memory: MemoryProfile,
) -> RankFacts:
    place, found = judge(own["kernels"])
    own["kernels"] = own["kernels"].append_column("place", pa.array(place))
    own["copies"] = own["copies"].append_column("place", pa.array(judge(own["copies"])[0]))
    missed = text_array(missed_reasons(own["kernels"], in_half=False))
    own["kernels"] = own["kernels"].append_column("missed", missed)
    own["ranges"] = own["ranges"].append_column("loads", pa.array(loading_ranges(own["ranges"])))
    steps = step_windows(own["ranges"], [own["kernels"], own["copies"]])
    trace = own["trace"].to_pylist()
    server = None
    if names_steps(own["ranges"]):
        tables = {name: own[name] for name in ("kernels", "copies", "ranges")}
        server = ServerFacts.of(tables | {"launches": read("launches")}, trace[0]["rank"])
    frames = {name: _frame(own.pop(name)) for name in list(own)}
    frames |= {name: _frame(read(name)) for name in _LONGEST_FIRST}
    call = frames["launches"].pop("name")
    causes = [NAMES[call_cause(name)] for name in call.cat.categories]
    known = sorted(set(causes))
    cause = np.array([*map(known.index, causes), -1], np.int64)[call.cat.codes.to_numpy()]
    frames["launches"]["cause"] = pd.Series(
        pd.Categorical.from_codes(cause, pd.Index(known)), call.index
    )
    size = max((row["world_size"] or 1 for row in trace), default=1)
    profiler = trace[0]["profiler"] if trace else "kineto"
    rank, window_ns = int(windows["rank"].iloc[0]), int(windows["window_ns"].sum())
    return RankFacts(rank, frames, window_ns, steps, found, size, profiler, memory, server=server)


def _frame(table: pa.Table) -> pd.DataFrame:
    """Return a DataFrame in which text is plain objects and whole numbers stay whole numbers."""
    # With a million kernels each column counts: numbers of rows and devices are short.
    if "rank" in table.column_names:
        table = table.drop_columns("rank")
    short = {name: pa.int32() for name in _SHORT if name in table.column_names}
    fields = [
        f.with_type(short[f.name]) if _fits(table[f.name], short.get(f.name)) else f
        for f in table.schema
    ]
    table = table.cast(pa.schema(fields))
    integers = {
        pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.bool_(): pd.BooleanDtype(),
    }  # fmt: skip
    frame: pd.DataFrame = table.to_pandas(
        types_mapper=integers.get, self_destruct=True, split_blocks=True
    )
    del table
    # Arrow keeps what it freed for itself: that is as much again as the frames.
    pa.default_memory_pool().release_unused()
    times = [name for name in ("start_ns", "dur_ns", "time_ns") if name in frame]
    return frame.astype(dict.fromkeys(times, "int64"))


def _fits(column: pa.ChunkedArray, short: pa.DataType | None) -> bool:
    """Return whether all numbers of a column fit a shorter type; False without one."""
    if short is None:
        return False
    ends = pc.min_max(column).as_py()
    return all(value is None or abs(value) <= _LARGEST_SHORT for value in ends.values())


def is_comm(kernels: pd.DataFrame) -> Bool:
    """Return which kernels communicate: collectives, and those of libraries for experts."""
    names = kernels["kernel"].dropna().unique()
    talks = kernels["kernel"].isin({name for name in names if _TALKS.search(str(name))})
    found: Bool = ((kernels["category"] == "comm") | talks).to_numpy(bool)
    return found


def is_pinned(copies: pd.DataFrame) -> bool:
    """Return whether copies from the host are from memory that is pinned already, nearly all."""
    kinds = copies["copy_kind"].astype(object).fillna("").astype(str)
    time = copies["dur_ns"].to_numpy("int64")
    sent = time[kinds.str.startswith("h2d").to_numpy(bool)].sum()
    pinned = time[kinds.str.fullmatch("h2d pinned").to_numpy(bool)].sum()
    return bool(sent > 0 and pinned >= _NEARLY_ALL * sent)


def flags(rows: pd.Series) -> Bool:
    """Return a column of truth values, where null is false."""
    found: Bool = rows.fillna(False).to_numpy(bool)  # noqa: FBT003
    return found


def ends(rows: pd.DataFrame) -> tuple[Int, Int]:
    """Return when each row starts and ends."""
    start = rows["start_ns"].to_numpy("int64")
    return start, start + rows["dur_ns"].to_numpy("int64")
