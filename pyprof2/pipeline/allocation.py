"""How a process of our own takes memory from the system, and gives it back.

Parsing takes arrays of megabytes by the thousand, and lets them go again. An allocator that keeps
them all for the next one keeps them in sizes that do not fit: a third of the memory of such a
process is free at its peak. One that keeps none has the system clear each page anew, which takes a
quarter of the time. So the largest blocks are the system's own, and go back to it when they are let
go; of the others all is kept but what is free at the end of the heap: to give back what is free
after each table, and have its pages cleared anew, takes up to a sixth of the time, for 40 MB less.
That is nothing to decide for another's process: only the command line does it, and the processes
that we start.
"""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""`M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD` of glibc's malloc.h."""
_LARGE_BYTES: Final = 8 << 20
"""From here on a block is the system's own: no piece of a file is larger, nor a column of a part of
a table. By itself glibc sets it to up to 32 MB, as blocks are let go."""
_SPARE_BYTES: Final = 64 << 20
"""So much may be free at the end of the heap, and kept."""


def give_memory_back() -> None:
    """Have what large arrays leave free go back to the system, here and from now on.

    glibc does it; with another C library this changes what Arrow does alone.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    set_option = getattr(_c_library(), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)
        set_option(_TRIM_THRESHOLD, _SPARE_BYTES)


def release_unused() -> None:
    """Give back to the system what is free now; what is let go later is kept as before."""
    pa.default_memory_pool().release_unused()
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _c_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # on Windows nothing is found by no name
        return None
