"""The compiled readers: where they are, and whether they are wanted."""

from __future__ import annotations

import importlib.util
import os


def is_pure() -> bool:
    """Whether nothing compiled is to read: PYPROF2_PURE says so."""
    return os.environ.get("PYPROF2_PURE", "") not in ("", "0")


def library(name: str) -> str:
    """Return the file of the compiled module `name` of this package.

    Nothing: it was not built, or is not wanted.
    """
    spec = None if is_pure() else importlib.util.find_spec(f"pyprof2.parsers.{name}")
    return (spec and spec.origin) or ""
