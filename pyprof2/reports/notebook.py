"""Runs and their totals in a notebook: small tables, every text of them escaped."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

from pyprof2.reports.cells import clean
from pyprof2.units import counted, format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyprof2.api.displays import Summary
    from pyprof2.api.job import JobOfRanks
    from pyprof2.api.run import Run

_WIDTH: Final = 100
_OPS_SHOWN: Final = 10
_RANKS_SHOWN: Final = 16
_TIMES: Final = ("window", "compute_only", "exposed_wait", "exposed_transfer", "comp_comm", "idle")
_COLUMNS: Final = ("op", "count", "time", "share", "TFLOP/s", "of roof")


def summary_html(summary: Summary) -> str:
    """Return the totals of a run, a row for each."""
    return table(("", ""), [(name, _words(value)) for name, value in summary.items()])


def _words(value: Any) -> str:
    """Return a value as text; a list or a dictionary as its items."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)


def escape(text: object) -> str:
    """Return `text` as HTML that shows it, with escapes for characters that are not printable."""
    return html.escape(clean(str(text)))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as HTML; every cell is shown as the text it is."""
    lines = ["<table>"]
    if any(header):
        lines.append(_row("th", header))
    lines += [_row("td", row) for row in rows]
    return "\n".join([*lines, "</table>"])


def _row(kind: str, cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>"


def run_html(run: Run) -> str:
    """Return the heading of a run, and the ops that took the longest."""
    from pyprof2.reports.heading import heading

    head = "".join(f"<div>{escape(line)}</div>" for line in heading(run, _WIDTH))
    ops = run.profile(by="op").head(_OPS_SHOWN)
    rows = [
        (
            row["op"],
            f"{row['count']:,}",
            format_time(row["time_ns"]),
            _number(row["share_pct"], " %"),
            _number(row["tflops"], ""),
            _number(row["roofline_pct"], " %"),
        )
        for row in ops.to_dict("records")
    ]
    return f"<div><b>{escape(run.path.name)}</b></div>{head}{table(_COLUMNS, rows)}"


def ranks_html(job: JobOfRanks) -> str:
    """Return sentences on the ranks together, and the times of each."""
    from pyprof2.reports.ranks import by_rank, sentences
    from pyprof2.reports.slow_rank import answers

    said = "".join(f"<div>{escape(text)}</div>" for text in answers(job))
    if job.parts.empty:
        return f"{said}<div>no work of a device was recorded</div>"
    said += "".join(f"<div>{escape(text)}</div>" for text in sentences(job))
    rows = [
        (row["rank"], *(_time(row[f"{name}_ns"]) for name in _TIMES), _text(row["verdict"]))
        for row in by_rank(job).head(_RANKS_SHOWN).to_dict("records")
    ]
    more = len(job.roles) - len(rows)
    rest = f"<div>{counted(more, 'more rank')}</div>" if more > 0 else ""
    header = ("rank", *(name.replace("_", " ") for name in _TIMES), "verdict")
    return f"{said}{table(header, rows)}{rest}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _time(value: Any) -> str:
    import pandas as pd

    return "-" if pd.isna(value) else format_time(int(value))


def _number(value: float, unit: str) -> str:
    return "-" if value != value else format_rate(value) + unit  # noqa: PLR0124 -- NaN is not itself
