"""What ops do on the host, and what the ops inside of them do on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyprof2.errors import UsageError
from tests.kineto_events import copy, kernel, launch, load_events, op, step

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from pyprof2.api.run import Run

COLUMNS = ("calls", "host_self_ns", "host_total_ns", "device_total_ns", "tensor_core_eligible")

OCCUPANCY = "est. achieved occupancy %"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`linear` has `t`, which launches nothing, and `addmm`, which launches kernel and copy."""
    return load_events(
        tmp_path_factory.mktemp("run"),
        step(7, 0, 200),
        op("aten::linear", 10, 50),
        op("aten::t", 12, 5),
        op("aten::addmm", 20, 30),
        launch(22, 1, dur=3), kernel(100, 40, 1, name="sgemm"),
        launch(30, 2, dur=4), copy(150, 10, 2, name="Memcpy HtoD"),
        op("aten::to", 70, 20),
        op("aten::to", 72, 15),
        op("aten::copy_", 75, 10),
        launch(76, 3, dur=2), copy(170, 6, 3, name="Memcpy HtoD"),
    )  # fmt: skip


def _by_op(run: Run, *columns: str) -> pd.DataFrame:
    return run.profile("op", columns=columns or COLUMNS).set_index("op")


def _values(found: pd.DataFrame, op: str, *columns: str) -> list[object]:
    return [found[name].to_dict()[op] for name in columns or COLUMNS]


def test_an_op_that_launches_nothing_has_a_row_and_the_work_inside(run: Run) -> None:
    found = _by_op(run)

    assert _values(found, "aten::linear") == [1, 15000, 50000, 50000, True]
    assert _values(found, "aten::t") == [1, 5000, 5000, 0, False]
    assert _values(found, "aten::linear", "count", "time_ns", "share_pct") == [0, 0, 0.0]
    assert found["time_ns"].sum() == 56000


def test_launches_are_no_time_of_the_op(run: Run) -> None:
    assert _by_op(run).loc["aten::addmm", "host_self_ns"] == 30000 - 3000 - 4000


def test_an_op_that_only_hands_over_to_its_own_name_is_one_call(run: Run) -> None:
    found = _by_op(run)

    assert _values(found, "aten::to", "calls", "host_total_ns", "host_self_ns") == [1, 20000, 10000]
    assert found.loc["aten::to", "device_total_ns"] == 6000


def test_a_selection_selects_calls(run: Run) -> None:
    assert run.profile("op", columns=["calls"], op="linear")["calls"].tolist() == [1]
    assert not len(run.profile("op", columns=["calls"], step=8))


def test_what_only_kernels_have_selects_no_calls(run: Run) -> None:
    with pytest.raises(UsageError, match="--kernel selects kernels"):
        run.profile("op", columns=["calls"], kernel="gemm")


def test_without_a_device_nothing_is_known_of_one(tmp_path: Path) -> None:
    run = load_events(tmp_path, op("aten::mm", 0, 10), op("aten::add", 20, 5))

    found = _by_op(run)

    assert found["device_total_ns"].isna().all()
    assert found["host_total_ns"].to_dict() == {"aten::mm": 10000, "aten::add": 5000}


def test_means_are_weighted_with_the_time_of_the_kernels_that_are_known(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("aten::mm", 0, 90),
        launch(1, 1), kernel(100, 30, 1, {OCCUPANCY: 50}),
        launch(11, 2), kernel(140, 10, 2, {OCCUPANCY: 90}),
        launch(21, 3), kernel(160, 99, 3),
    )  # fmt: skip

    found = run.profile("name", columns=["occupancy_pct"])

    assert found["occupancy_pct"].tolist() == [60.0]
