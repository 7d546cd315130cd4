"""The time of devices in the windows of steps: computing, communicating, copying, or idle.

At every instant a device computes, communicates, copies, several of these, or nothing. The time
line is cut wherever any of this changes or a window begins or ends; each slice is in one state,
so the times of a window's states add up to it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.chunked import ENDLESS, chunks_of, in_time_order, whole
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.recordings import extents, recording_at
from pyprof2.analysis.time.step_times import SHARES
from pyprof2.analysis.time.step_windows import StepWindows, step_epochs, step_ranges
from pyprof2.columns import int_array, sorted_distinct
from pyprof2.recording import has_text, int_column
from pyprof2.result_tables import DEVICE_USE, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    from numpy.typing import NDArray

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int

    Floats: TypeAlias = NDArray[np.float64]

_WORK: Final = ("rank", "device", "start_ns", "dur_ns", "launch_ns")
INPUT: Final = {
    "kernels": (*_WORK, "category", "blocks_per_sm", "occupancy_pct"),
    "copies": _WORK,
    "ranges": ("rank", "start_ns", "dur_ns", "name", "kind"),
    "trace": ("rank", "start_ns"),
}
"""The columns of the canonical tables that the table `steps` is made of."""

_OF_COPIES: Final = ("device", "start_ns", "dur_ns")
_OF_KERNELS: Final = (*_OF_COPIES, "category", "blocks_per_sm", "occupancy_pct")

COMPUTE, COMM, COPY = range(3)
STATES: Final = {
    "compute_only_ns": (True, False, False),
    "comm_only_ns": (False, True, False),
    "comp_comm_overlap_ns": (True, True, False),
    "copy_only_ns": (False, False, True),
    "idle_ns": (False, False, False),
}
"""The states of a device: whether it computes, communicates, copies.

Every other one is `copy_overlap_ns`: it copies while it does anything else.
"""


_TIMES: Final = (
    *STATES, "copy_overlap_ns", "busy_kernels_ns", "sm_unknown", "occupancy_unknown",
)  # fmt: skip
"""The times that are added up; the last ones of kernels of which something is unknown."""


class DeviceWork(NamedTuple):
    """The activities of one device.

    Attributes:
        start, end: in ns.
        kind: `COMPUTE`, `COMM` or `COPY`.
        blocks_per_sm: of the grid; not a number where unknown.
        occupancy_pct: not a number where unknown.
    """

    start: Int
    end: Int
    kind: Int
    blocks_per_sm: Floats
    occupancy_pct: Floats


class Use(NamedTuple):
    """How a device was used, per window.

    Attributes:
        times: ns in each of the states, by column of the table `steps`.
        kernels: ns in which a kernel ran.
        sm: integral of the share of the multiprocessors that had a block, in ns.
        occupancy: kernels' time in ns, times their occupancy in %.
        kernel_time: the kernels' times, added up, in ns.
        sm_known, occupancy_known: whether every kernel in the window has what these rest on.
    """

    times: dict[str, Int]
    kernels: Int
    sm: Floats
    occupancy: Floats
    kernel_time: Floats
    sm_known: Bool
    occupancy_known: Bool

    def at(self, windows: Int) -> Use:
        """Return the use in some of the windows."""
        times = {name: time[windows] for name, time in self.times.items()}
        columns: list[Any] = [column[windows] for column in self[1:]]
        return Use(times, *columns)


class WindowSlices:
    """The windows, cut wherever an activity begins or ends; of all time, or from a time to another.

    Attributes:
        length: of each slice, in ns.
        last: the last time at which anything changes; None: there is none so far.
        levels: those that run on from there, by name.
    """

    def __init__(
        self,
        work: DeviceWork,
        start: Int,
        end: Int,
        *,
        since: int = -ENDLESS,
        until: int = ENDLESS,
        before: WindowSlices | None = None,
    ) -> None:
        """Cut the windows.

        Args:
            work: the activities that run from `since` to `until`.
            start: of the windows.
            end: of the windows.
            since: only what begins from here on is looked at.
            until: nor what begins or ends from here on.
            before: the slices of the time before.
        """
        self._new, self._over = work.start >= since, work.end < until
        bounds = np.concatenate((start, end))
        bounds = bounds[(bounds >= since) & (bounds < until)]
        last = [] if before is None or before.last is None else [before.last]
        changes = (work.start[self._new], work.end[self._over], bounds, np.array(last, np.int64))
        self._times = sorted_distinct(np.concatenate(changes))
        self.last: int | None = int(self._times[-1]) if len(self._times) else None
        self.levels: dict[str, float] = {}
        self._levels_before = before.levels if before is not None and last else {}
        begin, length = self._times[:-1], np.diff(self._times)
        # Where several begin together, only the last one has a length.
        window = np.searchsorted(start, begin, "right") - 1
        self._inside = (window >= 0) & (begin < np.r_[end, NEVER][window])
        self._window = window[self._inside]
        self._count = len(start)
        self.length = length[self._inside]
        self._begins = np.searchsorted(self._times, work.start[self._new])
        self._ends = np.searchsorted(self._times, work.end[self._over])

    def level(self, weight: Floats, name: str = "") -> Floats:
        """Return the sum of the weights of what runs in each slice.

        Args:
            weight: of each activity.
            name: by which it goes on in the next slices.
        """
        change = np.zeros(len(self._times))
        change[:1] = self._levels_before.get(name, 0)
        np.add.at(change, self._begins, weight[self._new])
        np.subtract.at(change, self._ends, weight[self._over])
        # Floats are added in order of time, as if all were here.
        level = np.cumsum(change)
        self.levels[name] = float(level[-1]) if len(level) else 0.0
        found: Floats = level[:-1][self._inside]
        return found

    def runs(self, rows: Bool, name: str = "") -> Bool:
        """Return whether any of these rows runs in each slice."""
        found: Bool = self.level(rows.astype(np.float64), name) > 0
        return found

    def time(self, slices: Bool) -> Int:
        """Return the length of these slices, by window."""
        sums = np.zeros(self._count, np.int64)
        np.add.at(sums, self._window[slices], self.length[slices])
        return sums

    def add_integral(self, level: Floats, sums: Floats) -> None:
        """Add the integral of a level to sums, by window."""
        np.add.at(sums, self._window, level * self.length)


class TimesInWindows:
    """Adds up what a device does in windows, which are in order and do not overlap.

    A subclass says in `_add` what is added up of slices of the windows and the work in them.
    """

    def __init__(self, start: Int, end: Int, names: Iterable[str]) -> None:
        """Begin with nothing.

        Args:
            start: of the windows.
            end: of the windows.
            names: of the times to add up.
        """
        self._windows = start, end
        self._slices: WindowSlices | None = None
        self._going_on: DeviceWork | None = None
        self._since = -ENDLESS
        self.times = {name: np.zeros(len(start), np.int64) for name in names}

    def add(self, work: DeviceWork | None, until: int = ENDLESS) -> None:
        """Add activities in order of time.

        Args:
            work: what begins before `until`, and not before that of the last time.
            until: later work begins not before it; without one there is none.
        """
        both = [each for each in (self._going_on, work) if each is not None]
        if not both:
            return
        columns: list[Any] = [np.concatenate(each) for each in zip(*both, strict=True)]
        now = DeviceWork(*columns)
        self._slices = WindowSlices(
            now, *self._windows, since=self._since, until=until, before=self._slices
        )
        self._add(self._slices, now)
        self._since = until
        goes_on = now.end >= until
        rest: list[Any] = [column[goes_on] for column in now]
        self._going_on = DeviceWork(*rest)

    def _add(self, slices: WindowSlices, work: DeviceWork) -> None:
        raise NotImplementedError


class DeviceUse(TimesInWindows):
    """Adds up how a device was used in windows.

    The share of the multiprocessors that have a block is at most 1: the sum of `blocks_per_sm` of
    the kernels that run. Kernels that reach over a window count with the part inside.
    """

    def __init__(self, start: Int, end: Int) -> None:
        """Begin with nothing in the windows that start and end then."""
        super().__init__(start, end, _TIMES)
        self._integrals = {name: np.zeros(len(start)) for name in ("sm", "occupancy", "kernels")}

    def _add(self, slices: WindowSlices, work: DeviceWork) -> None:
        is_kernel = work.kind != COPY
        level = slices.level(is_kernel.astype(np.float64), "kernels")
        kernels = level > 0
        blocks, occupancy = (
            np.where(is_kernel, np.nan_to_num(each), 0)
            for each in (work.blocks_per_sm, work.occupancy_pct)
        )
        # Sums of floats leave residues where nothing runs.
        sm = np.where(kernels, np.minimum(slices.level(np.minimum(blocks, 1), "sm"), 1), 0)
        weighted = np.where(kernels, slices.level(occupancy, "occupancy"), 0)
        for name, each in (("sm", sm), ("occupancy", weighted), ("kernels", level)):
            slices.add_integral(each, self._integrals[name])
        runs = {
            "busy_kernels_ns": kernels,
            "sm_unknown": slices.runs(is_kernel & np.isnan(work.blocks_per_sm), "no blocks"),
            "occupancy_unknown": slices.runs(
                is_kernel & np.isnan(work.occupancy_pct), "no occupancy"
            ),
        }
        kinds = [slices.runs(work.kind == kind, f"kind {kind}") for kind in (COMPUTE, COMM, COPY)]
        for name, state in STATES.items():
            runs[name] = np.all([r == s for r, s in zip(kinds, state, strict=True)], axis=0)
        runs["copy_overlap_ns"] = kinds[COPY] & (kinds[COMPUTE] | kinds[COMM])
        for name, each in runs.items():
            self.times[name] += slices.time(each)

    def use(self) -> Use:
        """Return what was added up."""
        times = {name: self.times[name] for name in (*STATES, "copy_overlap_ns")}
        return Use(
            times,
            self.times["busy_kernels_ns"],
            self._integrals["sm"],
            self._integrals["occupancy"],
            self._integrals["kernels"],
            self.times["sm_unknown"] == 0,
            self.times["occupancy_unknown"] == 0,
        )


def device_work(kernels: pa.Table, copies: pa.Table) -> dict[int, DeviceWork]:
    """Return the activities of each device of a rank, by ordinal; `NEVER` stands for null.

    Args:
        kernels: columns `device`, `start_ns`, `dur_ns`, `category`, `blocks_per_sm`,
            `occupancy_pct` of the canonical table.
        copies: of these `device`, `start_ns`, `dur_ns`.
    """
    device, start, end, kind = device_columns(kernels, copies)
    known = [
        np.r_[kernels[name].cast(pa.float64()).to_numpy(), np.full(copies.num_rows, np.nan)]
        for name in ("blocks_per_sm", "occupancy_pct")
    ]
    work = DeviceWork(start, end, kind, *known)
    parts = ((each, device == each) for each in np.unique(device).tolist())
    return {each: DeviceWork(*(column[own] for column in work)) for each, own in parts}


def device_columns(kernels: pa.Table, copies: pa.Table) -> tuple[Int, Int, Int, Int]:
    """Return device (`NEVER` for null), start, end and kind of each kernel, then of each copy.

    Args:
        kernels: columns `device`, `start_ns`, `dur_ns`, `category` of the canonical table.
        copies: of these `device`, `start_ns`, `dur_ns`.
    """
    device, start, length = (
        np.concatenate([int_column(table, name, missing) for table in (kernels, copies)])
        for name, missing in (("device", NEVER), ("start_ns", 0), ("dur_ns", 0))
    )
    kind = np.full(len(start), COPY)
    kind[: kernels.num_rows] = np.where(has_text(kernels, "category", ("comm",)), COMM, COMPUTE)
    return device, start, start + np.maximum(0, length), kind


def steps_and_use(
    tables: Mapping[str, ChunkedTable], windows: StepWindows, rank: int
) -> tuple[pa.Table, pa.Table]:
    """Return the tables `steps` and `device_use` of a rank.

    Args:
        tables: the columns `INPUT` of its canonical tables.
        windows: of its steps.
        rank: the number.
    """
    ranges = whole(tables["ranges"], ("start_ns", "dur_ns", "name", "kind"))
    host, epochs = step_ranges(ranges), step_epochs(ranges)
    begins = np.sort(int_column(whole(tables["trace"], ("start_ns",)), "start_ns", NEVER))
    times = _UseWindows.of(windows, tables, begins)
    uses: dict[int, DeviceUse] = {}
    seen: defaultdict[int, set[int]] = defaultdict(set)
    for work, until in in_time_order(
        [tables["kernels"], tables["copies"]], [_OF_KERNELS, _OF_COPIES]
    ):
        for device, own in device_work(*work).items():
            uses.setdefault(device, DeviceUse(times.start, times.end)).add(own, until)
            seen[device].update(np.unique(recording_at(own.start, begins)).tolist())
    found = {}
    for device in sorted(uses):
        uses[device].add(None)
        found[device] = uses[device].use()
    at = np.flatnonzero(times.is_step)
    of_steps = [_rows(windows, host, each, use.at(at)) for each, use in found.items()]
    if not of_steps or not len(at):
        of_steps = [_rows(windows, host, NEVER, None)]
    used = [
        {
            "rank": rank,
            "device": None if device == NEVER else device,
            **times.shares(use, np.flatnonzero(np.isin(times.recording, [*seen[device]]))),
        }
        for device, use in found.items()
    ]
    steps = pa.concat_tables(of_steps)
    steps = steps.append_column("rank", pa.array(np.full(steps.num_rows, rank)))
    epoch = [epochs.get(step, 0 if epochs else None) for step in steps["step"].to_pylist()]
    steps = steps.set_column(
        steps.column_names.index("epoch"), "epoch", pa.array(epoch, pa.int64())
    )
    return STEPS.conform(steps), pa.Table.from_pylist(used, DEVICE_USE.schema())


class _UseWindows(NamedTuple):
    """The windows of a rank: its steps and the time between them, one after another.

    A recording without steps has one window, from its first activity to its last.

    Attributes:
        start, end: in ns.
        is_step: whether each is a step; they are in the order of the steps.
        recording: which recording of the rank each belongs to.
    """

    start: Int
    end: Int
    is_step: Bool
    recording: Int

    @classmethod
    def of(cls, steps: StepWindows, tables: Mapping[str, ChunkedTable], begins: Int) -> _UseWindows:
        """Return those of a rank whose recordings begin at these times."""
        recording = recording_at(steps.start, begins)
        between = np.flatnonzero(
            (steps.end[:-1] < steps.start[1:]) & (recording[:-1] == recording[1:])
        )
        bare = np.setdiff1d(np.arange(len(begins)), recording)
        activities = (tables[name] for name in ("kernels", "copies") if len(bare))
        parts = (chunks_of(table, ("start_ns", "dur_ns")) for table in activities)
        first, last = extents(chain.from_iterable(parts), begins)
        worked = bare[first[bare] < last[bare]]
        start = np.concatenate([steps.start, steps.end[between], first[worked]])
        end = np.concatenate([steps.end, steps.start[1:][between], last[worked]])
        # A step without a length comes before the time that follows it.
        order = np.argsort(start, kind="stable")
        return cls(
            start[order],
            end[order],
            (np.arange(len(start)) < len(steps.start))[order],
            np.concatenate([recording, recording[between], worked])[order],
        )

    def shares(self, use: Use, at: Int) -> dict[str, Any]:
        """Return the length of these windows together, and the shares of a device in them."""
        length = int((self.end - self.start)[at].sum())
        own = use.at(at)
        sums = (np.array([column.sum()]) for column in own[1:5])
        known = (np.array([column.all()]) for column in own[5:])
        shares = use_pct(Use({}, *sums, *known), np.array([length]))
        return {"window_ns": length} | {name: share[0].as_py() for name, share in shares.items()}


def _rows(windows: StepWindows, host: StepWindows, device: int, use: Use | None) -> pa.Table:
    """Return the rows of a device; without use, those of a recording without any device."""
    count = len(windows.step)
    columns: dict[str, pa.Array] = {
        "device": int_array(np.full(count, device), NEVER),
        "step": pa.array(windows.step),
        "host_start_ns": pa.array(host.start),
        "host_dur_ns": pa.array(host.end - host.start),
        "start_ns": pa.array(windows.start),
        "dur_ns": pa.array(windows.end - windows.start),
    }
    if use is not None:
        columns |= {name: pa.array(time) for name, time in use.times.items()}
        columns |= {"busy_kernels_ns": pa.array(use.kernels)}
        columns |= {n: pa.array(v) for n, v in use_pct(use, windows.end - windows.start).items()}
    nothing = pa.nulls(count, pa.int64())
    known = [columns.get(column.name, nothing) for column in STEPS.columns[1:]]
    return pa.table(dict(zip(STEPS.names[1:], known, strict=True)))


def use_pct(use: Use, length: Int) -> dict[str, pa.Array]:
    """Return the shares that a use amounts to in windows of these lengths, null where unknown."""
    shares = (
        (use.kernels, length, length > 0),
        (use.sm, length, (length > 0) & use.sm_known),
        (use.occupancy / 100, use.kernel_time, (use.kernel_time > 0) & use.occupancy_known),
    )
    return {
        name: pa.array(100 * part / np.where(known, whole, 1), mask=~known)
        for name, (part, whole, known) in zip(SHARES, shares, strict=True)
    }
