"""The layer of each op: of the modules around it, or the one that FSDP works for."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.linking.module_paths import ModulePaths
from pyprof2.columns import lookup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.analysis.linking.ranges import Ranges
    from pyprof2.columns import TextColumn

_SHARDED: Final = re.compile(r"FSDP::\w+ (?:\((?P<layer>.+)\)|for (?P<next>.+))")
"""Work that FSDP does for a module, which it names from the outermost one that is sharded."""

_IN_FORWARD: Final = re.compile(r"FSDP::(?:pre|post)_forward \(")
"""Of that what runs inside of the call of the module."""


def link_layers(modules: Ranges, layers: Ranges, ops: Ops, forward: Int) -> tuple[Int, list[str]]:
    """Return the layer of each op as a code, -1 for none, and the layers.

    The innermost of the ranges whose text is the whole layer, else the texts of the module frames
    around it, outermost first, joined by dots.

    Args:
        modules: the module frames.
        layers: the ranges whose text is the whole layer.
        ops: the nested ops.
        forward: of each op in backward its forward op, -1 for none.
    """
    paths = ModulePaths(modules, ops, forward)
    layer = paths.at(ops.thread, ops.start)
    named = layers.nest().innermost(ops.thread, ops.start)
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
        layer: of each op, as far as what is around it tells.
    """
    paths = [_sharded_path(text) for text in annotations.names]
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


def _sharded_path(text: str) -> str | None:
    match = _SHARDED.fullmatch(text)
    return None if match is None else match["layer"] or match["next"]


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
