"""The difference of two runs as text, as Markdown for a pull request, or as a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa

from pyprof2 import units
from pyprof2.analysis.summaries.compare import IDLE
from pyprof2.api.comparison import main_dtypes
from pyprof2.errors import UsageError
from pyprof2.reports import cells, files
from pyprof2.reports.table import drawn
from pyprof2.tables import Column, real

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.analysis.summaries.compare import Comparison
    from pyprof2.api.comparison import Compared

_TOP: Final = 10
_LEAST_STEPS: Final = 3
_AXES: Final = ("layer", "op")
"""The axes along which parts of the terms are summed by default."""

_HIDES: Final = 0.1
"""The least share of the work's difference that idle time takes back to speak of it."""
_NAMED: Final = 3
_OF_RANK: Final = (
    "rank", "a_ns", "b_ns", "delta_ns", "compute_only_delta_ns", "comm_only_delta_ns",
    "exposed_wait_delta_ns", "idle_delta_ns", "comp_comm_delta_ns", "copy_only_delta_ns",
    "copy_overlap_delta_ns", "changed",
)  # fmt: skip

TERM_COLUMNS: Final = (
    Column("term", pa.string(), "What the part of the difference comes from."),
    real("delta_ns", "The part, per step: more is slower.", "ns"),
    real("delta_pct", "The part, of the step before.", "%"),
    real("lo_ns", "Two standard errors less.", "ns"),
    real("hi_ns", "Two standard errors more.", "ns"),
    Column(
        "verdict",
        pa.string(),
        "`slower`, `faster`, or `noise` where the interval holds 0; null without an interval.",
    ),
)


@dataclass(frozen=True)
class ComparisonQuery:
    """Which differences to show, and where.

    Attributes:
        axes: along which the parts are summed.
        ranks: a row for each rank instead.
        top: how many of the parts; None: 10 in a table, else all.
        target: where to write.
    """

    axes: tuple[str, ...] = ()
    ranks: bool = False
    top: int | None = None
    target: files.Target = field(default_factory=files.Target)


def show(compared: Compared, query: ComparisonQuery) -> None:
    """Write the terms, in a table the largest of their parts too."""
    if query.ranks and not compared.has_ranks:
        msg = "--by rank: both need several ranks whose devices did anything"
        raise UsageError(msg)
    if not query.target.is_text:
        frame = compared.ranks if query.ranks else None
        frame = parts_by(compared.comparison, query.axes) if query.axes else frame
        frame = term_rows(compared.comparison) if frame is None else frame
        known = [*TERM_COLUMNS, *(Column(n, pa.string(), "") for n in query.axes)]
        query.target.write_frame(frame, known, query.top)
        return
    query.target.write_lines(_lines(compared, query))


def term_rows(found: Comparison) -> pd.DataFrame:
    """Return the terms that are not 0, the largest first; columns `TERM_COLUMNS`."""
    terms = found.terms[found.terms["delta_ns"] != 0]
    terms = terms.iloc[sorted(range(len(terms)), key=lambda n: -abs(terms["delta_ns"].iloc[n]))]
    before = found.step_ns[0]
    # Whole ns whose sum is that of the values, rounded: by largest remainder.
    values = [*map(Fraction, terms["delta_ns"].tolist())]
    rounded = [value.numerator // value.denominator for value in values]
    missing = round(sum(values, Fraction(0))) - sum(rounded)
    order = sorted(range(len(values)), key=lambda n: rounded[n] - values[n])
    for place in order[:missing]:
        rounded[place] += 1
    return terms.assign(
        delta_ns=[*map(float, rounded)],
        delta_pct=pd.array(
            [float(100 * delta / before) if before else None for delta in terms["delta_ns"]],
            "Float64",
        ),
        verdict=pd.array(
            list(map(verdict, terms["delta_ns"], terms["lo_ns"], terms["hi_ns"])), "string"
        ),
    )[[column.name for column in TERM_COLUMNS]]  # fmt: skip


def verdict(delta: Fraction, lo: Any, hi: Any) -> str | None:
    """Return which way a value went; None where no interval says whether it is noise."""
    if pd.isna(lo):
        return None
    if lo <= 0 <= hi:
        return "noise"
    return "slower" if delta > 0 else "faster"


def parts_by(found: Comparison, axes: Sequence[str]) -> pd.DataFrame:
    """Return the parts of the terms of calls, summed along axes, the largest first.

    Columns are the axes, `term`, and `delta_ns` per step.
    """
    sums: dict[tuple[Any, ...], Fraction] = {}
    columns = [found.details[name].astype(object) for name in (*axes, "term")]
    for *key, delta in zip(*columns, found.details["delta_ns"], strict=True):
        place = tuple(None if part != part else part for part in key)  # noqa: PLR0124 -- NaN
        sums[place] = sums.get(place, Fraction(0)) + delta
    rows = sorted(sums.items(), key=lambda item: -abs(item[1]))
    return pd.DataFrame(
        [(*key, float(delta)) for key, delta in rows if delta], columns=[*axes, "term", "delta_ns"]
    )


def _lines(compared: Compared, query: ComparisonQuery) -> Iterator[str]:
    found = compared.comparison
    heading = heading_lines(compared)
    yield from map(cells.bold, heading[:3])
    yield from heading[3:]
    yield ""
    rows = term_rows(found)
    total = {"delta_ns": float(found.step_ns[1] - found.step_ns[0])}
    if found.step_ns[0]:
        total["delta_pct"] = float(100 * (found.step_ns[1] / found.step_ns[0] - 1))
    if rows.empty:
        yield "no difference: every term is 0"
    else:
        yield from _drawn(rows.dropna(axis="columns", how="all"), [("step", total)], query)
    if compared.has_ranks:
        ranks = rank_rows(compared)
        yield ""
        yield f"by rank, per step: {rank_sentence(ranks)}"
        top = query.top if query.ranks and query.top else _TOP
        shown = ranks[[name for name in _OF_RANK if ranks[name].notna().any()]]
        yield from _drawn(shown.head(top), [], query)
        if len(ranks) > top:
            yield f"{units.counted(len(ranks) - top, 'more rank')}: --by rank --top {len(ranks)}"
    if query.ranks:
        return
    axes = query.axes or tuple(axis for axis in _AXES if found.details[axis].notna().any())
    parts = parts_by(found, axes)
    if len(parts):
        yield ""
        yield f"the largest parts by {' and '.join(axes)}:"
        top = query.top or _TOP
        yield from _drawn(parts.head(top), [], query)
        if len(parts) > top:
            yield f"{len(parts) - top} more: --top {len(parts)}"


def rank_rows(compared: Compared) -> pd.DataFrame:
    """Return the rows of ranks, those that changed by themselves first, then by difference."""
    rows = compared.ranks
    order = rows.assign(_same=rows["changed"].isna(), _size=-rows["delta_ns"].abs())
    return rows.loc[order.sort_values(["_same", "_size", "rank"]).index].reset_index(drop=True)


def rank_sentence(rows: pd.DataFrame) -> str:
    """Return which ranks changed by themselves, in words."""
    found = rows[rows["changed"].notna()]
    if found.empty:
        return "no rank's own times changed unlike those of the others"
    words = [
        f"rank {row['rank']} {row['changed']} ({_signed(row, 'compute')} in kernels, "
        f"{_signed(row, 'host')} its host)"
        for row in found.head(_NAMED).to_dict("records")
    ]
    more = len(found) - _NAMED
    return "; ".join([*words, *([units.counted(more, "more rank")] if more > 0 else [])])


def _signed(row: dict[Any, Any], name: str) -> str:
    value = row[f"{name}_delta_ns"]
    if pd.isna(value):
        return "not known"
    sign = "-" if value < 0 else "+"
    return f"{sign}{units.format_time(round(abs(value)))}"


def comparison_sentence(compared: Compared) -> str:
    """Return one sentence: the work per step, the step, and the idle time that hid a change."""
    totals = compared.comparison.totals.set_index("metric")
    has_device = not all(run.summary["no_gpu"] for run in (compared.a, compared.b))
    before, after = main_dtypes(compared.sides)
    lead = f"{before} -> {after}: " if before and after and before != after else ""
    work = f"{'GPU' if has_device else 'op'} work per step {_change(totals, 'busy')}"
    step = f"step {_change(totals, 'time')}"
    return f"{lead}{work}, {step}{_hidden(compared.comparison, totals)}"


def _change(totals: pd.DataFrame, metric: str) -> str:
    """Return a value of both sides, in the unit of the larger one, and the change in percent."""
    a, b = float(totals["a_ns"][metric]), float(totals["b_ns"][metric])
    unit = units.time_unit(round(max(a, b)))
    change = f" ({100 * (b / a - 1):+.0f} %)" if a else ""
    before, after = (units.format_rate(value / unit.size) for value in (a, b))
    return f"{before} -> {after} {unit.label}{change}"


def _hidden(found: Comparison, totals: pd.DataFrame) -> str:
    """Say which idle time took the place of work that went, or gave it to work that came."""
    busy, idle = (
        float(totals["b_ns"][name]) - float(totals["a_ns"][name]) for name in ("busy", "idle")
    )
    if busy * idle >= 0 or abs(idle) < _HIDES * abs(busy):
        return ""
    terms = found.terms[found.terms["term"].str.startswith(IDLE)]
    sizes = [float(delta) * (1 if idle > 0 else -1) for delta in terms["delta_ns"]]
    cause = str(terms["term"].iloc[sizes.index(max(sizes))]).removeprefix(IDLE)
    share = min(100, round(100 * abs(idle) / abs(busy)))
    what = "gain" if busy < 0 else "cost"
    return f": {share} % of the {what} is hidden by idle time, most of it {cause.replace('_', ' ')}"


def heading_lines(compared: Compared) -> list[str]:
    """Return the result, a line for each side, and remarks on the comparison."""
    found = compared.comparison
    lines = [comparison_sentence(compared)]
    for name, path, steps, time in zip(
        "AB", compared.names, found.steps, found.step_ns, strict=True
    ):
        means = f"mean of {steps} steps" if steps > 1 else "1 step"
        time_text = units.format_time(round(time))
        lines.append(f"{name}: {cells.clean(path)}, {time_text} per step ({means})")
    lines += [cells.clean(f"note: {line}") for line in (*compared.differences, *compared.remarks)]
    if min(found.steps) < _LEAST_STEPS:
        lines.append("note: fewer than 3 steps on a side, so there are no intervals")
    return lines


def _drawn(
    rows: pd.DataFrame, footer: list[tuple[str, dict[str, Any]]], query: ComparisonQuery
) -> list[str]:
    alike = [name for name in rows if name in ("delta_ns", "lo_ns", "hi_ns")]
    return drawn(rows, query.target, footer, alike=alike).lines
