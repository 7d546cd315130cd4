"""Formulas of other packages, found by their entry points.

A package that has operators of its own names the module that registers their formulas, and it is
imported before costs are looked up::

    [project.entry-points."pyprof2.costs"]
    mylib = "mylib.costs"
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Final

from pyprof2.errors import TerminatedError
from pyprof2.problems import FORMULAS_NOT_LOADED, with_detail

GROUP: Final = "pyprof2.costs"


@cache
def load_extensions() -> tuple[str, ...]:
    """Import what other packages register, once; return the problems."""
    problems = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            point.load()
        except TerminatedError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- code of others may do anything
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            detail = f"{point.name} ({point.value}) not loaded: {what}"
            problems.append(with_detail(FORMULAS_NOT_LOADED, detail))
    return tuple(problems)
