"""Indexing that PyTorch records here and now: recordings show neither indices nor results of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

import pyprof2

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch = pytest.importorskip("torch", reason="it records with torch.profiler")

pytestmark = pytest.mark.torch


def places(*shape: int, below: int = 10, dtype: Any = None) -> Any:
    return torch.randint(below, shape, dtype=dtype or torch.int64)


X: Final = torch.zeros(20, 30, 40)
ROWS: Final = 5 * 30 * 40 * 4
"""Bytes of five of its matrices."""
FLAT: Final = X.view(-1)
MASK: Final = torch.arange(20) < 3


def put(x: Any, index: Any, value: Any) -> None:
    x[index] = value


CASES: Final[dict[str, tuple[str, Callable[[], object], int]]] = {
    # name: the op, what runs, its bytes
    "rows": ("aten::index", lambda: X[places(5)], 5 * 8 + 2 * ROWS),
    "rows by i32": (
        "aten::index", lambda: X[places(5, dtype=torch.int32)], 5 * 4 + 2 * ROWS),
    "pairs": (
        "aten::index", lambda: X[places(7), places(7)], 2 * 7 * 8 + 2 * 7 * 40 * 4),
    "a grid": (
        "aten::index", lambda: X[places(4, 1), places(6)],
        4 * 8 + 6 * 8 + 2 * 4 * 6 * 40 * 4),
    "a grid, the other way round": (
        "aten::index", lambda: X.permute(1, 0, 2)[places(6), places(4, 1)],
        4 * 8 + 6 * 8 + 2 * 4 * 6 * 40 * 4),
    "the last dimension": (
        "aten::index", lambda: X[:, :, places(9)], 9 * 8 + 2 * 20 * 30 * 9 * 4),
    "under a mask": ("aten::index", lambda: X[MASK], 20 + 2 * 3 * 30 * 40 * 4),
    "put rows": (
        "aten::_index_put_impl_", lambda: put(X, places(5), torch.ones(5, 30, 40)),
        5 * 8 + 2 * ROWS),
    "put one row": (
        "aten::_index_put_impl_", lambda: put(X, places(5), torch.ones(30, 40)),
        5 * 8 + 30 * 40 * 4 + ROWS),
    "put a number": ("aten::_index_put_impl_", lambda: put(X, places(5), 0.5), 5 * 8 + 4 + ROWS),
    "put under a mask": (
        "aten::_index_put_impl_", lambda: put(FLAT, FLAT == 0, 0.5), 24_000 * (4 + 1 + 4)),
    "add up": (
        "aten::_index_put_impl_",
        lambda: X.index_put((places(5),), torch.ones(5, 30, 40), accumulate=True),
        5 * 8 + 3 * ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_indices_and_results_are_told_by_the_ops_around(name: str, tmp_path: Path) -> None:
    op, run, nbytes = CASES[name]
    torch.manual_seed(0)
    with torch.profiler.profile(record_shapes=True) as profiler:
        run()
    path = tmp_path / "t.json"
    profiler.export_chrome_trace(str(path))

    ops = pyprof2.load(path).ops
    found = ops[(ops["op"] == op) & (ops["cost_status"] != "in_parent")].iloc[-1]

    # Which places are named more than once is not recorded; of a mask there are none.
    status = "ok" if "mask" in name else "assumed"
    assert (found["cost_status"], found["bytes"]) == (status, nbytes), found["cost_note"]
