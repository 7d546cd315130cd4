"""Arrow without pandas, until a DataFrame is asked for."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa


class _NotYet(MetaPathFinder):
    """Finds no pandas."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Refuse pandas, and leave all else to other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def defer_pandas() -> None:
    """Have Arrow import pandas for the first DataFrame, not for the first array.

    It looks for pandas once, to know its objects among the values of an array, which costs 0.3 s
    and 30 MB. What is not there at that time, it imports when a table becomes a DataFrame. Until
    then an array cannot be made of a `Series`: only the command line does this, for commands that
    have none.
    """
    if "pandas" in sys.modules:
        return
    finder = _NotYet()
    sys.meta_path.insert(0, finder)
    try:
        pa.array(())
    finally:
        sys.meta_path.remove(finder)
