"""What kernels and copies are taken for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.prediction.model import KINDS
from pyprof2.analysis.prediction.work import Rows
from tests.builders import canonical

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class _Tables:
    """Tables in memory."""

    kernels: pa.Table
    copies: pa.Table = field(default_factory=lambda: canonical("copies"))

    def read(self, name: str, columns: Any = None) -> pa.Table:
        return getattr(self, name).select(columns)

    def rows(self, name: str, at: Any, columns: Any) -> pa.Table:
        return self.read(name, columns).take(at)

    def is_as_stored(self, name: str) -> bool:
        return name == "kernels"  # so that both ways to read are gone


USUAL = {"rank": 0, "dur_ns": 1000, "flops": 10, "bytes": 20, "compute_dtype": "f32"}


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"category": "matmul", "params": "M=4,N=4,K=4"}, "linear"),
        ({"category": "matmul", "params": "B=8,M=4,N=4,K=4"}, "batched"),
        ({"category": "matmul", "params": "B=1,M=4,N=4,K=4"}, "linear"),
        ({"category": "conv"}, "linear"),
        ({"category": "attention"}, "linear"),
        ({"category": "softmax"}, "softmax"),
        ({"category": "norm"}, "norm"),
        ({"category": "rnn"}, "norm"),
        ({"category": "optimizer"}, "elementwise"),
        ({"category": "sort"}, "elementwise"),
        ({"category": "fft"}, None),
        ({"category": "other"}, None),
    ],
)
def test_the_kind_follows_from_the_category(fields: dict[str, str], kind: str | None) -> None:
    kernels = canonical("kernels", USUAL | {"kernel_id": 0, "start_ns": 5} | fields)
    rows = Rows.of(_Tables(kernels), None)

    assert rows.work.kind.tolist() == [-1 if kind is None else KINDS.index(kind)]
    assert not rows.work.is_kept.any()


def test_convolutions_do_what_their_algorithm_needs() -> None:
    names = [
        "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "implicit_convolve_sgemm",
        "cudnn::winograd_nonfused::winogradForwardData4x4", "volta_sgemm_64x64_nt",
    ]  # fmt: skip
    kernels = canonical(
        "kernels",
        *(
            USUAL
            | {"kernel_id": at, "start_ns": at, "category": "conv", "kernel": name}
            | {"flops": 8000, "params": "N=1,window=3x3", "cost_op_id": min(at, 2)}
            for at, name in enumerate(names)
        ),
    )

    work = Rows.of(_Tables(kernels), None).work

    # F(4×4, 3×3) needs 36 products for 16 outputs of 9 taps; of an op all kernels share that.
    assert work.flops.tolist() == [2000, 8000, 2000, 2000]


def test_links_and_hosts_keep_their_times() -> None:
    kernels = canonical("kernels", USUAL | {"kernel_id": 0, "start_ns": 9, "category": "comm"})
    copies = canonical(
        "copies",
        *(
            USUAL
            | {"kernel_id": at, "start_ns": at, "category": name, "copy_kind": kind, "flops": None}
            for at, (name, kind) in enumerate(
                [("memcpy", "h2d pinned"), ("memcpy", "d2d"), ("memset", None), ("memcpy", None)], 1
            )
        ),
    )  # fmt: skip

    rows = Rows.of(_Tables(kernels, copies), None)

    # In order of their start: copies, then the collective.
    assert rows.work.is_kept.tolist() == [True, False, False, True, True]
    assert rows.work.flops[:4].tolist() == [0, 0, 0, 0]
    assert rows.only(rows.work.is_kept).table["kernel_id"].to_pylist() == [1, 4, 0]


def test_a_step_has_its_rows_and_the_algorithm_of_kernels_of_another_one() -> None:
    """Of an op that begins in a step and ends in the next one."""
    names = ("implicit_convolve_sgemm", "volta_scudnn_winograd_128x128_ldg1_ldg4_tile148t_nt_v1")
    kernels = canonical(
        "kernels",
        *(
            USUAL
            | {"kernel_id": at, "start_ns": at, "category": "conv", "kernel": name, "step": at}
            | {"flops": 8000, "params": "N=1,window=3x3", "cost_op_id": 5}
            for at, name in enumerate(names)
        ),
        USUAL | {"kernel_id": 2, "start_ns": 2, "category": "conv", "step": 1},
    )
    copy = USUAL | {"kernel_id": 3, "start_ns": 0, "category": "memset", "step": 0, "flops": None}
    copies = canonical("copies", copy, copy | {"kernel_id": 4, "step": 1})

    rows = Rows.of(_Tables(kernels, copies), 0)

    assert rows.table["kernel_id"].to_pylist() == [0, 3]
    assert rows.work.flops.tolist() == [2000, 0]
    assert Rows.of(_Tables(kernels, copies), 1).table["kernel_id"].to_pylist() == [4, 1, 2]
