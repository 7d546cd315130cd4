"""How much of real GPU time has counts, how much of it exact ones, and what bounds the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

import pyprof2
from tests.conftest import SHARED_TRACES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd

LEAST_COSTED: Final = 97.0
MEAN_COSTED: Final = 99.0
LEAST_OK: Final = 90.0
UNKNOWABLE: Final = {
    "dlrm_v100_w0": "the lengths of the rows of several tables in one place",
    "hta_diff_control_a100": "the lengths of the rows of several tables in one place",
    "hta_sampled_r0": "which rows of tables are looked up more than once",
    "tl_moe2_b300": "which rows of tokens an index names more than once",
    "tl_moe5_b300": "the same",
    "hta_triton": "one Triton kernel, whose name lists each op once however often it has it",
}
"""Traces that do not record what exact counts need for a tenth of the time, and what it is."""


def with_dims(trace: Path) -> pd.DataFrame:
    """The kernels of a recording, without communication, whose op has dimensions in the trace."""
    run = pyprof2.load(trace)
    shaped = set(run.signatures.loc[run.signatures["has_shapes"], "signature"])
    kernels = run.kernels[run.kernels["op_id"].notna() & (run.kernels["category"] != "comm")]
    return kernels[kernels["signature"].isin(shaped)]


def shares(kernels: pd.DataFrame) -> tuple[float, float] | None:
    """Percentages of the time that have counts, and exact ones."""
    total = kernels["dur_ns"].sum()
    if not total:
        return None
    times = [
        kernels.loc[kernels["cost_status"].isin(wanted), "dur_ns"].sum()
        for wanted in (["ok", "assumed"], ["ok"])
    ]
    return 100 * times[0] / total, 100 * times[1] / total


def test_nearly_all_time_of_ops_with_dims_has_counts(kineto_trace: Path) -> None:
    found = shares(with_dims(kineto_trace))
    if found is None:
        pytest.skip("no kernels whose op has dimensions")

    costed, exact = found
    assert costed >= LEAST_COSTED
    if kineto_trace.name.split(".")[0] not in UNKNOWABLE:
        assert exact >= LEAST_OK


@pytest.mark.usefixtures("shared")
def test_on_average_too() -> None:
    """Over the traces, and over their time; exact ones where traces record what these need."""
    kernels = {path.name.split(".")[0]: with_dims(path) for path in SHARED_TRACES["Kineto"]}
    each = {name: found for name, rows in kernels.items() if (found := shares(rows)) is not None}
    costed, exact = np.array(list(each.values())).T
    knowable = np.array([name not in UNKNOWABLE for name in each])
    times = np.array([kernels[name]["dur_ns"].sum() for name in each])

    assert costed.mean() >= MEAN_COSTED
    assert exact[knowable].mean() >= LEAST_OK
    assert (exact * times).sum() / times.sum() >= LEAST_OK


def test_the_large_trace_is_complete(shared_trace: Callable[[str], Path]) -> None:
    found = shares(with_dims(shared_trace("kineto/tl_owlv2_h100.json.gz")))

    assert found is not None
    assert min(found) >= MEAN_COSTED


def test_what_is_assumed_is_said_and_bounded(kineto_trace: Path) -> None:
    """What is exact needs no note, unless it has no bytes."""
    kernels = pyprof2.load(kineto_trace).kernels
    assumed = kernels[kernels["cost_status"] == "assumed"]
    costed = kernels[kernels["cost_status"].isin(["ok", "assumed"])]

    assert (assumed["cost_note"].astype(str).str.len() > 0).all()
    for name in ("flops", "bytes"):
        known = costed[costed[name].notna() & (costed["cost_op_id"].notna())]
        whole = known.groupby("cost_op_id")[[name, f"{name}_lo", f"{name}_hi"]].sum()
        assert (whole[f"{name}_lo"] <= whole[name]).all()
        assert (whole[name] <= whole[f"{name}_hi"]).all()
    bounds = assumed.groupby("cost_op_id")[["flops_lo", "flops_hi", "bytes_lo", "bytes_hi"]].sum()
    open_ = (bounds["flops_lo"] < bounds["flops_hi"]) | (bounds["bytes_lo"] < bounds["bytes_hi"])
    assert open_.all()


def test_what_has_no_word_to_say_is_exact(kineto_trace: Path) -> None:
    kernels = pyprof2.load(kineto_trace).kernels
    silent = kernels[(kernels["cost_status"] == "ok") & kernels["cost_note"].isna()]

    for name in ("flops", "bytes"):
        known = silent[silent[name].notna()]
        whole = known.groupby(["cost_op_id"])[[name, f"{name}_lo", f"{name}_hi"]].sum()
        assert (whole[f"{name}_lo"] == whole[f"{name}_hi"]).all()


def test_a_fill_never_did_the_work_of_the_op_around_it(kineto_trace: Path) -> None:
    kernels = pyprof2.load(kineto_trace).kernels
    fills = kernels[kernels["op"].isin(["aten::fill_", "aten::zero_"])]

    assert not (fills["flops"] > 0).any()
