"""Facts for rules: the tables of one rank, and what several rules need of them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.chunked import (
    ENDLESS,
    InMemory,
    chunks_of,
    frame_of_parts,
    in_time_order,
    whole,
)
from pyprof2.analysis.hardware.missed_tensor_cores import missed_reasons
from pyprof2.analysis.hardware.verdict import devices_of
from pyprof2.analysis.intervals import time_within, union_length
from pyprof2.analysis.memory.curves import EVENTS_NEEDED, curves_of_rank
from pyprof2.analysis.memory.profile import MemoryProfile
from pyprof2.analysis.serving.generate import names_steps
from pyprof2.analysis.summaries.advice.server_facts import ServerFacts
from pyprof2.analysis.time.cause_names import CAUSES, NAMES, call_cause
from pyprof2.analysis.time.host_clock import clock_error_ns
from pyprof2.analysis.time.host_ranges import loading_ranges
from pyprof2.analysis.time.host_time import host_windows
from pyprof2.analysis.time.step_windows import StepWindows, step_windows
from pyprof2.columns import (
    as_text,
    join_rows,
    lookup,
    narrow,
    row_of,
    short,
    sum_at,
    text_array,
    values_of,
)
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.tables import MEMORY, MEMORY_TAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.job.job_graph import JobGraph
    from pyprof2.analysis.job.slow_ranks import SlowRank
    from pyprof2.analysis.job.what_if import Gain, Scenario
    from pyprof2.analysis.summaries.advice.without import Replay
    from pyprof2.problems import Advice

    Devices: TypeAlias = Sequence[tuple[Mapping[str, Any], Device | None]]

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
    "trace": ("rank", "start_ns", "end_ns", "source_root", "world_size", "span"),
}  # fmt: skip
"""The columns of the canonical tables that rules need."""

_MADE: Final = {
    ("kernels", "missed"): (
        "tensor_core_eligible", "compute_dtype", "params", "device_type", "tensor_core", "flops",
    ),
    ("kernels", "place"): ("device",),
    ("copies", "place"): ("device",),
    ("ranges", "loads"): INPUT["ranges"],
    ("launches", "cause"): ("name",),
}  # fmt: skip
"""The columns that are made here, each of some of its table."""
_TOGETHER: Final = {
    "kernels": (
        "kernel_id", "start_ns", "dur_ns", "launch_id", "device", "stream", "step", "kernel",
        "kernel_short", "category", "op", "op_id", "signature", "layer", "source", "direction",
        "flops", "bytes", "compute_dtype", "tensor_core", "copy_kind", "grid", "block",
        "bound", "link", "place", "missed",
    ),
    "launches": ("launch_id", "start_ns", "dur_ns", "pid", "tid", "cause"),
}  # fmt: skip
"""The columns that rules ask for in any case: to read each by itself takes longer."""
_READ_AGAIN: Final = ("ops", "idle", "memory")
"""The longest tables: numbers of theirs are not kept, and mostly those of a few rows are wanted."""

_HOST_GROUPS: Final = ("host waits for the device", "host late")
HOST_CAUSES: Final = tuple(cause.name for cause in CAUSES if cause.group in _HOST_GROUPS)
"""Causes of idle time that less work on the host can shorten."""

_IDLE: Final = (
    "gap_id", "start_ns", "time_ns", "cause", "op", "source", "drained", "op_id", "launch_id",
    "kernel_id", "device",
)  # fmt: skip
_SELDOM: Final = frozenset({"data_loading", "sync", "allocator", "copy_call"})
_OF_SELDOM: Final = ("start_ns", "time_ns", "cause", "op", "source", "drained", "launch_id")
CALLS: Final = ("launch_id", "start_ns", "dur_ns", "pid", "tid", "cause")
TIMES: Final = ("device", "start_ns", "dur_ns")
_NEARLY_ALL: Final = 0.95

_SHORT: Final = (
    "kernel_id", "launch_id", "op_id", "gap_id", "range_id", "stall_id", "device",
    "stream", "step", "pid", "tid", "place",
)  # fmt: skip
_FEW: Final = 8
"""So many texts are compared faster than they are looked up."""

_TALKS: Final = re.compile(r"::ep::(?:cuda::)?(?:inter|intra)node|deep_?ep|nvshmem", re.IGNORECASE)
"""Kernels that move tokens between experts on other devices."""


class Together(Protocol):
    """Facts about all ranks together: `pyprof2.api.job.JobOfRanks`."""

    @property
    def is_replayed(self) -> bool:
        """Whether there is little enough work to replay without being asked."""

    @property
    def not_one_job(self) -> str | None:
        """Why nothing is said of all ranks together: they are of several jobs; else None."""

    @property
    def is_matched(self) -> bool:
        """Whether any collective ties ranks together."""

    def is_much(self, excess_ns: float) -> bool:
        """Return whether a rank that takes so much longer in a step may be called slow."""

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
        tables: without those of memory; kernels and copies have a column `place`, the position of
            their device in `devices`, kernels `missed`, why they missed the Tensor Cores, launches
            `cause`, the kind of the call, ranges `loads`.
        window_ns: the recorded time, of all its devices.
        steps: when each step was.
        devices: what was recorded of each device, with its peaks, after an empty one.
        world_size: how many ranks the job has, 1 where that is not recorded.
        advice: how to record what is not recorded.
        job: what is known of all ranks together; None where one was recorded.
        compile_events: rows of the manifest: why compiled graphs are not fewer.
        is_cpu: whether no device worked: then `idle` is what `host_time` returns, all time of the
            thread that holds the steps, and `window_ns` the time recorded of it.
    """

    rank: int
    tables: ColumnsOfRank
    window_ns: int
    steps: StepWindows
    devices: Sequence[tuple[Mapping[str, Any], Device | None]]
    world_size: int
    advice: Advice
    job: Together | None = None
    compile_events: Sequence[Mapping[str, Any]] = ()
    is_cpu: bool = False

    def rows(self, name: str, *columns: str, where: Bool | None = None) -> pd.DataFrame:
        """Return columns of a table, of the rows that are wanted; None: of all."""
        return self.tables.rows(name, columns, where)

    def count(self, name: str) -> int:
        """Return how many rows a table has."""
        return self.tables.count(name)

    def work(self, *columns: str) -> pd.DataFrame:
        """Return columns of kernels, and then of copies."""
        return join_rows(self.rows(name, *columns) for name in ("kernels", "copies"))

    def numbers(self, column: str) -> Int:
        """Return whole numbers of kernels, and then of copies; -1 for null."""
        tables = [self.rows(name, column)[column] for name in ("kernels", "copies")]
        return np.concatenate([*map(int_values, tables)])

    @cached_property
    def found(self) -> dict[str, Any]:
        """The findings of rules so far, by their slugs: see `Rule.ask`."""
        return {}

    @cached_property
    def lacks_totals(self) -> bool:
        """Whether no event on memory says how much is allocated."""
        return not self.tables.has("memory", "allocated_bytes")

    @cached_property
    def memory(self) -> MemoryProfile:
        """The memory of its devices, not of its host."""
        return self.tables.memory(self.rank)

    @cached_property
    def server(self) -> ServerFacts | None:
        """Its work as an inference server; None: none."""
        return self.tables.server(self.rank)

    @cached_property
    def kernel_time_ns(self) -> int:
        """The summed time of all kernels."""
        return int(self.rows("kernels", "dur_ns")["dur_ns"].sum())

    @cached_property
    def host_idle_ns(self) -> int:
        """The idle time that the host is to blame for: what shortening its work can gain.

        The latency of a launch is idle time only where the launch came too late.
        """
        return self.idle_ns(*HOST_CAUSES, "launch_latency")

    @cached_property
    def busy_ns(self) -> int:
        """The time in which a kernel or a copy ran, added up over devices."""
        work = self.work(*TIMES)
        every = np.ones(len(work), bool)
        return sum(union_length(*ends(rows)) for rows, _ in by_device(work, every))

    @cached_property
    def has_steps(self) -> bool:
        """Whether steps were recorded."""
        return bool(len(self.steps.step))

    @cached_property
    def has_stacks(self) -> bool:
        """Whether Python frames were recorded."""
        return bool((self.rows("ranges", "kind")["kind"] == "python").any())

    @cached_property
    def is_coupled(self) -> bool:
        """Whether the rank waits for others, so that its own gain may be lost on theirs."""
        return self.world_size > 1 or bool(self.comm("kernels").any())

    @cached_property
    def devices_count(self) -> int:
        """How many devices worked; 1 where none did."""
        return max(1, len(self._idle[1]))

    @cached_property
    def replay(self) -> Replay | None:
        """The replay that says how much earlier all is done without parts; None: there is none."""
        from pyprof2.analysis.summaries.advice.without import Replay

        return None if self.is_cpu or self.clock_error_ns else Replay.of(self)

    @cached_property
    def followers(self) -> Int:
        """By id of a kernel or copy, when the next one of the stream was queued.

        That is the end of the call that launched it; `ENDLESS`: there is none, or no call.
        """
        stream, order = self.by_stream
        calls = self.rows("launches", "launch_id", "start_ns", "dur_ns")
        at = row_of(int_values(calls["launch_id"]), self.numbers("launch_id"))
        queued, device = lookup(ends(calls)[1], at, ENDLESS), narrow(self.numbers("device"))
        del at
        order = order[np.argsort(device[order], kind="stable")]
        before, after = order[:-1], order[1:]
        same = (stream[before] == stream[after]) & (device[before] == device[after])
        ids = self.numbers("kernel_id")
        found = np.full(int(ids.max(initial=-1)) + 1, ENDLESS)
        found[ids[before]] = np.where(same, queued[after], ENDLESS)
        return found

    @cached_property
    def by_stream(self) -> tuple[Int, Int]:
        """The streams of kernels and then of copies, and their order by stream and time."""
        stream = narrow(self.numbers("stream"))
        order = short(np.argsort(self.numbers("start_ns"), kind="stable"))
        return stream, order[np.argsort(stream[order], kind="stable")]

    def comm(self, name: str) -> Bool:
        """Return which kernels or copies communicate, see `is_comm`."""
        return is_comm(self.rows(name, "kernel", "category"))

    def are(self, name: str, column: str, words: Collection[str]) -> Bool:
        """Return which rows of a table have one of these texts."""
        return having(self.rows(name, column)[column], words.__contains__)

    def lacks(self, name: str, column: str) -> Bool:
        """Return which rows of a table have null in a column."""
        found: Bool = self.rows(name, column)[column].isna().to_numpy(bool)
        return found

    def named(self, name: str, column: str, wanted: re.Pattern[str]) -> Bool:
        """Return which rows of a table have a text that is wanted; asked once for each text."""
        return matches(self.rows(name, column)[column], wanted)

    @cached_property
    def clock_error_ns(self) -> int:
        """How far the clocks of host and device are apart; 0: they agree."""
        work = self.work("launch_ns", "start_ns").dropna()
        launched, start = (work[name].to_numpy("int64") for name in ("launch_ns", "start_ns"))
        return clock_error_ns(launched - start)

    def idle_of(self, *causes: str, columns: Sequence[str] = _IDLE) -> pd.DataFrame:
        """Return columns of the idle time that has one of the causes."""
        if _SELDOM.issuperset(causes) and set(columns) <= set(_OF_SELDOM):
            idle = self._idle[2]
            return idle.loc[idle["cause"].isin(causes).to_numpy(bool), [*columns]]
        return self.rows("idle", *columns, where=self.are("idle", "cause", causes))

    @cached_property
    def _idle(self) -> tuple[dict[str, int], set[int | None], pd.DataFrame]:
        """How much idle time has each cause, the devices that have any, and that of few causes."""
        times: Counter[str] = Counter()
        devices, seldom = set(), []
        for part in self.tables.parts("idle", ("device", *_OF_SELDOM)):
            code, causes = code_column(part, "cause")
            sums = sum_at(code, int_column(part, "time_ns", 0), len(causes))
            times.update(dict(zip(causes, sums.tolist(), strict=True)))
            devices.update(part["device"].unique().to_pylist())
            few = has_text(part, "cause", _SELDOM)
            seldom += [part.filter(pa.array(few))] if few.any() else []
        return times, devices, frame_of_parts(seldom or [part.slice(0, 0)], _OF_SELDOM, _short)

    def idle_ns(self, *causes: str) -> int:
        """Return how much of the idle time has one of the causes."""
        return sum(self._idle[0][cause] for cause in {*causes})

    def calls_of(self, *causes: str, above_ns: int = -1) -> pd.DataFrame:
        """Return the GPU calls of some kinds that took longer than `above_ns`."""
        wanted = self.are("launches", "cause", causes)
        if above_ns >= 0:
            wanted = wanted & (self.rows("launches", "dur_ns")["dur_ns"].to_numpy() > above_ns)
        return self.rows("launches", *CALLS, where=wanted)

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
        kept = {}
        for name in ("kernels", "copies", "idle"):
            kept[name] = ~self.rows(name, "step")["step"].isin(steps).to_numpy(bool)
        for name in ("launches", "ops", "ranges", "stalls"):
            times = self.rows(name, "start_ns")["start_ns"].to_numpy("int64")
            kept[name] = time_within(start, end, times, times + 1) == 0
        windows = StepWindows(*(column[~wanted] for column in self.steps))
        left = self.window_ns - self.devices_count * int((end - start).sum())
        found = replace(self, tables=self.tables.only(kept), window_ns=max(1, left), steps=windows)
        # Memory and server are those of all that was recorded.
        found.__dict__.update({"memory": self.memory, "server": self.server})
        return found


class ColumnsOfRank:
    """The tables of a rank, of which columns are read when a rule asks for them.

    Texts, which are codes, are kept, and whole numbers too, but for those of the longest tables,
    which are read again each time, and of those parts alone that have rows that are wanted.

    Attributes:
        for_all_rules: whether all rules will ask, so that their columns are read together.
    """

    def __init__(
        self,
        read: Callable[[str], ChunkedTable],
        judge: Callable[[pa.Table], tuple[Int, Devices]],
        kept: Mapping[str, Bool] | None = None,
    ) -> None:
        """Read nothing.

        Args:
            read: opens a canonical table of the rank by its name, columns `INPUT`.
            judge: returns the place of each row in the list of devices, and that list.
            kept: by table, which of its rows there are; not named: all.
        """
        self._read, self._judge, self._kept = read, judge, dict(kept or {})
        self._known: dict[tuple[str, str], pd.Series] = {}
        self.for_all_rules = False

    def only(self, kept: Mapping[str, Bool]) -> ColumnsOfRank:
        """Return some of the rows of tables of which all are there."""
        found = ColumnsOfRank(self._read, self._judge, kept)
        found._known, found.for_all_rules = self._known, self.for_all_rules
        return found

    def rows(self, name: str, columns: Sequence[str], where: Bool | None = None) -> pd.DataFrame:
        """Return columns of the rows that are wanted; None: of all that there are."""
        kept = self._kept.get(name)
        if kept is not None:
            rows = np.flatnonzero(kept)
            where = kept if where is None else rows_at(rows[where], len(kept))
        if where is not None and (name in _READ_AGAIN or not where.any()):
            return self._frame(name, columns, where)
        lacking = [each for each in columns if (name, each) not in self._known]
        if lacking:
            asked = _TOGETHER.get(name, ()) if self.for_all_rules else ()
            more = [each for each in asked if (name, each) not in self._known]
            read = self._frame(name, [*dict.fromkeys((*lacking, *more))])
            self._known.update({(name, str(each)): read[each] for each in read})
        found = pd.DataFrame({each: self._known[name, each] for each in columns}, copy=False)
        for each in lacking:
            kind = found[each].dtype
            if kind == np.float64 or (name in _READ_AGAIN and kind != "category"):
                del self._known[name, each]
        # Not by the mask itself: pandas would keep the numbers of all rows.
        return found if where is None else found.take(np.flatnonzero(where))

    def has(self, name: str, column: str) -> bool:
        """Return whether a column of numbers may have any; what is not kept counts, too."""
        least, most = self._read(name).bounds(column)
        return bool((least <= most).any())

    def count(self, name: str) -> int:
        """Return how many rows there are."""
        kept = self._kept.get(name)
        return self._read(name).row_count if kept is None else int(kept.sum())

    def parts(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns part by part, at least one."""
        return self._rows(name, columns, self._kept.get(name))

    def in_time(self, names: Sequence[str], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of tables together, as they are stored, in parts in order of time."""
        for parts, _ in in_time_order([*map(self._read, names)], [columns] * len(names)):
            yield pa.concat_tables(part.select(columns) for part in parts)

    def memory(self, rank: int) -> MemoryProfile:
        """Return the memory of the devices of the rank; no rule looks at that of its host."""
        memory = (
            part.filter(pa.array(~has_text(part, "device_type", ("cpu",))))
            for part in self.parts("memory", EVENTS_NEEDED)
        )
        tags = whole(self._read("memory_tags"), INPUT["memory_tags"]).unify_dictionaries()
        return MemoryProfile(Path(), list(curves_of_rank(memory, tags, rank)), tags=tags)

    def server(self, rank: int) -> ServerFacts | None:
        """Return what the rank did as an inference server."""
        if not names_steps(whole(self._read("ranges"), ["name"]).unify_dictionaries()):
            return None
        names = ("kernels", "copies", "ranges", "launches")
        tables = {name: whole(self._read(name), INPUT[name]) for name in names}
        tables = {name: table.unify_dictionaries() for name, table in tables.items()}
        return ServerFacts.of(tables, rank)

    def read(self, name: str, columns: Sequence[str], where: Bool | None = None) -> pa.Table:
        """Return columns of the rows that are wanted, of all that are stored."""
        return pa.concat_tables(self._rows(name, columns, where)).unify_dictionaries()

    def _frame(self, name: str, columns: Sequence[str], where: Bool | None = None) -> pd.DataFrame:
        count = self._read(name).row_count if where is None else int(where.sum())
        return frame_of_parts(self._rows(name, columns, where), columns, _short, count)

    def _rows(self, name: str, columns: Sequence[str], where: Bool | None) -> Iterator[pa.Table]:
        """Yield them part by part, at least one."""
        table = self._read(name)
        made = [each for each in columns if (name, each) in _MADE]
        stored = {each for each in columns if each not in made}
        stored.update(column for each in made for column in _MADE[name, each])
        if where is not None and not where.any():
            yield self._with_made(table.empty(sorted(stored)), made).select(list(columns))
            return
        for part in range(len(table)):
            own = None if where is None else where[table.offsets[part] : table.offsets[part + 1]]
            if own is None or own.any():
                rows = self._with_made(table.read(part, sorted(stored)), made)
                rows = rows.select(list(columns))
                yield rows if own is None or own.all() else rows.filter(pa.array(own))

    def _with_made(self, rows: pa.Table, made: Sequence[str]) -> pa.Table:
        """Return rows with columns that are made of them."""
        for each in made:
            match each:
                case "missed":
                    column = text_array(missed_reasons(rows, in_half=False))
                case "place":
                    column = pa.array(self._judge(rows)[0], pa.int64())
                case "loads":
                    column = pa.array(loading_ranges(rows), pa.bool_())
                case _:
                    codes, names = code_column(rows, "name")
                    column = text_array((codes, [NAMES[call_cause(text)] for text in names]))
            rows = rows.append_column(each, column)
        return rows


def facts_of_parts(
    parts: Iterable[tuple[int, Callable[[str], ChunkedTable], StepWindows]],
    windows: pd.DataFrame,
    devices: Sequence[Mapping[str, Any]],
    advice: Advice,
    override: Path | str | None = None,
    job: Together | None = None,
) -> Iterator[RankFacts]:
    """Yield what was recorded of each rank whose devices did anything.

    Args:
        parts: for each rank its number, what opens a canonical table of it by its name, columns
            `INPUT`, and when its steps were; asked for one after another, so that few of them are
            in memory together.
        windows: of all ranks, as `windows_of_ranks` returns them.
        devices: rows of the canonical table `devices`.
        advice: how to record what is not recorded.
        override: a device's name, or a file that describes one, to use instead of the recorded.
        job: what is known of all ranks together; None where one was recorded.
    """

    def judge(rows: pa.Table) -> tuple[Int, Devices]:
        return devices_of(rows, devices, override)

    for rank, read, steps in parts:
        own = windows[windows["rank"] == rank]
        if len(own):
            yield replace(_of_rank(read, own, steps, judge, advice), job=job)


def facts_of_host(
    read: Callable[[str], ChunkedTable], times: pa.Table, advice: Advice
) -> RankFacts:
    """Return what was recorded of a rank without a device.

    Args:
        read: opens a canonical table of it by its name, columns `INPUT`.
        times: of it, see `host_time.host_time`; there is a row at least.
        advice: how to record what is not recorded.
    """
    windows = host_windows(times.select(["rank", "cause", "time_ns"]).to_pandas())
    idle = InMemory(times.select(INPUT["idle"]))
    ranges = whole(read("ranges"), ["start_ns", "dur_ns", "name", "kind"]).unify_dictionaries()
    begun = ["launch_ns", "start_ns", "dur_ns"]
    work = (part for name in ("kernels", "copies") for part in chunks_of(read(name), begun))
    facts = _of_rank(
        lambda name: idle if name == "idle" else read(name), windows, step_windows(ranges, work),
        lambda rows: devices_of(rows, []), advice,
    )  # fmt: skip
    return replace(facts, is_cpu=True)


def _of_rank(
    read: Callable[[str], ChunkedTable],
    windows: pd.DataFrame,
    steps: StepWindows,
    judge: Callable[[pa.Table], tuple[Int, Devices]],
    advice: Advice,
) -> RankFacts:
    found = judge(read("kernels").empty(["device"]))[1]
    sizes = whole(read("trace"), ["world_size"])["world_size"].to_pylist()
    size = max((each or 1 for each in sizes), default=1)
    rank, window_ns = int(windows["rank"].iloc[0]), int(windows["window_ns"].sum())
    columns = ColumnsOfRank(read, judge)
    return RankFacts(rank, columns, window_ns, steps, found, size, advice)


def _short(name: str, values: Int) -> Int:
    """Return numbers of rows and devices in as little memory as they can be: it is a million."""
    return narrow(values) if name in _SHORT else values


def is_comm(kernels: pd.DataFrame) -> Bool:
    """Return which kernels communicate: collectives, and those of libraries for experts."""
    return having(kernels["category"], ("comm",).__contains__) | matches(kernels["kernel"], _TALKS)


def is_pinned(copies: pd.DataFrame) -> bool:
    """Return whether copies from the host are from memory that is pinned already, nearly all."""
    kinds = as_text(copies["copy_kind"].astype(object).fillna(""))
    time = copies["dur_ns"].to_numpy("int64")
    sent = time[kinds.str.startswith("h2d").to_numpy(bool)].sum()
    pinned = time[kinds.str.fullmatch("h2d pinned").to_numpy(bool)].sum()
    return bool(sent > 0 and pinned >= _NEARLY_ALL * sent)


def matches(names: pd.Series, wanted: re.Pattern[str]) -> Bool:
    """Return which rows have a wanted name; asked once for each name."""
    return having(names, lambda name: wanted.search(name) is not None)


def having(texts: pd.Series, is_wanted: Callable[[str], bool]) -> Bool:
    """Return which rows have a wanted text; asked once for each text."""
    hits = np.array([*map(is_wanted, texts.cat.categories), False])
    code, wanted = texts.cat.codes.to_numpy(), np.flatnonzero(hits).tolist()
    if len(wanted) > _FEW:
        return hits[code]
    return reduce(np.logical_or, (code == each for each in wanted), np.zeros(len(code), bool))


def int_values(rows: pd.Series) -> Int:
    """Return whole numbers, -1 for null."""
    plain = isinstance(rows.dtype, np.dtype)
    values: Int = rows.to_numpy(np.int64) if plain else rows.to_numpy(np.int64, na_value=-1)
    return values


def codes(rows: pd.Series) -> Int:
    """Return a number for each value of text or whole numbers, -1 for null."""
    return int_values(rows.cat.codes if rows.dtype == "category" else rows)


def rows_at(rows: Int, count: int) -> Bool:
    """Return which of so many rows these are."""
    found = np.zeros(count, bool)
    found[rows] = True
    return found


def flags(rows: pd.Series) -> Bool:
    """Return a column of truth values, where null is false."""
    found: Bool = rows.fillna(False).to_numpy(bool)  # noqa: FBT003
    return found


def by_device(work: pd.DataFrame, marks: Bool) -> Iterator[tuple[pd.DataFrame, Bool]]:
    """Yield columns `TIMES` of the rows of each device, and what marks them."""
    device = int_values(work["device"])
    devices = values_of(device).tolist()
    for each in devices:
        own = slice(None) if len(devices) == 1 else device == each
        yield work[own], marks[own]


def ends(rows: pd.DataFrame) -> tuple[Int, Int]:
    """Return when each row starts and ends."""
    start = rows["start_ns"].to_numpy("int64")
    return start, start + rows["dur_ns"].to_numpy("int64")
