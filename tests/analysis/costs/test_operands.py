from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pyprof2.analysis.costs import Cost, UnknownCostError
from pyprof2.analysis.costs.operands import (
    bounded,
    broadcast,
    dtype_at,
    elements,
    flag,
    flags,
    integers,
    numel,
    promote,
    tally,
)
from pyprof2.signatures import OpCall, Scalar, Tensor


@pytest.mark.parametrize(
    ("shape", "strides", "count"),
    [
        pytest.param((4, 3), None, 12, id="strides not recorded"),
        pytest.param((4, 3), (3, 1), 12, id="contiguous"),
        pytest.param((4, 3), (1, 4), 12, id="transposed"),
        pytest.param((4, 3), (0, 1), 3, id="one row for all"),
        pytest.param((4, 3), (0, 0), 1, id="one element for all"),
        pytest.param((4, 3), (6, 2), 12, id="every other element"),
        pytest.param((7, 4), (2, 1), 16, id="windows that overlap"),
        pytest.param((0, 3), (0, 0), 0, id="empty"),
        pytest.param((), (), 1, id="no dimensions"),
        pytest.param((4, 3), (1,), 12, id="strides of another tensor"),
    ],
)
def test_elements_in_memory_count_once(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, count: int
) -> None:
    assert elements(Tensor(shape, "f32", strides)) == count


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=3),
)
def test_there_are_never_fewer_elements_than_distinct_places(
    dims: list[tuple[int, int]],
) -> None:
    places = {
        sum(i * stride for i, (_, stride) in zip(index, dims, strict=True))
        for index in itertools.product(*(range(n) for n, _ in dims))
    }
    shape, strides = (tuple(part) for part in zip(*dims, strict=True)) if dims else ((), ())

    assert len(places) <= elements(Tensor(shape, "f32", strides)) <= numel(shape)


@pytest.mark.parametrize(
    ("shapes", "result"),
    [
        pytest.param([(4, 3), (3,)], (4, 3), id="fewer dimensions"),
        pytest.param([(4, 1), (1, 3)], (4, 3), id="both"),
        pytest.param([(4, 0), (1,)], (4, 0), id="empty"),
        pytest.param([(), (2,)], (2,), id="none"),
        pytest.param([], (), id="nothing"),
    ],
)
def test_shapes_broadcast(shapes: list[tuple[int, ...]], result: tuple[int, ...]) -> None:
    assert broadcast(*shapes) == result


def test_shapes_that_do_not_broadcast_are_no_shapes() -> None:
    with pytest.raises(UnknownCostError, match="do not broadcast"):
        broadcast((4, 3), (4,))


@pytest.mark.torch
def test_types_meet_where_torch_has_them_meet() -> None:
    torch = pytest.importorskip("torch")
    from tests.analysis.costs.recorder import DTYPES

    names = [
        dtype for dtype in DTYPES
        if "float8" not in str(dtype) and str(dtype) not in _WITHOUT_PROMOTION
    ]  # fmt: skip
    for one, other in itertools.product(names, repeat=2):
        for shapes in itertools.product([(2,), ()], repeat=2):
            theirs = torch.result_type(
                *(
                    torch.empty(shape, dtype=dtype, device="meta")
                    for shape, dtype in zip(shapes, (one, other), strict=True)
                )
            )
            ours = promote(Tensor(shapes[0], DTYPES[one]), Tensor(shapes[1], DTYPES[other]))
            assert ours == DTYPES[theirs], (one, other, shapes)


_WITHOUT_PROMOTION = {"torch.uint16", "torch.uint32", "torch.uint64", "torch.complex32"}
"""Torch does not let them meet others, or warns."""


@pytest.mark.parametrize("number", [True, 1, 1.5, 1j])
@pytest.mark.parametrize("dtype", ["bool", "i32", "bf16", "f64"])
@pytest.mark.torch
def test_a_number_changes_the_type_where_torch_lets_it(dtype: str, number: Any) -> None:
    torch = pytest.importorskip("torch")
    from tests.analysis.costs.recorder import DTYPES

    own = next(item for item, name in DTYPES.items() if name == dtype)
    theirs = torch.result_type(torch.empty(2, dtype=own, device="meta"), number)

    assert promote(Tensor((2,), dtype), Scalar(number)) == DTYPES[theirs]


def test_without_a_type_there_is_no_common_one() -> None:
    assert promote(Tensor((2,), "f32"), Tensor((2,))) is None
    assert promote(None) is None


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (15, "bf16"), (6, "f32"), ("6", "f32"), ("torch.float16", "f16"), ("bf16", "bf16"),
        ("float8_e4m3fn", "f8e4m3"), (None, None), (True, None), (99, None),
    ],
)  # fmt: skip
def test_element_types_are_named_by_number_or_name(value: Any, dtype: str | None) -> None:
    call = OpCall("op", (None if value is None else Scalar(value),))

    assert dtype_at(call, 0) == dtype


@pytest.mark.parametrize(
    ("value", "truth"), [(True, True), ("False", False), ("true", True), (0, False), ("x", None)]
)
def test_flags_are_read_by_value_not_by_having_text(value: Any, truth: bool | None) -> None:  # noqa: FBT001 - a parameter
    assert flag(OpCall("op", (Scalar(value),)), 0) is truth


def test_lists_come_as_lists_text_or_one_number() -> None:
    call = OpCall("op", (Scalar([1, 2]), Scalar("[1, 2]"), Scalar(3), Scalar("same"), None))

    assert [integers(call, at) for at in range(6)] == [(1, 2), (1, 2), (3,), None, None, None]
    assert flags(OpCall("op", (Scalar("[True, False]"),)), 0) == (True, False)


def test_a_tensor_of_unknown_type_has_unknown_bytes() -> None:
    cost = tally(1, read=[Tensor((2,), "f32"), None], written=[Tensor((2,))])

    assert (cost.bytes_read, cost.bytes_written, cost.bytes) == (8, None, None)


def test_bounds_enclose_the_value() -> None:
    cost = bounded(Cost(5, 3, 4, assumed="one"), "two", flops=(6, 9), traffic=(1, 2))

    assert (cost.flops_lo, cost.flops_hi, cost.bytes_lo, cost.bytes_hi) == (5, 9, 1, 7)
    assert cost.assumed == "one; two"
