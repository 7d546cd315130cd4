"""The raw table of counters: what was sampled at a moment, or counted over a range on a device."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.parsers._json import DECODE_ERRORS
from pyprof2.parsers._kineto_values import whole_numbers
from pyprof2.parsers._names import cut_name
from pyprof2.problems import COUNTERS

if TYPE_CHECKING:
    from collections import Counter

    from pyprof2.parsers._columns import Values
    from pyprof2.parsers._kineto_columns import EventColumns
    from pyprof2.parsers._kineto_shared import Shared

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

    def __init__(self, shared: Shared, skipped: Counter[str]) -> None:
        self._shared, self._skipped = shared, skipped

    def add_samples(self, events: EventColumns) -> None:
        """Append what counters were at a moment: each argument is one series of its counter."""
        events, columns = self._shared.times(events, in_span=False)
        device, pid = _named_devices(events.pid), self._shared.thread_ids(events.pid)
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
