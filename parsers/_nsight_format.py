"""How a file of Nsight Systems is known, before anything of it is read."""

from __future__ import annotations

from typing import Final

from pyprof2.parsers._trace_format import TraceFormat
from pyprof2.problems import Advice

_INIT: Final = "call pyprof2.init() in the script"
_SHAPES: Final = f"{_INIT}, or nsys profile --pytorch=autograd-shapes-nvtx"
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
    advice=Advice(
        gpu="on a machine with a GPU: nsys profile --trace=cuda,nvtx",
        ops=_SHAPES,
        launches="let nsys start before the work, and export the whole of its report",
        outside="mark the functions that launch them with pyprof2.wrap()",
        other_threads="call pyprof2.init() before the threads start, or use pyprof2 capture",
        shapes=_SHAPES,
        inputs=_INIT,
        layers=_INIT,
        sources=_INIT,
        steps=_INIT,
        threads="record from the forward pass on",
        problem="export the report again, with a newer nsys",
    ),
    sole_suffixes=(".sqlite", ".nsys-rep"),
    exports=((".nsys-rep", ".sqlite"),),
)
