"""Work of a step by part, and how it grows with the batch and with what else differs.

Calls that all recordings have are put side by side. The size of each tensor is then some constant
times powers of the batch and of the dimensions that differ otherwise, which are few and small:
the ones that fit best are taken. Calls without counterpart are taken to grow with the batch alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.summaries.batch.fits import fit_line
from pyprof2.analysis.summaries.batch.recorded import PART

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.summaries.batch.recorded import Recorded

    Floats = NDArray[np.float64]

ELEMENTS: Final = "elements"
FLOPS: Final = "flops"

SAME_WORK: Final = 0.02
"""Recordings whose work per sample differs by more differ in more than the batch."""
_CLOSE: Final = 0.03
"""How far sizes may be from a power: N (N + 1) / 2 is nearly N²."""
_BUFFER: Final = 0.1
"""How far a dimension may be from a line over the batch that it follows, rounded up."""
_PAGE: Final = 4096
"""Libraries round some buffers to so many bytes; their elements are of one byte."""
_COPY: Final = "copy"
"""The group of copies."""
_NAMES: Final = ("S", "S2")
_POWERS: Final = (0, 1, 2)
_TELLING: Final = 0.02
"""A dimension is found where the tensors that have it hold at least this part of the work."""


@dataclass(frozen=True)
class Units:
    """Sizes that add up to the work of the recordings: of tensors, or FLOPs of calls.

    Attributes:
        part: of each unit the index of its part.
        sizes: of each unit (rows) in each recording (columns); 0 where it has none.
        batch_power: the power of the batch that a unit grows with.
        powers: those of the free dimensions, a column each.
    """

    part: NDArray[np.int64]
    sizes: Floats
    batch_power: Floats
    powers: Floats


@dataclass(frozen=True)
class BatchWork:
    """Work of recordings by part.

    Attributes:
        batches: of the recordings, ascending.
        parts: pairs of phase and group.
        free: by name, the values of each dimension that differs other than with the batch.
        units: by measure, `ELEMENTS` and `FLOPS`.
        aside: elements of each recording that say nothing of what differs between them: of
            buffers of libraries, and of copies that a batch of one sample does without.
    """

    batches: Floats
    parts: list[tuple[str, str]]
    free: dict[str, list[int]]
    units: dict[str, Units] = field(default_factory=dict)
    aside: Floats | float = 0.0

    def at(
        self, measure: str, like: int, batch: float, given: Mapping[str, float], stretch: float = 1
    ) -> Floats:
        """Return the work of each part at a batch size, without what never changes: weights.

        Args:
            measure: `ELEMENTS` or `FLOPS`.
            like: the recording whose other dimensions hold.
            batch: samples in a step.
            given: free dimensions that have another value.
            stretch: a factor of what grows with the batch.
        """
        units = self.units[measure]
        by_batch = units.batch_power > 0
        grown = units.sizes[:, like] * (batch / self.batches[like]) ** units.batch_power
        for name, value in given.items():
            at = list(self.free).index(name)
            grown = grown * (value / self.free[name][like]) ** units.powers[:, at]
        grown = np.where(by_batch, grown * stretch, grown)
        grown = np.where(by_batch | (units.powers > 0).any(axis=1), grown, 0.0)
        return self._by_part(units, grown)

    def recorded(self, measure: str) -> Floats:
        """Return all work of each part (rows) in each recording (columns), weights as well."""
        units = self.units[measure]
        return np.stack([self._by_part(units, own) for own in units.sizes.T], axis=1)

    def _by_part(self, units: Units, sizes: Floats) -> Floats:
        sums: Floats = np.bincount(units.part, sizes, minlength=len(self.parts)).astype(np.float64)
        return sums

    @cached_property
    def per_sample(self) -> Floats:
        """Elements of each recording that grow with the batch, over the batch; see `aside`."""
        grown = [self.grown(at, batch) for at, batch in enumerate(self.batches)]
        return (np.array(grown) - self.aside) / self.batches

    def grown(
        self, like: int, batch: float, given: Mapping[str, float] | None = None, stretch: float = 1
    ) -> float:
        """Return the sum over parts of the elements that grow; see `at`."""
        return float(self.at(ELEMENTS, like, batch, given or {}, stretch).sum())

    @property
    def differs(self) -> bool:
        """Whether recordings differ in more than the batch."""
        each = self.per_sample
        if not len(each) or not each.min() > 0 or each.max() <= (1 + SAME_WORK) * each.min():
            return False
        return bool(self.free) or not _follows(each * self.batches, self.batches, SAME_WORK)


def _follows(sizes: Floats, batches: Floats, tolerance: float) -> bool:
    """Return whether sizes are a line over the batch, most of which grows: buffers of libraries."""
    if not (sizes > 0).all():
        return False
    line = fit_line(batches, sizes)
    off = np.abs(line.at(batches) / sizes - 1)
    return bool(off.max() <= tolerance and line.slope * batches.min() >= line.fixed)


def work_of(recordings: Sequence[Recorded]) -> BatchWork:
    """Return the work of recordings, which are in order of their batch sizes."""
    batches = np.array([each.batch for each in recordings], np.float64)
    parts = sorted({part for each in recordings for part in each.parts.index})
    number = {part: at for at, part in enumerate(parts)}
    calls = []
    for each in recordings:
        pairs = zip(*(each.calls[name] for name in PART), strict=True)
        calls.append(each.calls.assign(part=np.array([number[pair] for pair in pairs], np.int64)))
    shared = _aligned(calls)
    tensors = _side_by_side(shared, recordings)
    buffers = _buffers(tensors, batches)
    free = _free_dimensions(tensors[~buffers], batches)
    alone = [own[~own["key"].isin(shared.index)] for own in calls]
    units = {
        ELEMENTS: _units(tensors[_columns(ELEMENTS, batches)], tensors["part"], batches, free),
        FLOPS: _units(shared[_columns(FLOPS, batches)], shared["part"], batches, free),
    }
    rest = {
        ELEMENTS: [_elements(own, each) for own, each in zip(alone, recordings, strict=True)],
        FLOPS: [own[["part", "flops"]] for own in alone],
    }
    whole = {name: _with_rest(units[name], rest[name]) for name in units}
    buffers &= units[ELEMENTS].batch_power > 0
    aside = units[ELEMENTS].sizes[buffers].sum(axis=0) + _spared(rest[ELEMENTS], parts, batches)
    return BatchWork(batches, parts, free, whole, aside)


def _buffers(tensors: pd.DataFrame, batches: Floats) -> NDArray[np.bool_]:
    """Return which tensors are buffers that libraries make for themselves.

    They are flat and grow with the batch, but for how the library rounds them: in oneDNN's LSTM to
    pages, and the batch to what its vectors hold. That is no difference of what was recorded, as
    long as the other tensors of the call say that it works on what follows the batch alone.
    """
    sizes = tensors[[f"sizes_{at}" for at in range(len(batches))]]
    flat = sizes.map(len).eq(1).all(axis="columns").to_numpy(bool)
    elements = tensors[_columns(ELEMENTS, batches)].to_numpy(np.float64)
    spreads = [_spread(elements, [batches], [power]) for power in _POWERS]
    follows = np.min(spreads, axis=0) <= SAME_WORK
    odd = flat & ~follows
    of_call = pd.DataFrame({
        "odd": ~follows & ~flat, "grows": follows & ~flat & (spreads[0] > SAME_WORK),
    }).groupby(tensors["call"].to_numpy(), observed=True).transform("any")  # fmt: skip
    odd &= of_call["grows"].to_numpy(bool) & ~of_call["odd"].to_numpy(bool)
    found = np.zeros(len(tensors), bool)
    for at in np.flatnonzero(odd):
        pages = np.array([own[0] for own in sizes.iloc[at]])
        paged = bool((pages % _PAGE == 0).all() and (np.diff(pages) >= 0).all())
        found[at] = paged or _follows(elements[at], batches, _BUFFER)
    return found


def _spared(rest: Sequence[pd.DataFrame], parts: list[tuple[str, str]], batches: Floats) -> Floats:
    """Return the elements of copies that a batch of one does without, by recording; else zeros.

    One sample lies in memory as it must in any order of the dimensions, so what brings more of them
    in order is not called for it. The others must agree on it, and nothing else is excused.

    Args:
        rest: `part` and `elements` of the calls that not all recordings have, by recording.
        parts: pairs of phase and group.
        batches: of the recordings.
    """
    is_copy = np.array([group == _COPY for _, group in parts], bool)
    copied = [own.loc[is_copy[own["part"].to_numpy(np.int64)], ELEMENTS].sum() for own in rest]
    each = np.array(copied, np.float64) / batches
    one, others = each[batches == 1], each[batches > 1]
    agree = len(others) > 1 and others.max() <= (1 + SAME_WORK) * others.min()
    spared = agree and len(one) > 0 and one.max() < others.min()
    return each * batches if spared else np.zeros(len(batches))


def _columns(name: str, batches: Floats) -> list[str]:
    return [f"{name}_{at}" for at in range(len(batches))]


def _aligned(calls: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the calls that all recordings have: index `key`, `part`, and columns of each.

    Where they do not call an op equally often, nothing says which calls belong together.
    """
    kind = [own["key"].astype(object).str.rsplit("|", n=1).str[0] for own in calls]
    counts = pd.concat([each.value_counts() for each in kind], axis="columns")
    equal = counts.index[counts.eq(counts.iloc[:, 0], axis="index").all(axis="columns")]
    kept = []
    for at, (own, each) in enumerate(zip(calls, kind, strict=True)):
        found = own[each.isin(equal)].set_index("key")
        names = {"signature_id": f"signature_{at}", "flops": f"{FLOPS}_{at}"}
        kept.append(found.rename(columns=names)[[*names.values(), *(["part"] if at == 0 else [])]])
    return reduce(lambda left, right: left.join(right, how="inner"), kept)


def _side_by_side(shared: pd.DataFrame, recordings: Sequence[Recorded]) -> pd.DataFrame:
    """Return one row for each tensor of distinct calls: `part`, `elements_I`, `sizes_I`."""
    names = [f"signature_{at}" for at in range(len(recordings))]
    found = shared.groupby(["part", *names], observed=True).size().rename("count").reset_index()
    found["call"] = np.arange(len(found))
    for at, each in enumerate(recordings):
        own = each.tensors.rename(
            columns={name: f"{name}_{at}" for name in ("signature_id", "elements", "sizes")}
        ).rename(columns={f"signature_id_{at}": names[at]})
        own = own.astype({names[at]: "float64", "place": "int64"})
        found = found.astype({names[at]: "float64"}).merge(
            own, on=[names[at], *(["place"] if at else [])]
        )
    for name in (f"{ELEMENTS}_{at}" for at in range(len(recordings))):
        found[name] *= found["count"]
    return found


def _elements(calls: pd.DataFrame, recording: Recorded) -> pd.DataFrame:
    sums = recording.tensors.groupby("signature_id", observed=True)["elements"].sum()
    elements = sums.reindex(calls["signature_id"]).to_numpy(np.float64)
    return calls[["part"]].assign(elements=elements)


def _with_rest(units: Units, rest: Sequence[pd.DataFrame]) -> Units:
    """Return the units, with those of calls that only one recording has."""
    parts, sizes = [units.part], [units.sizes]
    for at, own in enumerate(rest):
        values = own.iloc[:, 1].fillna(0).to_numpy(np.float64)
        column = np.zeros((len(own), len(rest)))
        column[:, at] = values
        parts.append(own["part"].to_numpy(np.int64))
        sizes.append(column)
    part = np.concatenate(parts)
    more = len(part) - len(units.part)
    return Units(
        part, np.concatenate(sizes), np.append(units.batch_power, np.ones(more)),
        np.concatenate([units.powers, np.zeros((more, units.powers.shape[1]))]),
    )  # fmt: skip


def _units(
    sizes: pd.DataFrame, part: pd.Series, batches: Floats, free: Mapping[str, Sequence[int]]
) -> Units:
    values = sizes.fillna(0).to_numpy(np.float64).reshape(len(sizes), len(batches))
    batch_power, powers = best_powers(values, batches, [np.array(v, float) for v in free.values()])
    return Units(part.to_numpy(np.int64), values, batch_power, powers)


def best_powers(sizes: Floats, batches: Floats, free: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the powers of the batch and of free dimensions that sizes are proportional to.

    The simplest that leave less than 3 % are taken, and else those that leave least.

    Args:
        sizes: a row for each unit, a column for each recording.
        batches: of the recordings.
        free: values of each free dimension, by recording.
    """
    candidates = sorted(product(_POWERS, *[_POWERS] * len(free)), key=sum)
    spreads = np.stack([
        _spread(sizes, [batches, *free], powers) for powers in candidates
    ]) if len(sizes) else np.zeros((len(candidates), 0))  # fmt: skip
    close = spreads <= _CLOSE
    best = np.where(close.any(axis=0), close.argmax(axis=0), spreads.argmin(axis=0))
    chosen = np.array(candidates, np.float64).reshape(len(candidates), -1)[best]
    return chosen[:, 0], chosen[:, 1:]


def _spread(sizes: Floats, of: Sequence[Floats], powers: Sequence[int]) -> Floats:
    """Return by how much the sizes, over a product of powers, differ between recordings."""
    unit = np.prod([values**power for values, power in zip(of, powers, strict=True)], axis=0)
    scaled = sizes / unit
    least = scaled.min(axis=1)
    most = scaled.max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(most > 0, most / least - 1, 0.0)
    return np.where(np.isnan(found), np.inf, found)


def _free_dimensions(tensors: pd.DataFrame, batches: Floats) -> dict[str, list[int]]:
    """Return the dimensions that neither are constant nor follow the batch, by name."""
    vectors, weights = _dimensions(tensors, len(batches))
    # One sample is often handled apart, without a dimension of its own: that says nothing.
    several = batches > 1 if (batches > 1).sum() > 1 else batches > 0
    compared = vectors[:, several]
    varies = compared.max(axis=1) != compared.min(axis=1)
    follows = np.array([_follows(own, batches[several], _BUFFER) for own in compared], bool)
    vectors, weights = vectors[varies & ~follows], weights[varies & ~follows]
    total = float(tensors[_columns(ELEMENTS, batches)].to_numpy(np.float64).sum())
    found: list[Floats] = []
    while len(found) < len(_NAMES) and weights.sum() > _TELLING * total:
        explained = [_explained(vectors, [*found, own], batches) for own in vectors]
        worth = [float(weights[each].sum()) for each in explained]
        # The smallest of those that explain the same: N, and not N + 1 or N².
        best = max(range(len(worth)), key=lambda at: (round(worth[at], 3), -vectors[at].sum()))
        found.append(vectors[best])
        vectors, weights = vectors[~explained[best]], weights[~explained[best]]
    named = zip(_NAMES, found, strict=False)
    return {name: [int(value) for value in values] for name, values in named}


def _explained(vectors: Floats, by: Sequence[Floats], batches: Floats) -> NDArray[np.bool_]:
    """Return which dimensions are products of powers of others."""
    powers = product((0, 1), *[_POWERS] * len(by))
    close = [_spread(vectors, [batches, *by], each) <= _CLOSE for each in powers]
    found: NDArray[np.bool_] = np.any(close, axis=0)
    return found


def _dimensions(tensors: pd.DataFrame, count: int) -> tuple[Floats, Floats]:
    """Return the distinct dimensions over recordings, and the elements of tensors with each."""
    weights: dict[tuple[int, ...], float] = {}
    names = [f"sizes_{at}" for at in range(count)]
    elements = tensors[[f"{ELEMENTS}_{at}" for at in range(count)]].sum(axis="columns")
    # One row for each tensor of distinct calls.
    for weight, *sizes in zip(elements, *(tensors[name] for name in names), strict=True):
        for dimension in set(zip(*sizes, strict=True)):
            weights[dimension] = weights.get(dimension, 0.0) + float(weight)
    vectors = np.array(list(weights), np.float64).reshape(len(weights), count)
    return vectors, np.array(list(weights.values()))
