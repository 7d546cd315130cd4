"""The compiled way of marking ops (`_marking.c`), where it was built and is wanted.

The ranges that are written do not depend on it: it has to write what the code in Python writes, and
leaves the uncommon cases to that.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from pyprof2 import is_pure


def _load() -> Any:
    try:
        return None if is_pure() else importlib.import_module("pyprof2.nvtx._marking")
    except ImportError:
        return None


_MODULE: Final = _load()
"""None for as long as the process runs if it was not wanted when this was imported."""


def marking() -> Any:
    """Return the compiled module; None: it was not built, or is not wanted."""
    return None if is_pure() else _MODULE


def own(*fields: str) -> tuple[str, ...]:
    """Return the `__slots__` of a class on top of a record: what the record does not have.

    Type checkers take a tuple that is written there for all that there is.
    """
    return fields


def record(name: str, *fields: str) -> Any:
    """Return a base for a class: with attributes that the compiled module reads, if it is there.

    Args:
        name: of the class there.
        fields: the names of these attributes.
    """
    if _MODULE is None:
        return type(name, (), {"__slots__": fields})
    return getattr(_MODULE, name)
