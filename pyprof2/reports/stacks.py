"""Sums by stack as text for flame graph tools, or as a file for speedscope."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.summaries.profile import select
from pyprof2.analysis.summaries.stack_sums import COLUMNS, TABLES, stack_sums
from pyprof2.api import run_profile
from pyprof2.reports.cells import clean
from pyprof2.reports.files import json_text, write_parts

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from pyprof2.api.run import Run


_UNITS: Final = {"time_ns": "nanoseconds", "bytes": "bytes"}
_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_COUNTED: Final = ("flops", "bytes")


@dataclass(frozen=True)
class StacksQuery:
    """Which sums to write, and where.

    Attributes:
        of: `layers`, `lines` or `ops`; see `stack_sums`.
        measure: `time_ns`, `flops`, `bytes` or `count`.
        form: `folded` or `speedscope`.
        rank: only this one; None: all.
        path: the file; None: stdout.
    """

    of: str = "layers"
    measure: str = "time_ns"
    form: str = "folded"
    rank: int | None = None
    path: Path | None = None


def show(run: Run, query: StacksQuery) -> list[str]:
    """Write the sums, the largest first, and return lines on unknown values.

    Raises:
        UsageError: there is no such rank.
        TableError: a sum is more than 64 bits hold.
    """
    tables = run.tables.of(query.rank)
    rows = select(run_profile.rows_of(run.tables, COLUMNS), rank=query.rank)
    nested = {}
    if query.of in TABLES:
        name, columns = TABLES[query.of]
        nested = {each.rank: each.read(name, columns) for each in tables}
    sums: Counter[tuple[str, ...]] = Counter()
    for stack, total in stack_sums(rows, query.of, query.measure, nested).items():
        sums[tuple(map(_name, stack))] += total
    if query.form == "speedscope":
        # Each stack is a sample whose weight is its sum.
        numbers: dict[str, int] = {}
        weights = [total for _, total in sums.most_common()]
        profile = {
            "type": "sampled",
            "name": f"{query.measure} by {query.of}",
            "unit": _UNITS.get(query.measure, "none"),
            "startValue": 0,
            "endValue": sum(weights),
            "samples": [
                [numbers.setdefault(name, len(numbers)) for name in stack]
                for stack, _ in sums.most_common()
            ],
            "weights": weights,
        }
        frames = [{"name": name} for name in numbers]
        file = {"$schema": _SCHEMA, "shared": {"frames": frames}, "profiles": [profile]}
        write_parts([json_text(file), "\n"], query.path)
    else:
        lines = (f"{';'.join(stack)} {total}\n" for stack, total in sums.most_common())
        write_parts(lines, query.path)
    return _lacks(rows, query.measure)


def _name(text: str) -> str:
    """Return a name that is one frame on one line."""
    return clean(text).replace(";", ",") or "(none)"


def _lacks(rows: pd.DataFrame, measure: str) -> list[str]:
    if measure not in _COUNTED:
        return []
    unknown = rows.loc[rows[measure].isna(), "dur_ns"].sum()
    share = 100 * unknown / (rows["dur_ns"].sum() or 1)
    return (
        [f"{measure}: not known of {share:.1f} % of the time, which adds nothing"] if share else []
    )
