"""What each autograd node belongs to, found out in another way than the annotation does.

Module hooks walk the graph and write the layer into the nodes themselves. Anomaly detection writes
there the Python stack of the forward call, and which node a node was made in. The name of a node
says of which op it is.
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.modules import module as nn_module

from pyprof2.nvtx.sources import is_user_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.markers import Marker

_TAG = "layer of the oracle"

AT_THE_BORDER = {"BackwardHookFunctionBackward"}
"""Nodes that a module call makes around the forward, after our hooks: whose are they?"""


class Expected(NamedTuple):
    """What the marker of an op must say that runs in a node.

    Attributes:
        node: the name of the node; of one made in backward, of the node in which it was made.
        layer: empty where the node was made outside of all modules.
        source: None where the stack says nothing.
    """

    node: str
    layer: str
    source: str | None


class Oracle:
    """Tags nodes while a program runs, and says what must be said of the one that runs now."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._names: dict[int, str] = {}
        self._kept: list[torch.nn.Module] = []

    @contextmanager
    def watching(self) -> Iterator[Oracle]:
        """Tag all nodes that are made inside."""
        before = nn_module.register_module_forward_pre_hook(self._before)
        after = nn_module.register_module_forward_hook(self._after, always_call=True)
        try:
            with torch.autograd.set_detect_anomaly(mode=True, check_nan=False):
                yield self
        finally:
            before.remove()
            after.remove()

    def _stack(self) -> list[str]:
        if not hasattr(self._local, "stack"):
            self._local.stack = [""]
        stack: list[str] = self._local.stack
        return stack

    def _before(self, module: torch.nn.Module, inputs: Any) -> None:
        stack = self._stack()
        _tag_all(inputs, stack[-1])
        if id(module) not in self._names:
            self._names |= {id(m): name or type(m).__name__ for name, m in module.named_modules()}
            self._kept.append(module)
        stack.append(self._names.get(id(module), "?"))

    def _after(self, _module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        _tag_all(output, self._stack().pop())

    def expect(self) -> Expected | None:
        """Return what is expected of an op that runs now; None outside of backward.

        Adding up a gradient belongs to the node before it on the thread.
        """
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return None
        if "AccumulateGrad" in node.name():
            before: Expected = self._local.last
            return before._replace(node=node.name())
        origin = node
        while _TAG not in origin.metadata and "parent_" in origin.metadata:
            origin = origin.metadata["parent_"]
        layer = origin.metadata.get(_TAG, "")
        self._local.last = Expected(origin.name(), layer, _source(origin))
        found: Expected = self._local.last
        return found


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _tag_all(values: Any, layer: str) -> None:
    """Tag every node below some tensors that has no tag yet."""
    nodes: list[Any] = [tensor.grad_fn for tensor in _tensors(values)]
    while nodes:
        node = nodes.pop()
        if node is not None and "AccumulateGrad" not in node.name() and _TAG not in node.metadata:
            node.metadata[_TAG] = layer
            nodes += [child for child, _ in node.next_functions]


def _source(node: Any) -> str | None:
    """Return the innermost line of user code on the stack that anomaly detection kept."""
    for entry in reversed(node.metadata.get("traceback_", [])):
        found = re.match(r'\s*File "(.*)", line (\d+), in ', entry)
        if found and is_user_file(found[1]):
            return f"{found[1]}:{found[2]}"
    return None


def disagreements(marker: Marker, expected: Expected) -> list[str]:
    """Return in what a marker of an op in backward is not what the oracle says."""
    found = []
    if expected.node not in AT_THE_BORDER and (marker.layer or "") != expected.layer:
        found.append(f"layer {marker.layer!r}, expected {expected.layer!r}")
    if not marker.accumulate and knows_op(expected) and not names_agree(marker, expected):
        found.append(f"forward op {marker.forward!r} of node {expected.node}")
    if knows_op(expected) and expected.source and marker.source != expected.source:
        found.append(f"source {marker.source}, expected {expected.source}")
    return [f"{marker.op} in {expected.node}: {text}" for text in found]


def knows_op(expected: Expected) -> bool:
    """Return whether the name of a node says its op.

    Nodes of autograd functions have the function's name; a write into a view makes two nodes more,
    one of which has the name of another op.
    """
    name = expected.node
    return bool(re.fullmatch(r"\w+Backward\d", name)) and not name.startswith("AsStrided")


def names_agree(marker: Marker, expected: Expected) -> bool:
    """Return whether the forward op of a marker is what the node's name says."""
    node = re.sub(r"Backward\d$", "", expected.node).lower()
    op = (marker.forward or "").removeprefix("aten::").replace("_", "")
    return op in (node, node + "forward")
