"""How a process of our own takes memory from the system, and gives it back.

Parsing takes arrays of megabytes by the thousand, and lets them go again. What keeps them all for
the next one keeps them in sizes that do not fit: of what such a process holds at its peak a third
is free. What keeps none has the system clear each page anew, which takes a quarter of the time. So
large blocks are the system's own, and go back to it when they are let go; and a file is read with
those of its pieces kept, all of one size. That is nothing to decide for another's process: only the
command line does it, and the processes that we start.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""`M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD` of glibc's malloc.h."""
_LARGE_BYTES: Final = 1 << 20
"""From here on a block is the system's own; so large is a column of a part of a table. By itself
glibc sets it to up to 32 MB, as blocks are let go."""
_PIECE_BYTES: Final = 8 << 20
"""No block of a piece of a file is larger."""
_PIECES_BYTES: Final = 4 * _PIECE_BYTES
"""So much is kept at the end of the heap while a file is read: all that is held of a piece."""
_given_back: Final[set[int]] = set()
"""The process, once it gives memory back."""


def give_memory_back() -> None:
    """Have what large arrays leave free go back to the system, here and from now on.

    It is glibc that is told to; with another C library this changes what Arrow does alone.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    _given_back.add(os.getpid())
    _own_from(_LARGE_BYTES, _LARGE_BYTES)


@contextlib.contextmanager
def pieces_kept() -> Iterator[None]:
    """Keep the blocks of pieces of a file for the next piece, where memory is given back at all."""
    if os.getpid() not in _given_back:
        yield
        return
    _own_from(_PIECE_BYTES, _PIECES_BYTES)
    try:
        yield
    finally:
        _own_from(_LARGE_BYTES, _LARGE_BYTES)
        release_unused()


def _own_from(size: int, kept: int) -> None:
    """Have blocks of `size` bytes go back at once, and of the heap's end what is above `kept`."""
    set_option = getattr(_c_library(), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, size)
        set_option(_TRIM_THRESHOLD, kept)


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
