"""Annotate a training process, so that a recording says which op, layer and line ran what.

::

    import pyprof2

    pyprof2.init()

That is all; see `init`. What is written is described in `pyprof2.markers`. This package is the
only part of pyprof2 that imports torch and nvtx.
"""

from __future__ import annotations

from pyprof2.nvtx.annotation import init, shutdown, step
from pyprof2.nvtx.ranges import annotate, wrap

__all__ = ["annotate", "init", "shutdown", "step", "wrap"]
