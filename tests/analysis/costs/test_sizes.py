"""A count comes with the formula by which it was computed, and with no other one."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyprof2
from pyprof2.analysis.costs import estimate
from pyprof2.analysis.costs.sizes import Size, plain
from pyprof2.signatures import OpCall, Scalar, Tensor
from tests.analysis.costs.calls import f32
from tests.analysis.costs.formulas import sizes_in, value_of
from tests.kineto_events import rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = {"M": 6, "N": 35, "K": 4, "out": 1}
LEAVES = st.sampled_from([Size(value, name) for name, value in NAMES.items()]) | st.integers(0, 9)
SIGNS = st.sampled_from([operator.add, operator.sub, operator.mul, operator.floordiv])


def joined(sides: tuple[int, Callable[[int, int], int], int]) -> int:
    left, sign, right = sides
    # A number is neither divided by a size, nor is a size taken away from it: no formula does it.
    if sign in (operator.sub, operator.floordiv) and not isinstance(left, Size):
        sign = operator.add
    return sign(left, right) if right or sign is not operator.floordiv else left


@given(st.recursive(LEAVES, lambda inner: st.tuples(inner, SIGNS, inner).map(joined)))
def test_the_text_of_any_computation_gives_its_result(found: int) -> None:
    if isinstance(found, Size):
        assert value_of(found.formula, NAMES) == plain(found)
        assert value_of(found.numbers) == plain(found)


def test_parentheses_stand_only_where_they_are_needed() -> None:
    m, n, k = (Size(NAMES[name], name) for name in "MNK")

    assert (2 * m * (n + 1) // 2).formula == "2·M·(N + 1)/2"
    assert (1 * m - (n - k) + 0).formula == "M - (N - K)"
    assert (m // (n * k)).numbers == "6/(35·4)"


HEADS = [f32(1, 2, 4, 8)] * 3
SPARSE = (f32(3, 4), f32(3, 1), f32(8, 4))


@pytest.mark.parametrize(
    ("op", "inputs", "text"),
    [
        pytest.param("aten::outer", (f32(4), f32(16)), "M·N = 4·16", id="outer"),
        pytest.param(
            "aten::bmm", (f32(2, 3, 5), f32(2, 5, 4)), "2·B·M·N·K = 2·2·3·4·5", id="batch"
        ),
        pytest.param(
            "aten::mm", (Tensor((3, 5), "c64"), Tensor((5, 4), "c64")), "8·M·N·K = 8·3·4·5",
            id="complex",
        ),
        pytest.param(
            "aten::_sparse_semi_structured_mm", SPARSE, "2·M·N·(K/2) = 2·3·4·4", id="2:4 sparse"
        ),
        pytest.param(
            "aten::scaled_dot_product_attention", (*HEADS, None, Scalar(0.0), Scalar(value=False)),
            "2·B·H·Sq·Sk·(D + Dv) = 2·1·2·4·4·(8 + 8)", id="attention",
        ),
        pytest.param(
            "aten::scaled_dot_product_attention", (*HEADS, None, Scalar(0.0), Scalar(value=True)),
            "2·B·H·(Sq·(Sq + 1)/2)·(D + Dv) = 2·1·2·(4·(4 + 1)/2)·(8 + 8)", id="causal",
        ),
        pytest.param("aten::_softmax", (f32(3, 4),), "5·N = 5·12", id="per element"),
        pytest.param("aten::relu", (f32(3, 4),), "N = 12", id="one each"),
        pytest.param(
            "aten::cudnn_batch_norm", (f32(2, 3, 4),), "7·N·C·HW = 7·2·3·4", id="batch norm"
        ),
        pytest.param("aten::sum", (f32(10),), "N - out = 10 - 1", id="sum"),
        pytest.param("aten::mean", (f32(10),), "N = 10", id="mean"),
        pytest.param("aten::copy_", (f32(10), f32(10)), None, id="no FLOPs"),
    ],
)  # fmt: skip
def test_counts_come_with_their_formula(op: str, inputs: Any, text: str | None) -> None:
    cost = estimate(OpCall(op, tuple(inputs))).cost

    assert cost is not None
    assert (f"{cost.flops_formula} = {cost.flops_numbers}" if cost.flops_formula else None) == text
    if text is not None:
        assert value_of(cost.flops_numbers) == cost.flops


def test_the_formulas_of_a_real_trace_give_its_flops(kineto_trace: Path) -> None:
    """With their numbers, and with the op's parameters where these name all sizes."""
    run = pyprof2.load(kineto_trace)
    names = ("rank", "estimate_id", "params", "flops", "bytes")
    counted = [row for row in set(rows(run.table("ops"), *names)) if row[1] is not None]
    estimates = {
        (row["rank"], row["estimate_id"]): row for row in run.table("estimates").to_pylist()
    }
    for rank, number, params, flops, nbytes in counted:
        found = estimates[rank, number]
        if found["flops_formula"] is not None:
            sizes = sizes_in(params or "")
            sizes.setdefault("Dv", sizes.get("D", 0))
            assert value_of(found["flops_numbers"]) == flops
            assert value_of(found["flops_formula"], sizes) in (None, flops)
        if nbytes is not None:
            assert found["bytes_read"] + found["bytes_written"] == nbytes


def test_all_flops_of_a_network_have_a_formula(shared_trace: Callable[[str], Path]) -> None:
    run = pyprof2.load(shared_trace("kineto/rn50_v100_w0.json.gz"))
    formulas = rows(run.table("estimates"), "flops_formula")
    ops = rows(run.table("ops"), "op", "flops", "estimate_id")

    missing = {op for op, flops, number in ops if flops and formulas[number] is None}

    assert sum(flops or 0 for _, flops, _ in ops) > 1e12
    assert missing == set()
