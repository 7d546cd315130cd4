"""From a call to its message, fast: what was called like this before is recognised.

A `Site` stands for one op at one place: a line of code in a layer, or the backward of such a
line. It knows the calls that were made there, its `Variant`s, and after which ones each came, its
`CallStep`s: a training step repeats itself, so the first guess is nearly always right, and to
confirm it costs less than to make a key and to look it up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from pyprof2.nvtx.describe import describe_tensor
from pyprof2.nvtx.internals import without_torch_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyprof2.nvtx.options import Options
    from pyprof2.nvtx.schema import Op

    Values = tuple[Any, ...]
    MessageOf = Callable[[Sequence[Any], Mapping[str, Any] | None, set[str]], Any]
    """Returns the message of a call: its arguments, and the names of those to leave out."""

VARYING_AFTER: Final = 16
"""Values that an argument may take at a site; if it takes more they are not recorded."""

FLOATS_VARY_AFTER: Final = 4
"""The same for floats: one that is not the same every time mostly is new every time."""

TRIED_AT_MOST: Final = 32
"""Calls of a site that are compared one by one."""

VARIANTS_AT_MOST: Final = 256
"""Distinct calls that a site remembers."""

CHANGING_AFTER: Final = 32
"""Distinct shapes at a site after which a call is known by the hash of its inputs: to compare it
with those that were made there takes longer."""

ODD_ARGUMENTS: Final = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors that an argument of an unknown class may raise when it is looked at. The program runs
without us, so it must with us; the op gets a range without inputs."""

_PLAIN_TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
_VALUE_TYPES: Final = frozenset(
    (bool, int, float, complex, str, torch.dtype, torch.layout, torch.memory_format, torch.device)
)


CONTEXT: Final = 6
"""Calls of a site by which the next one is guessed: in an optimizer's loop over parameters the same
shape comes many times, and after it another one each time."""

STEPS_AT_MOST: Final = 1024
"""Steps that a site remembers."""


class LayerName(NamedTuple):
    """The name of a layer in its markers and in those of its ops; see `pyprof2.markers.Marker`."""

    layer: str | None = None
    root: str | None = None
    outermost: bool = False


class ForwardOp:
    """The owner of autograd nodes: an op in a layer, called from a line of user code.

    Attributes:
        op: its name.
        mutates: whether it writes into an argument.
        backward: the sites of ops that run in these nodes, by op.
        accumulate: the sites of ops that add up gradients right after these nodes, by op.
    """

    __slots__ = ("accumulate", "backward", "layer", "mutates", "op", "source")

    def __init__(self, op: Op | None, layer: LayerName, source: str | None) -> None:
        self.op = None if op is None else op.name
        self.layer = layer
        self.source = source
        self.mutates = op is not None and op.mutates
        self.backward: dict[Any, Site] = {}
        self.accumulate: dict[Any, Site] = {}


class Variant:
    """One distinct call at a site.

    Attributes:
        message: its text, as the sink takes it.
        matches: whether a call with these values is this one.
        plain: whether its tensors are of PyTorch's own classes.
    """

    __slots__ = ("matches", "message", "plain")

    def __init__(self, message: Any, matches: Callable[[Values], bool], *, plain: bool) -> None:
        self.message = message
        self.matches = matches
        self.plain = plain


class CallStep:
    """A call at a site, after those that were made there before it.

    Attributes:
        variant: of the call.
        follower: the step that came after it the last time; a guess.
        calls: the variants of the last calls, with this one's as the last.
    """

    __slots__ = ("calls", "follower", "variant")

    def __init__(
        self, calls: tuple[Variant, ...], variant: Variant, unknown: CallStep | None
    ) -> None:
        """Make a step that nothing came after.

        Args:
            calls: the last ones.
            variant: of this one.
            unknown: a step that no call is; None: this one.
        """
        self.calls = calls
        self.variant = variant
        # A call that came all the time comes again.
        is_same = calls.count(variant) == len(calls)
        self.follower = self if unknown is None or is_same else unknown


class Site:
    """One op at one place, and the calls that were made there.

    Attributes:
        step: the call that was made last.
        forward: what autograd nodes made here belong to.
    """

    __slots__ = (
        "_known",
        "_message_of",
        "_op",
        "_shapes",
        "_steps",
        "_tensors",
        "_unknown",
        "_variants",
        "_varying",
        "forward",
        "step",
    )

    def __init__(self, op: Op, forward: ForwardOp, message_of: MessageOf, options: Options) -> None:
        self.forward = forward
        self._unknown = self.step = CallStep((), Variant(None, _never, plain=True), None)
        self._steps: dict[tuple[Variant, ...], CallStep] = {}
        self._op = op
        self._message_of = message_of
        self._shapes = options.shapes
        self._variants: dict[Any, Variant] = {}
        self._tensors: set[int] = set()
        self._known: dict[int, Variant] = {}
        self._varying = set() if options.scalars else set(op.defaults) - op.tensors

    def find(
        self, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> CallStep:
        """Return the step of a call that the guess does not match; the next guess will be that.

        Args:
            values: what `Op.flatten` makes of `args` and `kwargs`.
            args: of the call.
            kwargs: of the call.
        """
        last = self.step
        variant = self._variant(values, args, kwargs)
        calls = (*last.calls[1:], variant) if last.calls else (variant,) * CONTEXT
        step = self._steps.get(calls)
        if step is None:
            if len(self._steps) >= STEPS_AT_MOST:
                self._steps.clear()
            step = self._steps[calls] = CallStep(calls, variant, self._unknown)
        last.follower = step
        return step

    def _variant(
        self, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> Variant:
        """Return the variant of a call; a new one is made."""
        is_changing = len(self._tensors) >= CHANGING_AFTER
        quick = self._quick_key(values, args, kwargs) if is_changing else None
        if quick is not None:
            found = self._known.get(quick)
            if found is not None:
                return found
        # Where shapes take turns, as in a loop over parameters, to try a few is faster than a key.
        # (A copy of them: other threads have the same sites.)
        few = list(self._variants.values())[:TRIED_AT_MOST] if quick is None else []
        found = next((variant for variant in few if variant.matches(values)), None)
        if found is None:
            with without_torch_function():
                try:
                    found = self._look_up(values, args, kwargs)
                except ODD_ARGUMENTS:
                    message = self._message_of((), None, set(self._op.defaults))
                    found = Variant(message, _never, plain=False)
        if quick is not None:
            if len(self._known) >= VARIANTS_AT_MOST:
                self._known.clear()
            self._known[quick] = found
        return found

    def _quick_key(
        self, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> int | None:
        """Return a hash of a call, for where shapes change; None: a key has to be made."""
        names = self._op.flat_names(args, kwargs) if self._varying else ()
        key: list[Any] = []
        try:
            for index, value in enumerate(values):
                kind = type(value)
                if kind in _PLAIN_TENSORS:
                    strides = None if value.is_contiguous() else value.stride()
                    key.append((value.shape, value.dtype, strides, value.device))
                elif kind in _VALUE_TYPES and not (names and names[index] in self._varying):
                    key.append((kind, value))
                elif isinstance(value, torch.Tensor):
                    return None
                else:
                    key.append(kind)
            return hash(tuple(key))
        except ODD_ARGUMENTS:
            return None

    def _look_up(
        self, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> Variant:
        names = self._op.flat_names(args, kwargs)
        key = self._key(names, values)
        found = self._variants.get(key)
        if found is None:
            count = len(self._variants)
            looks = count == FLOATS_VARY_AFTER or count % VARYING_AFTER == 0
            varying = self._varying_in(names, key) - self._varying if looks else set()
            self._varying |= varying
            if varying or len(self._variants) >= VARIANTS_AT_MOST:
                self._variants.clear()
                key = self._key(names, values)
            if len(self._tensors) < CHANGING_AFTER:
                pairs = zip(key, values, strict=True)
                self._tensors.add(hash(tuple(k for k, v in pairs if isinstance(v, torch.Tensor))))
            message = self._message_of(args, kwargs, self._varying)
            found = self._variants[key] = self._new_variant(message, names, values)
        return found

    def _key(self, names: list[str], values: Values) -> Values:
        """Return the key of a call: calls of one text have the same."""
        if not self._shapes:
            return tuple(map(type, values))
        return tuple(
            _key(value, by_type=self._is_by_type(name, value))
            for name, value in zip(names, values, strict=True)
        )

    def _is_by_type(self, name: str, value: Any) -> bool:
        """Return whether the text has the type of a value at most, if it is no tensor."""
        return name in self._op.tensors or name in self._varying or not _has_value(value)

    def _varying_in(self, names: list[str], key: Values) -> set[str]:
        """Return the arguments that took many values, in calls with as many values as this one."""
        keys = [key, *(other for other in list(self._variants) if len(other) == len(key))]
        varying = set()
        for index, name in enumerate(names):
            seen = {other[index] for other in keys} if name not in self._op.tensors else set()
            is_float = isinstance(key[index], tuple) and key[index][:1] == (float,)
            if len(seen) > (FLOATS_VARY_AFTER if is_float else VARYING_AFTER):
                varying.add(name)
        return varying

    def _new_variant(self, message: Any, names: list[str], values: Values) -> Variant:
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        plain = all(type(tensor) in _PLAIN_TENSORS for tensor in tensors)
        if not plain or any(describe_tensor(tensor) is None for tensor in tensors):
            return Variant(message, _never, plain=plain)
        by_type = [
            self._is_by_type(name, value)
            if self._shapes and not isinstance(value, torch.Tensor)
            else not self._shapes
            for name, value in zip(names, values, strict=True)
        ]
        return Variant(message, _make_matcher(values, by_type), plain=True)


def _key(value: Any, *, by_type: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return type(value), describe_tensor(value), str(value.device)
    if by_type:
        return type(value)
    if isinstance(value, (list, tuple)):
        return tuple(_key(part, by_type=False) for part in value)
    # With the type, since True, 1 and 1.0 are equal.
    return type(value), value


def _has_value(value: Any) -> bool:
    """Return whether a value can be compared; others may not like it, and have no text anyway."""
    if type(value) in (list, tuple):
        return all(_has_value(part) for part in value)
    return type(value) in _VALUE_TYPES


def _never(_values: Values) -> bool:
    return False


def _make_matcher(values: Values, by_type: list[bool]) -> Callable[[Values], bool]:
    """Return a function that says whether a call has the same text as that with `values`.

    Args:
        values: of a call whose tensors are plain and have shapes.
        by_type: for each value whether its type is all that counts.
    """
    tensors = [
        (i, type(v), v.dtype, v.shape, None if v.is_contiguous() else v.stride())
        for i, (v, typed) in enumerate(zip(values, by_type, strict=True))
        if isinstance(v, torch.Tensor) and not typed
    ]
    places = {index for index, *_ in tensors}
    others = [
        (i, type(v), typed, None if typed else v)
        for i, (v, typed) in enumerate(zip(values, by_type, strict=True))
        if i not in places
    ]
    first = min(places, default=None)
    device = None if first is None else values[first].device
    count = len(values)
    first = tensors[0][0] if tensors else None

    # On the critical path: it compares, and makes nothing. Values of the expected type can be
    # compared; a tensor where a number is expected is none.
    def matches(values: Values) -> bool:
        if len(values) != count:
            return False
        try:
            for index, kind, dtype, shape, strides in tensors:
                value = values[index]
                if (
                    type(value) is not kind
                    or value.dtype is not dtype
                    or value.shape != shape
                    or (not value.is_contiguous() if strides is None else value.stride() != strides)
                ):
                    return False
            if first is not None and values[first].device != device:
                return False
        except RuntimeError:  # a ragged or sparse one, where there was a plain one
            return False
        for index, kind, typed, expected in others:
            value = values[index]
            if type(value) is not kind or not (typed or value == expected):
                return False
        return True

    return matches
