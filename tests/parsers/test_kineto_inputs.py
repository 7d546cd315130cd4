"""Kineto's dims, types, strides and concrete inputs become inputs as formulas read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.parsers._kineto_columns import Call
from pyprof2.parsers._kineto_inputs import signature_of
from pyprof2.signatures import Scalar, Tensor, parse_inputs

if TYPE_CHECKING:
    from pyprof2.recording import Signature
    from pyprof2.signatures import Input


def signature(
    dims: Any, types: Any = None, strides: Any = None, values: Any = None, comm: Any = None
) -> Signature:
    """The signature of a call of `aten::f`; None stands for what was not recorded."""
    columns = [b"" if v is None else json.dumps(v).encode() for v in (dims, types, strides, values)]
    return signature_of(Call._make(["aten::f", *columns, comm]))


def inputs(*columns: Any) -> tuple[Input, ...]:
    return parse_inputs(signature(*columns).inputs)


F32 = Tensor((2, 3), "f32")


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        pytest.param(([[2, 3]], ["float"]), F32, id="tensor"),
        pytest.param(
            ([[2, 3]], ["float"], [[3, 1]]), Tensor((2, 3), "f32", (3, 1)), id="with strides"
        ),
        pytest.param(([[2, 3]], ["float"], [[1]]), F32, id="strides that do not fit"),
        pytest.param(([[]], ["float"]), Tensor((), "f32"), id="tensor without dimensions"),
        pytest.param(([[0, 3]], ["long int"]), Tensor((0, 3), "i64"), id="tensor without elements"),
        pytest.param(([[2, 3]], ["c10::Shiny"]), Tensor((2, 3)), id="type that we do not know"),
        pytest.param(([[2, 3]], [""]), Tensor((2, 3)), id="no type"),
        pytest.param(([[2, 3]],), Tensor((2, 3)), id="no types at all"),
        pytest.param(([[]], ["Scalar"], [[]], ["0.5"]), Scalar(0.5), id="number"),
        pytest.param(([[]], ["Scalar"], [[]], ["1e-5"]), Scalar(1e-5), id="small number"),
        pytest.param(([[]], ["Scalar"], [[]], ["-1"]), Scalar(-1), id="whole number"),
        pytest.param(([[]], ["Scalar"], [[]], ["True"]), Scalar(value=True), id="bool"),
        pytest.param(([[]], ["ScalarList"], [[]], ["[2, 2]"]), Scalar([2, 2]), id="list"),
        pytest.param(([[]], ["ScalarList"], [[]], ["[]"]), Scalar([]), id="empty list"),
        pytest.param(([[]], ["ScalarList"], [[]], ["[0.5, True]"]), Scalar([0.5, True]), id="mix"),
        pytest.param(
            ([[]], ["", ""], [[]], ["[[1, 2], [3]]"]), Scalar([[1, 2], [3]]), id="list of lists"
        ),
        pytest.param(([[]], [""], [[]], ["none"]), Scalar("none"), id="word"),
        pytest.param(([[]], [""], [[]], ["[[1, x]]"]), Scalar("[[1, x]]"), id="no list"),
        pytest.param(
            ([[]], [""], [[]], ["[" * 9000 + "]" * 9000]), Scalar("[" * 9000 + "]" * 9000),
            id="too deep",
        ),
        pytest.param(([[]], ["Scalar"], [[]], ["inf"]), Scalar("inf"), id="no finite number"),
        pytest.param(([[]], [""], [[]], [""]), None, id="nothing"),
        pytest.param(([[]], ["Int"]), None, id="scalar of 2021"),
        pytest.param(([[]], [""]), None, id="not recorded"),
        pytest.param(
            ([[[2, 3], [4]]], ["TensorList"]), (Tensor((2, 3)), Tensor((4,))), id="list of tensors"
        ),
        pytest.param(
            ([[[2, 3], [4]]], [["float", "double"]], [[[3, 1], [1]]]),
            (Tensor((2, 3), "f32", (3, 1)), Tensor((4,), "f64", (1,))), id="list with types",
        ),
        pytest.param(
            ([[[2, 3], [4]]], [["float"]], [[[3, 1]]]),
            (Tensor((2, 3), "f32", (3, 1)), Tensor((4,))), id="list with too few types",
        ),
        pytest.param(([5], ["float"]), None, id="dims that are no list"),
        pytest.param(([[2, -1]], ["float"]), None, id="dims below nothing"),
        pytest.param(([[2, 1.5]], ["float"]), None, id="dims with a fraction"),
        pytest.param(([[2, True]], ["float"]), None, id="dims with a bool"),
        pytest.param(([[2, 2**70]], ["float"]), None, id="dims out of range"),
        pytest.param(([[2, 3]], [{"a": 1}], [7], [[]]), Tensor((2, 3)), id="odd neighbours"),
    ],
)  # fmt: skip
def test_an_input_is_what_was_recorded_of_it(columns: tuple[Any, ...], wanted: Input) -> None:
    assert inputs(*columns) == (wanted,)


def test_inputs_keep_their_places_where_columns_are_too_short_or_long() -> None:
    assert inputs([[2, 3], [], [4]], ["float"], [], ["", "7", "", "9"]) == (
        F32,
        Scalar(7),
        Tensor((4,)),
    )


@pytest.mark.parametrize("raw", [b"{]", b"7", b'"x"', b"[" * 5000, b"null"])
def test_dims_that_are_no_list_are_no_inputs(raw: bytes) -> None:
    found = signature_of(Call("aten::f", raw, b"", b"", b"", None))

    assert (found.text, found.inputs, found.has_shapes) == ("aten::f()", "[]", False)


@pytest.mark.parametrize(
    ("dims", "has_shapes"),
    [([[2, 3]], True), ([[], [4]], True), ([[[2], []]], True), ([[]], False), ([], False)],
    ids=repr,
)
def test_a_call_has_shapes_if_any_input_has(dims: Any, *, has_shapes: bool) -> None:
    assert signature(dims).has_shapes == has_shapes


def test_the_text_is_what_a_person_reads() -> None:
    found = signature(
        [[1024], [512, 768], [], [[2], [3]], []],
        ["float", "c10::Half", "Scalar", ["int", "int"], ""],
        [],
        ["", "", "0.5", "", ""],
    )

    assert found.text == "aten::f([1024] f32, [512,768] f16, 0.5, ([2] i32, [3] i32))"


def test_a_collective_is_a_last_input_that_the_text_leaves_out() -> None:
    found = signature([[8]], ["float"], comm=("allreduce", 2049000, 2049000, "BFloat16", 8))

    assert found.text == "aten::f([8] f32)"
    assert parse_inputs(found.inputs)[1] == Scalar(
        {
            "collective": "allreduce", "in_count": 2049000, "out_count": 2049000,
            "dtype": "bf16", "group_size": 8,
        }
    )  # fmt: skip


def test_what_a_collective_does_not_tell_is_null() -> None:
    found = signature([], comm=("barrier", None, "many", "Shiny", 1.5))

    assert parse_inputs(found.inputs) == (
        Scalar(
            {
                "collective": "barrier", "in_count": None, "out_count": None, "dtype": None,
                "group_size": None,
            }
        ),
    )  # fmt: skip
