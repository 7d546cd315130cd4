"""The query of a profile, with one name for each column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.analysis.axes import COARSE, OWNED
from pyprof2.analysis.summaries.profile_columns import (
    AXES,
    KERNEL_NAME,
    MEANS,
    MORE_COLUMNS,
    OF_OWNERS,
    SHARE,
    SUMMARY_COLUMNS,
    asked_columns,
    row_columns_of,
)
from pyprof2.errors import refuse, suggest
from pyprof2.reports import cells
from pyprof2.reports.pyprof_columns import PYPROF_COLUMNS, PYPROF_DEFAULT, PYPROF_ONLY
from pyprof2.tables import PROFILE_COLUMNS, real

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyprof2.reports.files import Target

KERNEL: Final = ("kernel",)
"""The axis with a row for each kernel."""

SHARE_COLUMNS: Final = (
    real("dur_us", "End minus start.", "us"),
    real("share_pct", "Share of the time of the selection.", "%"),
)
"""Columns of the kernel axis that only `table` shows unasked."""

_TABLE_COLUMNS: Final = (
    "kernel_id",
    "step",
    "dur_us",
    "share_pct",
    "op",
    "signature",
    "layer",
    "kernel_short",
    "tflops",
    "gbps",
    "roofline_pct",
    "tensor_core",
)
GUESSED: Final = ("op", "range", "name")
"""The axes of which one is taken where none is named: the first that most of the time has."""

FINER_AXES: Final = ("layer", "library", "op")
"""The axes that may take a line of code apart."""


class SortKey(NamedTuple):
    """A column to sort by; numbers fall unless `rises`, text always rises."""

    column: str
    rises: bool


@dataclass(frozen=True)
class Query:
    """One profile that somebody asks for.

    Attributes:
        axes: along which to sum; `KERNEL`: not at all; none: the first of `GUESSED` that fits.
        columns: which, in this order; none: those that suit the axes.
        sort: most significant first.
        top: how many rows; None: the default of the format.
        depth: of axes layer and range: how many names of a path.
        fold_numbers: of axes layer and range: whether texts that differ in numbers are one.
        selection: arguments of `pyprof2.analysis.summaries.profile.select`.
        target: where to write.
        span: the argument of `pyprof2.api.run.Run.of_span`.
        pyprof: whether with PyProf's columns, headers and words.
        input: the store or trace, as it was named.
    """

    axes: tuple[str, ...]
    columns: tuple[str, ...]
    sort: tuple[SortKey, ...]
    top: int | None
    depth: int | None
    fold_numbers: bool
    selection: dict[str, Any]
    span: int | str
    target: Target
    pyprof: bool
    input: Path

    @property
    def kernel_columns(self) -> tuple[str, ...]:
        """The columns of axis `kernel`: those named, else those that suit the form."""
        default = _TABLE_COLUMNS if self.target.is_text else PROFILE_COLUMNS
        return self.columns or (PYPROF_DEFAULT if self.pyprof else default)

    @property
    def needed(self) -> set[str]:
        """The columns of rows for axis `kernel`, `kernel_id` and `dur_ns` in any case."""
        flags = {"roofline_flag"} if self.target.is_text else set()
        names = (*self.kernel_columns, *(key.column for key in self.sort))
        made = {column.name for column in SHARE_COLUMNS}
        reads = (
            PYPROF_COLUMNS[name].reads if self.takes_pyprofs(name) else {name} - made
            for name in names
        )
        found = {"kernel_id", "dur_ns"}.union(flags, row_columns_of(self.selection), *reads)
        return found | {f"shared_{name}" for name in COARSE if name in names}

    @property
    def asked(self) -> list[str]:
        """The columns of sums that are made only because they are asked for, in their order."""
        if self.axes in ((), KERNEL):
            return []
        names = {*self.columns, *(key.column for key in self.sort)}
        return [column.name for column in asked_columns(self.axes) if column.name in names]

    @property
    def means(self) -> list[str]:
        """Those of `asked` that are means over the rows."""
        names = [column.name for column in MEANS]
        return [name for name in self.asked if name in names]

    @property
    def is_of_calls(self) -> bool:
        """Whether some of `asked` are of op calls, or of modules."""
        return len(self.asked) > len(self.means) + self.gives_shares

    @property
    def gives_shares(self) -> bool:
        """Whether the time of kernels of several is to be shared among these."""
        return SHARE.name in self.asked

    def takes_pyprofs(self, name: str) -> bool:
        """Whether a column of axis `kernel` is PyProf's of that name."""
        return name in PYPROF_COLUMNS and (self.pyprof or name not in PROFILE_COLUMNS)


def available_columns(axes: tuple[str, ...]) -> list[str]:
    """Return the columns to choose from."""
    if axes == KERNEL:
        extra = [column.name for column in SHARE_COLUMNS]
        return list(dict.fromkeys([*PROFILE_COLUMNS, *extra, *PYPROF_ONLY]))
    owned = OF_OWNERS if len(axes) == 1 and axes[0] in OWNED else ()
    columns = (*SUMMARY_COLUMNS, *MORE_COLUMNS, *owned, *asked_columns(axes))
    return [AXES[axis] for axis in axes] + [column.name for column in columns]


def column_named(name: str, available: Sequence[str]) -> str:
    """Return the column of this name, or whose header in a table is this.

    Raises:
        UsageError: there is none.
    """
    found = match_column(name, available)
    if found is None:
        hint = suggest(name, available) or f"there are {', '.join(available)}"
        refuse(f"no column {name!r}; {hint.rstrip()}")
    return found


def match_column(name: str, available: Sequence[str]) -> str | None:
    """Return the column of this name or header; None if there is none."""
    if name in available:
        return name
    if name in (KERNEL_NAME, "name") and "kernel" in available:
        return "kernel"
    # `dur_ns` and `dur_us` have one header; tables show the later one.
    headers = [(header, c) for c in reversed(available) for header in cells.headers(c)]
    found = next((column for header, column in headers if header == name), None)
    word = name.casefold()
    return found or next((column for header, column in headers if header.casefold() == word), None)
