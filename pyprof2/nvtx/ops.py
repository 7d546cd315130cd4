"""Mark every op: a dispatch mode that is always on, and lets every call through unchanged.

It sits below autograd, so it sees the ops of forward and backward with all their arguments. What
it does for one op is on the critical path of the program it watches: the common case is spelled
out in one function, and nothing is computed there that can be remembered.
"""

# mypy: disable-error-code="no-untyped-call"
# The base class has no types.

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.utils.checkpoint

from pyprof2.markers import NO_SEQUENCE, Marker
from pyprof2.nvtx.describe import group_of
from pyprof2.nvtx.internals import (
    ACCUMULATE_GRAD,
    ENGINE_RUN,
    NO_TASK,
    OpOverload,
    TorchDispatchMode,
    current_node,
    current_task,
    function_mode_enabled,
    grad_enabled,
    hide_frame,
    is_called,
    mode_count,
    sequence_nr,
    without_torch_function,
)
from pyprof2.nvtx.pairing import find_owner, note_nodes, note_nodes_in_backward
from pyprof2.nvtx.sinks import Copied, Messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from pyprof2.nvtx.calls import ForwardOp, Site
    from pyprof2.nvtx.catalog import OpScope
    from pyprof2.nvtx.internals import Node
    from pyprof2.nvtx.knowledge import Knowledge
    from pyprof2.nvtx.schema import Op
    from pyprof2.nvtx.sinks import Sink
    from pyprof2.nvtx.threads import ThreadState

_CHECKPOINT_FILE: Final = torch.utils.checkpoint.__file__

_getframe: Final = sys._getframe  # noqa: SLF001 -- there is no other way to the caller


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those around it, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _are_foreign(types: Any) -> bool:
    """Return whether there are tensors that get the op themselves next."""
    return any(kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for kind in types)


def _key(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """Return the key of a call at one place, without the values of its arguments."""
    kwargs = kwargs or {}
    group = group_of((*args, *kwargs.values())) if op.collective else None
    return (op, group, *kwargs)


class OpMode(TorchDispatchMode):
    """Puts a range around every op that runs on a thread.

    Each annotated thread has its own. Autograd takes it along to the threads on which it runs
    backward: there it says whose backward it is.

    Attributes:
        active: whether it marks anything; set from any thread.
        home: the thread whose mode it is.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        known: Knowledge,
        sink: Sink,
        home: ThreadState,
        on_record: Callable[[str, tuple[Any, ...], Any], None],
    ) -> None:
        """Begin to mark.

        Args:
            known: of the process.
            sink: takes the ranges.
            home: the thread whose mode it is.
            on_record: called with each op by which a range of torch.profiler begins or ends, its
                arguments and its result.
        """
        super().__init__()
        self.active = True
        self.home = home
        self._on_record = on_record
        self._catalog = known.catalog
        self._ops = known.catalog.ops
        self._local = known.local
        self._new_state = known.new_state
        self._place = known.sources.place
        self._has_source = known.options.source
        self._messages = known.messages or Messages(sink)
        self._push = sink.push
        self._pop = sink.pop
        self._domain = sink.domain

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Keep out of torch.compile, which otherwise compiles nothing under a mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from wrapping what runs for every op; see `hide_from_dynamo`."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        op = self._ops.get(id(func)) or self._catalog.add_op(func)
        try:
            if not op.marked or not self.active or mode_count() or (types and _are_foreign(types)):
                return self._pass_on(op, types, args, kwargs)
            if op.detaches and not is_called():
                return self._pass_on(op, types, args, kwargs)
            if function_mode_enabled():
                # Only in backward is nothing off already; without us they would not be asked there.
                with without_torch_function():
                    return self.__torch_dispatch__(func, types, args, kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        # (`_getframe(1)` fails on threads of autograd, which have no frames but this one.)
        plain = self.begin(op, args, kwargs, _getframe().f_back)
        try:
            if not plain:
                with without_torch_function():
                    return op.run(*args, **(kwargs or {}))
            return op.run(*args, **kwargs) if kwargs else op.run(*args)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            self._pop(self._domain)

    def begin(
        self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any] | None, frame: FrameType | None
    ) -> bool:
        """Open the range of an op; return whether all tensors are of PyTorch's own classes."""
        try:
            state = self._local.state
        except AttributeError:
            state = self._new_state()
        key: Any = _key(op, args, kwargs) if kwargs or op.collective else op
        node, task, scope = current_node(), current_task(), state.scope
        if task not in (state.task, NO_TASK):
            # Backward that was started in this scope: it is inside.
            if node is None:
                scope = self._catalog.callback
            else:
                scope = self._scope_with_grad(node, frame) if grad_enabled() else None
        elif scope.is_optimizer and node is None and grad_enabled():
            scope = self._catalog.base  # of its closure, in which the loss is computed
        site: Site | None
        if scope is None:
            site, payload = self._site_in_node(state, node, key, op)
        else:
            place = self._place(frame, state.open) if self._has_source else None
            if place is not None:
                key = (key, place)
            site = scope.sites.get(key)
            if site is None:
                site = self._catalog.forward_site(scope, key, op, place)
            payload = note_nodes(state, site.forward)
        values = op.flatten(args, kwargs) if kwargs or op.lists else args
        step = site.step.follower
        if not step.variant.matches(values):
            step = site.find(values, args, kwargs)
        site.step, variant = step, step.variant
        attributes = state.attributes
        if type(variant.message) is Copied:
            # The text of the call is not registered yet.
            variant.message = self._messages.push(variant.message, attributes, payload, self._push)
            return variant.plain
        attributes.message = variant.message
        attributes.payload = payload
        self._push(attributes, self._domain)
        return variant.plain

    def _pass_on(
        self, op: Op, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        """Run a call that gets no range: it is not an op of its own, or not really run."""
        is_op = isinstance(op.func, OpOverload)
        if is_op and types and not mode_count() and _are_foreign(types):
            return NotImplemented  # they take themselves apart, and we see the parts
        try:
            if not is_op:
                return op.func(*args, **(kwargs or {}))
            # Below us are only modes that trace: no op that they get is run as it is.
            with without_torch_function():
                result = op.func(*args, **(kwargs or {}))
        except BaseException as error:
            hide_frame(error)
            raise
        if op.records and self.active:
            self._on_record(op.name, args, result)
        return result

    def _scope_with_grad(self, node: Node, frame: FrameType | None) -> OpScope | None:
        """Return where an op is that a node runs with gradients; None: in the node itself."""
        # Checkpointing of a function, not of a module; or backward of backward.
        for outer in _frames(frame):
            if outer.f_code is ENGINE_RUN:
                break
            if outer.f_code.co_filename == _CHECKPOINT_FILE:
                forward, _ = find_owner(node, sequence_nr(node), self.home)
                name = (forward or self._catalog.unknown).layer
                return self._catalog.scope(Marker("layer", recompute=True, **name._asdict()))
        return None

    def _site_in_node(self, state: ThreadState, node: Any, key: Any, op: Op) -> tuple[Site, int]:
        """Return the site and the payload of an op that a node runs."""
        number, home = sequence_nr(node), self.home
        forward: ForwardOp | None = home.nodes.get(number)
        if forward is not None and home.is_alone:
            payload = home.payload_base + home.aliases.get(number, number)
            sites = forward.backward
        elif number == ACCUMULATE_GRAD:
            forward, payload = state.last_backward or self._catalog.unknown, NO_SEQUENCE
            sites = forward.accumulate
        else:
            forward, payload = find_owner(node, number, home)
            forward = forward or self._catalog.unknown
            sites = forward.backward
        state.last_backward = forward
        if grad_enabled():
            note_nodes_in_backward(state, forward, number)
        site = sites.get(key)
        if site is None:
            site = self._catalog.backward_site(forward, sites, key, op)
        return site, payload
