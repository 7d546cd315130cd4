"""Annotate a training process, so that a recording says which op, layer and line ran what.

::

    import pyprof2

    pyprof2.init()

That is all; see `init`. What is written is described in `pyprof2.markers`. This package is the
only part of pyprof2 that imports torch and nvtx.
"""

from __future__ import annotations

from contextlib import contextmanager as _contextmanager
from functools import cache as _cache
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from pyprof2.errors import fault as _fault
from pyprof2.errors import say as _say

if _TYPE_CHECKING:
    from collections.abc import Iterator as _Iterator

try:
    from pyprof2.nvtx.annotation import init, shutdown, step
    from pyprof2.nvtx.ranges import annotate, wrap
except Exception as _error:
    if isinstance(_error, ModuleNotFoundError) and _error.name == "torch":
        raise
    # A torch that this version does not fit, in a way that `internals` does not know.
    _why = f"{_fault(_error)}: nothing is marked; the script runs on"

    @_cache
    def _warn() -> None:
        _say(_why)

    @_contextmanager  # type: ignore[no-redef]
    def annotate(_name: str) -> _Iterator[None]:
        """Mark nothing around a piece of code."""
        yield

    def init(**_options: _Any) -> None:  # type: ignore[misc]
        """Mark nothing, and say so the first time."""
        _warn()

    def shutdown(*_: object) -> None:  # type: ignore[misc]
        """Do nothing, as `step` and `wrap`."""

    step = wrap = shutdown  # type: ignore[assignment]

__all__ = ["annotate", "init", "shutdown", "step", "wrap"]
