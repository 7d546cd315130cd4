"""The layer of each op: the path of the modules around it, or the one that FSDP works for.

Ops that activation checkpointing runs again have only the calls inside the checkpoint around them.
The recorder names each module object by class and number, so its path in forward completes it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import depths, nearest_marked
from pyprof2.columns import combine_keys, groups_of, lookup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.analysis.linking.ranges import Ranges
    from pyprof2.columns import TextColumn

_SHARDED: Final = re.compile(r"FSDP::\w+ (?:\((?P<layer>.+)\)|for (?P<next>.+))")
"""Work that FSDP does for a module, which it names from the outermost one that is sharded."""

_IN_FORWARD: Final = re.compile(r"FSDP::(?:pre|post)_forward \(")
"""Those of them that run inside of the call of the module."""


def link_layers(
    modules: Ranges, layers: Ranges, ops: Ops, forward: Int, at: tuple[Int, Int]
) -> tuple[Int, list[str]]:
    """Return the layer at each (thread, time) as a code, -1 for none, and the layers.

    The innermost of the ranges whose text is the whole layer, else the texts of the module frames
    around, outermost first, joined by dots.

    Args:
        modules: the module frames.
        layers: the ranges whose text is the whole layer.
        ops: the nested ops.
        forward: of each op in backward its forward op, -1 for none.
        at: the threads and times.
    """
    paths = ModulePaths(modules, ops, forward)
    layer = paths.at(*at)
    named = layers.nest().innermost(*at)
    if len(layers.name):
        named = np.where(named >= 0, len(paths.texts) + layers.name[named], -1)
    return np.where(named >= 0, named, layer), paths.texts + layers.names


def link_sharded(
    annotations: Ranges,
    known: Sequence[str | None],
    thread: Int,
    time: Int,
    layer: TextColumn,
) -> TextColumn:
    """Return the layer that FSDP works for at each (thread, time), as codes.

    FSDP names it as the model does. Recordings that know classes only have another name for it:
    that of the module in which FSDP works for it in forward.

    Args:
        annotations: the ranges that FSDP's are among.
        known: the paths of layers; what FSDP calls one may lack the beginning.
        thread: of each op.
        time: its start.
        layer: of each op, as far as it is known from what is around it.
    """
    matches = [_SHARDED.fullmatch(text) for text in annotations.names]
    paths = [None if found is None else found["layer"] or found["next"] for found in matches]
    has_one = np.array([path is not None for path in paths] or [False])
    ranges = annotations.where(has_one[annotations.name])
    name = lookup(ranges.name, ranges.nest().innermost(thread, time), -1)
    in_forward = np.array([*(bool(_IN_FORWARD.match(text)) for text in annotations.names), False])
    rows = np.flatnonzero(in_forward[name] & (layer[0] >= 0))
    pairs = np.unique(np.stack((name[rows], layer[0][rows])), axis=1).T.tolist()
    seen = {(paths[at] or "", layer[1][code] or "") for at, code in pairs}
    count = Counter(text for pair in seen for text in enumerate(pair))
    same = {a: b for a, b in seen if count[0, a] == count[1, b] == 1}
    layers = [None if path is None else _layer_named(path, known, same) for path in paths]
    has_layer = np.array([*(text is not None for text in layers), False])
    return np.where(has_layer[name], name, -1), [text or "" for text in layers]


def _layer_named(path: str, known: Sequence[str | None], same: Mapping[str, str]) -> str | None:
    """Return the layer that FSDP calls by a path; None: there is none, or more than one may be."""
    fitting = {layer for layer in known if layer and f".{layer}".endswith(f".{path}")}
    below_root = {layer for layer in fitting if layer.partition(".")[2] == path}
    if path in fitting:
        return path
    for found in (fitting, below_root):
        if len(found) == 1:
            return found.pop()
    return same.get(path)


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
        # The innermost node of autograd in which each call begins.
        node = ops.nest.innermost(modules.thread, modules.start)
        if len(ops):
            node = np.where(node >= 0, nearest_marked(ops.parent, ops.node)[node], -1)
        parent = self._nest.parents()
        parent[(parent >= 0) & (node[parent] != node)] = -1
        depth = depths(parent)
        self._add(np.where(node < 0, depth, -1), parent)
        again = np.where(node >= 0, depth, -1)
        forward_op = np.where(node >= 0, forward[node], -1) if len(ops) else node
        # A checkpoint inside of another one has its path from that one's.
        for _ in range(2 if (node >= 0).any() else 0):
            path = self.at(ops.thread[forward_op], ops.start[forward_op])
            caller = np.where(forward_op >= 0, path, -1)
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
            names = self._modules.name[rows]
            first, place = groups_of(combine_keys(above, names))
            self._path[rows] = len(self.texts) + place
            for above_code, name in zip(above[first].tolist(), names[first].tolist(), strict=True):
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
        near = []
        for path in known if caller >= 0 else ():
            # The caller is in the module, or the module is below the caller.
            a, b = f"{self.texts[path]}.", f"{self.texts[caller]}."
            if a.startswith(b) or b.startswith(a):
                near.append(path)
        return near[0] if len(near) == 1 else -1
