"""The Python API: parse traces into a store, load a store or a trace, ask it for profiles."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pyprof2.api.displays import Displayed, Summary, shown
from pyprof2.columns import as_pandas
from pyprof2.errors import StoreError, UsageError
from pyprof2.frames import absolute
from pyprof2.pipeline.assemble import shifted
from pyprof2.store.folder import STORED, is_store, ranks_of, read_manifest, read_table
from pyprof2.store.places import place
from pyprof2.store.rank_tables import RankTables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    from dask.dataframe import DataFrame as DaskFrame

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.memory.profile import MemoryProfile
    from pyprof2.analysis.summaries.advice.facts import Facts
    from pyprof2.analysis.summaries.findings import Finding
    from pyprof2.analysis.summaries.line_profile import LineProfile, LineQuery
    from pyprof2.analysis.summaries.profile import Sums
    from pyprof2.analysis.summaries.spent import Spent
    from pyprof2.analysis.summaries.totals import Totals
    from pyprof2.analysis.summaries.work_checks import Work
    from pyprof2.api.displays import Pictures
    from pyprof2.api.job import JobOfRanks
    from pyprof2.pipeline.parsing import default_store, parse
    from pyprof2.problems import Advice

__all__ = ["Run", "default_store", "load", "parse"]

_FEW_LINKED_PCT: Final = 50
_LOOKED_THROUGH: Final = 1 << 18
"""So many kernels are looked through for what was not added up; of more it is not known."""
_OF_PARSING: Final = ("default_store", "parse")


def __getattr__(name: str) -> Any:
    """Import what makes a store when it is first used (PEP 562): to read one takes less."""
    if name not in _OF_PARSING:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module("pyprof2.pipeline.parsing"), name)
    globals()[name] = value
    return value


def load(
    path: Path | str | Sequence[Path | str],
    *,
    device: Path | str | None = None,
    source_root: Path | str | None = None,
    progress: bool = False,
) -> Run:
    """Return a store or a trace as a `Run`; a trace is parsed into a temporary store first.

    Args:
        path: a store, a trace file, a folder of traces, or several traces, one for each rank; or
            an address of such, as `s3://bucket/net.pyprof2`; or `-`, a trace on standard input.
        device: name of a device, or a JSON file that describes one, whose roofs to use instead
            of those of the recorded device.
        source_root: the folder of the user's own code, for `source`; by default the recorded one.
        progress: show a bar on stderr while parsing.

    Raises:
        TraceError, StoreError, RemoteError: the path cannot be read.
    """
    paths = [place(path)] if isinstance(path, (str, Path)) else [place(each) for each in path]
    root = None if source_root is None else absolute(source_root)
    if len(paths) == 1 and is_store(paths[0]):
        return Run(paths[0], device, root)
    from pyprof2.store.remote import here, store_named_in

    folder = tempfile.mkdtemp(prefix="pyprof2-")
    brought = Path(folder, "brought")
    try:
        with here(paths, brought, progress=progress) as found:
            store = _only_store(found.paths)
            if store is None and len(paths) == 1:
                store = store_named_in(found.paths[0])
            if store is not None:
                run = Run(store, device, root)
            else:
                from pyprof2.pipeline.parsing import parse_found

                out = Path(folder, "store")
                run = Run(parse_found(found, out, source_root=root, progress=progress), device)
                shutil.rmtree(brought, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run


def _only_store(paths: Sequence[Path]) -> Path | None:
    """Return the store, if that is what the one path leads to.

    Raises:
        UsageError: a store is among several.
        StoreError: a folder has the name of a store, and is none.
    """
    if len(paths) == 1 and is_store(paths[0]):
        return paths[0]
    for each in paths:
        if is_store(each):
            msg = f"{each}: a store is read alone; name the recordings of all ranks, or parse them"
            raise UsageError(msg)
        if each.is_dir() and each.suffix == ".pyprof2":
            read_manifest(each)
    return None


@dataclass
class Run(Displayed):
    """A store, as DataFrames: one per canonical table, read when first asked for.

    Attributes:
        path: the store.
        device: name or file of the device whose roofs to use; None: the recorded one.
        source_root: the folder of the user's own code; None: the one that the store was made with.
        first_ids: of one span of each rank, what to add to its ids, by rank and column, to have
            those of all spans.
        whole: the run of all spans, where this is of one of each rank.
    """

    path: Path
    device: Path | str | None = None
    source_root: str | None = None
    first_ids: Mapping[int, Mapping[str, int]] = field(default_factory=dict, repr=False)
    whole: Run | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Read the manifest, which refuses what is no store.

        Raises:
            UsageError: `device` is neither a name that is known nor a file.
        """
        self.manifest = read_manifest(self.path)
        if self.device is not None:
            from pyprof2.analysis.hardware.verdict import named_device

            named_device(self.device)

    @cached_property
    def _ranks(self) -> list[RankTables]:
        return [
            RankTables(self.path, rank, self.device, self.source_root)
            for rank in ranks_of(self.path)
        ]

    @cached_property
    def plot(self) -> Pictures:
        """Pictures for notebooks, `roofline`, `timeline`, `steps` and `idle`; they need plotly.

        See `pyprof2.reports.notebook_plots.Plots`.
        """
        pictures: Pictures = shown("plot", self)
        return pictures

    def tables_of(self, rank: int | None = None) -> list[RankTables]:
        """Return the tables of one rank, or of each.

        Raises:
            UsageError: there is no such rank.
        """
        found = [each for each in self._ranks if rank in {None, each.rank}]
        if not found:
            msg = f"rank {rank}: no such rank; there is {_listed([r.rank for r in self._ranks])}"
            raise UsageError(msg)
        return found

    @cached_property
    def spans(self) -> dict[int, list[int]]:
        """The spans of each rank in order of time, which are its recordings by one worker."""
        traces = ((rank.rank, rank.read("trace", ["span"])["span"]) for rank in self._ranks)
        return {rank: sorted(set(column.to_pylist())) for rank, column in traces}

    def of_span(self, span: int | str) -> Run:
        """Return the run of one span of each rank, or of all, whose ids stay as they are.

        Args:
            span: a number, of the ranks that have it; `latest`: each rank's own; `all`.

        Raises:
            UsageError: there is no such span.
        """
        chosen = {
            rank: own[-1] if span == "latest" else int(span)
            for rank, own in self.spans.items()
            if span == "latest" or span in own
        }
        if span == "all" or all(own == [chosen.get(rank)] for rank, own in self.spans.items()):
            return self
        if not chosen:
            numbers = sorted({number for own in self.spans.values() for number in own})
            msg = f"span {span}: no such span; there is {_listed(numbers)}, latest and all"
            raise UsageError(msg)
        from pyprof2.pipeline.spans import write_spans

        folder = tempfile.mkdtemp(prefix="pyprof2-")
        try:
            store = Path(folder) / "store"
            first_ids = write_spans(self.path, chosen, store)
            run = Run(store, self.device, self.source_root, first_ids, self)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
        return run

    @property
    def span_option(self) -> str:
        """What a command line says to have this run of the store, such as ` --span 0`."""
        if self.whole is None:
            return " --span all" if any(len(own) > 1 for own in self.spans.values()) else ""
        latest = {rank: own[-1:] for rank, own in self.whole.spans.items()}
        chosen = next(iter(self.spans.values()))[0]
        return "" if self.spans == latest else f" --span {chosen}"

    def table(self, name: str) -> pa.Table:
        """Return a table of the store as Arrow, the ranks one after another."""
        return pa.concat_tables([rank.read(name) for rank in self._ranks]).unify_dictionaries()

    def dask(self, name: str) -> DaskFrame:
        """Return a table of the store as a Dask dataframe, a partition for each rank.

        Needs the extra `[dask]`; the columns have the types of `run.kernels` and the others.

        Raises:
            UsageError: there is no such table, or Dask is not installed.
        """
        from pyprof2.store.clusters import dask_frame

        return dask_frame(self._ranks, name)

    def tables_of_ranks(self, name: str) -> Iterator[tuple[int, pa.Table]]:
        """Yield each rank with its rows of a table of the store."""
        for rank in self._ranks:
            yield rank.rank, rank.read(name)

    def _frame(self, name: str) -> pd.DataFrame:
        return as_pandas(self.table(name), STORED[name].never_null)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """One row per kernel execution."""
        return self._frame("kernels")

    @cached_property
    def copies(self) -> pd.DataFrame:
        """One row per memcpy or memset."""
        return self._frame("copies")

    @cached_property
    def launches(self) -> pd.DataFrame:
        """One row per call of the GPU runtime or driver."""
        return self._frame("launches")

    @cached_property
    def ops(self) -> pd.DataFrame:
        """One row per PyTorch op call."""
        return self._frame("ops")

    @cached_property
    def estimates(self) -> pd.DataFrame:
        """One row per distinct way in which the counts of ops came about."""
        return self._frame("estimates")

    @cached_property
    def signatures(self) -> pd.DataFrame:
        """One row per distinct op with its inputs."""
        return self._frame("signatures")

    @cached_property
    def stacks(self) -> pd.DataFrame:
        """One row per distinct frame outside of torch, with those that it was called from."""
        return self._frame("stacks")

    @cached_property
    def source_roots(self) -> list[str]:
        """The folders of the user's own code, the longest first."""
        if self.source_root is not None:
            return [self.source_root]
        roots = set(read_table(self.path, "trace", ["source_root"])[0].to_pylist())
        return sorted((root for root in roots if root), key=len, reverse=True)

    @cached_property
    def ranges(self) -> pd.DataFrame:
        """One row per step, annotation, module or Python frame."""
        return self._frame("ranges")

    @cached_property
    def memory(self) -> pd.DataFrame:
        """One row per allocation or release."""
        return self._frame("memory")

    @cached_property
    def memory_tags(self) -> pd.DataFrame:
        """One row per block whose use the recorded program says, and per moment of that."""
        return self._frame("memory_tags")

    @cached_property
    def weights(self) -> pd.DataFrame:
        """One row per parameter and buffer that the recorded program names, the last of each."""
        from pyprof2.analysis.memory.tags import last_weights

        return as_pandas(last_weights(self.table("weights")), STORED["weights"].never_null)

    @cached_property
    def counters(self) -> pd.DataFrame:
        """One row per value of a counter, sampled at a moment or counted over a range."""
        return self._frame("counters")

    def memory_by_device(self) -> MemoryProfile:
        """Return the memory of all devices over time, as `pyprof2.memory` does of a path."""
        from pyprof2.analysis.memory.curves import curves_of_rank
        from pyprof2.analysis.memory.profile import MemoryProfile
        from pyprof2.analysis.memory.tags import last_weights

        tags = self.table("memory_tags")
        curves = [
            curve
            for rank, table in self.tables_of_ranks("memory")
            for curve in curves_of_rank(table, tags, rank)
        ]
        curves.sort(key=lambda curve: (curve.rank, curve.device_type == "cpu", curve.device or 0))
        weights = last_weights(self.table("weights"))
        starts = self.trace.groupby("rank")["start_ns"].min().dropna()
        begins = {int(str(rank)): int(start) for rank, start in starts.items()}
        return MemoryProfile(self.path, curves, {}, tags, weights, self._forward_times, begins)

    def _forward_times(self, rank: int) -> pd.DataFrame:
        """Return the times of forward of a rank's layers."""
        from pyprof2.analysis.memory.retained import forward_times

        columns = ("layer", "direction", "recompute", "step")
        (tables,) = self.tables_of(rank)
        kernels, ops = (
            tables.read(name, (*columns, time))
            for name, time in (("kernels", "dur_ns"), ("ops", "self_ns"))
        )
        return forward_times(kernels, ops)

    @cached_property
    def stalls(self) -> pd.DataFrame:
        """One row per interval in which profiler, driver or a wait held the host or a stream up."""
        return self._frame("stalls")

    @cached_property
    def idle(self) -> pd.DataFrame:
        """One row per piece of the time in which a device did nothing, with its cause."""
        found = self.idle_table() if self.source_root is None else self._idle_of_root
        return as_pandas(found, STORED["idle"].never_null)

    @cached_property
    def spent(self) -> Spent:
        """Where the time of the devices went, in steps or in all that was recorded.

        See `pyprof2.analysis.summaries.spent.Spent`.
        """
        from pyprof2.analysis.summaries.spent import IDLE_INPUT, idle_sums, spent

        if self.source_root is None and all(rank.has("idle_sums") for rank in self._ranks):
            idle = pa.concat_tables([rank.read("idle_sums") for rank in self._ranks])
        else:
            idle = idle_sums(self.idle_parts(IDLE_INPUT))
        return spent(self.summary, self._steps, idle.to_pylist(), lambda: self.recorded_parts)

    @cached_property
    def _steps(self) -> list[dict[str, Any]]:
        """What the heading says of the steps is made of this."""
        from pyprof2.analysis.summaries.spent import OF_STEPS
        from pyprof2.analysis.time.steps import SHARES

        rows: list[dict[str, Any]] = read_table(
            self.path, "steps", [*OF_STEPS, *SHARES]
        ).to_pylist()
        return rows

    def idle_parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of the table `idle` in parts, so that not all of it is in memory."""
        if self.source_root is not None:
            yield self._idle_of_root.select(columns)
            return
        for table in (rank.parts("idle") for rank in self._ranks):
            yield from (table.read(part, columns) for part in range(len(table)))

    @cached_property
    def _idle_of_root(self) -> pa.Table:
        """The table `idle` with the lines that `source_root` leads to, which takes long to find."""
        return self.idle_table()

    def _idle_of(self, rank: RankTables) -> pa.Table:
        """Return the table `idle` of a rank."""
        from pyprof2.analysis.time.idle import INPUT, idle_of_ranks

        if self.source_root is None:
            return rank.read("idle")
        return idle_of_ranks(rank.several(INPUT), self.source_root)

    def idle_table(self, normal_gap_us: float | None = None) -> pa.Table:
        """Return the table `idle` as Arrow, found anew where an argument is given.

        Args:
            normal_gap_us: how long a gap of queued work, or the time from a launch to its start,
                may be that needs no other reason; None: 30 us.
        """
        from pyprof2.analysis.time.idle import INPUT, idle_of_ranks
        from pyprof2.analysis.time.idle_causes import NORMAL_GAP_NS

        if normal_gap_us is None and self.source_root is None:
            return self.table("idle")
        normal_ns = NORMAL_GAP_NS if normal_gap_us is None else round(1000 * normal_gap_us)
        parts = [idle_of_ranks(r.several(INPUT), self.source_root, normal_ns) for r in self._ranks]
        return pa.concat_tables(parts).unify_dictionaries()

    @cached_property
    def idle_windows(self) -> pd.DataFrame:
        """How long each device was recorded, active, busy and idle.

        See `pyprof2.analysis.time.recordings.windows_of_ranks`.
        """
        import pandas as pd

        from pyprof2.analysis.time.idle import INPUT
        from pyprof2.analysis.time.recordings import windows_of_ranks

        needed = {name: INPUT[name] for name in ("kernels", "copies", "trace")}
        parts = [windows_of_ranks(rank.several(needed)) for rank in self._ranks]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def host_time(self) -> pd.DataFrame:
        """What steps waited for where no device worked (ops, data, Python); else no row.

        See `pyprof2.analysis.time.host_time.host_time`.
        """
        parts = [STORED["idle"].empty(), *self._host_times.values()]
        table = pa.concat_tables(parts).unify_dictionaries()
        return as_pandas(table, STORED["idle"].never_null)

    @cached_property
    def _host_times(self) -> dict[int, pa.Table]:
        """What `host_time` returns, by rank; nothing where a device worked."""
        from pyprof2.analysis.time.host_time import host_time
        from pyprof2.analysis.time.idle import INPUT

        ranks = self._ranks if self.idle_windows.empty else []
        found = {rank.rank: host_time(rank.several(INPUT), self.source_root) for rank in ranks}
        return {rank: table for rank, table in found.items() if table.num_rows}

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

    @cached_property
    def launch_delays(self) -> pd.DataFrame:
        """How long each kernel and copy waited after its launch.

        See `pyprof2.analysis.time.queue.launch_delays`.
        """
        from pyprof2.analysis.time.queue import launch_delays

        return self._of_ranks(launch_delays)

    @cached_property
    def queue(self) -> pd.DataFrame:
        """How much was queued and running on each stream, at every change.

        See `pyprof2.analysis.time.queue.queue_depth`.
        """
        from pyprof2.analysis.time.queue import queue_depth

        return self._of_ranks(queue_depth)

    def _of_ranks(
        self, analysis: Callable[[pa.Table, pa.Table, pa.Table], pa.Table]
    ) -> pd.DataFrame:
        """Return what an analysis makes of the kernels, copies and launches of each rank."""
        import pandas as pd

        from pyprof2.analysis.time.idle import INPUT

        needed = {name: INPUT[name] for name in ("kernels", "copies", "launches")}
        frames = []
        for rank in self._ranks:
            frames.append(as_pandas(analysis(*rank.several(needed).values())))
            frames[-1].insert(0, "rank", rank.rank)
        return pd.concat(frames, ignore_index=True)

    def idle_profile(
        self,
        by: str | Sequence[str] = ("group", "cause"),
        *,
        rank: int | None = None,
        normal_gap_us: float | None = None,
    ) -> pd.DataFrame:
        """Return what `pyprof2 idle` prints.

        Args:
            by: one or more of `cause`, `group`, `source`, `op`, `layer`, `call`, `step`,
                `thread`, `device`, `rank`, `note`.
            rank: only this one.
            normal_gap_us: see `idle_table`.

        Raises:
            UsageError: an axis or the rank is unknown.
        """
        from pyprof2.analysis.summaries.idle_profile import summarize_idle

        frame, windows = self.idle_and_windows(rank, normal_gap_us)
        axes = (by,) if isinstance(by, str) else tuple(by)
        return summarize_idle(frame, axes, int(windows["window_ns"].sum()))

    def memory_profile(
        self,
        by: str | Sequence[str] = "category",
        *,
        at: str = "peak",
        device: str | None = None,
        rank: int | None = None,
    ) -> pd.DataFrame:
        """Return what lives at a moment, as `pyprof2 memory` shows it.

        Args:
            by: one or more of `category`, `certainty`, `layer`, `line`, `op`, `phase`,
                `released`, `step`, `line_before`.
            at: `peak`, `end`, `backward` (the start of one) or `oom`.
            device: only this one, such as `cuda:0` or `cpu`.
            rank: only this one.

        Returns:
            Rows of `pyprof2.analysis.memory.live.ROW_COLUMNS`, which add up to what is allocated
            on each device. For its totals, timeline and growth: `pyprof2.memory(path)`.

        Raises:
            UsageError: an axis, the moment, the device or the rank is unknown.
        """
        axes = (by,) if isinstance(by, str) else tuple(by)
        return self.memory_by_device().only(device, rank).rows(axes, at)

    def memory_by_op(self, window_ms: tuple[float, float] | None = None) -> pd.DataFrame:
        """Return what each op allocated and released, its own and with the ops inside of it.

        Args:
            window_ms: first and last moment since the recording of the rank began, both included;
                None: the whole recording.

        Returns:
            A row per rank, device and op, with
            `pyprof2.analysis.memory.op_memory.STATISTICS_COLUMNS`.
        """
        import pandas as pd

        from pyprof2.analysis.memory.op_memory import MEMORY_NEEDED, OPS_NEEDED, memory_by_op

        begins = self.trace.groupby("rank")["start_ns"].min()
        parts = []
        for rank in self._ranks:
            window = None
            if window_ms is not None:
                first, last = (int(begins[rank.rank]) + round(ms * 1e6) for ms in window_ms)
                window = first, last
            tables = rank.several({"memory": MEMORY_NEEDED, "ops": OPS_NEEDED})
            parts.append(memory_by_op(tables["memory"], tables["ops"], rank.rank, window))
        return pd.concat(parts, ignore_index=True)

    def advise(self) -> pd.DataFrame:
        """Return what `pyprof2 advise` prints, silent rules too.

        Times at stake overlap: never add them up, see `gain_bounds`. The columns are those of
        `pyprof2.result_tables.ADVICE`.
        """
        return self._advice[0]

    @cached_property
    def gain_bounds(self) -> pd.DataFrame:
        """What the remedies of all findings together can gain at most, for each rank.

        See `pyprof2.analysis.summaries.advice.advise.gain_bound`.
        """
        return self._advice[1]

    @cached_property
    def _advice(self) -> tuple[pd.DataFrame, pd.DataFrame, list[Finding]]:
        """What rules find, the joint bounds, and what `_pollution` returns for this device."""
        from pyprof2.analysis.summaries.advice import advice_of_facts, noting_pollution

        polluted: list[Finding] = []
        facts = noting_pollution(self._facts(self.device), polluted)
        return *advice_of_facts(facts), polluted

    def _pollution(self) -> Iterable[Finding]:
        """Return what in the recording is the recorder's doing, or the start's."""
        from pyprof2.analysis.summaries.advice import find_pollution

        # To put the facts together takes longer than all rules: where they were, they said it.
        if self.device is None and "_advice" in self.__dict__:
            return self._advice[2]
        return find_pollution(self._facts())

    def _facts(self, device: Path | str | None = None) -> Iterator[Facts]:
        """Yield what rules look at: of ranks whose devices did anything, else of their hosts."""
        from pyprof2.analysis.summaries.advice.facts import INPUT, facts_of_host, facts_of_parts

        def of_rank(rank: RankTables) -> Callable[[str], pa.Table]:
            return lambda name: rank.read(name, INPUT[name])

        if self.idle_windows.empty:
            hosts = self._host_times
            own = [rank for rank in self._ranks if rank.rank in hosts]
            return (facts_of_host(of_rank(rank), hosts[rank.rank]) for rank in own)

        devices = self.table("devices").to_pylist()
        job = self.ranks if len(self._ranks) > 1 else None
        return facts_of_parts(map(of_rank, self._ranks), devices, device, job)

    @cached_property
    def devices(self) -> pd.DataFrame:
        """One row per device that the recording lists."""
        return self._frame("devices")

    @cached_property
    def trace(self) -> pd.DataFrame:
        """One row per recording."""
        return self._frame("trace")

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per device and window of a step, with what the device did in it."""
        return self._frame("steps")

    @cached_property
    def energy(self) -> pd.DataFrame:
        """What a step takes of energy, one row per counter; empty where none was read.

        See `pyprof2.analysis.time.energy.energy`.
        """
        import pandas as pd

        from pyprof2.analysis.time.energy import KIND, RANGES, energy
        from pyprof2.result_tables import ENERGY

        # Names of ranges are long, and most recordings have no reading.
        having = [r for r in self._ranks if KIND in self._kinds_of_ranges[r.rank]]
        parts = [energy(r.read("ranges", RANGES), self.steps, r.rank) for r in having]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=ENERGY.names)

    @cached_property
    def _kinds_of_ranges(self) -> dict[int, list[str]]:
        """The kinds of ranges that each rank has."""
        kinds = {rank.rank: rank.read("ranges", ["kind"])["kind"] for rank in self._ranks}
        return {rank: kind.unique().to_pylist() for rank, kind in kinds.items()}

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """One row per rank's part in one collective, with its wait where it could be matched."""
        return self._frame("collectives")

    @cached_property
    def clocks(self) -> pd.DataFrame:
        """How the clock of each rank differs from that of a reference rank, one row per rank."""
        return self._frame("clocks")

    @cached_property
    def ranks(self) -> JobOfRanks:
        """What all ranks together tell; see `pyprof2.api.job.JobOfRanks`."""
        from pyprof2.api.job import JobOfRanks

        return JobOfRanks(self)

    @cached_property
    def step_parts(self) -> pd.DataFrame:
        """The parts that the windows of steps are made of, and add up to.

        One row per device, window and part, with `rank`, `device`, `step`, `start_ns` of the
        window, `part` and `time_ns`; see `pyprof2.analysis.time.step_parts.step_parts`.
        """
        import pandas as pd

        parts = [self._parts_of(rank) for rank in self._ranks]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def plugin_steps(self) -> pd.DataFrame:
        """A row for each step by what was at work, as the TensorBoard plugin counts it."""
        from pyprof2.analysis.time.plugin_steps import NEEDED, plugin_steps

        parts = [plugin_steps(rank.several(NEEDED), rank.rank) for rank in self.counted_ranks]
        return as_pandas(pa.concat_tables(parts), ("rank",))

    @cached_property
    def recorded_parts(self) -> pd.DataFrame:
        """The parts that all that was recorded of each device is made of, and adds up to.

        One row per device and part, with `rank`, `device`, `part` and `time_ns`; see
        `pyprof2.analysis.time.step_parts.recorded_parts`.
        """
        import pandas as pd

        from pyprof2.analysis.time.step_parts import recorded_parts

        parts = [
            _known_device(recorded_parts(*self._parts_input(rank))).assign(rank=rank.rank)
            for rank in self._ranks
        ]
        return pd.concat(parts, ignore_index=True)[["rank", "device", "part", "time_ns"]]

    def _parts_of(self, rank: RankTables) -> pd.DataFrame:
        from pyprof2.analysis.time.step_parts import step_parts
        from pyprof2.analysis.time.step_windows import StepWindows

        windows = StepWindows.of(rank.read("steps"))
        parts = _known_device(step_parts(*self._parts_input(rank), windows))
        at = parts["window"].to_numpy("int64")
        found = parts.assign(rank=rank.rank, step=windows.step[at], start_ns=windows.start[at])
        return found[["rank", "device", "step", "start_ns", "part", "time_ns"]]

    def _parts_input(self, rank: RankTables) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Return kernels, copies and idle time of a rank, with the columns that parts need."""
        from pyprof2.analysis.time.step_parts import INPUT

        kernels, copies = (rank.read(name, INPUT[name]) for name in ("kernels", "copies"))
        return kernels, copies, self._idle_of(rank).select(INPUT["idle"])

    @cached_property
    def line_table(self) -> pd.DataFrame:
        """The table `lines`: what each line of code costs, by step, op, phase and ledger."""
        return self._frame("lines")

    def lines(self, **query: Any) -> pd.DataFrame:
        """Return what `pyprof2 lines` prints: a tree of files, lines and ops with their times.

        Args:
            **query: `ledger`, `phase`, `step` (a number or first and last), `rank`, `within`,
                `depth`: see `pyprof2.analysis.summaries.line_profile.LineQuery`.

        Raises:
            UsageError: there is no such ledger, phase, step, rank or module.
        """
        from pyprof2.analysis.summaries.line_profile import LineQuery

        step = query.pop("step", None)
        steps = (step, step) if isinstance(step, int) else step
        return self.line_profile(LineQuery(steps=steps, **query)).table

    def line_profile(self, query: LineQuery) -> LineProfile:
        """Return what lines cost; see `pyprof2.analysis.summaries.line_profile`."""
        from pyprof2.analysis.summaries.line_profile import line_profile

        stacks = {
            rank.rank: rank.read("stacks", ["stack_id", "caller_id", "line"])
            for rank in self._ranks
        }
        roots = {rank.rank: self._root_of(rank) for rank in self._ranks}
        return line_profile(self.line_table, stacks, self.steps, query, roots)

    @cached_property
    def lines_are_functions(self) -> bool:
        """Whether torch.profiler recorded Python frames, whose line is where a function begins."""
        return any("python" in kinds for kinds in self._kinds_of_ranges.values())

    def _root_of(self, rank: RankTables) -> str | None:
        """Return the folder of the user's own code in a rank."""
        if self.source_root is not None:
            return self.source_root
        roots: list[str] = rank.read("trace", ["source_root"])["source_root"].to_pylist()
        return next((root for root in roots if root), None)

    @cached_property
    def use_over_steps(self) -> pd.DataFrame:
        """How each device was used from the start of the first step to the end of the last.

        See `pyprof2.analysis.time.steps.use_over_steps`.
        """
        import pandas as pd

        from pyprof2.analysis.time.steps import INPUT, use_over_steps

        parts = [use_over_steps(rank.several(INPUT)) for rank in self._ranks]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def device_shares(self) -> dict[str, float | None]:
        """GPU utilization, SM efficiency and occupancy over all steps, in %; null where unknown.

        Without steps they are from the first activity to the last; of more kernels than can be
        looked through in passing only the first is known.
        """
        from pyprof2.analysis.time.steps import SHARES, mean_shares

        if self._steps:
            return mean_shares(self._steps, "dur_ns")
        if self.summary["kernel_count"] > _LOOKED_THROUGH:
            busy, span = (self.summary[name] for name in ("busy_kernels_ns", "gpu_span_ns"))
            return dict.fromkeys(SHARES) | {SHARES[0]: 100 * busy / span if span else None}
        use = self.use_over_steps.astype(object)
        rows = use.where(use.notna(), None).to_dict("records")
        return mean_shares([{str(k): v for k, v in row.items()} for row in rows], "window_ns")

    @cached_property
    def tensor_core_pct(self) -> float | None:
        """The share of the kernels' time that used Tensor Cores, of those with a verdict."""
        share: float | None = self.sums(()).total()["tensor_core_pct"]
        return share

    @cached_property
    def _totals(self) -> list[Totals]:
        """The totals of each rank."""
        from pyprof2.analysis.summaries.totals import Totals

        found = [Totals.of(rank.read("summary")) for rank in self._ranks]
        if self.source_root is None:
            return found
        from pyprof2.analysis.summaries.summary import with_source

        lines = [
            [rank.read(name, ["source"]) for name in ("kernels", "ops")] for rank in self._ranks
        ]
        return [replace(each, **with_source(*own)) for each, own in zip(found, lines, strict=True)]

    @property
    def _counted(self) -> Iterator[tuple[RankTables, Totals]]:
        """The ranks that a profile is of: where any has GPU activity, only those that have."""
        from pyprof2.analysis.summaries.totals import counted

        chosen = {each.rank for each in counted(self._totals)}
        for rank, totals in zip(self._ranks, self._totals, strict=True):
            if rank.rank in chosen:
                yield rank, totals

    @property
    def counted_ranks(self) -> list[RankTables]:
        """The tables of the ranks that a profile is of."""
        return [rank for rank, _ in self._counted]

    @cached_property
    def summary(self) -> Summary:
        """Totals, busy time and coverage; see `pyprof2.analysis.summaries.summary.summary`."""
        from pyprof2.analysis.summaries.totals import summary

        times: dict[str, int] = {}
        for rank, _ in self._counted:
            for row in rank.read("ledger", ["bin", "time_ns"]).to_pylist():
                times[row["bin"]] = times.get(row["bin"], 0) + row["time_ns"]
        steps = read_table(self.path, "steps", ["step"])["step"].to_pylist()
        return Summary(summary(self._totals, steps, times))

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """All GPU time, without a GPU all op time, by what is known of the work.

        See `pyprof2.analysis.summaries.ledger.ledger`.
        """
        from pyprof2.analysis.summaries.ledger import merge_ledgers

        return merge_ledgers([rank.read("ledger").to_pandas() for rank, _ in self._counted])

    @cached_property
    def utilization(self) -> pd.DataFrame:
        """MFU and HFU of each step; see `pyprof2.analysis.summaries.utilization.utilization`."""
        from pyprof2.analysis.summaries.utilization import COLUMNS

        return as_pandas(self._utilization).astype(COLUMNS)

    @cached_property
    def utilization_rows(self) -> list[dict[str, Any]]:
        """The rows of `utilization`, null as None; they take less to read."""
        rows: list[dict[str, Any]] = self._utilization.to_pylist()
        return rows

    @cached_property
    def _utilization(self) -> pa.Table:
        if self.device is None:
            return read_table(self.path, "utilization")
        return pa.concat_tables([self._utilization_of(rank) for rank in self._ranks])

    def _utilization_of(self, rank: RankTables) -> pa.Table:
        """Return the utilization of a rank with the peaks of the device that was named."""
        from pyprof2.analysis.parted import InMemory
        from pyprof2.analysis.summaries.utilization import NEEDED, utilization
        from pyprof2.analysis.time.step_windows import StepWindows

        windows = StepWindows.of(rank.read("steps"))
        tables = {name: InMemory(table) for name, table in rank.several(NEEDED).items()}
        return utilization(tables, windows, rank.devices(), self.device, rank.rank)

    @cached_property
    def stored_sums(self) -> Sums | None:
        """What `parse` added up of the rows of axis `kernel`.

        None where it did not: there is no GPU activity, there would be too many sums, or an older
        version wrote the store; and where the lines or roofs of the rows are to be others.
        """
        from pyprof2.analysis.summaries.profile import Sums
        from pyprof2.analysis.summaries.sums import sums_stored

        ranks = [] if self.summary["no_gpu"] else self.counted_ranks
        others = self.device is not None or self.source_root is not None
        if others or not all(r.has(name) for r in ranks for name in ("sums", "sum_calls")):
            return None
        parts = [[rank.read(name) for name in ("sums", "sum_calls")] for rank in ranks]
        if not parts or not all(sums.num_rows for sums, _ in parts):
            return None
        found = [sums_stored(*each) for each in parts]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            where = self.path / "sums"
            msg = (
                f"{where}: names rows that do not exist; make it anew with 'pyprof2 parse --force'"
            )
            raise StoreError(msg)
        return Sums.together(known)

    def sums(self, keys: Collection[str], *, means: Sequence[str] = (), **selection: Any) -> Sums:
        """Return the rows of axis `kernel` added up by some columns, stored or found now.

        Args:
            keys: the columns, of those of the profile and of
                `pyprof2.analysis.summaries.rows.HIDDEN`.
            means: of which of `MEANS` to have the sums.
            **selection: which rows, see `pyprof2.analysis.summaries.profile.fits`.

        Raises:
            UsageError: a regular expression is malformed, or the steps are out of order.
        """
        from pyprof2.analysis.summaries.profile import Sums
        from pyprof2.analysis.summaries.profile_columns import columns_of

        stored = self.stored_sums
        if stored is not None and not means and stored.keys.keys() >= {
            *keys, *columns_of(selection),
        }:  # fmt: skip
            return stored.select(**selection)
        return Sums.together(
            [self._sums_of(*each, keys, means, selection) for each in self._counted]
        )

    def _sums_of(
        self,
        rank: RankTables,
        totals: Totals,
        keys: Collection[str],
        means: Sequence[str],
        selection: Mapping[str, Any],
    ) -> Sums:
        """Return the rows of a rank added up."""
        from pyprof2.analysis.summaries import rows
        from pyprof2.analysis.summaries.sums import sums_of_rank

        beside = self._beside(rank, keys)

        def read(columns: Sequence[str]) -> Iterator[pa.Table]:
            if totals.has_gpu:
                return rows.activity_parts(rank.in_parts, columns, beside)
            ops = rank.read("ops", rows.op_columns(columns))
            texts = rank.read("signatures", ["signature"])
            devices = rank.devices()
            return iter([rows.op_rows(ops, texts, devices, self.device, columns, beside)])

        return sums_of_rank(
            read,
            keys,
            rank.rank,
            op_count=rank.parts("ops").row_count if totals.has_gpu else None,
            selection=selection,
            means=means,
        )

    def time_by(self, column: str) -> dict[str, int]:
        """Return the time of the rows of axis `kernel` by a text, in the order in which they come.

        Args:
            column: `category`, `copy_kind`, `op`, or `tensor_core` where nothing was added up.
        """
        return self.sums((column,)).time_by(column)

    def rows(self, columns: Collection[str] | None = None) -> pd.DataFrame:
        """Return the rows of axis `kernel`: GPU activities, or op calls where there are none.

        Args:
            columns: which to read, of those of the profile and of
                `pyprof2.analysis.summaries.rows.HIDDEN`; by default all.
        """
        from pyprof2.analysis.summaries import rows

        wanted = rows.ALL if columns is None else columns
        counted = list(self._counted)
        has_gpu = any(totals.has_gpu for _, totals in counted)
        # Of a million kernels all columns at once take half a gigabyte until they are DataFrames.
        parts = rows.portions(wanted) if has_gpu else [wanted]
        orders: dict[int, Int] = {}
        frames = (
            rows.frame(
                [
                    shifted(
                        self._rows_of(*each, part, orders), self.first_ids.get(each[0].rank, {})
                    )
                    for each in counted
                ]
            )
            for part in parts
        )
        return rows.beside(frames)

    def _rows_of(
        self, rank: RankTables, totals: Totals, wanted: Collection[str], orders: dict[int, Int]
    ) -> pa.Table:
        """Return columns of the rows of a rank, and note their order for the next ones."""
        from pyprof2.analysis.summaries import rows

        beside = self._beside(rank, wanted)
        if totals.has_gpu:
            stored = rows.activity_columns(wanted, ordered=rank.rank in orders)
            kernels, copies = (rank.read(name, stored) for name in ("kernels", "copies"))
            if rank.rank not in orders:
                orders[rank.rank] = rows.order_of(kernels, copies)
            return rows.activity_rows(kernels, copies, wanted, orders[rank.rank], beside)
        ops, texts = (
            rank.read("ops", rows.op_columns(wanted)),
            rank.read("signatures", ["signature"]),
        )
        return rows.op_rows(ops, texts, rank.devices(), self.device, wanted, beside)

    def _beside(self, rank: RankTables, wanted: Collection[str]) -> dict[str, pa.Table]:
        """Return the tables that some columns of rows need, see `rows.BESIDE`."""
        from pyprof2.analysis.summaries.rows import BESIDE

        return {name: rank.read(*BESIDE[name]) for name in BESIDE if name in wanted}

    def with_calls(
        self,
        sums: pd.DataFrame,
        by: Sequence[str],
        depth: int | None = None,
        *,
        fold_numbers: bool = False,
        **selection: Any,
    ) -> pd.DataFrame:
        """Return sums along axes with what is told of op calls; along axis `layer` of modules.

        Args:
            sums: what `pyprof2.analysis.summaries.profile.Sums` gave along them.
            by: the axes.
            depth: as for `profile`.
            fold_numbers: as for `profile`.
            **selection: as for `profile`, by what op calls have.

        Raises:
            UsageError: it is selected by what only kernels have.
        """
        from pyprof2.analysis.summaries import call_sums
        from pyprof2.analysis.summaries.profile import chosen
        from pyprof2.analysis.summaries.profile_columns import (
            AXES,
            check_selects_calls,
            columns_of,
        )

        check_selects_calls(selection, modules=list(by) == ["layer"])
        if list(by) == ["layer"]:
            from pyprof2.analysis.summaries import module_sums

            parts = [
                module_sums.module_calls(rank.several(module_sums.NEEDED), rank.rank)
                for rank in self.counted_ranks
            ]
            own = {name: selection.get(name) for name in ("rank", "layer")}
            return module_sums.with_modules(sums, parts, depth, **own)
        wanted = {*(AXES[axis] for axis in by), *columns_of(selection), "rank"}
        names = call_sums.op_columns(wanted)
        found = []
        for rank in self.counted_ranks:
            tables = rank.several({**call_sums.NEEDED, "ops": names})
            signatures = rank.read("signatures", ["signature"])
            calls = call_sums.op_calls(tables, signatures, rank.read("stacks"), wanted)
            found.append(chosen(calls, **selection))
        every = pa.concat_tables(found).unify_dictionaries()
        return call_sums.with_calls(sums, every, by, depth, fold_numbers=fold_numbers)

    def profile(
        self,
        by: str | Sequence[str] = "kernel",
        *,
        depth: int | None = None,
        fold_numbers: bool = False,
        span: int | str = "latest",
        columns: Sequence[str] = (),
        **selection: Any,
    ) -> pd.DataFrame:
        """Return what `pyprof2 prof` prints.

        Args:
            by: `kernel`, or one or more of the axes `name`, `op`, `signature`, `layer`, `range`,
                `source`, `library`, `stack`, `direction`, `step`, `stream`, `rank`, `category`,
                `span`, `tensor_core`, `grid`, `block`, `registers`, `shared_bytes`.
            depth: of the axes `layer` and `range`: how many names of a path to keep.
            fold_numbers: of axis `range`: put together those that differ in numbers alone.
            span: see `of_span`; with axis `span` all, unless one is named.
            columns: of sums, which to give beside the usual ones, of those that
                `pyprof2.analysis.summaries.profile_columns.asked_columns` names.
            **selection: `rank`, `step` (a number or first and last), `layer`, `op`, `kernel`,
                `range` (regular expressions), `copies` (False leaves copies out).

        Raises:
            UsageError: an axis is unknown, or a regular expression is not one.
        """
        from pyprof2.analysis.axes import check_known_once
        from pyprof2.analysis.summaries.profile import frame, select
        from pyprof2.analysis.summaries.profile_columns import (
            AXES,
            MEANS,
            SUMMARY_COLUMNS,
            asked_columns,
            axis_named,
            check_axes,
        )
        from pyprof2.tables import PROFILE_COLUMNS

        step = selection.get("step")
        if isinstance(step, int):
            selection["step"] = (step, step)
        axes = [axis_named(axis) for axis in ([by] if isinstance(by, str) else by)]
        run = self.of_span("all" if span == "latest" and "span" in axes else span)
        if axes == ["kernel"]:
            return select(run.rows(PROFILE_COLUMNS), **selection)
        check_axes(axes, depth, fold_numbers=fold_numbers)
        check_known_once(columns, [c.name for c in asked_columns(axes)], "to ask for")
        means = [column.name for column in MEANS if column.name in columns]
        keys = [AXES[axis] for axis in axes]
        sums = run.sums(keys, means=means, **selection)
        found = frame(sums.summarize(axes, depth, fold_numbers=fold_numbers, means=means))
        found = found[[*keys, *(column.name for column in SUMMARY_COLUMNS), *means]]
        if len(columns) == len(means):
            return found
        every = run.with_calls(found, axes, depth, fold_numbers=fold_numbers, **selection)
        return every[[*found.columns, *(name for name in columns if name not in means)]]

    def explain(self, reference: str, rank: int | None = None) -> dict[str, Any]:
        """Return all that is known of one kernel or op, with what it rests on.

        Args:
            reference: `kernel:7` or `op:7`, by `kernel_id` or `op_id`.
            rank: whose; may be left out where there is only one.

        Raises:
            UsageError: there is no such row or rank.
        """
        from pyprof2.analysis.summaries.explain import parse_reference

        parse_reference(reference)
        ranks = [each.rank for each in self._ranks]
        if rank is None and len(ranks) > 1:
            msg = f"{reference}: in which rank? Add --rank N, one of {_listed(ranks)}"
            raise UsageError(msg)
        rank = ranks[0] if rank is None else rank
        if rank not in ranks:
            msg = f"rank {rank}: no such rank; there is {_listed(ranks)}"
            raise UsageError(msg)
        return next(self.explain_all([(rank, reference)]))

    def explain_all(self, references: Sequence[tuple[int, str]]) -> Iterator[dict[str, Any]]:
        """Yield what `explain` returns for each of several ranks and references, in their order.

        The tables of a rank are read once for the references that follow one another, and of
        them only the rows that these lead to.
        """
        from itertools import groupby

        from pyprof2.analysis.summaries.explain import Explainer, explain, parse_reference

        if self.whole is not None:  # ids are those of all spans
            yield from self.whole.explain_all(references)
            return
        of_rank = {each.rank: each for each in self._ranks}
        for rank, own in groupby(references, key=lambda each: each[0]):
            wanted = [parse_reference(reference) for _, reference in own]
            known = Explainer(of_rank[rank], wanted, self.device)
            for reference in wanted:
                yield {"rank": rank} | vars(explain(known, reference))

    @property
    def how_to_record(self) -> Advice:
        """How to record what is missing, with the profiler that was used."""
        from pyprof2.parsers.formats import advice_of

        return advice_of(self.summary["profilers"])

    @cached_property
    def warnings(self) -> list[str]:
        """Lines on what makes the profile less than whole, such as damage, loss and few links."""
        from pyprof2.analysis.summaries.checks import problem_lines

        lines = problem_lines(self.manifest)
        linked = self.summary["linked_pct"]
        if linked is not None and linked < _FEW_LINKED_PCT:
            lines.append(f"only {linked:.1f} % of the kernel time belongs to a PyTorch op")
        return lines

    def check(self) -> pd.DataFrame:
        """Return what the recording lacks and what was repaired; columns as `pyprof2 check`."""
        from pyprof2.analysis.summaries.findings import findings_table

        return findings_table(self._findings(), several_ranks=len(self._ranks) > 1)

    def _findings(self) -> Iterator[Finding]:
        from pyprof2.analysis.summaries.checks import find_lacks
        from pyprof2.analysis.summaries.work_checks import find_devices, find_work

        advice = self.how_to_record
        yield from find_lacks(self.summary, self.manifest, advice)
        parts = [self._work_of(*each) for each in self._counted]
        for odd, _ in parts:
            yield from odd
        yield from find_work([work for _, work in parts], advice)
        if self.device is None:
            yield from find_devices([row for rank in self._ranks for row in rank.devices()])
        yield from self._pollution()

    def _work_of(self, rank: RankTables, totals: Totals) -> tuple[list[Finding], Work]:
        """Return what is odd in the work of a rank, and what it says of counts."""
        from pyprof2.analysis.summaries import odd_work
        from pyprof2.analysis.summaries.work_checks import NEEDED, Work

        of_kernels = {*odd_work.COUNTED, *NEEDED["kernels"]}
        tables = rank.several({"kernels": of_kernels, "ops": NEEDED["ops"]})
        kernels, devices = tables["kernels"], rank.devices()
        odd = [*odd_work.find_impossible_work(kernels, devices, rank.rank, self.device)]
        return odd, Work.of(tables, totals.work_time_ns, has_gpu=totals.has_gpu)


def _known_device(parts: pd.DataFrame) -> pd.DataFrame:
    """Return parts with null as the device of what names none."""
    from pyprof2.analysis.time.gaps import NEVER

    device = parts["device"].astype("Int64")
    return parts.assign(device=device.mask(device == NEVER))


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
