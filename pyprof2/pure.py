"""Whether what is compiled is wanted; the same is done without it, more slowly."""

from __future__ import annotations

import os


def is_pure() -> bool:
    """Return whether nothing compiled is to be used: PYPROF2_PURE says so."""
    return os.environ.get("PYPROF2_PURE", "") not in ("", "0")
