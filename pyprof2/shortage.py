"""Too little memory, whoever says so: Arrow, NumPy, SQLite, the system, or C of ours."""

from __future__ import annotations

import errno
import re
from typing import Final

from pyprof2.errors import MemoryShortError, Pyprof2Error, StoreError, TraceError

_WORDS: Final = re.compile(
    r"bad_alloc|out of memory|(?:cannot|could not|unable to) allocate|allocation failed"
    r"|(?:m|re|c)alloc of size|can't start new thread",
    re.IGNORECASE,
)
_BYTES: Final = re.compile(r"(?:alloc of size|allocate) (\d+\.?\d*)(?: ([KMGT]iB|bytes))?")
_SCALES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_UNITS: Final = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def is_shortage(error: BaseException) -> bool:
    """Whether an error, or what ours came from, says that there is too little memory."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    if isinstance(error, (TraceError, StoreError)):  # others tell of what a script lacked
        return error.__cause__ is not None and is_shortage(error.__cause__)
    return not isinstance(error, Pyprof2Error) and bool(_WORDS.search(str(error)))


def shortage(error: BaseException, place: object) -> MemoryShortError:
    """Return what to tell of an error that is one.

    Args:
        error: `is_shortage` of it.
        place: what was being read or written.
    """
    found = _BYTES.search(str(error.__cause__ or error))
    asked = "" if found is None else f" ({_size(found)} more were asked for)"
    msg = (
        f"{place}: not enough memory{asked}; take fewer --jobs, end other programs, or do it on a "
        "machine with more"
    )
    return MemoryShortError(msg)


def _size(found: re.Match[str]) -> str:
    nbytes = float(found[1]) * (1 << _UNITS.get(found[2], 0))
    scale, unit = next(each for each in _SCALES if nbytes >= each[0] or each is _SCALES[-1])
    return f"{nbytes / scale:,.1f} {unit}"
