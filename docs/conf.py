"""How Sphinx builds these pages: `make docs`."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2 import __version__, cli

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project: Final = "pyprof2"
author: Final = "the pyprof2 developers"
copyright: Final = f"2026, {author}"  # noqa: A001 - the name is Sphinx's
release: Final = __version__

extensions: Final = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns: Final = ["_generated"]
html_theme: Final = "furo"
# Options begin with two dashes, which typesetters make one.
smartquotes: Final = False
html_title: Final = f"pyprof2 {__version__}"
html_static_path: Final = ["_static"]
html_css_files: Final = ["pages.css"]
# A block that does not say what it is of is the output of a command, not Python.
highlight_language: Final = "text"

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
            r"|Input|RankTables|RunTables|Spent|Sums|Tagged|Tags|TimedStep"
        ),
    ),
    ("py:.*", r"pyprof2\.(api\.displays|api\.run_tables|store\.rank_tables).*"),
    ("py:.*", r"(pandas|pd|pyarrow|pa|numpy|np|torch|nvtx)\..*"),
    ("py:.*", r"(argparse|collections|fractions|os|pathlib|types|typing)\..*"),
    ("py:.*", "AbstractContextManager"),
    ("py:.*", r"Path|PathLike|Any|Callable|Iterable|Iterator|Mapping|Sequence|SinkName|optional"),
]

SAMPLE: Final = Path(__file__).parent.parent / "tests" / "data" / "compiled" / "h200.json.gz"
"""A recording of ours, of a small training on an H200."""


def write_sample_report(app: Sphinx, error: Exception | None) -> None:
    """Write the page of a recording beside the documentation, as its reader would."""
    if error is None and app.builder.name == "html":
        page = Path(app.outdir) / "sample-report.html"
        with contextlib.redirect_stdout(io.StringIO()):
            cli.main(["report", str(SAMPLE), "-o", str(page), "--force", "-q"])


def for_these_pages(_app: Any, path: Path, _page: str, content: list[str]) -> None:
    """Change the links of the README where it is included: they lead from its own folder."""
    if path.name != "README.rst":
        return
    text = content[0].replace(":: docs/pictures/", ":: pictures/")
    text = re.sub(r"`([^`<]+)\s<docs/([\w-]+)\.rst>`_", r":doc:`\1 <\2>`", text)
    # Other files are in the repository alone.
    content[0] = re.sub(r"`([^`<]+)\s<[\w./-]+>`_", r"\1", text)


def setup(app: Sphinx) -> None:
    """Have Sphinx ask for both."""
    app.connect("include-read", for_these_pages)
    app.connect("build-finished", write_sample_report)
