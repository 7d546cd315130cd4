"""The Python API: parse traces into a store, load a store or a trace, ask it for profiles."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.api import run_findings, run_memory, run_profile, run_serving, run_time
from pyprof2.api.displays import Displayed, Summary, shown
from pyprof2.api.run_tables import RunTables
from pyprof2.columns import as_pandas
from pyprof2.errors import UsageError, refuse
from pyprof2.frames import absolute
from pyprof2.store.folder import STORED, is_store, read_manifest
from pyprof2.store.places import place

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd
    import pyarrow as pa
    from dask.dataframe import DataFrame as DaskFrame

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.summaries.spent import Spent
    from pyprof2.api.displays import Pictures
    from pyprof2.api.job import JobOfRanks
    from pyprof2.pipeline.parsing import default_store, parse

__all__ = ["Run", "default_store", "load", "parse"]

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
        return Run(RunTables(paths[0], device, root))
    from pyprof2.store.remote import here, store_named_in

    folder = tempfile.mkdtemp(prefix="pyprof2-")
    brought = Path(folder, "brought")
    try:
        with here(paths, brought, progress=progress) as found:
            store, label = _only_store(found.paths), " ".join(map(str, paths))
            if store is None and len(paths) == 1:
                store = store_named_in(found.paths[0])
            if store is not None:
                run = Run(RunTables(store, device, root, label=label))
            else:
                from pyprof2.pipeline.parsing import parse_found

                out = Path(folder, "store")
                parsed = parse_found(found, out, source_root=root, progress=progress)
                run = Run(RunTables(parsed, device, label=label))
                shutil.rmtree(brought, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(run.tables, shutil.rmtree, folder, ignore_errors=True)
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
        super().__init__(lambda run: run.tables.frame(table))
        self.__doc__ = f"The table as a DataFrame.\n\n{STORED[table].meaning}"

    if TYPE_CHECKING:

        def __get__(  # type: ignore[override]  # a property says Any
            self, run: Any, owner: type | None = None, /
        ) -> pd.DataFrame:
            """Return the table."""


@dataclass
class Run(Displayed):
    """A store: its tables as DataFrames, and what the command line prints of them.

    The tables below are read when first asked for; `table` returns any other by its name.

    Attributes:
        tables: those of each rank by themselves, as the modules of pyprof2 read them.
    """

    tables: RunTables

    kernels = _Frame("kernels")
    copies = _Frame("copies")
    launches = _Frame("launches")
    ops = _Frame("ops")
    signatures = _Frame("signatures")
    stacks = _Frame("stacks")
    ranges = _Frame("ranges")
    memory = _Frame("memory")
    counters = _Frame("counters")
    idle = _Frame("idle")
    steps = _Frame("steps")
    collectives = _Frame("collectives")
    clocks = _Frame("clocks")
    devices = _Frame("devices")
    trace = _Frame("trace")

    def __repr__(self) -> str:
        return repr(self.tables).replace("RunTables", "Run", 1)

    @property
    def path(self) -> Path:
        """The store."""
        return self.tables.path

    def table(self, name: str, columns: Collection[str] | None = None) -> pa.Table:
        """Return a table of the store as Arrow, the ranks one after another.

        Args:
            name: of the table.
            columns: those to read, which come in the order of the table; None: all.
        """
        return self.tables.table(name, columns)

    def of_span(self, span: int | str) -> Run:
        """Return the run of one span of each rank, or of all, whose ids stay as they are.

        Args:
            span: a number, of the ranks that have it; `latest`: each rank's own; `all`.

        Raises:
            UsageError: there is no such span.
        """
        found = self.tables.of_span(span)
        return self if found is self.tables else Run(found)

    @property
    def summary(self) -> Summary:
        """Totals, busy time and coverage; see `pyprof2.analysis.summaries.summary.summary`."""
        return self.tables.summary

    def check(self) -> pd.DataFrame:
        """Return what the recording lacks and what was repaired; columns as `pyprof2 check`."""
        return run_findings.check(self.tables)

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
        tables = self.tables.of_span("all" if span == "latest" and "span" in axes else span)
        return run_profile.profile_along(
            tables, axes, depth, columns, selection, fold_numbers=fold_numbers
        )

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
        return run_time.line_profile(self.tables, LineQuery(steps=steps, **query)).table

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
            normal_gap_us: how long a gap of queued work, or the time from a launch to its start,
                may be that needs no other reason; None: 30 us.

        Raises:
            UsageError: an axis or the rank is unknown.
        """
        from pyprof2.analysis.summaries.idle_profile import summarize_idle

        axes = (by,) if isinstance(by, str) else tuple(by)
        rows, windows = run_time.idle_sums_and_windows(self.tables, axes, rank, normal_gap_us)
        return summarize_idle(rows, axes, int(windows["window_ns"].sum()))

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
        return run_memory.memory_by_device(self.tables).only(device, rank).rows(axes, at)

    def advise(self) -> pd.DataFrame:
        """Return what `pyprof2 advise` prints, silent rules too.

        Times at stake overlap: never add them up, see `gain_bounds`. The columns are those of
        `pyprof2.result_tables.ADVICE`.
        """
        return run_findings.advice_of_run(self.tables)[0]

    @property
    def gain_bounds(self) -> pd.DataFrame:
        """The most that the remedies of all findings together can gain, for each rank.

        See `pyprof2.analysis.summaries.advice.advise.gain_bound`.
        """
        return run_findings.advice_of_run(self.tables)[1]

    def explain(self, reference: str, rank: int | None = None) -> dict[str, Any]:
        """Return all that is known of one kernel or op, with what it rests on.

        Args:
            reference: `kernel:7` or `op:7`, by `kernel_id` or `op_id`; or `predict:DEVICE`, what
                `predict` says of a device.
            rank: whose; may be left out where there is only one.

        Raises:
            UsageError: there is no such row, rank or device.
        """
        return run_findings.explain_row(self.tables, reference, rank)

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

        return predicted(self.tables, on, step, question)

    @property
    def ranks(self) -> JobOfRanks:
        """Results over all ranks together; see `pyprof2.api.job.JobOfRanks`."""
        from pyprof2.api.job import job_of_ranks

        return job_of_ranks(self.tables)

    @property
    def spent(self) -> Spent:
        """Where the time of the devices went, in steps or in all that was recorded.

        See `pyprof2.analysis.summaries.spent.Spent`.
        """
        return run_time.spent_of(self.tables)

    @property
    def device_shares(self) -> dict[str, float | None]:
        """GPU utilization, SM efficiency and occupancy over all steps, in %; null where unknown.

        Without steps they are from the first activity to the last.
        """
        return run_time.device_shares(self.tables)

    @property
    def host_time(self) -> pd.DataFrame:
        """The host's time in steps where no device worked (ops, data, Python); else no row.

        See `pyprof2.analysis.time.host_time.host_time`.
        """
        return run_time.host_time(self.tables)

    @property
    def launch_delays(self) -> pd.DataFrame:
        """How long each kernel and copy waited after its launch.

        See `pyprof2.analysis.time.queue.launch_delays`.
        """
        return run_time.launch_delays(self.tables)

    @property
    def queue(self) -> pd.DataFrame:
        """How much was queued and running on each stream, at every change.

        See `pyprof2.analysis.time.queue.queue_depth`.
        """
        return run_time.queue(self.tables)

    @property
    def energy(self) -> pd.DataFrame:
        """The energy that a step takes, one row per counter; empty where none was read.

        See `pyprof2.analysis.time.energy.energy`.
        """
        return run_time.energy(self.tables)

    def serving_steps(self, pattern: str | None = None) -> pd.DataFrame:
        """Return the steps of an inference server, and a row for work that no step launched.

        Args:
            pattern: a regular expression that all of a range's name matches, for a server whose
                names are not known, with groups of any of the names `phase`, `requests`, `c_req`,
                `c_sq`, `c_sk`, `c_sqsq`, `c_sqsk`, the same with `g_`, and `padded`.

        Returns:
            Table `SERVING_STEPS`; no rows without such ranges.

        Raises:
            UsageError: `pattern` is malformed.
        """
        return run_serving.serving_steps(self.tables, pattern)

    @property
    def plot(self) -> Pictures:
        """Pictures for notebooks, `roofline`, `timeline`, `steps` and `idle`; they need plotly.

        See `pyprof2.reports.notebook_plots.Plots`.
        """
        pictures: Pictures = shown("plot", self)
        return pictures

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

        if self.tables.device is not None or self.tables.source_root is not None:
            refuse("SQL reads the store as it is: load it without device and source_root")
        return as_pandas(query(self.path, text, seconds=seconds).table, ())

    def dask(self, name: str) -> DaskFrame:
        """Return a table of the store as a Dask dataframe, a partition for each rank.

        Needs the extra `[dask]`; the columns have the types of `run.kernels` and the others.

        Raises:
            UsageError: there is no such table, or Dask is not installed.
        """
        from pyprof2.store.clusters import dask_frame

        return dask_frame(self.tables.ranks, name)
