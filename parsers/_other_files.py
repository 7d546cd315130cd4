"""Files that are no traces, but often lie where traces do: what each is, and what to do with it."""

from __future__ import annotations

import re
import zlib
from typing import Final

_TAR_AT: Final = 257
_GZIP: Final = b"\x1f\x8b"
_ARCHIVE: Final = "a tar archive; unpack it, and name the trace in it"
_BEGINNINGS: Final = (
    (b"PK\x03\x04", "a zip archive; unpack it, and name the trace in it"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first: zstd -d FILE"),
    (b"\xfd7zXZ\x00", "compressed with xz; unpack it first: xz -d FILE"),
    (b"BZh", "compressed with bzip2; unpack it first: bzip2 -d FILE"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it, and name the trace in it"),
)
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_PYPROF_DICT: Final = re.compile(rb"^\{'kShortName':", re.MULTILINE)
_OF_PYPROF: Final = (
    "the output of PyProf's parse, which lacks when kernels ran; name the export of Nsight Systems "
    "that it was made from, whose markers of PyProf are read, or record again: pyprof2 capture"
)
_SNAPSHOT: Final = (
    "a pickle; if torch.cuda.memory._dump_snapshot wrote it, 'pyprof2 memory FILE' reads it"
)
_SUFFIXES: Final = {
    (
        ".pftrace",
        ".perfetto-trace",
    ): "a Perfetto trace; let the profiler write JSON (Kineto) instead"
}
_SQLITE_TABLES: Final = {
    "StringTable": "a recording of nvprof (.nvvp), which pyprof2 does not read and nothing "
    "converts; record again with Nsight Systems or torch.profiler: pyprof2 capture",
    "rocpd_": "a rocpd database of rocprofv3, which pyprof2 does not read; record with "
    "torch.profiler, which works on AMD GPUs too",
}


def other_file(name: str, head: bytes) -> str | None:
    """Return what a file is that is no trace, and what to do; None where it may be one.

    Args:
        name: of the file.
        head: its first 4096 bytes or so.
    """
    known = (text for beginning, text in _BEGINNINGS if head.startswith(beginning))
    if (found := next(known, None)) is not None:
        return found
    if _PICKLE.match(head):
        return _SNAPSHOT
    if _PYPROF_DICT.search(head):
        return _OF_PYPROF
    if _is_tar(head) or (head.startswith(_GZIP) and _is_tar(_inflated(head))):
        return _ARCHIVE
    named = (text for suffixes, text in _SUFFIXES.items() if name.lower().endswith(suffixes))
    return next(named, None)


def other_database(tables: list[str]) -> str | None:
    """Return what an SQLite file with these tables is, and what to do; None: unknown."""
    known = (
        text for start, text in _SQLITE_TABLES.items() if any(t.startswith(start) for t in tables)
    )
    return next(known, None)


def _is_tar(head: bytes) -> bool:
    return head[_TAR_AT : _TAR_AT + 5] == b"ustar"


def _inflated(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 2 * _TAR_AT)
    except zlib.error:
        return b""
