"""Exports of Nsight Systems to test with: a test states what matters, the rest is filled in.

Times are ns, as Nsight Systems has them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyprof2.api.run import Run, load
from pyprof2.markers import DOMAIN, Marker, format_marker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

PID: Final = 100
MAIN: Final = 101
"""The thread that runs forward, unless a test says otherwise."""
ENGINE: Final = 102
"""The thread that runs backward."""

KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES: Final = "NVTX_EVENTS"
STRINGS: Final = "StringIds"
THREADS: Final = "ThreadNames"
GPUS: Final = "TARGET_INFO_GPU"

PUSHED: Final = 59
STARTED: Final = 60
MARK: Final = 34
DOMAIN_CREATED: Final = 75
OURS: Final = 7
"""Number of our NVTX domain."""

_TEXTS: Final = ("text", "value", "name", "jsonText", "utcTime")
_VM: Final = 1 << 48


def global_pid(pid: int, machine: int = 0) -> int:
    """Return the serialized id of a process."""
    return machine << 56 | _VM | pid << 24


def global_tid(pid: int, tid: int, machine: int = 0) -> int:
    """Return the serialized id of a thread."""
    return global_pid(pid, machine) | tid


@dataclass
class Export:
    """Rows by table; written to a file, a table exists if it has any."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _strings: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, **row: Any) -> Export:
        """Add a row."""
        self.tables.setdefault(table, []).append(row)
        return self

    def string(self, text: str) -> int:
        """Register a text, and return its id."""
        if text not in self._strings:
            self._strings[text] = 10 + 3 * len(self._strings)
            self.add(STRINGS, id=self._strings[text], value=text)
        return self._strings[text]

    def activity(self, table: str, start: int, dur: int, correlation: int, **row: Any) -> Export:
        """Add GPU work; `pid` and `device` may be given."""
        pid, device, machine = (
            row.pop(*each) for each in (("pid", PID), ("device", 0), ("machine", 0))
        )
        full = {
            "start": start, "end": start + dur, "deviceId": device, "contextId": 1, "streamId": 7,
            "correlationId": correlation, "globalPid": global_pid(pid, machine),
            "graphNodeId": None,
        }  # fmt: skip
        return self.add(table, **full | row)

    def kernel(self, name: str, start: int, dur: int, correlation: int = 1, **row: Any) -> Export:
        """Add a kernel; any column may be given."""
        shape: dict[str, Any] = {
            "demangledName": self.string(name), "shortName": self.string(name.partition("<")[0]),
            "registersPerThread": 32, "gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128,
            "blockY": 1, "blockZ": 1, "staticSharedMemory": 16, "dynamicSharedMemory": 1024,
        }  # fmt: skip
        return self.activity(KERNELS, start, dur, correlation, **shape | row)

    def call(self, name: str, start: int, dur: int, correlation: int = 1, **where: int) -> Export:
        """Add a call of the CUDA API; `pid`, `tid`, `machine`, `event_class` may be given."""
        thread = global_tid(where.get("pid", PID), where.get("tid", MAIN), where.get("machine", 0))
        return self.add(
            CALLS, start=start, end=start + dur, eventClass=where.get("event_class", 0),
            globalTid=thread, correlationId=correlation, nameId=self.string(name),
        )  # fmt: skip

    def launched(self, name: str, start: int, correlation: int, **where: int) -> Export:
        """Add a kernel, and its launch at `start` on a thread; the kernel runs 1000 ns later."""
        pid = where.get("pid", PID)
        self.call("cudaLaunchKernel_v7000", start, 5, correlation, **where)
        machine = where.get("machine", 0)
        return self.kernel(name, start + 1000, 100, correlation, pid=pid, machine=machine)

    def range(
        self,
        text: str | None,
        start: int | None,
        end: int | None,
        *,
        registered: bool = False,
        **where: int | None,
    ) -> Export:
        """Add an NVTX event, its text inline or registered.

        `pid`, `tid`, `machine`, `domain`, `payload` and `kind` may be given.
        """
        machine = where.get("machine") or 0
        thread = global_tid(where.get("pid") or PID, where.get("tid") or MAIN, machine)
        text_id = self.string(text) if registered and text is not None else None
        return self.add(
            RANGES, start=start, end=end, eventType=where.get("kind", PUSHED), globalTid=thread,
            text=None if registered else text, textId=text_id, domainId=where.get("domain", 0),
            int64Value=where.get("payload"),
        )  # fmt: skip

    def domain(self, name: str = DOMAIN, number: int = OURS, *, pid: int = PID) -> Export:
        """Add the creation of an NVTX domain."""
        return self.range(name, 0, None, pid=pid, domain=number, kind=DOMAIN_CREATED)

    def thread_name(self, name: str, tid: int, *, pid: int = PID, machine: int = 0) -> Export:
        """Add the name of a thread."""
        thread = global_tid(pid, tid, machine)
        return self.add(THREADS, globalTid=thread, nameId=self.string(name), priority=20)

    def marker(self, marker: Marker, start: int, end: int | None, **rest: Any) -> Export:
        """Add a range of our annotation, or an instant if it has no end."""
        kind = MARK if end is None else PUSHED
        text = format_marker(marker)
        return self.range(
            text, start, end, **{"domain": OURS, "registered": True, "kind": kind} | rest
        )

    def gpu(self, **row: Any) -> Export:
        """Add a GPU."""
        full = {
            "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalMemory": 85 * 10**9, "smCount": 132,
            "memoryBandwidth": 3_352 * 10**9, "clockRate": 1_980 * 10**6, "cuDevice": 0,
            "computeMajor": 9, "computeMinor": 0,
        }  # fmt: skip
        return self.add(GPUS, **full | row)

    def write(self, path: Path, without: Collection[str] = ()) -> Path:
        """Write the file, without some tables (`T`) and columns (`T.c`)."""
        with closing(sqlite3.connect(path)) as connection:
            for table, rows in self.tables.items():
                if table not in without:
                    left_out = {name.partition(".")[2] for name in without if f"{table}." in name}
                    _write_table(connection, table, rows, left_out)
            connection.commit()
        return path

    def load(self, folder: Path, without: Collection[str] = ()) -> Run:
        """Write the file and load it."""
        return load(self.write(folder / "export.sqlite", without))


def _write_table(
    connection: sqlite3.Connection, table: str, rows: list[dict[str, Any]], left_out: Iterable[str]
) -> None:
    names = [name for name in dict.fromkeys(n for row in rows for n in row) if name not in left_out]
    declared = ", ".join(f'"{name}" {"TEXT" if name in _TEXTS else "INTEGER"}' for name in names)
    connection.execute(f'CREATE TABLE "{table}" ({declared})')
    holes = ", ".join("?" * len(names))
    connection.executemany(
        f'INSERT INTO "{table}" VALUES ({holes})',  # noqa: S608 (our own names)
        [[row.get(name) for name in names] for row in rows],
    )
