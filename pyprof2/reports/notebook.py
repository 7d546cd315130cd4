"""Runs and their totals in a notebook: small tables, every text of them escaped."""

from __future__ import annotations

import html
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.reports.cells import clean
from pyprof2.units import counted, format_rate, time_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyprof2.api.displays import Summary
    from pyprof2.api.job import JobOfRanks
    from pyprof2.api.run import Run

_WIDTH: Final = 100
_OPS_SHOWN: Final = 10
_RANKS_SHOWN: Final = 16
_TIMES: Final = ("window", "compute_only", "exposed_wait", "exposed_transfer", "comp_comm", "idle")
_COLUMNS: Final = ("op", "count", "time {unit}", "share %", "TFLOP/s", "of roof %")


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
    unit, times = _times(ops["time_ns"])
    numbers = (map(_number, ops[name]) for name in ("share_pct", "tflops", "roofline_pct"))
    counts = (f"{count:,}" for count in ops["count"])
    header = [name.format(unit=unit) for name in _COLUMNS]
    rows = zip(ops["op"], counts, times, *numbers, strict=True)
    return f"<div><b>{escape(_name(run))}</b></div>{head}{table(header, rows)}"


def _name(run: Run) -> str:
    """Return the name of the recording, of several their folder's: a store may be temporary."""
    sources = [PurePath(source["path"]) for source in run.tables.manifest["sources"]]
    if len(sources) == 1:
        return sources[0].name
    folders = {source.parent.name for source in sources}
    return f"{', '.join(sorted(folders))}: {counted(len(sources), 'recording')}"


def _times(values: pd.Series) -> tuple[str, list[str]]:
    """Return the one unit of times, and each in it."""
    unit = time_unit(max((int(value) for value in values.dropna()), default=0))
    return unit.label, [_number(value / unit.size, "{:.3f}") for value in values.astype("Float64")]


def ranks_html(job: JobOfRanks) -> str:
    """Return sentences on the ranks together, and the times of each."""
    from pyprof2.reports.ranks import answers, by_rank, sentences

    said = "".join(f"<div>{escape(text)}</div>" for text in answers(job))
    if job.parts.empty:
        return f"{said}<div>no work of a device was recorded</div>"
    said += "".join(f"<div>{escape(text)}</div>" for text in sentences(job))
    ranks = by_rank(job).head(_RANKS_SHOWN)
    found = {name: ranks[f"{name}_ns"] for name in _TIMES}
    unit, texts = _times(pd.concat(found.values()))
    columns = [texts[at : at + len(ranks)] for at in range(0, len(texts), max(1, len(ranks)))]
    rows = [*zip(ranks["rank"], *columns, map(_text, ranks["verdict"]), strict=True)]
    more = len(job.roles) - len(rows)
    rest = f"<div>{counted(more, 'more rank')}</div>" if more > 0 else ""
    header = ("rank", *(f"{name.replace('_', ' ')} {unit}" for name in _TIMES), "verdict")
    return f"{said}{table(header, rows)}{rest}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any, form: str = "") -> str:
    if pd.isna(value):
        return "-"
    return form.format(value) if form else format_rate(value)
