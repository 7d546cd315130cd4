"""The raw tables of devices: launches, activities, stalls, memory, flows, and counters."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.parsers._columns import Meaning, is_sensible, known_ids
from pyprof2.parsers._json import DECODE_ERRORS
from pyprof2.parsers._kineto_values import (
    TableContext,
    addresses,
    copy_kind_code,
    dim3_code,
    whole_numbers,
)
from pyprof2.parsers._names import DEVICE_WAIT, cut_name, overhead_kind, wait_kind
from pyprof2.problems import COUNTERS, EVENT_TIME

if TYPE_CHECKING:
    from collections import Counter

    from pyprof2.parsers._columns import Texts, Values
    from pyprof2.parsers._kineto_columns import EventColumns
    from pyprof2.parsers._kineto_values import TableContext

_MTIA_WAITS: Final = ("event_wait", "event_record")
_MTIA_COPY: Final = "dma_request"
_DIRECTIONS: Final = {
    "HOST_TO_DEVICE": "h2d", "DEVICE_TO_HOST": "d2h", "DEVICE_TO_DEVICE": "d2d",
}  # fmt: skip
_DEVICE_TYPES: Final = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 20: "privateuse1"}


class DeviceTables:
    """Appends to the tables of devices."""

    def __init__(self, shared: TableContext) -> None:
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
        if "kernel" in events.args:
            columns |= self._launched(events)
        self._shared.spool.append("launches", columns, len(events))

    def _launched(self, events: EventColumns) -> dict[str, pa.Array]:
        """Return what calls launch, as AMD's recorder says it of each: of what is captured, too."""
        codes, problems = self._shared.spool.texts["launches"]["kernel"], self._shared.problems
        names = self._shared.meaning(
            "launches", "kernel", lambda name: codes[cut_name(name, problems)] if name else None
        )
        return {
            "kernel": names.column(events.args["kernel"]),
            "grid": self._dim3("launches", "grid", events.args["grid"]),
            "block": self._dim3("launches", "block", events.args["block"]),
        }

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
            "process": self._shared.labels("stalls", events.pid),
        }
        if is_overhead:  # a wait stands on the device and its stream
            thread = self._shared.thread(events)
            columns |= {"pid": known_ids(thread["pid"]), "tid": known_ids(thread["tid"], least=1)}
        self._shared.spool.append("stalls", columns, len(events))

    def _ids(self, values: Values, least: int = 0) -> pa.Array:
        return known_ids(self._shared.numbers.ints(values), least)

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
            "stream": self._shared.thread_ids(args["stream"].filled(events.tid), "stream"),
            "kernel": self._shared.coded("activities", "kernel", events.name),
            "kind": np.full(len(events), texts["kind"][events.group], np.int32),
            "bytes": ints(args["bytes"]),
            "grid": self._dim3("activities", "grid", args["grid"]),
            "block": self._dim3("activities", "block", args["block"]),
            "registers": ints(args["registers"]),
            "shared_bytes": ints(args["shared_bytes"]),
            "blocks_per_sm": self._shared.numbers.floats(args["blocks_per_sm"]),
            "occupancy_pct": self._shared.numbers.floats(args["occupancy"]),
            "graph_node_id": ints(args["graph_node"].without_zeros()),
            "context": ints(args["context"]),
            "process": self._shared.labels("activities", events.pid),
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
        self.add_activities(replace(events.where(copies), group="memcpy"))
        self.add_activities(replace(events.where(~waits & ~copies), group="kernel"))
        # Waits of queues are calls, and stalls of their device.
        events = events.where(waits)
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

    def _dim3(self, table: str, column: str, texts: Texts) -> pa.Array:
        codes = self._shared.spool.texts[table][column]
        return self._shared.meaning(table, column, lambda raw: dim3_code(codes, raw)).column(texts)

    def add_memory(self, events: EventColumns) -> None:
        """Append allocations and releases."""
        good = events.timed & is_sensible(events.start_ns)
        if not good.all():
            self._shared.problems[EVENT_TIME] += int((~good).sum())
            events = events.where(good)
        args, ints = events.args, self._shared.numbers.ints
        device, kinds = whole_numbers(args["device"]), whole_numbers(args["device_type"])
        codes = self._shared.spool.texts["memory"]["device_type"]
        device_types = pa.nulls(len(events), pa.int32())
        for number in pc.unique(kinds).to_pylist():
            if number in _DEVICE_TYPES:
                is_kind = pc.equal(kinds, number).fill_null(False)  # noqa: FBT003
                device_types = pc.if_else(is_kind, codes[_DEVICE_TYPES[number]], device_types)
        columns = self._shared.thread(events) | {
            "time_ns": events.start_ns,
            "device_type": device_types,
            "device": pc.if_else(pc.greater_equal(device, 0), device, None),
            "address": addresses(args["address"]),
            "bytes": ints(args["bytes"]),
            "allocated_bytes": ints(args["allocated"]),
            "reserved_bytes": ints(args["reserved"]),
        }
        self._shared.spool.append("memory", columns, len(events))

    def add_flows(self, events: EventColumns) -> None:
        """Append either end of the recorder's own pairs."""
        columns = self._shared.thread(events) | {
            "flow_id": self._shared.numbers.ints(events.args["flow_id"]),
            "end": events.args["end"],
            "time_ns": pa.array(events.start_ns, mask=~events.timed),
        }
        self._shared.spool.append("flows", columns, len(events))


_SERIES: Final = msgspec.json.Decoder(list[dict[str, float]])
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NUMBER: Final = msgspec.json.Decoder(float)
_DEVICE: Final = re.compile(r"GPU (\d{1,9})\b")
"""How a device names itself where the id of a process should be: `GPU 0 Counters`."""
_IDS: Final = frozenset(
    {"External id", "external id", "correlation", "device", "stream", "context"}
)
"""Arguments of a range that say where it belongs; the others are what was counted over it."""


class CounterTable:
    """Appends the values of counters, a row each; what is no finite number is skipped."""

    def __init__(self, shared: TableContext, skipped: Counter[str]) -> None:
        self._shared, self._skipped = shared, skipped

    def add_samples(self, events: EventColumns) -> None:
        """Append what counters were at a moment: each argument is one series of its counter."""
        events, columns = self._shared.times(events, in_span=False)
        device, pid = _named_devices(events.pid), self._shared.thread_ids(events.pid, "process")
        about = {
            "time_ns": pa.array(columns["start_ns"]),
            "pid": pc.if_else(device.is_null(), pid, None),
            "device": device,
            "name": self._shared.coded("counters", "name", events.name),
        }
        self._append(about, "series", self._series(events))

    def add_ranges(self, events: EventColumns) -> None:
        """Append what was counted over ranges on a device: each argument is a counter."""
        events, columns = self._shared.times(events, may_be_zero=False, in_span=False)
        device = pc.coalesce(whole_numbers(events.pid), _named_devices(events.pid))
        about = {
            "time_ns": pa.array(columns["start_ns"]),
            "dur_ns": pa.array(columns["dur_ns"]),
            "device": pc.if_else(pc.greater_equal(device, 0), device, None),
            "range": self._shared.coded("counters", "range", events.name),
        }
        self._append(about, "name", self._series(events, _IDS))

    def _append(
        self, about: dict[str, pa.Array], key_column: str, series: list[dict[str, float]]
    ) -> None:
        """Append a row for each value, with its key, and with what is about its event."""
        of = pa.array(np.repeat(np.arange(len(series)), [*map(len, series)]), pa.int64())
        codes, problems = self._shared.spool.texts["counters"][key_column], self._shared.problems
        keys = [key for each in series for key in each]
        code_of = {key: codes[cut_name(key, problems)] for key in dict.fromkeys(keys) if key}
        columns = {name: column.take(of) for name, column in about.items()} | {
            key_column: pa.array([*map(code_of.get, keys)], pa.int32()),
            "value": pa.array([value for each in series for value in each.values()], pa.float64()),
        }
        self._shared.spool.append("counters", columns, len(of))

    def _series(
        self, events: EventColumns, but: frozenset[str] = frozenset()
    ) -> list[dict[str, float]]:
        """Return the arguments of each event that are numbers, but for these."""
        raws = [raw or b"{}" for raw in events.args["series"].to_list()]
        try:
            found = _SERIES.decode(b"[" + b",".join(raws) + b"]")
        except (msgspec.ValidationError, *DECODE_ERRORS):
            return [self._numbers(raw, but) for raw in raws]
        if but:
            found = [{k: v for k, v in each.items() if k not in but} for each in found]
        self._count_skipped(found.count({}))
        return found

    def _numbers(self, raw: bytes, but: frozenset[str]) -> dict[str, float]:
        """Return the numbers among the arguments of one event, some of which are none."""
        try:
            fields = _FIELDS.decode(raw)
        except (msgspec.ValidationError, *DECODE_ERRORS):
            fields = {}
        found = {}
        wanted = [key for key in fields if key not in but]
        for key in wanted:
            with contextlib.suppress(msgspec.ValidationError, *DECODE_ERRORS):
                found[key] = _NUMBER.decode(fields[key])
        self._count_skipped(len(wanted) - len(found) if wanted else 1)
        return found

    def _count_skipped(self, count: int) -> None:
        if count:
            self._skipped[COUNTERS] += count


def _named_devices(pids: Values) -> pa.Array:
    """Return the devices that ids of processes name; null for ids of processes."""
    if pids.as_ints() is not None:
        return pa.nulls(len(pids), pa.int64())
    known = pids.to_list()
    found = {pid: _DEVICE.match(pid) for pid in {*known} if isinstance(pid, str)}
    devices = {pid: int(match[1]) for pid, match in found.items() if match}
    return pa.array([devices.get(pid) for pid in known], pa.int64())
