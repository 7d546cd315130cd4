"""Where ops were called: what the annotation adds to a trace whose ops a profiler records itself.

It is a member of the JSON object that the trace is, called `MEMBER`::

    {"pyprof2":1,"by":"record_function_id","ids":[7,2,…],"rows":[0,0,1,…],
     "places":[["aten::addmm","blocks.0","net",false,"model.py:12"],…]}

Each id is the difference to the one before, the first to 0; the op that the profiler gave the id is
at the place of the same row. A place is the name of the op, what `pyprof2.markers` calls layer,
root and outermost, and source. Texts are percent-encoded: recorders copy them as they are.

Nothing here is trusted: `parse_places` gives None for every text that is something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import unquote

import msgspec
import numpy as np

from pyprof2.markers import percent_encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MEMBER: Final = "pyprof2"
"""The name of the member."""

ROWS_AT_MOST: Final = 3_000_000
"""Rows that a trace gets at most: readers refuse metadata of over 32 MB."""

IdKind: TypeAlias = Literal["record_function_id", "external_id"]
ID_KINDS: Final[tuple[str, ...]] = get_args(IdKind)
"""The ids that profilers give ops."""


class OpPlace(NamedTuple):
    """Where an op was called; None where that is not known."""

    op: str
    layer: str | None
    root: str | None
    outermost: bool
    source: str | None


@dataclass(frozen=True)
class PlacesById:
    """Where ops were called, by their ids.

    Attributes:
        by: which of their ids these are.
        ids: in ascending order.
        rows: of each id the place.
        places: by number.
    """

    by: IdKind
    ids: NDArray[np.int64]
    rows: NDArray[np.int64]
    places: Sequence[OpPlace]


_Id = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Text = str | None


class _Member(msgspec.Struct, forbid_unknown_fields=True):
    pyprof2: Literal[1]
    by: IdKind
    ids: list[_Id]
    rows: list[_Id]
    places: list[tuple[str, _Text, _Text, bool, _Text]]


_decoder: Final = msgspec.json.Decoder(_Member)


def format_places(found: PlacesById) -> str:
    """Return the text of the member."""
    ids = np.diff(found.ids, prepend=np.zeros(1, np.int64))
    texts = [
        tuple(percent_encode(part) if isinstance(part, str) else part for part in place)
        for place in found.places
    ]
    wire = _Member(1, found.by, ids.tolist(), found.rows.tolist(), texts)  # type: ignore[arg-type]
    return msgspec.json.encode(wire).decode()


def parse_places(text: bytes) -> PlacesById | None:
    """Return what `format_places` wrote; None: it wrote another text."""
    try:
        wire = _decoder.decode(text)
        places = [
            OpPlace(*(unquote(part) if isinstance(part, str) else part for part in place))  # type: ignore[arg-type]
            for place in wire.places
        ]
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    ids, rows = np.array(wire.ids, np.int64), np.array(wire.rows, np.int64)
    if len(ids) != len(rows) or rows.max(initial=-1) >= len(places):
        return None
    ids = np.cumsum(ids)
    # A sum that does not fit begins anew below 0.
    return None if (ids < 0).any() else PlacesById(wire.by, ids, rows, places)
