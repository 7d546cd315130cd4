"""What held the host or a stream up, as Nsight Systems records it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.parsers._nsight_rows import ID_MASK, codes_array, ints
from pyprof2.parsers._stalls import OTHER, PROFILER, STREAM_WAIT_NAME, overhead_kind, wait_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.parsers._nsight_rows import Columns, Process, Strings

WAITS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
WAIT_COLUMNS: Final = ("deviceId", "streamId", "correlationId", "eventId")
OVERHEADS: Final[Mapping[str, str]] = {
    "CUPTI_ACTIVITY_KIND_OVERHEAD": OTHER,
    "PROFILER_OVERHEAD": PROFILER,
}
"""The kind of what is in a table, unless its name says another."""
OVERHEAD_COLUMNS: Final = ("globalTid", "nameId", "correlationId")

_NO_NUMBER: Final = (1 << 32) - 1
_WAIT_NAMES: Final = ("Context Sync", "Event Sync", "Stream Sync", STREAM_WAIT_NAME)
"""By whether it names an event, plus 2 if it names a stream; as torch.profiler writes them."""


def overheads(process: Process, rows: Columns, strings: Strings, otherwise: str) -> Columns:
    """Return columns of `stalls` for rows of a table of overheads."""
    texts = process.spool.texts["stalls"]
    names = strings.codes(rows["nameId"], texts["name"])
    kinds = [texts["kind"][overhead_kind(name, otherwise)] for name in texts["name"]]
    kinds.append(texts["kind"][otherwise])  # at -1: of what has no name
    return {
        "tid": pc.bit_wise_and(rows["globalTid"], ID_MASK),
        "name": names,
        "kind": codes_array(np.array(kinds, np.int32)[ints(names, -1)]),
        "correlation_id": _known(rows["correlationId"], least=1),
    }


def waits(process: Process, rows: Columns) -> Columns:
    """Return columns of `stalls` for rows of the table of synchronisations.

    What a row waits for is known from what it names, a stream, an event, both or neither: versions
    of nsys number the types of synchronisation differently.
    """
    texts = process.spool.texts["stalls"]
    stream, event = _known(rows["streamId"]), _known(rows["eventId"])
    which = ints(event.is_valid().cast(pa.int64())) + 2 * ints(stream.is_valid().cast(pa.int64()))
    names = [texts["name"][name] for name in _WAIT_NAMES]
    kinds = [texts["kind"][wait_kind(name)] for name in _WAIT_NAMES]
    return {
        "device": rows["deviceId"],
        "stream": stream,
        "name": codes_array(np.array(names, np.int32)[which]),
        "kind": codes_array(np.array(kinds, np.int32)[which]),
        "correlation_id": _known(rows["correlationId"], least=1),
    }


def _known(column: pa.Array, least: int = 0) -> Any:
    """Return a column of ids; null for the number that stands for none, and below `least`."""
    known = pc.and_(pc.greater_equal(column, least), pc.not_equal(column, _NO_NUMBER))
    return pc.if_else(known, column, None)
