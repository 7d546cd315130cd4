"""GPU work, and what held the host or a stream up, of Nsight Systems' tables as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.parsers._columns import known_ids
from pyprof2.parsers._names import (
    COPY_KINDS,
    OTHER,
    PROFILER,
    STREAM_WAIT_NAME,
    overhead_kind,
    wait_kind,
)
from pyprof2.parsers._nsight_rows import ID_MASK, amounts, codes_array, distinct, ints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.parsers._nsight_rows import Columns, Process, Strings
    from pyprof2.recording import TextCodes

KERNEL_COLUMNS: Final = (
    "demangledName", "shortName", "registersPerThread", "gridX", "gridY", "gridZ", "blockX",
    "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory",
)  # fmt: skip
COPY_COLUMNS: Final = ("bytes", "copyKind", "srcKind", "dstKind")
SET_COLUMNS: Final = ("bytes", "memKind")
GRAPH_COLUMNS: Final = ("graphId",)
_COPY_WORDS: Final = (
    None, "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP",
    "HtoD", "DtoH", "DtoD",
)  # fmt: skip
"""By `copyKind`; the last three are of unified memory."""
_MEMORY_WORDS: Final = (
    "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static",
    "Unknown",
)  # fmt: skip
"""By `srcKind`, `dstKind` and `memKind`."""
_KINDS: Final = 32
"""More kinds of copies, and of memory, than there are."""

WAITS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
WAIT_COLUMNS: Final = ("deviceId", "streamId", "correlationId", "eventId")
OVERHEADS: Final[Mapping[str, str]] = {
    "CUPTI_ACTIVITY_KIND_OVERHEAD": OTHER,
    "PROFILER_OVERHEAD": PROFILER,
}
"""The kind of what is in a table, unless its name says another."""
OVERHEAD_COLUMNS: Final = ("globalTid", "nameId", "correlationId")

_WAIT_NAMES: Final = ("Context Sync", "Event Sync", "Stream Sync", STREAM_WAIT_NAME)
"""By whether it names an event, plus 2 if it names a stream; as torch.profiler writes them."""


def kernels(
    process: Process, rows: Columns, strings: Strings, devices: list[dict[str, Any]]
) -> Columns:
    """Return columns of `activities` for rows of the table of kernels."""
    texts = process.spool.texts["activities"]
    names = [rows["demangledName"], rows["shortName"]]
    grid, block = ([amounts(rows[f"{name}{axis}"]) for axis in "XYZ"] for name in ("grid", "block"))
    shared = [amounts(rows[f"{name}SharedMemory"]) for name in ("static", "dynamic")]
    return {
        "kernel": pc.coalesce(*(strings.codes(ids, texts["kernel"]) for ids in names)),
        "grid": _triples(grid, texts["grid"]),
        "block": _triples(block, texts["block"]),
        "blocks_per_sm": _blocks_per_sm(grid, rows["deviceId"], devices),
        "registers": amounts(rows["registersPerThread"]),
        "shared_bytes": pc.add(*shared),
    }


def _triples(axes: list[pa.Array], codes: TextCodes) -> pa.Array:
    """Return the codes of `x,y,z`; null where one of them is."""
    texts = pc.binary_join_element_wise(*(axis.cast(pa.string()) for axis in axes), ",")
    encoded = texts.dictionary_encode()
    table = np.array([codes[text] for text in encoded.dictionary.to_pylist()], np.int32)
    return pa.array(table).take(encoded.indices)


def _blocks_per_sm(
    grid: list[pa.Array], device: pa.Array, devices: list[dict[str, Any]]
) -> pa.Array:
    """Return how many blocks of each kernel come on one multiprocessor of its device."""
    blocks = np.prod([ints(axis, -1).astype(np.float64) for axis in grid], axis=0)
    known = np.all([ints(axis, -1) >= 0 for axis in grid], axis=0)
    units = {d["device"]: d["multiprocessors"] or 0 for d in devices}
    ordinals, place = np.unique(ints(device), return_inverse=True)
    count = np.array([units.get(ordinal, 0) for ordinal in ordinals.tolist()])[place.reshape(-1)]
    known &= count > 0
    return pa.array(blocks / np.maximum(count, 1), mask=~known)


def copies(process: Process, rows: Columns) -> Columns:
    """Return columns of `activities` for rows of the table of copies."""
    texts = process.spool.texts["activities"]
    kinds = [np.clip(ints(rows[name]), -1, _KINDS - 2) + 1 for name in COPY_COLUMNS[1:]]
    shape = (_KINDS,) * len(kinds)
    unique, at = distinct(np.ravel_multi_index(kinds, shape), _KINDS ** len(kinds))
    found = [_copy_texts(*(int(kind) - 1 for kind in np.unravel_index(k, shape))) for k in unique]
    names = [texts["kernel"][name] for name, _ in found]
    codes = [-1 if kind is None else texts["copy_kind"][kind] for _, kind in found]
    return {
        "kernel": codes_array(np.array(names, np.int32)[at]),
        "copy_kind": codes_array(np.array(codes, np.int32)[at]),
        "bytes": amounts(rows["bytes"]),
    }


def _copy_texts(kind: int, source: int, target: int) -> tuple[str, str | None]:
    """Return the name of a copy, as torch.profiler writes it, and its `copy_kind`."""
    word, ends = _word(_COPY_WORDS, kind), [_word(_MEMORY_WORDS, end) for end in (source, target)]
    name = f"Memcpy {word}" if word else "Memcpy"
    if all(ends):
        name += f" ({ends[0]} -> {ends[1]})"
    if word is None:
        return name, None
    hosts = {end.lower() for end in ends if end in ("Pageable", "Pinned")}
    return name, " ".join([COPY_KINDS[word], *sorted(hosts)])


def sets(process: Process, rows: Columns) -> Columns:
    """Return columns of `activities` for rows of the table of fills."""
    texts = process.spool.texts["activities"]
    kinds, inverse = np.unique(ints(rows["memKind"], -1), return_inverse=True)
    words = [_word(_MEMORY_WORDS, kind) for kind in kinds.tolist()]
    names = [texts["kernel"][f"Memset ({word})" if word else "Memset"] for word in words]
    return {
        "kernel": codes_array(np.array(names, np.int32)[inverse.reshape(-1)]),
        "bytes": amounts(rows["bytes"]),
    }


def graphs(process: Process, rows: Columns) -> Columns:
    """Return columns of `activities` for rows of the table of graphs recorded as a whole."""
    names = process.spool.texts["activities"]["kernel"]
    numbers, at = np.unique(ints(rows["graphId"], -1), return_inverse=True)
    texts = [f"CUDA graph {number}" if number >= 0 else "CUDA graph" for number in numbers.tolist()]
    codes = np.array([names[text] for text in texts], np.int32)
    return {"kernel": codes_array(codes[at.reshape(-1)])}


def _word(words: tuple[str | None, ...], code: int) -> str | None:
    return words[code] if 0 <= code < len(words) else None


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
        "correlation_id": known_ids(rows["correlationId"], least=1),
    }


def waits(process: Process, rows: Columns) -> Columns:
    """Return columns of `stalls` for rows of the table of synchronisations.

    A row names what it waits for, a stream, an event, both or neither. That decides here: versions
    of nsys number the types of synchronisation differently.
    """
    texts = process.spool.texts["stalls"]
    stream, event = known_ids(rows["streamId"]), known_ids(rows["eventId"])
    which = ints(event.is_valid().cast(pa.int64())) + 2 * ints(stream.is_valid().cast(pa.int64()))
    names = [texts["name"][name] for name in _WAIT_NAMES]
    kinds = [texts["kind"][wait_kind(name)] for name in _WAIT_NAMES]
    return {
        "device": rows["deviceId"],
        "stream": stream,
        "name": codes_array(np.array(names, np.int32)[which]),
        "kind": codes_array(np.array(kinds, np.int32)[which]),
        "correlation_id": known_ids(rows["correlationId"], least=1),
    }
