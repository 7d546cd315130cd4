"""Distances, factorisations and solvers of linear algebra: leading terms.

What iterates until it is exact enough has bounds: from what no way does without, to where LAPACK
gives up.

Source: Golub and Van Loan, Matrix Computations; LAPACK Working Note 41, appendix C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import (
    bounded,
    broadcast,
    counted,
    first_tensor,
    flag,
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
    from pyprof2.signatures import OpCall, Tensor


@cost_of("aten::_cdist_forward", "aten::cdist", category="matmul")
def cdist(call: OpCall) -> Cost:
    """(…, p, m) and (…, r, m) -> (…, p, r): flops 3·pairs·m: subtract, power, add."""
    a, b = tensor(call, 0), tensor(call, 1)
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-2])
    flops = 3 * numel(shape) * a.shape[-1]
    return tally(flops, read=[a, b], written=[fresh(shape, a.dtype)])


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
    return tally(3 * pairs * m, read=[a], written=[fresh((pairs,), a.dtype)])


_COMPLEX: Final = {"c32": "f16", "c64": "f32", "c128": "f64"}
"""Element type of the real numbers that come out of complex ones."""


def _scaled(dtype: str | None) -> int:
    """Return how many FLOPs one of a leading term is: a complex multiply-add takes 8, not 2."""
    return 4 if dtype in _COMPLEX else 1


def _real(dtype: str | None) -> str | None:
    return dtype if dtype is None else _COMPLEX.get(dtype, dtype)


@cost_of("aten::_linalg_solve_ex", "aten::linalg_solve_ex", "aten::linalg_solve", category="matmul")
def solve(call: OpCall) -> Cost:
    """(…, n, n) and (…, n, k): flops 2n³/3 + 2n²k, leading terms; bytes: both, and the result.

    Right sides are (…, n), or (…, k, n) where the matrix stands at their right.
    """
    a, b = tensor(call, 0), tensor(call, 1)
    *batch, _, n = a.shape
    sides = b.shape
    if b.shape in {a.shape[-1:], a.shape[:-1]}:
        sides = (*b.shape, 1)
    elif flag(call, 2) is False:
        sides = (*b.shape[:-2], b.shape[-1], b.shape[-2])
    side, k = Size(n, "N"), Size(sides[-1], "K")
    both = numel(broadcast(tuple(batch), sides[:-2]))
    flops = numel(batch) * (2 * side * side * side // 3) + 2 * both * side * side * k
    out = fresh((both, *sides[-2:]), b.dtype)
    return tally(_scaled(a.dtype) * flops, read=[a, b], written=[out], params=f"N={n}")


_SQUARE: Final = {
    "aten::linalg_cholesky": (1, 3), "aten::linalg_cholesky_ex": (1, 3),
    "aten::cholesky": (1, 3), "aten::cholesky_inverse": (2, 3),
    "aten::linalg_ldl_factor": (1, 3), "aten::linalg_ldl_factor_ex": (1, 3),
    "aten::linalg_inv": (2, 1), "aten::linalg_inv_ex": (2, 1), "aten::inverse": (2, 1),
    "aten::linalg_det": (2, 3), "aten::_linalg_det": (2, 3), "aten::det": (2, 3),
    "aten::linalg_slogdet": (2, 3), "aten::_linalg_slogdet": (2, 3), "aten::slogdet": (2, 3),
    "aten::logdet": (2, 3),
}  # fmt: skip
"""Leading terms: the FLOPs are this fraction of n³."""


@cost_of(*_SQUARE, category="matmul")
def factorise(call: OpCall) -> Cost:
    """(…, n, n): flops n³/3 (Cholesky, LDL), 2n³/3 (determinant), 2n³ (inverse), leading term.

    The inverse from a factor of Cholesky: 2n³/3. bytes: matrix read, result written.
    """
    a = first_tensor(call)
    *batch, rows, n = a.shape
    if rows != n:
        refuse("the matrix is not square")
    above, below = _SQUARE[call.op]
    side = Size(n, "N")
    flops = _scaled(a.dtype) * numel(batch) * above * side * side * side // below
    return tally(flops, read=[a], written=[like(a)], params=f"N={n}")


@cost_of("aten::linalg_lu_factor", "aten::linalg_lu_factor_ex", "aten::_lu_with_info",
         "aten::linalg_lu", category="matmul")  # fmt: skip
def lu(call: OpCall) -> Cost:
    """(…, m, n) -> factors: flops l·s² - s³/3, l the longer side, s the shorter; leading terms.

    A square one takes 2n³/3. bytes: matrix and factors, with the row that each row was swapped with
    (4 bytes); of `linalg_lu` the permutation as a matrix, and both factors.
    """
    a = first_tensor(call)
    *batch, m, n = a.shape
    short, long = min(m, n), max(m, n)
    written = [like(a), fresh((*batch, short), "i32")]
    if call.op == "aten::linalg_lu":
        shapes = ((m, m), (m, short), (short, n))
        written = [fresh((*batch, *shape), a.dtype) for shape in shapes]
    flops = _scaled(a.dtype) * numel(batch) * (3 * long * short * short - short**3) // 3
    return tally(flops, read=[a], written=written, params=f"M={m},N={n}")


@cost_of("aten::lu_unpack", category="copy")
def lu_unpack(call: OpCall) -> Cost:
    """Factors (…, m, n), rows swapped -> permutation and both factors: all once; no FLOPs."""
    a, swaps = tensor(call, 0), tensor(call, 1)
    *batch, m, n = a.shape
    short = min(m, n)
    with_factors, with_permutation = flag(call, 2), flag(call, 3)
    factors = [fresh((*batch, m, short), a.dtype), fresh((*batch, short, n), a.dtype)]
    permutation = [fresh((*batch, m, m), a.dtype)]
    return tally(
        0,
        read=[a if with_factors is not False else None, swaps],
        written=[
            *(factors if with_factors is not False else ()),
            *(permutation if with_permutation is not False else ()),
        ],
        dtype=a.dtype,
    )


@cost_of("aten::_linalg_check_errors", category="reduce")
def check_errors(call: OpCall) -> Cost:
    """Whether a call for each matrix failed: what each returned is read, and one bool written."""
    return tally(read=[tensor(call, 0)], written=[fresh((), "bool")])


_FACTORED: Final = {
    "aten::linalg_lu_solve": (0, 2), "aten::lu_solve": (1, 0), "aten::linalg_ldl_solve": (0, 2),
    "aten::cholesky_solve": (1, 0), "aten::_cholesky_solve_helper": (1, 0),
}  # fmt: skip
"""Where among the inputs the factors and the right sides are."""


@cost_of(*_FACTORED, category="matmul")
def factored_solve(call: OpCall) -> Cost:
    """Factors (…, n, n) and (…, n, k): flops 2·n²·k, two triangular ones; bytes: all."""
    factor, b = (tensor(call, at) for at in _FACTORED[call.op])
    batch = broadcast(b.shape[:-2], factor.shape[:-2])
    n, k = factor.shape[-1], numel(b.shape[-2:]) // max(factor.shape[-1], 1)
    flops = 2 * Size(numel(batch), "B") * Size(n, "N") * Size(n, "N") * Size(k, "K")
    out = fresh((*batch, *b.shape[-2:]), b.dtype)
    flops *= _scaled(b.dtype)
    return tally(flops, read=[b, factor], written=[out], params=f"N={n},K={k}")


@cost_of("aten::linalg_solve_triangular", "aten::triangular_solve", category="matmul")
def solve_triangular(call: OpCall) -> Cost:
    """(…, n, n) triangular and (…, n, k): flops n²·k; bytes: matrix, right side, result.

    `triangular_solve` returns the matrix too.
    """
    a, b = tensor(call, 0), tensor(call, 1)
    is_old = call.op == "aten::triangular_solve"
    if is_old:
        a, b = b, a
    n = a.shape[-1]
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    out = fresh((*batch, *b.shape[-2:]), b.dtype)
    copied = [fresh((*batch, n, n), a.dtype)] if is_old else []
    flops = _scaled(a.dtype) * (n * counted(out))
    return tally(flops, read=[a, b], written=[out, *copied])


def _reflections(long: int, short: int) -> int:
    """Return the FLOPs of making a matrix triangular by Householder's reflections."""
    return (6 * long * short * short - 2 * short**3) // 3


def _applied(length: int, count: int, others: int) -> int:
    """Return the FLOPs of applying `count` reflections of a length to so many vectors."""
    return 4 * length * count * others - 2 * count * count * others


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
    reduced = _reflections(long, short)
    own = _reflections(m, short)
    full = 4 * (3 * m * m * short - 3 * m * short * short + short**3) // 3
    columns = {"complete": m, "r": 0}.get(str(mode), short)
    rows = m if mode == "complete" else short
    made = {"complete": full, "r": 0}.get(str(mode), own)
    sides = (fresh((*batch, m, columns), a.dtype), fresh((*batch, rows, n), a.dtype))
    written = [side for side in sides if side.shape[-1]]
    each = _scaled(a.dtype) * numel(batch)
    cost = tally(each * (reduced + made), read=[a], written=written, params=f"M={m},N={n}")
    if isinstance(mode, str):
        return cost
    words = "mode not recorded: taken as reduced"
    least, most = each * reduced, each * (reduced + max(full, own))
    some, all_ = size(sides[1]), total([a, fresh((*batch, m, m), a.dtype), a])
    read = size(a)
    low = None if read is None or some is None else read + some
    return bounded(cost, words, flops=(least, most), traffic=(low, all_))


@cost_of("aten::geqrf", category="matmul")
def geqrf(call: OpCall) -> Cost:
    """(…, m, n) -> R with the reflections below it, and their factors: flops 2·l·s² - 2·s³/3.

    l is the longer side, s the shorter one; leading terms. bytes: matrix, both results.
    """
    a = first_tensor(call)
    *batch, m, n = a.shape
    flops = _scaled(a.dtype) * numel(batch) * _reflections(max(m, n), min(m, n))
    written = [like(a), fresh((*batch, min(m, n)), a.dtype)]
    return tally(flops, read=[a], written=written, params=f"M={m},N={n}")


@cost_of("aten::linalg_householder_product", "aten::orgqr", category="matmul")
def householder_product(call: OpCall) -> Cost:
    """(…, m, n), factors (…, k) -> Q: flops 4mnk - 2(m + n)k² + 4k³/3; bytes: all three."""
    a, factors = tensor(call, 0), tensor(call, 1)
    *batch, m, n = a.shape
    k = factors.shape[-1]
    each = (12 * m * n * k - 6 * (m + n) * k * k + 4 * k**3) // 3
    flops = _scaled(a.dtype) * numel(batch) * max(0, each)
    params = f"M={m},N={n},K={k}"
    return tally(flops, read=[a, factors], written=[like(a)], params=params)


@cost_of("aten::ormqr", category="matmul")
def ormqr(call: OpCall) -> Cost:
    """Reflections (…, l, n), factors (…, k), (…, m, n) -> its product with Q: 4lck - 2ck² flops.

    c is how many vectors of length l the other matrix has: its columns, or its rows where Q stands
    at its right. bytes: all inputs and the result.
    """
    a, factors, other = (tensor(call, at) for at in range(3))
    rows, columns = other.shape[-2:]
    length = a.shape[-2]
    others, k = (rows if flag(call, 3) is False else columns), factors.shape[-1]
    flops = _scaled(a.dtype) * numel(other.shape[:-2]) * max(0, _applied(length, k, others))
    params = f"L={length},C={others},K={k}"
    return tally(flops, read=[a, factors, other], written=[like(other)],
                 params=params)  # fmt: skip


_LEAST_SQUARES: Final = (
    "which way it was solved is not recorded: taken as by QR; at most by singular values, with as "
    "many rotations as LAPACK allows"
)


@cost_of("aten::linalg_lstsq", category="matmul")
def least_squares(call: OpCall) -> Cost:
    """(…, m, n) and (…, m, k) -> (…, n, k): QR, its reflections on all k, a triangular solve.

    flops, leading terms, with l the longer side and s the shorter: 2·l·s² - 2·s³/3, 4·l·s·k - 2·s²k
    and s²·k. At the least without the last, where the rank is low; at most by singular values.
    bytes: both inputs, solution; at most residuals and singular values too.
    """
    a, b = tensor(call, 0), tensor(call, 1)
    *batch, m, n = a.shape
    sides = (*b.shape, 1) if b.shape == a.shape[:-1] else b.shape
    k, short, long = sides[-1], min(m, n), max(m, n)
    both = numel(broadcast(tuple(batch), sides[:-2]))
    each = _scaled(a.dtype)
    made = numel(batch) * _reflections(long, short)
    applied = both * _applied(long, short, k)
    flops = made + applied + both * short * short * k
    svd_most = _rotated(long, short, vectors=True) + _decomposed(long, short, "thin")
    most = numel(batch) * svd_most + both * 4 * long * short * k
    out = fresh((both, n, k), b.dtype)
    cost = tally(each * flops, read=[a, b], written=[out], params=f"M={m},N={n},K={k}")
    extra = total([fresh((both, k), _real(b.dtype)), fresh((*batch, short), _real(a.dtype)),
                   fresh(batch, "i64")])  # fmt: skip
    high = None if cost.bytes is None or extra is None else cost.bytes + extra
    bounds = (each * (made + applied), each * max(flops, most))
    return bounded(cost, _LEAST_SQUARES, flops=bounds, traffic=(cost.bytes, high))


_ITERATED: Final = (
    "how many iterations it takes depends on the data: about two for each value, at least none, at "
    "most as many as LAPACK allows"
)


def _decomposed(long: int, short: int, vectors: str) -> int:
    """Return the FLOPs of a singular value decomposition: Golub and Van Loan, figure 8.6.1.

    The lesser of the way of Golub and Reinsch, and of that after a QR decomposition.
    """
    direct, after_qr = {
        "none": (4 * long * short**2 - 4 * short**3 // 3, 2 * long * short**2 + 2 * short**3),
        "thin": (14 * long * short**2 + 8 * short**3, 6 * long * short**2 + 20 * short**3),
        "full": (4 * long**2 * short + 8 * long * short**2 + 9 * short**3,
                 4 * long**2 * short + 22 * short**3),
    }[vectors]  # fmt: skip
    return min(direct, after_qr)


def _rotated(long: int, short: int, *, vectors: bool) -> int:
    """Return the most FLOPs of rotations: LAPACK stops after 6·s², of 6 for each pair turned."""
    return 6 * short * short * (6 * (long + short) if vectors else 6)


_SINGULAR: Final = ("aten::linalg_svd", "aten::_linalg_svd", "aten::svd", "aten::linalg_svdvals")


@cost_of(*_SINGULAR, category="matmul")
def singular_values(call: OpCall) -> Cost:
    """(…, m, n) -> U, S, V: l is the longer side, s the shorter; the lesser of two ways each.

    flops: values alone 4ls² - 4s³/3 or 2ls² + 2s³; with s vectors 14ls² + 8s³ or 6ls² + 20s³; with
    all 4l²s + 8ls² + 9s³ or 4l²s + 22s³. At the least the products of all pairs of rows or columns,
    l·s²; at most 6·s² rotations more. bytes: matrix, and what is returned.

    Source: Golub and Van Loan, Matrix Computations, figure 8.6.1; LAPACK, `dbdsqr`.
    """
    a = tensor(call, 0)
    *batch, m, n = a.shape
    short, long = min(m, n), max(m, n)
    wanted = {"aten::svd": 2, "aten::_linalg_svd": 2}.get(call.op)
    has_vectors = call.op != "aten::linalg_svdvals" and (
        wanted is None or flag(call, wanted) is not False
    )
    is_full = call.op != "aten::linalg_svdvals" and (
        flag(call, 1) is False if call.op == "aten::svd" else flag(call, 1) is True
    )
    way = "none" if not has_vectors else "full" if is_full else "thin"
    taken = _decomposed(long, short, way)
    if way == "thin":
        taken = min(taken, _decomposed(long, short, "full"))
    written = [fresh((*batch, short), _real(a.dtype))]
    if has_vectors:
        left, right = (m, n) if is_full else (short, short)
        written += [fresh((*batch, m, left), a.dtype), fresh((*batch, right, n), a.dtype)]
    each = _scaled(a.dtype) * numel(batch)
    cost = tally(each * taken, read=[a], written=written, params=f"M={m},N={n}")
    most = taken + _rotated(m if is_full else long, short, vectors=has_vectors)
    return bounded(cost, _ITERATED, flops=(each * long * short * short, each * most))


_EIGEN: Final = {
    "aten::linalg_eigh": True, "aten::_linalg_eigh": None, "aten::linalg_eigvalsh": False,
}  # fmt: skip
"""Whether vectors are wanted; None: an input says it."""


@cost_of(*_EIGEN, category="matmul")
def symmetric_eigenvalues(call: OpCall) -> Cost:
    """Symmetric (…, n, n) -> values and vectors: flops 9n³, of values alone 4n³/3, leading terms.

    At the least 4n³/3, to make it tridiagonal; at most 30·n² rotations more, of 6n each with
    vectors. bytes: matrix, values, vectors.

    Source: Golub and Van Loan, Matrix Computations, section 8.3; LAPACK, `dsteqr`.
    """
    a = tensor(call, 0)
    n, wanted = _side(a), _EIGEN[call.op]
    has_vectors = flag(call, 2) is not False if wanted is None else wanted
    reduced = 4 * n**3 // 3
    taken = 9 * n**3 if has_vectors else reduced
    most = reduced * (2 if has_vectors else 1) + 30 * n * n * (6 * n if has_vectors else 20)
    written = [fresh(a.shape[:-1], _real(a.dtype)), *([like(a)] if has_vectors else [])]
    return _iterated(a, (reduced, taken, most), written)


@cost_of("aten::linalg_eig", "aten::linalg_eigvals", "aten::_linalg_eigvals", category="matmul")
def eigenvalues(call: OpCall) -> Cost:
    """(…, n, n) -> values and vectors: flops 25n³, of values alone 10n³, leading terms.

    At the least 10n³/3, to make it Hessenberg's; at most 30·n steps of 10n² each more, with
    vectors of 30n². bytes: matrix, values, vectors, both complex.

    Source: Golub and Van Loan, Matrix Computations, section 7.5; LAPACK, `dhseqr`.
    """
    a = tensor(call, 0)
    n = _side(a)
    has_vectors = call.op == "aten::linalg_eig"
    taken, step = (25 * n**3, 30 * n * n) if has_vectors else (10 * n**3, 10 * n * n)
    dtype = {real: name for name, real in _COMPLEX.items()}.get(a.dtype or "", a.dtype)
    shapes = [a.shape[:-1], *([a.shape] if has_vectors else [])]
    written = [fresh(shape, dtype) for shape in shapes]
    return _iterated(a, (10 * n**3 // 3, taken, taken + 30 * max(n, 10) * step), written)


def _side(a: Tensor) -> int:
    if a.shape[-1] != a.shape[-2]:
        refuse("the matrix is not square")
    return a.shape[-1]


def _iterated(a: Tensor, counts: tuple[int, int, int], written: list[Tensor]) -> Cost:
    """Return the cost of what takes so many FLOPs at least, likely, and at most, for a matrix."""
    each = _scaled(a.dtype) * numel(a.shape[:-2])
    least, taken, most = (each * count for count in counts)
    cost = tally(taken, read=[a], written=written, params=f"N={a.shape[-1]}")
    return bounded(cost, _ITERATED, flops=(least, most))
