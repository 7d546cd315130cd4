"""What `prof` shows: which rows, in which order, with which columns, and what stands around."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.hardware.roofline import FLAG_COMPUTE, FLAG_SAVING
from pyprof2.analysis.summaries import utilization
from pyprof2.analysis.summaries.profile import (
    AXES,
    MORE_COLUMNS,
    NONE,
    SUMMARY_COLUMNS,
    select,
    summarize,
    total_row,
)
from pyprof2.cli import output, text
from pyprof2.cli.query import KERNEL, SHARE_COLUMNS, Query, SortKey
from pyprof2.frames import shown_line
from pyprof2.pyprof_columns import PYPROF_COLUMNS, PYPROF_DEFAULT
from pyprof2.tables import KERNELS, PROFILE_COLUMNS, Column
from pyprof2.units import format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyprof2.run import Run

    Footer = list[tuple[str, dict[str, Any]]]

_TABLE_ROWS: Final = 50
_OVERVIEW_ROWS: Final = 20
_ONE_LINE_PCT: Final = 50
_FINER_AXES: Final = ("layer", "library", "op")
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


_BINS: Final = {
    "ok": "costed",
    "assumed": "assumed",
    "no_shapes": "no shapes",
    "no_formula": "no formula",
    "no_op": "no op",
    "comm": "communication",
    "copy": "copies",
}
_WIDE: Final = 1 << 16
_FLAGS_OF_FLOPS: Final = (FLAG_SAVING, FLAG_COMPUTE)
_COUNTED_PCT: Final = 99.5
_STEPS_SHOWN: Final = 10


def show(run: Run, query: Query) -> None:
    """Write the profile of `run` that `query` asks for."""
    rows = run.rows().reset_index(drop=True)
    chosen = select(rows, **query.selection)
    if chosen.empty and not query.quiet:
        why = "nothing fits the selection" if len(rows) else "there is nothing to profile in it"
        print(f"pyprof2: {text.clean(str(query.input))}: {why}", file=sys.stderr)
    if not query.quiet:
        output.warn(run.warnings, query.input)
    if query.axes == KERNEL:
        _show_kernels(run, rows, chosen, query)
    else:
        _show_sums(run, rows, chosen, query)


def _show_kernels(run: Run, rows: pd.DataFrame, chosen: pd.DataFrame, query: Query) -> None:
    """Show a row for each of `chosen`; `rows` are all, by which PyProf's columns count."""

    def column(name: str) -> pd.Series:
        if name in PYPROF_COLUMNS and (query.pyprof or name not in PROFILE_COLUMNS):
            return PYPROF_COLUMNS[name].make(rows).loc[chosen.index]
        if name == "dur_us":
            return chosen["dur_ns"] / 1000
        if name == "share_pct":
            return chosen["dur_ns"] / (chosen["dur_ns"].sum() or float("nan")) * 100
        return chosen[name]

    default = _TABLE_COLUMNS if query.is_table else PROFILE_COLUMNS
    names = query.columns or (PYPROF_DEFAULT if query.pyprof else default)
    order = _order(query.sort, column, chosen.index)
    frame = pd.DataFrame({name: column(name) for name in names}, index=chosen.index).loc[order]
    if not query.is_table:
        _write(frame, query, (*KERNELS.columns, *SHARE_COLUMNS))
        return
    total = _total(chosen)
    total |= {
        "dur_ns": total["time_ns"],
        "sil": total["time_ns"],
        "dur_us": total["time_ns"] / 1000,
    }
    _write_table(run, rows, _Table(frame, total, chosen["roofline_flag"]), query)


def _show_sums(run: Run, rows: pd.DataFrame, chosen: pd.DataFrame, query: Query) -> None:
    """Show a row for each key along the axes, or along the one that says most."""
    axes = query.axes or (_telling_axis(chosen),)
    sums = summarize(chosen, axes, query.depth, fold_numbers=query.fold_numbers, more=True)
    frame = sums.loc[_order(query.sort, sums.__getitem__, sums.index)]
    unasked = {column.name for column in MORE_COLUMNS}
    frame = frame[list(query.columns or [name for name in frame if name not in unasked])]
    if not query.is_table:
        _write(frame, query, (*KERNELS.columns, *SUMMARY_COLUMNS, *MORE_COLUMNS))
        return
    notes = [
        *(() if query.axes else _overview_notes(run, chosen, axes[0])),
        *_missed_note(sums, axes),
        *(_step_notes(run) if "step" in axes else ()),
        *_none_note(chosen, sums, axes),
        *_one_line_note(run, chosen, sums, axes),
    ]
    _write_table(run, rows, _Table(frame, _total(chosen), sums["roofline_flag"], notes), query)


def _telling_axis(rows: pd.DataFrame) -> str:
    """Return the axis that has a key for most of the time: ops, ranges, else kernel names."""
    known = (axis for axis in ("op", "range") if rows.empty or _known(rows, axis) >= 0.5)
    return next(known, "name")


def _known(rows: pd.DataFrame, axis: str) -> float:
    """Return the share of the time of the rows that have a key along the axis."""
    time = rows["dur_ns"]
    return float(time[rows[AXES[axis]].notna()].sum() / (time.sum() or 1))


def _overview_notes(run: Run, rows: pd.DataFrame, axis: str) -> Iterator[str]:
    """Say why the rows are what they are, and how to see more."""
    if axis != "op":
        what = "the kernels' names" if axis == "name" else "your ranges"
        share = f"{100 * _known(rows, 'op'):.1f} %"
        yield f"by {what}: only {share} of the time belongs to an op; see 'check'"
    what = "op calls" if run.summary["no_gpu"] else "kernels"
    yield f"other sums: --by layer, source, direction, step, …; all {what} in order: --by kernel"


def _none_note(rows: pd.DataFrame, sums: pd.DataFrame, axes: Sequence[str]) -> Iterator[str]:
    """Where no row has a key, name the axes that have some."""
    keys = sums[[AXES[axis] for axis in axes]]
    if len(keys) != 1 or not all(pd.isna(key) or key == NONE for key in keys.iloc[0]):
        return
    shares = {axis: _known(rows, axis) for axis in AXES if axis not in ("rank", "stream")}
    best = sorted((a for a in shares if shares[a] > 0), key=shares.__getitem__, reverse=True)
    yield f"no {' or '.join(axes)} was recorded (see 'check'); there is --by {', '.join(best)}"


def _one_line_note(
    run: Run, rows: pd.DataFrame, sums: pd.DataFrame, axes: Sequence[str]
) -> Iterator[str]:
    """Where one line has more than half of the time, name axes that take it apart."""
    if tuple(axes) != ("source",):
        return
    top = sums[(sums["source"] != NONE) & (sums["share_pct"] > _ONE_LINE_PCT)]
    for line, share in zip(top["source"], top["share_pct"], strict=True):
        of_line = rows[rows["source"] == line]
        finer = [a for a in _FINER_AXES if len(of_line[AXES[a]].unique()) > 1]
        if finer:
            shown = shown_line(line, run.source_roots)
            yield (
                f"one line of yours, {shown}, has {share:.1f} % of the time: "
                f"--by {' or '.join(finer)} takes it apart"
            )


def _missed_note(sums: pd.DataFrame, by: Sequence[str]) -> Iterator[str]:
    """Say how much time could have been on Tensor Cores and was not, if that is anything."""
    missed = sums.groupby("tensor_core_missed")["tensor_core_missed_ns"].sum()
    time = int(missed.sum())
    if time:
        share = _share(time, int(sums["time_ns"].sum()))
        columns = ",".join(
            [*(AXES[axis] for axis in by), *(c.name for c in MORE_COLUMNS if "missed" in c.name)]
        )
        yield (
            f"could have used Tensor Cores and did not: {format_time(time)}, {share} of the time, "
            f"most for: {missed.idxmax()}; where: -c {columns}"
        )


def _step_notes(run: Run) -> Iterator[str]:
    """Give the time of a step, how busy the GPU is in it, and MFU, step by step."""
    steps = run.utilization[run.utilization["step"].notna()]
    if steps.empty:
        return
    wall, busy = (steps[name].astype("float64").mean() for name in ("wall_ns", "busy_ns"))
    is_one = run.summary["gpu_count"] == len(run.summary["ranks"])
    share = f", {_share(int(busy), int(wall))} of it busy" if is_one and pd.notna(busy) else ""
    ends = "" if run.summary["no_gpu"] else ", until the last work that it launched ends"
    yield f"a step takes {format_time(int(wall))} on average{ends}{share}"
    steps = steps[steps["mfu_pct"].notna()]
    if len(steps):
        shares = steps.groupby("step")["mfu_pct"].mean()
        shown = [f"{step}: {format_rate(mfu)} %" for step, mfu in shares.head(_STEPS_SHOWN).items()]
        more = ", …" if len(shares) > len(shown) else ""
        peak = f"{steps['peak_flop_per_s'].mean() / 1e12:g} TFLOP/s, {steps['peak'].iloc[0]}"
        yield f"MFU by step: {', '.join(shown)}{more} (of that time at {peak})"


def _total(chosen: pd.DataFrame) -> dict[str, Any]:
    (total,) = total_row(chosen).to_dict("records")
    return {str(name): value for name, value in total.items()}


def _order(
    keys: Sequence[SortKey], column: Callable[[str], pd.Series], index: pd.Index
) -> pd.Index:
    """Return the index in the order of the keys; null comes last, ties stay."""
    for key in reversed(keys):
        values = column(key.column).loc[index]
        is_number = pd.api.types.is_numeric_dtype(values.dtype)
        values = values if is_number else values.astype("str")
        index = values.sort_values(ascending=key.rises or not is_number, kind="stable").index
    return index


def _write(frame: pd.DataFrame, query: Query, columns: Sequence[Column]) -> None:
    """Write a file's worth: all rows, unless `--top` says otherwise."""
    frame = frame if query.top is None else frame.head(query.top)
    if query.pyprof and query.format == "csv":
        frame = frame.rename(columns=_pyprof_header)
    output.write_frame(frame, query.format, query.output, columns, csv_safe=query.csv_safe)


def _pyprof_header(name: str) -> str:
    return PYPROF_COLUMNS[name].header if name in PYPROF_COLUMNS else name


@dataclass(frozen=True)
class _Table:
    """What a table shows.

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


def _write_table(run: Run, rows: pd.DataFrame, content: _Table, query: Query) -> None:
    """Write the heading, the first rows, what the others come to, the total, and the notes."""
    frame, notes = content.frame, content.notes
    shown = frame.head(query.top or (_TABLE_ROWS if query.axes else _OVERVIEW_ROWS))
    if len(shown) < len(frame):
        more = f"{len(shown):,} of {len(frame):,} rows; more with --top N, all with --csv"
        notes = [more, *notes]
    footer = _footer(frame, len(shown), content.total)
    flags = content.flags.reindex(shown.index)
    shown = _with_short_lines(shown, run.source_roots)
    if query.pyprof:
        shown = shown.rename(columns=_pyprof_header)
        footer = [
            (words, {_pyprof_header(name): row[name] for name in row}) for words, row in footer
        ]
    make = _markdown if query.format == "markdown" else _plain
    head = heading(run, rows, _WIDE if make is _markdown else text.terminal_width(query.width))
    droppable = () if query.columns or query.pyprof else _droppable(run, shown)
    lines = make(_Shown(head, shown, footer, flags, notes, droppable), query)
    output.write_text("".join(f"{line}\n" for line in lines), query.output)


def _with_short_lines(frame: pd.DataFrame, roots: Sequence[str]) -> pd.DataFrame:
    """Return the rows with lines of code from their root on, instead of that of the disk."""
    short = {
        name: frame[name].astype(object).map(lambda line: shown_line(line, roots), "ignore")
        for name in _LINES
        if name in frame
    }
    return frame.assign(**short)


@dataclass(frozen=True)
class _Shown:
    """What is to be seen: the heading, the table's first rows, those below it, and the notes."""

    heading: Sequence[str]
    frame: pd.DataFrame
    footer: Sequence[tuple[str, dict[str, Any]]]
    flags: pd.Series
    notes: Sequence[str]
    droppable: Sequence[str]


def _plain(shown: _Shown, query: Query) -> list[str]:
    """Return the lines for a terminal."""
    width = text.terminal_width(query.width)
    marked = _marked(shown.frame, shown.flags)
    table, left_out = text.render(shown.frame, shown.footer, width, shown.droppable, marked)
    header, body = table.split("\n", 1)
    header = header if query.output else text.bold(header)
    notes = [*shown.notes, *_flag_notes(marked, shown.flags, left_out)]
    if left_out:
        names = sorted(left_out, key=list(shown.frame.columns).index)
        notes.insert(len(shown.notes), f"columns that did not fit (-w, -c): {', '.join(names)}")
    lines = [*shown.heading, "", header, body]
    for note in notes:
        lines += textwrap.wrap(text.clean(note), width, break_on_hyphens=False)
    return lines


def _markdown(shown: _Shown, query: Query) -> list[str]:
    """Return the lines as Markdown; nothing is cut."""
    marked = _marked(shown.frame, shown.flags)
    notes = [*shown.notes, *_flag_notes(marked, shown.flags, ())]
    remarks = [f"- {text.escape_markdown(text.clean(note))}" for note in notes]
    title = text.escape_markdown(text.clean(query.input.name))
    lines = [f"**{title}**"]
    for line in shown.heading:
        lines += ["", text.escape_markdown(line)]
    table = text.render_markdown(shown.frame, shown.footer, marked)
    return [*lines, "", table, *([""] if remarks else []), *remarks]


def _marked(shown: pd.DataFrame, flags: pd.Series) -> dict[str, list[bool]]:
    """Return by column which of the rates are above a roof, so that a flag says why."""
    words = ["" if pd.isna(flag) else str(flag) for flag in flags]
    of_flops = [word.startswith(_FLAGS_OF_FLOPS) for word in words]
    of_bytes = [bool(word) and not flops for word, flops in zip(words, of_flops, strict=True)]
    marks = {"tflops": of_flops, "gbps": of_bytes}
    return {name: marks[name] for name in marks if name in shown}


def _flag_notes(
    marked: Mapping[str, Sequence[bool]], flags: pd.Series, left_out: Sequence[str]
) -> Iterator[str]:
    """Say what the marks mean, each flag once."""
    seen = zip(*(marked[name] for name in marked if name not in left_out), strict=True)
    found = [flag for flag, marks in zip(flags, seen, strict=False) if any(marks)]
    yield from (f"{text.MARK} {flag}" for flag in dict.fromkeys(found))


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


def heading(run: Run, rows: pd.DataFrame, width: int) -> list[str]:
    """Return what the recording is, in lines of `width` at most."""
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
        busy, span = format_time(summary["busy_ns"]), format_time(summary["gpu_span_ns"])
        items.insert(0, ("device", ", ".join(summary["devices"]) or "not named"))
        items.append(("kernels", f"{summary['kernel_count']:,} in {format_time(kernels)}"))
        items.append(("copies", format_time(copies) if copies else ""))
        gpus = summary["gpu_count"]
        items.append(("busy", f"{busy} of {span}" + (f" on {gpus} GPUs" if gpus > 1 else "")))
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
