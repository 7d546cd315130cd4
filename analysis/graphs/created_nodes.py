"""Nodes of graphs by the ids that a recorder gave them, back to where each was captured.

A graph that is made executable has copies of the nodes that were captured, and a graph inside of
another one copies of copies. Each names the one that it is a copy of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.columns import combine_keys, lookup, row_of

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int

DEEPEST: Final = 64
"""Copies of copies do not go further; what does goes round in a circle."""


class CreatedNodes(NamedTuple):
    """Nodes that were made while it was recorded.

    Attributes:
        pid: of the process; ids are those of a process.
        node_id: of the node.
        original_id: of the one that it is a copy of, `NO_ID` for none.
        row: what is known of the moment when it was made.
    """

    pid: Int
    node_id: Int
    original_id: Int
    row: Int

    def originals(self, pid: Int, node_id: Int) -> Int:
        """Return the `row` of the original of each node.

        It is -1 where an id is not known, or is that of several nodes, and in circles.

        Args:
            pid: of the process of each node.
            node_id: its id, `NO_ID` for none.
        """
        count = len(self.pid)
        keys = combine_keys(
            np.concatenate((self.pid, self.pid, pid)),
            np.concatenate((self.node_id, self.original_id, node_id)),
        )
        own, copied, wanted = np.split(keys, (count, 2 * count))
        known, first, times = np.unique(own, return_index=True, return_counts=True)
        place = np.where(times == 1, first, -1)
        outer = lookup(place, row_of(known, copied), -1)
        is_copy = self.original_id != NO_ID
        at = lookup(place, row_of(known, wanted), -1)
        at[node_id == NO_ID] = -1
        for _ in range(DEEPEST):
            todo = np.flatnonzero((at >= 0) & lookup(is_copy, at, 0).astype(bool))
            if not len(todo):
                break
            at[todo] = outer[at[todo]]
        else:
            at[lookup(is_copy, at, 0).astype(bool)] = -1
        return lookup(self.row, at, -1)
