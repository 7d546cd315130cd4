"""The batch model as text, for people, or as a file."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pandas as pd
import pyarrow as pa

from pyprof2 import units
from pyprof2.analysis.summaries.batch import model as batch
from pyprof2.analysis.summaries.batch.limits import (
    ENOUGH,
    MARGIN,
    VERIFIED,
    limits,
    rows,
    rows_elsewhere,
    suggested,
)
from pyprof2.analysis.summaries.batch.savings import (
    checkpoints,
    sharded,
    shortage,
    state_bytes,
    wanted,
)
from pyprof2.columns import with_text
from pyprof2.reports import cells, files
from pyprof2.reports.table import drawn
from pyprof2.tables import Column, real, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.analysis.summaries.batch.limits import Elsewhere, Limits, Tried
    from pyprof2.analysis.summaries.batch.model import Model, PartFit
    from pyprof2.analysis.summaries.batch.savings import Shortage

BATCH_COLUMNS: Final = (
    whole("batch_size", "Samples in a step.", nullable=False),
    Column(
        "measure",
        pa.string(),
        "`step_time_ns`; `kernel_time_ns`, the sum over kernels without copies; `throughput`, "
        "samples per second; `memory_bytes`, the most that is allocated.",
        nullable=False,
    ),
    real("value", "The answer; null: not known."),
    real("lo", "The least that it may be; measured: the least of the steps."),
    real("hi", "The most that it may be; measured: the most of the steps."),
    Column(
        "status",
        pa.string(),
        "`measured`, `interpolated`, `extrapolated` with the factor, `verified` (run since it was "
        "suggested), or why there is no value: `not a step`, `not recorded`, `out of memory`, "
        "`failed`.",
        nullable=False,
    ),
)
"""A row for each batch size and measure."""

_PARTS_SHOWN: Final = 8
_PER: Final = {"elements": "ns per 1,000 elements", "flops": "ns per 1,000 FLOPs"}
_NOTHING: Final = "nothing"
_NO_GROWTH: Final = (
    "between these batch sizes it takes no longer, or its times scatter by more than that (off %)"
)
_THOUSAND: Final = 1000
_CHECKPOINTS: Final = 3
_PROCESSES: Final = (2, 8)


@dataclass(frozen=True)
class BatchQuery:
    """Which batch sizes to answer for, and where to write.

    Attributes:
        batches: sizes to answer for; none: those recorded, and the double of the largest.
        given: by name, dimensions that have a value.
        capacity: bytes of the device; None: what was recorded.
        target: where to write.
        tried: by batch size, the results of those that were suggested and then run.
        elsewhere: by device and recorded batch size, how much longer a step takes there.
    """

    batches: tuple[int, ...] = ()
    given: Mapping[str, int] = field(default_factory=dict)
    capacity: int | None = None
    target: files.Target = field(default_factory=files.Target)
    tried: Mapping[int, Tried] = field(default_factory=dict)
    elsewhere: Mapping[str, Mapping[int, Elsewhere]] = field(default_factory=dict)


def show(model: Model, query: BatchQuery) -> None:
    """Write the answers; in a table, with the recordings that they rest on.

    Raises:
        UsageError: no dimension of a name that is given differs between the recordings.
    """
    sizes = [int(size) for size in model.batches]
    asked = query.batches or (*sizes, 2 * sizes[-1])
    found = list(rows(model, asked, query.given, query.tried))
    others = list(rows_elsewhere(model, asked, query.given, query.elsewhere))
    if not query.target.is_text:
        names = [column.name for column in BATCH_COLUMNS]
        texts = ["device", "why"] if query.elsewhere else []
        frame = pd.DataFrame([*found, *others], columns=[*names, *texts])
        numbers = dict.fromkeys(("value", "lo", "hi"), "Float64")
        query.target.write_frame(with_text(frame.astype(numbers), texts), BATCH_COLUMNS)
        return
    query.target.write_lines([*_lines(model, found, query), *_elsewhere(others, query)])


def _elsewhere(others: list[dict[str, object]], query: BatchQuery) -> Iterator[str]:
    """Give the steps on other devices, and why some are not known."""
    steps = [row for row in others if row["measure"] in (batch.STEP, batch.KERNELS)]
    if not steps:
        return
    yield from ("", "on other devices, predicted:")
    measure = str(steps[0]["measure"]).removesuffix("_time_ns")
    columns = ("device", "batch_size", "value", "lo", "hi", "status")
    frame = pd.DataFrame(steps, columns=list(columns)).astype(
        dict.fromkeys(("value", "lo", "hi"), "Float64")
    )
    renamed = frame.rename(columns={"value": f"{measure}_ns", "lo": "lo_ns", "hi": "hi_ns"})
    yield from _drawn(renamed, query.target)
    why = {str(row["device"]): str(row["why"]) for row in steps if row["why"]}
    yield from cells.wrapped(
        [cells.clean(f"{device}: {words}") for device, words in why.items()],
        query.target.line_width,
    )


def notes(model: Model, query: BatchQuery) -> Iterator[str]:
    """Yield the recordings of a model, unknown values, and the gain of larger batches."""
    found, capacity = _limits(model, query)
    yield from _differences(model, query.given)
    yield from _fitting_lines(model, query, found, capacity)
    yield from _heading(model)
    yield from _missing(list(rows(model, [int(model.batches[0])], query.given)))
    yield from _limit_lines(model, query, found, capacity)


def _lines(model: Model, rows: list[dict[str, object]], query: BatchQuery) -> Iterator[str]:
    found, capacity = _limits(model, query)
    first, *others = _fitting_lines(model, query, found, capacity)
    yield from (*_differences(model, query.given), cells.bold(first), *others)
    yield from _heading(model)
    yield ""
    known = [row for row in rows if row["value"] is not None]
    if known:
        yield from _drawn(_as_texts(known), query.target)
        yield ""
    yield from _missing(rows)
    yield from _limit_lines(model, query, found, capacity)
    yield ""
    parts = _parts(model)
    yield f"where the time goes, at a batch of {model.batches[-1]:.0f}:"
    yield from _drawn(parts.head(_PARTS_SHOWN), query.target)
    if len(parts) > _PARTS_SHOWN:
        yield f"{units.counted(len(parts) - _PARTS_SHOWN, 'more part')}, with less time"
    if (parts.head(_PARTS_SHOWN)["grows by"] == _NOTHING).any():
        yield f"{_NOTHING}: {_NO_GROWTH}"


def _heading(model: Model) -> Iterator[str]:
    sizes = ", ".join(f"{size:.0f}" for size in model.batches)
    steps = ", ".join(str(len(each.work_ns)) for each in model.recordings)
    kind = "steps" if model.has_steps else "passes (no step is recorded)"
    if model.clock is None:
        yield f"recorded: batch {sizes}; {steps} {kind}"
    else:
        spread = max(each.spread for each in model.recordings)
        rounds = ", ".join(str(len(each.step_ns)) for each in model.recordings)
        yield f"measured: batch {sizes}; {model.clock}"
        yield (
            f"{rounds} processes took times, of which the fastest counts; they differ by up to "
            f"{_pct(spread)}; one more of each was recorded, {steps} steps"
        )
    of = "kernels" if model.is_gpu else "ops"
    if model.total is not None:
        line = model.total.lines[0]
        yield (
            f"time of {of}: {units.format_time(round(line.fixed))} + "
            f"{units.format_rate(_THOUSAND * line.slope)} ns per 1,000 elements; "
            f"off by up to {_pct(model.total.residual)}, the sum of its parts "
            f"{_pct(model.residual)}"
        )


def _differences(model: Model, given: Mapping[str, int]) -> Iterator[str]:
    """Name differences between the recordings beside the batch, and how to record without."""
    work = model.work
    if not work.differs:
        return
    if not work.free:
        ratio = work.per_sample.max() / work.per_sample.min()
        yield (
            f"the recordings differ in more than the batch: the work per sample by a factor of "
            f"{ratio:.2f}, and no dimension of the recorded shapes says why; all intervals span it"
        )
        yield "  where the samples differ, record the same ones, repeated, at every batch size"
    sizes = ", ".join(f"{size:.0f}" for size in model.batches)
    for name, values in work.free.items():
        seen = ", ".join(map(str, values))
        spanned = f"here it is {given[name]}" if name in given else "all intervals span it"
        yield (
            f"the recordings differ in more than the batch: {name} = {seen} at a batch of {sizes}; "
            f"{spanned}"
        )
        yield (
            f"  for narrow ones record every batch size with one {name}, such as inputs padded to "
            f"{max(values)}, or name it: --at B,{name}={max(values)}"
        )


def _missing(rows: Sequence[dict[str, object]]) -> Iterator[str]:
    reasons = {str(row["measure"]): str(row["status"]) for row in rows if row["value"] is None}
    if reasons.get(batch.STEP) == batch.NOT_A_STEP:
        yield (
            "no time of a step: not all recordings have step ranges, and a single pass is no step"
        )
    for measure in (batch.KERNELS, batch.MEMORY):
        if measure in reasons:
            yield f"no {measure}: {reasons[measure]} in all recordings"


def _as_texts(rows: Sequence[dict[str, object]]) -> pd.DataFrame:
    """Return rows as a person reads them, those of a measure in one unit."""
    units_of = {batch.THROUGHPUT: units.Unit("samples/s", 1)}
    for measure in {str(row["measure"]) for row in rows} - {batch.THROUGHPUT}:
        largest = max(_number(row["hi"]) for row in rows if row["measure"] == measure)
        fitting = units.byte_unit if measure == batch.MEMORY else units.time_unit
        units_of[measure] = fitting(largest)
    texts = []
    for row in rows:
        measure = str(row["measure"])
        unit = units_of[measure]
        numbers = {name: _text(_number(row[name]), unit) for name in ("value", "lo", "hi")}
        about = {"batch": row["batch_size"], "measure": _NAMES[measure]}
        texts.append(about | numbers | {"unit": unit.label, "status": row["status"]})
    return pd.DataFrame(texts)


_NAMES: Final = {
    batch.STEP: "step",
    batch.KERNELS: "kernels",
    batch.THROUGHPUT: "throughput",
    batch.MEMORY: "memory",
}


def _number(value: object) -> float:
    return float(str(value))


def _text(value: float, unit: units.Unit) -> str:
    return units.format_rate(value) if unit.size == 1 else f"{value / unit.size:.3f}"


def _bytes(number: float) -> str:
    unit = units.byte_unit(number)
    return f"{number / unit.size:.3f} {unit.label}"


def _limits(model: Model, query: BatchQuery) -> tuple[Limits, int | None]:
    """Return the limits of the model, and the bytes of the device."""
    capacity = query.capacity or model.recordings[-1].capacity
    return limits(model, capacity, query.given), capacity


def _fitting_lines(
    model: Model, query: BatchQuery, found: Limits, capacity: int | None
) -> Iterator[str]:
    """Say which batch fits: as far as is known, and for sure."""
    if found.expected is None or capacity is None:
        yield f"largest batch that fits: not known: {found.largest_status}"
        return
    device = cells.clean(model.recordings[-1].device or "")
    source = "given" if query.capacity else f"recorded, {device}"
    if found.largest is None:
        sure = f"none is sure ({found.largest_status}, {_trial(query, found.expected)})"
    else:
        sure = f"{found.largest} is sure ({found.largest_status}, {_trial(query, found.largest)})"
    about = "" if found.expected == found.largest else f"about {found.expected}; "
    most = "" if found.most in (None, found.expected) else f"; more than {found.most} do not"
    yield f"largest batch that fits: {about}{sure}{most}, in {_bytes(capacity)} ({source})"
    yield (
        f"  with {_pct(MARGIN)} free and {found.reserved_ratio:.2f} bytes held for each one "
        "allocated; what others than PyTorch use is not known"
    )
    larger = [int(size) for size in model.batches if size > found.expected]
    if larger and found.largest != found.expected:
        smaller = max((int(size) for size in model.batches if size <= found.expected), default=1)
        yield f"  to be sure of more, record a batch between {smaller} and {larger[0]}"
    for size in sorted(set(query.batches)):
        if (found.largest or 0) < size <= found.expected and size not in query.tried:
            answer = model.answer(batch.MEMORY, size, query.given)
            held = [
                _bytes(found.reserved_ratio * (number or 0.0))
                for number in (answer.value, answer.lo, answer.hi)
            ]
            yield (
                f"  a batch of {size} is expected to fit: it takes about {held[0]}, from {held[1]} "
                f"to {held[2]} ({answer.status}); to be sure record a batch nearer to it"
            )


def _limit_lines(
    model: Model, query: BatchQuery, found: Limits, capacity: int | None
) -> Iterator[str]:
    """Say what to do where memory binds, the results of trials, and the throughput in reach."""
    if found.expected is not None and capacity is not None:
        yield from _shortage_lines(model, query, found, capacity)
    yield from _tried_lines(model, query, suggested(found))
    of = _dimensions(model, query.given)
    of += "" if found.measure == batch.STEP else ", if kernels were all"
    if found.knee is not None:
        yield f"knee: below a batch of {found.knee} a step does not get shorter"
    if found.asymptote is not None:
        yield f"throughput stays below {units.format_rate(found.asymptote)} samples/s{of}"
    if found.enough is not None:
        least = "that" if found.largest is None else f"a batch of {found.largest}"
        yield f"a batch of {found.enough} has {_pct(ENOUGH)} of the throughput of {least}{of}"
    if any(each.memory and each.memory.over_base for each in model.recordings):
        yield "memory is above what was allocated before the recording, which is not known"


def _shortage_lines(model: Model, query: BatchQuery, found: Limits, capacity: int) -> Iterator[str]:
    """Say what to do where the batch that is wanted is not expected to fit."""
    enough = limits(model, None, query.given).enough
    size = wanted(found.expected, query.batches, enough)
    lacks = None if size is None else shortage(model, found, size, capacity, query.given)
    if lacks is None:
        return
    why = "is asked for" if query.batches else f"has {_pct(ENOUGH)} of the throughput"
    yield (
        f"memory binds: a batch of {lacks.batch} {why} and is not expected to fit: it lacks about "
        f"{_bytes(lacks.expected)}, at most {_bytes(lacks.over)}; predicted, {lacks.status}, not "
        "tried:"
    )
    yield (
        f"  {lacks.parts} steps of at most {lacks.micro} samples, whose gradients are "
        f"accumulated, free {_bytes(lacks.accumulation)}; gradients stay from part to part"
    )
    yield (
        f"  {_bytes(lacks.grows)} grow with the batch: bf16 frees at most half, "
        f"{_bytes(lacks.half)}, if they are fp32"
    )
    yield from _checkpoint_lines(model, lacks, query)
    state = state_bytes(model)
    if state is None:
        yield _STATE_NOT_RECORDED
        return
    # A process frees this much if the optimizer's state is shared among several.
    parts = (
        f"{_bytes(size)} with {processes}{_enough(size, lacks)}"
        for processes in _PROCESSES
        if (size := sharded(state, processes))
    )
    yield (
        f"  the optimizer's state takes {_bytes(state)}: sharded (ZeRO, FSDP) over several "
        f"processes each frees {', '.join(parts)}, where each now holds all of it"
    )


def _checkpoint_lines(model: Model, lacks: Shortage, query: BatchQuery) -> Iterator[str]:
    """Name the layers to run again in backward, with the bytes that this frees."""
    found = list(itertools.islice(checkpoints(model, lacks.batch, query.given), _CHECKPOINTS))
    if not found:
        yield (
            "  checkpoints: none is known to free anything; layers and what forward keeps for "
            "backward are in recordings with modules and memory"
        )
    for each in found:
        several = f" ({each.layers} of them)" if each.layers > 1 else ""
        again = ""
        if each.time_ns is not None:
            again = f", for {units.format_time(each.time_ns)} of forward again in each step"
        yield (
            f"  checkpoint {cells.clean(each.layer)}{several}: frees {_bytes(each.less)} at the "
            f"peak{_enough(each.less, lacks)}; {_bytes(each.kept)} are not kept for backward, of "
            f"which {_bytes(each.again)} come back while one runs again{again}; most at "
            f"{cells.clean(each.line or 'no known line')}"
        )


_STATE_NOT_RECORDED: Final = (
    "  the optimizer's state is older than the recordings, which do not say what it takes: "
    "record with pyprof2 capture --memory, or run it with --entry"
)


def _enough(size: int, lacks: Shortage) -> str:
    return " (enough)" if size >= lacks.over else ""


def _trial(query: BatchQuery, size: int) -> str:
    return query.tried[size].status if size in query.tried else "not tried"


def _tried_lines(model: Model, query: BatchQuery, size: int | None) -> Iterator[str]:
    """Give the results of the batch sizes that were run."""
    for number, found in query.tried.items():
        name = "what is suggested" if number == size else "the next one"
        if found.status != VERIFIED:
            why = cells.clean(str(found.failure))
            yield f"tried: batch {number}, {name}: {found.status}: {why}"
            continue
        time = found.answers()[0].value
        said = model.answer(batch.STEP, number, query.given)
        compared = "without a time of a step"
        if not (time is None or said.value is None or said.lo is None or said.hi is None):
            took, lo, hi = (units.format_time(round(each)) for each in (time, said.lo, said.hi))
            place = "inside" if said.lo <= time <= said.hi else "outside"
            compared = f"a step takes {took}, {place} of {lo} to {hi}"
        yield f"tried: batch {number}, {name}: verified, {compared}"


def _dimensions(model: Model, given: Mapping[str, int]) -> str:
    """Return the dimensions that hold for larger batches, in words."""
    if not model.work.differs or not model.work.free:
        return ""
    like = model.nearest(2 * model.batches[-1], given)
    values = {name: seen[like] for name, seen in model.work.free.items()} | dict(given)
    return ", with " + ", ".join(f"{name} = {value}" for name, value in values.items())


def _parts(model: Model) -> pd.DataFrame:
    """Return the fits of parts, those with most time in the largest batch first."""
    last = len(model.recordings) - 1
    times = [float(model.recordings[last].parts.get((f.phase, f.group), 0.0)) for f in model.parts]
    order = sorted(range(len(times)), key=lambda at: -times[at])
    return pd.DataFrame([_part(model.parts[at], times[at]) for at in order])


def _part(fit: PartFit, time: float) -> dict[str, object]:
    slope = (
        f"{units.format_rate(_THOUSAND * fit.line.slope)} {_PER[fit.measure]}"
        if fit.measure in _PER
        else f"{units.format_time(round(fit.line.slope))} per sample"
    )
    return {
        "phase": fit.phase,
        "group": fit.group,
        "time_ns": round(time),
        "fixed_ns": round(fit.line.fixed),
        "grows by": slope if fit.line.slope else _NOTHING,
        "off_pct": 100 * fit.residual,
    }


def _pct(share: float) -> str:
    return f"{100 * share:.1f} %" if share < ENOUGH else f"{100 * share:.0f} %"


def _drawn(rows: pd.DataFrame, target: files.Target) -> list[str]:
    alike = [name for name in rows if name in ("time_ns", "fixed_ns")]
    return drawn(rows, target, alike=alike).lines
