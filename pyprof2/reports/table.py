"""What a table shows to people: heading, first rows, what the others come to, total, notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.hardware.roofline import FLAG_COMPUTE, FLAG_SAVING
from pyprof2.frames import shown_line
from pyprof2.listings import Listing, length, taken
from pyprof2.pyprof_columns import PYPROF_COLUMNS
from pyprof2.reports.cells import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.listings import Listed
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
_LINES: Final = ("source", "library_source")
# What adds up over rows, so that a line can stand for those not shown.
ADDITIVE: Final = (
    "count",
    "time_ns",
    "share_pct",
    "flops",
    "bytes",
    "dur_us",
    "dur_ns",
    "sil",
    "calls",
    "host_self_ns",
    "occurrences",
    "operators",
    "device_self_ns",
)


_FLAGS_OF_FLOPS: Final = (FLAG_SAVING, FLAG_COMPUTE)


@dataclass(frozen=True)
class Content:
    """The rows of a table, and what goes with them.

    Attributes:
        first: the rows that are shown, in order.
        count: of all rows.
        rest: what adds up over those not shown, by column.
        total: of all rows, by column.
        flags: of the rows that are shown, why a rate that is above a roof may be right.
        notes: what else is to be said.
    """

    first: Listed
    count: int
    rest: dict[str, Any]
    total: dict[str, Any]
    flags: Sequence[str | None]
    notes: Sequence[str] = ()

    @classmethod
    def of(
        cls, table: Listed, query: Query, total: dict[str, Any], flags: Sequence[str | None],
        notes: Sequence[str],
    ) -> Content:  # fmt: skip
        """Return the content of a table of which all rows are there, with the flag of each."""
        count, shown = length(table), rows_shown(query)
        rest = {
            name: _added_up(column.cells[shown:])
            for name, column in table.items()
            if name in ADDITIVE
        }
        return cls(taken(table, range(min(shown, count))), count, rest, total, flags[:shown], notes)


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
    frame: Listed
    footer: Sequence[tuple[str, dict[str, Any]]]
    marked: Mapping[str, Sequence[bool]]
    flags: Sequence[str | None]
    notes: Sequence[str]
    droppable: Sequence[str]


def rows_shown(query: Query) -> int:
    """Return how many rows a table has at most."""
    return query.top or (_TABLE_ROWS if query.axes else _OVERVIEW_ROWS)


def shown(run: Run, content: Content, query: Query, heading: Sequence[str]) -> Shown:
    """Return what `query` asks to see of `content`."""
    first, notes, flags = content.first, content.notes, content.flags
    if length(first) < content.count:
        more = f"{length(first):,} of {content.count:,} rows; more with --top N, all with --csv"
        notes = [more, *notes]
    footer = _footer(content)
    first = _with_short_lines(first, run.source_roots)
    if query.pyprof:
        first = {pyprof_header(name): column for name, column in first.items()}
        footer = [
            (words, {pyprof_header(name): row[name] for name in row}) for words, row in footer
        ]
    droppable = () if query.columns or query.pyprof else _droppable(run, first)
    return Shown(heading, first, footer, _marked(first, flags), flags, notes, droppable)


def pyprof_header(name: str) -> str:
    """Return PyProf's header of a column, where it has one."""
    return PYPROF_COLUMNS[name].header if name in PYPROF_COLUMNS else name


def _with_short_lines(table: Listed, roots: Sequence[str]) -> Listed:
    """Return the rows with lines of code from their root on, instead of that of the disk."""
    short: dict[str, Listing] = {
        name: Listing(
            [line and shown_line(line, roots) for line in table[name].cells], is_text=True
        )
        for name in _LINES
        if name in table
    }
    if "trace" in table:
        innermost = [line and line.rpartition(",")[2] for line in table["trace"].cells]
        short["trace"] = Listing([shown_line(line, roots) for line in innermost], is_text=True)
    return table | short


def _marked(rows: Listed, flags: Sequence[str | None]) -> dict[str, list[bool]]:
    """Return by column which of the rates are above a roof, so that a flag says why."""
    words = [flag or "" for flag in flags]
    of_flops = [word.startswith(_FLAGS_OF_FLOPS) for word in words]
    of_bytes = [bool(word) and not flops for word, flops in zip(words, of_flops, strict=True)]
    marks = {"tflops": of_flops, "gbps": of_bytes}
    return {name: marks[name] for name in marks if name in rows}


def flag_notes(
    marked: Mapping[str, Sequence[bool]], flags: Sequence[str | None], left_out: Sequence[str]
) -> Iterator[str]:
    """Say what the marks mean, each flag once."""
    seen = zip(*(marked[name] for name in marked if name not in left_out), strict=True)
    found = [flag for flag, marks in zip(flags, seen, strict=False) if any(marks)]
    yield from (f"{MARK} {flag}" for flag in dict.fromkeys(found))


def _droppable(run: Run, table: Listed) -> list[str]:
    """Return the columns that may be left out; the keys of sums, which come first, may not."""
    # Without a GPU the kernel is the op.
    first = ["kernel_short"] if run.summary["no_gpu"] else []
    names = list(table)
    keys = names[: names.index("count")] if "count" in names else []
    return [name for name in (*first, *_DROPPABLE) if name not in keys]


def _footer(content: Content) -> Footer:
    """Return the rows below the table: what is not shown, and the total."""
    names, total = list(content.first), content.total
    footer = [("total", {name: total[name] for name in names if name in total})]
    rest = content.count - length(content.first)
    if rest:
        footer.insert(0, (f"{rest:,} more", content.rest))
    return footer


def _added_up(values: Sequence[Any]) -> Any:
    """Return the sum of what is known; None of nothing."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
