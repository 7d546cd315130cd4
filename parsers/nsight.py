"""Read Nsight Systems: the SQLite export, or a report that `nsys` exports first.

Only this module, and `_nsight_*` beside it, know the names that nsys gives to tables and columns.
Tables are made only where there was something to put in, and columns come and go: what is there
is looked at, not the version. Tried with schemas 2.9 (2022), 3.0 (Debian's 2022.4), 3.13 (2024),
3.24 and 3.25 (2026).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from pyprof2.errors import TraceError
from pyprof2.markers import Marker, format_marker
from pyprof2.parsers._columns import known_ids
from pyprof2.parsers._labels import cpu_device, entry_of
from pyprof2.parsers._nsight_devices import (
    COPY_COLUMNS,
    GRAPH_COLUMNS,
    KERNEL_COLUMNS,
    OVERHEAD_COLUMNS,
    OVERHEADS,
    SET_COLUMNS,
    WAIT_COLUMNS,
    WAITS,
    copies,
    graphs,
    kernels,
    overheads,
    sets,
    waits,
)
from pyprof2.parsers._nsight_facts import (
    EXPORT_TABLES,
    host_name,
    read_devices,
    reported_errors,
    session_start,
    skipped_rows,
    with_undescribed,
)
from pyprof2.parsers._nsight_ranges import RangeReader
from pyprof2.parsers._nsight_rows import (
    ID_MASK,
    NO_ID,
    PID_SHIFT,
    Process,
    Strings,
    ints,
    where,
)
from pyprof2.parsers._nsys import export_report, is_report
from pyprof2.parsers._sqlite import Database
from pyprof2.parsers.formats import other_database
from pyprof2.problems import (
    BACKTRACES,
    GRAPHS_WITH_NODES,
    LAUNCHED_EARLY,
    NO_CALLS,
    OTHER_PROCESSES,
    UNKNOWN_PROCESS,
    WHOLE_GRAPHS,
)
from pyprof2.recording import ANNOTATED_PEAKS, ANNOTATED_RANK, Recording, TextCodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyprof2.parsers._nsight_rows import Columns
    from pyprof2.parsers._sqlite import ColumnType

_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
_SETS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
_GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_NODES: Final = ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS")
"""When nodes of graphs were made; newer schemas call what they record of graphs by the second."""
_CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES: Final = "NVTX_EVENTS"
_STRINGS: Final = "StringIds"
_THREADS: Final = "ThreadNames"
_OF_AUTOGRAD: Final = "pt_autograd_"
"""How PyTorch names the threads on which it runs backward."""

_EXPORT: Final = "export.sqlite"

_ACTIVITY_COLUMNS: Final = (
    "globalPid", "deviceId", "contextId", "streamId", "correlationId", "graphNodeId"
)  # fmt: skip
_CALL_COLUMNS: Final = ("globalTid", "correlationId", "nameId", "eventClass")
_NODE_COLUMNS: Final = ("globalTid", "graphNodeId", "originalGraphNodeId")
_RANGE_COLUMNS: Final = (
    "eventType", "globalTid", "textId", "domainId", "int64Value", "jsonTextId"
)  # fmt: skip

_BACKTRACE_CLASS: Final = 67
"""Calls of this `eventClass` repeat others, to hold their backtraces."""
_ENTRY_VERSION: Final = r"_v\d{4,5}$"

_RECORD: Final = "record with 'nsys profile --trace=cuda,nvtx'"


def holds_work(path: Path) -> bool:
    """Return whether there is GPU activity in an export, or an op that the annotation marked."""
    op = format_marker(Marker("op")).rstrip("}")
    with Database(path) as database:
        if any(database.count(name) for name in (_KERNELS, _COPIES, _SETS)):
            return True
        # A text that was registered stands among the strings, one that came once in its range.
        for table, column in ((_STRINGS, "value"), (_RANGES, "text")):
            if table not in database.tables:
                continue
            texts = sa.select(sa.literal(1)).select_from(sa.table(table))
            if database.rows(texts.where(sa.column(column).startswith(op)).limit(1)):
                return True
    return False


def read_recordings(
    path: Path, folder: Path, on_progress: Callable[[int], None] | None = None
) -> list[Recording]:
    """Return the recordings in `path`, by process id; their raw tables are spooled into `folder`.

    There is one for each process that used a GPU, or for each with ranges where none did.
    `on_progress` is called with the position in the file, as far as it is known.

    Raises:
        TraceError: the file cannot be read, or holds nothing to profile.
    """
    export = export_report(path, folder / _EXPORT) if is_report(path) else path
    with Database(export, shown_as=path) as database:
        return _ExportReader(database, folder, on_progress).read()


class _ExportReader:
    """Reads table after table, and gives each process its rows."""

    def __init__(
        self, database: Database, folder: Path, on_progress: Callable[[int], None] | None
    ) -> None:
        self._database = database
        self._folder = folder
        self._on_progress = on_progress
        self._processes: dict[int | None, Process] = {}
        self._ranges: dict[int | None, RangeReader] = {}
        self._all_known = False
        self._done = self._left_out = 0
        there = database.tables
        other = None if _STRINGS in there else other_database(sorted(there))
        if other is not None or not there & {_KERNELS, _COPIES, _SETS, _GRAPHS, _CALLS, _RANGES}:
            if other is None and there & {_STRINGS, *EXPORT_TABLES}:
                other = f"neither CUDA nor NVTX tables in it; {_RECORD}"
            msg = (
                f"{database.shown_as}: {other or 'an SQLite file, but no export of Nsight Systems'}"
            )
            raise TraceError(msg)
        self._strings = Strings(database, _STRINGS)
        self._row_count = 0
        if on_progress is not None:
            tables = (_KERNELS, _COPIES, _GRAPHS, _CALLS, _RANGES)
            self._row_count = sum(map(database.about, tables))

    @cached_property
    def _only_process(self) -> int | None:
        """Return the one process that called CUDA; None if there are several, or it is unknown."""
        if "globalTid" not in self._database.columns(_CALLS):
            return None
        pid = sa.column("globalTid", sa.BigInteger).bitwise_rshift(PID_SHIFT)
        query = sa.select(pid).select_from(sa.table(_CALLS)).distinct()
        pids = [row[0] for row in self._database.rows(query.limit(2))]
        return pids[0] if len(pids) == 1 and isinstance(pids[0], int) else None

    @cached_property
    def _autograd_threads(self) -> dict[int | None, frozenset[tuple[int, int]]]:
        """Process and thread id of the threads that are named like those of autograd."""
        found: dict[int, set[tuple[int, int]]] = {}
        codes = TextCodes()
        for rows in self._database.batches(_THREADS, {"globalTid": "int", "nameId": "int"}):
            names = self._strings.codes(rows["nameId"], codes).to_pylist()
            texts = list(codes)
            for thread, code in zip(rows["globalTid"].to_pylist(), names, strict=True):
                if None not in (thread, code) and texts[code].startswith(_OF_AUTOGRAD):
                    place = (thread >> PID_SHIFT) & ID_MASK, thread & ID_MASK
                    found.setdefault(thread >> PID_SHIFT, set()).add(place)
        return {number: frozenset(threads) for number, threads in found.items()}

    def read(self) -> list[Recording]:
        """Return the recordings."""
        for table, kind, columns, read in (
            (_KERNELS, "kernel", KERNEL_COLUMNS, self._kernels),
            (_COPIES, "memcpy", COPY_COLUMNS, copies),
            (_SETS, "memset", SET_COLUMNS, sets),
        ):
            wanted = (*_ACTIVITY_COLUMNS, *columns)
            for process, rows in self._by_process(table, "globalPid", wanted):
                self._add_activities(process, rows, kind, read)
        self._read_graphs()
        self._all_known = bool(self._processes)
        for process, rows in self._by_process(_CALLS, "globalTid", _CALL_COLUMNS):
            self._add_calls(process, rows)
        for process, rows in self._by_process(
            _RANGES, "globalTid", _RANGE_COLUMNS, ("text", "jsonText")
        ):
            if process.number not in self._ranges:
                self._ranges[process.number] = RangeReader(process, self._strings)
            self._ranges[process.number].add(rows)
        self._all_known = True
        self._read_stalls()
        self._read_created_nodes()
        for reader in self._ranges.values():
            reader.finish()
        return self._recordings()

    def _read_graphs(self) -> None:
        """Append graphs that were recorded as a whole, but for those whose nodes are there too."""
        nodes = {
            number: np.concatenate(process.correlations)
            for number, process in self._processes.items()
        }
        wanted = (*_ACTIVITY_COLUMNS, *GRAPH_COLUMNS)
        for process, rows in self._by_process(_GRAPHS, "globalPid", wanted):
            # One launch has one correlation id, and all nodes of its graph have it.
            known = np.isin(ints(rows["correlationId"]), nodes.get(process.number, ()))
            process.skipped[GRAPHS_WITH_NODES] += int(known.sum())
            process.problems[WHOLE_GRAPHS] += int((~known).sum())
            self._add_activities(process, where(rows, ~known), "graph", graphs)

    def _read_created_nodes(self) -> None:
        """Append when nodes of graphs were made; a node of no other one's is an original."""
        for table in _NODES:
            if not set(_NODE_COLUMNS) <= set(self._database.columns(table)):
                continue
            for process, rows in self._by_process(table, "globalTid", _NODE_COLUMNS):
                timed, times = process.times(rows, in_span=False)
                ids = {
                    name: known_ids(timed[column], least=1)
                    for name, column in zip(
                        ("node_id", "original_id"), _NODE_COLUMNS[1:], strict=True
                    )
                }
                thread = pa.array(ints(timed["globalTid"]) & ID_MASK)
                found = ids | {"time_ns": times["start_ns"], "tid": thread}
                found["pid"] = pa.array(np.full(len(thread), process.pid or 0))
                process.spool.append("created_nodes", found, len(thread))

    def _read_stalls(self) -> None:
        """Append what held the host or a stream up. It is no work: the span does not hold it."""
        for table, otherwise in OVERHEADS.items():
            for process, rows in self._by_process(table, "globalTid", OVERHEAD_COLUMNS):
                timed, times = process.times(rows, in_span=False)
                found = times | overheads(process, timed, self._strings, otherwise)
                process.spool.append("stalls", found, len(timed["start"]))
        for process, rows in self._by_process(WAITS, "globalPid", ("globalPid", *WAIT_COLUMNS)):
            timed, times = process.times(rows, in_span=False)
            process.spool.append("stalls", times | waits(process, timed), len(timed["start"]))

    def _by_process(
        self, table: str, key: str, columns: Iterable[str], texts: Iterable[str] = ()
    ) -> Iterator[tuple[Process, Columns]]:
        """Yield the rows of a table, batch by batch and process by process."""
        wanted: dict[str, ColumnType] = dict.fromkeys(("start", "end", *columns), "int")
        wanted |= dict.fromkeys(texts, "text")
        for rows in self._database.batches(table, wanted):
            keys = ints(rows[key])
            # Machines may have processes of one number: what is above it says whose it is.
            processes = np.where(keys == NO_ID, NO_ID, keys >> PID_SHIFT)
            for number in pc.unique(pa.array(processes)).to_pylist():
                mine = processes == number
                process = self._process(None if number == NO_ID else number, key)
                if process is not None:
                    yield process, rows if mine.all() else where(rows, mine)
                else:
                    self._left_out += int(mine.sum())
            self._report(len(keys))

    def _process(self, number: int | None, key: str) -> Process | None:
        """Return the process that rows belong to; None if they are not to be read."""
        if number is None:
            # Whose a call or a range is cannot be found otherwise; GPU work can be.
            if key == "globalTid":
                return None
            number = self._only_process
        if number not in self._processes:
            if self._all_known:
                return None
            self._processes[number] = Process(number, self._folder)
        return self._processes[number]

    def _report(self, rows: int) -> None:
        if self._on_progress is not None:
            self._done += rows
            size = self._database.path.stat().st_size
            self._on_progress(min(size, size * self._done // max(1, self._row_count)))

    def _add_activities(
        self,
        process: Process,
        rows: Columns,
        kind: str,
        read: Callable[[Process, Columns], Columns],
    ) -> None:
        rows, columns = process.times(rows)
        count = len(rows["start"])
        texts = process.spool.texts["activities"]
        correlation = rows["correlationId"]
        if process.pid is None:
            process.problems[UNKNOWN_PROCESS] += count
            correlation = pa.nulls(count, pa.int64())
        process.correlations.append(ints(correlation.drop_null()))
        process.ordinals.update(pc.unique(rows["deviceId"].drop_null()).to_pylist())
        columns |= read(process, rows) | {
            "correlation_id": correlation,
            "device": rows["deviceId"],
            "stream": rows["streamId"],
            "kind": np.full(count, texts["kind"][kind]),
            "graph_node_id": rows["graphNodeId"],
            "context": rows["contextId"],
        }
        process.spool.append("activities", columns, count)

    def _kernels(self, process: Process, rows: Columns) -> Columns:
        return kernels(process, rows, self._strings, self._devices(process))

    def _devices(self, process: Process) -> list[dict[str, Any]]:
        if process.devices is None:
            process.devices = read_devices(self._database, process.number)
        return process.devices

    def _add_calls(self, process: Process, rows: Columns) -> None:
        repeats = ints(rows["eventClass"]) == _BACKTRACE_CLASS
        if repeats.any():
            process.skipped[BACKTRACES] += int(repeats.sum())
            rows = where(rows, ~repeats)
        rows, columns = process.times(rows)
        smallest = pc.min(rows["correlationId"]).as_py()
        if smallest is not None:
            first = process.first_call
            process.first_call = smallest if first is None else min(first, smallest)
        names = process.spool.texts["launches"]["name"]
        columns |= {
            "tid": pc.bit_wise_and(rows["globalTid"], ID_MASK),
            "name": self._strings.codes(rows["nameId"], names, cut_off=_ENTRY_VERSION),
            "correlation_id": rows["correlationId"],
        }
        process.spool.append("launches", columns, len(rows["start"]))

    def _recordings(self) -> list[Recording]:
        for process in self._processes.values():
            process.spool.finish()
        processes = [
            process
            for process in self._processes.values()
            if any(process.spool.counts[table] for table in ("activities", "ops", "ranges"))
        ]
        processes = [p for p in processes if p.used_gpu] or processes
        if not processes:
            msg = f"{self._database.shown_as}: neither GPU work nor NVTX ranges in it; {_RECORD}"
            raise TraceError(msg)
        processes.sort(key=lambda p: (p.pid is None, p.pid or 0, p.number or 0))
        unix_ns = session_start(self._database)
        found = [self._recording(process, unix_ns) for process in processes]
        found[0].problems.update(reported_errors(self._database) + self._strings.problems)
        found[0].skipped.update(skipped_rows(self._database))
        if self._left_out:
            found[0].skipped[OTHER_PROCESSES] += self._left_out
        return found

    def _recording(self, process: Process, unix_ns: int | None) -> Recording:
        # Why GPU work has no launch: correlation ids count the calls of a process, from 1.
        ids = np.concatenate([np.empty(0, np.int64), *process.correlations])
        if process.first_call is None:
            process.problems[NO_CALLS] += len(ids)
        else:
            process.problems[LAUNCHED_EARLY] += int(((ids > 0) & (ids < process.first_call)).sum())
        process.problems, process.skipped = +process.problems, +process.skipped
        ranges = self._ranges.get(process.number)
        devices = with_undescribed(self._devices(process), process.ordinals)
        if process.cpu is not None:
            cpu = cpu_device(process.cpu, used_gpu=process.used_gpu, problems=process.problems)
            process.annotated[ANNOTATED_PEAKS] += cpu is not None
            devices = devices if cpu is None else [cpu]
        process.annotated[ANNOTATED_RANK] += process.rank is not None
        return Recording(
            process.spool,
            rank=process.rank,
            host=host_name(self._database),
            pids=frozenset() if process.pid is None else frozenset({process.pid}),
            signatures=[] if ranges is None else ranges.signatures,
            devices=devices,
            trace=self._trace(process) | {"unix_ns": unix_ns},
            problems=process.problems,
            skipped=process.skipped,
            annotated=+process.annotated,
            trusts_recorded_id=False,
            source_root=process.source_root,
            entry=entry_of(process.entry),
            ops_are_ranges=True,
            autograd_threads=self._autograd_threads.get(process.number, frozenset()),
        )

    def _trace(self, process: Process) -> dict[str, Any]:
        known = process.last_ns >= process.first_ns
        return {
            "source": self._database.shown_as.name,
            "profiler": "nsight",
            "world_size": process.world_size,
            "host": host_name(self._database),
            **process.machine,
            "start_ns": process.first_ns if known else None,
            "end_ns": process.last_ns if known else None,
            "event_count": process.rows,
        }
