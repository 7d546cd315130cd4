"""What the recorded program says of its memory, as rows of the raw table `memory_tags`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.markers import Marker
    from pyprof2.recording import TextCodes

_DEVICE: Final = re.compile(r"(?P<type>[a-z]{1,20})(?::(?P<number>\d{1,6}))?")


def tag_columns(marker: Marker, time_ns: int, codes: Mapping[str, TextCodes]) -> dict[str, Any]:
    """Return the columns of what a marker says: its moment, or a row for each of its blocks.

    Args:
        marker: of kind `memory`; one that says nothing gives no rows.
        time_ns: when it was.
        codes: of the texts of the table.
    """
    moment = None if marker.moment is None else codes["moment"][marker.moment]
    if marker.blocks is None:
        name = None if marker.name is None else codes["name"][marker.name]
        return {"time_ns": [time_ns], "moment": [moment], "name": [name]}
    found = _DEVICE.fullmatch(marker.device or "")
    known = found is not None and marker.category is not None
    count = len(marker.blocks) if known else 0
    if not found or not count:
        return {"time_ns": []}
    # The CPU has no ordinal.
    number = found["number"] if found["type"] != "cpu" else None
    return {
        "time_ns": [time_ns] * count,
        "moment": [moment] * count,
        "device_type": [codes["device_type"][found["type"]]] * count,
        "device": [None if number is None else int(number)] * count,
        "address": [address for address, _ in marker.blocks],
        "bytes": [size for _, size in marker.blocks],
        "category": [codes["category"][marker.category]] * count,
    }
