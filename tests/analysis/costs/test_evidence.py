"""What a call lacks is found elsewhere in the recording, never in the wrong place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.analysis.costs import lacks_types
from pyprof2.analysis.hardware.kernel_names import element_of
from pyprof2.signatures import OpCall, Tensor, parse_inputs
from tests.kineto_events import ENGINE, Event, launched, load_events, node, op, rows
from tests.nsight_exports import Export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CAT: Final = "void at::native::(anonymous namespace)::CatArrayBatchedCopy"
HALF: Final = f"{CAT}_contig<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 2>"
LONG: Final = f"{CAT}<long, unsigned int, 2, 128, 1>(long*)"
LIST: Final[dict[str, Any]] = {"dims": [[[2, 3], [4, 3]], []], "types": ["TensorList", "Scalar"]}
"""Two tensors of 6 and 12 elements."""


def counted(folder: Path, *events: Event | list[Event]) -> list[Any]:
    """Status and bytes of each kernel."""
    return rows(load_events(folder, *events).table("kernels"), "cost_status", "bytes")


def test_the_kernels_tell_the_element_type_of_a_list(tmp_path: Path) -> None:
    found = counted(
        tmp_path,
        op("aten::cat", 0, 10, **LIST), launched(1, 1, at=20, dur=4, name=HALF),
        op("aten::cat", 10, 10, **LIST), launched(11, 2, at=30, dur=4, name=LONG),
        op("aten::cat", 20, 10, **LIST), launched(21, 3, at=40, dur=4),
    )  # fmt: skip

    assert found == [("ok", 2 * 36), ("ok", 2 * 144), ("assumed", 2 * 72)]


def test_kernels_that_disagree_tell_nothing(tmp_path: Path) -> None:
    found = counted(
        tmp_path,
        op("aten::cat", 0, 10, **LIST),
        launched(1, 1, at=20, dur=4, name=HALF), launched(2, 2, at=30, dur=4, name=LONG),
    )  # fmt: skip

    assert {status for status, _ in found} == {"assumed"}


def test_a_copy_between_types_has_both(tmp_path: Path) -> None:
    """18 elements of i32 written, of i64 read."""
    name = (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
        "namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::CopyFunctor<int, "
        "long, 2, 1, 1>, at::native::Copy<int, long> >"
    )
    lists: dict[str, Any] = {
        "dims": [[[2, 3], [4, 3]], [[2, 3], [4, 3]], []], "types": ["TensorList"] * 2 + ["Scalar"],
    }  # fmt: skip
    other = name.replace("CopyFunctor", "AdamFunctor")
    found = counted(
        tmp_path,
        op("aten::_foreach_copy_", 0, 10, **lists), launched(1, 1, at=20, dur=4, name=name),
        op("aten::_foreach_copy_", 10, 10, **lists), launched(11, 2, at=30, dur=4, name=other),
    )  # fmt: skip

    assert found == [("ok", 18 * 4 + 18 * 8), ("assumed", 18 * 4 * 2)]


def test_they_tell_it_to_the_op_around_that_accounts_for_them(tmp_path: Path) -> None:
    found = counted(
        tmp_path,
        op("aten::stack", 0, 10, **LIST), op("aten::cat", 1, 8, **LIST),
        launched(2, 1, at=20, dur=4, name=HALF),
    )  # fmt: skip

    assert found == [("ok", 2 * 36)]


def exported(folder: Path, *labels: tuple[str, str]) -> list[Any]:
    """Status and bytes of each kernel of ops of `emit_nvtx`, which records no types."""
    export = Export()
    for number, (label, kernel) in enumerate(labels):
        at, (op_name, sizes) = 100 * number, label.split(", ", 1)
        export.range(f"{op_name}, op_id = {number}, {sizes}", at, at + 50)
        export.call("cudaLaunchKernel", at + 1, 2, number + 1)
        export.kernel(kernel, at + 60, 4, number + 1)
    return rows(export.load(folder).table("kernels"), "cost_status", "bytes")


ADD: Final = (
    "void elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, Array<char*, 3> >(int)"
)


def test_kernels_name_the_type_of_tensors_that_are_recorded_without(tmp_path: Path) -> None:
    """2·3, 3·4 and 2·4 elements of 4 bytes; three of 5 elements of 2 bytes."""
    found = exported(
        tmp_path,
        ("aten::mm, sizes = [[2, 3], [3, 4]]", "volta_sgemm_32x32_nn"),
        ("aten::add, sizes = [[5], [5], []]", ADD),
        ("aten::mm, sizes = [[2, 3], [3, 4]]", "my_product"),
    )

    assert found == [("assumed", 104), ("assumed", 30), ("assumed", None)]


def test_they_do_not_where_tensors_may_be_of_several_types(tmp_path: Path) -> None:
    """The indices of an embedding, the mask of `where`, what is copied."""
    name = "void f<float>(P)"
    found = exported(
        tmp_path,
        ("aten::embedding, sizes = [[10, 4], [3], [], [], []]", name),
        ("aten::where, sizes = [[5], [5], [5]]", name),
        ("aten::copy_, sizes = [[5], [5], []]", name),
    )

    assert [nbytes for _, nbytes in found] == [None] * 3


@pytest.mark.parametrize(
    "name", ["aten::_int_mm", "aten::_scaled_mm", "aten::_weight_int8pack_mm", "quantized::linear"]
)
def test_products_of_packed_weights_are_not_of_one_type(name: str) -> None:
    tensors = (Tensor((16, 32)), Tensor((32, 64)))

    assert not lacks_types(OpCall(name, tensors))
    assert lacks_types(OpCall("aten::mm", tensors))


def test_a_type_that_is_recorded_is_no_other(tmp_path: Path) -> None:
    operands: dict[str, Any] = {"dims": [[2, 3], [3, 4]], "types": ["double", "double"]}
    found = counted(
        tmp_path, op("aten::mm", 0, 10, **operands),
        launched(1, 1, at=20, dur=4, name="volta_sgemm_32x32_nn"),
    )  # fmt: skip

    assert found == [("ok", 26 * 8)]


def test_the_named_type_is_the_recorded_one(kineto_trace: Path) -> None:
    """Of real kernels whose op has tensors of one type, but for the saved sums of a norm."""
    import pyprof2

    run = pyprof2.load(kineto_trace)
    signature = dict(rows(run.table("ops"), "op_id", "signature_id"))
    inputs = dict(rows(run.table("signatures"), "signature_id", "inputs"))
    for number, name in {*rows(run.table("kernels"), "op_id", "kernel")}:
        if (element := element_of(name or "")) and signature.get(number) is not None:
            call = OpCall(str(run.ops["op"][number]), parse_inputs(inputs[signature[number]]))
            tensors = [item for item in call.inputs if isinstance(item, Tensor) and item.shape]
            untyped = OpCall(call.op, tuple(replace(item, dtype=None) for item in tensors))
            types = [item.dtype for item in tensors]
            if types and types[0] and lacks_types(untyped):
                kept = 5 if "norm_backward" in call.op else None
                assert {*types[:kept]} == {element}, (call.op, name)


SUM: Final[dict[str, Any]] = {"dims": [[4, 3], [], [], []], "types": ["float", "", "", ""]}
"""A sum of 12 f32 over dimensions that are not recorded."""


def test_the_gradient_of_a_reduction_has_the_shape_of_its_result(tmp_path: Path) -> None:
    """48 bytes read; 3 elements of 4 bytes written."""
    found = counted(
        tmp_path,
        op("aten::sum", 0, 10, seq=5, **SUM), launched(1, 1, at=20, dur=4),
        node("SumBackward1", 100, 10, seq=5, dims=[[3]], types=["float"]),
    )  # fmt: skip

    assert found == [("ok", 48 + 12)]


def test_the_gradient_of_an_op_around_says_nothing_of_a_reduction_inside(tmp_path: Path) -> None:
    found = counted(
        tmp_path,
        op("my::op", 0, 10, seq=5), op("aten::sum", 1, 8, **SUM), launched(2, 1, at=20, dur=4),
        node("MyBackward", 100, 10, seq=5, dims=[[3]], types=["float"]),
    )  # fmt: skip

    assert found == [("assumed", 48 + 4)]


def test_the_next_call_tells_the_result_only_inside_the_same_op(tmp_path: Path) -> None:
    """The second sum is the last in its op; the view that follows is the first in the next."""
    view: dict[str, Any] = {"dims": [[1, 3], []], "types": ["float", ""]}
    found = counted(
        tmp_path,
        op("my::op", 0, 30), op("aten::sum", 1, 8, **SUM), launched(2, 1, at=20, dur=4),
        op("aten::view", 10, 2, **view),
        op("my::op", 40, 10), op("aten::sum", 41, 8, **SUM), launched(42, 2, at=60, dur=4),
        op("my::op", 51, 30), op("aten::view", 52, 2, **view),
        op("aten::sum", 60, 8, **SUM), launched(61, 3, at=80, dur=4),
    )  # fmt: skip

    assert found == [("ok", 48 + 12), ("assumed", 48 + 4), ("assumed", 48 + 4)]


def test_the_gradient_of_a_mean_is_read_once_however_often_it_is_repeated(
    tmp_path: Path,
) -> None:
    """4 x 3 elements of one row of 3 each: 3 are read, 12 written; without the node all are."""
    spread: dict[str, Any] = {"dims": [[4, 3], []], "types": ["float", "Scalar"]}
    found = counted(
        tmp_path,
        node("MeanBackward1", 0, 30, seq=5, dims=[[1, 3]], types=["float"]),
        op("aten::div", 5, 9, tid=ENGINE, **spread), launched(6, 1, at=50, dur=4, tid=ENGINE),
        op("aten::div", 40, 9, tid=ENGINE, **spread), launched(41, 2, at=60, dur=4, tid=ENGINE),
    )  # fmt: skip

    assert found == [("ok", 12 + 48), ("ok", 48 + 48)]


def test_every_list_of_real_traces_has_its_element_type(
    shared_trace: Callable[[str], Path],
) -> None:
    """Keys and values of a bf16 model: `cat` moves 2 bytes an element, not the 4 of a guess."""
    import pyprof2

    run = pyprof2.load(shared_trace("kineto/tl_qwen_mi300.json.gz"))
    cats = run.kernels[run.kernels["op"] == "aten::cat"]

    assert len(cats) == 49
    assert set(cats["cost_status"]) == {"ok"}
    names = cats["kernel"].astype(str)
    assert names.str.contains("CatArrayBatchedCopy").all()


@pytest.mark.parametrize("trace", ["tl_moe2_b300", "tl_moe5_b300"])
def test_real_indices_are_counted(shared_trace: Callable[[str], Path], trace: str) -> None:
    """Experts' weights gathered for n tokens: n indices of 8 bytes besides weights and result."""
    import pyprof2

    run = pyprof2.load(shared_trace(f"kineto/{trace}.json.gz"))
    gathers = run.kernels[(run.kernels["op"] == "aten::index") & run.kernels["bytes"].notna()]
    tokens, hidden, inner = {"tl_moe2_b300": (512, 1024, 512), "tl_moe5_b300": (1024, 2048, 1024)}[
        trace
    ]
    wanted = 2 * (8 + tokens) * hidden * inner + 8 * tokens

    assert len(gathers)
    assert set(gathers.groupby("cost_op_id")["bytes"].sum()) == {wanted}
    # Which rows are named more than once is not recorded.
    assert set(gathers["cost_status"]) == {"assumed"}


CONV: Final[dict[str, Any]] = {"dims": [[2, 4, 8, 8], [8, 4, 3, 3]], "types": ["float", "float"]}
"""A convolution whose stride and padding are not recorded."""
RESULT: Final[dict[str, Any]] = {"dims": [[2, 8, 8, 8]], "types": ["float"]}
NUMBERS: Final[dict[str, Any]] = {"dims": [[], [], []], "types": ["long int", "Scalar", "Scalar"]}
OF_WEIGHT: Final[dict[str, Any]] = {
    "dims": [[], [2, 8, 8, 8], [2, 4, 8, 8]], "types": ["", "float", "float"],
}  # fmt: skip
KNOWN_SUM: Final[dict[str, Any]] = SUM | {"values": ["", "[0]", "False", ""]}
VIEW: Final[dict[str, Any]] = {"dims": [[1, 3], []], "types": ["float", ""]}
STRIDED: Final[dict[str, Any]] = {"dims": [[3], [], [], []], "types": ["float", "", "", ""]}
SPREAD: Final[dict[str, Any]] = {"dims": [[4, 3], []], "types": ["float", "Scalar"]}
OWN: Final = "the inputs recorded with the op"


@pytest.mark.parametrize(
    ("events", "at", "words", "other"),
    [
        pytest.param([op("aten::mm", 0, 9, **CONV)], 0, None, None, id="no counts"),
        pytest.param([op("aten::sum", 0, 9, **KNOWN_SUM)], 0, OWN, None, id="its own inputs"),
        pytest.param(
            [
                op("aten::sum", 0, 9, seq=5, **KNOWN_SUM),
                node("SumBackward1", 100, 9, seq=5, dims=[[3]], types=["float"]),
            ],
            0, OWN, None, id="its own inputs, though there is a gradient",
        ),
        pytest.param(
            [
                op("aten::cudnn_convolution", 0, 9, seq=5, **CONV),
                node("CudnnConvolutionBackward", 100, 9, seq=5, **RESULT),
            ],
            0,
            "its inputs, and the shape of its result, [2,8,8,8]: "
            "the gradient that CudnnConvolutionBackward got", 1, id="the gradient of its result",
        ),
        pytest.param(
            [
                op("aten::cudnn_convolution", 0, 9, seq=5, **CONV),
                node("CudnnConvolutionBackward", 100, 50, seq=5),
                op("aten::cudnn_convolution_backward_weight", 110, 9, tid=ENGINE, **OF_WEIGHT),
            ],
            2, "its inputs, and those of its forward op", 0, id="its forward op",
        ),
        pytest.param(
            [op("aten::cudnn_convolution", 0, 9, **CONV), op("aten::relu", 20, 9, **RESULT)],
            0,
            "its inputs, and the shape of its result, [2,8,8,8]: the input of the next call", 1,
            id="the next call",
        ),
        pytest.param(
            [
                op("aten::conv2d", 0, 9, **CONV), op("aten::add_", 20, 2, **NUMBERS),
                op("aten::batch_norm", 30, 9, **RESULT),
            ],
            0,
            "its inputs, and the shape of its result, [2,8,8,8]: the input of the next call", 2,
            id="the call after a counter",
        ),
        pytest.param(
            [
                op("aten::conv2d", 0, 9, **CONV), op("aten::randn", 20, 2),
                op("aten::mul_", 30, 9, **RESULT),
            ],
            0, None, None, id="a call that may make another tensor",
        ),
        pytest.param(
            [
                op("aten::conv2d", 0, 20, **CONV), op("aten::_convolution", 1, 18, **CONV),
                op("aten::cudnn_convolution", 2, 5, **CONV), op("aten::add_", 10, 5, **RESULT),
                op("aten::max_pool2d", 30, 5, dims=[[2, 8, 4, 4]], types=["float"]),
            ],
            0,
            "its inputs, and the shape of its result, [2,8,8,8]: its bias is added to it", 3,
            id="the bias",
        ),
        pytest.param(
            [op("aten::sum", 0, 9, **SUM), op("aten::as_strided", 1, 2, **STRIDED)],
            0, "its inputs, and the shape of its result, [3]: an op inside makes a view of it",
            None, id="a view inside",
        ),
        pytest.param(
            [
                op("my::op", 0, 30), op("aten::sum", 1, 8, **SUM), op("aten::view", 10, 2, **VIEW),
            ],
            1, "its inputs, and the shape of its result, [1,3]: aten::view makes a view of it", 2,
            id="a view right after",
        ),
        pytest.param(
            [
                node("MeanBackward1", 0, 30, seq=5, dims=[[1, 3]], types=["float"]),
                op("aten::div", 5, 9, tid=ENGINE, **SPREAD),
            ],
            1, "its inputs, and its node's gradient, [1,3] f32, which MeanBackward1 repeats", 0,
            id="what its node repeats",
        ),
        pytest.param(
            [op("aten::cat", 0, 10, **LIST), launched(1, 1, at=20, dur=4, name=LONG)],
            0, "its inputs, and elements of i64, as the kernel's name says", None, id="its kernels",
        ),
    ],
)  # fmt: skip
def test_each_count_says_where_its_shapes_are_from(
    tmp_path: Path, events: list[Any], at: int, words: str | None, other: int | None
) -> None:
    ops = load_events(tmp_path, *events).table("ops")

    assert rows(ops, "shapes_from", "shapes_op_id")[at] == (words, other)


@pytest.mark.parametrize("name", ["CompiledFunction", "MyFunction"])
def test_the_gradient_of_a_function_in_python_says_nothing_of_a_convolution_inside(
    tmp_path: Path, name: str
) -> None:
    """Its result is another one: that of a whole compiled graph, say."""
    events = [
        op(name, 0, 30, seq=5), op("aten::cudnn_convolution", 1, 9, **CONV),
        node(f"{name}Backward", 100, 9, seq=5, dims=[[2, 3, 5, 5]], types=["float"]),
    ]  # fmt: skip
    ops = load_events(tmp_path, *events).table("ops")

    (found,) = [row for row in ops.to_pylist() if row["op"] == "aten::cudnn_convolution"]
    # 8 results of windows of 4·3·3, at 6 to 8 by 6 to 8 places, for 2 images.
    assert found["flops"] != 2 * 2 * 3 * 5 * 5 * 36
    assert found["shapes_from"] in (None, OWN)


def test_what_accounts_for_nothing_names_no_shapes(tmp_path: Path) -> None:
    """The product inside of `linear` has the counts; `relu` inside of a product has none."""
    product: dict[str, Any] = {"dims": [[2, 3], [3, 4]], "types": ["float", "float"]}
    ops = load_events(
        tmp_path,
        op("aten::linear", 0, 20, **product), op("aten::mm", 1, 18, **product),
        op("aten::relu", 2, 9, **RESULT),
    ).table("ops")  # fmt: skip

    assert rows(ops, "shapes_from", "estimate_id") == [(None, None), (OWN, 0), (None, None)]


def test_all_counts_of_a_real_trace_say_where_their_shapes_are_from(kineto_trace: Path) -> None:
    import pyprof2

    names = ("signature_id", "flops", "bytes", "estimate_id", "shapes_from", "shapes_op_id")
    ops = pyprof2.load(kineto_trace).table("ops")
    for signature, flops, nbytes, estimate, words, other in rows(ops, *names):
        has_counts = flops is not None or nbytes is not None
        assert (estimate is not None) == has_counts
        assert (words is not None) == (has_counts and signature is not None)
        assert other is None or words != OWN
