"""From recordings to a store: read files, put ranks together, write their tables."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from concurrent.futures import BrokenExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import pyarrow as pa

from pyprof2.analysis.assembly.graph_templates import has_replays
from pyprof2.analysis.costs import load_extensions
from pyprof2.analysis.job import collective_rows
from pyprof2.analysis.job.clocks import reference
from pyprof2.analysis.time.idle import GRAPHS, IN_PARTS, INPUT, idle_of_recording
from pyprof2.errors import LeftOutWarning, TraceError, is_shortage, refuse, shortage
from pyprof2.frames import absolute, code_of, is_own_path
from pyprof2.parsers import find_traces, read_recordings
from pyprof2.parsers.formats import stem_of
from pyprof2.pipeline.allocation import give_memory_back
from pyprof2.pipeline.assemble import assemble, clock_shifts, joined
from pyprof2.pipeline.captures import find_capture_files, read_templates, same_captures
from pyprof2.pipeline.compile_logs import add_compiled, find_compile_logs
from pyprof2.pipeline.ranks import (
    CLAIMED,
    NOTHING_KEPT,
    assign_ranks,
    claimed,
    digest_of,
    find_kept,
    spans_of,
)
from pyprof2.pipeline.results import write_results
from pyprof2.recording import close_files
from pyprof2.result_tables import CLOCKS, PARTS, SEGMENTS
from pyprof2.store.folder import StoreWriter, TableWriters, write_table
from pyprof2.store.parts import spooled
from pyprof2.store.places import folder_of, name_of, place
from pyprof2.store.rank_tables import RankTables
from pyprof2.store.remote import Readable, here, written
from pyprof2.tables import COLLECTIVES, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future, ProcessPoolExecutor

    from tqdm import tqdm

    from pyprof2.analysis.graphs.nodes import Templates
    from pyprof2.frames import Code
    from pyprof2.pipeline.captures import CaptureFile
    from pyprof2.pipeline.ranks import KeptRanks
    from pyprof2.recording import Recording


def parse(  # noqa: PLR0913 - each is a keyword of the API
    paths: Path | str | Sequence[Path | str],
    out: Path | str | None = None,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    force: bool = False,
    source_root: Path | str | None = None,
    captures: Sequence[Path | str] = (),
    look_for_captures: bool = True,
    torch_trace: Path | str | None = None,
    progress: bool = False,
) -> Path:
    """Read traces, one or more per rank, and write a store; return its path.

    Recordings that one process made one after another are segments of one rank, and spans of one
    worker, by the names that TensorBoard's handler gives, are too. Where there are several files,
    those that cannot be read are left out, with a warning each. Where a folder is named, and the
    store has been made of some of its files already, only the others are parsed.

    Args:
        paths: trace files, or folders of them; or their addresses, such as `s3://bucket/traces`.
        out: the store to write, or its address; by default `<stem>.pyprof2` beside the first
            trace, in the current folder where that is far away.
        jobs: how many traces to read at once, in processes of their own.
        executor: who reads them instead, a task for each trace and one for each rank: any of
            `concurrent.futures`, or of a cluster. Its workers read and write the files by the same
            paths, so they need the same file system.
        force: replace a store that exists.
        source_root: the folder of the user's own code, for `source`; by default the recorded one.
        captures: recordings that say what the kernels of replayed graphs are, of captures or of
            eager steps, or folders of them.
        look_for_captures: where none is named, take those in the folder `capture_traces` beside
            the traces.
        torch_trace: the folder that `TORCH_TRACE` named while a recording was made, or a log in
            it: it says what compiled graphs are made of. By default logs beside the recordings.
        progress: show a bar on stderr if it takes longer than a second.

    Raises:
        TraceError: no file can be read, or two claim one rank.
        OutputExistsError: the store exists, and `force` is not given.
        StoreError: the store cannot be written.
        RemoteError: what is far away cannot be read or written.
    """
    named = [place(paths)] if isinstance(paths, (str, Path)) else [place(path) for path in paths]
    if not named:
        refuse("no trace given")
    target = default_store(named[0]) if out is None else place(out)
    with written(target, force=force) as local, here(named, progress=progress) as found:
        parse_found(
            found, local, jobs=jobs, executor=executor, force=force, source_root=source_root,
            captures=[Path(each) for each in captures], look_for_captures=look_for_captures,
            torch_trace=None if torch_trace is None else Path(torch_trace),
            progress=progress,
        )  # fmt: skip
    return target


def parse_found(  # noqa: PLR0913 - see `parse`
    found: Readable,
    out: Path,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    force: bool = False,
    source_root: Path | str | None = None,
    captures: Sequence[Path] = (),
    look_for_captures: bool = True,
    torch_trace: Path | None = None,
    progress: bool = False,
    looks_at_code: bool = True,
) -> Path:
    """Do what `parse` does, of what is here; return the store's path.

    `looks_at_code` is whether to note which of the files of code that a recording names, wherever
    they lie, are as they were.
    """
    named = found.paths
    files = [file for path in named for file in find_traces(path)]
    if executor is not None:
        # Its workers may work in another folder.
        files, out = [file.absolute() for file in files], out.absolute()
    root = None if source_root is None else absolute(source_root)
    again = any(path.is_dir() for path in named) and not force
    capture_files = find_capture_files(files, captures, beside=look_for_captures)
    logs = find_compile_logs(files, torch_trace)
    kept = find_kept(out, files, root) if again else None
    replaces = force or kept is not None
    if kept is not None and not same_captures(kept.captures, capture_files):
        kept = None
    if kept is not None and len(kept.sources) == len(files):
        return out
    with _Workers(min(jobs, len(files)), executor) as workers:
        job = _Job(
            files, found, root, workers, capture_files, logs, progress=progress,
            looks_at_code=looks_at_code,
        )  # fmt: skip
        with StoreWriter(out, force=replaces) as writer:
            failed = job.parse(writer, kept)
    for _, error in failed:
        warnings.warn(f"left out of {out}: {error}", LeftOutWarning, stacklevel=3)
    return out


class _Read(NamedTuple):
    """The recordings in each file, one after another, and why others could not be read."""

    recordings: list[tuple[Path, Recording]]
    failed: list[tuple[Path, TraceError]]


@dataclass(frozen=True)
class _Job:
    """The work to do: what is to be parsed, and who does it.

    Attributes:
        files: the recordings.
        found: what they were named by.
        root: the folder of the user's own code, as it was asked for.
        workers: who reads and writes.
        captures: recordings that may say what the kernels of replayed graphs are.
        logs: of what was compiled.
        progress: whether to show a bar.
        looks_at_code: see `parse_found`.
    """

    files: Sequence[Path]
    found: Readable
    root: str | None
    workers: _Workers
    captures: Sequence[CaptureFile]
    logs: Sequence[Path]
    progress: bool
    looks_at_code: bool

    def parse(self, writer: StoreWriter, kept: KeptRanks | None) -> list[tuple[Path, TraceError]]:
        """Write the store; return the files that are left out.

        Args:
            writer: of the store.
            kept: the ranks of the store in its place that need not be parsed again.

        Raises:
            TraceError: nothing could be read.
        """
        todo = [file for file in self.files if kept is None or file.name not in kept.sources]
        found = self._read(todo, writer)
        if kept is not None and not kept.goes_with(found.recordings):
            kept, found = None, self._read(self.files, writer)
        if kept is None and not found.recordings:
            raise found.failed[0][1]
        manifest = self._write(found, writer.folder, kept or NOTHING_KEPT)
        close_files()
        writer.finish(manifest)
        return found.failed

    def _read(self, files: Sequence[Path], writer: StoreWriter) -> _Read:
        folders = [writer.scratch(f"{len(files)}-{number}") for number in range(len(files))]
        found = _Read([], [])
        with _FilesProgress(files, shown=self.progress) as bar:
            callbacks = [bar.callback(self.workers.parallel)] * len(files)
            read = self.workers.map(_read_file, files, folders, callbacks)
            for file, each in zip(files, read, strict=True):
                if isinstance(each, TraceError):
                    each.args = (self.found.shown(str(each)),)
                    found.failed.append((file, each))
                else:
                    found.recordings.extend((file, recording) for recording in each)
        return found

    def _write(self, found: _Read, folder: Path, kept: KeptRanks) -> dict[str, Any]:
        """Write the tables of all ranks; return the manifest."""
        recordings = found.recordings
        found.failed.extend(add_compiled([each for _, each in recordings], self.logs))
        groups, ranks = assign_ranks(recordings)
        tasks = (
            [[recordings[at][1] for at in group] for group in groups],
            [spans_of([recordings[at][0] for at in group]) for group in groups],
            ranks,
            [folder] * len(ranks),
            [self.root] * len(ranks),
            [self._templates(found, folder)] * len(ranks),
        )
        facts = list(self.workers.map(_write_rank, *tasks))
        kept.copy(folder)
        _write_job(folder, sorted([*ranks, *kept.numbers]), self.workers)
        read = {file for file, _ in recordings}
        whole = [file for file in self.files if file in read or file.name in kept.sources]
        order = [file.name for file in whole]
        code = _code(folder, whole, [*ranks, *kept.numbers]) if self.looks_at_code else []
        entries = [*_entries(recordings, groups, ranks, facts), *kept.ranks]
        return {
            "sources": [
                kept.sources.get(file.name)
                or {
                    "path": self.found.shown(str(file)),
                    "bytes": file.stat().st_size,
                    "sha256": digest_of(file),
                }
                for file in whole
            ],
            # A store that is kept in part names each file once.
            "ranks": sorted(entries, key=lambda e: order.index(e["source"]))
            if kept.ranks
            else entries,
            "failed": [
                {"path": self.found.shown(str(file)), "error": str(error)}
                for file, error in found.failed
            ],
            "source_root": self.root,
            "captures": [file.source() for file in self.captures],
            "compile_logs": [str(path) for path in self.logs],
            "code": code,
        }

    def _templates(self, found: _Read, folder: Path) -> list[Templates]:
        """Return the templates in the captures, if any recording replays a graph at all.

        A capture that cannot be read is left out, as a recording is.
        """
        if not any(has_replays(recording) for _, recording in found.recordings):
            return []
        places = [folder] * len(self.captures), [self.root] * len(self.captures)
        read = self.workers.map(read_templates, self.captures, *places)
        templates: list[Templates] = []
        for file, each in zip(self.captures, read, strict=True):
            if isinstance(each, TraceError):
                found.failed.append((file.path, each))
            else:
                templates += each
        return templates


def default_store(trace: Path) -> Path:
    """Return `<stem>.pyprof2` beside the trace; of `net.json.gz` the stem is `net`."""
    return folder_of(trace) / f"{stem_of(name_of(trace))}.pyprof2"


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep the current folder off the path of the Pythons that are started for processes.

    Forked ones have this one's. Others import modules before they know it, and nothing but the
    environment reaches them by then.
    """
    from multiprocessing import get_start_method

    if get_start_method() == "fork":
        yield
        return
    with _ENVIRONMENT:
        before = os.environ.get("PYTHONSAFEPATH")
        os.environ["PYTHONSAFEPATH"] = "1"
        try:
            yield
        finally:
            os.environ.pop("PYTHONSAFEPATH", None)
            if before is not None:
                os.environ["PYTHONSAFEPATH"] = before


_ENVIRONMENT: Final = Lock()
"""It is that of all threads."""


class _Workers:
    """Runs the same step for each trace: here, in processes of their own, or elsewhere."""

    def __init__(self, jobs: int, executor: Executor | None = None) -> None:
        self._pool: ProcessPoolExecutor | None = None
        if executor is None and jobs > 1:
            from concurrent.futures import ProcessPoolExecutor

            with _safe_path():
                self._pool = ProcessPoolExecutor(jobs, initializer=give_memory_back)
        self._executor = self._pool if executor is None else executor
        self._started: list[Future[Any]] = []
        self.parallel = self._executor is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Tasks that still run after another has failed write into a folder that goes away.
        wait([task for task in self._started if not task.cancel()])
        if self._pool is not None:
            self._pool.shutdown()

    def map(self, step: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        """Yield the results in order."""
        if self._executor is None:
            yield from map(step, *columns)
            return
        try:
            with nullcontext() if self._pool is None else _safe_path():
                tasks = [self._executor.submit(step, *row) for row in zip(*columns, strict=True)]
            self._started += tasks
            for task in tasks:
                yield task.result()
        except BrokenExecutor as error:
            msg = "a process that read a trace was killed, perhaps out of memory; use --jobs 1"
            raise TraceError(msg) from error


class _FilesProgress:
    """A bar over the bytes of the files, shown once the work has taken a second."""

    def __init__(self, files: Sequence[Path], *, shown: bool) -> None:
        self._bar: tqdm[Any] | None = None
        self._last = 0
        if shown and sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm

            total = sum(file.stat().st_size for file in files)
            self._bar = tqdm(
                total=total, delay=1, unit="B", unit_scale=True, desc="reading", leave=False
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def callback(self, parallel: bool) -> Callable[[int], None] | None:  # noqa: FBT001
        """Return what readers call with their position; processes of their own cannot."""
        return None if parallel or self._bar is None else partial(self._update, self._bar)

    def _update(self, bar: tqdm[Any], position: int) -> None:
        if position < self._last:
            self._last = 0
        bar.update(position - self._last)
        self._last = position


def _read_file(
    file: Path, folder: Path, on_progress: Callable[[int], None] | None
) -> list[Recording] | TraceError:
    """Return what is recorded in a file, or why it cannot be read: the others are kept."""
    # A cluster does a task again where a worker has died in the middle of it.
    try:
        return read_recordings(file, Path(tempfile.mkdtemp(dir=folder)), on_progress)
    except TraceError as error:
        if is_shortage(error):
            raise shortage(error, file) from error
        return error


def _write_rank(
    segments: Sequence[Recording],
    spans: Sequence[int],
    rank: int,
    folder: Path,
    root: str | None,
    templates: Sequence[Templates],
) -> list[dict[str, Any]]:
    """Write the tables of a rank, and return facts on each of its recordings."""
    if len(segments) == 1:
        facts = [_write_recording(segments[0], rank, folder, root, templates)]
    else:
        # Each is linked by itself: nothing is joined across what was not recorded.
        scratch = [Path(tempfile.mkdtemp(prefix="scratch-rank-", dir=folder)) for _ in segments]
        facts = [
            _write_recording(segment, rank, own, root, templates)
            for segment, own in zip(segments, scratch, strict=True)
        ]
        shifts = clock_shifts(segments)
        for name in TABLES:
            write_table(folder, name, rank, joined(name, scratch, rank, shifts, spans))
    write_results(folder, rank)
    return facts


def _write_job(folder: Path, ranks: Sequence[int], workers: _Workers) -> None:
    """Write the tables that need all ranks."""
    if len(ranks) == 1 and not RankTables(folder, ranks[0]).parts("collectives").row_count:
        row = reference(ranks[0]).row()
        whole = {name: round(row[name]) for name in row if name.endswith("_ns")}
        clocks = pa.Table.from_pylist([row | whole], CLOCKS.schema())
        for table, rows in ((CLOCKS, clocks), (PARTS, PARTS.empty()), (SEGMENTS, SEGMENTS.empty())):
            write_table(folder, table.name, ranks[0], [rows])
        return
    # Many ranks need pandas, whose import takes longer than to read a small recording.
    from pyprof2.pipeline.many_ranks import write_job

    write_job(folder, ranks, workers.map)


def _write_recording(
    recording: Recording,
    rank: int,
    folder: Path,
    root: str | None,
    templates: Sequence[Templates],
) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="scratch-windows-", dir=folder) as scratch,
        TableWriters(folder, rank) as writers,
    ):
        for name, parts in assemble(recording, rank, root, facts, Path(scratch), templates):
            writers.write(name, parts)
        close_files()
    nbytes = writers.nbytes
    tables = RankTables(folder, rank, own=True)
    nbytes += write_table(folder, "idle", rank, _idle(tables, root))
    # Rows that may be of collectives; most recordings have none.
    found = collective_rows.rows_of_collectives(
        {name: tables.parts(name) for name in ("kernels", "ops", "ranges")},
        lambda name, at: tables.rows(name, at, collective_rows.INPUT[name]),
    )
    collectives = COLLECTIVES.empty()
    if found["kernels"].num_rows or found["ops"].num_rows:
        from pyprof2.analysis.job.collectives import collectives_of_rank

        found["signatures"] = tables.read("signatures", collective_rows.INPUT["signatures"])
        collectives = collectives_of_rank(found, rank)
    nbytes += write_table(folder, "collectives", rank, [collectives])
    return facts | {"table_bytes": nbytes}


def _idle(tables: RankTables, root: str | None) -> Iterator[pa.Table]:
    """Yield the table `idle` of a recording whose canonical tables are written, in parts."""
    parts = {name: tables.parts(name) for name in IN_PARTS}
    needed = INPUT | GRAPHS
    whole = tables.several({name: needed[name] for name in ("stalls", "trace", "graph_nodes")})
    with tempfile.TemporaryDirectory(prefix="scratch-idle-", dir=tables.store) as folder:
        spool = partial(spooled, Path(folder, "ranges.parquet"))
        yield from idle_of_recording(parts, whole, tables.rank, root, spool)


def _entries(
    recordings: Sequence[tuple[Path, Recording]],
    groups: Sequence[Sequence[int]],
    ranks: Sequence[int],
    facts: Sequence[Sequence[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Return what the manifest says of each recording, rank by rank."""
    says_so = [rank is not None for rank in claimed(recordings)]
    return [
        {
            "rank": rank,
            CLAIMED: says_so[at],
            "source": recordings[at][0].name,
            "problems": recordings[at][1].problems | dict.fromkeys(load_extensions(), 1),
            "skipped": dict(recordings[at][1].skipped),
            "annotated": dict(recordings[at][1].annotated),
            **({"entry": entry} if (entry := recordings[at][1].entry) else {}),
            "scanned": dict(recordings[at][1].scanned),
            **fact,
        }
        for group, rank, of_group in zip(groups, ranks, facts, strict=True)
        for at, fact in zip(group, of_group, strict=True)
    ]


def _code(folder: Path, files: Sequence[Path], ranks: Sequence[int]) -> list[Code]:
    """Return the hashes of the user's own files that are as they were when it was recorded."""
    paths: dict[str, None] = {}
    began = []
    for rank in sorted(set(ranks)):
        tables = RankTables(folder, rank)
        rows = tables.read("trace").to_pylist()
        root = next((row["source_root"] for row in rows if row["source_root"]), None)
        lines = tables.read("stacks", ["line"])["line"].unique().to_pylist()
        named = dict.fromkeys(line.rpartition(":")[0] for line in lines if line)
        paths |= dict.fromkeys(path for path in named if is_own_path(path, root))
        began += [_began(row, files) for row in rows]
    return list(code_of(paths, min(began, default=0)))


def _began(trace: Mapping[str, Any], files: Sequence[Path]) -> float:
    """Return when a recording began, in seconds since the epoch, at the latest."""
    written = min(file.stat().st_mtime for file in files)
    start, end, to_unix = (trace[name] for name in ("start_ns", "end_ns", "unix_ns"))
    if start is None:  # nothing was recorded that has a time
        return written
    if to_unix is not None:
        return min(written, float(start + to_unix) / 1e9)
    return written - float(end - start) / 1e9
