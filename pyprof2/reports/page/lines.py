"""Lines of code on the page: the tree that `pyprof2 lines` prints, with all of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.summaries.line_profile import LineQuery
from pyprof2.analysis.time.line_ops import PHASES
from pyprof2.analysis.time.line_tree import FILE, LINE
from pyprof2.api import run_time
from pyprof2.frames import shown_line
from pyprof2.reports.heading import step_numbers
from pyprof2.reports.page.values import cut, table

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.api.run import Run

MOST_NODES: Final = 3000
_COLUMNS: Final = (
    "node_id", "parent_id", "depth", "kind", "name", "module", "time_ns", "own_ns", "share_pct",
    "median_ns", *(f"{phase}_ns" for phase in PHASES), "idle_caused_ns", "calls", "count",
)  # fmt: skip


def lines_of(run: Run) -> dict[str, Any] | None:
    """Return the tree of lines, those with the most time; None where nothing was recorded.

    No node is without the ones that it is in: each has at least the time of those below.
    """
    if not run.table("lines", ["rank"]).num_rows:
        return None
    profile = run_time.line_profile(run.tables, LineQuery())
    nodes = profile.table
    weight = nodes["time_ns"] + nodes["idle_caused_ns"].fillna(0)
    nodes = nodes[weight > 0]
    kept = weight[weight > 0].sort_values(ascending=False, kind="stable").index[:MOST_NODES]
    numbers = sorted({number for _, number in profile.steps if number is not None})
    return {
        "ledger": profile.ledger,
        "ranks": profile.ranks,
        "steps": len(profile.steps),
        "step_numbers": step_numbers(numbers),
        "apart": [f"rank {rank}: step {number}" for rank, number in profile.apart],
        "total_ns": int(profile.step_ns.sum()),
        "left_out": len(nodes) - len(kept),
        "functions": run_time.lines_are_functions(run.tables),
        "nodes": _nodes(run, nodes.loc[sorted(kept)]),
    }


def _nodes(run: Run, nodes: pd.DataFrame) -> dict[str, Any]:
    names = zip(nodes["kind"], nodes["name"], strict=True)
    labels = [_shown(run, kind, name) for kind, name in names]
    return table(nodes[list(_COLUMNS)].assign(label=labels))


def _shown(run: Run, kind: str, name: str) -> str:
    """Return the label of a node: files and lines from the user's own folder on."""
    if kind == LINE:
        return cut(shown_line(name, run.tables.source_roots))
    return cut(shown_line(f"{name}:1", run.tables.source_roots)[:-2]) if kind == FILE else cut(name)
