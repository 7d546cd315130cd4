"""What calls of modules take, on the host and of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyprof2.errors import UsageError
from tests.kineto_events import frame, kernel, launch, load_events, op

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

COLUMNS = (
    "occurrences", "operators", "host_self_ns", "host_total_ns", "device_self_ns",
    "device_total_ns",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`Net` has an op of its own and calls its `Linear` twice; its op has another one inside."""
    return load_events(
        tmp_path,
        frame("nn.Module: Net_0", 0, 100),
        op("aten::relu", 5, 10), launch(6, 1), kernel(200, 7, 1),
        frame("nn.Module: Linear_0", 20, 30),
        op("aten::linear", 22, 20), op("aten::addmm", 25, 10), launch(26, 2), kernel(210, 9, 2),
        frame("nn.Module: Linear_0", 60, 20), op("aten::linear", 62, 5),
    )  # fmt: skip


def _rows(run: Run, depth: int | None = None) -> dict[str, list[int]]:
    found = run.profile("layer", columns=COLUMNS, depth=depth)
    return {row["layer"]: [row[name] for name in COLUMNS] for row in found.to_dict("records")}


def test_self_is_without_ops_and_modules_inside(run: Run) -> None:
    assert _rows(run) == {
        "Net_0": [1, 1, 40000, 100000, 7000, 16000],
        "Net_0.Linear_0": [2, 2, 25000, 50000, 9000, 9000],
    }


def test_a_path_that_is_cut_counts_the_outer_calls(run: Run) -> None:
    assert _rows(run, depth=1) == {"Net_0": [1, 3, 65000, 100000, 16000, 16000]}


def test_a_step_selects_no_modules(run: Run) -> None:
    with pytest.raises(UsageError, match="--step selects kernels"):
        run.profile("layer", columns=["occurrences"], step=1)
