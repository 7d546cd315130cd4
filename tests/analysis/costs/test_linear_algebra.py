"""Factorisations and solvers, counted by loops over what they eliminate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.analysis.costs import estimate
from pyprof2.signatures import Tensor
from tests.analysis.costs.calls import call, f32, i32, known

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NO, YES = False, True
TALL, WIDE, SQUARE = (60, 40), (40, 60), (50, 50)
OTHERS = 7


def reflected(m: int, n: int) -> int:
    """Return the FLOPs of reflections: each turns all columns behind its own."""
    return sum(4 * (m - k) * (n - k) for k in range(min(m, n)))


def eliminated(m: int, n: int) -> int:
    """Return the FLOPs of elimination: each row below loses a multiple of the one."""
    return sum((m - k - 1) * (2 * (n - k - 1) + 1) for k in range(min(m, n)))


def substituted(n: int) -> int:
    return sum(2 * k + 1 for k in range(n))


def applied(m: int, k: int, columns: int) -> int:
    return sum(4 * (m - at) * columns for at in range(k))


@pytest.mark.parametrize("sizes", [TALL, WIDE, SQUARE], ids=str)
@pytest.mark.parametrize(
    ("make", "count"),
    [
        pytest.param(lambda m, n: call("aten::geqrf", f32(3, m, n)), reflected, id="geqrf"),
        pytest.param(
            lambda m, n: call("aten::linalg_lu_factor_ex", f32(3, m, n), YES, NO),
            eliminated,
            id="lu",
        ),
        pytest.param(lambda m, n: call("aten::linalg_lu", f32(3, m, n), YES), eliminated, id="P"),
        pytest.param(
            lambda m, n: call("aten::ormqr", f32(3, m, n), f32(3, min(m, n)), f32(3, m, OTHERS)),
            lambda m, n: applied(m, min(m, n), OTHERS),
            id="ormqr",
        ),
        pytest.param(
            lambda m, n: call(
                "aten::ormqr", f32(3, m, n), f32(3, min(m, n)), f32(3, OTHERS, m), NO, YES
            ),
            lambda m, n: applied(m, min(m, n), OTHERS),
            id="ormqr at the right",
        ),
    ],
)
def test_leading_terms_are_those_of_the_loops(
    sizes: tuple[int, int], make: Callable[[int, int], Any], count: Callable[[int, int], int]
) -> None:
    found = estimate(make(*sizes))

    assert found.status == "ok"
    assert known(found).flops == pytest.approx(3 * count(*sizes), rel=0.08)


def test_q_is_made_of_its_reflections() -> None:
    cost = known(estimate(call("aten::linalg_householder_product", f32(60, 60), f32(40))))

    # Each turns the columns behind its own, from the last one on.
    assert cost.flops == pytest.approx(sum(4 * (60 - k) ** 2 for k in range(40)), rel=0.05)
    assert cost.bytes == 4 * (3600 + 40 + 3600)


@pytest.mark.parametrize(
    ("op", "inputs", "flops", "elements"),
    [
        ("aten::cholesky_solve", (f32(3, 8, 2), f32(8, 8), NO), 3 * 2 * 64 * 2, 48 + 64 + 48),
        ("aten::linalg_lu_solve", (f32(8, 8), i32(8), f32(3, 8, 2), YES, NO), 3 * 256, 160),
        ("aten::linalg_lu_solve", (f32(8, 8), i32(8), f32(3, 2, 8), NO, NO), 3 * 256, 160),
        ("aten::linalg_ldl_solve", (f32(3, 8, 8), i32(3, 8), f32(3, 8, 2)), 3 * 256, 288),
        ("aten::linalg_solve_triangular", (f32(8, 8), f32(3, 8, 2), YES), 3 * 128, 160),
        ("aten::linalg_solve_triangular", (f32(3, 8, 8), f32(8, 2), YES), 3 * 128, 256),
        # The matrix is returned too.
        ("aten::triangular_solve", (f32(3, 8, 2), f32(3, 8, 8), YES), 3 * 128, 288 + 192),
        ("aten::cholesky_inverse", (f32(3, 8, 8), NO), 3 * 2 * 512 // 3, 384),
        ("aten::_linalg_slogdet", (f32(3, 8, 8),), 3 * 2 * 512 // 3, 384),
        ("aten::lu_unpack", (f32(6, 4), i32(4), YES, YES), 0, 24 + 4 + 24 + 16 + 36),
        ("aten::lu_unpack", (f32(6, 4), i32(4), YES, NO), 0, 24 + 4 + 24 + 16),
    ],
)
def test_what_has_factors_solves(
    op: str, inputs: tuple[Any, ...], flops: int, elements: int
) -> None:
    cost = known(estimate(call(op, *inputs)))

    assert cost.flops == flops
    # All of 4 bytes.
    assert cost.bytes == 4 * elements


@pytest.mark.parametrize(
    ("matrix", "right", "place", "columns"),
    [
        ((3, 8, 8), (3, 8, 2), "left", 3 * 2),
        ((3, 8, 8), (3, 2, 8), "right", 3 * 2),
        ((3, 8, 8), (3, 8), "left", 3),
        ((3, 8, 8), (8, 2), "left", 3 * 2),
        ((8, 8), (5, 8, 2), "left", 5 * 2),
        ((8, 8), (8,), "left", 1),
    ],
)
def test_each_right_side_is_solved_once(
    matrix: tuple[int, ...], right: tuple[int, ...], place: str, columns: int
) -> None:
    inputs = f32(*matrix), f32(*right), place == "left", NO
    cost = known(estimate(call("aten::_linalg_solve_ex", *inputs)))

    matrices = 3 if len(matrix) == 3 else 1
    assert cost.flops == matrices * (2 * 512 // 3) + 2 * 64 * columns
    assert cost.bytes_written == 4 * 8 * columns


def test_least_squares_are_reflections_and_a_triangle() -> None:
    found = estimate(call("aten::linalg_lstsq", f32(3, 60, 40), f32(3, 60, OTHERS)))

    cost = known(found)
    each = reflected(60, 40) + applied(60, 40, OTHERS)
    assert found.status == "assumed"
    assert cost.flops == pytest.approx(3 * (each + OTHERS * substituted(40)), rel=0.05)
    assert cost.flops - (cost.flops_lo or 0) == 3 * OTHERS * 40 * 40
    assert (cost.flops_hi or 0) > 2 * cost.flops
    assert cost.bytes == cost.bytes_lo == 4 * 3 * (60 * 40 + 60 * OTHERS + 40 * OTHERS)


N = 12


@pytest.mark.parametrize(
    ("op", "inputs", "flops", "elements"),
    [
        ("aten::_linalg_eigh", (f32(N, N), None, YES), 9 * N**3, 2 * N * N + N),
        ("aten::_linalg_eigh", (f32(N, N), None, NO), 4 * N**3 // 3, N * N + N),
        ("aten::linalg_eig", (f32(N, N),), 25 * N**3, N * N + 2 * (N * N + N)),
        ("aten::_linalg_eigvals", (f32(N, N),), 10 * N**3, N * N + 2 * N),
        ("aten::_linalg_svd", (f32(N, 6), NO, YES), 6 * N * 36 + 20 * 216, 72 + 72 + 6 + 36),
        ("aten::_linalg_svd", (f32(6, N), NO, YES), 6 * N * 36 + 20 * 216, 72 + 72 + 6 + 36),
        ("aten::_linalg_svd", (f32(6, N), YES, YES), 4 * 144 * 6 + 22 * 216,
         72 + 36 + 6 + 144),
        ("aten::_linalg_svd", (f32(N, 6), NO, NO), 2 * N * 36 + 2 * 216, 72 + 6),
        ("aten::linalg_svdvals", (f32(N, 6),), 2 * N * 36 + 2 * 216, 72 + 6),
        ("aten::svd", (f32(N, 6), YES, YES), 6 * N * 36 + 20 * 216, 72 + 72 + 6 + 36),
    ],
)  # fmt: skip
def test_what_iterates_has_bounds(
    op: str, inputs: tuple[Any, ...], flops: int, elements: int
) -> None:
    found = estimate(call(op, *inputs))

    cost = known(found)
    assert (found.status, found.category) == ("assumed", "matmul")
    assert "iterations" in found.note
    assert cost.flops == flops
    assert 0 < (cost.flops_lo or 0) <= cost.flops < (cost.flops_hi or 0)
    assert cost.bytes == 4 * elements


def test_complex_numbers_take_four_times_as_many() -> None:
    for op in ("aten::geqrf", "aten::linalg_cholesky_ex", "aten::_linalg_eigh"):
        real = known(estimate(call(op, f32(9, 9))))
        whole = known(estimate(call(op, Tensor((9, 9), "c64"))))
        assert whole.flops == 4 * real.flops


JOBS = (
    "geqrf", "householder_product", "ormqr", "qr", "lstsq", "eigh", "eigvalsh", "eig", "eigvals",
    "svd", "svdvals", "cholesky", "cholesky_inverse", "cholesky_solve", "solve_triangular",
    "lu_factor", "lu", "lu_solve", "inv", "solve", "det", "slogdet", "ldl_factor",
)  # fmt: skip


@pytest.mark.torch
def test_all_of_a_recording_is_counted(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    tall, right = torch.randn(3, 12, 5), torch.randn(3, 8, 2)
    square = torch.randn(3, 8, 8)
    whole = square @ square.mT + 8 * torch.eye(8)
    factors, swaps = torch.linalg.lu_factor(square)
    inputs = {
        "geqrf": (tall,), "householder_product": (tall, torch.randn(3, 5)),
        "ormqr": (tall, torch.randn(3, 5), torch.randn(3, 12, 4)), "qr": (tall,),
        "lstsq": (tall, torch.randn(3, 12, 2)), "svd": (tall,), "svdvals": (tall,), "lu": (tall,),
        "cholesky_solve": (right, whole), "lu_solve": (factors, swaps, right),
        "solve": (square, right),
    }  # fmt: skip
    with torch.profiler.profile(record_shapes=True) as profiler:
        for name in JOBS:
            function = getattr(torch.linalg, name, None) or getattr(torch, name)
            if name == "solve_triangular":
                function(whole, right, upper=True)
            else:
                function(*inputs.get(name, (whole,)))
    path = tmp_path / "t.json"
    profiler.export_chrome_trace(str(path))

    ops = pyprof2.load(path).ops

    assert ops.loc[ops["cost_status"].isin(["no_formula", "no_shapes"]), "op"].tolist() == []
    assert not (ops["cost_status"].isin(["ok", "assumed"]) & ops["flops"].isna()).any()
