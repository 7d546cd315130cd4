"""The page with the dials: time and memory of batch sizes, to be dragged; see `docs/batch.rst`.

Python answers for every size that a dial can stand at, so that the page computes no model of its
own and shows what `pyprof2 batch` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.summaries.batch import model as batch
from pyprof2.analysis.summaries.batch.limits import MARGIN, limits, rows
from pyprof2.analysis.summaries.batch.savings import fixed_memory, held_of
from pyprof2.errors import refuse
from pyprof2.reports.batch import BatchQuery, notes
from pyprof2.reports.page.elsewhere import elsewhere_of
from pyprof2.reports.page.html import Program, packed, page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyprof2.analysis.summaries.batch.limits import Limits
    from pyprof2.analysis.summaries.batch.model import Answer, Model
    from pyprof2.api.run import Run

SCHEMA: Final = 1
PROGRAM: Final = Program("dials", "pyprof2 dials")
SERVED: Final = Program("dials", "pyprof2 dials", connects=True)
"""The same where a server is at hand, which it may ask."""
_ALL_BELOW: Final = 256
_PER_DOUBLING: Final = 64
"""So many sizes of each doubling, from `_ALL_BELOW` on."""
_FARTHEST: Final = 64
"""No size is more times as large as the largest that was recorded; little is known there."""


@dataclass(frozen=True)
class DialsQuery:
    """Which model the page shows, and what goes with it.

    Attributes:
        batch: what is asked of the model.
        version: of pyprof2.
        sizes: batch sizes that a dial must be able to stand at, beside its own.
        code: where the batch size stands in the code, as `docs/editors.rst` says, with hunks
            of a patch; None: no code is given.
        held: by recorded batch size the bytes of each category of memory; empty: not known.
        elsewhere: as of `elsewhere_by_batch`.
    """

    batch: BatchQuery
    version: str
    sizes: Sequence[int] = ()
    code: dict[str, Any] | None = None
    held: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    elsewhere: Sequence[Mapping[str, Any]] = ()


def elsewhere_by_batch(runs: Mapping[int, Run]) -> list[dict[str, Any]]:
    """Return by recorded batch size what its step takes on other devices, where it is known."""
    found = ((batch, elsewhere_of(run)) for batch, run in runs.items())
    return [{"batch": batch} | known for batch, known in found if known is not None]


def parts_of_page(model: Model, query: DialsQuery) -> Iterator[str]:
    """Give the parts of a file that stands alone.

    Raises:
        UsageError: neither time nor memory of a batch size is known.
    """
    return page(packed(document(model, query)), PROGRAM)


def document(model: Model, query: DialsQuery) -> dict[str, Any]:
    """Return all that the page shows, as plain values; lists are in order of `batches`.

    Raises:
        UsageError: neither time nor memory of a batch size is known.
    """
    asked, measure = query.batch, batch.STEP if model.has_steps else batch.KERNELS
    capacity = asked.capacity or model.recordings[-1].capacity
    found = limits(model, capacity, asked.given)
    sizes = _sizes(model, found, query)
    # By size and measure: of a size that was tried what was found.
    by_size: dict[int, dict[str, Answer]] = {size: {} for size in sizes}
    for row in rows(model, sizes, asked.given, asked.tried):
        values = {name: value for name, value in row.items() if name != "batch_size"}
        answer = batch.Answer(**values)  # type: ignore[arg-type]
        if row["batch_size"] in by_size:
            by_size[int(str(row["batch_size"]))][answer.measure] = answer
    answers = list(by_size.values())
    times = [of[measure] for of in answers]
    memory = [of[batch.MEMORY] for of in answers]
    if not any(each.value is not None for each in (*times, *memory)):
        refuse("neither the time of a step or of kernels nor memory is known: nothing to dial")
    rates = [batch.throughput(each, size) for size, each in zip(sizes, times, strict=True)]
    return {
        "schema": SCHEMA,
        "version": query.version,
        "device": model.recordings[-1].device,
        "recorded": [int(size) for size in model.batches],
        "measure": measure,
        "batches": sizes,
        "status": [_status(of) for of in answers],
        "time": _columns(times),
        "throughput": _columns(rates),
        "memory": _columns(memory),
        "time_parts": _time_parts(model, sizes, asked),
        "memory_parts": _memory_parts(model, sizes, query),
        "limits": _limits(found, capacity, given=asked.capacity is not None),
        "notes": [line.strip() for line in notes(model, asked)],
        "elsewhere": list(query.elsewhere),
        "code": query.code,
    }


def _sizes(model: Model, found: Limits, query: DialsQuery) -> list[int]:
    """Return where a dial can stand: all small sizes, some of the large, and those that matter."""
    last = int(model.batches[-1])
    most = min(_FARTHEST * last, max(2 * last, (found.expected or 0) * 5 // 4))
    wanted = [*map(int, model.batches), *query.batch.batches, *query.batch.tried, *query.sizes]
    most = max(most, *(size for size in wanted if size <= _FARTHEST * last))
    wanted += [each for each in (found.enough, found.knee) if each is not None]
    fitting = (found.largest, found.expected, found.most)
    wanted += [each + more for each in fitting if each is not None for more in (0, 1)]
    return sorted({size for size in (*_steps(most), *wanted) if 1 <= size <= most})


def _steps(most: int) -> Iterator[int]:
    """Yield all sizes below 256, then 64 of each doubling, and the last one."""
    size = 1
    while size < most:
        yield size
        size += 1 if size < _ALL_BELOW else (1 << (size.bit_length() - 1)) // _PER_DOUBLING
    yield most


def _status(answers: dict[str, Answer]) -> str:
    """Return the status of a size: that of a known number, if there is one."""
    known = [each.status for each in answers.values() if each.value is not None]
    return known[0] if known else next(iter(answers.values())).status


def _columns(answers: Iterable[Answer]) -> dict[str, list[float | None]] | None:
    """Return value and ends of the interval; None: of no size is anything known."""
    found = list(answers)
    if all(each.value is None for each in found):
        return None
    return {name: [getattr(each, name) for each in found] for name in ("value", "lo", "hi")}


def _time_parts(model: Model, sizes: Sequence[int], asked: BatchQuery) -> list[dict[str, Any]]:
    """Return phase, group and times of each part of a step, ns, the longest first.

    The times are recorded ones at a size that was recorded, else those of the fits.
    """
    times = []
    for size in sizes:
        at = model.recording_of(size, asked.given)
        if at is None:
            nearest = model.nearest(size, asked.given)
            times.append(model.part_times(nearest, size, asked.given))
        else:
            own = model.recordings[at].parts
            times.append([float(own.get((fit.phase, fit.group), 0.0)) for fit in model.parts])
    parts = [
        {"phase": fit.phase, "group": fit.group, "values": [own[at] for own in times]}
        for at, fit in enumerate(model.parts)
    ]
    return sorted(parts, key=lambda part: -part["values"][-1])


def _memory_parts(model: Model, sizes: Sequence[int], query: DialsQuery) -> list[dict[str, Any]]:
    """Return name and bytes of the parts of memory: they add up to the prediction."""
    if not model.memory:
        return []
    held, given = held_of(model, query.held), query.batch.given
    found = [held and held.at(size, given) for size in sizes]
    if held is None or not all(found):
        # Only the growing and the fixed part are known.
        found = []
        for size in sizes:
            value = model.answer(batch.MEMORY, size, given).value or 0.0
            fixed = min(value, fixed_memory(model, size, given))
            found.append({"grows with the batch": value - fixed, "does not grow": fixed})
    parts = [
        {"name": name, "values": [own[name] for own in found if own]} for name in found[0] or {}
    ]
    return sorted(parts, key=lambda part: -part["values"][-1])


def _limits(found: Limits, capacity: int | None, *, given: bool) -> dict[str, Any]:
    """Return the limits; `usable_bytes` may be allocated so that a batch still fits."""
    usable = None if capacity is None else capacity * (1 - MARGIN) / found.reserved_ratio
    names = (
        "asymptote", "knee", "enough", "expected", "largest", "most", "largest_status",
        "reserved_ratio",
    )  # fmt: skip
    return {name: getattr(found, name) for name in names} | {
        "capacity_bytes": capacity, "usable_bytes": usable, "capacity_given": given,
    }  # fmt: skip
