"""Tags: what the recorded program itself said that blocks are for, and which weights they hold.

A tag names a block by its address at a moment. It is exact where everything else is inferred, but
it is not trusted: what contradicts the allocations of the recording is counted, and not used. As
tags, names of weights are not trusted: a weight counts where a block was tagged at its address that
is large enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.intervals import last_not_after
from pyprof2.analysis.memory.categories import CATEGORIES, PHASES
from pyprof2.columns import combine_keys, lookup
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.memory.categories import Lives
    from pyprof2.analysis.memory.curves import Blocks, MemoryCurve

_NO_DEVICE: Final = -1
_ACTIVATION, _INPUT = CATEGORIES.index("activation"), CATEGORIES.index("input")
_SAME_DEVICE: Final = {"hip": "cuda"}
"""PyTorch calls devices of AMD `cuda`, its profiler perhaps not."""


_ADAMS: Final = frozenset({"Adam", "AdamW", "NAdam", "RAdam"})
_STEP_BYTES: Final = 4
_REFUTED: Final = "{} times the program tagged of a block that the recording contradicts: not used"
_GRADIENTS: Final = (
    "gradients take {} B, parameters {} B: some gradients are of parameters that were not tagged"
)
_STATE: Final = (
    "the optimizer's state takes {} B, two numbers for each parameter and a count take {} B: "
    "parameters without gradients, or of other types"
)


class Before(NamedTuple):
    """Tagged blocks that were there before the first event.

    Attributes:
        address, bytes, category: of each; the category as a code into `CATEGORIES`.
        free: the row of its release, -1 for none.
    """

    address: Int
    bytes: Int
    category: Int
    free: Int


class Tagged(NamedTuple):
    """The tags of one device.

    Attributes:
        category: of each allocation, as a code into `CATEGORIES`; -1: nothing was tagged.
        before: what was there before the first event.
        moments: the last row of the events at each moment that was tagged of, ascending.
        forward, backward: those of them at which such a phase began.
        refuted: how many tags contradict the recording.
        optimizers: classes of those that made a step.
    """

    category: Int
    before: Before
    moments: Int
    forward: Int
    backward: Int
    refuted: int
    optimizers: frozenset[str]


def tagged(curve: MemoryCurve, tags: pa.Table) -> Tagged:
    """Return what tags say of the blocks of a curve.

    A tag is of the block that lives at its address at its time; the last one of a block counts.
    A block that autograd holds, but was there before the forward began, went into it: an input.

    Args:
        curve: of one device.
        tags: rows of the table `memory_tags`, of any devices.
    """
    clock = int_column(curve.events, "time_ns", 0)
    kind, kinds = code_column(tags, "moment")
    time = int_column(tags, "time_ns", 0)
    # A row without a block stands for the moment itself.
    own = (int_column(tags, "rank", 0) == curve.rank) & tags["address"].is_null().to_numpy()
    at = {
        name: np.sort(time[own & (kind == kinds.index(name))]) if name in kinds else time[:0]
        for name in ("forward", "backward")
    }
    rows = _block_tags(curve, tags)
    block, lives = _blocks(curve, clock, rows)
    category = _categories(rows, _begin(curve, clock, block), at["forward"])
    blocks = curve.blocks
    size = int_column(rows, "bytes", 0)
    fits = lives & (size <= lookup(curve.change[blocks.alloc], block, 0))
    found = np.full(len(blocks.alloc), -1)
    found[block[fits]] = category[fits]
    before, gone = _before(curve, clock, rows, category, block < 0)
    refuted = int(((block >= 0) & ~fits).sum()) + gone
    moments, forward, backward = (
        np.searchsorted(clock, times, "right") - 1
        for times in (np.unique(time[own]), at["forward"], at["backward"])
    )
    names, words = code_column(tags, "name")
    optimizers = frozenset(words[code] for code in np.unique(names[own & (names >= 0)]).tolist())
    return Tagged(found, before, moments, forward, backward, refuted, optimizers)


def exact(inferred: Int, blocks: Blocks, lives: Lives, tagged: Tagged) -> tuple[Int, Bool]:
    """Return the categories with what the program tagged, and for which blocks they are sure.

    Its tags count. Anything else that forward allocated and is there when backward begins is
    held by other code than autograd: an output. Blocks that live only between two of the moments
    at which the program tagged are temporary.

    Args:
        inferred: of each block, as codes into `CATEGORIES`.
        blocks: of the device.
        lives: of the blocks.
        tagged: what was tagged of the device.
    """
    alloc = blocks.alloc
    free = np.where(blocks.free < 0, np.iinfo(np.int64).max, blocks.free)
    backward = _next(tagged.backward, alloc)
    forward = _last(tagged.forward, backward)
    is_held = (backward >= 0) & (backward < free) & (alloc > forward)
    is_held &= (lives.began_in == PHASES.index("forward")) & (tagged.category < 0)
    following = _next(tagged.moments, alloc)
    passes = (tagged.category < 0) & (following >= free)
    passes &= np.searchsorted(tagged.moments, alloc) > 0
    kinds = [CATEGORIES.index(name) for name in ("temporary", "workspace", "communication")]
    found = np.where(tagged.category >= 0, tagged.category, inferred)
    found = np.where(is_held, CATEGORIES.index("output"), found)
    found = np.where(passes & ~np.isin(found, kinds), CATEGORIES.index("temporary"), found)
    return found, (tagged.category >= 0) | is_held | passes


def _next(moments: Int, rows: Int) -> Int:
    """Return the first moment at or after each row, -1 for none."""
    place = np.append(np.arange(len(moments)), -1)[np.searchsorted(moments, rows)]
    return lookup(moments, place, -1)


def _last(moments: Int, rows: Int) -> Int:
    """Return the last moment before each row, -1 for none."""
    return lookup(moments, np.searchsorted(moments, rows) - 1, -1)


def tagged_bytes(curve: MemoryCurve, found: Tagged, moment: int) -> dict[str, int]:
    """Return the bytes that live at a moment and were tagged of, by category.

    Blocks from before the recording are among them, with the size of their storage: also where
    it is not known how much there was in all.
    """
    blocks, before = curve.blocks, found.before
    lives = (blocks.alloc <= moment) & ((blocks.free < 0) | (blocks.free > moment))
    stays = (before.free < 0) | (before.free > moment)
    size = np.r_[curve.change[blocks.alloc][lives], before.bytes[stays]]
    category = np.r_[found.category[lives], before.category[stays]]
    return {
        CATEGORIES[code]: int(size[category == code].sum())
        for code in np.unique(category[category >= 0]).tolist()
    }


def tag_notes(curve: MemoryCurve, found: Tagged) -> list[str]:
    """Return what is odd about what was tagged, in words.

    Gradients are no larger than parameters, and Adam keeps two numbers for each parameter and a
    count of 4 bytes for each of their tensors: where that is not so, something was not tagged, or
    has other types.
    """
    notes = [_REFUTED.format(found.refuted)] if found.refuted else []
    if not len(found.moments):
        return notes
    held = tagged_bytes(curve, found, int(found.moments[-1]))
    parameters, state = held.get("parameter", 0), held.get("optimizer_state", 0)
    if held.get("gradient", 0) > parameters:
        notes.append(_GRADIENTS.format(held["gradient"], parameters))
    if found.optimizers and found.optimizers <= _ADAMS and state:
        tensors = _count(curve, found, "parameter", int(found.moments[-1]))
        expected = 2 * parameters + _STEP_BYTES * tensors
        if state != expected:
            notes.append(_STATE.format(state, expected))
    return notes


def _count(curve: MemoryCurve, found: Tagged, category: str, moment: int) -> int:
    """Return how many blocks of a category live at a moment."""
    code, blocks, before = CATEGORIES.index(category), curve.blocks, found.before
    lives = (blocks.alloc <= moment) & ((blocks.free < 0) | (blocks.free > moment))
    stays = (before.free < 0) | (before.free > moment)
    return int((found.category[lives] == code).sum() + (before.category[stays] == code).sum())


def of_device(curve: MemoryCurve, rows: pa.Table) -> Bool:
    """Return which rows of `memory_tags` or `weights` are of the curve's device and rank."""
    kind, kinds = code_column(rows, "device_type")
    name = _SAME_DEVICE.get(curve.device_type, curve.device_type)
    wanted = kinds.index(name) if name in kinds else -2
    device = int_column(rows, "device", _NO_DEVICE)
    same = (kind == wanted) & (device == (_NO_DEVICE if curve.device is None else curve.device))
    return np.asarray(same & (int_column(rows, "rank", 0) == curve.rank))


def _block_tags(curve: MemoryCurve, tags: pa.Table) -> pa.Table:
    """Return the tags of the curve's device that name a block, in order of time."""
    same = of_device(curve, tags)
    for name in ("address", "category"):
        same &= tags[name].is_valid().to_numpy()
    rows = np.flatnonzero(same)
    order = np.argsort(int_column(tags, "time_ns", 0)[rows], kind="stable")
    return tags.take(pa.array(rows[order]))


def _blocks(curve: MemoryCurve, clock: Int, rows: pa.Table) -> tuple[Int, Bool]:
    """Return the last block at the address of each tag, -1 for none, and whether it lives."""
    blocks = curve.blocks
    place = curve.addresses[blocks.alloc]
    sort = np.lexsort((np.arange(len(place)), place))
    time, address = int_column(rows, "time_ns", 0), int_column(rows, "address", -1)
    found = last_not_after(place[sort], clock[blocks.alloc][sort], address, time)
    block = lookup(sort, found, -1)
    free = lookup(blocks.free, block, -1)
    return block, (block >= 0) & ((free < 0) | (lookup(clock, free, 0) >= time))


def _begin(curve: MemoryCurve, clock: Int, block: Int) -> Int:
    """Return when each block was allocated; what was there before, before everything."""
    return lookup(clock[curve.blocks.alloc], block, np.iinfo(np.int64).min)


def _categories(rows: pa.Table, begin: Int, forward: Int) -> Int:
    """Return the category of each tag, -1 for one that we do not know."""
    codes, words = code_column(rows, "category")
    known = [CATEGORIES.index(word) if word in CATEGORIES else -1 for word in words]
    category = lookup(np.array(known, np.int64), codes, -1)
    began = np.searchsorted(forward, int_column(rows, "time_ns", 0), "right") - 1
    went_in = (began >= 0) & (begin < lookup(forward, began, 0))
    return np.where((category == _ACTIVATION) & went_in, _INPUT, category)


def _before(
    curve: MemoryCurve, clock: Int, rows: pa.Table, category: Int, unfound: Bool
) -> tuple[Before, int]:
    """Return the tags of what was there before, the last of each address, and how many are wrong.

    A block that was released before it was tagged of is none.
    """
    released = curve.blocks.before
    # Reversed, so that the first release of an address is the one that stays.
    row_of = dict(
        zip(curve.addresses[released[::-1]].tolist(), released[::-1].tolist(), strict=True)
    )
    address, size = int_column(rows, "address", -1), int_column(rows, "bytes", 0)
    free = np.array([row_of.get(each, -1) for each in address.tolist()], np.int64)
    time = int_column(rows, "time_ns", 0)
    lives = (free < 0) | (lookup(clock, free, 0) >= time)
    good = np.flatnonzero(unfound & lives & (category >= 0))
    _, last = np.unique(address[good][::-1], return_index=True)
    kept = good[len(good) - 1 - last]
    found = Before(address[kept], size[kept], category[kept], free[kept])
    stays = int(size[kept][free[kept] < 0].sum())
    if curve.base is not None and stays > curve.base + int(curve.change[released].sum()):
        nothing = np.empty(0, np.int64)
        return Before(nothing, nothing, nothing, nothing), int(unfound.sum())
    return found, int((unfound & ~lives).sum())


def last_weights(weights: pa.Table) -> pa.Table:
    """Return the last row of each weight, in the order in which they were named first.

    Args:
        weights: rows of the table `weights`.
    """
    names, _ = code_column(weights, "name")
    key = combine_keys(int_column(weights, "rank", 0), np.asarray(names, np.int64))
    order = np.argsort(int_column(weights, "time_ns", 0), kind="stable")
    _, first = np.unique(key[order], return_index=True)
    _, last = np.unique(key[order][::-1], return_index=True)
    rows = order[len(order) - 1 - last][np.argsort(first, kind="stable")]
    return weights.take(pa.array(rows))


def weights_of(curve: MemoryCurve, tagged: Tagged, weights: pa.Table) -> tuple[pa.Table, int]:
    """Return the weights on a device, and how many the recording contradicts.

    Args:
        curve: of the device.
        tagged: what was tagged of it.
        weights: see `last_weights`.
    """
    own = weights.filter(pa.array(of_device(curve, weights)))
    blocks, before = curve.blocks, tagged.before
    is_tagged = tagged.category >= 0
    address = np.r_[curve.addresses[blocks.alloc][is_tagged], before.address]
    size = np.r_[curve.change[blocks.alloc][is_tagged], before.bytes]
    room: dict[int, int] = {}
    for place, held in zip(address.tolist(), size.tolist(), strict=True):
        room[place] = max(held, room.get(place, 0))
    places, sizes = int_column(own, "address", -1).tolist(), int_column(own, "bytes", 0).tolist()
    fits = [room.get(at, -1) >= takes for at, takes in zip(places, sizes, strict=True)]
    return own.filter(pa.array(fits, pa.bool_())), fits.count(False)
