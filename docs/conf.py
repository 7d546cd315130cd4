"""How Sphinx builds these pages: `make docs`."""

from __future__ import annotations

from typing import Final

from pyprof2 import __version__

project: Final = "pyprof2"
author: Final = "the pyprof2 developers"
copyright: Final = f"2026, {author}"  # noqa: A001 - the name is Sphinx's
release: Final = __version__

extensions: Final = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns: Final = ["_generated"]
html_theme: Final = "furo"
html_title: Final = f"pyprof2 {__version__}"

# Single backquotes are code, here and in the docstrings.
default_role: Final = "code"

autodoc_default_options: Final = {"members": True, "member-order": "bysource"}
autodoc_typehints: Final = "description"
# Modules that autodoc does not import: the pages are the same with and without them.
autodoc_mock_imports: Final = ["nvtx", "torch"]
napoleon_google_docstring: Final = True
napoleon_numpy_docstring: Final = False

# Private names are not documented. Types of other projects are named, not linked: these pages
# are built without a network.
nitpick_ignore_regex: Final = [
    ("py:.*", r"_\w+"),
    (
        "py:.*",
        (
            r"Advice|DaskFrame|Executor|Figure|JobOfRanks|LineProfile|LineQuery|MemoryCurve|Side|Pictures"
            r"|RankTables|Spent|Sums|Tagged|Tags"
        ),
    ),
    ("py:.*", r"pyprof2\.(api\.displays|api\.job\.Ranks|store\.rank_tables).*"),
    ("py:.*", r"(pandas|pd|pyarrow|pa|numpy|np|torch|nvtx)\..*"),
    ("py:.*", r"(argparse|collections|fractions|os|pathlib|types|typing)\..*"),
    ("py:.*", "AbstractContextManager"),
    ("py:.*", r"Path|PathLike|Any|Callable|Iterable|Iterator|Mapping|Sequence|SinkName|optional"),
]
