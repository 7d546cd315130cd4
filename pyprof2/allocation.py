"""How a process of our own takes memory from the system, and gives it back.

Parsing takes arrays of megabytes by the thousand, and lets them go again. What keeps them for the
next one keeps them in sizes that do not fit: of what such a process holds at its peak a third is
free. So large blocks are the system's own, and go back to it when they are let go. That is nothing
to decide for another's process: only the command line does it, and the processes that we start.
"""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

_MMAP_THRESHOLD: Final = -3
"""`M_MMAP_THRESHOLD` of glibc's malloc.h."""
_LARGE_BYTES: Final = 1 << 17
"""Where glibc's threshold begins; by itself it grows up to 32 MB, as blocks are let go."""


def give_memory_back() -> None:
    """Have what arrays leave free go back to the system, here and from now on.

    It is glibc that is told to; with another C library this changes what Arrow does alone.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    set_option = getattr(_c_library(), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)


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
