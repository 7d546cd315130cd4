"""What a table shows to people: heading, first rows, what the others come to, total, notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.hardware.roofline import FLAG_COMPUTE, FLAG_SAVING
from pyprof2.frames import shown_line
from pyprof2.pyprof_columns import PYPROF_COLUMNS
from pyprof2.reports.cells import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.reports.query import Query
    from pyprof2.run import Run

    Footer = list[tuple[str, dict[str, Any]]]

_TABLE_ROWS: Final = 50
_OVERVIEW_ROWS: Final = 20
# What a narrow terminal does without, the first one first.
_DROPPABLE: Final = (
    "intensity",
    "min_ns",
    "max_ns",
    "flops",
    "bytes",
    "step",
    "signature",
    "gbps",
    "costed_pct",
    "tensor_core_pct",
    "op_calls",
    "kernel_id",
    "mean_ns",
    "tensor_core",
    "tflops",
    "roofline_pct",
    "layer",
    "count",
)
# Which columns hold a line of code; the last one is PyProf's.
_LINES: Final = ("source", "library_source", "trace")
# What adds up over rows, so that a line can stand for those not shown.
_ADDITIVE: Final = (
    "count",
    "time_ns",
    "share_pct",
    "flops",
    "bytes",
    "dur_us",
    "dur_ns",
    "sil",
)


_FLAGS_OF_FLOPS: Final = (FLAG_SAVING, FLAG_COMPUTE)


@dataclass(frozen=True)
class Content:
    """The rows of a table, and what goes with them.

    Attributes:
        frame: the rows, in order.
        total: of all rows, by column.
        flags: of the rows by index, why a rate that is above a roof may be right.
        notes: what else is to be said.
    """

    frame: pd.DataFrame
    total: dict[str, Any]
    flags: pd.Series
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Shown:
    """What is to be seen of a table.

    Attributes:
        heading: lines on the recording.
        frame: the first rows.
        footer: those below them: what each is, and its values by column.
        marked: by column, which of its values have a mark before them.
        flags: of the rows, what the marks mean.
        notes: what else is to be said.
        droppable: columns that may be left out where room is short, the first one first.
    """

    heading: Sequence[str]
    frame: pd.DataFrame
    footer: Sequence[tuple[str, dict[str, Any]]]
    marked: Mapping[str, Sequence[bool]]
    flags: pd.Series
    notes: Sequence[str]
    droppable: Sequence[str]


def shown(run: Run, content: Content, query: Query, heading: Sequence[str]) -> Shown:
    """Return what `query` asks to see of `content`."""
    frame, notes = content.frame, content.notes
    first = frame.head(query.top or (_TABLE_ROWS if query.axes else _OVERVIEW_ROWS))
    if len(first) < len(frame):
        more = f"{len(first):,} of {len(frame):,} rows; more with --top N, all with --csv"
        notes = [more, *notes]
    footer = _footer(frame, len(first), content.total)
    flags = content.flags.reindex(first.index)
    first = _with_short_lines(first, run.source_roots)
    if query.pyprof:
        first = first.rename(columns=pyprof_header)
        footer = [
            (words, {pyprof_header(name): row[name] for name in row}) for words, row in footer
        ]
    droppable = () if query.columns or query.pyprof else _droppable(run, first)
    return Shown(heading, first, footer, _marked(first, flags), flags, notes, droppable)


def pyprof_header(name: str) -> str:
    """Return PyProf's header of a column, where it has one."""
    return PYPROF_COLUMNS[name].header if name in PYPROF_COLUMNS else name


def _with_short_lines(frame: pd.DataFrame, roots: Sequence[str]) -> pd.DataFrame:
    """Return the rows with lines of code from their root on, instead of that of the disk."""
    short = {
        name: frame[name].astype(object).map(lambda line: shown_line(line, roots), "ignore")
        for name in _LINES
        if name in frame
    }
    return frame.assign(**short)


def _marked(rows: pd.DataFrame, flags: pd.Series) -> dict[str, list[bool]]:
    """Return by column which of the rates are above a roof, so that a flag says why."""
    words = ["" if pd.isna(flag) else str(flag) for flag in flags]
    of_flops = [word.startswith(_FLAGS_OF_FLOPS) for word in words]
    of_bytes = [bool(word) and not flops for word, flops in zip(words, of_flops, strict=True)]
    marks = {"tflops": of_flops, "gbps": of_bytes}
    return {name: marks[name] for name in marks if name in rows}


def flag_notes(
    marked: Mapping[str, Sequence[bool]], flags: pd.Series, left_out: Sequence[str]
) -> Iterator[str]:
    """Say what the marks mean, each flag once."""
    seen = zip(*(marked[name] for name in marked if name not in left_out), strict=True)
    found = [flag for flag, marks in zip(flags, seen, strict=False) if any(marks)]
    yield from (f"{MARK} {flag}" for flag in dict.fromkeys(found))


def _droppable(run: Run, frame: pd.DataFrame) -> list[str]:
    """Return the columns that may be left out; the keys of sums, which come first, may not."""
    # Without a GPU the kernel is the op.
    first = ["kernel_short"] if run.summary["no_gpu"] else []
    names = list(frame.columns)
    keys = names[: names.index("count")] if "count" in names else []
    return [name for name in (*first, *_DROPPABLE) if name not in keys]


def _footer(frame: pd.DataFrame, shown: int, total: dict[str, Any]) -> Footer:
    """Return the rows below the table: what is not shown, and the total."""
    footer = [("total", {name: total[name] for name in frame.columns if name in total})]
    rest = frame.iloc[shown:]
    if len(rest):
        sums = {str(n): rest[n].sum(min_count=1) for n in rest.columns if n in _ADDITIVE}
        footer.insert(0, (f"{len(rest):,} more", sums))
    return footer
