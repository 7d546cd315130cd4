"""Calls of ops as JSON for formulas and as text for people."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.signatures import (
    DTYPE_BITS,
    Input,
    OpCall,
    Scalar,
    Tensor,
    format_inputs,
    format_signature,
    nbytes,
    parse_inputs,
    tensors_in,
)

SHAPES = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(SHAPES)
    dtype = draw(st.sampled_from([None, *DTYPE_BITS]))
    strides = st.lists(st.integers(0, 2**40), min_size=len(shape), max_size=len(shape))
    return Tensor(shape, dtype, draw(st.none() | strides.map(tuple)))


PLAIN: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.text(max_size=5),
    st.floats(allow_nan=False, allow_infinity=False),
)
INPUTS: st.SearchStrategy[Input] = st.one_of(
    st.none(),
    tensors(),
    PLAIN.map(Scalar),
    st.lists(PLAIN, max_size=3).map(Scalar),
    st.lists(tensors(), max_size=3).map(lambda each: tuple(each)),  # noqa: PLW0108  (typing)
)


@given(st.lists(INPUTS, max_size=5).map(tuple))
def test_inputs_come_back_from_json_as_they_went(inputs: tuple[Input, ...]) -> None:
    text = format_inputs(inputs)

    assert parse_inputs(text) == inputs
    assert isinstance(json.loads(text), list)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        pytest.param((), "[]", id="none"),
        pytest.param((None,), "[null]", id="not given"),
        pytest.param((Tensor((2, 3)),), '[{"shape":[2,3]}]', id="shape"),
        pytest.param(
            (Tensor((2,), "f32", (1,)),), '[{"shape":[2],"dtype":"f32","strides":[1]}]', id="all"
        ),
        pytest.param((Scalar(0.5), Scalar(None)), '[{"value":0.5},{"value":null}]', id="scalars"),
        pytest.param(((Tensor((2,)),), ()), '[[{"shape":[2]}],[]]', id="lists"),
    ],
)  # fmt: skip
def test_the_json_has_the_documented_form(inputs: tuple[Input, ...], text: str) -> None:
    assert format_inputs(inputs) == text
    assert parse_inputs(text) == inputs


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        pytest.param(
            (Tensor((1024,), "f32"), Tensor((512, 768), "f32")), "[1024] f32, [512,768] f32",
            id="tensors",
        ),
        pytest.param((Tensor(()),), "[]", id="no dimensions, no type"),
        pytest.param((None, Tensor((2,), "f16")), "-, [2] f16", id="one not given"),
        pytest.param((Tensor((2,), "f16"), None, None), "[2] f16", id="the last not given"),
        pytest.param((None, None), "", id="none given"),
        pytest.param((Scalar([1, 2]), Scalar(value=True)), "[1,2], True", id="scalars"),
        pytest.param(((Tensor((2,)), Tensor((3,))),), "([2], [3])", id="list"),
        pytest.param(((),), "()", id="empty list"),
        pytest.param((Tensor((2,), "f16", (1,)),), "[2] f16", id="strides are left out"),
    ],
)  # fmt: skip
def test_a_person_reads_shapes_and_types(inputs: tuple[Input, ...], text: str) -> None:
    assert format_signature(OpCall("aten::f", inputs)) == f"aten::f({text})"


def test_tensors_come_back_from_a_signature() -> None:
    mat, none = Tensor((2, 3), "f16"), Tensor((), "f32")
    inputs = (mat, None, Scalar([4, 5]), (none, mat), Tensor((7,)), Scalar(value=True))

    assert tensors_in(format_signature(OpCall("aten::f", inputs))) == [mat, none, mat]


@pytest.mark.parametrize(
    ("count", "dtype", "size"),
    [
        (10, "f32", 40), (10, "bool", 10), (3, "f4e2m1", 2), (4, "i4", 2), (0, "f64", 0),
        (10, "c128", 160), (10, None, None), (10, "shiny", None),
    ],
)  # fmt: skip
def test_a_size_is_in_bytes_rounded_up_or_not_known(
    count: int, dtype: str | None, size: int | None
) -> None:
    assert nbytes(count, dtype) == size


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_a_scalar_of_any_value_has_a_text(value: Any) -> None:
    assert format_signature(OpCall("f", (Scalar(value),))).startswith("f(")
