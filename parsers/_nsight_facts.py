"""Facts that an export says of the machine, the session, and the profiler itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from pyprof2 import problems
from pyprof2.parsers._nsight_rows import ID_MASK, PID_SHIFT
from pyprof2.problems import NSIGHT_ERROR, with_detail

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyprof2.parsers._sqlite import Database

EXPORT_TABLES: Final = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_SESSION: Final = "TARGET_INFO_SESSION_START_TIME"
_ENVIRONMENT: Final = "TARGET_INFO_SYSTEM_ENV"
_DIAGNOSTICS: Final = "DIAGNOSTIC_EVENT"
_GPUS: Final = "TARGET_INFO_GPU"
_DEVICES: Final = "TARGET_INFO_CUDA_DEVICE"
_SKIPPED: Final = {
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": problems.CUDA_EVENTS,
    "CUDA_GPU_MEMORY_USAGE_EVENTS": problems.GPU_MEMORY,
}
_ERROR: Final = 3
_DIAGNOSTIC_CHARS: Final = 160
_DIAGNOSTICS_AT_MOST: Final = 20
_GPU_COLUMNS: Final = (
    "vmId", "id", "name", "totalMemory", "memoryBandwidth", "clockRate", "smCount", "cuDevice",
    "computeMajor", "computeMinor",
)  # fmt: skip


def read_devices(database: Database, process: int | None) -> list[dict[str, Any]]:
    """Return the devices that the file describes, by the ordinals that the process gives them.

    `process` is its id below that of its machine; of several machines it is the devices of its own.
    """
    pid = None if process is None else process & ID_MASK
    rows = _read(database, _GPUS, _GPU_COLUMNS)
    machine = None if process is None else process - (process & ID_MASK)
    vms = [row.get("vmId") for row in rows]
    is_own = [isinstance(vm, int) and vm >> PID_SHIFT == machine for vm in vms]
    own = [row for row, is_one in zip(rows, is_own, strict=True) if is_one]
    gpus = [_Gpu(row) for row in own or rows]
    by_id = {gpu.number("id"): gpu for gpu in gpus}
    found: dict[int, _Gpu] = {
        row["cudaId"]: by_id[row["gpuId"]]
        for row in _read(database, _DEVICES, ("gpuId", "cudaId", "pid"))
        if row.get("pid") == pid
        and isinstance(row.get("cudaId"), int)
        and row.get("gpuId") in by_id
    }
    if not found:
        ordinals = [gpu.number("cuDevice") for gpu in by_id.values()]
        # Some versions leave the ordinals out, others give several GPUs the same one.
        if None in ordinals or len(set(ordinals)) < len(ordinals):
            ordinals = list(by_id)
        pairs = zip(ordinals, by_id.values(), strict=True)
        found = {ordinal: gpu for ordinal, gpu in pairs if ordinal is not None}
    return [_device(ordinal, gpu) for ordinal, gpu in sorted(found.items())]


def with_undescribed(
    devices: list[dict[str, Any]], ordinals: Iterable[int]
) -> list[dict[str, Any]]:
    """Return the devices, and those of `ordinals` that are not among them."""
    described = {device["device"] for device in devices}
    missing = sorted(set(ordinals) - described)
    return devices + [_device(ordinal, _Gpu({})) for ordinal in missing]


def _device(ordinal: int, gpu: _Gpu) -> dict[str, Any]:
    """Return a row of the canonical table, without rank."""
    return {"device": ordinal, "device_type": "cuda"} | gpu.facts()


class _Gpu:
    """A row of the table of GPUs; what is not what it should be is None."""

    def __init__(self, row: dict[str, Any]) -> None:
        self._row = row

    def number(self, name: str) -> int | None:
        """Return a whole number that is not negative; None for anything else."""
        value = self._row.get(name)
        return value if isinstance(value, int) and value >= 0 else None

    def facts(self) -> dict[str, Any]:
        """Return its columns of the canonical table; a 0 stands for unknown."""
        name, clock = self._row.get("name"), self.number("clockRate")
        bandwidth = self.number("memoryBandwidth")
        major, minor = self.number("computeMajor"), self.number("computeMinor")
        return {
            "name": name if isinstance(name, str) and name else None,
            "compute_capability": f"{major}.{minor}" if major and minor is not None else None,
            "multiprocessors": self.number("smCount") or None,
            "clock_hz": float(clock) if clock else None,
            "memory_bytes": self.number("totalMemory") or None,
            "memory_bytes_per_s": float(bandwidth) if bandwidth else None,
        }


def session_start(database: Database) -> int | None:
    """Return when the clock of the file was 0, in ns since 1970; None if it does not say."""
    rows = _read(database, _SESSION, ("utcEpochNs",))
    start = rows[0].get("utcEpochNs") if rows else None
    facts = {
        row.get("name"): row.get("value")
        for table in EXPORT_TABLES
        for row in _read(database, table, ("name", "value"))
    }
    # The export may have moved the times.
    shift = facts.get("EXPORT_PARAM_TIME_SHIFT", "0")
    is_shifted = shift != "0" or facts.get("EXPORT_PARAM_TIME_NORMALIZE", "false") != "false"
    return start if isinstance(start, int) and not is_shifted else None


def host_name(database: Database) -> str | None:
    """Return the name of the machine that was recorded; None if the file does not say it."""
    rows = _read(database, _ENVIRONMENT, ("name", "value"))
    names = (row.get("value") for row in rows if row.get("name") == "Hostname")
    name = next(names, None)
    return name if isinstance(name, str) and name else None


def skipped_rows(database: Database) -> Counter[str]:
    """Return what the file has besides, by slug, with counts."""
    return +Counter({what: database.count(table) for table, what in _SKIPPED.items()})


def reported_errors(database: Database) -> Counter[str]:
    """Return what went wrong while recording, in the profiler's own words."""
    found: Counter[str] = Counter()
    errors = [
        row["text"]
        for row in _read(database, _DIAGNOSTICS, ("severity", "text"))
        if row.get("severity") == _ERROR and isinstance(row.get("text"), str)
    ]
    for text in errors[:_DIAGNOSTICS_AT_MOST]:
        found[with_detail(NSIGHT_ERROR, " ".join(text.split())[:_DIAGNOSTIC_CHARS])] += 1
    return found


def _read(database: Database, name: str, columns: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of a small table, without the columns that it lacks."""
    there = [column for column in columns if column in database.columns(name)]
    if not there:
        return []
    table = sa.table(name, *(sa.column(column) for column in there))
    rows = database.rows(sa.select(*table.c).limit(_SMALL))
    return [dict(zip(there, row, strict=True)) for row in rows]


_SMALL: Final = 10_000
"""Rows that a table of facts has at most; more are not read."""
