"""The schema of an op, read once for each op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from pyprof2.nvtx.describe import describe
from pyprof2.nvtx.internals import OpOverload, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyprof2.signatures import Input

_COLLECTIVE_NAMESPACES: Final = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_RECORD_NAMESPACE: Final = "profiler"


class Op:
    """An op, as its schema says.

    Attributes:
        func: the op; kept, so that its id stays its own.
        name: as profilers write it, without the overload.
        run: calls the op.
        marked: whether its calls get a range.
        detaches: whether it is `aten::detach`, which modes get without a call.
        records: whether it begins or ends a range of torch.profiler.
        collective: whether processes talk to each other in it.
        lists: whether it takes lists of tensors.
        mutates: whether it writes into an argument.
        defaults: of its arguments, by name and in order; None where there is none.
        tensors: the names of arguments that are tensors, or lists of them.
    """

    __slots__ = (
        "collective", "defaults", "detaches", "func", "lists", "marked", "mutates", "name",
        "records", "run", "tensors",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        namespace = getattr(func, "namespace", "")
        self.func = func
        self.name = str(func)
        self.run: Callable[..., Any] = func
        self.records = namespace == _RECORD_NAMESPACE
        self.collective = namespace in _COLLECTIVE_NAMESPACES
        # An op of higher order runs others, which are marked themselves.
        self.marked = isinstance(func, OpOverload) and not self.records
        self.detaches = func is torch.ops.aten.detach.default
        self.lists = False
        self.mutates = False
        self.defaults: dict[str, Any] = {}
        self.tensors: set[str] = set()
        if isinstance(func, OpOverload):
            self._read_schema(func)

    def _read_schema(self, func: OpOverload[..., Any]) -> None:
        schema = schema_of(func)
        self.name = schema.name
        if type(func) is OpOverload:
            # `func` itself calls this: one Python call less for every op.
            self.run = getattr(func, "_op", func)
        self.mutates = schema.is_mutable
        for argument in schema.arguments:
            self.defaults[argument.name] = argument.default_value
            kind = str(argument.type)
            if "Tensor" in kind:
                self.tensors.add(argument.name)
                self.lists = self.lists or "List" in kind

    def given(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
        """Return name and value of each argument of a call, in the order of the call."""
        return [*zip(self.defaults, args, strict=False), *(kwargs or {}).items()]

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> tuple[Any, ...]:
        """Return the values of a call; in place of a list its length, and then what is in it."""
        values = (*args, *kwargs.values()) if kwargs else tuple(args)
        if not self.lists:
            return values
        flat: list[Any] = []
        for value in values:
            if type(value) is list or type(value) is tuple:
                flat.append(len(value))
                flat.extend(value)
            else:
                flat.append(value)
        return tuple(flat)

    def flat_names(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[str]:
        """Return for each value of `flatten` the name of the argument that it comes from."""
        names: list[str] = []
        for name, value in self.given(args, kwargs):
            is_list = self.lists and type(value) in (list, tuple)
            names += [name] * (len(value) + 1 if is_list else 1)
        return names

    def describe(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None, left_out: set[str]
    ) -> tuple[Input, ...]:
        """Return the inputs of a call in the order of the schema, with its defaults."""
        values = {**self.defaults, **dict(self.given(args, kwargs))}
        return tuple(
            None if name in left_out else describe(value, is_tensor=name in self.tensors)
            for name, value in values.items()
        )


class UserFunction(Op):
    """A function of the user's own, which is marked as if it were an op."""

    __slots__ = ()

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.name = name
        self.marked = self.lists = True

    def given(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
        """Return the arguments; those by position have a number for a name."""
        return [*((str(n), value) for n, value in enumerate(args)), *(kwargs or {}).items()]
