"""Everything that is remembered from op to op, and its bounds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyprof2.markers import Direction, Marker
from pyprof2.nvtx.calls import ForwardOp, LayerName, Site
from pyprof2.nvtx.describe import collective_bytes, device_of, group_of
from pyprof2.nvtx.schema import Op

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.nvtx.options import Options
    from pyprof2.nvtx.sinks import Messages
    from pyprof2.nvtx.sources import CallPlace

SITES_AT_MOST: Final = 50_000
"""Sites, and forward ops, that are remembered; code that is made while it runs has no end."""


class OpScope:
    """Where ops run: in a layer, an optimizer step, a recomputation.

    Attributes:
        is_optimizer: whether it is the step of an optimizer.
        marker: of the range that spans it.
        message: of that marker, for the sink, once it is needed.
        text: of that marker, for torch.profiler, once it is needed.
        sites: of the ops that run in it, by op and place.
    """

    __slots__ = (
        "direction", "is_optimizer", "layer", "marker", "message", "recompute", "sites", "text",
    )  # fmt: skip

    def __init__(
        self, marker: Marker, layer: LayerName, direction: Direction, *, recompute: bool
    ) -> None:
        self.marker = marker
        self.message: Any = None
        self.text: str | None = None
        self.layer = layer
        self.direction = direction
        self.recompute = recompute
        self.is_optimizer = direction == "optimizer"
        self.sites: dict[Any, Site] = {}


class Catalog:
    """The ops, scopes, forward ops and sites of one annotation."""

    def __init__(self, options: Options, messages: Messages | None) -> None:
        self._options = options
        self._messages = messages
        self._scopes: dict[Any, OpScope] = {}
        self._forward_ops: dict[Any, ForwardOp] = {}
        self._site_count = 0
        self.ops: dict[int, Op] = {}
        self.base = self.scope(Marker("layer"))
        self.callback = self.scope(Marker("layer"), direction="backward")
        self.unknown = ForwardOp(None, LayerName(), None)

    def add_op(self, func: Any) -> Op:
        """Return what is known of an op that was not met before."""
        op = self.ops[id(func)] = Op(func)
        return op

    def scope(self, marker: Marker, direction: Direction = "forward") -> OpScope:
        """Return the scope of a layer or another range, the same one for the same marker."""
        key = marker, direction
        found = self._scopes.get(key)
        if found is None:
            if len(self._scopes) >= SITES_AT_MOST:
                self._scopes.clear()
            layer = LayerName(marker.layer, marker.root, marker.outermost)
            found = self._scopes[key] = OpScope(
                marker, layer, direction, recompute=marker.recompute
            )
        return found

    def forward_site(self, scope: OpScope, key: Any, op: Op, place: CallPlace | None) -> Site:
        """Return a new site in `scope`, for the lines of a place."""
        source = None if place is None else place.source
        marker = Marker(
            "op",
            op=op.name,
            source=source,
            direction=scope.direction,
            recompute=scope.recompute,
            **scope.layer._asdict(),
        )
        forward = self.forward_op(op, scope.layer, source)
        site = self._new_site(op, marker, forward)
        scope.sites[key] = site
        return site

    def backward_site(self, forward: ForwardOp, sites: dict[Any, Site], key: Any, op: Op) -> Site:
        """Return a new site in one of the two tables of `forward`."""
        accumulate = sites is forward.accumulate
        marker = Marker(
            "op",
            op=op.name,
            source=forward.source,
            direction="backward",
            forward=None if accumulate else forward.op,
            accumulate=accumulate,
            **forward.layer._asdict(),
        )
        site = self._new_site(op, marker, forward)
        sites[key] = site
        return site

    def function(self, layer: LayerName, source: str | None) -> ForwardOp:
        """Return what the node of an autograd function belongs to that only calls modules."""
        return self.forward_op(None, layer, source)

    def forward_op(self, op: Any, layer: LayerName, source: str | None) -> ForwardOp:
        """Return what nodes belong to that an op, or None, makes in a layer at a line."""
        key = op, layer, source
        found = self._forward_ops.get(key)
        if found is None:
            found = self._forward_ops[key] = ForwardOp(op, layer, source)
        return found

    def _new_site(self, op: Op, marker: Marker, forward: ForwardOp) -> Site:
        self._site_count += 1
        if self._site_count > SITES_AT_MOST:
            self.forget()
        message_of = partial(self._message_of, op, marker)
        return Site(op, forward, message_of, self._options)

    def _message_of(
        self,
        op: Op,
        marker: Marker,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        left_out: set[str],
    ) -> Any:
        values = [value for _, value in op.given(args, kwargs)]
        marker = replace(marker, device=device_of(values))
        if self._options.shapes:
            marker = replace(marker, inputs=op.describe(args, kwargs, left_out))
        if op.collective:
            group, size = group_of(values), collective_bytes(values)
            marker = replace(marker, bytes=size, group=group.name, ranks=group.ranks)
        return None if self._messages is None else self._messages.of_marker(marker)

    def forget(self) -> None:
        """Let go of all sites; the texts that they registered are found again."""
        self._site_count = 0
        for scope in (self.base, self.callback, *self._scopes.values()):
            scope.sites.clear()
        for forward in (self.unknown, *self._forward_ops.values()):
            forward.backward.clear()
            forward.accumulate.clear()
        self._forward_ops.clear()
