"""The Python API: parse traces into a store, load a store or a trace, ask it for profiles."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pyprof2.analysis.costs import load_extensions
from pyprof2.assemble import assemble
from pyprof2.columns import as_pandas
from pyprof2.errors import TraceError, UsageError
from pyprof2.frames import is_absolute
from pyprof2.parsers import find_traces, read_recordings
from pyprof2.parsers.formats import stem_of
from pyprof2.ranks import assign_ranks
from pyprof2.segments import clock_shifts, joined
from pyprof2.store import (
    StoreWriter,
    is_store,
    read_manifest,
    read_rank,
    read_table,
    write_table,
)
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd
    import pyarrow as pa

    from pyprof2.recording import Recording

_FEW_LINKED_PCT: Final = 50


def parse(
    paths: Path | str | Sequence[Path | str],
    out: Path | str | None = None,
    *,
    jobs: int = 1,
    force: bool = False,
    source_root: Path | str | None = None,
    progress: bool = False,
) -> Path:
    """Read traces, one or more per rank, and write a store; return its path.

    Recordings that one process made one after another are segments of one rank.

    Args:
        paths: trace files, or folders of them.
        out: the store to write; by default `<stem>.pyprof2` beside the first trace.
        jobs: how many traces to read at once, in processes of their own.
        force: replace a store that exists.
        source_root: the folder of the user's own code, for `source`; by default the recorded one.
        progress: show a bar on stderr if it takes longer than a second.

    Raises:
        TraceError: a file cannot be read, is no trace, or two claim one rank.
        OutputExistsError: the store exists, and `force` is not given.
        StoreError: the store cannot be written.
    """
    named = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    if not named:
        msg = "no trace given"
        raise UsageError(msg)
    files = [file for path in named for file in find_traces(path)]
    out = default_store(named[0]) if out is None else Path(out)
    root = None if source_root is None else _absolute(source_root)
    with StoreWriter(out, force=force) as writer, _Workers(min(jobs, len(files))) as workers:
        folders = [writer.scratch(str(number)) for number in range(len(files))]
        with _Progress(files, shown=progress) as bar:
            read = workers.map(
                _read_file, files, folders, [bar.callback(workers.parallel)] * len(files)
            )
            recordings = [
                (file, found) for file, each in zip(files, read, strict=True) for found in each
            ]
        groups, ranks = assign_ranks(recordings)
        tasks = (
            [[recordings[at][1] for at in group] for group in groups],
            ranks,
            [writer.folder] * len(ranks),
            [root] * len(ranks),
        )
        facts = list(workers.map(_write_rank, *tasks))
        writer.finish(_manifest(files, recordings, groups, ranks, facts))
    return out


def default_store(trace: Path) -> Path:
    """Return `<stem>.pyprof2` beside the trace; of `net.json.gz` the stem is `net`."""
    name = trace.resolve().name if trace.name in ("", ".", "..") else trace.name
    return trace.parent / f"{stem_of(name)}.pyprof2"


class _Workers:
    """Runs the same step for each trace, here or in processes of their own."""

    def __init__(self, jobs: int) -> None:
        self.parallel = jobs > 1
        self._pool = ProcessPoolExecutor(jobs) if self.parallel else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, step: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        """Yield the results in order."""
        if self._pool is None:
            yield from map(step, *columns)
            return
        try:
            yield from self._pool.map(step, *columns)
        except BrokenProcessPool as error:
            msg = "a process that read a trace was killed, perhaps for want of memory; use --jobs 1"
            raise TraceError(msg) from error


class _Progress:
    """A bar over the bytes of the files, shown once the work has taken a second."""

    def __init__(self, files: Sequence[Path], *, shown: bool) -> None:
        from tqdm import tqdm

        total = sum(file.stat().st_size for file in files)
        self._bar = tqdm(
            total=total, disable=None if shown else True, delay=1, unit="B", unit_scale=True,
            desc="reading", leave=False,
        )  # fmt: skip
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def callback(self, parallel: bool) -> Callable[[int], None] | None:  # noqa: FBT001
        """Return what readers call with their position; processes of their own cannot."""
        return None if parallel else self._update

    def _update(self, position: int) -> None:
        if position < self._last:
            self._last = 0
        self._bar.update(position - self._last)
        self._last = position


def _read_file(
    file: Path, folder: Path, on_progress: Callable[[int], None] | None
) -> list[Recording]:
    return read_recordings(file, folder, on_progress)


def _write_rank(
    segments: Sequence[Recording], rank: int, folder: Path, root: str | None
) -> list[dict[str, int]]:
    """Write the tables of a rank, and return facts on each of its recordings."""
    if len(segments) == 1:
        return [_write_recording(segments[0], rank, folder, root)]
    # Each is linked by itself: nothing is joined across what was not recorded.
    scratch = [folder / f"scratch-rank-{rank}-{number}" for number in range(len(segments))]
    facts = []
    for segment, own in zip(segments, scratch, strict=True):
        own.mkdir()
        facts.append(_write_recording(segment, rank, own, root))
    shifts = clock_shifts(segments)
    for name in TABLES:
        write_table(folder, name, rank, joined(name, scratch, rank, shifts))
    return facts


def _write_recording(
    recording: Recording, rank: int, folder: Path, root: str | None
) -> dict[str, int]:
    facts: dict[str, int] = {}
    nbytes = 0
    for name, parts in assemble(recording, rank, root, facts):
        nbytes += write_table(folder, name, rank, parts)
    nbytes += write_table(folder, "idle", rank, [_idle(folder, rank, root)])
    return facts | {"table_bytes": nbytes}


def _idle(folder: Path, rank: int, root: str | None) -> pa.Table:
    """Return why devices were idle, from the tables of a rank that are written."""
    from pyprof2.analysis.time.idle import INPUT, idle_of_ranks

    tables = {name: read_rank(folder, name, rank, columns) for name, columns in INPUT.items()}
    return idle_of_ranks(tables, root)


def _manifest(
    files: Sequence[Path],
    recordings: Sequence[tuple[Path, Recording]],
    groups: Sequence[Sequence[int]],
    ranks: Sequence[int],
    facts: Sequence[Sequence[dict[str, int]]],
) -> dict[str, Any]:
    return {
        "sources": [_source(file) for file in files],
        "ranks": [
            {
                "rank": rank,
                "source": recordings[at][0].name,
                "problems": recordings[at][1].problems | dict.fromkeys(load_extensions(), 1),
                "ignored": dict(recordings[at][1].ignored),
                "annotated": dict(recordings[at][1].annotated),
                **fact,
            }
            for group, rank, of_group in zip(groups, ranks, facts, strict=True)
            for at, fact in zip(group, of_group, strict=True)
        ],
    }


def _source(file: Path) -> dict[str, Any]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {"path": str(file), "bytes": file.stat().st_size, "sha256": digest}


def _absolute(root: Path | str) -> str:
    """Return a folder as recordings name it; it need not be on this machine."""
    return str(root) if is_absolute(str(root)) else str(Path(root).absolute())


def load(
    path: Path | str,
    *,
    device: Path | str | None = None,
    source_root: Path | str | None = None,
    progress: bool = False,
) -> Run:
    """Return a store or a trace as a `Run`; a trace is parsed into a temporary store first.

    Args:
        path: a store, a trace file, or a folder of traces.
        device: name of a device, or a JSON file that describes one, whose roofs to use instead
            of those of the recorded device.
        source_root: the folder of the user's own code, for `source`; by default the recorded one.
        progress: show a bar on stderr while parsing.

    Raises:
        TraceError, StoreError: the path cannot be read.
    """
    path = Path(path)
    if is_store(path):
        return Run(path, device, None if source_root is None else _absolute(source_root))
    if path.is_dir() and path.suffix == ".pyprof2":
        read_manifest(path)
    folder = tempfile.mkdtemp(prefix="pyprof2-")
    try:
        store = parse(path, Path(folder) / "store", source_root=source_root, progress=progress)
        run = Run(store, device)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run


@dataclass
class Run:
    """A store, as DataFrames: one per canonical table, read when first asked for.

    Attributes:
        path: the store.
        device: name or file of the device whose roofs to use; None: the recorded one.
        source_root: the folder of the user's own code; None: the one that the store was made with.
    """

    path: Path
    device: Path | str | None = None
    source_root: str | None = None

    def __post_init__(self) -> None:
        """Read the manifest, which refuses what is no store."""
        self.manifest = read_manifest(self.path)

    def table(self, name: str) -> pa.Table:
        """Return a canonical table as Arrow."""
        if name == "idle" and self.source_root is not None:
            return self.idle_table()
        table = read_table(self.path, name)
        if self.source_root is not None and name in ("kernels", "copies", "ops"):
            from pyprof2.analysis.linking.stacks import with_lines

            table = with_lines(table, read_table(self.path, "stacks"), self.source_root)
        if self.device is not None and name in ("kernels", "copies"):
            from pyprof2.analysis.hardware.verdict import judge

            return judge(table, read_table(self.path, "devices").to_pylist(), self.device)
        return table

    def _frame(self, name: str) -> pd.DataFrame:
        never_null = [column.name for column in TABLES[name].columns if not column.nullable]
        return as_pandas(self.table(name), never_null)

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
    def stalls(self) -> pd.DataFrame:
        """One row per interval in which profiler, driver or a wait held the host or a stream up."""
        return self._frame("stalls")

    @cached_property
    def idle(self) -> pd.DataFrame:
        """One row per piece of the time in which a device did nothing, with its cause."""
        return self._frame("idle")

    @cached_property
    def leading_cause(self) -> dict[str, Any]:
        """How long devices were idle, and the cause of most of it.

        See `pyprof2.analysis.summaries.idle_profile.leading_cause`.
        """
        from pyprof2.analysis.summaries.idle_profile import leading_cause

        return leading_cause(read_table(self.path, "idle", ["cause", "source", "time_ns"]))

    def idle_table(self, normal_gap_us: float | None = None) -> pa.Table:
        """Return the table `idle` as Arrow, found anew where an argument is given.

        Args:
            normal_gap_us: how long a gap of queued work, or the time from a launch to its start,
                may be that needs no other reason; None: 30 us.
        """
        from pyprof2.analysis.time.idle import INPUT, idle_of_ranks
        from pyprof2.analysis.time.idle_causes import NORMAL_GAP_NS

        if normal_gap_us is None and self.source_root is None:
            return read_table(self.path, "idle")
        normal_ns = NORMAL_GAP_NS if normal_gap_us is None else round(1000 * normal_gap_us)
        tables = {name: read_table(self.path, name, names) for name, names in INPUT.items()}
        if self.source_root is not None:
            tables["ops"] = self.table("ops").select(INPUT["ops"])
        return idle_of_ranks(tables, self.source_root, normal_ns)

    @cached_property
    def idle_windows(self) -> pd.DataFrame:
        """How long each device was recorded, active, busy and idle.

        See `pyprof2.analysis.time.idle.windows_of_ranks`.
        """
        from pyprof2.analysis.time.idle import INPUT, windows_of_ranks

        names = ("kernels", "copies", "trace")
        return windows_of_ranks({n: read_table(self.path, n, INPUT[n]) for n in names})

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
        import pyarrow.compute as pc

        from pyprof2.analysis.time.idle import INPUT

        names = ("kernels", "copies", "launches")
        tables = [read_table(self.path, name, INPUT[name]) for name in names]
        frames = []
        for rank in sorted({each["rank"] for each in self.manifest["ranks"]}):
            own = [table.filter(pc.equal(table["rank"], rank)) for table in tables]
            frames.append(as_pandas(analysis(*own)))
            frames[-1].insert(0, "rank", rank)
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
        from pyprof2.analysis.summaries.idle_profile import select_rank, summarize_idle

        frame = as_pandas(self.idle_table(normal_gap_us), ("rank", "time_ns", "count"))
        frame, windows = select_rank(frame, self.idle_windows, rank)
        axes = (by,) if isinstance(by, str) else tuple(by)
        return summarize_idle(frame, axes, int(windows["window_ns"].sum()))

    def advise(self) -> pd.DataFrame:
        """Return what `pyprof2 advise` prints, silent rules too.

        Times at stake overlap: never add them up, see `gain_bounds`. The columns are those of
        `pyprof2.analysis.summaries.advice.FINDINGS`.
        """
        return self._advice[0]

    @cached_property
    def gain_bounds(self) -> pd.DataFrame:
        """What the remedies of all findings together can gain at most, for each rank.

        See `pyprof2.analysis.summaries.advice.advise.gain_bound`.
        """
        return self._advice[1]

    @cached_property
    def _advice(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        from pyprof2.analysis.summaries.advice import advise

        return advise(self._advice_input(), self.table("devices").to_pylist(), self.device)

    def _pollution(self) -> pd.DataFrame:
        """Return what in the recording is the recorder's doing, or the start's; as `check`."""
        from pyprof2.analysis.summaries.advice import find_pollution

        return find_pollution(self._advice_input(), self.table("devices").to_pylist())

    def _advice_input(self) -> dict[str, pa.Table]:
        from pyprof2.analysis.summaries.advice.facts import INPUT

        return {name: self.table(name).select(names) for name, names in INPUT.items()}

    @cached_property
    def devices(self) -> pd.DataFrame:
        """One row per device that the recording lists."""
        return self._frame("devices")

    @cached_property
    def trace(self) -> pd.DataFrame:
        """One row per recording."""
        return self._frame("trace")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Totals, busy time and coverage; see `pyprof2.analysis.summaries.summary.summarise`."""
        from pyprof2.analysis.summaries.summary import summarise

        tables = {
            name: self.table(name)
            for name in ("kernels", "copies", "ops", "signatures", "devices", "trace")
        }
        steps = read_table(self.path, "ranges", ["name", "kind"])
        times = dict(zip(self.ledger["bin"], self.ledger["time_ns"].tolist(), strict=True))
        return summarise(tables, steps) | {"ledger": times}

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """All GPU time, without a GPU all op time, by what is known of the work.

        See `pyprof2.analysis.summaries.ledger.ledger`.
        """
        from pyprof2.analysis.summaries.ledger import ledger, op_ledger

        kernels, copies = self.table("kernels"), self.table("copies")
        if kernels.num_rows or copies.num_rows:
            return ledger(kernels, copies)
        return op_ledger(self.table("ops"))

    @cached_property
    def utilization(self) -> pd.DataFrame:
        """MFU and HFU of each step; see `pyprof2.analysis.summaries.utilization.utilization`."""
        from pyprof2.analysis.summaries.utilization import utilization

        tables = {name: self.table(name) for name in ("kernels", "copies", "ops", "trace")}
        ranges = read_table(self.path, "ranges", ["rank", "start_ns", "dur_ns", "name", "kind"])
        devices = read_table(self.path, "devices").to_pylist()
        return utilization(tables, ranges, devices, self.device)

    def rows(self) -> pd.DataFrame:
        """Return the rows of axis `kernel`: GPU activities, or op calls where there are none."""
        from pyprof2.analysis.summaries.rows import activity_rows, op_rows

        kernels, copies = self.table("kernels"), self.table("copies")
        if kernels.num_rows or copies.num_rows:
            return activity_rows(kernels, copies)
        devices = self.table("devices").to_pylist()
        return op_rows(self.table("ops"), self.table("signatures"), devices, self.device)

    def profile(
        self,
        by: str | Sequence[str] = "kernel",
        *,
        depth: int | None = None,
        fold_numbers: bool = False,
        **selection: Any,
    ) -> pd.DataFrame:
        """Return what `pyprof2 prof` prints.

        Args:
            by: `kernel`, or one or more of the axes `name`, `op`, `signature`, `layer`, `range`,
                `source`, `library`, `direction`, `step`, `stream`, `rank`, `category`.
            depth: of the axes `layer` and `range`: how many names of a path to keep.
            fold_numbers: of axis `range`: put together those that differ in numbers alone.
            **selection: `rank`, `step` (a number or first and last), `layer`, `op`, `kernel`,
                `range` (regular expressions), `copies` (False leaves copies out).

        Raises:
            UsageError: an axis is unknown, or a regular expression is not one.
        """
        from pyprof2.analysis.summaries.profile import select, summarize
        from pyprof2.analysis.summaries.rows import HIDDEN

        step = selection.get("step")
        if isinstance(step, int):
            selection["step"] = (step, step)
        rows = select(self.rows(), **selection)
        axes = [by] if isinstance(by, str) else list(by)
        return (
            rows.drop(columns=list(HIDDEN), errors="ignore")
            if axes == ["kernel"]
            else summarize(rows, axes, depth, fold_numbers=fold_numbers)
        )

    def explain(self, reference: str, rank: int | None = None) -> dict[str, Any]:
        """Return all that is known of one kernel or op, with what it rests on.

        Args:
            reference: `kernel:7` or `op:7`, by `kernel_id` or `op_id`.
            rank: whose; may be left out where there is only one.

        Raises:
            UsageError: there is no such row or rank.
        """
        from pyprof2.analysis.summaries.explain import explain, parse_reference, rows_of_rank

        wanted = parse_reference(reference)
        ranks = self.summary["ranks"]
        if rank is None and len(ranks) > 1:
            msg = f"{reference}: in which rank? Add --rank N, one of {_listed(ranks)}"
            raise UsageError(msg)
        rank = ranks[0] if rank is None else rank
        if rank not in ranks:
            msg = f"rank {rank}: no such rank; there is {_listed(ranks)}"
            raise UsageError(msg)
        names = ("kernels", "copies", "launches", "ops", "estimates", "signatures", "devices")
        tables = {name: rows_of_rank(self.table(name), rank) for name in names}
        return {"rank": rank} | explain(tables, wanted, self.device)

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
        import pandas as pd

        from pyprof2.analysis.summaries.checks import find_lacks, merge_ranks
        from pyprof2.analysis.summaries.odd_work import find_odd_work
        from pyprof2.analysis.summaries.work_checks import find_devices, find_work

        tables = {name: self.table(name) for name in ("kernels", "copies", "ops")}
        devices = self.table("devices").to_pylist()
        found = [
            find_lacks(self.summary, self.manifest),
            find_odd_work(tables["kernels"], tables["copies"], devices, self.device),
            find_work(tables, self.summary["profilers"]),
            find_devices([] if self.device else devices),
            self._pollution(),
        ]
        both = pd.concat([frame for frame in found if len(frame)] or found, ignore_index=True)
        if len(self.summary["ranks"]) > 1:
            both = merge_ranks(both)
        gravity = both["severity"].map({"problem": 0, "lack": 1, "info": 2})
        return both.iloc[gravity.argsort(kind="stable")].reset_index(drop=True)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
