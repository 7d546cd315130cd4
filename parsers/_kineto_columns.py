"""The seam of the Kineto reader: a scanner makes columns of bytes, the builder tables of columns.

A scanner knows JSON and the keys of Kineto's events, and keeps nothing from one chunk of a file to
the next but the dictionaries of texts. The builder knows what the values mean; it sees neither
bytes nor events. So one scanner can stand for another, chunk by chunk, as long as their columns are
equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from pyprof2.parsers._columns import Meaning

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from pyprof2.parsers._columns import Bool, Int, Texts, Values
    from pyprof2.parsers._json import JsonStream

Takes: TypeAlias = Literal["number", "id", "text", "json", "all"]
"""Types that a field may have: a number, a whole number, or text for either of these; a text; any
JSON, which stays as it stands in the file; or all arguments together, as such JSON. `null` and
nothing are no value, but for JSON."""


class EventArgument(NamedTuple):
    """A field of the arguments of events: the first of the keys that has a value counts.

    All arguments together have no key, and are the only column of their group.
    """

    takes: Takes
    keys: tuple[str, ...]


def _number(*keys: str) -> EventArgument:
    return EventArgument("number", keys)


def _json(*keys: str) -> EventArgument:
    return EventArgument("json", keys)


def _text(*keys: str) -> EventArgument:
    return EventArgument("text", keys)


_EXTERNAL_ID: Final = _number("External id", "external id")
_ACTIVITY: Final = {
    "external_id": _EXTERNAL_ID,
    "correlation": _number("correlation"),
    "device": _number("device", "inDevice"),
    "stream": EventArgument("id", ("stream",)),
    "bytes": _number("bytes"),
    "grid": _json("grid"),
    "block": _json("block"),
    "registers": _number("registers per thread"),
    "shared_bytes": _number("shared memory"),
    "blocks_per_sm": _number("blocks per SM"),
    "occupancy": _number("est. achieved occupancy %"),
    "graph_node": _number("graph node id"),
    "context": _number("context"),
}
_MTIA: Final = _ACTIVITY | {
    "direction": _text("direction"),
    "size": _number("size"),
    "recorded_on": _number("wait_on_stream"),
}
_STALL: Final = {
    "device": _number("device"),
    "stream": _number("stream"),
    "correlation": _number("correlation"),
    "recorded_by": _number("wait_on_cuda_event_record_corr_id"),
    "recorded_on": _number("wait_on_stream"),
}
_SERIES: Final = {"series": EventArgument("all", ())}

BEGIN: Final = "begin "
"""The prefix of the name of a group of beginnings, which are events of phase B."""
END: Final = "end"
"""The group of events of phase E."""
UNKNOWN: Final = "unknown"
"""The group of beginnings that no table has a place for; their ends belong to them."""

FOREIGN: Final = "foreign "
"""The prefix of the name of a group of events that may be work of a device that is not read."""
FOREIGN_KINDS: Final = ("hpu", "npu", "device", "")
"""Their kinds: words in their categories; the last one is of those without a category."""
_DEVICES: Final = frozenset({
    "ascend", "device", "gcu", "ipu", "mlu", "musa", "neuron", "tpu", "xla",
})  # fmt: skip
"""Other words in such categories."""
_FOREIGN: Final = {
    "task": _text("Task Type", "task type"),
    "stream": EventArgument("id", ("Stream Id", "stream id", "stream")),
    "device": EventArgument("id", ("Device Id", "device id", "device")),
}

_DIMS: Final = _json("Input Dims", "Input dims")
_TYPES: Final = _json("Input type")

_WHOLE: Final[Mapping[str, Mapping[str, EventArgument]]] = {
    "op": {
        "external_id": _EXTERNAL_ID,
        "record_id": _number("Record function id"),
        "sequence_nr": _number("Sequence number"),
        "forward_thread": _number("Fwd thread id"),
        "comm_seq": _number("Seq"),
        "backend": _text("kernel_backend"),
        "stack": _text("Call stack"),
        "modules": _text("Module Hierarchy"),
    },
    "annotation": {"dims": _DIMS, "types": _TYPES},
    "python": {
        "frame": _number("Python id"),
        "caller": _number("Python parent id"),
    },
    "launch": {
        "external_id": _EXTERNAL_ID,
        "correlation": _number("correlation"),
        "kernel": _text("kernel"),
        "grid": _json("grid"),
        "block": _json("block"),
    },
    "kernel": _ACTIVITY,
    "memcpy": _ACTIVITY,
    "memset": _ACTIVITY,
    "mtia": _MTIA,
    "overhead": _STALL,
    "wait": _STALL,
}
"""The groups of events that last."""
ARGUMENTS: Final[Mapping[str, Mapping[str, EventArgument]]] = {
    **_WHOLE,
    **{BEGIN + group: columns for group, columns in _WHOLE.items()},
    BEGIN + UNKNOWN: {},
    END: {},
    "memory": {
        "device_type": _number("Device Type"),
        "device": _number("Device Id"),
        "address": _number("Addr"),
        "bytes": _number("Bytes"),
        "allocated": _number("Total Allocated"),
        "reserved": _number("Total Reserved"),
    },
    "flow": {},
    **{FOREIGN + kind: _FOREIGN for kind in FOREIGN_KINDS},
    "device annotation": {"external_id": _EXTERNAL_ID},
    "counter": _SERIES,
    "counted range": _SERIES,
}
"""The groups of events, and the columns of arguments that each has. Here they are, with their keys
in the file, and nowhere else: both scanners are made from this."""
INPUTS: Final[Mapping[str, EventArgument]] = {
    "dims": _DIMS,
    "types": _TYPES,
    "strides": _json("Input Strides"),
    "values": _json("Concrete Inputs"),
}
"""Arguments that describe the inputs of an op."""
COLLECTIVE: Final[Mapping[str, EventArgument]] = {
    "collective": _text("Collective name"),
    "in_count": _number("In msg nelems"),
    "out_count": _number("Out msg nelems"),
    "comm_dtype": _text("dtype"),
    "group_size": _number("Group size"),
    "group_name": _number("Process Group Name"),
    "group_id": _number("Process Group ID"),
    "group_desc": _text("Process Group Description"),
    "group_ranks": _text("Process Group Ranks"),
    "first_rank": _number("Global rank start"),
    "rank_stride": _number("Global rank stride"),
    "in_split": _text("In split size"),
    "out_split": _text("Out split size"),
    "other_rank": _number("Rank"),
    "source_rank": _number("Src Rank"),
    "target_rank": _number("Dst Rank"),
    "is_async": _json("Is asynchronized op"),
}
"""Arguments that describe a collective, beside its number, which each call has for itself."""
CALL: Final[Mapping[str, EventArgument]] = {**INPUTS, **COLLECTIVE}
"""How calls of an op of one name differ: the parts of column `call` of `op`."""
WITH_CALLS: Final = ("op", BEGIN + "op")
"""The groups that have a column `call`."""
MOMENTS: Final = frozenset(
    {"memory", "flow", "counter", END, BEGIN + UNKNOWN, *(BEGIN + group for group in _WHOLE)}
)
"""Groups of events that have a start but no duration: that is 0."""
MEMORY_NAME: Final = "[memory]"
"""The name of the instants of group `memory`; other instants are skipped."""
PHASE_OF_END: Final = "f"
"""The phase of the flow that ends a pair."""

_CATEGORIES: Final = {
    "cpu_op": "op", "operator": "op",
    "user_annotation": "annotation", "python_function": "python",
    "kernel": "kernel", "mtia_ccp_events": "mtia",
    "gpu_memcpy": "memcpy", "memcpy": "memcpy",
    "gpu_memset": "memset", "memset": "memset",
    "runtime": "launch", "overhead": "overhead", "cuda_sync": "wait",
    "cuda_profiler_range": "counted range", "gpu_user_annotation": "device annotation",
}  # fmt: skip


class Call(NamedTuple):
    """An op's name and the JSON texts that describe its inputs; empty where not recorded."""

    op: str
    dims: bytes
    types: bytes
    strides: bytes
    values: bytes
    comm: tuple[Any, ...] | None
    """For a collective the values that `COLLECTIVE` names; None for those not recorded."""


@dataclass(frozen=True)
class EventColumns:
    """The events of one group in a chunk of a file, in the order of the file.

    Attributes:
        group: one of `ARGUMENTS`.
        name: their names, cut to `pyprof2.parsers._names.NAME_MAX`.
        pid, tid: as recorded, numbers or text.
        start_ns, dur_ns: the digits of the file as whole ns, rounded half up, without a base.
        timed: whether start and duration are numbers, and fit; where not, they are anything.
        args: the columns that `ARGUMENTS` names: `Texts` of texts and of JSON, which is bytes,
            `Values` of all else, as recorded, whatever their type where that is not the usual one
            but for what cannot be decoded. Ops also have `call`: `Texts` whose words are `Call`;
            flows `flow_id`, and `end`: whether it is the one that ends.
    """

    group: str
    name: Texts
    pid: Values
    tid: Values
    start_ns: Int
    dur_ns: Int
    timed: Bool
    args: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.name)

    def where(self, keep: Bool) -> EventColumns:
        """Return the events that `keep` marks."""
        if keep.all():
            return self
        return replace(
            self,
            name=self.name[keep],
            pid=self.pid[keep],
            tid=self.tid[keep],
            start_ns=self.start_ns[keep],
            dur_ns=self.dur_ns[keep],
            timed=self.timed[keep],
            args={key: values[keep] for key, values in self.args.items()},
        )


@dataclass(frozen=True)
class Scan:
    """The contents of a chunk of a file.

    Attributes:
        groups: its events, each group once, in the order in which they begin.
        skipped: how many events are in no group, by phase and category.
        count: how many events there are.
        scanner: who scanned it, by name.
    """

    groups: list[EventColumns]
    skipped: Counter[tuple[str, str]]
    count: int
    scanner: str


class Scanner(Protocol):
    """Makes columns of the events of a file.

    It counts in `stream.problems` what is wrong with them; what it cannot decode at all it
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
        words = set(re.findall(r"[a-z]+", category)) if category else {""}
        words |= {"device"} if words & _DEVICES else set()
        foreign = next((FOREIGN + kind for kind in FOREIGN_KINDS if kind in words), None)
        return _CATEGORIES.get(category, foreign)
    if phase == "i" and category in ("", "cpu_instant_event"):
        return "memory"
    if phase == "C":
        return "counter"
    if phase in ("B", "E"):
        whole = group_of("X", category) or UNKNOWN
        return END if phase == "E" else BEGIN + (whole if whole in _WHOLE else UNKNOWN)
    return "flow" if phase in ("s", "f") and category == "fwdbwd" else None


def finished(stream: JsonStream, found: Scan) -> Scan:
    """Return a scan without the instants that are not of memory, and count what is damaged."""
    is_memory = Meaning(lambda name: name == MEMORY_NAME)
    groups, skipped = [], found.skipped
    for events in found.groups:
        kept = events
        if events.group == "memory":
            kept = events.where(is_memory.flags(events.name))
            if len(kept) < len(events):
                skipped["i", ""] += len(events) - len(kept)
        if len(kept):
            groups.append(kept)
    for (phase, _), times in skipped.items():
        if not phase:
            stream.count_damaged(times)
    return replace(found, groups=groups)
