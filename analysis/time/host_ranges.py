"""The ranges that tell what the host did, without those that say no more than others around them.

Where Python stacks are recorded most ranges are frames, more than there are ops. Of a frame that is
neither the user's own nor a data loader's it counts only that Python ran; so those of a thread that
touch or overlap are one. What is found in the rest is what is found in all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.intervals import merged
from pyprof2.analysis.linking.link import NO_ID
from pyprof2.analysis.time.host_state import is_loader, is_loader_frame
from pyprof2.columns import combine_keys
from pyprof2.frames import frame_line, is_own_path
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Bool

COLUMNS: Final = ("start_ns", "dur_ns", "pid", "tid", "name", "kind")
"""The columns of the canonical table `ranges` that this takes and returns."""


def thinned(ranges: pa.Table, root: str | None) -> pa.Table:
    """Return ranges of one recording, where frames that tell only that Python ran are merged.

    Args:
        ranges: columns `COLUMNS` of the canonical table, or of a part of it.
        root: the folder of the user's own code.

    Returns:
        The others as they are, and then the merged ones, under the name of one of them.
    """
    plain = _says_only_python(ranges, root)
    if not plain.any():
        return ranges
    return pa.concat_tables([ranges.filter(pa.array(~plain)), _merged(ranges, plain)])


def _says_only_python(ranges: pa.Table, root: str | None) -> Bool:
    kind, kinds = code_column(ranges, "kind")
    name, names = code_column(ranges, "name")
    is_frame = kind == (kinds.index("python") if "python" in kinds else -2)
    used = np.unique(name[is_frame]).tolist()
    plain = np.zeros(len(names) + 1, bool)  # the last one is that of null
    plain[used] = [not _tells_more(names[code], root) for code in used]
    found: Bool = is_frame & plain[name]
    return found


def _tells_more(name: str, root: str | None) -> bool:
    """Whether a frame is a line of the user's own, or loads data."""
    line = frame_line(name)
    if line and any(is_own_path(line.rpartition(":")[0], folder) for folder in (root, None)):
        return True
    return is_loader(name) or is_loader_frame(name)


def _merged(ranges: pa.Table, chosen: Bool) -> pa.Table:
    """Return a row for each piece that the chosen ranges of a thread cover."""
    rows = np.flatnonzero(chosen)
    start, dur, pid, tid = (int_column(ranges, column, NO_ID)[rows] for column in COLUMNS[:4])
    thread = combine_keys(pid, tid)
    first, starts, ends = [], [], []
    for each in np.unique(thread).tolist():
        own = np.flatnonzero(thread == each)
        pieces = merged(start[own], start[own] + dur[own])
        starts.append(pieces[0])
        ends.append(pieces[1])
        first.append(np.full(len(pieces[0]), rows[own[0]]))
    begin, end = np.concatenate(starts), np.concatenate(ends)
    # Thread, name and kind are those of a row of the thread.
    table = ranges.take(pa.array(np.concatenate(first)))
    for column, values in (("start_ns", begin), ("dur_ns", end - begin)):
        at = table.schema.get_field_index(column)
        table = table.set_column(at, table.schema.field(at), pa.array(values))
    return table
