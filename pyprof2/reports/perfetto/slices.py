"""From rows of a store, in order of time, to slices: their arguments and tracks.

Perfetto closes the innermost slice of a track, whichever was meant, so the slices of a track must
not cross: those that a track cannot show one inside another get further lanes. Slices of a thread
are nested, but for recorders that round; those of a stream come one after another, but for graphs
and kernels that begin early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.errors import StoreError
from pyprof2.recording import code_column, int_column
from pyprof2.reports.perfetto import packets
from pyprof2.reports.perfetto.packets import SliceArgument, Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyprof2.columns import TextColumn
    from pyprof2.reports.perfetto.packets import Bools, Ints, Writer
    from pyprof2.store.parts import TableParts

TEXTS: Final = (
    "kernel", "copy_kind", "signature", "layer", "source", "direction", "bound", "tensor_core",
    "cause", "group", "op", "call", "thread", "note", "finding", "severity", "limit", "evidence",
    "remedy", "kind", "group_desc", "group_key", "dtype", "match",
)  # fmt: skip
"""The columns that are shown as text."""
SHARES: Final = ("roofline_pct",)
"""Those that are shown as numbers with a fraction; all others are whole ones."""


def slices_of(
    writer: Writer,
    rows: pa.Table,
    name: TextColumn,
    category: TextColumn,
    shown: Sequence[str],
    shift: int,
) -> Slices:
    """Return the slices of rows with a start and a duration.

    Args:
        writer: which writes their texts.
        rows: in order of start, the longer first.
        name: of each.
        category: of each.
        shown: the columns that are arguments.
        shift: what to add to their times.
    """
    start = int_column(rows, "start_ns", 0) + shift
    return Slices(
        start,
        start + np.maximum(0, int_column(rows, "dur_ns", 0)),
        writer.texts(packets.NAME, name),
        writer.texts(packets.CATEGORY, category),
        [_argument(writer, rows, column) for column in shown],
    )


def order_of(found: pa.Table, key: str | None = None) -> Ints:
    """Return the order of rows by start, the longer first, then by `key`."""
    start, duration = int_column(found, "start_ns", 0), int_column(found, "dur_ns", 0)
    last = np.arange(len(start)) if key is None else int_column(found, key, 0)
    return np.lexsort((last, -duration, start))


def _argument(writer: Writer, rows: pa.Table, column: str) -> SliceArgument:
    if column in TEXTS:
        numbers = writer.texts(packets.VALUE, code_column(rows, column))
        return SliceArgument(column, packets.TEXT, numbers, numbers > 0)
    present = rows[column].is_valid().to_numpy()
    if column in SHARES:
        values = rows[column].fill_null(0).to_numpy()
        return SliceArgument(column, packets.DOUBLE, values, present & ~np.isnan(values))
    return SliceArgument(column, packets.INT, int_column(rows, column, 0), present)


def work_names(rows: pa.Table) -> TextColumn:
    """Return names of kernels and copies: layer and op, else the kernel's name."""
    layer, layers = code_column(rows, "layer")
    op, ops = code_column(rows, "op")
    kernel, kernels = code_column(rows, "kernel_short")
    category, categories = code_column(rows, "category")
    is_copy = np.array([*(text in {"memcpy", "memset"} for text in categories), False])[category]
    by_op = (op >= 0) & ~is_copy
    # Each pair of a layer and an op has a number, and behind them all each kernel.
    pairs = (len(layers) + 1) * (len(ops) + 1)
    code = np.where(by_op, (layer + 1).astype(np.int64) * (len(ops) + 1) + op + 1, pairs + kernel)
    used, codes = np.unique(code, return_inverse=True)
    texts = []
    for each in used.tolist():
        of_layer, of_op = divmod(each, len(ops) + 1)
        if each == pairs - 1 and not ops:
            texts.append("")  # work without a name, which has no code below
        elif each >= pairs:
            texts.append(kernels[each - pairs])
        else:
            texts.append((f"{layers[of_layer - 1]}: " if of_layer else "") + ops[of_op - 1])
    return np.where(by_op | (kernel >= 0), codes, -1), texts


def constant(text: str, count: int) -> TextColumn:
    """Return the same text for every row."""
    return np.zeros(count, np.int64), [text]


def flows_from(number: Ints, named: Ints, flow: Ints) -> tuple[Ints, Ints]:
    """Return the flows that begin in rows, one row after another, and their offsets.

    Args:
        number: of each row.
        named: in ascending order, the row in which each flow begins.
        flow: the flows, in that order.
    """
    first = np.searchsorted(named, number)
    count = np.searchsorted(named, number, "right") - first
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(count)))
    at = np.repeat(first - offsets[:-1], count) + np.arange(offsets[-1])
    return flow[at], offsets


END: Final = (1 << 63) - 1
"""A time after all others."""


class Span(NamedTuple):
    """All rows that start in a span of time.

    Attributes:
        rows: in order of start, the longer first.
        until: what comes in later spans starts no earlier.
        floor: nor was it launched earlier, where the rows are work that was.
    """

    rows: pa.Table
    until: int
    floor: int


def by_time(tables: Sequence[TableParts], columns: Sequence[str], key: str) -> Iterator[Span]:
    """Yield the rows of tables of one kind together.

    Args:
        tables: each with its rows in order of start.
        columns: what is needed of them; `start_ns`, `dur_ns` and `key` are among them.
        key: the column that numbers the rows of all tables.

    Raises:
        StoreError: a table is damaged, or not in order of start.
    """
    sources = [_Source(table, columns) for table in tables if table.row_count]
    while sources:
        slowest = min(sources, key=lambda source: source.covered)
        if not slowest.is_whole:
            slowest.load()
        until = min(source.covered for source in sources)
        found = pa.concat_tables([source.take(until) for source in sources]).unify_dictionaries()
        sources = [source for source in sources if source.is_left]
        if found.num_rows:
            floor = min((source.floor for source in sources), default=END)
            yield Span(_in_order(found, key), until, floor)


def _in_order(found: pa.Table, key: str) -> pa.Table:
    order = order_of(found, key)
    is_sorted = (order == np.arange(len(order))).all()
    return found if is_sorted else found.take(pa.array(order))


class _Source:
    """A table of which the rows up to some time are in memory.

    Attributes:
        covered: all rows that start earlier are in memory, or were taken.
    """

    def __init__(self, table: TableParts, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = list(columns)
        self._next = 0
        self._rows: pa.Table | None = None
        self.covered = -END
        launches = "launch_ns" in columns
        least = table.bounds("launch_ns")[0] if launches else np.full(len(table), END)
        self._floors = np.r_[np.minimum.accumulate(least[::-1])[::-1], END]

    @property
    def is_whole(self) -> bool:
        """Whether all rows were read."""
        return self._next == len(self._table)

    @property
    def is_left(self) -> bool:
        """Whether there are rows that were not taken."""
        return not self.is_whole or bool(self._rows)

    @property
    def floor(self) -> int:
        """No row that was not taken was launched earlier."""
        floor = int(self._floors[self._next])
        if self._rows and "launch_ns" in self._columns:
            floor = min(floor, int(int_column(self._rows, "launch_ns", END).min()))
        return floor

    def load(self) -> None:
        """Read the next part."""
        part = self._table.read(self._next, self._columns)
        self._next += 1
        start = int_column(part, "start_ns", 0)
        if len(start) and (start[0] < self.covered or (start[1:] < start[:-1]).any()):
            msg = f"table {self._table.table.name}: its rows are not in order of start; make the "
            raise StoreError(msg + "store anew with 'pyprof2 parse --force'")
        self._rows = pa.concat_tables([self._rows, part]) if self._rows else part
        # More rows may start at the very last instant.
        self.covered = END if self.is_whole else int(start[-1]) if len(start) else self.covered

    def take(self, until: int) -> pa.Table:
        """Return the rows in memory that start before `until`, which are gone then."""
        if self._rows is None:
            self._rows = self._table.table.schema(self._columns).empty_table()
        count = int(np.searchsorted(int_column(self._rows, "start_ns", 0), until))
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken


class TrackGroups:
    """Numbers of the groups of rows, in the order of first appearance."""

    def __init__(self) -> None:
        self.keys: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}

    def number(self, *columns: Ints) -> Ints:
        """Return of each row the number of its group."""
        keys, place = distinct(*columns)
        found = [self._number(tuple(key)) for key in keys.tolist()]
        return np.array(found, np.int64)[place]

    def _number(self, key: tuple[int, ...]) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return self._numbers[key]


def distinct(*columns: Ints) -> tuple[Ints, Ints]:
    """Return the distinct rows of columns as they first come, and of each row which it is."""
    place = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes, values = pd.factorize(column)
        # Dense after every column, so that the product of two counts always fits.
        place = pd.factorize(place * len(values) + codes)[0].astype(np.int64)
    first = np.full(int(place.max(initial=-1)) + 1, len(place))
    np.minimum.at(first, place, np.arange(len(place)))
    return np.stack([column[first] for column in columns], axis=1), place


class SliceStream:
    """Writes the slices of groups of tracks as they come, and their ends in order of time."""

    def __init__(
        self, writer: Writer, track: Callable[[int, int], int], *, nested: bool = True
    ) -> None:
        """Make a stream.

        Args:
            writer: of packets.
            track: gives the track of a group and a lane.
            nested: whether the slices of a group are inside one another, see `Lanes`.
        """
        self._writer = writer
        self._track = track
        self._lanes = Lanes(nested=nested)
        self._count = 0
        self._pending = np.empty((4, 0), np.int64)  # end, number, whether it is an instant, track

    def add(self, group: Ints, slices: Slices, until: int) -> None:
        """Write slices, and all ends before `until`; later slices start no earlier."""
        slices.track = self._tracks(group, self._lanes.assign(group, slices.start, slices.end))
        number = self._count + np.arange(len(slices))
        self._count += len(slices)
        is_instant = slices.end == slices.start
        new = np.stack((slices.end, number, is_instant, slices.track))
        ends = np.concatenate((self._pending, new), axis=1)
        is_due = ends[0] < until
        due, self._pending = ends[:, is_due], ends[:, ~is_due]
        begins = SliceEdges(slices.start, number, is_instant)
        order = event_order(begins, SliceEdges(due[0], due[1], due[2] > 0))
        is_end = order >= len(slices)
        at = order[is_end] - len(slices)
        self._writer.slices(slices, (due[0][at], due[3][at]), is_end)

    def _tracks(self, group: Ints, lane: Ints) -> Ints:
        keys, place = distinct(group, lane)
        tracks = [self._track(*key) for key in keys.tolist()]
        return np.array(tracks, np.int64)[place]


_GENTLE_ROUNDS: Final = 8
"""So often only the later one of two that cross gives way, then both."""


class SliceEdges(NamedTuple):
    """The begins, or the ends, of slices.

    Attributes:
        time: in ns.
        number: of the slice, in the order of start, longer ones first.
        is_instant: whether the slice takes no time.
    """

    time: Ints
    number: Ints
    is_instant: Bools


def event_order(begins: SliceEdges, ends: SliceEdges) -> Ints:
    """Return the order in which slices begin and end, so that slices that may be nested are.

    At one instant what ends comes first, the innermost before the others; then what begins, the
    longest first; then what takes no time, each by itself.

    Returns:
        Positions in `begins`; from their number on, in `ends`.
    """
    kind = np.concatenate((np.where(begins.is_instant, 2, 1), np.where(ends.is_instant, 2, 0)))
    within = (
        np.where(begins.is_instant, 2 * begins.number, begins.number),
        np.where(ends.is_instant, 2 * ends.number + 1, -ends.number),
    )
    return np.lexsort((np.concatenate(within), kind, np.concatenate((begins.time, ends.time))))


def _events(start: Ints, end: Ints) -> Ints:
    number, is_instant = np.arange(len(start)), start == end
    return event_order(SliceEdges(start, number, is_instant), SliceEdges(end, number, is_instant))


class Lanes:
    """Gives each slice a lane in its group, part after part, in order of start.

    In a lane slices are apart, or, where `nested` is set, in lane 0 one inside another.
    """

    def __init__(self, *, nested: bool) -> None:
        self._nested = nested
        self._open = np.empty((4, 0), np.int64)  # group, start, end, lane

    def assign(self, group: Ints, start: Ints, end: Ints) -> Ints:
        """Return the lanes of slices that start no earlier than all before them.

        Args:
            group: of each slice, a number.
            start: ascending; of equal ones the longer first.
            end: not before the start.
        """
        lane = np.zeros(len(start), np.int64)
        if not len(start):
            return lane
        before = self._open[:, self._open[2] > start[0]]
        for each in np.unique(group).tolist():
            rows, carried = np.flatnonzero(group == each), before[:, before[0] == each]
            whole = np.concatenate((carried[1:], np.stack((start[rows], end[rows], lane[rows]))), 1)
            place, fixed = _nested if self._nested else _apart, carried.shape[1]
            lane[rows] = place(whole[0], whole[1], whole[2], fixed)[fixed:]
        found = np.concatenate((before, np.stack((group, start, end, lane))), axis=1)
        self._open = found[:, found[2] > start[-1]]
        return lane


def _nested(start: Ints, end: Ints, lane: Ints, fixed: int) -> Ints:
    """Return lane 0 for all that can be nested, and further ones for the rest.

    Args:
        start: of each slice.
        end: of each.
        lane: of the first ones, which have theirs.
        fixed: how many those are.
    """
    in_first = np.r_[lane[:fixed] == 0, np.ones(len(lane) - fixed, bool)]
    free = np.arange(len(lane)) >= fixed
    for turn in range(len(lane)):
        rows = np.flatnonzero(in_first)
        outer, inner = _crossing(start[rows], end[rows])
        gives_way = inner[(inner > outer) | (turn >= _GENTLE_ROUNDS)]
        gives_way = rows[gives_way][free[rows[gives_way]]]
        if not len(gives_way):
            break
        in_first[gives_way] = False
    rest = np.flatnonzero(~in_first)
    lane = np.where(in_first, 0, lane)
    lane[rest] = 1 + _apart(start[rest], end[rest], lane[rest] - 1, int((rest < fixed).sum()))
    return lane


def _crossing(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return, for each level that a wrong slice would end, its slice and the one that ends."""
    count = len(start)
    at = _events(start, end)
    begins = at < count
    level = np.cumsum(np.where(begins, 1, -1)) + ~begins
    at = at[np.argsort(level, kind="stable")]
    outer, inner = at[0::2], at[1::2] - count
    wrong = outer != inner
    return outer[wrong], inner[wrong]


def _apart(start: Ints, end: Ints, lane: Ints, fixed: int) -> Ints:
    """Return lanes in which slices are apart; those of the first `fixed` ones stay.

    A slice that begins while no other lasts is in lane 0; each that follows takes the lane that
    has been free for longest.
    """
    count = len(start)
    if not fixed and (start[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return np.zeros(count, np.int64)
    at = _events(start, end)
    begins = at < count
    lasting = np.cumsum(np.where(begins, 1, -1))
    cluster = np.cumsum(np.r_[0, lasting[:-1] == 0]) if count else lasting
    most = np.zeros(count + 1, np.int64)
    np.maximum.at(most, cluster, lasting)
    if fixed:
        most[0] = max(most[0], lane[:fixed].max() + 1)
    ended = np.flatnonzero(~begins)
    begun = np.flatnonzero(begins)
    # How many events of its kind, begin or end, come before each event in its cluster.
    rank = np.empty(len(begins), np.int64)
    for rows in (begun, ended):
        own = cluster[rows]
        rank[rows] = np.arange(len(rows)) - np.searchsorted(own, own)
    # The end that frees a lane: of the same cluster, as many before it as there are lanes.
    frees = rank[begun] - most[cluster[begun]]
    first_end = np.searchsorted(cluster[ended], cluster[begun])
    freed = np.where(frees >= 0, at[ended][(first_end + frees) * (frees >= 0)] - count, -1)
    source = np.empty(count, np.int64)
    source[at[begun]] = freed
    given = np.empty(count, np.int64)
    given[at[begun]] = rank[begun]
    if fixed:
        # In the first cluster lanes are given without those that are taken.
        others = np.setdiff1d(np.arange(int(given.max()) + fixed + 1), lane[:fixed])
        order = np.concatenate((lane[:fixed], others))
        given = np.where(cluster[begun][np.argsort(at[begun])] == 0, order[given], given)
    return _follow(source, given)


def _follow(source: Ints, given: Ints) -> Ints:
    """Return the lane at the end of each chain of slices that take over one another's lane."""
    root = np.where(source >= 0, source, np.arange(len(source)))
    while (root[root] != root).any():
        root = root[root]
    return given[root]
