"""The raw tables of devices and what reaches them: launches, activities, stalls, memory, flows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.parsers._columns import Meaning
from pyprof2.parsers._kineto_shared import Shared, is_sensible
from pyprof2.parsers._kineto_values import addresses, copy_kind_code, dim3_code, whole_numbers
from pyprof2.parsers._stalls import DEVICE_WAIT, overhead_kind, wait_kind
from pyprof2.problems import EVENT_TIME

if TYPE_CHECKING:
    from pyprof2.parsers._columns import Texts, Values
    from pyprof2.parsers._kineto_columns import EventColumns

_NO_ID: Final = (1 << 32) - 1
_MTIA_WAITS: Final = ("event_wait", "event_record")
_MTIA_COPY: Final = "dma_request"
_DIRECTIONS: Final = {
    "HOST_TO_DEVICE": "h2d", "DEVICE_TO_HOST": "d2h", "DEVICE_TO_DEVICE": "d2d",
}  # fmt: skip
_DEVICE_TYPES: Final = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 20: "privateuse1"}


class DeviceTables:
    """Appends to the tables of devices."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._same_ids = [0, 0]

    @property
    def trusts_external_ids(self) -> bool:
        """Whether the external ids of launches are more than their correlation ids again."""
        same, count = self._same_ids
        return same * 2 <= count

    def add_launches(self, events: EventColumns) -> None:
        """Append launches."""
        events, columns = self._shared.times(events)
        columns |= self._shared.thread(events) | {
            "name": self._shared.coded("launches", "name", events.name),
            "correlation_id": self._shared.numbers.ints(events.args["correlation"]),
            "recorded_id": self._shared.numbers.ints(events.args["external_id"]),
        }
        self._shared.spool.append("launches", columns, len(events))

    def add_stalls(self, events: EventColumns) -> None:
        """Append overheads and waits. They are no work: the span does not hold them."""
        events, columns = self._shared.times(events, may_be_zero=False, in_span=False)
        is_overhead = events.group == "overhead"
        kinds, kind_of = (
            self._shared.spool.texts["stalls"]["kind"],
            overhead_kind if is_overhead else wait_kind,
        )
        kind = self._shared.meaning("stalls", events.group, lambda name: kinds[kind_of(name)])
        columns |= {
            "name": self._shared.coded("stalls", "name", events.name),
            "kind": kind.column(events.name),
            "device": self._ids(events.args["device"]),
            "stream": self._ids(events.args["stream"]),
            "correlation_id": self._ids(events.args["correlation"], least=1),
            "waits_for_correlation_id": self._ids(events.args["recorded_by"], least=1),
            "waits_for_stream": self._ids(events.args["recorded_on"]),
        }
        if is_overhead:  # a wait stands on the device and its stream
            thread = self._shared.thread(events)
            columns |= {"pid": _known(thread["pid"]), "tid": _known(thread["tid"], least=1)}
        self._shared.spool.append("stalls", columns, len(events))

    def _ids(self, values: Values, least: int = 0) -> pa.Array:
        return _known(self._shared.numbers.ints(values), least)

    def add_activities(self, events: EventColumns) -> None:
        """Append kernels, copies and fills."""
        # The driver hands over records that it never filled in: they have no time at all.
        events, columns = self._shared.times(events, may_be_zero=False)
        texts, args, ints = (
            self._shared.spool.texts["activities"],
            events.args,
            self._shared.numbers.ints,
        )
        correlation, external = ints(args["correlation"]), ints(args["external_id"])
        self._same_ids[0] += pc.sum(pc.equal(correlation, external)).as_py() or 0
        self._same_ids[1] += len(events)
        columns |= {
            "correlation_id": correlation,
            "recorded_id": external,
            "device": ints(args["device"].filled(events.pid)),
            "stream": self._shared.thread_ids(args["stream"].filled(events.tid)),
            "kernel": self._shared.coded("activities", "kernel", events.name),
            "kind": np.full(len(events), texts["kind"][events.group], np.int32),
            "bytes": ints(args["bytes"]),
            "grid": self._dim3("grid", args["grid"]),
            "block": self._dim3("block", args["block"]),
            "registers": ints(args["registers"]),
            "shared_bytes": ints(args["shared_bytes"]),
            "blocks_per_sm": self._shared.numbers.floats(args["blocks_per_sm"]),
            "occupancy_pct": self._shared.numbers.floats(args["occupancy"]),
            "graph_node_id": ints(args["graph_node"].without_zeros()),
        }
        if events.group == "memcpy":
            kinds = self._shared.meaning(
                "activities", "copy_kind", lambda name: copy_kind_code(texts["copy_kind"], name)
            )
            columns["copy_kind"] = kinds.column(events.name)
        if events.group == "memcpy" and "direction" in args:
            codes = texts["copy_kind"]
            ways = self._shared.meaning(
                "mtia",
                "copy_kind",
                lambda way: codes[_DIRECTIONS[way]] if way in _DIRECTIONS else None,
            )
            columns["copy_kind"] = ways.column(args["direction"])
            columns["bytes"] = ints(args["bytes"].filled(args["size"]))
        self._shared.spool.append("activities", columns, len(events))

    def add_mtia(self, events: EventColumns) -> None:
        """Append what an MTIA device did: work, copies, and what its queues waited for."""
        waits = Meaning(_MTIA_WAITS.__contains__).flags(events.name)
        copies = Meaning(lambda name: name == _MTIA_COPY).flags(events.name)
        self._add_device_waits(events.where(waits))
        self.add_activities(replace(events.where(copies), group="memcpy"))
        self.add_activities(replace(events.where(~waits & ~copies), group="kernel"))

    def _add_device_waits(self, events: EventColumns) -> None:
        """Append waits of queues as calls, and as stalls of their device."""
        self.add_launches(events)
        events, columns = self._shared.times(events, may_be_zero=False, in_span=False)
        kind = self._shared.spool.texts["stalls"]["kind"][DEVICE_WAIT]
        columns |= {
            "name": self._shared.coded("stalls", "name", events.name),
            "kind": np.full(len(events), kind, np.int32),
            "device": self._ids(events.args["device"].filled(events.pid)),
            "stream": self._ids(events.args["stream"]),
            "waits_for_stream": self._ids(events.args["recorded_on"]),
        }
        self._shared.spool.append("stalls", columns, len(events))

    def _dim3(self, column: str, texts: Texts) -> pa.Array:
        codes = self._shared.spool.texts["activities"][column]
        return self._shared.meaning("activities", column, lambda raw: dim3_code(codes, raw)).column(
            texts
        )

    def add_memory(self, events: EventColumns) -> None:
        """Append allocations and releases."""
        good = events.timed & is_sensible(events.start_ns)
        if not good.all():
            self._shared.problems[EVENT_TIME] += int((~good).sum())
            events = events.where(good)
        args, ints = events.args, self._shared.numbers.ints
        device = whole_numbers(args["device"])
        columns = self._shared.thread(events) | {
            "time_ns": events.start_ns,
            "device_type": self._device_types(whole_numbers(args["device_type"])),
            "device": pc.if_else(pc.greater_equal(device, 0), device, None),
            "address": addresses(args["address"]),
            "bytes": ints(args["bytes"]),
            "allocated_bytes": ints(args["allocated"]),
            "reserved_bytes": ints(args["reserved"]),
        }
        self._shared.spool.append("memory", columns, len(events))

    def _device_types(self, numbers: pa.Array) -> pa.Array:
        """Return PyTorch's numbers of kinds of devices as codes; null for one of no known kind."""
        codes = self._shared.spool.texts["memory"]["device_type"]
        kinds = {n: _DEVICE_TYPES.get(n) for n in pc.unique(numbers).to_pylist()}
        column = pa.nulls(len(numbers), pa.int32())
        for number, kind in kinds.items():
            if kind is not None:
                column = pc.if_else(pc.equal(numbers, number).fill_null(False), codes[kind], column)  # noqa: FBT003
        return column

    def add_flows(self, events: EventColumns) -> None:
        """Append either end of the recorder's own pairs."""
        columns = self._shared.thread(events) | {
            "flow_id": self._shared.numbers.ints(events.args["flow_id"]),
            "end": events.args["end"],
            "time_ns": pa.array(events.start_ns, mask=~events.timed),
        }
        self._shared.spool.append("flows", columns, len(events))


def _known(ids: pa.Array, least: int = 0) -> pa.Array:
    """Return ids; null for -1, signed or not, and for others below `least`: none was recorded."""
    known = pc.and_(pc.greater_equal(ids, least), pc.not_equal(ids, _NO_ID))
    return pc.if_else(known, ids, None)
