"""Mark ops with the compiled observer: what it asks of Python, and the session that uses it.

The observer (`observer.cpp`) follows every op. Python is asked once for each thing that is new,
and gives it a number, never the same one twice:

- a *scope* is a layer, or what else ops run in;
- a *place* is a line of the user's code, with those of libraries on the way to it;
- a *forward op* is what autograd nodes belong to;
- a *site* is one op in one scope at one place, or in the nodes of one forward op;
- a *message* is the text of a call at a site with inputs that were not there before: the number of
  a registered text, or one that is copied.
"""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
import torch.utils.checkpoint
from torch.fx import GraphModule

from pyprof2.markers import (
    ROWS_AT_MOST,
    Marker,
    OpPlace,
    OpTexts,
    PlacesById,
    format_marker,
    format_places,
)
from pyprof2.nvtx.calls import FLOATS_VARY_AFTER, ODD_ARGUMENTS, VARYING_AFTER, ForwardOp
from pyprof2.nvtx.catalog import SITES_AT_MOST, OpScope
from pyprof2.nvtx.describe import Group, device_of, group_by_name
from pyprof2.nvtx.internals import (
    ENGINE_RUN,
    compiled_codes,
    inside_vmap,
    is_compiled_graph,
    schema_of_name,
    without_torch_function,
)
from pyprof2.nvtx.observers import LACKS_ALL_LINES, LACKS_LINES, LACKS_ON_DEMAND, observer
from pyprof2.nvtx.session import OWN_RECORDS, AnnotationSession
from pyprof2.nvtx.sinks import Copied, Sink, numbered_sink
from pyprof2.nvtx.sources import CallPlace, CallRange
from pyprof2.signatures import TORCH_DTYPES, Input, Scalar, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import CodeType, FrameType

    from torch.nn import Module

    from pyprof2.nvtx.layers import Layer
    from pyprof2.nvtx.options import Options
    from pyprof2.nvtx.schema import UserFunction
    from pyprof2.nvtx.session import Recorder

_FORWARD, _BACKWARD, _ACCUMULATE = range(3)
"""The ways in which an op runs."""

_MODULE_CALL, _COMPILED, _CHECKPOINT = 3, 4, 5
"""The kinds of frames that are not of nobody, a library or the user."""

_CHECKPOINT_FILE: Final = torch.utils.checkpoint.__file__

_SHAPES, _SOURCE = 1, 2

_DTYPES: Final = {
    "Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "ComplexHalf": "complex32",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip
"""The names of dtypes in C++ that are not those in Python with other capitals."""


# -- inputs ----------------------------------------------------------------------------------------


def _is_tensor(value: Any) -> bool:
    """Return whether it is a tensor, as it is described: dtype, shape, strides, device, bytes."""
    return type(value) is tuple and len(value) == 5


def _tensor(seen: Any) -> Tensor | None:
    dtype, shape, strides, _, _ = seen
    return None if shape is None else Tensor(shape, _dtype(dtype), strides)


@cache
def _dtype(name: str) -> str | None:
    return TORCH_DTYPES.get(_DTYPES.get(name) or name.lower())


def describe_seen(value: Any, *, is_tensor: bool = False) -> Input:
    """Return an argument in canonical form, as `describe` does; None where it has none."""
    if _is_tensor(value):
        return _tensor(value)
    if isinstance(value, list):
        if any(map(_is_tensor, value)):
            tensors = [_tensor(each) for each in value if _is_tensor(each)]
            known = tuple(tensor for tensor in tensors if tensor is not None)
            return known if len(known) == len(value) else None
        if is_tensor:
            return () if not value else None
    return _scalar(value)


def _scalar(value: Any) -> Scalar | None:
    if isinstance(value, list):
        parts = [_scalar(part) for part in value]
        known = [part.value for part in parts if part is not None]
        return Scalar(known) if len(known) == len(parts) else None
    if isinstance(value, float) and value - value != 0:
        return Scalar(str(value))
    return Scalar(value) if type(value) in (bool, int, float, str) else None


def _device_of(values: Iterable[Any]) -> str | None:
    for value in values:
        if _is_tensor(value):
            return str(value[3])
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, list):
            found = _device_of(each for each in value if _is_tensor(each))
            if found is not None:
                return found
    return None


def _bytes_of(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_bytes_of, value))
    return int(value[4]) if _is_tensor(value) else 0


def _group_of(values: Iterable[Any]) -> Group:
    for value in values:
        name = value[0] if type(value) is tuple and len(value) == 1 else value
        group = group_by_name(name) if isinstance(name, str) else None
        if group is not None:
            return group
    return Group(None, None)


class ObservedOp:
    """An op, as its schema says.

    Attributes:
        name: as profilers write it, without the overload.
        mutates: whether it writes into an argument.
        collective: whether processes talk to each other in it.
        tensors: for each argument whether it is a tensor, or a list of them.
    """

    __slots__ = ("collective", "mutates", "name", "tensors")

    def __init__(self, name: str, overload: str) -> None:
        self.name = name
        self.mutates = False
        self.collective = name.startswith(("c10d::", "_c10d_functional"))
        schema = schema_of_name(name, overload)
        arguments = () if schema is None else schema.arguments
        self.tensors = tuple("Tensor" in str(argument.type) for argument in arguments)


# -- what is asked ---------------------------------------------------------------------------------


@dataclass(slots=True)
class ObservedSite:
    """One op in one scope at one place, or in the nodes of one forward op.

    Attributes:
        op: of it.
        marker: of its calls, without their inputs.
        texts: of these markers.
        varying: the arguments that took too many values to record them, as bits.
        seen: the values that an argument took.
    """

    op: ObservedOp
    marker: Marker
    texts: OpTexts
    varying: int = 0
    seen: dict[int, set[Any]] = field(default_factory=dict)


class Asked:
    """The object that the observer asks: it calls these methods, under the GIL."""

    def __init__(self, session: ObservedSession, module_call: CodeType) -> None:
        self._session = session
        self._options = session.options
        self._catalog = session.catalog
        self._module_call = module_call
        self._ops: dict[tuple[str, str], ObservedOp] = {}
        self._sites: dict[int, ObservedSite] = {}
        self._kept: dict[int, OpPlace | None] = {}
        self._forwards: dict[int, ForwardOp] = {0: session.catalog.unknown}
        self._forward_numbers: dict[ForwardOp, int] = {session.catalog.unknown: 0}
        self._places: dict[int, CallPlace] = {}
        self._place_numbers: dict[CallPlace, int] = {}
        self._scopes: list[OpScope] = []
        self._scope_numbers: dict[OpScope, int] = {}
        self._numbers = itertools.count(1)

    def number_of(self, scope: OpScope) -> int:
        """Return the number of a scope."""
        number = self._scope_numbers.get(scope)
        if number is None:
            number = self._scope_numbers[scope] = self._session.observer.scope(scope.is_optimizer)
            self._scopes.append(scope)
        return number

    # -- of the stack

    def classify(self, frame: FrameType) -> int:
        """Return whose code a frame runs."""
        code = frame.f_code
        if code is self._module_call:
            return _MODULE_CALL
        if code.co_filename == _CHECKPOINT_FILE:
            return _CHECKPOINT
        kind = self._session.sources.kind_of(frame)
        return _COMPILED if kind and code in compiled_codes() else kind

    def place(self, frame: FrameType) -> int:
        """Return the number of the place of a call, from a frame outwards; 0: it has none."""
        found = self._session.sources.place(frame, self.ranges())
        if found is None:
            return 0
        number = self._place_numbers.get(found)
        if number is None:
            if len(self._places) >= SITES_AT_MOST:
                self._forget()
            number = self._place_numbers[found] = next(self._numbers)
            self._places[number] = found
        return number

    def ranges(self) -> list[CallRange]:
        """Return the modules that run on this thread, the innermost last."""
        ranges = []
        for _, frame, place in self._session.observer.opened():
            ranges.append(CallRange(frame))
            ranges[-1].place = self._places.get(place)
        return ranges

    def source(self, place: int) -> str | None:
        """Return the lines of a place."""
        found = self._places.get(place)
        return None if found is None else found.source

    # -- of ops

    def site(
        self, name: str, overload: str, way: int, where: int, place: int
    ) -> tuple[int, int, int]:
        """Return number, forward op and varying arguments of a new site.

        Args:
            name: of the op.
            overload: of the op.
            way: whether it runs in forward or in a node.
            where: its scope, or the forward op of the node.
            place: of the call in forward.
        """
        if len(self._sites) >= SITES_AT_MOST:
            self._forget()
        op = self._ops.get((name, overload))
        if op is None:
            op = self._ops[name, overload] = ObservedOp(name, overload)
        marker, forward = self.marker(op, way, where, place)
        site = ObservedSite(op, marker, OpTexts(marker))
        if not self._options.scalars:
            site.varying = sum(1 << at for at, is_one in enumerate(op.tensors[:64]) if not is_one)
        number = next(self._numbers)
        self._sites[number] = site
        return number, forward, site.varying

    def marker(self, op: Any, way: int, where: int, place: int) -> tuple[Marker, int]:
        """Return the marker of an op, without inputs, and the forward op of its nodes."""
        if way == _FORWARD:
            scope, source = self._scopes[where], self.source(place)
            marker = Marker(
                "op", op=op.name, source=source, direction=scope.direction,
                recompute=scope.recompute, **scope.layer._asdict(),
            )  # fmt: skip
            owner = self._catalog.forward_op(op, scope.layer, source)
            return marker, self._number_of_forward(owner)
        owner = self._forwards.get(where, self._catalog.unknown)
        accumulates = way == _ACCUMULATE
        marker = Marker(
            "op", op=op.name, source=owner.source, direction="backward",
            forward=None if accumulates else owner.op, accumulate=accumulates,
            **owner.layer._asdict(),
        )  # fmt: skip
        return marker, where

    def message(self, number: int, inputs: list[Any]) -> tuple[int | str | None, bool, int]:
        """Return what is pushed for a call, whether the next one has the same, and what varies."""
        site = self._sites.get(number)
        if site is None or self._session.messages is None:
            return None, False, 0
        if self._options.shapes:
            self._look_for_varying(site, inputs)
        message = self._session.messages.next_of(self._text(site, inputs))
        if type(message) is Copied:
            return message.text, self._session.messages.is_full, site.varying
        return message, True, site.varying

    def _text(self, site: ObservedSite, inputs: Sequence[Any]) -> str:
        """Return the text of a call at a site."""
        op, described = site.op, None
        if self._options.shapes:
            described = self._describe(op, inputs, site.varying)
        if not op.collective:
            return site.texts.text(described, _device_of(inputs))
        group, size = _group_of(inputs), max(map(_bytes_of, inputs), default=0)
        marker = replace(
            site.marker, inputs=described, device=_device_of(inputs), bytes=size,
            group=group.name, ranks=group.ranks,
        )  # fmt: skip
        return format_marker(marker)

    def _describe(self, op: ObservedOp, inputs: Sequence[Any], varying: int) -> tuple[Input, ...]:
        tensors = (*op.tensors, *(False,) * len(inputs))
        try:
            return tuple(
                None
                if varying >> min(at, 63) & 1 and not _is_tensor(value)
                else describe_seen(value, is_tensor=is_tensor)
                for at, (value, is_tensor) in enumerate(zip(inputs, tensors, strict=False))
            )
        except ODD_ARGUMENTS:
            return (None,) * len(inputs)

    def _look_for_varying(self, site: ObservedSite, inputs: Sequence[Any]) -> None:
        """Find out which arguments took so many values that they are not worth recording."""
        tensors = site.op.tensors
        for at, value in enumerate(inputs[:64]):
            if site.varying >> at & 1 or (at < len(tensors) and tensors[at]):
                continue
            if isinstance(value, (tuple, bytes)) or value in (None, ...):
                continue
            seen = site.seen.setdefault(at, set())
            # With the type, since True, 1 and 1.0 are equal; what is not a number equals nothing.
            key = (type(value), str(value))
            if key not in seen:
                limit = FLOATS_VARY_AFTER if isinstance(value, float) else VARYING_AFTER
                if len(seen) >= limit:
                    site.varying |= 1 << at
                    del site.seen[at]
                else:
                    seen.add(key)

    def _number_of_forward(self, forward: ForwardOp) -> int:
        number = self._forward_numbers.get(forward)
        if number is None:
            number = self._forward_numbers[forward] = next(self._numbers)
            self._forwards[number] = forward
        return number

    def function(self, scope: int, place: int) -> int:
        """Return what the node of an autograd function belongs to that only calls modules."""
        layer = self._scopes[scope].layer
        return self._number_of_forward(self._catalog.function(layer, self.source(place)))

    def recompute_scope(self, forward: int) -> int:
        """Return the scope of a function that is run again for the backward of a forward op."""
        layer = self._forwards.get(forward, self._catalog.unknown).layer
        scope = self._catalog.scope(Marker("layer", recompute=True, **layer._asdict()))
        return self.number_of(scope)

    def is_batched(self) -> bool:
        """Return whether a vmap is around the call: the innermost transform, or one further out."""
        return inside_vmap()

    def record(self, text: str) -> tuple[int, int | str | None, bool] | None:
        """Return what a range of torch.profiler is that the program opens; None: nothing is marked.

        A scope; or, with a message, a text in the same; and whether the next one is the same.
        """
        session = self._session
        if text.startswith(OWN_RECORDS):
            return None
        if (scope := session.optimizer_scope(text)) is not None:
            return self.number_of(scope), None, True
        if session.notes_rows or session.messages is None:
            return None
        message = session.messages.next_of_text(text)
        if type(message) is Copied:
            return 0, message.text, session.messages.is_full
        return 0, message, True

    def places_of(self, sites: Iterable[int]) -> list[OpPlace | None]:
        """Return where the ops of sites are called; None: the profiler knows it as well."""
        found = [
            self._kept[number] if site is None else _place_of(site)
            for number, site in ((number, self._sites.get(number)) for number in sites)
        ]
        self._kept.clear()
        return found

    def _forget(self) -> None:
        """Let go of sites, forward ops and places; registered texts are found again."""
        if self._session.notes_rows:
            self._kept |= {number: _place_of(site) for number, site in self._sites.items()}
        self._catalog.forget()
        unknown = self._catalog.unknown
        self._sites.clear()
        self._places.clear()
        self._place_numbers.clear()
        self._forwards, self._forward_numbers = {0: unknown}, {unknown: 0}
        self._session.observer.forget()

    # -- of ranges

    def scope_message(self, number: int, _: int) -> Any:
        """Return what is pushed for a scope."""
        return self._lasting(self._scopes[number].marker)

    def line_message(self, place: int, recompute: int) -> Any:
        """Return what is pushed for a line that calls a module."""
        marker = Marker("source", source=self.source(place), recompute=bool(recompute))
        return self._lasting(marker)

    def _lasting(self, marker: Marker) -> Any:
        if self._session.notes_rows:
            # Steps of optimizers a torch.profiler records itself.
            is_known = marker.kind in ("optimizer", "zero_grad")
            return None if is_known else format_marker(marker, quoteless=True)
        if self._session.messages is None:
            return None
        message = self._session.messages.lasting(marker)
        return message.text if type(message) is Copied else message


def _place_of(site: ObservedSite) -> OpPlace | None:
    """Return where an op is called; None: nothing is known, or it adds up a gradient."""
    marker = site.marker
    if marker.accumulate or (marker.layer is None and marker.source is None):
        return None
    return OpPlace(site.op.name, marker.layer, marker.root, marker.outermost, marker.source)


class ObservedSession(AnnotationSession):
    """An annotation whose ops are marked by the observer.

    While torch.profiler runs it notes where ops are called, and by which ids that records them.

    Attributes:
        notes_rows: whether it notes that now.
    """

    def __init__(
        self, options: Options, sink: Sink | None, recorder: Recorder | None, observer: Any
    ) -> None:
        self.is_native = sink is None or sink.is_native
        super().__init__(
            options, sink if sink is None or sink.is_native else numbered_sink(sink), recorder
        )
        self.observer: Any = observer
        self.notes_rows = False
        self._process = os.getpid()
        self._asked: Asked | None = None
        self._module_call: CodeType | None = None

    def begin(self, module_call: CodeType) -> None:
        """Have the observer ask this session; no op is marked yet."""
        self._module_call = module_call
        if self.observer is not None:
            self._connect(module_call)

    def prepare_rows(self) -> None:
        """Find the observer, if it was not needed before."""
        self._find(LACKS_ALL_LINES if self.recorder is None else LACKS_LINES)

    def follow_on_demand(self, follower: object) -> None:
        """Learn where recordings begin and end that another process asks for."""
        self._find(LACKS_ON_DEMAND)
        if self.observer is not None:
            self.observer.on_demand(follower)

    def _find(self, lacks: str) -> None:
        if self.observer is None and self._module_call is not None:
            self.observer = observer(lacks)
            self.begin(self._module_call)

    def _connect(self, module_call: CodeType) -> None:
        flags = _SHAPES * self.options.shapes + _SOURCE * self.options.source
        self._asked = asked = Asked(self, module_call)
        push = None if self.is_native else self._push_message
        pop = None if self.is_native or self.sink is None else self.sink.pop
        domain = None if self.sink is None else self.sink.domain
        self.observer.start(asked, self.layers.known, push, pop, domain, flags, ENGINE_RUN)
        for scope in (self.catalog.base, self.catalog.callback):
            asked.number_of(scope)

    def _push_message(self, message: int | str, payload: int) -> None:
        attributes = self.state().attributes
        attributes.message, attributes.payload = message, payload
        if self.sink is not None:
            self.sink.push(attributes, self.sink.domain)

    # -- whether ops are marked

    def enter_thread(self) -> None:
        """Mark ops from now on, whenever they are marked: on every thread."""
        self._adjust_thread()

    def leave_thread(self) -> None:
        """Do nothing: the observer is not of a thread."""

    def close(self) -> None:
        """Stop marking ops, on all threads."""
        if self._asked is not None:
            self.observer.stop(os.getpid() != self._process)
            self.observer = self._asked = None

    def _adjust_thread(self) -> None:
        if self._asked is None:
            return
        if self.notes_rows != (self.kineto and self.marks_lines):
            self.notes_rows = not self.notes_rows
            self.observer.note_rows(self.notes_rows)
            self.observer.rows()  # of a recording that was given up
        self.observer.follow(not self.by_python)
        self.observer.activate(self.writes_ops or (self.notes_rows and self.recording))

    @property
    def by_python(self) -> bool:
        """Whether the observer follows nothing at the moment."""
        return self._asked is None or (self.kineto and not self.notes_rows)

    def take_rows(self) -> str | None:
        """Return where the ops were called that were recorded, as a member of the trace."""
        if not self.notes_rows or self._asked is None:
            return None
        self.observer.activate(False)  # noqa: FBT003 -- its only argument
        rows = np.frombuffer(self.observer.rows(), np.int64).reshape(-1, 2)
        sites, site = np.unique(rows[:, 1], return_inverse=True)
        found = self._asked.places_of(sites.tolist())
        known = {place: None for place in found if place is not None}
        number = {place: at for at, place in enumerate(known)}
        of_site = [-1 if place is None else number[place] for place in found]
        places = np.array(of_site or [-1])[site.reshape(-1)]
        ids = rows[:, 0]
        keep = np.flatnonzero((places >= 0) & (ids > 0))[:ROWS_AT_MOST]
        keep = keep[np.argsort(ids[keep], kind="stable")]
        return format_places(PlacesById("record_function_id", ids[keep], places[keep], list(known)))

    # -- ranges other than those of ops

    def enter(self, token: int, scope: OpScope, source: str | None = None, frame: int = 0) -> None:
        """Go into a scope on the calling thread, and open its range."""
        if self.by_python or self._asked is None:
            super().enter(token, scope, source, frame)
        else:
            self.observer.enter(token, self._asked.number_of(scope), None)

    def enter_text(self, token: int, text: str) -> None:
        """Open a range with a text of the user's own; the scope stays as it is."""
        if self.kineto or self.messages is None:
            super().enter_text(token, text)
            return
        message = self.messages.next_of_text(text)
        self.observer.enter(token, 0, message.text if type(message) is Copied else message)

    def leave(self, token: int) -> None:
        """Come out of what was entered with `token`, and close its range."""
        if self._asked is None or not self.observer.leave(token):
            super().leave(token)

    def enter_module(self, module: Module, call: FrameType) -> bool | None:
        """Note the call of a module that the observer does not know; None: it follows none."""
        if self.by_python:
            return None
        found = self._number(module, call.f_back)
        if found is None:
            return False
        self.observer.know_module(module, *found)
        is_entered: bool = self.observer.enter_module(module, 2)
        if isinstance(module, GraphModule):  # the next call may be one of torch.compile
            self.observer.know_module(module, None, 0, 0)
        return is_entered

    def _number(self, module: Module, frame: FrameType | None) -> tuple[Layer, int, int] | None:
        """Return a module's layer and the numbers of its scopes; None: it is none."""
        if not self.options.layers or is_compiled_graph(module, frame) or self._asked is None:
            return None
        opened = [SimpleNamespace(token=token) for token, *_ in self.observer.opened()]
        layer = self.layers.find(module, opened, frame)
        number_of = self._asked.number_of
        if layer.ref() is not module:
            return None
        return layer, number_of(layer.forward), number_of(layer.recompute)

    def open_function(
        self, op: UserFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], object] | None:
        """Open the range of a wrapped function, and return what ends it; None: nothing does."""
        if not self.writes_ops or self._asked is None or self.sink is None or not self.messages:
            return super().open_function(op, args, kwargs) if self.kineto else None
        way, where, place, payload = self.observer.where(sys._getframe(1).f_back)  # noqa: SLF001
        marker, _ = self._asked.marker(op, way, where, place)
        with without_torch_function():
            values = [value for _, value in op.given(args, kwargs)]
            inputs = op.describe(args, kwargs, set()) if self.options.shapes else None
            marker = replace(marker, inputs=inputs, device=device_of(values))
        message = self.messages.of_marker(marker)
        self.messages.push(message, self.state().attributes, payload, self.sink.push)
        return partial(self.sink.pop, self.sink.domain)
