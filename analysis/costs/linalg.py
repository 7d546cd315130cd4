"""Distances, factorisations and solvers of linear algebra: leading terms.

Source: Golub and Van Loan, Matrix Computations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import (
    broadcast,
    counted,
    first_tensor,
    fresh,
    like,
    maybe_tensor,
    numel,
    tally,
    tensor,
)
from pyprof2.analysis.costs.registry import Cost, UnknownCostError, cost_of
from pyprof2.analysis.costs.sizes import Size

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall


@cost_of("aten::_cdist_forward", "aten::cdist", category="matmul")
def cdist(call: OpCall) -> Cost:
    """(…, p, m) and (…, r, m) -> (…, p, r): flops 3·pairs·m: subtract, power, add."""
    a, b = tensor(call, 0), tensor(call, 1)
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-2])
    flops = 3 * numel(shape) * a.shape[-1]
    return tally(flops, read=[a, b], written=[fresh(shape, a.dtype)], dtype=a.dtype)


@cost_of("aten::_cdist_backward", category="matmul")
def cdist_backward(call: OpCall) -> Cost:
    """Grad (…, p, r), a, b, power, distances -> gradient of a: 4·pairs·m; bytes: all, once."""
    grad, a, b = (tensor(call, at) for at in range(3))
    flops = 4 * numel(grad.shape) * a.shape[-1]
    more = maybe_tensor(call, 4)
    return tally(flops, read=[grad, a, b, more], written=[like(a)], dtype=a.dtype)


@cost_of("aten::_pdist_forward", "aten::pdist", category="matmul")
def pdist(call: OpCall) -> Cost:
    """(n, m) -> n(n-1)/2 distances: 3·m flops each: subtract, power, add."""
    a = tensor(call, 0)
    n, m = a.shape
    pairs = n * (n - 1) // 2
    return tally(3 * pairs * m, read=[a], written=[fresh((pairs,), a.dtype)], dtype=a.dtype)


@cost_of("aten::_linalg_solve_ex", "aten::linalg_solve_ex", "aten::linalg_solve", category="matmul")
def solve(call: OpCall) -> Cost:
    """(…, n, n) and (…, n, k): flops 2n³/3 + 2n²k, leading terms; bytes: both, and the result."""
    a, b = tensor(call, 0), tensor(call, 1)
    *batch, _, n = a.shape
    columns = b.shape[-1] if len(b.shape) >= len(a.shape) else 1
    size, k = Size(n, "N"), Size(columns, "K")
    flops = numel(batch) * (2 * size * size * size // 3 + 2 * size * size * k)
    return tally(flops, read=[a, b], written=[like(b)], dtype=a.dtype, params=f"N={n}")


_SQUARE: Final = {
    "aten::linalg_cholesky": (1, 3), "aten::linalg_cholesky_ex": (1, 3),
    "aten::cholesky": (1, 3), "aten::linalg_lu_factor": (2, 3),
    "aten::linalg_lu_factor_ex": (2, 3), "aten::_lu_with_info": (2, 3),
    "aten::linalg_inv": (2, 1), "aten::linalg_inv_ex": (2, 1), "aten::inverse": (2, 1),
    "aten::linalg_det": (2, 3), "aten::_linalg_det": (2, 3),
}  # fmt: skip
"""Leading terms: the FLOPs are this fraction of n³."""


@cost_of(*_SQUARE, category="matmul")
def factorise(call: OpCall) -> Cost:
    """(…, n, n): flops n³/3 (Cholesky), 2n³/3 (LU, determinant), 2n³ (inverse), leading term.

    bytes: matrix read, result written. Source: Golub and Van Loan, Matrix Computations.
    """
    a = first_tensor(call)
    *batch, rows, n = a.shape
    if rows != n:
        msg = "the matrix is not square"
        raise UnknownCostError(msg)
    above, below = _SQUARE[call.op]
    size = Size(n, "N")
    flops = numel(batch) * above * size * size * size // below
    return tally(flops, read=[a], written=[like(a)], dtype=a.dtype, params=f"N={n}")


@cost_of("aten::linalg_solve_triangular", "aten::triangular_solve", category="matmul")
def solve_triangular(call: OpCall) -> Cost:
    """(…, n, n) triangular and (…, n, k): flops n²·k; bytes: matrix, right side, result."""
    a, b = tensor(call, 0), tensor(call, 1)
    if call.op == "aten::triangular_solve":
        a, b = b, a
    n = a.shape[-1]
    return tally(n * counted(b), read=[a, b], written=[like(b)], dtype=a.dtype)
