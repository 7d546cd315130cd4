"""Where ops were called, as our annotation says it beside the events of a Kineto trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.markers import MEMBER, parse_places
from pyprof2.parsers._json import AROUND_BYTES_MAX
from pyprof2.parsers._labels import LayerPath
from pyprof2.problems import (
    METADATA_TOO_LONG,
    METADATA_WRONG,
    PLACE_OF_OTHER,
    PLACES_DOUBLE,
    PLACES_LOST,
)
from pyprof2.recording import OpPlaces, int_column

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from pyprof2.markers import PlacesById
    from pyprof2.parsers._json import JsonStream
    from pyprof2.recording import Spool

_COLUMNS: Final = {"record_function_id": "record_id", "external_id": "recorded_id"}
"""The column of the raw table `ops` that each kind of id is in."""


def read_places(stream: JsonStream) -> PlacesById | None:
    """Return what a trace has of it, when all of it was read; None: nothing."""
    text = bytes(stream.around.get(MEMBER, b""))
    if not text:
        return None
    if len(text) > AROUND_BYTES_MAX:
        stream.problems[METADATA_TOO_LONG] += 1
        return None
    found = parse_places(text)
    if found is None:
        stream.problems[METADATA_WRONG] += 1
    return found


def layers_of(places: PlacesById | None) -> list[LayerPath]:
    """Return the layers of places."""
    found = () if places is None else places.places
    return [LayerPath(p.layer, p.root, p.outermost) for p in found if p.layer]


def join_places(
    places: PlacesById | None,
    names: Mapping[LayerPath, str],
    spool: Spool,
    problems: Counter[str],
    skipped: Counter[str],
) -> OpPlaces | None:
    """Return the places of the ops of a recording.

    An id that two ops have is that of none; nor is one whose op has another name.

    Args:
        places: as they stand in the trace.
        names: the paths of layers.
        spool: of the recording, whose files are closed.
        problems: as in `Recording`; it counts what belongs to no op.
        skipped: as in `Recording`, too.
    """
    if places is None:
        return None
    column = _COLUMNS[places.by]
    recorded = spool.raw("ops", [column, "op"])
    ids = int_column(recorded, column, -1)
    keys, first, times = np.unique(places.ids, return_index=True, return_counts=True)
    at = np.searchsorted(keys, ids)
    at[at == len(keys)] = 0
    rows = np.flatnonzero(keys[at] == ids) if len(keys) else np.empty(0, np.int64)
    at = at[rows]
    ops = np.bincount(at, minlength=len(keys))
    # The name of the op that has the id, by the codes of texts.
    codes = spool.texts["ops"]["op"]
    known = np.array([codes.get(place.op, -1) for place in places.places] or [-1], np.int64)
    name = np.full(len(keys), -2)
    name[at] = int_column(recorded, "op", -1)[rows]
    is_same = name == known[places.rows[first]]
    is_double = (ops > 1) | ((times > 1) & (ops > 0))
    is_good = (ops == 1) & (times == 1) & is_same
    is_other = (ops == 1) & (times == 1) & ~is_same
    problems.update(
        {
            slug: int(found.sum())
            for slug, found in ((PLACES_DOUBLE, is_double), (PLACE_OF_OTHER, is_other))
            if found.any()
        }
    )
    if (ops == 0).any():
        skipped[PLACES_LOST] += int((ops == 0).sum())
    return OpPlaces(
        places.by,
        column,
        keys[is_good],
        places.rows[first][is_good],
        [
            names[LayerPath(place.layer, place.root, place.outermost)] if place.layer else None
            for place in places.places
        ],
        [place.source for place in places.places],
    )
