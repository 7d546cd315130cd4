"""The arguments of a call of an op, in the canonical form of `pyprof2.signatures`.

Those of a collective also name its process group, and have its size.

No value of a tensor is ever read: that would make the program wait for the device.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
import torch.distributed as dist

from pyprof2.nvtx.internals import resolve_group, without_torch_function
from pyprof2.signatures import DTYPE_NUMBERS, TORCH_DTYPES, Input, Scalar, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

# The numbers of the enumerations in c10, by which other recorders write these arguments.
_MEMORY_FORMAT_NUMBERS: Final = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
_LAYOUT_NUMBERS: Final = {torch.strided: 0, torch.sparse_coo: 1, torch.sparse_csr: 2}

_NUMBER_DTYPES: Final = {bool: "bool", int: "i64", float: "f64", complex: "c128"}
"""The dtypes of numbers that stand where a tensor could."""


def describe_tensor(tensor: torch.Tensor) -> Tensor | None:
    """Return shape, dtype and, where it is not contiguous, strides; None: no shape to speak of.

    What is not laid out in strides, as a sparse tensor, has an empty tuple of them.
    """
    with without_torch_function():
        try:
            shape = tuple(tensor.shape)
            is_strided = tensor.layout is torch.strided
            strides: tuple[int, ...] | None = None
            if not is_strided or not tensor.is_contiguous():
                strides = tuple(tensor.stride()) if is_strided else ()
        except (RuntimeError, NotImplementedError):  # ragged, or of a class that has no shape
            return None
        if not _all_ints(shape) or not _all_ints(strides or ()):
            return None  # symbolic: it is being traced
        return Tensor(shape, TORCH_DTYPES.get(_name(tensor.dtype)), strides)


def _all_ints(numbers: Iterable[Any]) -> bool:
    return all(type(number) is int for number in numbers)


def _name(value: object) -> str:
    return str(value).removeprefix("torch.")


def describe(value: Any, *, is_tensor: bool = False) -> Input:
    """Return an argument in canonical form; None where it has none.

    Args:
        value: the argument.
        is_tensor: whether the op takes a tensor there; a number counts as one without dimensions.
    """
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if is_tensor and type(value) in _NUMBER_DTYPES:
        return Tensor((), _NUMBER_DTYPES[type(value)])
    if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        tensors = [describe_tensor(v) for v in value if isinstance(v, torch.Tensor)]
        known = tuple(tensor for tensor in tensors if tensor is not None)
        # Something else may be in the list, such as a missing index.
        return known if len(known) == len(value) else None
    if is_tensor and isinstance(value, (list, tuple)):
        return () if not value else None
    return _describe_value(value)


def _describe_value(value: Any) -> Scalar | None:
    if isinstance(value, (list, tuple)):
        parts = [_describe_value(part) for part in value]
        known = [part.value for part in parts if part is not None]
        return Scalar(known) if len(known) == len(parts) else None
    if isinstance(value, float) and not math.isfinite(value):
        return Scalar(str(value))
    if type(value) in (bool, int, float, str):
        return Scalar(value) if type(value) is not int or abs(value) < 1 << 63 else None
    number: int | None = None
    if isinstance(value, torch.dtype):
        number = DTYPE_NUMBERS.get(TORCH_DTYPES.get(_name(value), ""))
    elif isinstance(value, torch.layout):
        number = _LAYOUT_NUMBERS.get(value)
    elif isinstance(value, torch.memory_format):
        number = _MEMORY_FORMAT_NUMBERS.get(value)
    return None if number is None else Scalar(number)


def device_of(values: Iterable[Any]) -> str | None:
    """Return the device of the first tensor in `values` and lists there, or one named there."""
    for value in values:
        if isinstance(value, torch.Tensor):
            with without_torch_function():
                return str(value.device)
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, (list, tuple)):
            found = device_of(v for v in value if isinstance(v, torch.Tensor))
            if found is not None:
                return found
    return None


def tensor_bytes(value: Any) -> int:
    """Return the bytes of a tensor, or of all tensors in a list; 0 for anything else."""
    if isinstance(value, (list, tuple)):
        return sum(tensor_bytes(part) for part in value)
    if not isinstance(value, torch.Tensor):
        return 0
    with without_torch_function():
        return int(value.numel()) * value.element_size()


class Group(NamedTuple):
    """A process group: its name and the ranks in it; None where not known."""

    name: str | None
    ranks: tuple[int, ...] | None


def group_of(values: Iterable[Any]) -> Group:
    """Return the group that is among the arguments of a collective, as an object or by name."""
    if not (dist.is_available() and dist.is_initialized()):
        return Group(None, None)
    for value in values:
        group = group_of_value(value)
        if group is not None:
            return Group(group.group_name, tuple(dist.get_process_group_ranks(group)))
    return Group(None, None)


def group_by_name(name: str) -> Group | None:
    """Return the process group with a name; None: there is none."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    group = group_of_value(name)
    if group is None:
        return None
    return Group(group.group_name, tuple(dist.get_process_group_ranks(group)))


def group_of_value(value: Any) -> Any:
    """Return the group that an argument is, as an object or by name; None: it is none."""
    try:
        if isinstance(value, torch.ScriptObject):
            return dist.ProcessGroup.unbox(value)
        if isinstance(value, str):
            return resolve_group(value)
    except (RuntimeError, ValueError, KeyError):
        pass  # another object, such as the operation, or a text that names no group
    return None


def collective_bytes(values: Iterable[Any]) -> int:
    """Return the size of the largest argument.

    That is what comes out of a gather, what goes into a scatter, and both for a reduction.
    """
    return max((tensor_bytes(value) for value in values), default=0)
