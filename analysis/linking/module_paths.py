"""The dotted path of each call of a module: from the root module's call inwards.

What activation checkpointing runs again has only the calls inside the checkpoint around it. The
recorder names each module object by class and number, so its path in forward completes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import depths, nearest_marked

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.analysis.linking.ranges import Ranges

_DEPTH_MAX: Final = 200
"""Modules that are nested deeper are damage, and their paths would fill the memory."""


class ModulePaths:
    """The paths of modules' calls as codes into `texts`, -1 for none.

    Attributes:
        texts: the paths.
    """

    def __init__(self, modules: Ranges, ops: Ops, forward: Int) -> None:
        """Find the paths.

        Args:
            modules: the calls of modules.
            ops: the nested ops.
            forward: of each op in backward its forward op, -1 for none.
        """
        self.texts: list[str] = []
        self._modules, self._nest = modules, modules.nest()
        self._children: dict[tuple[int, int], int] = {}
        self._named: dict[int, list[int]] = {}
        self._path = np.full(len(modules.name), -1, np.int64)
        node = _nodes_around(modules, ops)
        parent = self._nest.parents()
        parent[(parent >= 0) & (node[parent] != node)] = -1
        depth = depths(parent)
        self._add(np.where(node < 0, depth, -1), parent)
        again = np.where(node >= 0, depth, -1)
        maker = np.where(node >= 0, forward[node], -1) if len(ops) else node
        # A checkpoint inside of another one has its path from that one's.
        for _ in range(2 if (node >= 0).any() else 0):
            caller = np.where(maker >= 0, self.at(ops.thread[maker], ops.start[maker]), -1)
            self._complete(again, parent, caller)

    def at(self, thread: Int, time: Int) -> Int:
        """Return the path of the innermost call at each thread and time."""
        found = self._nest.innermost(thread, time)
        return np.where(found >= 0, self._path[found], -1) if len(self._path) else found

    def _add(self, depth: Int, parent: Int) -> None:
        """Take the paths of calls at these depths as they are, -1 for none, level by level."""
        for level in range(min(int(depth.max(initial=-1)) + 1, _DEPTH_MAX)):
            rows = np.flatnonzero(depth == level)
            above = self._path[parent[rows]] if level else np.full(len(rows), -1)
            pairs, inverse = np.unique(
                np.stack((above, self._modules.name[rows])), axis=1, return_inverse=True
            )
            self._path[rows] = len(self.texts) + inverse.reshape(-1)
            for above_code, name in pairs.T.tolist():
                self._children[above_code, name] = len(self.texts)
                self._named.setdefault(name, []).append(len(self.texts))
                self.texts.append(self._below(above_code, name))

    def _below(self, path: int, name: int) -> str:
        text = self._modules.names[name]
        return f"{self.texts[path]}.{text}" if path >= 0 else text

    def _complete(self, depth: Int, parent: Int, caller: Int) -> None:
        """Find the paths of calls that run again, level by level; -1 where it is not certain.

        Args:
            depth: of the calls, -1 for those that are not asked for.
            parent: of the calls.
            caller: the path of the forward op of the node around each call.
        """
        for level in range(min(int(depth.max(initial=-1)) + 1, _DEPTH_MAX)):
            rows = np.flatnonzero(depth == level)
            above = self._path[parent[rows]] if level else np.full(len(rows), -1)
            asked = np.stack((above, self._modules.name[rows], caller[rows]))
            distinct, inverse = np.unique(asked, axis=1, return_inverse=True)
            found = [self._completed(*each) for each in distinct.T.tolist()]
            self._path[rows] = np.array(found)[inverse.reshape(-1)]

    def _completed(self, above: int, name: int, caller: int) -> int:
        """Return the path in forward of a module; of several the one below, or near the caller."""
        known = self._named.get(name, [])
        if len(known) == 1:
            return known[0]
        if above >= 0:
            return self._children.get((above, name), -1)
        near = [path for path in known if caller >= 0 and self._is_near(path, caller)]
        return near[0] if len(near) == 1 else -1

    def _is_near(self, path: int, caller: int) -> bool:
        """Whether the caller is in the module, or the module is below the caller."""
        a, b = f"{self.texts[path]}.", f"{self.texts[caller]}."
        return a.startswith(b) or b.startswith(a)


def _nodes_around(modules: Ranges, ops: Ops) -> Int:
    """Return the innermost node of autograd in which each call of a module begins, or -1."""
    around = ops.nest.innermost(modules.thread, modules.start)
    if not len(ops):
        return around
    return np.where(around >= 0, nearest_marked(ops.parent, ops.node)[around], -1)
