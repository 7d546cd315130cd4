"""Op calls to count by hand, in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyprof2.signatures import Input, OpCall, Scalar, Tensor

if TYPE_CHECKING:
    from pyprof2.analysis.costs import Cost, Estimate


def f32(*shape: int) -> Tensor:
    return Tensor(shape, "f32")


def f16(*shape: int) -> Tensor:
    return Tensor(shape, "f16")


def bf16(*shape: int) -> Tensor:
    return Tensor(shape, "bf16")


def i64(*shape: int) -> Tensor:
    return Tensor(shape, "i64")


def i32(*shape: int) -> Tensor:
    return Tensor(shape, "i32")


def call(name: str, *inputs: Any) -> OpCall:
    """Return a call; inputs are tensors, tuples of them, numbers, or None for what is unknown."""
    return OpCall(name, tuple(map(_input, inputs)))


def _input(item: Any) -> Input:
    is_list = isinstance(item, tuple) and item and isinstance(item[0], Tensor)
    return item if item is None or isinstance(item, Tensor) or is_list else Scalar(item)


def known(found: Estimate) -> Cost:
    """Return the cost of an estimate that has one."""
    assert found.cost is not None, found
    return found.cost
