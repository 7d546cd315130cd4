"""Every nanosecond is in one bin, and the bins add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyprof2
from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.summaries.ledger import (
    BINS,
    merge_ledgers,
    of_tables,
    sum_by,
    uncosted_ops,
)
from pyprof2.api import run_profile
from tests.builders import canonical

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

KERNELS, COPIES, OPS = (canonical(name) for name in ("kernels", "copies", "ops"))


def ledger(
    kernels: pa.Table = KERNELS, copies: pa.Table = COPIES, ops: pa.Table = OPS
) -> pd.DataFrame:
    """Return the ledger of a rank."""
    tables = {"kernels": kernels, "copies": copies, "ops": ops}
    found: pd.DataFrame = of_tables({n: InMemory(t) for n, t in tables.items()}, 0).to_pandas()
    return found


def times(frame: pd.DataFrame) -> dict[str, int]:
    """Return the bins that hold any time."""
    return {b: ns for b, ns in zip(frame["bin"], frame["time_ns"].tolist(), strict=True) if ns}


def kernels(*rows: dict[str, Any]) -> pa.Table:
    """Return table `kernels`; a kernel takes 1000 ns if it does not say so."""
    return canonical("kernels", *({"dur_ns": 1000} | row for row in rows))


@pytest.mark.parametrize(
    ("row", "bin_"),
    [
        pytest.param({"cost_status": "ok", "category": "matmul"}, "ok", id="costed"),
        pytest.param({"cost_status": "assumed", "category": "embedding"}, "assumed", id="assumed"),
        pytest.param({"cost_status": "no_shapes"}, "no_shapes", id="no shapes"),
        pytest.param({"cost_status": "no_formula"}, "no_formula", id="no formula"),
        pytest.param({"cost_status": "no_op"}, "no_op", id="no op"),
        pytest.param({}, "no_op", id="nothing known"),
        pytest.param({"cost_status": "ok", "category": "comm"}, "comm", id="communication, costed"),
        pytest.param({"cost_status": "no_op", "category": "comm"}, "comm", id="communication"),
        pytest.param({"cost_status": "ok", "category": "copy"}, "ok", id="a kernel that copies"),
    ],
)
def test_a_kernel_is_in_the_bin_that_says_what_is_known_of_it(
    row: dict[str, Any], bin_: str
) -> None:
    assert times(ledger(kernels(row), COPIES)) == {bin_: 1000}


def test_the_bins_have_an_order_times_shares_and_counts() -> None:
    table = kernels(
        {"cost_status": "ok", "dur_ns": 600},
        {"cost_status": "ok", "dur_ns": 100},
        {"cost_status": "no_formula", "dur_ns": 200},
    )
    copies = canonical("copies", {"dur_ns": 100, "category": "memcpy"})

    frame = ledger(table, copies)

    assert frame["bin"].tolist() == [*BINS]
    assert frame["time_ns"].tolist() == [700, 0, 0, 200, 0, 0, 100]
    assert frame["share_pct"].tolist() == pytest.approx([70, 0, 0, 20, 0, 0, 10])
    assert frame["count"].tolist() == [2, 0, 0, 1, 0, 0, 1]


def test_of_nothing_there_are_no_shares() -> None:
    frame = ledger(kernels(), COPIES)

    assert frame["time_ns"].sum() == 0
    assert frame["share_pct"].isna().all()


STATUSES = ["ok", "assumed", "no_shapes", "no_formula", "no_op", None]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "dur_ns": st.integers(0, 2**53 + 1),
            "cost_status": st.sampled_from(STATUSES),
            "category": st.sampled_from(["matmul", "comm", "copy", None]),
        }
    ),
    max_size=8,
)


@given(ROWS, st.lists(st.integers(0, 2**53 + 1), max_size=3))
def test_the_bins_add_up_to_all_the_time_exactly(
    rows: list[dict[str, Any]], copied: list[int]
) -> None:
    copies = canonical("copies", *({"dur_ns": ns} for ns in copied))

    frame = ledger(kernels(*rows), copies)

    assert frame["time_ns"].sum() == sum(row["dur_ns"] for row in rows) + sum(copied)
    assert frame["count"].sum() == len(rows) + len(copied)


def test_an_op_inside_another_is_in_the_bin_of_the_one_that_accounts_for_it() -> None:
    ops = canonical(
        "ops",
        {"op": "aten::linear", "self_ns": 1, "cost_status": "no_formula"},
        {"op": "aten::addmm", "self_ns": 10, "cost_status": "ok", "parent_op_id": 0},
        {"op": "aten::expand", "self_ns": 100, "cost_status": "in_parent", "parent_op_id": 1},
        {"op": "aten::as_strided", "self_ns": 1000, "cost_status": "in_parent", "parent_op_id": 2},
        {"op": "AddmmBackward0", "self_ns": 10_000, "cost_status": "no_formula"},
    )

    assert times(ledger(ops=ops)) == {"no_formula": 1, "ok": 1110}


def test_an_op_that_those_inside_account_for_is_costed_whatever_is_around_it() -> None:
    ops = canonical(
        "ops",
        {"op": "mylib::layer", "self_ns": 1, "cost_status": "no_formula"},
        {"op": "aten::linear", "self_ns": 10, "cost_status": "in_parent", "parent_op_id": 0},
        {"op": "aten::addmm", "self_ns": 100, "cost_status": "ok", "parent_op_id": 1},
        {"op": "aten::matmul", "self_ns": 1000, "cost_status": "in_parent"},
    )

    assert times(ledger(ops=ops)) == {"no_formula": 1, "ok": 1110}


def test_the_ledger_of_several_ranks_is_the_sum_of_theirs() -> None:
    first = ledger(ops=canonical("ops", {"op": "aten::mm", "self_ns": 1, "cost_status": "ok"}))
    second = ledger(
        ops=canonical(
            "ops",
            {"op": "aten::add", "self_ns": 10, "cost_status": "assumed"},
            {"op": "aten::to", "self_ns": 89, "cost_status": "in_parent", "parent_op_id": 0},
        )
    )

    merged = merge_ledgers([first, second])

    assert times(merged) == {"ok": 1, "assumed": 99}
    assert merged["count"].tolist()[:2] == [1, 2]
    assert merged["share_pct"].tolist()[:2] == [1, 99]


def test_uncosted_ops_come_by_time_with_the_reason() -> None:
    table = kernels(
        {"op": "my::scan", "cost_status": "no_formula", "dur_ns": 300},
        {"op": "aten::cat", "cost_status": "no_shapes", "cost_note": "no list", "dur_ns": 500},
        {"op": "my::scan", "cost_status": "no_formula", "dur_ns": 150},
        {"op": "aten::mm", "cost_status": "ok", "dur_ns": 40},
        {"op": "c10d::send", "cost_status": "no_formula", "category": "comm", "dur_ns": 9},
    )

    rows = uncosted_ops(table, has_gpu=True)
    frame = sum_by(rows, ["op", "bin", "cost_note"], 1000)

    assert frame.to_dict("records") == [
        {"op": "aten::cat", "bin": "no_shapes", "cost_note": "no list", "count": 1,
         "time_ns": 500, "share_pct": pytest.approx(50)},
        {"op": "my::scan", "bin": "no_formula", "cost_note": "", "count": 2,
         "time_ns": 450, "share_pct": pytest.approx(45)},
    ]  # fmt: skip


def test_without_a_gpu_uncosted_ops_go_by_their_own_time() -> None:
    ops = canonical(
        "ops",
        {"op": "my::op", "self_ns": 30, "dur_ns": 99, "cost_status": "no_formula"},
        {"op": "aten::mm", "self_ns": 70, "cost_status": "ok", "parent_op_id": 0},
        {"op": "MmBackward0", "self_ns": 500, "cost_status": "no_formula"},
    )

    frame = sum_by(uncosted_ops(ops, has_gpu=False), ["op"], 100)

    assert frame[["op", "time_ns", "share_pct"]].to_numpy().tolist() == [["my::op", 30, 30.0]]


def test_the_ledger_of_a_recording_is_all_its_time(kineto_trace: Path) -> None:
    run = pyprof2.load(kineto_trace)

    assert (
        run_profile.ledger(run.tables)["time_ns"].sum()
        == run_profile.rows_of(run.tables)["dur_ns"].sum()
    )
    assert sum(run.summary["ledger"].values()) == run_profile.rows_of(run.tables)["dur_ns"].sum()
