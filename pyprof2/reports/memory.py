"""Memory as text, for people, or as a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2 import units
from pyprof2.analysis.memory import live
from pyprof2.analysis.memory.fits import allocator_advice, fits
from pyprof2.analysis.memory.profile import DIFFERENCE_COLUMNS, difference
from pyprof2.analysis.memory.tags import tagged_bytes
from pyprof2.analysis.memory.timeline import (
    TIMELINE_COLUMNS,
    by_category,
    growth,
    highest_of_parts,
    timeline,
)
from pyprof2.columns import as_pandas, as_text
from pyprof2.reports import cells, files
from pyprof2.reports.cells import records
from pyprof2.reports.table import drawn
from pyprof2.tables import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from pyprof2.analysis.memory.curves import MemoryCurve
    from pyprof2.analysis.memory.profile import MemoryProfile

WEIGHT_COLUMNS: Final = tuple(
    column for column in WEIGHTS.columns if column.name not in ("time_ns", "address", "span")
)
"""A row for each parameter and buffer that the recorded program named."""
_ALL_AXES: Final = ("category", "layer", "line", "op")
_OUTLINE: Final = (("category", 12), ("line", 8), ("layer", 6))
_ROWS_SHOWN: Final = 50
_WEIGHTS_SHOWN: Final = 6
_CHECKPOINTS: Final = 3
_SMALL: Final = 0.05
"""A device with a smaller share of the largest one's memory has one line in the outline."""
_PARTS: Final = 16
_BAR: Final = 48
_LETTERS: Final = {
    "parameter": "P", "buffer": "B", "gradient": "G", "optimizer_state": "O", "activation": "A",
    "input": "I", "temporary": "t", "workspace": "w", "communication": "c", "output": "o",
    "unknown": "?", "parameter_or_buffer": "P",
}  # fmt: skip
_WORDS: Final = {
    "peak": "at the peak",
    "end": "at the end",
    "backward": "at the start of a backward",
    "oom": "when memory ran out",
}
_NO_WEIGHTS: Final = (
    "no parameter is named in the recording; pyprof2 capture --entry FILE and --memory, and "
    "pyprof2.init(memory=True) name them"
)
_NOTHING: Final = (
    "no allocation is recorded; record with profile(profile_memory=True), or name what "
    "torch.cuda.memory._dump_snapshot writes"
)
_NO_MOMENT: Final = {
    "backward": "no backward is recorded: nothing is kept for one",
    "oom": "memory did not run out",
}


@dataclass(frozen=True)
class MemoryQuery:
    """Which memory to show, and where.

    Attributes:
        axes: along which to sum; none: in a table an outline, else all that there are.
        at: the moment, of `MOMENTS`.
        timeline: the curve in place of a moment.
        weights: the parameters and buffers in place of a moment.
        top: how many rows; None: what suits the format.
        capacity: bytes of a device into which it should fit.
        target: where to write.
    """

    axes: tuple[str, ...]
    at: str
    timeline: bool
    weights: bool
    top: int | None
    capacity: int | None
    target: files.Target


def show(profile: MemoryProfile, query: MemoryQuery) -> None:
    """Write the memory in the form asked for."""
    target = query.target
    if target.is_text:
        target.write_lines(_lines(profile, query))
    elif query.timeline:
        parts = [timeline(c, e) for c, e in zip(profile.curves, profile.entries, strict=True)]
        known = [column.name for column in TIMELINE_COLUMNS]
        joined = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=known)
        sizes = {name: "Int64" for name in joined if name not in known}
        target.write_frame(joined.astype(sizes), TIMELINE_COLUMNS)
    elif query.weights:
        every = [_weights(profile, number) for number in range(len(profile.curves))]
        none = _weight_rows(WEIGHTS.schema().empty_table())
        found = pd.concat(every, ignore_index=True) if every else none
        target.write_frame(found, WEIGHT_COLUMNS, query.top)
    elif target.form == "json":
        files.write_parts(_json(profile, query), target.path)
    else:
        rows = profile.rows(query.axes or _ALL_AXES, query.at)
        target.write_frame(rows, live.ROW_COLUMNS, query.top)


def show_difference(a: MemoryProfile, b: MemoryProfile, query: MemoryQuery) -> None:
    """Write the memory of `b` beyond that of `a`."""
    rows = difference(a, b, query.axes or ("line",), query.at)
    target = query.target
    if not target.is_text:
        target.write_frame(rows, DIFFERENCE_COLUMNS, query.top)
        return
    lines = [f"{_WORDS[query.at]}: B less A", f"A {a.path}", f"B {b.path}", ""]
    columns = ["rank", "device_type", "device"]
    for device, of_device in rows.groupby(columns, dropna=False, sort=False, observed=True):
        own = of_device.drop(columns=columns)
        total = int(own["difference_bytes"].sum())
        name = _device_name(*device)  # type: ignore[arg-type]
        lines.append(cells.bold(f"{name}: {'+' if total >= 0 else ''}{_size(total)}"))
        lines += _table(own, query, query.top or _ROWS_SHOWN)
    target.write_lines(lines)


# --------------------------------------------------------------------------- machines


def _weights(profile: MemoryProfile, number: int) -> pd.DataFrame:
    """Return the weights on a curve, by its place: `WEIGHT_COLUMNS`."""
    return _weight_rows(profile.named(number)[0])


def _weight_rows(table: pa.Table) -> pd.DataFrame:
    return as_pandas(table)[[column.name for column in WEIGHT_COLUMNS]]


def _json(profile: MemoryProfile, query: MemoryQuery) -> Iterator[str]:
    """Give an array with an object for each device, its rows in it."""
    axes = query.axes or _ALL_AXES
    texts = []
    for number, (curve, entries, totals) in enumerate(_devices(profile)):
        moment, tags = profile.moment(number, query.at), profile.tagged[number]
        # By category; null: the program tagged nothing.
        tagged = None
        if tags is not None and moment is not None:
            tagged = tagged_bytes(curve, tags, moment)
        rows = (
            live.summarize(curve, live.live_at(entries, moment), axes)
            if moment is not None
            else None
        )
        texts.append(
            files.json_text(
                {str(name): None if pd.isna(each) else each for name, each in totals.items()}
                | {
                    "at": query.at,
                    "settings": profile.settings,
                    "notes": profile.notes_of(number),
                    "tagged": tagged,
                    "weights": records(_weights(profile, number)),
                    "retained": _retained(profile, number),
                    "failures": curve.failures,
                    "growth": records(growth(curve, entries)),
                    "advice": list(_advice(profile, curve, totals)),
                    "fits": None if query.capacity is None else fits(totals, query.capacity),
                    "rows": [] if rows is None else records(rows.head(query.top or len(rows))),
                }
            )
        )
    yield "[\n" + ",\n".join(texts) + "\n]\n"


def _retained(profile: MemoryProfile, number: int) -> dict[str, Any] | None:
    """Return the memory that forward keeps for backward; None: no backward is recorded."""
    found = profile.retained(number)
    if found is None:
        return None
    kept, advice = found
    by = ["held_by", "layer", "line", "op"]
    rows = (
        kept.rows.astype(dict.fromkeys(by, object))
        .groupby(by, observed=True)["bytes"]
        .agg(["sum", "size"])
    )
    rows = rows.sort_values("sum", ascending=False, kind="stable").reset_index()
    return {
        "saved_bytes": kept.saved,
        "otherwise_bytes": kept.otherwise,
        "output_bytes": kept.output,
        "certainty": kept.certainty,
        "rows": records(rows.rename(columns={"sum": "bytes", "size": "blocks"})),
        "checkpoint": records(advice),
    }


def _devices(profile: MemoryProfile) -> Iterator[tuple[MemoryCurve, pd.DataFrame, dict[Any, Any]]]:
    totals = profile.devices.astype(object).to_dict("records")
    yield from zip(profile.curves, profile.entries, totals, strict=True)


def _advice(
    profile: MemoryProfile, curve: MemoryCurve, totals: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    return allocator_advice(totals, profile.settings, ran_out=bool(curve.failures))


# --------------------------------------------------------------------------- people


def _lines(profile: MemoryProfile, query: MemoryQuery) -> Iterator[str]:
    if not profile.curves:
        yield _NOTHING
        return
    largest = max(_held(totals) for *_, totals in _devices(profile))
    is_cpu_only = all(curve.device_type == "cpu" for curve in profile.curves)
    for number, (curve, _, totals) in enumerate(_devices(profile)):
        yield from ([""] if number else [])
        yield from _heading(curve, totals)
        if _held(totals) < _SMALL * largest and not query.axes:
            continue
        yield from _remarks(profile, number, totals)
        if query.capacity is not None and (curve.device_type != "cpu" or is_cpu_only):
            found = fits(totals, query.capacity)
            takes, others = found["takes_bytes"], found["non_torch_bytes"]
            took = "" if takes is None else f", the allocator took {_size(takes)}"
            beside = (
                "what is not of the allocator, such as libraries and CUDA's context, comes on top"
                if others is None
                else f"{_size(others)} are used beside the allocator"
            )
            yield (
                f"into {_size(found['capacity_bytes'])}: {found['verdict']}; needs "
                f"{_size(found['needs_bytes'])}{took}; {beside}"
            )
        yield ""
        yield from _body(profile, number, query)


def _heading(curve: MemoryCurve, totals: Mapping[str, Any]) -> Iterator[str]:
    name = _device_name(curve.rank, curve.device_type, curve.device)
    over = _size(totals["peak_over_base_bytes"])
    if pd.isna(totals["peak_allocated_bytes"]):
        yield cells.bold(f"{name}: peak {over} above what was there before, which is not recorded")
    else:
        peak, base = (_size(totals[n]) for n in ("peak_allocated_bytes", "base_bytes"))
        yield cells.bold(f"{name}: peak {peak} = {base} before the recording + {over}")
    if not pd.isna(totals["reserved_bytes"]):
        parts = (
            ("allocated", "allocated_bytes"), ("free segments", "free_segments_bytes"),
            ("fragmentation", "fragmentation_bytes"), ("private pools", "private_bytes"),
            ("pending", "pending_bytes"),
        )  # fmt: skip
        shown = " + ".join(f"{word} {_size(totals[n])}" for word, n in parts if totals[n])
        yield f"reserved at the end {_size(totals['reserved_bytes'])} = {shown}"
        if not pd.isna(totals["non_torch_bytes"]):
            yield (
                f"used beside it on the device {_size(totals['non_torch_bytes'])}: CUDA's context, "
                "other libraries and processes"
            )
    elif not pd.isna(totals["peak_reserved_bytes"]) and totals["peak_reserved_bytes"]:
        yield f"reserved by the allocator, at most {_size(totals['peak_reserved_bytes'])}"


def _remarks(profile: MemoryProfile, number: int, totals: Mapping[str, Any]) -> Iterator[str]:
    """Name failures, growth, memory kept for backward, and remedies."""
    curve, entries = profile.curves[number], profile.entries[number]
    for failure in curve.failures[-1:]:
        free = failure["device_free_bytes"]
        yield (
            f"out of memory: {_size(failure['requested_bytes'])} were asked for"
            + ("" if free is None else f", {_size(free)} were free on the device")
            + (f"; {len(curve.failures)} times in all" if len(curve.failures) > 1 else "")
            + "; who held it: --at oom"
        )
    yield from _kept_for_backward(profile, number)
    for row in growth(curve, entries).head(3).to_dict("records"):
        yield (
            f"grows by {_size(row['bytes_per_step'])} in each of "
            f"{units.counted(row['steps'], 'step')}: {row['line']}, {row['op']}"
        )
    for each in _advice(profile, curve, totals):
        yield f"{each['setting']} may save up to {_size(each['bytes'])}: {each['why']}"
    yield from (f"note: {note}" for note in profile.notes_of(number))


def _kept_for_backward(profile: MemoryProfile, number: int) -> Iterator[str]:
    """Give the memory that lives from forward to backward, its holders, and checkpoints."""
    found = profile.retained(number)
    if found is None or not found[0].saved + (found[0].otherwise or 0):
        return
    kept, advice = found
    whole = _size(kept.saved + (kept.otherwise or 0))
    parts = (
        "" if kept.otherwise is None
        else f" = {_size(kept.saved)} saved by autograd + {_size(kept.otherwise)} held otherwise"
    )  # fmt: skip
    yield f"kept from forward to backward {whole}{parts}: --at backward --by layer,line"
    for row in advice.head(_CHECKPOINTS).to_dict("records"):
        again, times = row["recompute_ns"], ""
        if not pd.isna(again):
            times = f", {units.format_time(int(again))} of forward again in each step"
        several = f" ({row['layers']} of them)" if row["layers"] > 1 else ""
        yield (
            f"  checkpoint {row['layer']}{several}: predicted to free {_size(row['frees_bytes'])}"
            f", of which {_size(row['again_bytes'])} comes back while one runs again{times}"
            f"; most at {row['line'] or 'no known line'}"
        )


def _body(profile: MemoryProfile, number: int, query: MemoryQuery) -> Iterator[str]:
    curve, entries = profile.curves[number], profile.entries[number]
    if query.timeline:
        yield from _drawn_timeline(curve, entries, profile.begins)
        return
    if query.weights:
        yield from _drawn_weights(profile, number, query, query.top or _ROWS_SHOWN)
        return
    moment = profile.moment(number, query.at)
    if moment is None:
        yield _NO_MOMENT[query.at]
        return
    rows = live.live_at(entries, moment)
    gone = -int(rows["bytes"].clip(upper=0).sum())
    if gone:
        yield f"note: {_size(gone)} of what was there before was released: it counts as less than 0"
    if query.axes:
        yield from _table(_sums(curve, rows, query.axes), query, query.top or _ROWS_SHOWN)
        return
    yield f"{_WORDS[query.at]}:"
    for axis, count in _OUTLINE:
        sums = _sums(curve, rows, (axis,))
        if axis == "category" or not as_text(sums[axis]).str.startswith("(").all():
            yield from _table(sums, query, query.top or count)
            yield ""
    if profile.named(number)[0].num_rows:
        yield "parameters and buffers, those with most: all with --weights"
        yield from _drawn_weights(profile, number, query, query.top or _WEIGHTS_SHOWN)


def _drawn_weights(
    profile: MemoryProfile, number: int, query: MemoryQuery, count: int
) -> list[str]:
    """Return the lines of a table of weights, those that take most first."""
    rows = _weights(profile, number)
    if rows.empty:
        return [_NO_WEIGHTS]
    sizes = ["bytes", "gradient_bytes", "state_bytes"]
    order = rows[sizes].fillna(0).sum(axis="columns").sort_values(ascending=False, kind="stable")
    shown = rows.loc[order.index, ["name", *sizes, "category", "dtype", "source"]]
    # Buffers and weights that are not trained have no gradient and no state.
    return _table(shown.reset_index(drop=True), query, count, skipna=True)


def _sums(curve: MemoryCurve, rows: pd.DataFrame, axes: tuple[str, ...]) -> pd.DataFrame:
    sums = live.summarize(curve, rows, axes).drop(columns=["rank", "device_type", "device"])
    words = [name for name in ("category", "certainty") if name not in axes]
    return sums[[*axes, "bytes", "share_pct", "blocks", *words]]


def _table(
    rows: pd.DataFrame, query: MemoryQuery, count: int, *, skipna: bool = False
) -> list[str]:
    """Return the lines of a table: some rows, the sum of the others, and the total.

    Args:
        rows: of the table.
        query: what is asked.
        count: how many rows are shown.
        skipna: whether a sum has the parts that are known; else it is null where one is not.
    """
    texts = [
        name for name in rows if rows[name].dtype == object or str(rows[name].dtype) == "category"
    ]
    shown = rows.head(count).astype(dict.fromkeys(texts, "object"))
    numbers = [n for n in rows if str(n).endswith(("bytes", "blocks", "share_pct"))]
    rest = rows.iloc[count:]
    parts = {f"{len(rest)} more": rest, "total": rows} if len(rest) else {"total": rows}
    footer = [
        (word, {str(name): part[name].sum(skipna=skipna) for name in numbers})
        for word, part in parts.items()
    ]
    return drawn(shown, query.target, footer).lines


def _drawn_timeline(
    curve: MemoryCurve, entries: pd.DataFrame, begins: Mapping[int, int]
) -> Iterator[str]:
    """Give a line for each stretch of the recording: its highest moment, by category."""
    moments = highest_of_parts(curve, _PARTS)
    if not moments:
        return
    parts = by_category(entries, len(curve.total))
    highest = max(sum(max(0, int(p[m])) for p in parts.values()) for m in moments)
    begin = begins.get(curve.rank, curve.time_at(-1))
    for moment in moments:
        time = curve.time_at(moment)
        since = None if time is None or begin is None else time - begin
        at = f"event {moment}" if since is None else f"{since / 10**6:.1f} ms"
        total = sum(int(p[moment]) for p in parts.values())
        yield f"{at:>16}  {_size(total):>10}  {_bar(parts, moment, highest)}"
    used = {name.removesuffix("_bytes") for name in parts}
    legend = [f"{letter} {name}" for name, letter in _LETTERS.items() if name in used]
    yield f"{'':16}  {'':10}  {', '.join(legend)}"


def _bar(parts: Mapping[str, Any], moment: int, highest: int) -> str:
    """Return a bar of letters; small parts have none."""
    bar, done = "", 0
    for name, letter in _LETTERS.items():
        values = parts.get(f"{name}_bytes")
        done += 0 if values is None else max(0, int(values[moment]))
        bar += letter * (round(_BAR * done / max(1, highest)) - len(bar))
    return bar


def _device_name(rank: int, device_type: str, device: Any) -> str:
    ordinal = "" if pd.isna(device) else f":{device}"
    return f"rank {rank}, {device_type}{ordinal}"


def _held(totals: Mapping[str, Any]) -> int:
    return int(totals["peak_over_base_bytes"]) + _known(totals["base_bytes"])


def _known(value: Any) -> int:
    return 0 if pd.isna(value) else int(value)


def _size(value: Any) -> str:
    size = int(value)
    unit = units.byte_unit(abs(size))
    sign = "-" if size < 0 else ""
    return f"{sign}{units.format_rate(abs(size) / unit.size)} {unit.label}"
