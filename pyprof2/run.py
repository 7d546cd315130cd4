"""The Python API: parse traces into a store, load a store or a trace, ask it for profiles."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import weakref
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pyprof2 import __version__
from pyprof2.analysis.costs import load_extensions
from pyprof2.assemble import assemble
from pyprof2.columns import as_pandas
from pyprof2.errors import TraceError, UsageError
from pyprof2.parsers import find_traces, read_recordings
from pyprof2.store import StoreWriter, is_store, read_manifest, read_table, write_table
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd
    import pyarrow as pa

    from pyprof2.recording import Recording

_RANK_IN_NAME: Final = re.compile(r"rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)


def parse(
    paths: Path | str | Sequence[Path | str],
    out: Path | str | None = None,
    *,
    jobs: int = 1,
    force: bool = False,
    source_root: Path | str | None = None,
    progress: bool = False,
) -> Path:
    """Read traces, one per rank, and write a store; return its path.

    Args:
        paths: trace files, or folders of them.
        out: the store to write; by default `<stem>.pyprof2` beside the first trace.
        jobs: how many traces to read at once, in processes of their own.
        force: replace a store that exists.
        source_root: frames of user code below this folder come first in `source`.
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
    root = None if source_root is None else str(source_root)
    with StoreWriter(out, force=force) as writer, _Workers(min(jobs, len(files))) as workers:
        folders = [writer.scratch(str(number)) for number in range(len(files))]
        with _Progress(files, shown=progress) as bar:
            read = workers.map(
                _read_file, files, folders, [bar.callback(workers.parallel)] * len(files)
            )
            recordings = [
                (file, found) for file, each in zip(files, read, strict=True) for found in each
            ]
        ranks = _ranks(recordings)
        tasks = (
            [found for _, found in recordings],
            ranks,
            [writer.folder] * len(ranks),
            [root] * len(ranks),
        )
        facts = list(workers.map(_write_recording, *tasks))
        writer.finish(_manifest(files, recordings, ranks, facts))
    return out


def default_store(trace: Path) -> Path:
    """Return `<stem>.pyprof2` beside the trace; of `net.json.gz` the stem is `net`."""
    name = trace.resolve().name if trace.name in ("", ".", "..") else trace.name
    stem = re.sub(r"(\.pt\.trace)?(\.json)?(\.gz)?$|\.sqlite$|\.nsys-rep$", "", name) or name
    return trace.parent / f"{stem}.pyprof2"


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


def _write_recording(
    recording: Recording, rank: int, folder: Path, root: str | None
) -> dict[str, int]:
    facts: dict[str, int] = {}
    nbytes = 0
    for name, parts in assemble(recording, rank, root, facts):
        nbytes += write_table(folder, name, rank, parts)
    return facts | {"table_bytes": nbytes}


def _ranks(recordings: Sequence[tuple[Path, Recording]]) -> list[int]:
    """Return the rank of each recording: its own, else that in the file's name, else by order.

    Raises:
        TraceError: two recordings claim one rank.
    """
    recorded = Counter(file for file, _ in recordings)
    claims: list[int | None] = []
    for file, recording in recordings:
        # A file of several processes is not that of one rank, whatever its name says.
        in_name = _RANK_IN_NAME.search(file.name) if recorded[file] == 1 else None
        claims.append(int(in_name[1]) if recording.rank is None and in_name else recording.rank)
    twice = [rank for rank, count in Counter(claims).items() if rank is not None and count > 1]
    if twice:
        files = ", ".join(
            str(f) for (f, _), claim in zip(recordings, claims, strict=True) if claim == twice[0]
        )
        msg = f"{files}: both are of rank {twice[0]}; parse each into a store of its own"
        raise TraceError(msg)
    free = (number for number in range(2 * len(claims)) if number not in claims)
    return [next(free) if claim is None else claim for claim in claims]


def _manifest(
    files: Sequence[Path], recordings: Sequence[tuple[Path, Recording]], ranks: Sequence[int],
    facts: Sequence[dict[str, int]],
) -> dict[str, Any]:  # fmt: skip
    return {
        "tool": f"pyprof2 {__version__}",
        "sources": [_source(file) for file in files],
        "ranks": [
            {
                "rank": rank,
                "source": file.name,
                "problems": recording.problems | dict.fromkeys(load_extensions(), 1),
                "ignored": dict(recording.ignored),
                **fact,
            }
            for (file, recording), rank, fact in zip(recordings, ranks, facts, strict=True)
        ],
    }


def _source(file: Path) -> dict[str, Any]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {"path": str(file), "bytes": file.stat().st_size, "sha256": digest}


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
        source_root: frames of user code below this folder come first; only for a trace.
        progress: show a bar on stderr while parsing.

    Raises:
        TraceError, StoreError: the path cannot be read.
    """
    path = Path(path)
    if is_store(path):
        if source_root is not None:
            msg = f"{path}: --source-root works while parsing; give it to 'pyprof2 parse'"
            raise UsageError(msg)
        return Run(path, device)
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
    """

    path: Path
    device: Path | str | None = None

    def __post_init__(self) -> None:
        """Read the manifest, which refuses what is no store."""
        self.manifest = read_manifest(self.path)

    def table(self, name: str) -> pa.Table:
        """Return a canonical table as Arrow."""
        table = read_table(self.path, name)
        if self.device is not None and name in ("kernels", "copies"):
            from pyprof2.analysis.verdict import judge

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
    def signatures(self) -> pd.DataFrame:
        """One row per distinct op with its inputs."""
        return self._frame("signatures")

    @cached_property
    def ranges(self) -> pd.DataFrame:
        """One row per step, annotation, module or Python frame."""
        return self._frame("ranges")

    @cached_property
    def memory(self) -> pd.DataFrame:
        """One row per allocation or release."""
        return self._frame("memory")

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
        """Totals, busy time and coverage; see `pyprof2.analysis.summary.summarise`."""
        from pyprof2.analysis.summary import summarise

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

        See `pyprof2.analysis.ledger.ledger`.
        """
        from pyprof2.analysis.ledger import ledger, op_ledger

        kernels, copies = self.table("kernels"), self.table("copies")
        if kernels.num_rows or copies.num_rows:
            return ledger(kernels, copies)
        return op_ledger(self.table("ops"))

    @cached_property
    def utilization(self) -> pd.DataFrame:
        """MFU and HFU of each step; see `pyprof2.analysis.utilization.utilization`."""
        from pyprof2.analysis.utilization import utilization

        tables = {name: self.table(name) for name in ("kernels", "copies", "ops")}
        ranges = read_table(self.path, "ranges", ["rank", "start_ns", "dur_ns", "name", "kind"])
        devices = read_table(self.path, "devices").to_pylist()
        return utilization(tables, ranges, devices, self.device)

    def rows(self) -> pd.DataFrame:
        """Return the rows of axis `kernel`: GPU activities, or op calls where there are none."""
        from pyprof2.analysis.rows import activity_rows, op_rows

        kernels, copies = self.table("kernels"), self.table("copies")
        if kernels.num_rows or copies.num_rows:
            return activity_rows(kernels, copies)
        devices = self.table("devices").to_pylist()
        return op_rows(self.table("ops"), self.table("signatures"), devices, self.device)

    def profile(
        self, by: str | Sequence[str] = "kernel", *, depth: int | None = None, **selection: Any
    ) -> pd.DataFrame:
        """Return what `pyprof2 prof` prints.

        Args:
            by: `kernel`, or one or more of the axes `name`, `op`, `signature`, `layer`,
                `source`, `direction`, `step`, `stream`, `rank`, `category`.
            depth: of axis `layer`: how many parts of the path to keep.
            **selection: `rank`, `step` (a number or first and last), `layer`, `op`, `kernel`
                (regular expressions), `copies` (False leaves copies out).

        Raises:
            UsageError: an axis is unknown, or a regular expression is not one.
        """
        from pyprof2.analysis.profile import select, summarize
        from pyprof2.analysis.rows import HIDDEN

        step = selection.get("step")
        if isinstance(step, int):
            selection["step"] = (step, step)
        rows = select(self.rows(), **selection)
        axes = [by] if isinstance(by, str) else list(by)
        return (
            rows.drop(columns=list(HIDDEN), errors="ignore")
            if axes == ["kernel"]
            else summarize(rows, axes, depth)
        )

    def explain(self, reference: str, rank: int | None = None) -> dict[str, Any]:
        """Return all that is known of one kernel or op; see `pyprof2.analysis.explain.explain`.

        Args:
            reference: `kernel:7` or `op:7`, by `kernel_id` or `op_id`.
            rank: whose; may be left out where there is only one.

        Raises:
            UsageError: there is no such row or rank.
        """
        from pyprof2.analysis.explain import explain, parse_reference, rows_of_rank

        wanted = parse_reference(reference)
        ranks = self.summary["ranks"]
        if rank is None and len(ranks) > 1:
            msg = f"{reference}: in which rank? Add --rank N, one of {_listed(ranks)}"
            raise UsageError(msg)
        rank = ranks[0] if rank is None else rank
        if rank not in ranks:
            msg = f"rank {rank}: no such rank; there is {_listed(ranks)}"
            raise UsageError(msg)
        names = ("kernels", "copies", "launches", "ops", "signatures", "devices")
        tables = {name: rows_of_rank(self.table(name), rank) for name in names}
        return {"rank": rank} | explain(tables, wanted, self.device)

    def check(self) -> pd.DataFrame:
        """Return what the recording lacks and what was repaired; columns as `pyprof2 check`."""
        import pandas as pd

        from pyprof2.analysis.checks import find_lacks
        from pyprof2.analysis.work_checks import find_devices, find_work

        tables = {name: self.table(name) for name in ("kernels", "copies", "ops")}
        found = [
            find_lacks(self.summary, self.manifest),
            find_work(tables, self.summary["profilers"]),
            find_devices([] if self.device else self.table("devices").to_pylist()),
        ]
        both = pd.concat([frame for frame in found if len(frame)] or found, ignore_index=True)
        gravity = both["severity"].map({"problem": 0, "lack": 1, "info": 2})
        return both.iloc[gravity.argsort(kind="stable")].reset_index(drop=True)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
