"""Whether what is compiled of this package is wanted."""

from __future__ import annotations

import os


def is_pure() -> bool:
    """Whether nothing compiled is to be used: PYPROF2_PURE says so."""
    return os.environ.get("PYPROF2_PURE", "") not in ("", "0")
