"""Read snapshots of the CUDA allocator: what `torch.cuda.memory._dump_snapshot` writes.

They are pickles, of torch 1.13 to 2.13. A process of its own reads them: see `_snapshot_pickle.py`.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2 import is_pure
from pyprof2.columns import int_array, text_array
from pyprof2.errors import TraceError
from pyprof2.parsers import _snapshot_pickle
from pyprof2.recording import Snapshot, Stack

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENDINGS: Final = (".pickle", ".pkl")
"""How the names of snapshots end; what they are is decided by their content."""

COMPILED: Final = "_snapshot_events"
"""The module that reads the events where it was built."""

_HEAD: Final = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?[}\](]", re.DOTALL)
_OUT_OF_TIME: Final = {-signal.SIGXCPU, -signal.SIGKILL} if hasattr(signal, "SIGXCPU") else set()
_FAR: Final = 1 << 53
"""Sizes, addresses and microseconds stay below it, so that sums and nanoseconds fit."""
_TO_BYTES: Final = {
    "total_size": "total_bytes", "allocated_size": "allocated_bytes", "active_size": "active_bytes",
    "size": "bytes", "requested_size": "requested_bytes", "device_free": "device_free_bytes",
    "addr": "address",
}  # fmt: skip


def is_snapshot(path: Path) -> bool:
    """Whether a file begins as a pickle of a list or a dictionary does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _HEAD.match(file.read(16)) is not None


def read_snapshot(path: Path) -> Snapshot:
    """Return what the snapshot at `path` says.

    Raises:
        TraceError: the file cannot be read, is no snapshot, or asks for more than plain data.
    """
    with tempfile.TemporaryDirectory(prefix="pyprof2-") as folder:
        columns = Path(folder) / "columns"
        files = [_snapshot_pickle.__file__, str(path.resolve()), str(columns)]
        program = [sys.executable, "-I", *files, library(COMPILED)]
        done = subprocess.run(program, capture_output=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
        if done.returncode:
            msg = f"{path}: not read as a memory snapshot: {_why(done)}"
            raise TraceError(msg)
        # Mapped, the numbers take no memory until they are looked at.
        with (
            columns.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return _from_columns(path, content)


def _why(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return why the process that read the file gave up, and what to do."""
    if done.returncode == _snapshot_pickle.REFUSED:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return (
            f"{said[-1] if said else 'damaged'}; dump it anew with torch.cuda.memory._dump_snapshot"
        )
    if done.returncode in _OUT_OF_TIME:
        return "takes far longer than a snapshot of its size does; dump it anew"
    return f"its reader ended with code {done.returncode}; dump it anew"


def _from_columns(path: Path, content: mmap.mmap | bytes) -> Snapshot:
    length = int.from_bytes(content[-8:], "little")
    header: dict[str, Any] = json.loads(content[-8 - length : -8])
    numbers = _numbers(content, header["parts"])
    for name, values in numbers.items():
        if len(values) and not (values.min() >= -1 and values.max() < _FAR):
            msg = f"{path}: not read as a memory snapshot: {name} is out of range; dump it anew"
            raise TraceError(msg)
    frames = [(file, line, name) for file, line, name in header["frames"]]
    return Snapshot(
        path=path,
        events=_table("event", numbers, header),
        segments=_table("segment", numbers, header),
        blocks=_table("block", numbers, header),
        stacks=[Stack(tuple(frames[f] for f in stack)) for stack in header["stacks"]],
        settings=header["settings"],
        device_count=header["device_count"],
        non_torch={int(device): size for device, size in header["non_torch"].items()},
        unread=Counter(header["unread"]),
    )


def _numbers(
    content: mmap.mmap | bytes, parts: list[tuple[Any, ...]]
) -> dict[str, NDArray[np.int64 | np.int32]]:
    """Return the columns, of which each is in parts: name, kind of number, how many.

    Where a fourth is given, all of them are that number, and none of them is in `content`. A column
    stays as narrow as it was written: of a large snapshot each copy takes a tenth of a second.
    """
    found: dict[str, list[NDArray[Any]]] = {}
    at = 0
    for name, kind, count, *same in parts:
        if same:
            found.setdefault(name, []).append(np.broadcast_to(np.array(same, kind), count))
            continue
        values = np.frombuffer(content, kind, count, at)
        at += values.nbytes
        found.setdefault(name, []).append(values)
    return {name: np.concatenate(each) for name, each in found.items()}


_COLUMNS: Final = {
    "event": ("device", "action", "addr", "size", "time_us", "device_free", "stack", "note"),
    "segment": (
        "device",
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "expandable",
        "private",
    ),
    "block": ("segment", "address", "size", "requested_size", "state", "stack"),
}


def _table(kind: str, numbers: dict[str, Any], header: dict[str, Any]) -> pa.Table:
    """Return the columns of events, segments or blocks; what was not there is null."""
    columns = {}
    for name in _COLUMNS[kind]:
        values = numbers.get(f"{kind}.{name}", np.empty(0, np.int64))
        texts = header["texts"].get(f"{kind}.{name}")
        if name in ("action", "state", "note"):
            columns[name] = text_array((values, texts or []))
        elif name == "time_us":
            columns["time_ns"] = int_array(np.where(values >= 0, values * 1000, -1), -1)
        else:
            columns[_TO_BYTES.get(name, name)] = int_array(values, -1)
    return pa.table(columns)


def library(name: str) -> str:
    """Return the file of the compiled module `name` of this package.

    Nothing: it was not built, or is not wanted.
    """
    spec = None if is_pure() else importlib.util.find_spec(f"pyprof2.parsers.{name}")
    return (spec and spec.origin) or ""
