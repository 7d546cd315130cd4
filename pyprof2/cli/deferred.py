"""Libraries without what takes long to import and is not needed, or not yet.

Only the command line does this: in a program of others these libraries are as they are.
"""

from __future__ import annotations

import contextlib
import sys
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Without(MetaPathFinder):
    """Finds no module of some names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, fullname: str, *_: object) -> None:
        """Refuse the module, and leave all else to other finders."""
        if fullname in self.names:
            raise ModuleNotFoundError(fullname)


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    finder = _Without(*names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def defer_pandas() -> None:
    """Have Arrow import pandas for the first DataFrame, not for the first array.

    It looks for pandas once, to know its objects among the values of an array, which costs 0.3 s
    and 30 MB. What is not there at that time, it imports when a table becomes a DataFrame. Until
    then an array cannot be made of a `Series`: only commands that have none do this. For intervals
    of months it also looks for dateutil, as pandas does itself.
    """
    if "pandas" in sys.modules:
        return
    with _without("pandas", "dateutil"):
        pa.array(())


def import_tabulate() -> None:
    """Import tabulate for tables, without what it never asks there: two thirds of its time.

    These are the widths of characters, which `cells` knows itself, and its own version, for which
    Python reads mails.
    """
    if "tabulate" in sys.modules:
        return
    name = "importlib.metadata"
    known = name in sys.modules
    if not known:
        sys.modules[name] = stand_in = ModuleType(name)
        stand_in.version = stand_in.PackageNotFoundError = LookupError  # type: ignore[attr-defined]
    try:
        with _without("wcwidth"):
            import tabulate  # noqa: F401
    finally:
        if not known:
            del sys.modules[name]
