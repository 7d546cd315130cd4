"""Curves: how much of a device's memory is allocated, after each allocation and release."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.columns import combinations, combine_keys, narrow, short, values_of
from pyprof2.recording import code_column, int_column
from pyprof2.tables import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyprof2.analysis.intervals import Bool, Int
NO_NUMBER: Final = -(1 << 62)
"""Stands for null in int64 columns."""
LINELESS: Final = ("(no op)", "(no source)")
"""Stand for the line of an allocation outside of ops, and in an op without a stack."""
BEGINS: Final = "begins"
"""The moment of table `memory_tags` at which the program said how much is allocated."""
EVENTS_NEEDED: Final = tuple(name for name in MEMORY.names if name not in ("rank", "span"))
"""The columns of table `memory` that curves are made of."""
HELD_NEEDED: Final = (
    "device_type", "device", "address", "bytes", "allocated_bytes", "reserved_bytes",
)  # fmt: skip
"""Those of them that say how much is held."""
_FOUND: Final = ["pid", "tid", "bytes"]
"""Those of them that say nothing more once blocks are found."""
START: Final = -1
"""The moment before the first event; other moments are rows of events, after which they are."""

_LOW_BITS: Final = (1 << 63) - 1
_JUMPS: Final = (
    "{} times the recorder's total changes without an event: what is before the recording is not "
    "known"
)
_REUSED: Final = (
    "{} addresses are allocated again without a release between: releases are missing, and what is "
    "before the recording is not known"
)
_CONTRADICTED: Final = (
    "what the program says was allocated contradicts the recording: what is before it is not known"
)
_BY_SIZE: Final = "no addresses are recorded: releases are paired by size and thread"


class Blocks(NamedTuple):
    """The blocks of one device, as rows of its events.

    Attributes:
        alloc: the row of each allocation, ascending.
        free: the row of its release, -1 for none.
        before: the rows of releases of blocks that were there before the recording.
        by_size: whether any release found its allocation by its size, for want of an address.
        reused: allocations at an address whose last block has no release.
    """

    alloc: Int
    free: Int
    before: Int
    by_size: bool
    reused: int


def find_blocks(change: Int, address: Int, thread: Int) -> Blocks:
    """Pair allocations and releases of one device, which are in order.

    A release ends the last allocation of its address and size that still lives; without addresses
    the last one of its size on its thread, or where none lives there, on any other.

    Args:
        change: bytes, negative for a release.
        address: -1 for unknown.
        thread: a number for each thread.
    """
    known = address >= 0
    size, where = np.abs(change), np.where(known, address, thread)
    free_of = np.full(len(change), -1)
    _pair(change, combinations([size, where, known])[1], free_of)
    # Blocks that backward releases were allocated on another thread.
    rest = np.flatnonzero(~known & ~_is_paired(free_of))
    free_of[rest] = _rows(rest, _pair(change[rest], size[rest], np.full(len(rest), -1)))
    alloc = np.flatnonzero(change > 0)
    before = np.flatnonzero((change < 0) & ~_is_paired(free_of))
    by_size = bool((~known & (free_of >= 0)).any())
    return Blocks(alloc, free_of[alloc], before, by_size, _reused(change, address))


def _reused(change: Int, address: Int) -> int:
    """Return how often an address is allocated again without a release between."""
    rows = np.flatnonzero(address >= 0)
    order = rows[np.argsort(address[rows], kind="stable")]
    same = address[order][1:] == address[order][:-1]
    return int((same & (change[order][1:] > 0) & (change[order][:-1] > 0)).sum())


def _pair(change: Int, key: Int, free_of: Int) -> Int:
    """Put in the row of the release of each allocation, the last of its group that lives.

    Events of an equal `key` are a group.
    """
    if not len(change):
        return free_of
    order = short(np.argsort(narrow(key), kind="stable"))
    key = key[order]
    begins = np.r_[True, key[1:] != key[:-1]]
    level = _levels(begins, change[order] > 0)
    group = np.cumsum(begins, dtype=np.int32)
    # Where a block is never allocated twice at a time, they take turns as they are.
    if level.min() != level.max():
        again = np.lexsort((level, group))
        order, level, group = order[again], level[again], group[again]
    first, then = order[:-1], order[1:]
    # On one level allocations and releases take turns, as opening and closing brackets do.
    paired = (group[:-1] == group[1:]) & (level[:-1] == level[1:])
    paired &= (change[first] > 0) & (change[then] < 0)
    free_of[first[paired]] = then[paired]
    return free_of


def _is_paired(free_of: Int) -> Bool:
    """Return which events are an allocation with a release, or that release."""
    paired: Bool = free_of >= 0
    paired = paired.copy()
    paired[free_of[free_of >= 0]] = True
    return paired


def _rows(of: Int, places: Int) -> Int:
    return np.where(places >= 0, of[places], -1) if len(of) else places


def _levels(begins: Bool, is_alloc: Bool) -> Int:
    """Return how many of its group live: after an allocation, and before a release.

    Args:
        begins: whether a group begins at this event; groups stand together, each in order.
        is_alloc: whether it is an allocation.
    """
    step = 2 * is_alloc.astype(np.int32) - 1
    before = np.cumsum(step, dtype=np.int32) - step
    offset = np.maximum.accumulate(np.where(begins, np.arange(len(begins), dtype=np.int32), 0))
    level: Int = before - before[offset] + is_alloc
    return level


@dataclass(frozen=True)
class HeldBlocks:
    """Blocks that a snapshot has at its end and that were there before its first event.

    Attributes:
        line: `path:line`, null: not known.
        category, certainty: see `categories`.
        bytes: as they were asked for.
    """

    line: str | None
    category: str
    certainty: str
    bytes: int


@dataclass(frozen=True)
class MemoryCurve:
    """The memory of one device of one process.

    Attributes:
        rank, device_type, device: whose.
        events: rows of the table `memory`, in order, without what the curve itself says.
        base: bytes that were allocated before the first event; None: not known.
        lineless: see `LINELESS`.
        held: of a snapshot: the blocks behind `base` that were never released.
        rounding: bytes of `base` that nobody asked for; None: not known.
        facts: further columns of the summary, such as `reserved_bytes`.
        failures: moments at which memory ran out: row, and what was asked for.
        notes: what else there is to say.
    """

    rank: int
    device_type: str
    device: int | None
    events: pa.Table
    base: int | None
    lineless: tuple[str, str]
    held: list[HeldBlocks] = field(default_factory=list)
    rounding: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def change(self) -> Int:
        """Bytes of each event, negative for a release."""
        return int_column(self.events, "bytes", 0)

    @cached_property
    def total(self) -> Int:
        """Bytes over `base` after each event."""
        return np.cumsum(self.change)

    @cached_property
    def addresses(self) -> Int:
        """The address of each event, -1 for unknown."""
        values = self.events["address"]
        if values.null_count == len(values):
            return np.broadcast_to(-1, len(values))
        known = values.is_valid().to_numpy()
        address = values.fill_null(0).to_numpy().astype(np.uint64).view(np.int64)
        # No machine has addresses that differ in the highest bit alone.
        return np.where(known, np.where(address < 0, address & _LOW_BITS, address), -1)

    @cached_property
    def blocks(self) -> Blocks:
        """The allocations with their releases."""
        thread = combine_keys(
            *(int_column(self.events, name, NO_NUMBER) for name in ("pid", "tid"))
        )
        return find_blocks(self.change, self.addresses, thread)

    def but(self, **changes: Any) -> MemoryCurve:
        """Return the curve with other facts of the same events, which are not looked at again."""
        found = replace(self, **changes)
        kept = {"change", "total", "addresses", "blocks", "peak"} & self.__dict__.keys()
        found.__dict__.update({name: self.__dict__[name] for name in kept})
        return found

    def over_base(self, moment: int) -> int:
        """Return the bytes over `base` at a moment."""
        return 0 if moment == START else int(self.total[moment])

    @cached_property
    def peak(self) -> int:
        """The first moment at which most is allocated."""
        if not len(self.total) or self.total.max() <= 0:
            return START
        return int(np.argmax(self.total))

    @property
    def end(self) -> int:
        """The moment after the last event."""
        return len(self.total) - 1

    def base_at(self, moment: int) -> int | None:
        """Return what is left of `base` at a moment; None: not known."""
        if self.base is None:
            return None
        gone = self.blocks.before
        return self.base + int(self.change[gone[gone <= moment]].sum())

    def time_at(self, moment: int) -> int | None:
        """Return the time of a moment, ns; None: not known."""
        if not len(self.total):
            return None
        time: int | None = self.events["time_ns"][max(moment, 0)].as_py()
        return time


def curves_of_rank(parts: Iterable[pa.Table], tags: pa.Table, rank: int) -> Iterator[MemoryCurve]:
    """Yield a curve for each device in the table `memory` of one rank, by type and ordinal.

    The base of a GPU follows from the recorder's own total. On the CPU that counts from the first
    event that was recorded, so the base is known only where the program said what was allocated.

    Args:
        parts: of the rank, of which no more is kept than each device's own rows.
        tags: rows of the table `memory_tags`, of any ranks.
        rank: whose.
    """
    devices = _by_device(parts)
    for name, device in sorted(devices, key=_type_and_ordinal):
        events = pa.concat_tables(devices.pop((name, device))).unify_dictionaries()
        base, notes = _cpu_base(events, tags, rank) if name == "cpu" else _base(events)
        most = pc.max(events["reserved_bytes"]).as_py()
        curve = MemoryCurve(
            rank, name, device, events, base, LINELESS, notes=notes,
            facts={"peak_reserved_bytes": most},
        )  # fmt: skip
        if curve.blocks.by_size:
            notes.append(_BY_SIZE)
        if curve.blocks.reused:
            notes.append(_REUSED.format(curve.blocks.reused))
            base = None
        # The columns that blocks were found by are not kept twice.
        yield curve.but(base=base, events=events.drop_columns(_FOUND))


def most_held(parts: Iterable[pa.Table]) -> int | None:
    """Return the most memory that was held on any GPU of a rank; None: not recorded.

    Args:
        parts: of the rank's table `memory`, the columns `HELD_NEEDED`.
    """
    most = []
    for (name, device), tables in _by_device(parts).items():
        if name == "cpu":
            continue
        events = pa.concat_tables(tables)
        base, _ = _base(events)
        curve = MemoryCurve(0, name, device, events, base, LINELESS)
        reserved = pc.max(events["reserved_bytes"]).as_py()
        allocated = None if base is None else base + curve.over_base(curve.peak)
        # Less than what is reserved says nothing new, so how it is known needs no look.
        if allocated is not None and allocated > (reserved or 0):
            reserved = reserved if _reused(curve.change, curve.addresses) else allocated
        most += [] if reserved is None else [int(reserved)]
    return max(most, default=None)


def _by_device(parts: Iterable[pa.Table]) -> dict[tuple[str, int | None], list[pa.Table]]:
    """Return the rows of each device, by its type and ordinal.

    Columns without values, of which there are many, are all the same piece of memory.
    """
    found: dict[tuple[str, int | None], list[pa.Table]] = {}
    nulls: dict[pa.DataType, pa.Array] = {}

    def shared(column: pa.ChunkedArray) -> pa.ChunkedArray:
        size = len(column)
        if column.null_count < size:
            return column
        if size > len(nulls.get(column.type, ())):
            nulls[column.type] = pa.nulls(size, column.type)
        return pa.chunked_array([nulls[column.type][:size]])

    for part in parts:
        kind, kinds = code_column(part, "device_type")
        number, numbers = code_column(
            pa.table({"device": part["device"].dictionary_encode()}), "device"
        )
        key = combine_keys(np.asarray(kind, np.int64), np.asarray(number, np.int64))
        for each in values_of(key):
            rows = np.flatnonzero(key == each)
            first = rows[0]
            name = kinds[kind[first]] if kind[first] >= 0 else "unknown"
            device = numbers[number[first]] if number[first] >= 0 else None
            # To take all rows is to copy them.
            own = part if len(rows) == part.num_rows else part.take(pa.array(rows))
            own = own.drop_columns(["device_type", "device"])
            own = pa.table(dict(zip(own.column_names, map(shared, own.columns), strict=True)))
            found.setdefault((name, device), []).append(own)
    return found


def _type_and_ordinal(key: tuple[str, int | None]) -> tuple[str, int]:
    name, device = key
    return name, NO_NUMBER if device is None else device


def _base(events: pa.Table) -> tuple[int | None, list[str]]:
    """Return what was allocated before the first event, by the recorder's total after each."""
    total = int_column(events, "allocated_bytes", NO_NUMBER)
    known = np.flatnonzero(total != NO_NUMBER)
    if not len(known):
        return None, []
    before = total[known] - np.cumsum(int_column(events, "bytes", 0))[known]
    jumps = int((before[1:] != before[:-1]).sum())
    return (None, [_JUMPS.format(jumps)]) if jumps else (int(before[0]), [])


def _cpu_base(events: pa.Table, tags: pa.Table, rank: int) -> tuple[int | None, list[str]]:
    """Return what was allocated on the CPU before the first event, as the program says.

    Args:
        events: rows of the table `memory`, of the CPU.
        tags: rows of the table `memory_tags`, of any ranks.
        rank: whose.

    Returns:
        The bytes, None: not known; and what there is to say.
    """
    moment, moments = code_column(tags, "moment")
    kind, kinds = code_column(tags, "device_type")
    if BEGINS not in moments or "cpu" not in kinds:
        return None, []
    said = (moment == moments.index(BEGINS)) & (kind == kinds.index("cpu"))
    said &= tags["address"].is_null().to_numpy() & (int_column(tags, "rank", 0) == rank)
    rows = np.flatnonzero(said)
    if not len(rows):
        return None, []
    first = rows[np.argmin(int_column(tags, "time_ns", 0)[rows])]
    time, size = (int(int_column(tags, name, 0)[first]) for name in ("time_ns", "bytes"))
    before = int_column(events, "time_ns", 0) <= time
    base = size - int(int_column(events, "bytes", 0)[before].sum())
    seen, notes = _base(events)
    if base < 0 or notes or seen not in (None, base):
        return None, [*notes, _CONTRADICTED]
    return base, []
