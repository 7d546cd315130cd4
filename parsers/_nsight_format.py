"""How a file of Nsight Systems is known, before anything of it is read."""

from __future__ import annotations

from typing import Final

from pyprof2.formats import TraceFormat

_SQLITE: Final = b"SQLite format 3\x00"
_REPORT: Final = b"NVIDIA Tegra Profiler Report"


def looks_like(head: bytes) -> bool:
    """Whether a file that begins with `head` may be an export or a report of nsys."""
    return head.startswith((_SQLITE, _REPORT))


NSIGHT: Final = TraceFormat(
    name="nsight",
    files="a .sqlite or .nsys-rep of Nsight Systems",
    source="the SQLite that nsys exports",
    suffixes=(".sqlite", ".nsys-rep"),
    recognises=looks_like,
    reader="pyprof2.parsers.nsight",
    sole_suffixes=(".sqlite", ".nsys-rep"),
    exports=((".nsys-rep", ".sqlite"),),
)
