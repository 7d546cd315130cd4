"""Which rows of a rank its collectives are made of: few, whatever the size of the recording."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.job.kinds import MARKER_KIND, is_comm_op, is_work
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.parted import Parted

INPUT: Final = {
    "kernels": (
        "kernel_id", "start_ns", "dur_ns", "launch_ns", "device", "device_type", "stream", "step",
        "kernel_short", "category", "op_id", "pid", "tid", "layer", "source", "direction",
    ),
    "ops": (
        "op_id", "parent_op_id", "start_ns", "dur_ns", "pid", "tid", "op", "signature_id", "step",
        "layer", "source", "direction", "comm_seq",
    ),
    "signatures": ("signature_id", "op", "inputs"),
    "ranges": ("start_ns", "dur_ns", "pid", "tid", "name", "domain", "kind", "signature_id"),
}  # fmt: skip
"""The columns of the tables that members are made of."""

RANGE_WORDS: Final = re.compile(r"^(?:p?nccl)[A-Z]\w+$")
"""Of the ranges of NCCL's own."""


def rows_of_collectives(
    tables: Mapping[str, Parted], rows: Callable[[str, Int], pa.Table]
) -> dict[str, pa.Table]:
    """Return the rows of a rank's tables that its members are made of, which are few.

    They are the kernels that communicate; the ops that do, those that launched such a kernel, and
    those around both; and the ranges that name a collective.

    Args:
        tables: `kernels`, `ops` and `ranges`, in parts.
        rows: returns the rows of a table at ascending positions, with its columns of `INPUT`.

    Returns:
        The three, with the columns `INPUT`.
    """
    found = {
        name: rows(name, _positions(tables[name], *wanted)) for name, wanted in _CHOSEN.items()
    }
    found["ops"] = rows(
        "ops", _ops_around(tables["ops"], int_column(found["kernels"], "op_id", -1))
    )
    return found


def _positions(parts: Parted, columns: Sequence[str], chosen: Callable[[pa.Table], Bool]) -> Int:
    """Return the positions of the rows that are chosen by some columns."""
    found = [
        parts.offsets[number] + np.flatnonzero(chosen(parts.read(number, columns)))
        for number in range(len(parts))
    ]
    return np.concatenate([np.empty(0, np.int64), *found])


def _named(rows: pa.Table, column: str, tells: Callable[[str], object]) -> Bool:
    """Return the rows whose text is one of those wanted; asked once for each text."""
    code, names = code_column(rows, column)
    found: Bool = np.array([*(bool(tells(name)) for name in names), False])[code]
    return found


def _ops_around(parts: Parted, op_ids: Int) -> Int:
    """Return the positions of the ops that communicate, of those named, and of all around them."""
    wanted = np.zeros(int(parts.offsets[-1]) + 1, bool)  # the last one is that of null
    wanted[op_ids] = True
    wanted[-1] = False
    for number in reversed(range(len(parts))):
        first, last = parts.offsets[number : number + 2].tolist()
        rows = parts.read(number, ("parent_op_id", "op"))
        parent, own = int_column(rows, "parent_op_id", -1), wanted[first:last]
        own |= _named(rows, "op", is_comm_op)
        new = np.flatnonzero(own)
        # An op stands after the one around it: what this marks is here, or in a part to come.
        while len(new):
            above = np.unique(parent[new])
            above = above[(above >= 0) & ~wanted[above]]
            wanted[above] = True
            new = above[above >= first] - first
    return np.flatnonzero(wanted[:-1])


def _tells_collective(ranges: pa.Table) -> Bool:
    called = int_column(ranges, "signature_id", -1) >= 0
    return (
        has_text(ranges, "kind", (MARKER_KIND,))
        | _named(ranges, "name", lambda name: RANGE_WORDS.search(name) or is_work(name))
        | (called & _named(ranges, "name", is_comm_op))
    )


_CHOSEN: Final[Mapping[str, tuple[Sequence[str], Callable[[pa.Table], Bool]]]] = {
    "kernels": (("category",), lambda rows: has_text(rows, "category", ("comm",))),
    "ranges": (("name", "kind", "signature_id"), _tells_collective),
}
"""Of tables whose rows are chosen one by one: by which columns, and how."""
