"""The axes of a profile, the columns that it then has, and selections of its rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.axes import (
    COARSE,
    NONE,
    OWNED,
    SEPARATOR,
    check_known_once,
    in_shared_text,
    is_of_launch,
    shared_text,
    split_owners,
)
from pyprof2.errors import UsageError, refuse
from pyprof2.tables import Column, real, whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

AXES: Final = {
    "name": "kernel",
    "op": "op",
    "signature": "signature",
    "layer": "layer",
    "range": "range",
    "source": "source",
    "library": "library",
    "direction": "direction",
    "step": "step",
    "device": "device",
    "stream": "stream",
    "rank": "rank",
    "category": "category",
    "span": "span",
    "tensor_core": "tensor_core",
    "stack": "stack",
    "grid": "grid",
    "block": "block",
    "registers": "registers",
    "shared_bytes": "shared_bytes",
}
"""The axes to sum along, and the column of `rows` that holds the key of each."""


def with_devices(axes: Sequence[str], device_count: int) -> tuple[str, ...]:
    """Return axes with that of devices before streams: each device counts its own."""
    if device_count < 2 or "stream" not in axes or "device" in axes:
        return tuple(axes)
    at = axes.index("stream")
    return (*axes[:at], "device", *axes[at:])


UNSTORED: Final = ("span", "tensor_core", "stack", "grid", "block", "registers", "shared_bytes")
"""The axes that table `sums` leaves out, and which no note proposes."""

SUMMARY_COLUMNS: Final = (
    whole("count", "Kernels and copies; without a GPU: op calls.", nullable=False),
    whole("op_calls", "Op calls that they belong to, each once.", nullable=False),
    whole("time_ns", "Sum of `dur_ns`.", "ns", nullable=False),
    real("share_pct", "Share of the time of the selection.", "%"),
    real("mean_ns", "Time over count.", "ns"),
    whole("min_ns", "Shortest `dur_ns`.", "ns"),
    whole("max_ns", "Longest `dur_ns`.", "ns"),
    whole("flops", "Sum of the known FLOPs; null where none is known.", "FLOP"),
    whole("bytes", "Sum of the known bytes; null where none is known.", "B"),
    real("tflops", "FLOPs over the time of rows that know them.", "TFLOP/s"),
    real("gbps", "Bytes over the time of rows that know them.", "GB/s"),
    real("intensity", "FLOPs per byte, of rows that know both.", "FLOP/B"),
    real("roofline_pct", "Least possible time over time, where known.", "%"),
    real(
        "tensor_core_pct",
        "Time of kernels on Tensor Cores over the time of those with a verdict, yes or no.",
        "%",
    ),
    real("costed_pct", "Share of the time whose counts are known.", "%"),
)
"""Columns of `summarize` after the key columns."""

MORE_COLUMNS: Final = (
    whole(
        "tensor_core_missed_ns",
        "Time of kernels that could have used Tensor Cores and did not.",
        "ns",
    ),
    real("tensor_core_missed_pct", "That time over the time of all kernels that could have.", "%"),
    Column(
        "tensor_core_missed",
        pa.string(),
        "Why they did not: the reason that stands for most of that time.",
    ),
    Column(
        "roofline_flag",
        pa.string(),
        "Why rates above a roof may be right, where that holds for half of the time or more.",
    ),
)
"""Columns of `summarize` after those if it is asked for more."""

OF_OWNERS: Final = (
    whole(
        "alone_ns", "Time of the kernels of this one alone; null where the row is of several.", "ns"
    ),
    whole(
        "shared_ns",
        "Time of the kernels that do the work of this one and of others, whole: it does not add "
        "up.",
        "ns",
    ),
)
"""Columns of sums along axis `op`, `layer` or `source` alone, where kernels have several."""


SHARE: Final = whole(
    "share_ns",
    "That of `alone_ns`, and of each kernel of several a part by the bytes of what it does for "
    "this one: a convention, as no rule says what a line costs in a fused kernel. It adds up.",
    "ns",
)
"""Column beside `OF_OWNERS`, made on request."""

MEANS: Final = (
    real("blocks_per_sm", "Mean of the kernels, weighted with their time."),
    real("occupancy_pct", "Mean of the kernels, weighted with their time.", "%"),
    real("registers", "Mean per thread, weighted with the kernels' time."),
    real("shared_bytes", "Mean per block, weighted with the kernels' time.", "B"),
)
"""Columns of `summarize` by request: means over the kernels of which it is known."""

OF_CALLS: Final = (
    whole("calls", "Op calls, with and without work of a device."),
    whole(
        "host_self_ns",
        "Time of the calls less that of the ops directly inside and of launches.",
        "ns",
    ),
    whole("host_total_ns", "Time of the calls on the host.", "ns"),
    whole(
        "device_total_ns",
        "Time of the kernels and copies of the calls and of the ops inside of them.",
        "ns",
    ),
    real(
        "tensor_core_total_pct",
        "As `tensor_core_pct`, of the calls and of the ops inside of them.",
        "%",
    ),
    Column(
        "tensor_core_eligible",
        pa.bool_(),
        "Whether any call, or an op inside of it, is of a kind that Tensor Cores do in half "
        "precision, or ran a kernel on them.",
    ),
)
"""Columns of op calls, made on request: of all calls of a key, also those that launched nothing,
which so have rows of their own."""

OF_MODULES: Final = (
    whole("occurrences", "Calls of the module in forward."),
    whole("operators", "Ops directly inside of these calls."),
    whole(
        "host_self_ns",
        "Time of the module's calls less that of the ops and modules directly inside.",
        "ns",
    ),
    whole("host_total_ns", "Time of the module's calls on the host.", "ns"),
    whole(
        "device_self_ns",
        "Time of the kernels and copies of the ops directly inside of the calls.",
        "ns",
    ),
    whole(
        "device_total_ns", "Time of the kernels and copies of all ops inside of the calls.", "ns"
    ),
)
"""Columns of modules along axis `layer` alone, made on request."""

KERNEL_NAME: Final = "kernel_name"
"""Another name of axis `name`, whose column is `kernel`."""

COPY_CATEGORIES: Final = ("memcpy", "memset")

# FLOP/ns is GFLOP/s, byte/ns is GB/s.
RATE_SCALES: Final = {
    "tflops": 1e-3, "gbps": 1, "intensity": 1, "roofline_pct": 100, "tensor_core_pct": 100,
    "costed_pct": 100,
}  # fmt: skip
"""The rates, and what the quotient of their two sums is multiplied with."""

PATHS: Final = {"layer": ".", "range": SEPARATOR}
"""The columns that hold paths, and what stands between their names."""

_NUMBERS: Final = {
    # A class may have a number in its name: `Qwen3MLP_7` is one of `Qwen3MLP_N`.
    "layer": re.compile(r"(?<![^._])\d+(?![^.])"),
    "range": re.compile(r"\d+"),
}
"""The numbers in paths that do not distinguish kinds."""

COSTED: Final = ("ok", "assumed", "in_parent")
# A float sum shows whether an int64 sum has wrapped around; the margin is for its rounding.
LARGEST_SUM: Final = 9.2e18
FINE: Final = 1e6
FINEST: Final = 1e9
"""Times that the roof allows are added up in whole fs, so many to a ns, and the rest of each in
whole ys, so many to a fs: the sums are the same in any order."""


OPS_HAVE: Final = (
    "op", "signature", "layer", "range", "source", "library", "direction", "step", "rank", "span",
    "stack",
)  # fmt: skip
"""The axes that op calls have, too."""


def asked_columns(by: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of sums along the axes `by` that are made only where they are asked."""
    means = tuple(column for column in MEANS if column.name not in by)
    if len(by) == 1 and by[0] in OWNED:
        means = (*means, SHARE)
    if list(by) == ["layer"]:
        return (*means, *OF_MODULES)
    return (*means, *OF_CALLS) if set(by) <= set(OPS_HAVE) else means


def check_selects_calls(selection: Mapping[str, Any], *, modules: bool = False) -> None:
    """Raise unless what is selected can be selected of op calls, or of calls of modules.

    Raises:
        UsageError: it is selected by what they do not have.
    """
    known = {"rank", "layer"} if modules else {"rank", *OPS_HAVE}
    given = {name for name, value in selection.items() if value is not None} - {*known, "copies"}
    given |= set() if selection.get("copies", True) else {"no-copies"}
    if given:
        refuse(
            f"{', '.join(f'--{name}' for name in sorted(given))} selects kernels, and a column "
            f"that is asked for is of calls of {'modules' if modules else 'ops'}: leave one of "
            "them out"
        )


def columns_of(selection: Mapping[str, Any]) -> set[str]:
    """Return the columns that `select` reads with these arguments."""
    names = {name for name, value in selection.items() if value is not None and name != "copies"}
    return names | (set() if selection.get("copies", True) else {"category"})


def row_columns_of(selection: Mapping[str, Any]) -> set[str]:
    """Return the columns of rows one by one that `select` reads with these arguments."""
    names = columns_of(selection)
    return names | {f"shared_{name}" for name in names & {*COARSE}}


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the regular expression `pattern`; without a capital in it any case fits.

    Raises:
        UsageError: it is malformed.
    """
    # `\S` and `(?P<name>…)` are no capitals of the text that is looked for.
    has_capital = any(char.isupper() for char in re.sub(r"\\.|\(\?P", "", pattern))
    try:
        return re.compile(pattern, 0 if has_capital else re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"{pattern!r} is no regular expression: {error}; quote special characters with \\"
        raise UsageError(msg) from error


def axis_named(name: str) -> str:
    """Return the axis of this name; `kernel_name` is another one of `name`."""
    return "name" if name == KERNEL_NAME else name


def check_axes(by: Sequence[str], depth: int | None = None, *, fold_numbers: bool = False) -> None:
    """Raise unless `summarize` can sum along these axes.

    Raises:
        UsageError: an axis is unknown or named twice, or `depth` or `fold_numbers` makes no
            sense.
    """
    if not by:
        refuse(f"no axis to sum along; choose from {', '.join(AXES)}")
    check_known_once(by, AXES, "to sum along")
    if depth is not None and not PATHS.keys() & set(by):
        refuse("a depth cuts the paths of layers and ranges; add axis layer or range")
    if depth is not None and depth < 1:
        refuse(f"depth {depth} leaves nothing of a path; give 1 or more")
    if fold_numbers and not PATHS.keys() & set(by):
        refuse("numbers are folded in the names of layers and ranges; add axis layer or range")


def key_name(column: str, depth: int | None, fold_numbers: bool, name: str) -> str:  # noqa: FBT001
    """Return the key that a name of a column is summed under.

    Args:
        column: one of `AXES`.
        depth: how many names of a path stay; None: all.
        fold_numbers: whether each number in the user's ranges is written `N`, and each that layers
            of one kind are counted by.
        name: the name, or several owners; `NONE` stays as it is.
    """
    owners = split_owners(name)
    if len(owners) > 1:
        keys = dict.fromkeys(key_name(column, depth, fold_numbers, each) for each in owners)
        return shared_text(list(keys))
    if column not in PATHS or name == NONE:
        return name
    if is_of_launch(name):
        return in_shared_text(name, lambda own: key_name(column, depth, fold_numbers, own))
    separator = PATHS[column]
    cut = separator.join(name.split(separator)[:depth])
    return _NUMBERS[column].sub("N", cut) if fold_numbers else cut


def in_fine_parts(times: Floats) -> tuple[Floats, Floats]:
    """Return times in ns as whole fs, and what these are short of as whole ys."""
    fs = np.rint(times * FINE)
    return fs, np.rint((times * FINE - fs) * FINEST)
