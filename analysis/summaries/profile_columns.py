"""The axes of a profile, the columns that it then has, and selections of its rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

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


@dataclass(frozen=True)
class ProfileColumn(Column):
    """A column of sums along axes, with all that tables, files and the page say of it.

    Attributes:
        how: how it is made of sums: that of its name, how many op calls there are, the share of one
            in its whole, or the quotient of two; a rate is one of what is known alone; or the
            least or largest value of rows, or the mean, weighted with their time.
        of: the sums that it is made of; of a column by request that of the rows, if not its name.
        scale: what it is multiplied with.
        over_time: whether a helper kernel counts only beside its work.
        known_by: null where these counts of kernels are 0: what is known of copies beside them says
            nothing of the kernels.
        header: above it in a table; by default its name, the unit in place of the last word.
        adds_up: whether a line can stand for the rows that a table does not show.
        counted: whether it is of FLOPs or bytes, of which a part may be known alone.
        dropped: which one a narrow table leaves out, that of the least number first; None: none.
    """

    how: Literal["sum", "calls", "share", "ratio", "rate", "least", "largest", "mean"] = "sum"
    of: tuple[str, ...] = ()
    scale: float = 1
    over_time: bool = False
    known_by: tuple[str, ...] = ()
    header: str = ""
    adds_up: bool = False
    counted: bool = False
    dropped: int | None = None


def _made(column: Column, how: Any = "sum", *of: str, **said: Any) -> ProfileColumn:
    return ProfileColumn(**vars(column), how=how, of=of, **said)


_KNOWN: Final = ("known_kernel_count",)
_SIZED: Final = ("sized_kernel_count",)
# FLOP/ns is GFLOP/s, byte/ns is GB/s. Of the roof `least_ys` is a part of `least_fs`.
SUMMARY_COLUMNS: Final = (
    _made(whole("count", "Kernels and copies; without a GPU: op calls.", nullable=False),
          adds_up=True, dropped=18),
    _made(whole("op_calls", "Op calls that they belong to, each once.", nullable=False),
          "calls", dropped=11),
    _made(whole("time_ns", "Sum of `dur_ns`.", "ns", nullable=False), adds_up=True),
    _made(real("share_pct", "Share of the time of the selection.", "%"),
          "share", "time_ns", scale=100, adds_up=True),
    _made(real("mean_ns", "Time over count.", "ns"), "ratio", "time_ns", "count", dropped=13),
    _made(whole("min_ns", "Shortest `dur_ns`.", "ns"), "least", dropped=2),
    _made(whole("max_ns", "Longest `dur_ns`.", "ns"), "largest", dropped=3),
    _made(whole("flops", "Sum of the known FLOPs; null where none is known.", "FLOP"),
          known_by=_KNOWN, adds_up=True, counted=True, dropped=4),
    _made(whole("bytes", "Sum of the known bytes; null where none is known.", "B"),
          adds_up=True, counted=True, dropped=5),
    _made(real("tflops", "FLOPs over the time of rows that know them.", "TFLOP/s"),
          "rate", "flops", "flops_ns", scale=1e-3, over_time=True, known_by=_KNOWN,
          header="TFLOP/s", counted=True, dropped=15),
    _made(real("gbps", "Bytes over the time of rows that know them.", "GB/s"),
          "rate", "bytes", "bytes_ns", over_time=True, known_by=_SIZED, header="GB/s",
          counted=True, dropped=8),
    _made(real("intensity", "FLOPs per byte, of rows that know both.", "FLOP/B"),
          "rate", "both_flops", "both_bytes", known_by=(*_KNOWN, *_SIZED), header="FLOP/B",
          counted=True, dropped=1),
    _made(real("roofline_pct", "Least possible time over time, where known.", "%"),
          "rate", "least_fs", "least_ns", scale=100, over_time=True, counted=True, dropped=16),
    _made(real("tensor_core_pct", "Time of kernels on Tensor Cores over the time of those with a "
               "verdict, yes or no.", "%"),
          "rate", "tensor_core_ns", "tensor_core_known_ns", scale=100, header="TC %", dropped=10),
    _made(real("costed_pct", "Share of the time whose counts are known.", "%"),
          "rate", "costed_ns", "time_ns", scale=100, dropped=9),
)  # fmt: skip
"""Columns of `summarize` after the key columns."""

RATES: Final = {column.name: column for column in SUMMARY_COLUMNS if column.how == "rate"}
"""The quotients of two sums of a column's own."""

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


SHARE: Final = _made(
    whole(
        "share_ns",
        "That of `alone_ns`, and of each kernel of several a part by the bytes of what it does for "
        "this one: a convention, as no rule says what a line costs in a fused kernel. It adds up.",
        "ns",
    ),
    adds_up=True,
)
"""Column beside `OF_OWNERS`, made on request."""

MEANS: Final = (
    _made(real("blocks_per_sm", "Mean of the kernels, weighted with their time."), "mean"),
    _made(real("occupancy_pct", "Mean of the kernels, weighted with their time.", "%"), "mean"),
    _made(real("registers", "Mean per thread, weighted with the kernels' time."), "mean"),
    _made(real("shared_bytes", "Mean per block, weighted with the kernels' time.", "B"), "mean"),
    _made(real("max_gbps", "Largest `gbps` of the kernels.", "GB/s"),
          "largest", "gbps", header="max GB/s"),
)  # fmt: skip
"""Columns of `summarize` by request: means over the kernels of which it is known, and the largest
of them."""

LEAST_OR_LARGEST: Final = {
    each.name: each.how for each in (*SUMMARY_COLUMNS, *MEANS) if each.how in ("least", "largest")
}
"""The columns that are no sums, and which of the two each is."""

OF_CALLS: Final = (
    _made(whole("calls", "Op calls, with and without work of a device."), adds_up=True),
    _made(whole("host_self_ns", "Time of the calls less that of the ops directly inside and of "
                "launches.", "ns"), adds_up=True),
    whole("host_total_ns", "Time of the calls on the host.", "ns"),
    whole("device_total_ns", "Time of the kernels and copies of the calls and of the ops inside of "
          "them.", "ns"),
    real("tensor_core_total_pct", "As `tensor_core_pct`, of the calls and of the ops inside of "
         "them.", "%"),
    Column("tensor_core_eligible", pa.bool_(), "Whether any call, or an op inside of it, is of a "
           "kind that Tensor Cores do in half precision, or ran a kernel on them."),
)  # fmt: skip
"""Columns of op calls, made on request: of all calls of a key, also those that launched nothing,
which so have rows of their own."""

OF_MODULES: Final = (
    _made(whole("occurrences", "Calls of the module in forward."), adds_up=True),
    _made(whole("operators", "Ops directly inside of these calls."), adds_up=True),
    _made(whole("host_self_ns", "Time of the module's calls less that of the ops and modules "
                "directly inside.", "ns"), adds_up=True),
    whole("host_total_ns", "Time of the module's calls on the host.", "ns"),
    _made(whole("device_self_ns", "Time of the kernels and copies of the ops directly inside of "
                "the calls.", "ns"), adds_up=True),
    whole("device_total_ns", "Time of the kernels and copies of all ops inside of the calls.",
          "ns"),
)  # fmt: skip
"""Columns of modules along axis `layer` alone, made on request."""

KERNEL_NAME: Final = "kernel_name"
"""Another name of axis `name`, whose column is `kernel`."""

COPY_CATEGORIES: Final = ("memcpy", "memset")

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
