"""The compiled readers: where they are, if they are wanted."""

from __future__ import annotations

import importlib.util

from pyprof2 import is_pure


def library(name: str) -> str:
    """Return the file of the compiled module `name` of this package.

    Nothing: it was not built, or is not wanted.
    """
    spec = None if is_pure() else importlib.util.find_spec(f"pyprof2.parsers.{name}")
    return (spec and spec.origin) or ""
