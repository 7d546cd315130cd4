"""An explanation holds what is known of a row, and what each number rests on."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from pyprof2.analysis.costs import formula_text, matmul
from pyprof2.analysis.summaries.explain import parse_reference
from pyprof2.analysis.summaries.explained_rows import Reference
from pyprof2.api import run_findings
from pyprof2.errors import UsageError
from tests.kineto_events import copy, kernel, launch, launched, load_events, node, op, step

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

F32 = ["float", "float"]
V100 = {"deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7,
                              "computeMinor": 0}]}  # fmt: skip
WINOGRAD = "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>()"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run of a step with a product, a convolution, their backward, and a copy."""
    return load_events(
        tmp_path_factory.mktemp("explain"),
        step(3, 0, 100),
        op("aten::linear", 0, 12, dims=[[4, 8], [16, 8]], types=F32, seq=5),
        op("aten::mm", 1, 10, dims=[[4, 8], [8, 16]], types=F32, seq=5),
        launched(2, 1, at=20, dur=40, name="volta_sgemm_64x64_nn"),
        op("aten::cudnn_convolution", 30, 9, dims=[[2, 4, 8, 8], [8, 4, 3, 3]], types=F32, seq=6),
        launched(31, 2, at=60, dur=1, name=WINOGRAD),
        launched(33, 3, at=61, dur=3, name="volta_sgemm_32x128_nn"),
        node("CudnnConvolutionBackward", 50, 20, seq=6, dims=[[2, 8, 8, 8]], types=["float"]),
        op(
            "aten::cudnn_convolution_backward_weight", 51, 9, tid=102,
            dims=[[], [2, 8, 8, 8], [2, 4, 8, 8]], types=["", "float", "float"],
        ),
        launched(52, 4, at=70, dur=5, name="wgrad_alg0_engine", tid=102),
        op("my::op", 80, 5, dims=[[4]], types=["float"]),
        launched(81, 5, at=90, dur=5, name="my_kernel"),
        launch(95, 6, name="cudaMemcpyAsync"),
        copy(97, 2, 6, name="Memcpy HtoD (Pageable -> Device)", bytes=4096),
        **V100,
    )  # fmt: skip


def test_a_kernel_comes_with_its_op_step_and_launch(run: Run) -> None:
    facts = run.explain("kernel:0")

    assert (facts["rank"], facts["reference"]) == (0, "kernel:0")
    assert facts["kernel"]["kernel"] == "volta_sgemm_64x64_nn"
    assert (facts["kernel"]["dur_ns"], facts["kernel"]["step"]) == (40_000, 3)
    assert facts["op"]["signature"] == "aten::mm([4,8] f32, [8,16] f32)"
    assert [outer["op"] for outer in facts["op"]["inside"]] == ["aten::linear"]
    assert facts["link"]["link"] == "correlation"
    assert facts["link"]["launch"]["name"] == "cudaLaunchKernel"


def test_the_formula_stands_there_with_its_numbers(run: Run) -> None:
    cost = run.explain("kernel:0")["cost"]

    assert cost["params"] == "M=4,N=16,K=8"
    assert cost["flops"] == 2 * 4 * 16 * 8
    assert (cost["flops_formula"], cost["flops_numbers"]) == ("2·M·N·K", "2·4·16·8")
    assert (cost["bytes_read"], cost["bytes_written"]) == (4 * (4 * 8 + 8 * 16), 4 * 4 * 16)
    assert cost["formula"]["name"] == "matmul.mm"
    assert (inspect.getdoc(matmul.mm) or "?") in cost["formula"]["text"]
    assert (inspect.getdoc(matmul.product) or "?").splitlines()[0] in cost["formula"]["text"]
    assert cost["shapes_from"] == "the inputs recorded with the op"


def test_the_roof_is_counts_over_peaks(run: Run) -> None:
    # 1024 FLOPs at 15.7 TFLOP/s, 896 bytes at 900 GB/s; it took 40 µs.
    roof = run.explain("kernel:0")["roof"]

    assert (roof["device"], roof["dtype"], roof["unit"]) == ("V100 SXM2", "f32", "vector")
    assert roof["compute_ns"] == pytest.approx(1024 / 15.7e12 * 1e9)
    assert roof["memory_ns"] == pytest.approx(896 / 900e9 * 1e9)
    assert roof["time_ns"] == 40_000
    assert roof["roofline_pct"] == pytest.approx(100 * roof["memory_ns"] / 40_000)
    assert (roof["flag"], roof["unknown_because"]) == (None, None)


def test_a_fast_convolution_says_what_it_saves_and_how_the_counts_are_shared(run: Run) -> None:
    facts = run.explain("kernel:2")
    flops = 2 * (2 * 8 * 8 * 8) * 4 * 9

    assert facts["cost"]["flops"] == flops
    assert facts["cost"]["flops_formula"] == "2·N·K·out·(C/groups)·window"
    assert facts["cost"]["flops_numbers"] == "2·2·8·64·4·9"
    assert [(k["kernel_id"], k["cost_role"], k["flops"]) for k in facts["sharing"]] == [
        (1, "helper", 0),
        (2, "main", flops),
    ]
    assert facts["roof"]["peak_flop_per_s"] == 15.7e12
    assert facts["roof"]["saving"] == {"factor": 4.0, "evidence": "Winograd's F(4×4, 3×3)"}
    assert facts["roof"]["compute_ns"] == pytest.approx(flops / (4 * 15.7e12) * 1e9)
    assert facts["roof"]["time_ns"] == 4000


def test_the_roof_of_an_op_is_not_that_of_its_helper(run: Run) -> None:
    assert run.explain("kernel:1")["roof"] is None
    assert run.explain("op:2")["roof"] == run.explain("kernel:2")["roof"]


def test_what_is_known_of_several_rows_is_that_of_each(run: Run) -> None:
    asked = [f"kernel:{number}" for number in range(6)] + ["op:0", "op:2", "op:5", "kernel:2"]

    together = list(run_findings.explain_all(run.tables, [(0, reference) for reference in asked]))

    assert together == [run.explain(reference) for reference in asked]
    assert {each["kernel"]["copy_kind"] for each in together if each["kernel"]} == {
        None,
        "h2d pageable",
    }


def test_the_shape_of_a_result_may_be_that_of_its_gradient(run: Run) -> None:
    # Stride and padding are not recorded: the result's size follows from the node's input.
    cost = run.explain("kernel:2")["cost"]

    assert cost["shapes_from"] == (
        "its inputs, and the shape of its result, [2,8,8,8]: "
        "the gradient that CudnnConvolutionBackward got"
    )
    assert cost["shapes_op"]["op_id"] == 3


def test_what_a_backward_op_lacks_may_be_that_of_its_forward_op(run: Run) -> None:
    facts = run.explain("kernel:3")

    assert facts["op"]["direction"] == "backward"
    assert facts["pair"]["forward"]["op"] == "aten::cudnn_convolution"
    assert facts["cost"]["flops"] == 2 * (2 * 8 * 8 * 8) * 4 * 9
    assert facts["cost"]["shapes_from"] == "its inputs, and those of its forward op"
    assert facts["cost"]["shapes_op"]["op_id"] == 2
    assert facts["cost"]["shapes_op"]["signature"].startswith("aten::cudnn_convolution([2,4,8,8]")


def test_an_outer_product_is_explained_as_one(tmp_path: Path) -> None:
    outer = op("aten::outer", 0, 9, dims=[[4], [16]], types=F32)

    cost = load_events(tmp_path, outer).explain("op:0")["cost"]

    assert (cost["flops"], cost["flops_formula"], cost["flops_numbers"]) == (64, "M·N", "4·16")


def test_a_forward_op_names_its_nodes(run: Run) -> None:
    pair = run.explain("op:2")["pair"]

    assert pair["sequence_nr"] == 6
    assert pair["backward"] == [{"op_id": 3, "op": "CudnnConvolutionBackward"}]


def test_an_op_whose_work_is_counted_inside_says_where(run: Run) -> None:
    linear = run.explain("op:0")

    assert linear["cost"]["counted_inside"] == [{"op_id": 1, "op": "aten::mm"}]
    assert (linear["kernel"], linear["link"], linear["roof"]) == (None, None, None)


def test_without_a_formula_the_rest_is_told(run: Run) -> None:
    facts = run.explain("kernel:4")

    assert facts["cost"]["cost_status"] == "no_formula"
    assert (facts["cost"]["formula"], facts["cost"]["shapes_from"]) == (None, None)
    assert (facts["sharing"], facts["roof"]) == (None, None)
    assert [verdict["tensor_core"] for verdict in facts["tensor_core"]] == ["unknown"]


def test_a_copy_has_its_bytes_and_no_verdict(run: Run) -> None:
    facts = run.explain("kernel:5")

    assert facts["kernel"]["copy_kind"].startswith("h2d")
    assert facts["kernel"]["bytes"] == 4096
    assert (facts["op"], facts["tensor_core"], facts["roof"]) == (None, None, None)


def test_without_a_gpu_the_rows_are_ops(tmp_path: Path) -> None:
    ops = [
        node("MmBackward0", 0, 20, seq=1),
        op("aten::mm", 1, 9, dims=[[2, 3], [3, 4]], types=F32),
    ]
    run = load_events(tmp_path, *ops)

    facts = run.explain("kernel:0")

    assert facts["op"]["op"] == "aten::mm"
    assert facts["cost"]["flops"] == 2 * 2 * 3 * 4
    assert facts["roof"]["roofline_pct"] is None
    assert "the CPU was not measured" in facts["roof"]["unknown_because"]


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        pytest.param("GPU X", "no peaks are known of the device", id="unknown device"),
        pytest.param("AMD Instinct MI300X", "the peak for f16 is not known, nor", id="either unit"),
    ],
)
def test_without_a_percentage_there_is_a_reason(tmp_path: Path, device: str, reason: str) -> None:
    mm = op("aten::mm", 0, 9, dims=[[4096, 4096], [4096, 4096]], types=["c10::Half"] * 2)
    properties = {"deviceProperties": [{"id": 0, "name": device}]}
    run = load_events(tmp_path, mm, launched(1, 1, at=10, dur=400, name="mystery"), **properties)

    roof = run.explain("kernel:0")["roof"]

    assert roof["roofline_pct"] is None
    assert roof["unknown_because"].startswith(reason)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        pytest.param("kernel:7", Reference("kernel", 7), id="kernel"),
        pytest.param("op:0", Reference("op", 0), id="op"),
    ],
)
def test_a_reference_is_a_kind_and_a_number(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference
    assert str(reference) == text


@pytest.mark.parametrize("text", ["7", "kernel", "kernel:", "kernel:-1", "op:x", "step:1", "op:1 "])
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="give kernel:N or op:N"):
        parse_reference(text)


@pytest.mark.parametrize(
    ("reference", "rank", "message"),
    [
        pytest.param("kernel:6", None, "there are kernel:0 to kernel:5", id="kernel"),
        pytest.param("op:6", None, "there are op:0 to op:5", id="op"),
        pytest.param("op:0", 4, "rank 4: no such rank; there is 0", id="rank"),
    ],
)
def test_a_row_that_is_not_there_is_an_error_that_says_which_are(
    run: Run, reference: str, rank: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        run.explain(reference, rank)


def test_an_op_without_a_formula_has_no_text() -> None:
    assert formula_text("my::op") is None


def test_an_op_on_the_cpu_beside_a_gpu_has_no_roof_of_the_gpu(tmp_path: Path) -> None:
    gpu = tmp_path / "gpu.json"
    gpu.write_text('{"name": "x", "memory_gb_per_s": 80, "vector_tflops": {"f32": 0.4}}')
    run = load_events(
        tmp_path,
        op("aten::mm", 0, 20, dims=[[2, 3], [3, 4]], types=F32),
        op("aten::mm", 30, 9, dims=[[2, 3], [3, 4]], types=F32), launched(31, 1, at=50, dur=5),
    )  # fmt: skip
    run.tables.device = gpu

    assert run.explain("op:0")["roof"] is None
    assert run.explain("op:1")["roof"]["device"] == "x"


def test_what_a_replayed_graph_did_is_not_what_the_op_around_it_does(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, op("aten::mm", 0, 50),
        launch(10, 1, name="cudaGraphLaunch", dur=5), kernel(20, 5, 1),
    )  # fmt: skip

    cost = run.explain("kernel:0")["cost"]

    assert cost["cost_status"] == "no_op"
    assert cost["cost_note"].startswith("replay of a CUDA graph")
    assert "formula" not in cost
