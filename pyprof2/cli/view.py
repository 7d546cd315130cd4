"""What `prof` shows: which rows, in which order, with which columns, and what stands around."""

from __future__ import annotations

import difflib
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa

from pyprof2.analysis import utilization
from pyprof2.analysis.profile import (
    AXES,
    MORE_COLUMNS,
    SUMMARY_COLUMNS,
    check_axes,
    compile_pattern,
    select,
    summarize,
    total_row,
)
from pyprof2.cli import output, text
from pyprof2.errors import UsageError
from pyprof2.pyprof_columns import PYPROF_COLUMNS, PYPROF_DEFAULT, PYPROF_ONLY
from pyprof2.tables import KERNELS, PROFILE_COLUMNS, Column
from pyprof2.units import format_rate, format_time

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyprof2.run import Run

SHARE_COLUMNS: Final = (
    Column("dur_us", pa.float64(), "End minus start.", "us"),
    Column("share_pct", pa.float64(), "Share of the time of the selection.", "%"),
)
"""Columns of the kernel axis that only `table` shows unasked."""

_TABLE_ROWS: Final = 50
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


_BINS: Final = {
    "ok": "costed",
    "assumed": "assumed",
    "no_shapes": "no shapes",
    "no_formula": "no formula",
    "no_op": "no op",
    "comm": "communication",
    "copy": "copies",
}
_COUNTED_PCT: Final = 99.5
_STEPS_SHOWN: Final = 10


def check_usage(args: argparse.Namespace) -> None:
    """Raise for what makes no sense in `args`, before anything is read.

    Raises:
        UsageError: a name is unknown, a regular expression malformed, or options exclude each
            other.
    """
    if args.by == ["kernel"]:
        if args.depth is not None:
            msg = "--depth cuts the paths of layers: add --by layer"
            raise UsageError(msg)
    elif "kernel" in args.by:
        msg = "axis kernel has a row for every kernel and goes with no other; to sum, take name"
        raise UsageError(msg)
    else:
        check_axes(args.by, args.depth)
    if args.pyprof and args.by != ["kernel"]:
        msg = "--pyprof is a table of kernels: leave --by out"
        raise UsageError(msg)
    if args.width is not None and args.format != "table":
        msg = f"--width is for tables, not for {args.format}: leave it out"
        raise UsageError(msg)
    for pattern in (args.layer, args.op, args.kernel):
        compile_pattern(pattern or "")
    _check_columns(args.columns or (), _available(args))
    _check_columns([args.sort.removeprefix("+")] if args.sort else (), _available(args))


def _available(args: argparse.Namespace) -> list[str]:
    """Return the columns to choose from."""
    if args.by == ["kernel"]:
        extra = [column.name for column in SHARE_COLUMNS]
        return list(dict.fromkeys([*PROFILE_COLUMNS, *extra, *PYPROF_ONLY]))
    names = [column.name for column in (*SUMMARY_COLUMNS, *MORE_COLUMNS)]
    return [AXES[axis] for axis in args.by] + names


def show(run: Run, args: argparse.Namespace) -> None:
    """Write the profile of `run` that `args` ask for."""
    rows = run.rows().reset_index(drop=True)
    chosen = select(
        rows,
        rank=args.rank,
        step=args.step,
        layer=args.layer,
        op=args.op,
        kernel=args.kernel,
        copies=not args.no_copies,
    )
    if chosen.empty and not args.quiet:
        why = "nothing fits the selection" if len(rows) else "there is nothing to profile in it"
        print(f"pyprof2: {text.clean(str(args.input))}: {why}", file=sys.stderr)
    if args.by == ["kernel"]:
        _show_kernels(run, rows, chosen, args)
    else:
        _show_sums(run, rows, chosen, args)


def _show_kernels(
    run: Run, rows: pd.DataFrame, chosen: pd.DataFrame, args: argparse.Namespace
) -> None:
    """Show a row for each of `chosen`; `rows` are all, by which PyProf's columns count."""

    def column(name: str) -> pd.Series:
        if name in PYPROF_COLUMNS and (args.pyprof or name not in PROFILE_COLUMNS):
            return PYPROF_COLUMNS[name].make(rows).loc[chosen.index]
        if name == "dur_us":
            return chosen["dur_ns"] / 1000
        if name == "share_pct":
            return chosen["dur_ns"] / (chosen["dur_ns"].sum() or float("nan")) * 100
        return chosen[name]

    is_table = args.format == "table"
    default = PYPROF_DEFAULT if args.pyprof else _TABLE_COLUMNS if is_table else PROFILE_COLUMNS
    names = args.columns or default
    order = _order(args.sort, column)
    frame = pd.DataFrame({name: column(name) for name in names}, index=chosen.index)
    if order is not None:
        frame = frame.loc[order]
    if not is_table:
        _write(frame, args, (*KERNELS.columns, *SHARE_COLUMNS))
        return
    total = _total(chosen)
    total |= {
        "dur_ns": total["time_ns"],
        "sil": total["time_ns"],
        "dur_us": total["time_ns"] / 1000,
    }
    _write_table(run, rows, frame, total, args)


def _show_sums(
    run: Run, rows: pd.DataFrame, chosen: pd.DataFrame, args: argparse.Namespace
) -> None:
    """Show a row for each key along the axes."""
    frame = sums = summarize(chosen, args.by, args.depth, more=True)
    order = _order(args.sort, frame.__getitem__)
    if order is not None:
        frame = frame.loc[order]
    unasked = {column.name for column in MORE_COLUMNS}
    frame = frame[args.columns or [name for name in frame if name not in unasked]]
    if args.format == "table":
        notes = [*_missed_note(sums, args.by), *(_step_notes(run) if "step" in args.by else ())]
        _write_table(run, rows, frame, _total(chosen), args, notes)
    else:
        _write(frame, args, (*KERNELS.columns, *SUMMARY_COLUMNS, *MORE_COLUMNS))


def _missed_note(sums: pd.DataFrame, by: Sequence[str]) -> Iterator[str]:
    """Say how much time could have been on Tensor Cores and was not, if that is anything."""
    missed = sums.groupby("tensor_core_missed")["tensor_core_missed_ns"].sum()
    time = int(missed.sum())
    if time:
        share = _share(time, int(sums["time_ns"].sum()))
        columns = ",".join([*(AXES[axis] for axis in by), *(c.name for c in MORE_COLUMNS)])
        yield (
            f"could have used Tensor Cores and did not: {format_time(time)}, {share} of the time, "
            f"most for: {missed.idxmax()}; where: -c {columns}"
        )


def _step_notes(run: Run) -> Iterator[str]:
    """Give MFU, step by step, and what it is made of."""
    steps = run.utilization[run.utilization["mfu_pct"].notna()]
    steps = steps[steps["step"].notna()]
    if len(steps):
        shares = steps.groupby("step")["mfu_pct"].mean()
        shown = [f"{step}: {format_rate(mfu)} %" for step, mfu in shares.head(_STEPS_SHOWN).items()]
        more = ", …" if len(shares) > len(shown) else ""
        yield f"MFU by step: {', '.join(shown)}{more}"
        wall, gpu = (format_time(int(steps[name].mean())) for name in ("wall_ns", "gpu_ns"))
        peak = f"{steps['peak_flop_per_s'].mean() / 1e12:g} TFLOP/s"
        yield f"a step takes {wall}, {gpu} on the GPU; peak {peak} ({steps['peak'].iloc[0]})"


def _total(chosen: pd.DataFrame) -> dict[str, Any]:
    (total,) = total_row(chosen).to_dict("records")
    return {str(name): value for name, value in total.items()}


def _check_columns(names: Sequence[str], available: Sequence[str]) -> None:
    """Raise unless each of `names` is available and comes once."""
    for i, name in enumerate(names):
        if name not in available:
            near = difflib.get_close_matches(name, available, n=5, cutoff=0.5)
            hint = (
                f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(available)}"
            )
            msg = f"no column {name!r}; {hint}"
            raise UsageError(msg)
        if name in names[:i]:
            msg = f"column {name!r} is named twice; name it once"
            raise UsageError(msg)


def _order(by: str | None, column: Callable[[str], pd.Series]) -> pd.Index | None:
    """Return the index in the order that `--sort` asks for; null comes last, ties stay."""
    if by is None:
        return None
    key = column(by.removeprefix("+"))
    is_number = pd.api.types.is_numeric_dtype(key.dtype)
    key = key if is_number else key.astype("str")
    return key.sort_values(ascending=by.startswith("+") or not is_number, kind="stable").index


def _write(frame: pd.DataFrame, args: argparse.Namespace, columns: Sequence[Column]) -> None:
    """Write a file's worth: all rows, unless `--top` says otherwise."""
    frame = frame if args.top is None else frame.head(args.top)
    if args.pyprof and args.format == "csv":
        frame = frame.rename(columns=_pyprof_header)
    output.write_frame(frame, args.format, args.output, columns)


def _pyprof_header(name: str) -> str:
    return PYPROF_COLUMNS[name].header if name in PYPROF_COLUMNS else name


def _write_table(
    run: Run,
    rows: pd.DataFrame,
    frame: pd.DataFrame,
    total: dict[str, Any],
    args: argparse.Namespace,
    notes: Sequence[str] = (),
) -> None:
    """Write the heading, the first rows, what the others come to, the total, and the notes."""
    shown = frame.head(args.top or _TABLE_ROWS)
    footer = _footer(frame, len(shown), total)
    width = text.terminal_width(args.width)
    droppable = () if args.columns or args.pyprof else _droppable(run, args.by)
    if args.pyprof:
        shown = shown.rename(columns=_pyprof_header)
        footer = [
            (words, {_pyprof_header(name): row[name] for name in row}) for words, row in footer
        ]
    table, left_out = text.render(shown, footer, width, droppable)
    header, body = table.split("\n", 1)
    header = header if args.output else text.bold(header)
    lines = [*_heading(run, rows, width), "", header, body]
    if len(shown) < len(frame):
        note = f"{len(shown):,} of {len(frame):,} rows; more with --top N, all with --csv"
        lines += textwrap.wrap(note, width)
    if left_out:
        names = sorted(left_out, key=list(frame.columns).index)
        lines += textwrap.wrap(f"left out for want of width: {', '.join(names)}", width)
    for note in notes:
        lines += textwrap.wrap(text.clean(note), width, break_on_hyphens=False)
    output.write_text("\n".join(lines) + "\n", args.output)


def _droppable(run: Run, by: Sequence[str]) -> list[str]:
    """Return the columns that may be left out; the keys may not."""
    # Without a GPU the kernel is the op.
    first = ["kernel_short"] if run.summary["no_gpu"] else []
    keys = [AXES.get(axis) for axis in by]
    return [name for name in (*first, *_DROPPABLE) if name not in keys]


def _footer(
    frame: pd.DataFrame, shown: int, total: dict[str, Any]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows below the table: what is not shown, and the total."""
    footer = [("total", {name: total[name] for name in frame.columns if name in total})]
    rest = frame.iloc[shown:]
    if len(rest):
        sums = {str(n): rest[n].sum(min_count=1) for n in rest.columns if n in _ADDITIVE}
        footer.insert(0, (f"{len(rest):,} more", sums))
    return footer


def _heading(run: Run, rows: pd.DataFrame, width: int) -> list[str]:
    """Return what the recording is, in some lines above the table."""
    summary = run.summary
    ranks = summary["ranks"]
    items = [("ranks", _ranges(ranks) if len(ranks) > 1 else "")]
    steps = summary["steps"]
    items.append(("step" if len(steps) == 1 else "steps", _ranges(steps) or "none"))
    if summary["no_gpu"]:
        items.insert(0, ("device", ", ".join(["CPU", *summary["devices"]])))
        items.append(("op calls", f"{len(rows):,} in {format_time(int(rows['dur_ns'].sum()))}"))
    else:
        kernels, copies = summary["kernel_time_ns"], summary["copy_time_ns"]
        busy, span = summary["busy_ns"], summary["span_ns"]
        items.insert(0, ("device", ", ".join(summary["devices"]) or "not named"))
        items.append(("kernels", f"{summary['kernel_count']:,} in {format_time(kernels)}"))
        items.append(("copies", format_time(copies) if copies else ""))
        gpus = summary["gpu_count"]
        each = f"{gpus} x {format_time(span)}" if gpus > 1 else format_time(span)
        items.append(("busy", f"{format_time(busy)} of {each}"))
        items.append(("linked", _percent(summary["linked_pct"])))
    if run.device is not None:
        items.append(("roofs of", str(run.device)))
    lines = _flow([f"{name} {text.clean(value)}" for name, value in items if value], width)
    return lines + textwrap.wrap(" | ".join([*_ledger(summary), *_utilization(run)]), width)


def _ledger(summary: Mapping[str, Any]) -> list[str]:
    """Return the shares of the time by what is known of the work."""
    times = summary["ledger"]
    total = sum(times.values())
    shares = [f"{_BINS[name]} {_share(time, total)}" for name, time in times.items() if time]
    what = "op time" if summary["no_gpu"] else "GPU time"
    return [f"{what}: {', '.join(shares)}"] if shares else []


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole
    return f"{share:.1f} %" if share >= 0.05 else "<0.1 %"


def _utilization(run: Run) -> list[str]:
    """Return MFU, and HFU where it is another number."""
    shares = utilization.total(run.utilization)
    mfu, hfu = shares["mfu_pct"], shares["hfu_pct"]
    if mfu is None or hfu is None:
        return []
    # Of matrix work whose FLOPs are not known it is only a lower bound.
    least = "" if run.utilization["counted_pct"].min() >= _COUNTED_PCT else "at least "
    same = f"{mfu:.1f}" == f"{hfu:.1f}"
    return [f"MFU {least}{_share_text(mfu)}"] + ([] if same else [f"HFU {least}{_share_text(hfu)}"])


def _share_text(share: float) -> str:
    return f"{format_rate(share)} %"


def _percent(value: float | None) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.1f} %"


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text: `0-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _flow(items: Sequence[str], width: int) -> list[str]:
    """Return the items side by side, on as many lines as they need."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 3 + len(item) <= width:
            lines[-1] += f" | {item}"
        else:
            lines.append(item[:width])
    return lines
