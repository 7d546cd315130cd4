"""The Python API: parse traces into a store, load a store or a trace, ask it for profiles."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.api.displays import Displayed, Summary, shown
from pyprof2.api.run_findings import RunFindings
from pyprof2.api.run_profile import RunProfile
from pyprof2.api.run_serving import RunServing
from pyprof2.api.run_tables import listed
from pyprof2.columns import as_pandas
from pyprof2.errors import UsageError, refuse
from pyprof2.frames import absolute
from pyprof2.store.folder import STORED, is_store, read_manifest
from pyprof2.store.places import place
from pyprof2.tables import ENERGY_KIND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pandas as pd
    import pyarrow as pa
    from dask.dataframe import DataFrame as DaskFrame

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.memory.profile import MemoryProfile
    from pyprof2.api.displays import Pictures
    from pyprof2.api.job import JobOfRanks
    from pyprof2.pipeline.parsing import default_store, parse
    from pyprof2.store.rank_tables import RankTables

__all__ = ["Run", "default_store", "load", "parse"]

_OF_PARSING: Final = ("default_store", "parse")
PREDICTION: Final = "predict:"
"""How the reference of a prediction begins."""


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
            store, label = _only_store(found.paths), " ".join(map(str, paths))
            if store is None and len(paths) == 1:
                store = store_named_in(found.paths[0])
            if store is not None:
                run = Run(store, device, root, label=label)
            else:
                from pyprof2.pipeline.parsing import parse_found

                out = Path(folder, "store")
                parsed = parse_found(found, out, source_root=root, progress=progress)
                run = Run(parsed, device, label=label)
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


class _Frame(property):
    """A table of the store as a DataFrame; its docstring is what the table's row is."""

    def __init__(self, table: str) -> None:
        def frame(run: Run) -> pd.DataFrame:
            return run._tables.frame(table)  # noqa: SLF001 -- an attribute of it

        super().__init__(frame)
        self.__doc__ = f"The table as a DataFrame.\n\n{STORED[table].meaning}"

    if TYPE_CHECKING:

        def __get__(  # type: ignore[override]  # a property says Any
            self, run: Any, owner: type | None = None, /
        ) -> pd.DataFrame:
            """Return the table."""


@dataclass
class Run(RunFindings, RunProfile, RunServing, Displayed):
    """A store, as DataFrames: one per canonical table, read when first asked for.

    Attributes:
        path: the store.
        device: name or file of the device whose roofs to use; None: the recorded one.
        source_root: the folder of the user's own code; None: the one that the store was made with.
        first_ids: of one span of each rank, what to add to its ids, by rank and column, to have
            those of all spans.
        label: what messages call it: as the user named it, where `path` is a temporary store.
        whole: the run of all spans, where this is of one of each rank.
    """

    whole: Run | None = field(default=None, repr=False)

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
        return self._tables.of(rank)

    @property
    def spans(self) -> dict[int, list[int]]:
        """The spans of each rank in order of time, which are its recordings by one worker."""
        return self._tables.spans

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
            refuse(f"span {span}: no such span; there is {listed(numbers)}, latest and all")
        from pyprof2.pipeline.spans import write_spans

        folder = tempfile.mkdtemp(prefix="pyprof2-")
        try:
            store = Path(folder) / "store"
            first_ids = write_spans(self.path, chosen, store)
            run = Run(store, self.device, self.source_root, first_ids, self.label, self)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
        return run

    @property
    def span_option(self) -> str:
        """The option of a command line that picks this run of the store, such as ` --span 0`."""
        if self.whole is None:
            return " --span all" if any(len(own) > 1 for own in self.spans.values()) else ""
        latest = {rank: own[-1:] for rank, own in self.whole.spans.items()}
        chosen = next(iter(self.spans.values()))[0]
        return "" if self.spans == latest else f" --span {chosen}"

    def table(self, name: str, columns: Collection[str] | None = None) -> pa.Table:
        """Return a table of the store as Arrow, the ranks one after another.

        Args:
            name: of the table.
            columns: those to read, which come in the order of the table; None: all.
        """
        return self._tables.table(name, columns)

    def sql(self, text: str, *, seconds: float = 60) -> pd.DataFrame:
        """Return the rows of one SELECT over the tables of the store, in DuckDB's SQL.

        Needs the extra `[sql]`. The views `activities` and `work` are there too; see the page on
        the tables. The statement can read nothing else, and change nothing.

        Args:
            text: the statement.
            seconds: how long it may take.

        Raises:
            UsageError: it is no single SELECT, fails or takes longer; or the run was loaded with
                another device or source root, which the store does not know.
        """
        from pyprof2.store.queries import query

        if self.device is not None or self.source_root is not None:
            refuse("SQL reads the store as it is: load it without device and source_root")
        return as_pandas(query(self.path, text, seconds=seconds).table, ())

    def dask(self, name: str) -> DaskFrame:
        """Return a table of the store as a Dask dataframe, a partition for each rank.

        Needs the extra `[dask]`; the columns have the types of `run.kernels` and the others.

        Raises:
            UsageError: there is no such table, or Dask is not installed.
        """
        from pyprof2.store.clusters import dask_frame

        return dask_frame(self._tables.ranks, name)

    kernels = _Frame("kernels")
    copies = _Frame("copies")
    launches = _Frame("launches")
    ops = _Frame("ops")
    estimates = _Frame("estimates")
    signatures = _Frame("signatures")
    stacks = _Frame("stacks")
    graph_nodes = _Frame("graph_nodes")
    kernel_parts = _Frame("kernel_parts")

    @property
    def source_roots(self) -> list[str]:
        """The folders of the user's own code, the longest first."""
        return self._tables.source_roots

    ranges = _Frame("ranges")
    memory = _Frame("memory")
    memory_tags = _Frame("memory_tags")

    @cached_property
    def weights(self) -> pd.DataFrame:
        """One row per parameter and buffer that the recorded program names, the last of each."""
        from pyprof2.analysis.memory.tags import last_weights

        return as_pandas(last_weights(self.table("weights")), STORED["weights"].never_null)

    counters = _Frame("counters")

    def memory_by_device(self) -> MemoryProfile:
        """Return the memory of all devices over time, as `pyprof2.memory` does of a path."""
        from pyprof2.api.run_memory import forward_times_of, memory_by_device

        # It keeps this run, with which a store that is a temporary one goes away.
        return memory_by_device(self._tables, lambda rank: forward_times_of(self._tables, rank))

    stalls = _Frame("stalls")
    idle = _Frame("idle")

    def idle_sums_and_windows(
        self, axes: Sequence[str], rank: int | None = None, normal_gap_us: float | None = None
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the rows of `idle_and_windows` added up along axes, which are read in parts.

        Args:
            axes: some of those of `idle_profile`.
            rank: only this one.
            normal_gap_us: see `idle_table`.

        Returns:
            See `pyprof2.analysis.summaries.idle_profile.added_up`; and the windows.

        Raises:
            UsageError: an axis is unknown, or there is nothing of the rank.
        """
        from pyprof2.analysis.summaries.idle_profile import check_axes

        check_axes(axes)
        if "phase" not in axes:
            return super().idle_sums_and_windows(axes, rank, normal_gap_us)
        # The phase is that of the work that ended each row.
        idle, windows = self.idle_and_windows(rank, normal_gap_us)
        return self.with_phases(idle).assign(max_ns=idle["time_ns"]), windows

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
                `thread`, `device`, `rank`, `note`, `phase` of an inference server.
            rank: only this one.
            normal_gap_us: see `idle_table`.

        Raises:
            UsageError: an axis or the rank is unknown.
        """
        from pyprof2.analysis.summaries.idle_profile import summarize_idle

        axes = (by,) if isinstance(by, str) else tuple(by)
        frame, windows = self.idle_sums_and_windows(axes, rank, normal_gap_us)
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
        from pyprof2.api.run_memory import memory_by_op

        return memory_by_op(self._tables, window_ms)

    def advise(self) -> pd.DataFrame:
        """Return what `pyprof2 advise` prints, silent rules too.

        Times at stake overlap: never add them up, see `gain_bounds`. The columns are those of
        `pyprof2.result_tables.ADVICE`.
        """
        return self._advice[0]

    @property
    def gain_bounds(self) -> pd.DataFrame:
        """The most that the remedies of all findings together can gain, for each rank.

        See `pyprof2.analysis.summaries.advice.advise.gain_bound`.
        """
        return self._advice[1]

    devices = _Frame("devices")
    trace = _Frame("trace")
    steps = _Frame("steps")

    @property
    def has_energy(self) -> bool:
        """Whether a counter of energy was read."""
        return bool(self._tables.with_ranges(ENERGY_KIND))

    collectives = _Frame("collectives")
    clocks = _Frame("clocks")

    @cached_property
    def ranks(self) -> JobOfRanks:
        """Results over all ranks together; see `pyprof2.api.job.JobOfRanks`."""
        from pyprof2.api.job import JobOfRanks

        return JobOfRanks(self)

    line_table = _Frame("lines")

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

    @cached_property
    def lines_are_functions(self) -> bool:
        """Whether torch.profiler recorded Python frames, whose line is where a function begins."""
        return bool(self._tables.with_ranges("python"))

    @cached_property
    def tensor_core_pct(self) -> float | None:
        """The share of the kernels' time that used Tensor Cores, of those with a verdict."""
        share: float | None = self.sums(()).total()["tensor_core_pct"]
        return share

    @property
    def counted_ranks(self) -> list[RankTables]:
        """The tables of the ranks that a profile is of."""
        return [rank for rank, _ in self._tables.counted]

    @property
    def summary(self) -> Summary:
        """Totals, busy time and coverage; see `pyprof2.analysis.summaries.summary.summary`."""
        return self._tables.summary

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """All GPU time, without a GPU all op time, by what is known of the work.

        See `pyprof2.analysis.summaries.ledger.of_tables`.
        """
        from pyprof2.analysis.summaries.ledger import merge_ledgers

        return merge_ledgers([rank.read("ledger").to_pandas() for rank in self.counted_ranks])

    def time_by(self, column: str) -> dict[str, int]:
        """Return the time of the rows of axis `kernel` by a text, in the order in which they come.

        Args:
            column: `category`, `copy_kind`, `op`, or `tensor_core` where nothing was added up.
        """
        return self.sums((column,)).time_by(column)

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
                `source`, `library`, `stack`, `direction`, `step`, `device`, `stream`, `rank`,
                `category`, `span`, `tensor_core`, `grid`, `block`, `registers`, `shared_bytes`.
            depth: of the axes `layer` and `range`: how many names of a path to keep.
            fold_numbers: of the axes `layer` and `range`: put together those that differ in numbers
                alone; of layers, those that count them.
            span: see `of_span`; with axis `span` all, unless one is named.
            columns: of sums, which to give beside the usual ones, of those that
                `pyprof2.analysis.summaries.profile_columns.asked_columns` names.
            **selection: `rank`, `step` (a number or first and last), `layer`, `op`, `kernel`,
                `range` (regular expressions), `direction`, `category`, `device`, `stream` (lists),
                `copies` (False leaves copies out).

        Raises:
            UsageError: an axis is unknown, or a regular expression is not one.
        """
        from pyprof2.analysis.summaries.profile_columns import axis_named

        step = selection.get("step")
        if isinstance(step, int):
            selection["step"] = (step, step)
        axes = [axis_named(axis) for axis in ([by] if isinstance(by, str) else by)]
        run = self.of_span("all" if span == "latest" and "span" in axes else span)
        return run._profile_along(  # noqa: SLF001 -- it is a run, too
            axes, depth, columns, selection, fold_numbers=fold_numbers
        )

    def predict(
        self,
        on: str | Device | Sequence[str | Device] = "all",
        *,
        step: int | None = None,
        **question: Any,
    ) -> pd.DataFrame:
        """Return what `pyprof2 predict` prints: what a step would take on other devices.

        Times are in ms, money in that of the prices; null where nothing is known, and `why` says
        for what reason.

        Args:
            on: names of devices, or devices as `load_device` reads them; `all`: the whole table.
            step: its number; by default the step of median time.
            **question: `ranks`, `link`, `overlap`, `level`, `batch`, `prices`: see
                `pyprof2.api.prediction.Question`.

        Raises:
            UsageError: no device or no such step is in the recording, or a name is of no device,
                of several, or of no link.
        """
        from pyprof2.api.prediction import predicted

        return predicted(self, on, step, question)

    def explain(self, reference: str, rank: int | None = None) -> dict[str, Any]:
        """Return all that is known of one kernel or op, with what it rests on.

        Args:
            reference: `kernel:7` or `op:7`, by `kernel_id` or `op_id`; or `predict:DEVICE`, what
                `predict` says of a device.
            rank: whose; may be left out where there is only one.

        Raises:
            UsageError: there is no such row, rank or device.
        """
        from pyprof2.analysis.summaries.explain import parse_reference

        if reference.startswith(PREDICTION):
            from pyprof2.api.prediction import PredictedStep, devices_of

            (device,) = devices_of(reference.removeprefix(PREDICTION))
            return PredictedStep(self).explain(device)

        parse_reference(reference)
        return next(self.explain_all([(self._rank_of(reference, rank), reference)]))

    def explain_all(self, references: Sequence[tuple[int, str]]) -> Iterator[dict[str, Any]]:
        """Yield what `explain` returns for each of several ranks and references, in their order.

        The tables of a rank are read once for the references that follow one another, and of
        them only the rows that these lead to.
        """
        if self.whole is not None:  # ids are those of all spans
            yield from self.whole.explain_all(references)
        else:
            yield from super().explain_all(references)
