"""The grammar of range texts: what is PyTorch's, what is ours, and what is only text."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.markers import Marker, format_marker
from pyprof2.parsers._labels import Label, label_marker
from pyprof2.parsers._nsight_texts import cut_texts, label_parts
from pyprof2.signatures import Scalar, Tensor, parse_inputs

EVALUATE: Final = "autograd::engine::evaluate_function: "


def cut(*texts: str) -> list[tuple[str, str | None, int | None, int | None]]:
    """Return name, sizes, sequence number and op id of each text."""
    parts = cut_texts(pa.array(texts, pa.string()))
    columns = (parts.names, parts.sizes, parts.sequence, parts.op_id)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def label(text: str) -> Label:
    """Return what a text outside of our domain says."""
    [(name, sizes, sequence, op_id)] = cut(text)
    return label_parts(name, sizes, numbered=sequence is not None, has_id=op_id is not None)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("aten::view, op_id = 314290", ("aten::view", None, None, 314290), id="op id"),
        pytest.param("aten::mm, seq = 7", ("aten::mm", None, 7, None), id="number"),
        pytest.param(
            "aten::mm, seq = 7, op_id = 3", ("aten::mm", None, 7, 3), id="number and op id"
        ),
        pytest.param(
            "aten::mm, seq = 7, op_id = 3, sizes = [[2, 3], [3, 4]]",
            ("aten::mm", "sizes = [[2, 3], [3, 4]]", 7, 3),
            id="sizes",
        ),
        pytest.param(
            "aten::mm, op_id = 3, sizes = [[2, 3], []]",
            ("aten::mm", "sizes = [[2, 3], []]", None, 3),
            id="sizes without number",
        ),
        pytest.param(
            "mm, seq = 7, sizes = [[2], [2]]",
            ("mm", "sizes = [[2], [2]]", 7, None),
            id="sizes without op id",
        ),
        pytest.param(
            "aten::t, op_id = 5, input_op_ids = [(1,0), (2,1)]",
            ("aten::t", None, None, 5),
            id="inputs of the op",
        ),
        pytest.param(
            "aten::t, seq = 0, op_id = 5, sizes = [[4]], input_op_ids = [(1,0)]",
            ("aten::t", "sizes = [[4]]", 0, 5),
            id="everything",
        ),
        pytest.param(
            "CppNode<A<int, 2>>, seq = 9, op_id = 4",
            ("CppNode<A<int, 2>>", None, 9, 4),
            id="comma in the name",
        ),
    ],
)
def test_a_text_of_pytorch_is_cut_into_its_parts(text: str, parts: tuple[Any, ...]) -> None:
    assert cut(text) == [parts]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "my range",
        "lr, seq = high",
        "a, op_id = 3x",
        "a, op_id = -3",
        "a, op_id = ",
        "a, seq = 99999999999999999999",
        "a, op_id = 5, and more",
        "a, seq = 5, op_id = 6, op_id = 7",
        "a, input_op_ids = [(1,0)]",
        "__import__('os').system('true'), op_id = x",
        "modulate op args type",
    ],
)
def test_what_does_not_fit_the_grammar_stays_whole(text: str) -> None:
    assert cut(text) == [(text, None, None, None)]


def test_texts_of_all_forms_are_cut_side_by_side() -> None:
    texts = ["a, op_id = 1", "b", "c, seq = 2, op_id = 3, sizes = [[1]]", "d, op_id = x", ""]

    assert cut(*texts) == [
        ("a", None, None, 1),
        ("b", None, None, None),
        ("c", "sizes = [[1]]", 2, 3),
        ("d, op_id = x", None, None, None),
        ("", None, None, None),
    ]


def test_no_texts_are_no_parts() -> None:
    assert cut() == []


@given(
    name=st.text(st.characters(exclude_characters=",", exclude_categories=["Cs"])),
    number=st.none() | st.integers(0, 10**17),
    op_id=st.none() | st.integers(0, 10**17),
    sizes=st.none() | st.lists(st.lists(st.integers(0, 2**40))),
)
def test_what_pytorch_puts_together_is_taken_apart(
    name: str, number: int | None, op_id: int | None, sizes: list[list[int]] | None
) -> None:
    parts = {"seq": number, "op_id": op_id}
    if number is not None or op_id is not None:
        parts["sizes"] = sizes  # type: ignore[assignment]
    given_parts = [(key, value) for key, value in parts.items() if value is not None]
    text = name + "".join(f", {key} = {value}" for key, value in given_parts)
    written = None if parts.get("sizes") is None else f"sizes = {sizes}"

    assert cut(text) == [(name, written, number, op_id)]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_text_is_read(texts: list[str]) -> None:
    for name, sizes, sequence, op_id in cut(*texts):
        label_parts(name, sizes, numbered=sequence is not None, has_id=op_id is not None)
        label_marker(name)


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("aten::view, op_id = 3", "aten::view"),
        ("aten::view", "aten::view"),
        ("c10d::alltoall_base_, op_id = 3", "c10d::alltoall_base_"),
        ("flash_attn::_flash_attn_forward, op_id = 3", "flash_attn::_flash_attn_forward"),
        ("nccl:all_to_all, op_id = 3", "nccl:all_to_all"),
        ("record_param_comms, op_id = 3", "record_param_comms"),
        ("detach_, op_id = 3", "detach_"),
        ("triton_poi_fused_add_0, op_id = 3", "triton_poi_fused_add_0"),
        ("FlashAttnFunc, seq = 5, op_id = 3", "FlashAttnFunc"),
        ("AddmmBackward0, seq = 5, op_id = 3", "AddmmBackward0"),
        (f"{EVALUATE}AddmmBackward0, seq = 5", f"{EVALUATE}AddmmBackward0"),
        (f"{EVALUATE}AddmmBackward0", f"{EVALUATE}AddmmBackward0"),
        (f"{EVALUATE}AddmmBackward0, op_id = 3", f"{EVALUATE}AddmmBackward0"),
    ],
)
def test_ops_of_pytorch_are_ops(text: str, op: str) -> None:
    assert (label(text).what, label(text).name) == ("op", op)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("FSDP::pre_forward (encoder.block.0), op_id = 3", "annotation",
         "FSDP::pre_forward (encoder.block.0)"),
        ("FSDP::all_gather, op_id = 3", "annotation", "FSDP::all_gather"),
        ("Optimizer.step#Adam.step, op_id = 3", "annotation", "Optimizer.step#Adam.step"),
        ("ProfilerStep#5, op_id = 3", "step", "ProfilerStep#5"),
        ("ProfilerStep#5", "step", "ProfilerStep#5"),
        ("step 12", "maybe step", "step 12"),
        ("Iteration: 3", "maybe step", "Iteration: 3"),
        ("training_step_7", "maybe step", "training_step_7"),
        ("a step 12 further", "annotation", "a step 12 further"),
        ("forward, op_id = 3", "annotation", "forward"),
        ("my::range", "annotation", "my::range"),
        ("layer:encoder.block.0", "layer", "encoder.block.0"),
        ("ncclSend", "annotation", "ncclSend"),
        ("saxpy", "annotation", "saxpy"),
        ("", "annotation", ""),
    ],
)  # fmt: skip
def test_user_ranges_are_ranges(text: str, kind: str, name: str) -> None:
    found = label(text)

    assert (found.what, found.kind, found.name) == ("range", kind, name)


def test_sizes_become_inputs_without_types() -> None:
    signature = label("aten::mm, seq = 7, op_id = 3, sizes = [[2, 3], [3, 4]]").signature

    assert signature is not None
    assert (signature.op, signature.text) == ("aten::mm", "aten::mm([2,3], [3,4])")
    assert parse_inputs(signature.inputs) == (Tensor((2, 3)), Tensor((3, 4)))
    assert signature.has_shapes


def test_an_input_without_size_is_unknown() -> None:
    signature = label("aten::add, op_id = 3, sizes = [[2], [], []]").signature

    assert signature is not None
    assert parse_inputs(signature.inputs) == (Tensor((2,)), None, None)


def test_the_tensors_of_a_list_are_a_list() -> None:
    signature = label("aten::cat, op_id = 3, sizes = [[2], [5], []]").signature

    assert signature is not None
    assert parse_inputs(signature.inputs) == ((Tensor((2,)), Tensor((5,))), None)


@pytest.mark.parametrize(
    "sizes",
    ["[[2, -1]]", "[[2.5]]", "[2]", "[[[2]]]", "[[2], ", "{}", "[[2]] junk", "[" * 5000, "2",
     "[[1e3]]"],
)  # fmt: skip
def test_sizes_that_are_none_leave_the_inputs_unknown(sizes: str) -> None:
    found = label(f"aten::mm, op_id = 3, sizes = {sizes}")

    assert (found.what, found.name, found.signature) == ("op", "aten::mm", None)


def test_a_marker_of_an_op_says_everything_about_it() -> None:
    marker = Marker(
        "op", op="aten::mm", inputs=(Tensor((2, 3), "f32"), Scalar(1)), layer="a.0",
        source="train.py:7", direction="backward", recompute=True, accumulate=True,
    )  # fmt: skip
    found = label_marker(format_marker(marker))

    assert found.signature is not None
    assert found.signature.text == "aten::mm([2,3] f32, 1)"
    assert (found.what, found.name, found.layer, found.stack) == (
        "op", "aten::mm", "a.0", "train.py:7"
    )  # fmt: skip
    assert (found.direction, found.recompute, found.accumulate) == ("backward", True, True)


@pytest.mark.parametrize(
    ("marker", "kind", "name"),
    [
        (Marker("layer", layer="blocks.1", module="Block"), "layer", "blocks.1"),
        (Marker("optimizer", name="Adam"), "annotation", "Optimizer.step#Adam"),
        (Marker("zero_grad", name="Adam"), "annotation", "Optimizer.zero_grad#Adam"),
        (Marker("dataloader", name="_It"), "annotation", "enumerate(DataLoader)#_It"),
    ],
)
def test_markers_of_ranges_have_the_names_that_pytorch_gives(
    marker: Marker, kind: str, name: str
) -> None:
    found = label_marker(format_marker(marker))

    assert (found.what, found.kind, found.name) == ("range", kind, name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{"pyprof2":99,"kind":"op","op":"aten::mm"}',
            "marker-version",
        ),
        ('{"pyprof2":1,"kind":"song"}', "marker-broken"),
        ('{"pyprof2":1,"kind":"op"}', "marker-broken"),
    ],
)
def test_a_marker_that_cannot_be_read_is_a_problem_and_no_range(text: str, problem: str) -> None:
    found = label_marker(text)

    assert (found.what, found.problem) == ("nothing", problem)


@pytest.mark.parametrize(
    "text", ["data loading", "{}", '{"op": "aten::mm"}', "aten::mm, op_id = 3"]
)
def test_other_texts_of_our_domain_are_the_users(text: str) -> None:
    found = label_marker(text)

    assert (found.what, found.kind, found.name) == ("range", "annotation", text)
