"""The seam of the Kineto reader: a scanner makes columns of bytes, the builder tables of columns.

A scanner knows JSON and the keys of Kineto's events, and keeps nothing from one piece of a file to
the next. What the values mean, the builder knows; it sees neither bytes nor events. So one scanner
can stand for another, piece by piece, as long as their columns are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pyprof2.parsers._json import JsonStream

    Int: TypeAlias = NDArray[np.int64]
    Bool: TypeAlias = NDArray[np.bool_]

_ACTIVITY: Final = (
    "external_id", "correlation", "device", "stream", "bytes", "grid", "block", "registers",
    "shared_bytes", "blocks_per_sm", "occupancy", "graph_node",
)  # fmt: skip
_STALL: Final = ("device", "stream", "correlation", "recorded_by")

ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "op": (
        "external_id", "sequence_nr", "forward_thread", "dims", "strides", "types", "values",
        "backend", "stack", "modules", "collective", "comm_seq",
    ),
    "annotation": (),
    "python": (),
    "launch": ("external_id", "correlation"),
    "kernel": _ACTIVITY,
    "memcpy": _ACTIVITY,
    "memset": _ACTIVITY,
    "overhead": _STALL,
    "wait": _STALL,
    "memory": ("device_type", "device", "address", "bytes", "allocated", "reserved"),
    "flow": ("flow_id", "end"),
    "counter": ("values",),
}  # fmt: skip
"""The groups of events, and the columns of arguments that each has.

`collective` is None, or a tuple of what `COLLECTIVE` names; what of it was not recorded is None."""
COLLECTIVE: Final = (
    "collective", "in_count", "out_count", "comm_dtype", "group_size", "group_name", "group_id",
    "group_desc", "group_ranks", "first_rank", "rank_stride", "in_split", "out_split",
    "other_rank", "source_rank", "target_rank", "is_async",
)  # fmt: skip
"""What is recorded of a collective, beside its number, which each call has for itself."""
JSON_TEXTS: Final = frozenset({"dims", "strides", "types", "values", "grid", "block"})
"""Arguments that stay JSON, as bytes; empty where they were not recorded."""
MOMENTS: Final = frozenset({"memory", "flow", "counter"})
"""Groups of events that have a start but no duration: that is 0."""
MEMORY_NAME: Final = "[memory]"
"""The name of the instants of group `memory`; other instants are skipped."""

_CATEGORIES: Final = {
    "cpu_op": "op", "operator": "op",
    "user_annotation": "annotation", "python_function": "python",
    "kernel": "kernel", "mtia_ccp_events": "kernel",
    "gpu_memcpy": "memcpy", "memcpy": "memcpy",
    "gpu_memset": "memset", "memset": "memset",
    "runtime": "launch", "overhead": "overhead", "cuda_sync": "wait",
}  # fmt: skip


@dataclass(frozen=True)
class EventColumns:
    """The events of one group in a piece of a file, in the order of the file.

    Attributes:
        group: one of `ARGUMENTS`.
        name: their names, cut to `pyprof2.parsers._names.NAME_MAX`.
        pid, tid: as recorded, numbers or text; None where they were not.
        start_ns, dur_ns: the digits of the file as whole ns, rounded half up, without a base.
        timed: whether start and duration are numbers, and fit; where not, they are anything.
        args: the columns that `ARGUMENTS` names. Values are as recorded, whatever their type where
            that is not the usual one but for what cannot be decoded; None where there is none.
    """

    group: str
    name: Sequence[str]
    pid: Sequence[int | str | None]
    tid: Sequence[int | str | None]
    start_ns: Int
    dur_ns: Int
    timed: Bool
    args: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.name)

    def where(self, keep: Bool) -> EventColumns:
        """Return the events that `keep` marks."""
        if keep.all():
            return self
        marks = keep.tolist()
        return replace(
            self,
            name=list(compress(self.name, marks)),
            pid=list(compress(self.pid, marks)),
            tid=list(compress(self.tid, marks)),
            start_ns=self.start_ns[keep],
            dur_ns=self.dur_ns[keep],
            timed=self.timed[keep],
            args={key: list(compress(values, marks)) for key, values in self.args.items()},
        )


@dataclass(frozen=True)
class Scan:
    """What a piece of a file holds.

    Attributes:
        groups: its events, each group once, in the order in which they begin.
        skipped: how many events are in no group, by phase and category.
        count: how many events there are.
    """

    groups: list[EventColumns]
    skipped: Counter[tuple[str, str]]
    count: int


class Scanner(Protocol):
    """Makes columns of the events of a file.

    What is wrong with them it counts in `stream.problems`, and what it cannot decode at all it
    passes to `stream.salvage`, so that damage is mended the same way whoever scans.
    """

    def __init__(self, stream: JsonStream) -> None:
        """Make a scanner of the texts that `stream` yields."""

    def scan(self, text: bytes) -> Scan:
        """Return the events of one JSON array."""


def group_of(phase: str, category: str) -> str | None:
    """Return the group of events of a phase and category; None: they are in none."""
    if phase == "X":
        category = category.lower()
        if category.endswith(("_runtime", "_driver")):
            return "launch"
        return _CATEGORIES.get(category)
    if phase == "i" and category in ("", "cpu_instant_event"):
        return "memory"
    if phase == "C":
        return "counter"
    return "flow" if phase in ("s", "f") and category == "fwdbwd" else None
