"""One row per GPU activity; without a GPU one per op call, so that no time counts twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof2.analysis.summaries.rows import frame, op_rows
from pyprof2.api import run_profile
from pyprof2.api.run import load, parse
from pyprof2.columns import as_text
from pyprof2.tables import KERNELS, PROFILE_COLUMNS
from tests.kineto_events import (
    ENGINE,
    MAIN,
    Event,
    copy,
    kernel,
    launched,
    load_events,
    node,
    op,
    step,
    trace,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

MM: dict[str, Any] = {"dims": [[2, 3], [3, 4]], "types": ["float", "float"]}
"""48 FLOPs, 104 bytes."""


def test_kernels_and_copies_stand_in_order_of_rank_and_start(tmp_path: Path) -> None:
    for rank in (1, 0):
        trace(
            tmp_path / f"rank{rank}.json",
            kernel(20 + rank, 1, 2, name="b"), copy(10, 1, 1, name="Memset (Device)"),
        )  # fmt: skip

    rows = run_profile.rows_of(load(parse(tmp_path, tmp_path / "s.pyprof2")).tables)

    assert list(zip(rows["rank"], rows["kernel_id"], rows["start_ns"], strict=True)) == [
        (0, 0, 10000), (0, 1, 20000), (1, 0, 10000), (1, 1, 21000),
    ]  # fmt: skip
    assert rows["category"].tolist()[0] == "memset"


H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9,
                              "computeMinor": 0}]}  # fmt: skip
VALUES: dict[str, Any] = {"dims": [[1 << 20]], "types": ["float"]}


@pytest.fixture
def helped(tmp_path: Path) -> Run:
    """Return a run of a product, 3 µs and 1 µs in a sum inside of it, and of a mean, 2 µs."""
    return load_events(
        tmp_path,
        op("aten::addmm", 0, 20, dims=[[1], [5184, 1024], [1024, 8]],
           types=["c10::BFloat16"] * 3),
        launched(1, 1, at=30, dur=3, name="nvjet_tst_64x8_64x16_2x1_v_bz_TNT"),
        op("aten::sum", 5, 5, **VALUES), launched(6, 2, at=40, dur=1, name="reduce_kernel"),
        op("aten::mean", 50, 5, **VALUES), launched(51, 3, at=60, dur=2, name="reduce_kernel"),
        **H100,
    )  # fmt: skip


PRODUCT = 2 * (1 + 5184 * 1024 + 1024 * 8 + 5184 * 8)
"""Bytes of the product, in bf16: a bias, operands, result."""
MEAN = 4 * ((1 << 20) + 1)
"""Bytes of the mean, in f32."""


NAN = float("nan")


def test_a_helper_has_none_of_the_rates_of_its_op(helped: Run) -> None:
    product, helper, _ = run_profile.rows_of(helped.tables).to_dict("records")

    # All kernels of the op took 4 µs.
    assert product["gbps"] == pytest.approx(PRODUCT / 4000)
    assert product["roofline_pct"] == pytest.approx(100 * PRODUCT / 4000 / 3350)
    names = ("tflops", "gbps", "intensity", "roofline_pct", "bound", "roofline_flag")
    assert all(pd.isna(helper[name]) for name in names)


@pytest.mark.parametrize(
    ("by", "gbps"),
    [
        # The helper's time counts where the product does, and nowhere else.
        pytest.param("direction", [(PRODUCT + MEAN) / 6000], id="all together"),
        pytest.param("op", [PRODUCT / 3000, MEAN / 2000, NAN], id="ops"),
        pytest.param("name", [PRODUCT / 3000, MEAN / 2000], id="kernel names"),
    ],
)
def test_a_rate_and_its_share_of_the_roof_are_of_the_same_time(
    helped: Run, by: str, gbps: list[float]
) -> None:
    """All is bound by the memory, of 3350 GB/s."""
    found = helped.profile(by=by)

    assert found["gbps"].tolist() == pytest.approx(gbps, nan_ok=True)
    shares = [100 * rate / 3350 for rate in gbps]
    assert found["roofline_pct"].tolist() == pytest.approx(shares, nan_ok=True)
    assert found["tflops"].isna().tolist() == found["gbps"].isna().tolist()


def test_rows_of_kernels_have_the_columns_of_the_contract(tmp_path: Path) -> None:
    rows = run_profile.rows_of(load_events(tmp_path, launched(1, 1, at=2, dur=3)).tables)

    assert rows.columns.tolist()[: len(PROFILE_COLUMNS)] == list(PROFILE_COLUMNS)


@pytest.mark.parametrize("gpu", [True, False], ids=["GPU", "CPU"])
def test_whole_numbers_stay_whole_and_unknown_ones_are_null(tmp_path: Path, *, gpu: bool) -> None:
    events = [op("a", 0, 5), op("aten::mm", 1, 3, **MM)]
    events += [*launched(2, 1, at=10, dur=3), kernel(20, 3, 2)] if gpu else []

    rows = run_profile.rows_of(load_events(tmp_path, events).tables)

    for column in KERNELS.columns:
        if column.name in rows and str(column.type) == "int64":
            assert rows[column.name].dtype == ("Int64" if column.nullable else "int64")
    assert rows["flops"].isna().any()
    assert rows["stream" if not gpu else "op_id"].isna().any()


BACKWARD = [
    node("autograd::engine::evaluate_function: MmBackward0", 20, 9, seq=7),
    node("MmBackward0", 21, 7, seq=7),
    op("aten::mm", 22, 3, tid=ENGINE, **MM),
]


def without_gpu(folder: Path) -> pd.DataFrame:
    return run_profile.rows_of(
        load_events(
            folder,
            step(4, 0, 50),
            op("aten::linear", 0, 10, seq=7, dims=[[2, 3], [4, 3]], types=["float", "float"]),
            op("aten::mm", 2, 5, **MM),
            op("aten::empty", 3, 1),
            BACKWARD,
        ).tables
    )


def test_without_a_gpu_every_op_call_is_a_row_of_its_self_time(tmp_path: Path) -> None:
    rows = without_gpu(tmp_path)

    assert rows["kernel"].tolist() == ["aten::linear", "aten::mm", "aten::empty", "aten::mm"]
    assert rows["dur_ns"].tolist() == [5000, 4000, 1000, 3000]
    assert rows["kernel_id"].tolist() == [0, 1, 2, 3]
    assert rows["start_ns"].tolist() == [0, 2000, 3000, 22000]


def test_such_a_row_says_what_it_is(tmp_path: Path) -> None:
    row = without_gpu(tmp_path).iloc[3]

    columns = ["op", "kernel_short", "device_type", "link", "direction", "step", "tid"]
    assert row[columns].tolist() == [
        "aten::mm", "aten::mm", "cpu", "self", "backward", 4, ENGINE,
    ]  # fmt: skip
    assert row["signature"] == "aten::mm([2,3] f32, [3,4] f32)"
    assert pd.isna(row["device"])
    assert pd.isna(row["stream"])


def test_envelopes_of_autograd_are_ops_but_no_rows(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        BACKWARD,
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 40, 5),
        op("torch::autograd::AccumulateGrad", 41, 3),
        op("MyFunctionBackward", 50, 3),
        op("mylib::FooBackward0", 60, 3),
    )

    assert len(run.ops) == 7
    assert run_profile.rows_of(run.tables)["op"].tolist() == ["aten::mm", "mylib::FooBackward0"]


def test_counts_stand_at_the_op_that_accounts_for_them(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("aten::addmm", 0, 10, dims=[[4], [2, 3], [3, 4]], types=["float"] * 3),
        op("aten::mm", 2, 6, **MM),
    )

    rows = run_profile.rows_of(run.tables)

    assert rows["flops"].tolist() == [48, pd.NA]
    assert rows["cost_status"].tolist() == ["ok", "in_parent"]


def test_its_rate_is_over_the_whole_duration_of_the_op(tmp_path: Path) -> None:
    rows = run_profile.rows_of(
        load_events(tmp_path, op("aten::mm", 0, 10, **MM), op("aten::empty", 2, 6)).tables
    )

    assert rows["dur_ns"].tolist() == [4000, 6000]
    assert rows["rate_ns"].tolist() == [10000, 6000]
    assert rows["tflops"].tolist()[0] == pytest.approx(48 / 10000 / 1000)
    assert rows["gbps"].tolist()[0] == pytest.approx(104 / 10000)


def test_an_op_that_takes_no_time_has_no_rate(tmp_path: Path) -> None:
    row = run_profile.rows_of(load_events(tmp_path, op("aten::mm", 5, 0, **MM)).tables).iloc[0]

    assert row["dur_ns"] == 0
    assert row[["tflops", "gbps"]].isna().all()


def test_ranks_without_a_gpu_keep_their_own_signatures(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.json", op("a", 0, 1, **MM), op("b", 2, 1, dims=[[5]], types=["int"]))
    trace(tmp_path / "rank1.json", op("b", 2, 1, dims=[[6]], types=["int"]))

    rows = run_profile.rows_of(load(parse(tmp_path, tmp_path / "s.pyprof2")).tables)

    assert rows["signature"].tolist() == ["a([2,3] f32, [3,4] f32)", "b([5] i32)", "b([6] i32)"]
    assert rows["kernel_id"].tolist() == [0, 1, 0]


def test_other_sequence_numbers_are_those_of_the_ops_around_in_order(tmp_path: Path) -> None:
    """`linear` transposes first, so that its number is one below that of the product in it."""
    run = load_events(
        tmp_path,
        op("outer", 0, 90, seq=0),
        op("checkpoint", 1, 80, seq=70),
        op("aten::linear", 10, 50, seq=1064),
        op("aten::addmm", 20, 30, seq=1065),
        op("aten::mm", 25, 10, seq=1065),
        op("aten::relu", 91, 5, seq=1066),
    )

    rows = as_text(run_profile.rows_of(run.tables, ["op", "other_sequence_nrs"])).set_index("op")[
        "other_sequence_nrs"
    ]

    assert rows.fillna("-").to_dict() == {
        "outer": "-", "checkpoint": "-", "aten::linear": "70", "aten::addmm": "70,1064",
        "aten::mm": "70,1064", "aten::relu": "-",
    }  # fmt: skip


CALLS = st.tuples(st.sampled_from([MAIN, ENGINE]), st.integers(0, 30), st.integers(0, 12))


@settings(max_examples=12)
@given(st.lists(CALLS, min_size=1, max_size=12))
def test_the_times_of_the_rows_add_up_to_the_time_inside_ops_once_per_thread(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[int, int, int]]
) -> None:
    events: list[Event] = [op("a", ts, dur, tid=tid) for tid, ts, dur in calls]

    rows = run_profile.rows_of(load_events(tmp_path_factory.mktemp("calls"), events).tables)

    inside = {(tid, at) for tid, ts, dur in calls for at in range(ts, ts + dur)}
    assert rows["dur_ns"].sum() == 1000 * len(inside)
    assert (rows["dur_ns"] >= 0).all()
    assert rows["dur_ns"].dtype == np.int64


CPU: dict[str, Any] = {
    "device": 0, "device_type": "cpu", "name": "a CPU", "multiprocessors": 2,
    "flop_per_s": '{"f32": 2e11}', "memory_bytes_per_s": 4e10, "cache_bytes": 1000,
}  # fmt: skip


def cpu_rows(folder: Path, *devices: dict[str, Any], device: str | None = None) -> pd.DataFrame:
    """Products of 100 x 100 matrices, and copies, on a CPU."""
    square: dict[str, Any] = {"dims": [[100, 100], [100, 100]], "types": ["float", "float"]}
    run = load_events(folder, op("aten::mm", 0, 20, **square), op("aten::neg", 30, 4, **square))
    rows = op_rows(run.table("ops"), run.table("signatures"), devices, device)
    return frame([rows], rows.column_names)


def test_the_roof_of_ops_on_the_cpu_is_what_was_measured_on_it(tmp_path: Path) -> None:
    """2 x 10^6 FLOPs need 10 us at 2 x 10^11 per second; 80,000 bytes 2 us at 4 x 10^10."""
    rows = cpu_rows(tmp_path, CPU)

    assert rows["roofline_pct"].tolist() == pytest.approx([50, 50])
    assert rows["bound"].tolist() == ["compute", "memory"]


def test_where_nothing_was_measured_there_is_no_roof(tmp_path: Path) -> None:
    gpu = CPU | {"device_type": "cuda", "name": "NVIDIA H100 80GB HBM3", "flop_per_s": None}

    for devices in ([], [gpu], [CPU | {"flop_per_s": None}], [CPU | {"flop_per_s": "no"}]):
        assert cpu_rows(tmp_path, *devices)["roofline_pct"].isna().all()


def test_a_gpu_is_no_roof_for_the_cpu_and_a_file_is(tmp_path: Path) -> None:
    file = tmp_path / "cpu.json"
    file.write_text('{"name": "x", "memory_gb_per_s": 80, "vector_tflops": {"f32": 0.4}}')

    assert cpu_rows(tmp_path, device="H100 SXM")["roofline_pct"].isna().all()
    assert cpu_rows(tmp_path, CPU, device="H100 SXM")["roofline_pct"].tolist() == [50, 50]
    assert cpu_rows(tmp_path, CPU, device=str(file))["roofline_pct"].tolist() == [25, 25]
