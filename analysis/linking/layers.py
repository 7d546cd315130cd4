"""The layer of each op: of the modules around it, or the one that FSDP works for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.linking.module_paths import ModulePaths
from pyprof2.columns import lookup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.analysis.linking.ranges import Ranges
    from pyprof2.columns import TextColumn

_SHARDED: Final = re.compile(r"FSDP::\w+ (?:\((?P<layer>.+)\)|for (?P<next>.+))")
"""Work that FSDP does for a module, which it names from the outermost one that is sharded."""


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
    annotations: Ranges, layers: Sequence[str | None], thread: Int, time: Int
) -> TextColumn:
    """Return the layer that FSDP works for at each (thread, time), as codes.

    Args:
        annotations: the ranges that FSDP's are among.
        layers: the paths of the layers that are known; what FSDP calls one may lack the beginning.
        thread: of each op.
        time: its start.
    """
    layer_of = [_sharded_layer(text, layers) for text in annotations.names]
    has_one = np.array([text is not None for text in layer_of] or [False])
    ranges = annotations.where(has_one[annotations.name])
    found = ranges.nest().innermost(thread, time)
    return lookup(ranges.name, found, -1), [text or "" for text in layer_of]


def _sharded_layer(text: str, layers: Sequence[str | None]) -> str | None:
    match = _SHARDED.fullmatch(text)
    if match is None:
        return None
    path = match["layer"] or match["next"]
    fitting = {layer for layer in layers if layer and f".{layer}".endswith(f".{path}")}
    return path if path in fitting else fitting.pop() if len(fitting) == 1 else None
