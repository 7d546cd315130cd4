"""Products that PyTorch records here and now: of sparse tensors, and transposed convolutions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import pytest

import pyprof2
from pyprof2.analysis.costs import Evidence, estimate
from pyprof2.signatures import Tensor
from tests.analysis.costs.calls import call, f32, known

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd

torch = pytest.importorskip("torch", reason="it records with torch.profiler")
F = pytest.importorskip("torch.nn.functional")

pytestmark = pytest.mark.torch

M, K, N = 60, 40, 7


def dense(*shape: int) -> Any:
    return torch.ones(*shape)


def sparse(rows: int, columns: int, count: int) -> Any:
    """Return a tensor with so many ones, on different places."""
    found = torch.zeros(rows, columns)
    found.view(-1)[torch.arange(count) * 7 % (rows * columns)] = 1
    return found.to_sparse()


COO: Final = sparse(M, K, 24)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # in beta state
    CSR: Final = COO.to_sparse_csr()
    OTHER: Final = sparse(K, N, 9).to_sparse_csr()
    BSR: Final = torch.block_diag(dense(2, 2), dense(2, 2), 0 * dense(4, 4)).to_sparse_bsr((2, 2))
BATCH: Final = torch.eye(5).repeat(3, 1, 1).to_sparse()

BY_STORED: Final[dict[str, tuple[Callable[[], object], int]]] = {
    # name: what runs, the operations of its stored values
    "csr @ dense": (lambda: CSR @ dense(K, N), 2 * 24 * N),
    "addmm": (lambda: torch.addmm(dense(M, N), CSR, dense(K, N)), 2 * 24 * N),
    "sparse.addmm of csr": (lambda: torch.sparse.mm(CSR, dense(K, N)), 2 * 24 * N),
    "linear": (lambda: F.linear(dense(N, K), CSR), 2 * 24 * N),
    "csr.mv": (lambda: CSR.mv(dense(K)), 2 * 24),
    "sampled": (
        lambda: torch.sparse.sampled_addmm(CSR, dense(M, 9), dense(9, K)), 2 * 24 * 9),
    "coo bmm": (lambda: torch.bmm(BATCH, dense(3, 5, 4)), 2 * 15 * 4),
    "bsr": (lambda: BSR @ dense(8, 3), 2 * 2 * 4 * 3),
}  # fmt: skip
BETWEEN: Final[dict[str, tuple[Callable[[], object], int]]] = {
    # name: what runs, the operations of dense operands
    "coo @ dense": (lambda: COO @ dense(K, N), 2 * M * K * N),
    "sparse.mm": (lambda: torch.sparse.mm(COO, dense(K, N)), 2 * M * K * N),
    "addmm of coo": (lambda: torch.sparse.addmm(dense(M, N), COO, dense(K, N)), 2 * M * K * N),
    "smm": (lambda: torch.smm(COO, dense(K, N)), 2 * M * K * N),
    "coo @ coo": (lambda: torch.sparse.mm(COO, sparse(K, N, 9)), 2 * M * K * N),
    "csr @ csr": (lambda: CSR @ OTHER, 2 * M * K * N),
}


def recorded(run: Callable[[], object], tmp_path: Path) -> pd.DataFrame:
    """Return the ops of a recording of `run`."""
    run()
    with torch.profiler.profile(record_shapes=True) as profiler:
        run()
    path = tmp_path / "t.json"
    profiler.export_chrome_trace(str(path))
    ops = pyprof2.load(path).ops
    is_ok = ops[ops["cost_status"] == "ok"]
    assert is_ok[["flops", "bytes", "flops_lo", "flops_hi"]].notna().all(axis=None)
    return ops


def counted(ops: pd.DataFrame, *categories: str) -> pd.Series:
    """Return the one op of these categories that has counts."""
    found = ops[ops["category"].isin(categories) & ops["flops"].notna()]
    assert len(found) == 1, found[["op", "flops"]]
    return found.iloc[0]


@pytest.mark.parametrize("name", BY_STORED)
def test_a_sparse_product_counts_what_is_stored(name: str, tmp_path: Path) -> None:
    run, flops = BY_STORED[name]

    found = counted(recorded(run, tmp_path), "matmul")

    assert (found["cost_status"], found["flops"]) == ("ok", flops)
    assert found["flops_lo"] == found["flops_hi"] == flops
    assert "nnz=" in found["params"]


@pytest.mark.parametrize("name", BETWEEN)
def test_where_that_is_not_recorded_the_dense_product_is_the_most(
    name: str, tmp_path: Path
) -> None:
    run, most = BETWEEN[name]

    found = counted(recorded(run, tmp_path), "matmul")

    assert (found["cost_status"], found["flops_lo"], found["flops_hi"]) == ("assumed", 0, most)
    assert "sparse" in found["cost_note"]


def test_the_backward_pass_of_a_sparse_product_is_none_of_dense_ones(tmp_path: Path) -> None:
    """The gradient of the dense operand is the transposed sparse one times that of the result."""

    def run() -> None:
        x = dense(K, N).requires_grad_()
        (CSR @ x).sum().backward()

    ops = recorded(run, tmp_path)
    found = ops[(ops["category"] == "matmul") & ops["flops"].notna()]

    assert len(found) == 2
    assert (found["flops_lo"] <= 2 * 24 * N).all()
    assert ((found["flops"] == 2 * 24 * N) | (found["cost_status"] == "assumed")).all()


def test_what_is_read_of_a_sparse_operand_is_what_lies_in_memory() -> None:
    stored = (Tensor((M + 1,), "i64"), Tensor((24,), "i64"), Tensor((24,), "f32"))
    op = call("aten::mm", Tensor((M, K), "f32", ()), f32(K, N))

    cost = known(estimate(op, Evidence(stored=stored)))

    assert cost.bytes == 8 * (M + 1 + 24) + 4 * 24 + 4 * (K * N + M * N)


def test_elementwise_work_on_a_sparse_tensor_is_bounded_by_that_on_a_dense_one() -> None:
    found = estimate(call("aten::mul", Tensor((M, K), "f32", ()), 2.0))

    cost = known(found)
    assert (found.status, cost.flops_lo, cost.flops_hi) == ("assumed", 0, M * K)


@pytest.mark.kept(
    "no bias-1-1-torch.float32",
    "no bias-2-3-torch.float64",
    "no bias-1-2-torch.float64",
    "bias-1-3-torch.float32",
    "bias-2-1-torch.float64",
    "bias-2-2-torch.float32",
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", ["no bias", "bias"])
def test_a_transposed_convolution_counts_each_input_with_its_window(
    dtype: Any,
    dims: int,
    groups: int,
    bias: str,
    tmp_path: Path,
) -> None:
    x, weight = torch.ones(2, 8, *(5, 6, 7)[:dims], dtype=dtype), torch.ones(8, 6, *[3] * dims)
    added = torch.ones(6 * groups, dtype=dtype) if bias == "bias" else None
    convolve = getattr(F, f"conv_transpose{dims}d")

    ops = recorded(lambda: convolve(x, weight.to(dtype), added, 2, groups=groups), tmp_path)

    found = ops[(ops["category"] == "conv") & ops["flops"].notna()]
    assert set(found["cost_status"]) == {"ok"}
    assert found["flops"].sum() == 2 * x.numel() * 6 * 3**dims
