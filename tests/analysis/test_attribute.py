"""Counts of an op are shared among its kernels exactly, and nothing counts twice."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.attribute import UNKNOWN, share
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
