"""Counts of an op are shared among its kernels exactly, and nothing counts twice."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyprof2
from pyprof2.analysis.costs.attribute import UNKNOWN, share
from pyprof2.analysis.hardware.kernel_names import is_helper
from pyprof2.api import run_profile
from tests.conftest import ROOT
from tests.kineto_events import (
    ENGINE,
    Event,
    copy,
    kernel,
    launch,
    launched,
    load_events,
    node,
    op,
    rows,
)

if TYPE_CHECKING:
    from pathlib import Path

DEMO = ROOT / "pyprof2" / "data" / "demo.json.gz"
MM: dict[str, Any] = {"dims": [[2, 3], [3, 4]], "types": ["float", "float"]}
"""2 x 3 times 3 x 4: 48 FLOPs; 6 + 12 elements are read and 8 written, 104 bytes."""


def shares(totals: list[int], groups: list[int], weights: list[int]) -> list[int]:
    columns = (np.array(values, np.int64) for values in (totals, groups, weights))
    found: list[int] = share(*columns).tolist()
    return found


@pytest.mark.parametrize(
    ("total", "weights", "wanted"),
    [
        pytest.param(100, [1, 1], [50, 50], id="even"),
        pytest.param(100, [1, 3], [25, 75], id="by weight"),
        pytest.param(100, [1, 1, 1], [34, 33, 33], id="the rest goes to the first of equals"),
        pytest.param(10, [1, 2, 4], [1, 3, 6], id="the rest goes to the largest remainder"),
        pytest.param(1, [5, 5, 6], [0, 0, 1], id="less than one each"),
        pytest.param(0, [5, 5], [0, 0], id="nothing"),
        pytest.param(9, [0, 3], [0, 9], id="nothing for no weight"),
        pytest.param(9, [0, 0], [5, 4], id="no weights at all"),
        pytest.param(UNKNOWN, [1, 3], [UNKNOWN, UNKNOWN], id="unknown"),
        pytest.param(2**60 + 1, [1, 1], [2**59 + 1, 2**59], id="more than a float holds"),
    ],
)
def test_a_total_is_shared_by_weight(total: int, weights: list[int], wanted: list[int]) -> None:
    assert shares([total], [0] * len(weights), weights) == wanted


def test_groups_do_not_mix() -> None:
    assert shares([10, 90, UNKNOWN], [1, 0, 2, 1, 0], [1, 1, 7, 2, 4]) == [30, 2, -1, 60, 8]


def test_no_kernels_have_no_shares() -> None:
    assert shares([], [], []) == []


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62),
            st.lists(st.integers(0, 2**40), min_size=1, max_size=5).filter(any),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_shares_are_in_proportion_and_add_up_exactly(cases: list[tuple[int, list[int]]]) -> None:
    totals = [total for total, _ in cases]
    groups = [group for group, (_, weights) in enumerate(cases) for _ in weights]
    weights = [weight for _, each in cases for weight in each]

    found = shares(totals, groups, weights)

    for group, (total, own) in enumerate(cases):
        part = [value for value, of in zip(found, groups, strict=True) if of == group]
        assert sum(part) == total
        for value, weight in zip(part, own, strict=True):
            exact = Fraction(total * weight, sum(own))
            assert floor(exact) <= value <= ceil(exact)


COLUMNS = ("op", "flops", "bytes", "cost_status")


def costed(folder: Path, *events: Event | list[Event]) -> list[Any]:
    return rows(load_events(folder, *events).table("kernels"), *COLUMNS)


def test_the_kernels_of_an_op_share_its_counts_by_their_time(tmp_path: Path) -> None:
    found = costed(
        tmp_path,
        op("aten::mm", 0, 9, **MM),
        launched(1, 1, at=20, dur=1), launched(2, 2, at=30, dur=3),
    )  # fmt: skip

    assert found == [("aten::mm", 12, 26, "ok"), ("aten::mm", 36, 78, "ok")]


def test_rates_are_those_of_the_op_over_all_its_kernels(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("aten::mm", 0, 9, **MM),
        launched(1, 1, at=20, dur=1), launched(2, 2, at=30, dur=3),
    )  # fmt: skip

    columns = ("op_time_ns", "tflops", "gbps", "intensity")
    rate = (4000, 48 / 4000 / 1000, 104 / 4000, 48 / 104)
    assert rows(run.table("kernels"), *columns) == [pytest.approx(rate)] * 2


def test_a_kernel_that_only_helps_gets_nothing_but_its_time_counts(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 0, 9, **MM), launch(1, 1), launch(2, 2),
        kernel(20, 3, 1, name="ampere_sgemm_128x64_nn"),
        kernel(30, 1, 2, name="void splitKreduce_kernel<32>(float*)"),
    ]  # fmt: skip

    table = load_events(tmp_path, events).table("kernels")

    assert rows(table, "flops", "bytes", "op_time_ns") == [(48, 104, 4000), (0, 0, 4000)]
    assert rows(table, "cost_role") == ["main", "helper"]


def test_a_helper_alone_has_done_the_work(tmp_path: Path) -> None:
    helper = kernel(30, 1, 2, name="void splitKreduce_kernel<32>(float*)")

    assert costed(tmp_path, op("aten::mm", 0, 9, **MM), launch(2, 2), helper) == [
        ("aten::mm", 48, 104, "ok")
    ]


def test_the_outermost_op_with_a_formula_accounts_for_what_is_inside(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("aten::addmm", 0, 9, dims=[[4], [2, 3], [3, 4]], types=["float"] * 3),
        op("aten::mm", 2, 3, **MM),
        launched(1, 1, at=20, dur=1), launched(3, 2, at=30, dur=1),
    )  # fmt: skip

    assert rows(run.table("kernels"), "op", "flops") == [("aten::addmm", 24), ("aten::mm", 24)]
    assert rows(run.table("ops"), "op", "flops", "cost_status") == [
        ("aten::addmm", 48, "ok"),
        ("aten::mm", None, "in_parent"),
    ]


def test_an_op_that_only_calls_others_leaves_the_counts_to_them(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("aten::linear", 0, 20, dims=[[2, 3], [4, 3], []], types=["float", "float", ""]),
        op("aten::t", 1, 2, dims=[[4, 3]], types=["float"]),
        op("aten::mm", 5, 9, **MM),
        launched(6, 1, at=30, dur=1),
    )

    assert rows(run.table("kernels"), "op", "flops") == [("aten::mm", 48)]
    assert rows(run.table("ops"), "op", "flops") == [
        ("aten::linear", None), ("aten::t", 0), ("aten::mm", 48),
    ]  # fmt: skip


def test_what_others_account_for_has_no_status_of_its_own(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("aten::linear", 0, 20, dims=[[2, 3], [4, 3], []], types=["float", "float", ""]),
        op("aten::mm", 5, 9, **MM),
        launched(3, 1, at=30, dur=1), launched(6, 2, at=40, dur=1),
    )  # fmt: skip

    columns = ("op", "flops", "cost_status", "cost_note")
    inside = ("aten::linear", None, "in_parent", "counted at the ops inside")
    assert rows(run.table("kernels"), *columns) == [inside, ("aten::mm", 48, "ok", None)]
    assert rows(run.table("ops"), *columns) == [inside, ("aten::mm", 48, "ok", None)]
    assert run_profile.ledger(run.tables).set_index("bin")["time_ns"]["ok"] == 2000


def test_a_product_of_which_only_copies_are_inside_is_counted_at_itself(tmp_path: Path) -> None:
    sizes = [[2, 8, 5], [8, 6, 3], [], [], [], [], [], []]
    values = ["", "", "", "[2]", "[0]", "[0]", "1", "[1]"]
    run = load_events(
        tmp_path,
        op("aten::conv_transpose1d", 0, 20, dims=sizes, types=["float"] * 2 + [""] * 6,
           values=values),
        op("aten::copy_", 5, 9, dims=[[2, 6, 11], [2, 6, 11]], types=["float"] * 2),
        launched(3, 1, at=30, dur=1),
    )  # fmt: skip

    assert rows(run.table("ops"), "op", "flops", "cost_status") == [
        ("aten::conv_transpose1d", 2 * 80 * 6 * 3, "ok"), ("aten::copy_", None, "in_parent"),
    ]  # fmt: skip


def test_it_accounts_for_itself_where_none_inside_can(tmp_path: Path) -> None:
    linear = op("aten::linear", 0, 20, dims=[[2, 3], [4, 3], []], types=["float", "float", ""])

    found = costed(tmp_path, linear, op("mylib::gemm", 2, 9), launched(3, 1, at=30, dur=1))

    assert found == [("mylib::gemm", 48, 104, "ok")]


def test_a_view_that_copies_leaves_the_counts_to_the_copy(tmp_path: Path) -> None:
    found = costed(
        tmp_path,
        op("aten::reshape_as", 0, 20, dims=[[8], [2, 4]], types=["float", "float"]),
        op("aten::copy_", 2, 9, dims=[[8], [8]], types=["float", "float"]),
        launched(3, 1, at=30, dur=1),
    )

    assert found == [("aten::copy_", 0, 64, "ok")]


def test_the_times_of_calls_that_repeat_do_not_mix(tmp_path: Path) -> None:
    found = costed(
        tmp_path,
        op("aten::mm", 0, 9, **MM), launched(1, 1, at=100, dur=7),
        op("aten::mm", 10, 9, **MM), launched(11, 2, at=110, dur=7),
    )  # fmt: skip

    assert found == [("aten::mm", 48, 104, "ok")] * 2


@pytest.mark.parametrize(
    ("events", "status"),
    [
        pytest.param([op("aten::mm", 0, 9)], "no_shapes", id="no inputs"),
        pytest.param([op("aten::mm", 0, 9, dims=[[], []])], "no_shapes", id="no shapes"),
        pytest.param([op("mylib::secret", 0, 9, **MM)], "no_formula", id="no formula"),
        pytest.param([op("aten::mm", 50, 9, **MM)], "no_op", id="op elsewhere"),
        pytest.param([], "no_op", id="no op"),
    ],
)
def test_what_is_not_known_is_null_and_says_why(
    tmp_path: Path, events: list[Event], status: str
) -> None:
    ((_, flops, nbytes, why),) = costed(tmp_path, events, launched(1, 1, at=20, dur=1))

    assert (flops, nbytes, why) == (None, None, status)


def test_a_copy_keeps_the_bytes_that_were_recorded(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("aten::copy_", 0, 9, dims=[[8], [8]], types=["float", "float"]),
        launch(1, 1), copy(20, 4, 1, name="Memcpy HtoD (Pinned -> Device)", bytes=32),
        launch(2, 2), copy(30, 4, 2, name="Memset (Device)"),
    )  # fmt: skip

    columns = (*COLUMNS, "gbps", "tflops")
    assert rows(run.table("copies"), *columns) == [
        ("aten::copy_", 0, 32, "ok", 0.008, None),
        ("aten::copy_", 0, None, "no_shapes", None, None),
    ]


def test_copies_take_no_share_of_the_op(tmp_path: Path) -> None:
    found = costed(
        tmp_path,
        op("aten::mm", 0, 9, **MM),
        launch(1, 1), copy(20, 4, 1, name="Memset (Device)", bytes=32),
        launched(2, 2, at=30, dur=4),
    )  # fmt: skip

    assert found == [("aten::mm", 48, 104, "ok")]


@pytest.mark.parametrize("size", ["[, ]", "[[[", "[1e999]", "[" * 50_000, "[[1], {}]", "x", ""])
def test_arguments_that_make_no_sense_are_survived(tmp_path: Path, size: str) -> None:
    found = costed(
        tmp_path,
        op("aten::index", 0, 20, dims=[[8, 4], [[3]]], types=["float", "long int"]),
        op("aten::as_strided", 2, 9, dims=[[8, 4], []], types=["float", ""], values=["", size]),
        launched(3, 1, at=30, dur=1),
    )

    assert len(found) == 1


def test_a_backward_op_that_lacks_a_shape_takes_it_from_its_forward_op(tmp_path: Path) -> None:
    conv = [[2, 3, 8, 8], [4, 3, 3, 3]]
    # Old cuDNN ops: grad_output and input, but the size of the weight is a list of numbers.
    weight = [[], [2, 4, 8, 8], [2, 3, 8, 8]]

    found = costed(
        tmp_path,
        op("aten::cudnn_convolution", 0, 9, seq=7, dims=conv, types=["float"] * 2),
        node("CudnnConvolutionBackward", 20, 20, seq=7, dims=[[2, 4, 8, 8]], types=["float"]),
        op("aten::cudnn_convolution_backward_weight", 22, 9, tid=ENGINE, dims=weight,
           types=["", "float", "float"]),
        launched(23, 1, at=60, dur=3, tid=ENGINE),
    )  # fmt: skip

    # 2 * batch 2 * 8x8 positions * 4 out * 3 in * 3x3 taps
    assert [row[1] for row in found] == [2 * 2 * 64 * 4 * 3 * 9]


def test_a_kernel_that_fills_a_buffer_for_an_op_only_helps(tmp_path: Path) -> None:
    """It zeroes a counter inside a product; by itself a fill is the work."""
    fill: dict[str, Any] = {"dims": [[4], []], "types": ["float", "Scalar"]}
    run = load_events(
        tmp_path,
        op("aten::mm", 0, 20, **MM), launched(1, 1, at=30, dur=6),
        op("aten::fill_", 5, 5, **fill), launched(6, 2, at=40, dur=2),
        op("aten::zero_", 50, 9, **fill), op("aten::fill_", 51, 5, **fill),
        launched(52, 3, at=70, dur=2),
    )  # fmt: skip

    assert rows(run.table("kernels"), "op", "flops", "bytes") == [
        ("aten::mm", 48, 104), ("aten::fill_", 0, 0), ("aten::fill_", 0, 16),
    ]  # fmt: skip
    assert rows(run.table("kernels"), "cost_role") == ["main", "nested", "main"]


GEMM = "ampere_sgemm_128x64_nn"
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(int, F)"
)
SUM = "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, F, unsigned, 4>>(R)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
ADDMM: dict[str, Any] = {"dims": [[4], [2, 3], [3, 4]], "types": ["float"] * 3}
"""As `MM`, and 4 elements of a bias read: 48 FLOPs, 120 bytes."""


@pytest.mark.parametrize(
    ("inner", "name"),
    [
        pytest.param("aten::add_", ADD, id="the bias is added"),
        pytest.param("aten::sum", SUM, id="the bias' gradient is summed"),
        pytest.param("aten::copy_", COPY, id="an operand is copied"),
        pytest.param("aten::copy_", "some_kernel", id="whatever the kernel's name"),
    ],
)
def test_an_op_inside_a_product_that_is_none_gets_nothing_of_it(
    tmp_path: Path, inner: str, name: str
) -> None:
    operands: dict[str, Any] = {"dims": [[2, 4], [4]], "types": ["float"] * 2}
    run = load_events(
        tmp_path,
        op("aten::addmm", 0, 20, **ADDMM), launched(1, 1, at=30, dur=6, name=GEMM),
        op(inner, 5, 5, **operands), launched(6, 2, at=40, dur=2, name=name),
        op(inner, 50, 5, **operands), launched(51, 3, at=60, dur=2, name=name),
    )  # fmt: skip

    assert rows(run.table("kernels"), "cost_role")[:2] == ["main", "nested"]
    inside, alone = rows(run.table("kernels"), "op", "flops", "bytes")[1:]
    assert rows(run.table("kernels"), "op", "flops", "bytes")[0] == ("aten::addmm", 48, 120)
    assert inside == (inner, 0, 0)
    assert alone[2] > 0


@pytest.mark.parametrize("name", [COPY, ADD, SUM])
def test_a_kernel_that_can_only_move_or_add_gets_nothing_of_a_product(
    tmp_path: Path, name: str
) -> None:
    """`aten::addmm` copies its bias itself: there is no op inside."""
    run = load_events(
        tmp_path,
        op("aten::addmm", 0, 20, **ADDMM),
        launched(1, 1, at=30, dur=5, name=name), launched(2, 2, at=40, dur=5, name=GEMM),
    )  # fmt: skip

    assert rows(run.table("kernels"), "flops", "bytes", "tflops", "gbps", "intensity") == [
        (0, 0, None, None, None), (48, 120, 48 / 10_000 / 1000, 120 / 10_000, 48 / 120),
    ]  # fmt: skip
    assert rows(run.table("kernels"), "cost_role") == ["helper", "main"]


def test_what_can_only_add_did_the_product_where_nothing_else_ran(tmp_path: Path) -> None:
    kernels = load_events(
        tmp_path, op("aten::addmm", 0, 20, **ADDMM), launched(1, 1, at=30, dur=5, name=ADD)
    ).table("kernels")

    assert rows(kernels, "cost_role", *COLUMNS) == [("main", "aten::addmm", 48, 120, "ok")]


def test_what_has_no_part_in_a_cost_has_no_role(tmp_path: Path) -> None:
    """A copy, a kernel without an op, one of an op without a formula, and a graph's."""
    run = load_events(
        tmp_path,
        op("aten::mm", 0, 9, **MM), launch(1, 1, name="cudaMemcpyAsync"),
        copy(20, 2, 1, name="Memcpy HtoD (Pageable -> Device)", bytes=64),
        launched(30, 2, at=40, dur=2), op("my::op", 50, 9), launched(51, 3, at=70, dur=2),
        op("my::op", 80, 9), launch(81, 4, name="cudaGraphLaunch"), kernel(90, 5, 4),
    )  # fmt: skip

    assert rows(run.table("copies"), "cost_role") == [None]
    assert rows(run.table("kernels"), "cost_role") == [None, None, None]


def test_outside_of_products_such_kernels_do_the_work(tmp_path: Path) -> None:
    """Two passes of one sum share it."""
    found = costed(
        tmp_path,
        op("aten::sum", 0, 9, dims=[[8]], types=["float"]),
        launched(1, 1, at=20, dur=1, name=SUM), launched(2, 2, at=30, dur=3, name=GEMM),
    )  # fmt: skip

    assert [row[2] for row in found] == [9, 27]  # 8 elements read and 1 written: 36 bytes


def test_the_gradient_of_a_bias_takes_nothing_from_the_convolution(tmp_path: Path) -> None:
    shapes = [[8, 128, 56, 56], [8, 64, 56, 56], [128, 64, 3, 3]]
    values = ["", "", "", "[128]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1",
              "[True, True, True]"]  # fmt: skip
    sums = {"dims": [shapes[0], [], []], "types": ["c10::BFloat16", "", ""],
            "values": ["", "[0, 2, 3]", "False"]}  # fmt: skip
    found = costed(
        tmp_path,
        op("aten::convolution_backward", 0, 50, dims=shapes + [[]] * 8,
           types=["c10::BFloat16"] * 3 + [""] * 8, values=values),
        launched(1, 1, at=100, dur=50, name="sm90_xmma_dgrad_implicit_gemm_bf16bf16"),
        launched(2, 2, at=150, dur=50, name="sm90_xmma_wgrad_implicit_gemm_bf16bf16"),
        op("aten::sum", 20, 15, **sums), launched(25, 3, at=200, dur=50, name=SUM),
    )  # fmt: skip

    # Each gradient: 8 x 128 x 56 x 56 outputs of 64 x 3 x 3 multiply-adds.
    each = 2 * 8 * 128 * 56 * 56 * 64 * 9
    assert [row[1] for row in found] == [each, each, 0]


def slow_shares(kernels: list[dict[str, Any]]) -> dict[int, int]:
    """Return the FLOPs of each kernel of one product by its time, none for what moves or adds."""
    moving = {"aten::add_", "aten::copy_", "aten::sum", "aten::fill_", "aten::zero_"}
    words = ("direct_copy_kernel", "copy_device_to_device", "CUDAFunctor_add", "FillFunctor")

    def works(row: dict[str, Any]) -> bool:
        is_inside = row["op_id"] != row["cost_op_id"] and row["op"] in moving
        return not is_inside and not any(word in row["kernel"] for word in words)

    main = [row for row in kernels if works(row)] or kernels
    total, time = sum(row["flops"] for row in kernels), sum(row["dur_ns"] for row in main)
    return {row["kernel_id"]: total * row["dur_ns"] // time for row in main}


def test_real_products_have_their_flops_at_the_kernels_that_multiply(kineto_trace: Path) -> None:
    """An independent count, a kernel at a time; kernels that help by name are tested above."""
    run = pyprof2.load(kineto_trace)
    category, whole = (
        dict(rows(run.table("ops"), "op_id", name)) for name in ("category", "flops")
    )
    products: dict[int, list[dict[str, Any]]] = {}
    for row in run.table("kernels").to_pylist():
        owner = row["cost_op_id"]
        is_product = category.get(owner) in ("matmul", "conv", "attention", "rnn")
        if is_product and row["flops"] is not None and not is_helper(row["kernel"]):
            products.setdefault(owner, []).append(row)
    for owner, kernels in products.items():
        if sum(row["dur_ns"] for row in kernels) == 0:
            continue
        assert sum(row["flops"] for row in kernels) == whole[owner]
        expected = slow_shares(kernels)
        for row in kernels:
            assert row["flops"] - expected.get(row["kernel_id"], 0) in (0, 1)
            assert (row["cost_role"] == "main") == (row["kernel_id"] in expected)


def test_rates_stand_at_the_kernels_whose_role_is_to_do_the_work(kineto_trace: Path) -> None:
    """Where a kernel has no rates and others of its op have some, it only helps."""
    names = ("rank", "cost_op_id", "cost_role", "tflops", "flops", "op_time_ns")
    kernels = rows(pyprof2.load(kineto_trace).table("kernels"), *names)
    rated = {(rank, op) for rank, op, _, tflops, _, _ in kernels if tflops is not None}
    for rank, op_, role, tflops, flops, time in kernels:
        assert (role is None) == (op_ is None)
        if op_ is not None and time:
            helps = (rank, op_) in rated and tflops is None
            assert helps == (role in ("helper", "nested"))
            assert not helps or flops == 0


def test_without_a_gpu_no_work_stands_at_an_op_and_at_one_around_it() -> None:
    run = pyprof2.load(DEMO)
    ops = run.table("ops").to_pylist()
    counted = {row["op_id"] for row in ops if row["flops"]}
    parent = {row["op_id"]: row["parent_op_id"] for row in ops}

    assert len(counted) > 100
    for number in counted:
        outer = parent[number]
        while outer is not None:
            assert outer not in counted
            outer = parent[outer]
    assert run_profile.rows_of(run.tables)["flops"].sum() == sum(row["flops"] or 0 for row in ops)


def test_a_replayed_graph_lacks_neither_shapes_nor_a_formula(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("CompiledFunction", 0, 20, dims=[[4]], types=["float"]),
        op("## Call CompiledFxGraph x ##", 1, 18),
        launch(2, 1, name="cudaGraphLaunch"), kernel(30, 5, 1), kernel(40, 5, 1),
        launch(60, 2, name="cudaGraphLaunch"), kernel(70, 5, 2),
    )  # fmt: skip

    words = "replay of a CUDA graph: what its kernels work on was not recorded with it"
    assert rows(run.table("kernels"), "cost_status", "cost_note") == [
        ("no_op", words), ("no_op", words), ("no_op", words),
    ]  # fmt: skip
    advice = " ".join(run.check()["advice"].fillna(""))
    assert "record_shapes" not in advice
    assert not run.check()["finding"].str.contains("compiled code|CompiledFunctions").any()
