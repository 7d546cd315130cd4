"""The parts of a step: by hand, as a loop over nanoseconds, and beside the table of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.time.step_parts import BUSY, step_parts
from pyprof2.analysis.time.step_windows import StepWindows
from pyprof2.api import run_time
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS: dict[str, dict[str, Any]] = {
    "matrix": {"category": "matmul", "tensor_core": "yes"},
    "vector": {"category": "elementwise", "tensor_core": "no"},
    "comm": {"category": "comm"},
    "copy": {"category": "memcpy"},
}
Span = tuple[str, int, int]


def found(
    work: list[Span], windows: list[tuple[int, int]], idle: list[Span] | None = None
) -> dict[tuple[int, str], int]:
    """Return the time of each part by window."""
    made: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for kind, start, end in work:
        times = {"device": 0, "start_ns": start, "dur_ns": end - start}
        made[kind == "copy"].append(times | KINDS[kind])
    gaps = [
        {"device": 0, "start_ns": start, "time_ns": end - start, "cause": cause, "drained": False}
        for cause, start, end in idle or []
    ]
    starts, ends = (np.array(column, np.int64) for column in zip(*windows, strict=True))
    kernels, copies = canonical("kernels", *made[False]), canonical("copies", *made[True])
    steps = StepWindows(np.arange(len(starts)), starts, ends)
    tables = {"kernels": kernels, "copies": copies, "idle": canonical("idle", *gaps)}
    parts, _ = step_parts({name: InMemory(table) for name, table in tables.items()}, steps)
    return {
        (window, part): time
        for window, part, time in parts[["window", "part", "time_ns"]].itertuples(index=False)
    }


@pytest.mark.parametrize(
    ("work", "parts"),
    [
        pytest.param([("matrix", 10, 30)], {"compute_matrix": 20}, id="matrix units"),
        pytest.param([("vector", 10, 30)], {"compute_other": 20}, id="other units"),
        pytest.param(
            [("matrix", 10, 30), ("vector", 20, 50)],
            {"compute_matrix": 20, "compute_other": 20},
            id="both: matrix units count",
        ),
        pytest.param(
            [("comm", 10, 60), ("vector", 20, 30)],
            {"compute_other": 10, "comm_exposed": 40},
            id="communication beside computing is not exposed",
        ),
        pytest.param(
            [("comm", 10, 60), ("copy", 50, 80)],
            {"comm_exposed": 40, "comm_copy": 10, "copies": 20},
            id="communication beside a copy",
        ),
        pytest.param(
            [("copy", 0, 40), ("matrix", 10, 20)],
            {"copies": 30, "compute_matrix": 10},
            id="a copy beside computing",
        ),
        pytest.param([("vector", -50, 20), ("copy", 90, 300)],
                     {"compute_other": 20, "copies": 10}, id="cut at the window"),
    ],
)  # fmt: skip
def test_the_first_that_holds_counts(work: list[Span], parts: dict[str, int]) -> None:
    assert found(work, [(0, 100)]) == {(0, name): time for name, time in parts.items()}


def test_idle_time_counts_by_cause_in_the_window_that_holds_it() -> None:
    idle = [("sync", 0, 10), ("sync", 20, 40), ("host_op", 100, 130), ("end", 200, 900)]

    parts = found([("copy", 50, 60)], [(0, 50), (100, 200)], idle)

    assert parts == {(0, "idle:sync"): 30, (1, "idle:host_op"): 30}


SPANS = st.tuples(st.sampled_from(list(KINDS)), st.integers(0, 30), st.integers(1, 12))


@given(st.lists(SPANS, max_size=8), st.integers(0, 10), st.integers(11, 40))
def test_parts_are_those_of_a_loop_over_instants(
    spans: list[tuple[str, int, int]], begin: int, end: int
) -> None:
    work = [(kind, start, start + length) for kind, start, length in spans]
    wanted: dict[str, int] = {}
    for instant in range(begin, end):
        running = {kind for kind, start, stop in work if start <= instant < stop}
        name = _part_of(running)
        if name:
            wanted[name] = wanted.get(name, 0) + 1

    assert found(work, [(begin, end)]) == {(0, name): time for name, time in wanted.items()}


def _part_of(running: set[str]) -> str | None:
    if "matrix" in running:
        return "compute_matrix"
    if "vector" in running:
        return "compute_other"
    if running == {"comm", "copy"}:
        return "comm_copy"
    return {"comm": "comm_exposed", "copy": "copies"}.get(next(iter(running), ""))


@pytest.mark.kept("rn50_v100_w0", "hta_df_index_v100_ddp")
@pytest.mark.parametrize(
    "name",
    ["rn50_v100_w0", "tl_owlv2_h100", "hta_df_index_v100_ddp", "hta_diff_control_a100"],
)
def test_parts_add_up_to_each_window_and_are_those_of_the_table_of_steps(
    name: str, shared_trace: Callable[[str], Path]
) -> None:
    import pyprof2.api.run

    run = pyprof2.api.run.load(shared_trace(f"kineto/{name}.json.gz"))
    keys = ["rank", "device", "step", "start_ns"]
    parts = run_time.step_parts(run.tables).pivot_table(
        "time_ns", keys, "part", "sum", fill_value=0
    )
    steps = run.steps.set_index(keys)
    parts = parts.reindex(steps.index, fill_value=0).reindex(
        columns=[*BUSY, *(c for c in parts if c not in BUSY)], fill_value=0
    )

    assert parts.sum(axis=1).tolist() == steps["dur_ns"].tolist()
    assert parts["comm_exposed"].tolist() == steps["comm_only_ns"].tolist()
    assert parts["copies"].tolist() == steps["copy_only_ns"].tolist()
    idle = parts[[column for column in parts if column not in BUSY]]
    assert idle.sum(axis=1).tolist() == steps["idle_ns"].tolist()
