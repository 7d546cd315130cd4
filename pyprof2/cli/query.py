"""What is asked of a profile: the options of `prof`, checked and with one name for each column."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from pyprof2.analysis.summaries.profile import (
    AXES,
    MORE_COLUMNS,
    SUMMARY_COLUMNS,
    check_axes,
    compile_pattern,
)
from pyprof2.cli import text
from pyprof2.errors import UsageError
from pyprof2.pyprof_columns import PYPROF_ONLY
from pyprof2.tables import PROFILE_COLUMNS, Column

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

KERNEL: Final = ("kernel",)
"""The axis with a row for each kernel."""

SHARE_COLUMNS: Final = (
    Column("dur_us", pa.float64(), "End minus start.", "us"),
    Column("share_pct", pa.float64(), "Share of the time of the selection.", "%"),
)
"""Columns of the kernel axis that only `table` shows unasked."""

TABLES: Final = ("table", "markdown")
"""The formats that show some rows to people; the others hold all."""

_PATTERNS: Final = ("layer", "op", "kernel", "range")
_SELECTORS: Final = ("rank", "step", *_PATTERNS, "direction", "category", "stream")


class SortKey(NamedTuple):
    """A column to sort by; numbers fall unless `rises`, text always rises."""

    column: str
    rises: bool


@dataclass(frozen=True)
class Query:
    """One profile that somebody asks for.

    Attributes:
        axes: along which to sum; `KERNEL`: not at all; none: what answers best.
        columns: which, in this order; none: those that suit the axes.
        sort: most significant first.
        top: how many rows; None: what suits the format.
        depth: of axes layer and range: how many names of a path.
        fold_numbers: of axis range: whether texts that differ in numbers are one.
        selection: what `pyprof2.analysis.summaries.profile.select` takes.
        format: one of `pyprof2.cli.output.FORMATS`.
        output: the file to write; None: stdout.
        width: of a table; None: that of the terminal.
        pyprof: whether with PyProf's columns, headers and words.
        csv_safe: whether cells that a spreadsheet would compute get an apostrophe.
        quiet: whether problems and hints stay unsaid.
        input: what the profile is of, as it was named.
    """

    axes: tuple[str, ...]
    columns: tuple[str, ...]
    sort: tuple[SortKey, ...]
    top: int | None
    depth: int | None
    fold_numbers: bool
    selection: dict[str, Any]
    format: str
    output: Path | None
    width: int | None
    pyprof: bool
    csv_safe: bool
    quiet: bool
    input: Path

    @property
    def is_table(self) -> bool:
        """Whether it is for people."""
        return self.format in TABLES


def read_query(args: argparse.Namespace) -> Query:
    """Return what `args` ask for.

    Raises:
        UsageError: a name is unknown, a regular expression malformed, or options exclude each
            other.
    """
    form = args.format or format_of(args.output)
    asked = [*(args.columns or ()), *(name.removeprefix("+") for name in args.sort or ())]
    axes = tuple(args.by or _axes_for(asked, form, pyprof=args.pyprof))
    _check(args, axes, form)
    available = available_columns(axes)
    columns = [column_named(name, available) for name in args.columns or ()]
    sort = [
        SortKey(column_named(name.removeprefix("+"), available), name.startswith("+"))
        for name in args.sort or ()
    ]
    for names in (columns, [key.column for key in sort]):
        _check_once(names)
    selection = {name: getattr(args, name) for name in _SELECTORS} | {"copies": not args.no_copies}
    return Query(
        axes, tuple(columns), tuple(sort), args.top, args.depth, args.fold_numbers, selection, form,
        args.output, args.width, args.pyprof, args.csv_safe, args.quiet, args.input,
    )  # fmt: skip


def format_of(output: Path | None) -> str:
    """Return the format that the name of the file asks for."""
    endings = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".md": "markdown"}
    return endings.get(output.suffix.lower(), "table") if output is not None else "table"


def _axes_for(asked: Sequence[str], form: str, *, pyprof: bool) -> tuple[str, ...]:
    """Return the axes where none is named: those of the columns that are."""
    if pyprof or form not in TABLES:
        return KERNEL
    of_op = available_columns(("op",))
    found = [_match(name, of_op) for name in asked]
    if None in found:
        return KERNEL
    return ("op",) if "op" in found else ()


def _check(args: argparse.Namespace, axes: tuple[str, ...], form: str) -> None:
    """Raise for options that make no sense together."""
    if axes in ((), KERNEL):
        if args.depth is not None:
            msg = "--depth cuts the paths of layers and ranges: add --by layer or --by range"
            raise UsageError(msg)
        if args.fold_numbers:
            msg = "--fold-numbers puts ranges together: add --by range"
            raise UsageError(msg)
    elif "kernel" in axes:
        msg = "axis kernel has a row for every kernel and goes with no other; to sum, take name"
        raise UsageError(msg)
    else:
        check_axes(axes, args.depth, fold_numbers=args.fold_numbers)
    if args.pyprof and axes != KERNEL:
        msg = "--pyprof is a table of kernels: leave --by out"
        raise UsageError(msg)
    if args.width is not None and form != "table":
        msg = f"--width is for tables, not for {form}: leave it out"
        raise UsageError(msg)
    if args.csv_safe and form != "csv":
        msg = f"--csv-safe is for csv, not for {form}: leave it out"
        raise UsageError(msg)
    for pattern in _PATTERNS:
        compile_pattern(getattr(args, pattern) or "")


def available_columns(axes: tuple[str, ...]) -> list[str]:
    """Return the columns to choose from."""
    if axes == KERNEL:
        extra = [column.name for column in SHARE_COLUMNS]
        return list(dict.fromkeys([*PROFILE_COLUMNS, *extra, *PYPROF_ONLY]))
    return [AXES[axis] for axis in axes] + [c.name for c in (*SUMMARY_COLUMNS, *MORE_COLUMNS)]


def column_named(name: str, available: Sequence[str]) -> str:
    """Return the column of this name, or whose header in a table is this.

    Raises:
        UsageError: there is none.
    """
    found = _match(name, available)
    if found is None:
        near = difflib.get_close_matches(name, available, n=5, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(available)}"
        msg = f"no column {name!r}; {hint}"
        raise UsageError(msg)
    return found


def _match(name: str, available: Sequence[str]) -> str | None:
    if name in available:
        return name
    # Of `dur_ns` and `dur_us`, with one header, the later one is what tables show.
    headers = [(header, c) for c in reversed(available) for header in text.headers(c)]
    found = next((column for header, column in headers if header == name), None)
    word = name.casefold()
    return found or next((column for header, column in headers if header.casefold() == word), None)


def _check_once(names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            msg = f"column {name!r} is named twice; name it once"
            raise UsageError(msg)
