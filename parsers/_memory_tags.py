"""What the recorded program says of its memory, as rows of raw tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyprof2.markers import Marker
    from pyprof2.recording import TextCodes

_WEIGHTS: Final = ("parameter", "buffer")
_DEVICE: Final = re.compile(r"(?P<type>[a-z]{1,20})(?::(?P<number>\d{1,6}))?")


def tag_columns(marker: Marker, time_ns: int, codes: Mapping[str, TextCodes]) -> dict[str, Any]:
    """Return the columns of what a marker says: its moment, or a row for each of its blocks.

    Args:
        marker: of kind `memory`; one that says nothing gives no rows.
        time_ns: when it was.
        codes: of the texts of the table.
    """
    if marker.weights is not None:
        return {"time_ns": []}
    moment = None if marker.moment is None else codes["moment"][marker.moment]
    device = _device_of(marker)
    if marker.blocks is None:
        name = None if marker.name is None else codes["name"][marker.name]
        row = {"time_ns": [time_ns], "moment": [moment], "name": [name]}
        if device is None or marker.bytes is None:
            return row
        of_device = {"device_type": [codes["device_type"][device[0]]], "device": [device[1]]}
        return row | of_device | {"bytes": [marker.bytes]}
    count = len(marker.blocks)
    if device is None or marker.category is None or not count:
        return {"time_ns": []}
    return {
        "time_ns": [time_ns] * count,
        "moment": [moment] * count,
        "device_type": [codes["device_type"][device[0]]] * count,
        "device": [device[1]] * count,
        "address": [address for address, _ in marker.blocks],
        "bytes": [size for _, size in marker.blocks],
        "category": [codes["category"][marker.category]] * count,
    }


def weight_columns(marker: Marker, time_ns: int, codes: Mapping[str, TextCodes]) -> dict[str, Any]:
    """Return the columns of the raw table `weights`: a row for each weight that a marker names.

    Args:
        marker: of kind `memory`; one without weights gives no rows.
        time_ns: when it was.
        codes: of the texts of the table.
    """
    device = _device_of(marker)
    if not marker.weights or device is None or marker.category not in _WEIGHTS:
        return {"time_ns": []}
    count = len(marker.weights)
    names, dtypes, addresses, sizes, gradients, states, lines = zip(*marker.weights, strict=True)
    own = [(text or "").partition("\n") for text in lines]

    def coded(column: str, words: Iterable[str]) -> list[int | None]:
        return [codes[column][word] if word else None for word in words]

    return {
        "time_ns": [time_ns] * count,
        "name": coded("name", names),
        "category": coded("category", [marker.category] * count),
        "dtype": coded("dtype", dtypes),
        "device_type": coded("device_type", [device[0]] * count),
        "device": [device[1]] * count,
        "address": addresses,
        "bytes": sizes,
        "gradient_bytes": gradients,
        "state_bytes": states,
        "source": coded("source", [first for first, _, _ in own]),
        "callers": coded("callers", [others for _, _, others in own]),
    }


def _device_of(marker: Marker) -> tuple[str, int | None] | None:
    """Return kind and ordinal of a marker's device; the CPU has no ordinal. None: it names none."""
    found = _DEVICE.fullmatch(marker.device or "")
    if found is None:
        return None
    number = found["number"] if found["type"] != "cpu" else None
    return found["type"], None if number is None else int(number)
