"""The options of `prof` as a query: checked, and with one name for each column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.axes import VALUES, check_names
from pyprof2.analysis.summaries.profile_columns import (
    axis_named,
    check_axes,
    check_selects_calls,
    compile_pattern,
)
from pyprof2.cli import arguments
from pyprof2.errors import refuse
from pyprof2.reports.query import (
    KERNEL,
    Query,
    SortKey,
    available_columns,
    column_named,
    match_column,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_SERVING: Final = {"phase", "kind"}
_PATTERNS: Final = ("layer", "op", "kernel", "range")
_SELECTORS: Final = ("rank", "step", *_PATTERNS, "direction", "category", "stream")


def asks_for_serving(args: argparse.Namespace) -> bool:
    """Return whether phases or kinds of layer of an inference server are asked for.

    Steps may be: where no others were recorded.

    Raises:
        UsageError: they do not go with the other options; they have rows and columns of their own.
    """
    if not _SERVING.intersection(args.by or ()):
        names = ("step_pattern", "model", "tp", "price")
        given = [name for name in names if getattr(args, name) is not None]
        if given and args.by != ["step"]:
            option = f"--{given[0].replace('_', '-')}"
            refuse(f"{option} is of the steps of an inference server: add --by phase")
        return bool(given)
    if set(args.by) - _SERVING or not has_no_choice(args):
        refuse(
            f"--by {','.join(args.by)}: phase and kind have rows and columns of their own: leave "
            "all but --rank and --span out"
        )
    return True


def has_no_choice(args: argparse.Namespace) -> bool:
    """Whether no option of a profile is given that says which rows or columns it has."""
    others = ("columns", "sort", "top", "depth", *set(_SELECTORS) - {"rank"})
    switches = ("fold_numbers", "pyprof", "no_copies", "breakdown", "summary")
    asked = any(getattr(args, name) is not None for name in others)
    return not asked and not any(getattr(args, name) for name in switches)


def read_query(args: argparse.Namespace, by: Sequence[str] | None) -> Query:
    """Return `args` as a query.

    Args:
        args: of the command line.
        by: the axes that are named.

    Raises:
        UsageError: a name is unknown, a regular expression malformed, or options exclude each
            other.
    """
    target = arguments.target_of(args)
    asked = [*(args.columns or ()), *(name.removeprefix("+") for name in args.sort or ())]
    axes = tuple(map(axis_named, by or ()))
    axes = axes or _axes_for(asked, pyprof=args.pyprof, is_text=target.is_text)
    _check(args, axes)
    available = available_columns(axes)
    columns = [column_named(name, available) for name in args.columns or ()]
    sort = [
        SortKey(column_named(name.removeprefix("+"), available), name.startswith("+"))
        for name in args.sort or ()
    ]
    for names in (columns, [key.column for key in sort]):
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            refuse(f"column {twice!r} is named twice; name it once")
    selection = {name: getattr(args, name) for name in _SELECTORS} | {"copies": not args.no_copies}
    if args.device is not None and (devices := _numbers(args.device)):
        selection["device"], args.device = devices, None
    span = args.span
    if span is None:
        span = "all" if "span" in axes else "latest"
    query = Query(
        axes, tuple(columns), tuple(sort), args.top, args.depth, args.fold_numbers, selection,
        span, target, args.pyprof, args.input,
    )  # fmt: skip
    if query.is_of_calls:
        check_selects_calls(selection, modules=axes == ("layer",))
    return query


def _numbers(names: str) -> list[int]:
    """Return the numbers of devices; none for the name of a device or a file."""
    parts = names.split(",")
    return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else []


def check_breakdown(query: Query) -> None:
    """Raise unless `--breakdown` can be shown as `query` asks.

    Raises:
        UsageError: it is along another axis, or has no such columns or selection.
    """
    selection = {name for name, value in query.selection.items() if value is not None}
    others = selection - {"rank", "step", "copies"}
    arguments.refuse({
        "--breakdown is of steps: add --by step, or leave --by out":
            query.axes not in ((), ("step",), KERNEL),
        "--breakdown has rows and columns of its own: leave all but --rank and --step out":
            query.columns or query.sort or query.pyprof or others,
    })  # fmt: skip


def _axes_for(asked: Sequence[str], *, pyprof: bool, is_text: bool) -> tuple[str, ...]:
    """Return the axes where none is named: those of the columns that are."""
    if pyprof or not is_text:
        return KERNEL
    of_op = available_columns(("op",))
    found = [match_column(name, of_op) for name in asked]
    if None in found:
        return KERNEL
    return ("op",) if "op" in found else ()


def _check(args: argparse.Namespace, axes: tuple[str, ...]) -> None:
    """Raise for options that make no sense together."""
    is_summed = axes not in ((), KERNEL)
    arguments.refuse({
        "--depth cuts the paths of layers and ranges: add --by layer or --by range":
            not is_summed and args.depth is not None,
        "--fold-numbers puts layers and ranges together: add --by layer or --by range":
            not is_summed and args.fold_numbers,
        "axis kernel has a row for every kernel and goes with no other; to sum, take name":
            is_summed and "kernel" in axes,
    })  # fmt: skip
    if is_summed:
        check_axes(axes, args.depth, fold_numbers=args.fold_numbers)
    arguments.refuse(
        {"--pyprof is a table of kernels: leave --by out": args.pyprof and axes != KERNEL}
    )
    for name in VALUES:
        check_names(name, getattr(args, name) or ())
    for pattern in _PATTERNS:
        compile_pattern(getattr(args, pattern) or "")
