"""Distances, factorisations and solvers of linear algebra: leading terms.

Source: Golub and Van Loan, Matrix Computations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import (
    bounded,
    broadcast,
    counted,
    first_tensor,
    fresh,
    like,
    maybe_tensor,
    numel,
    refuse,
    size,
    tally,
    tensor,
    total,
    value,
)
from pyprof2.analysis.costs.registry import Cost, cost_of
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
    side, k = Size(n, "N"), Size(columns, "K")
    flops = numel(batch) * (2 * side * side * side // 3 + 2 * side * side * k)
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
        refuse("the matrix is not square")
    above, below = _SQUARE[call.op]
    side = Size(n, "N")
    flops = numel(batch) * above * side * side * side // below
    return tally(flops, read=[a], written=[like(a)], dtype=a.dtype, params=f"N={n}")


@cost_of("aten::linalg_qr", "aten::qr", category="matmul")
def qr(call: OpCall) -> Cost:
    """(…, m, n), mode -> Q and R: flops 2·l²·s - 2·s³/3 for R, and as many for Q, leading terms.

    By Householder's reflections; l is the longer side, s the shorter one. Where m < n these take
    2·m²·n - 2·m³/3 and Q 4·m³/3. `complete` makes all of Q, 4·(m²·n - m·n² + n³/3); `r` none.
    bytes: matrix, Q and R.
    """
    a = tensor(call, 0)
    *batch, m, n = a.shape
    mode = value(call, 1)
    if call.op == "aten::qr":
        mode = "complete" if value(call, 1) is False else "reduced"
    short, long = min(m, n), max(m, n)
    reduced = (6 * long * short * short - 2 * short**3) // 3
    own = (6 * m * short * short - 2 * short**3) // 3
    full = 4 * (3 * m * m * short - 3 * m * short * short + short**3) // 3
    columns = {"complete": m, "r": 0}.get(str(mode), short)
    rows = m if mode == "complete" else short
    made = {"complete": full, "r": 0}.get(str(mode), own)
    sides = (fresh((*batch, m, columns), a.dtype), fresh((*batch, rows, n), a.dtype))
    written = [side for side in sides if side.shape[-1]]
    cost = tally(
        numel(batch) * (reduced + made), read=[a], written=written, dtype=a.dtype,
        params=f"M={m},N={n}",
    )  # fmt: skip
    if isinstance(mode, str):
        return cost
    least = numel(batch) * reduced
    words = "mode not recorded: taken as reduced"
    most = numel(batch) * (reduced + max(full, own))
    some, all_ = size(sides[1]), total([a, fresh((*batch, m, m), a.dtype), a])
    read = size(a)
    low = None if read is None or some is None else read + some
    return bounded(cost, words, flops=(least, most), traffic=(low, all_))


@cost_of("aten::cholesky_solve", "aten::_cholesky_solve_helper", category="matmul")
def cholesky_solve(call: OpCall) -> Cost:
    """(…, n, k) and the factor (…, n, n): flops 2·n²·k, two triangular ones; bytes: all."""
    b, factor = tensor(call, 0), tensor(call, 1)
    batch = broadcast(b.shape[:-2], factor.shape[:-2])
    n, k = b.shape[-2:]
    flops = 2 * Size(numel(batch), "B") * Size(n, "N") * Size(n, "N") * Size(k, "K")
    out = fresh((*batch, n, k), b.dtype)
    return tally(flops, read=[b, factor], written=[out], dtype=b.dtype, params=f"N={n},K={k}")


@cost_of("aten::linalg_solve_triangular", "aten::triangular_solve", category="matmul")
def solve_triangular(call: OpCall) -> Cost:
    """(…, n, n) triangular and (…, n, k): flops n²·k; bytes: matrix, right side, result."""
    a, b = tensor(call, 0), tensor(call, 1)
    if call.op == "aten::triangular_solve":
        a, b = b, a
    n = a.shape[-1]
    return tally(n * counted(b), read=[a, b], written=[like(b)], dtype=a.dtype)
