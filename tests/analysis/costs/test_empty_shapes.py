"""Shapes that are empty or beyond any memory, through every formula of the registry."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.analysis.costs import estimate, registered_ops
from pyprof2.signatures import Input, OpCall, Scalar, Tensor
from tests.analysis.costs.test_ops import COUNTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.costs import Estimate

HUGE: Final = 2**33

SCALARS: Final = tuple(Scalar(value) for value in ([1, 1], [0, 0], [1, 1], 1, True, False, 0, 1))


def shapes(dims: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of up to four of these dimensions."""
    for rank in range(5):
        yield from itertools.product(dims, repeat=rank)


def check(found: Estimate, call: OpCall) -> None:
    """Counts are whole and within their bounds; what is assumed has bounds, what is ok no null."""
    cost = found.cost
    assert (cost is None) == (found.status == "no_shapes"), (call, found)
    if cost is None:
        return
    flops = cost.flops_lo, cost.flops, cost.flops_hi
    traffic = cost.bytes_lo, cost.bytes, cost.bytes_hi
    for counts in (flops, traffic):
        known = [count for count in counts if count is not None]
        assert known == sorted(known), (call, found)
        assert all(0 <= count < 2**63 for count in known), (call, found)
    is_bounded = None not in (cost.flops_lo, cost.flops_hi) or cost.bytes_lo is not None
    assert found.status == "ok" or is_bounded or cost.bytes is None, (call, found)
    assert found.status == "assumed" or cost.bytes is not None, (call, found)


def calls(name: str, dims: tuple[int, ...]) -> Iterator[OpCall]:
    """Yield calls of an op with all tensors of one shape, as the formulas look for them."""
    for shape in shapes(dims):
        item, alike = Tensor(shape, "f32"), (Tensor(shape), Tensor(shape))
        forms: tuple[tuple[Input, ...], ...] = (
            (item,) * 9, (item, item, *SCALARS), (item, item, item, *SCALARS), (alike, item, alike),
        )  # fmt: skip
        for inputs in forms:
            yield OpCall(name.rstrip("*"), inputs)


@pytest.mark.slow
@pytest.mark.kept("huge")
@pytest.mark.parametrize("size", [pytest.param(2, id="small"), pytest.param(HUGE, id="huge")])
def test_every_formula_takes_empty_shapes(size: int) -> None:
    for name in registered_ops():
        for call in calls(name, (0, size)):
            check(estimate(call), call)


@pytest.mark.minutes
def test_every_formula_takes_empty_and_huge_shapes_in_any_mixture() -> None:
    for name in registered_ops():
        for call in calls(name, (0, 1, 3, HUGE)):
            check(estimate(call), call)


@pytest.mark.parametrize("case", COUNTS)
def test_a_call_with_one_size_empty_or_huge_still_makes_sense(case: str) -> None:
    """Sizes that are equal become 0, or huge, together, so that the operands still fit."""
    call = COUNTS[case][0]
    items = [item for entry in call.inputs for item in _listed(entry)]
    for old, new in itertools.product({dim for item in items for dim in item.shape}, (0, HUGE)):
        resized = OpCall(call.op, tuple(_resized(entry, old, new) for entry in call.inputs))
        found = estimate(resized)

        check(found, resized)
        assert found.note != "the inputs were not understood", resized


def _listed(entry: Input) -> tuple[Tensor, ...]:
    return (entry,) if isinstance(entry, Tensor) else entry if isinstance(entry, tuple) else ()


def _resized(entry: Input, old: int, new: int) -> Input:
    parts = tuple(
        Tensor(tuple(new if dim == old else dim for dim in item.shape), item.dtype)
        for item in _listed(entry)
    )
    return parts[0] if isinstance(entry, Tensor) else parts or entry
