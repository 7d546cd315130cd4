"""pyprof2: every nanosecond of GPU time has an owner, or a stated reason why not.

The names below are loaded when they are first used: `import pyprof2` is cheap, and reading a
profile needs no torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pyprof2.api import displays

if TYPE_CHECKING:
    from pyprof2.api.batch import batch_model
    from pyprof2.api.comparison import compare
    from pyprof2.api.memory import memory
    from pyprof2.api.run import Run, load, parse
    from pyprof2.integrations.recording import record
    from pyprof2.nvtx import annotate, init, shutdown, step, wrap

__version__: Final = "0.1.0"

__all__ = [
    "Run",
    "__version__",
    "annotate",
    "batch_model",
    "compare",
    "init",
    "load",
    "memory",
    "parse",
    "record",
    "shutdown",
    "step",
    "wrap",
]

_HOMES: Final = {
    "Run": "pyprof2.api.run",
    "annotate": "pyprof2.nvtx",
    "batch_model": "pyprof2.api.batch",
    "compare": "pyprof2.api.comparison",
    "init": "pyprof2.nvtx",
    "load": "pyprof2.api.run",
    "memory": "pyprof2.api.memory",
    "parse": "pyprof2.api.run",
    "record": "pyprof2.integrations.recording",
    "shutdown": "pyprof2.nvtx",
    "step": "pyprof2.nvtx",
    "wrap": "pyprof2.nvtx",
}
"""Where each public name is defined."""

displays.register(
    Run="pyprof2.reports.notebook.run_html",
    JobOfRanks="pyprof2.reports.notebook.ranks_html",
    Summary="pyprof2.reports.notebook.summary_html",
    plot="pyprof2.reports.notebook_plots.Plots",
)


_FOLDER: Final = os.path.dirname(__file__)  # noqa: PTH120 - pathlib takes longer to import
if os.path.isfile(os.path.join(_FOLDER, "parsers")):  # noqa: PTH113, PTH118
    # A checkout without symbolic links has small files in their place, and the packages above.
    __path__.append(os.path.dirname(_FOLDER))  # noqa: PTH120


def __getattr__(name: str) -> Any:
    """Import the module that defines the public `name`, and return it (PEP 562)."""
    if name == "nvtx":
        return import_module("pyprof2.nvtx")
    if name not in _HOMES:
        msg = f"module 'pyprof2' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def is_pure() -> bool:
    """Return whether nothing compiled is to be used: PYPROF2_PURE says so."""
    return os.environ.get("PYPROF2_PURE", "") not in ("", "0")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if os.environ.get("PYPROF2"):
    import_module("pyprof2.integrations.at_import").begin()
