"""The profile on the page: sums over a few keys, of which every table of `prof` can be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.axes import COARSE, in_shared_text, in_words
from pyprof2.analysis.hardware.kernel_names import short_name
from pyprof2.analysis.summaries.cube import OTHER_STEPS
from pyprof2.analysis.summaries.profile_columns import SUMMARY_COLUMNS
from pyprof2.frames import shown_line
from pyprof2.reports.page.values import column, numbers, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyprof2.analysis.summaries.cube import Cube
    from pyprof2.analysis.summaries.profile_columns import ProfileColumn
    from pyprof2.analysis.summaries.sets import Sets
    from pyprof2.api.run import Run

_PLAIN: Final = ("rank", "step")


def tables_of(run: Run, found: Cube) -> dict[str, Any]:
    """Return the tables `cube`, `calls` and `helpers`."""
    roots = run.tables.source_roots
    shown: dict[str, Callable[[str], str]] = {
        "kernel": short_name,
        "source": lambda line: in_shared_text(line, lambda e: shown_line(e, roots)),
    }
    texts = found.keys.drop(columns=list(_PLAIN))
    for name in COARSE:
        texts[name] = texts[name].map(in_words, na_action="ignore")
    keys = table(texts, shown)["columns"]
    plain = {name: numbers(found.keys[name]) for name in _PLAIN}
    sums = {str(name): column(found.sums[name]) for name in found.sums}
    names = [name for name in found.helpers if name != "row"]
    helpers = {str(n): found.helpers[n].astype("float64").tolist() for n in names}
    return {
        "cube": {"rows": len(found.keys), "columns": plain | keys | sums},
        "calls": {"op_calls": found.op_calls.tolist(), "with": _sets(found.calls)},
        "helpers": {
            "row": found.helpers["row"].astype("int64").tolist(),
            "with": _sets(found.helped),
            "columns": helpers,
        },
    }


def _sets(sets: Sets) -> dict[str, list[int]]:
    return {"first": sets.first.tolist(), "rows": sets.rows.tolist()}


def columns_of() -> list[dict[str, Any]]:
    """Return the columns of the profile's tables: names, units, meanings, and how to make them."""
    return [
        {
            "name": each.name,
            "unit": each.unit,
            "help": each.meaning,
            "of": _formula(each)
            | ({"known": list(each.known_by), "among": "kernel_count"} if each.known_by else {}),
        }
        for each in SUMMARY_COLUMNS
    ]


def _formula(column: ProfileColumn) -> dict[str, Any]:
    """Return how a column is made of the cube's sums; see `docs/report-data.rst`."""
    name, scale = column.name, column.scale
    formulas: dict[str, dict[str, Any]] = {
        "calls": {"calls": True},
        "share": {"share": "".join(column.of), "scale": scale},
        "ratio": {"ratio": list(column.of), "scale": scale},
        "rate": {"ratio": [f"{name}_above", f"{name}_below"], "scale": scale},
        "least": {"min": name},
        "largest": {"max": name},
    }
    return formulas.get(column.how, {"sum": name})


def notes_of(found: Cube) -> Iterator[str]:
    """Name the folded rows."""
    if found.others:
        yield (
            f"{found.others} steps are one, {OTHER_STEPS}, in tables of ops, kernels, layers, "
            "lines and idle time: the first, the median, the slowest and unusual ones stand by "
            "themselves"
        )
    if found.small:
        yield f"the {found.small} smallest groups of kernels are summed up by category"
