"""Totals of a run: how much, how busy, how well linked, known and paired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.api.run import load, parse
from tests.kineto_events import (
    ENGINE,
    Event,
    copy,
    kernel,
    launch,
    launched,
    load_events,
    node,
    op,
    step,
    trace,
)

if TYPE_CHECKING:
    from pathlib import Path

MM: dict[str, Any] = {"dims": [[2, 3], [3, 4]], "types": ["float", "float"]}


def summary(folder: Path, *events: Event | list[Event], **around: Any) -> dict[str, Any]:
    return load_events(folder, *events, **around).summary


def test_times_are_sums_and_busy_time_is_a_union(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        kernel(0, 10, 1), kernel(5, 10, 2, {"stream": 8}), kernel(40, 2, 3),
        copy(12, 8, 4, name="Memcpy HtoD"), copy(50, 1, 5, name="Memset (Device)"),
    )  # fmt: skip

    wanted = {
        "kernel_count": 3, "copy_count": 2, "kernel_time_ns": 22_000, "copy_time_ns": 9_000,
        "busy_kernels_ns": 17_000, "busy_ns": 23_000, "span_ns": 51_000, "no_gpu": False,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("other", "gpus", "busy_ns"),
    [
        pytest.param(kernel(5, 10, 2), 1, 15_000, id="the same device"),
        pytest.param(kernel(5, 10, 2, {"stream": 9}), 1, 15_000, id="another stream"),
        pytest.param(kernel(5, 10, 2, {"device": 1}), 2, 20_000, id="another device"),
    ],
)
def test_each_device_is_busy_by_itself(
    tmp_path: Path, other: Event, gpus: int, busy_ns: int
) -> None:
    found = summary(tmp_path, kernel(0, 10, 1), other)

    assert (found["gpu_count"], found["busy_ns"]) == (gpus, busy_ns)


def test_devices_of_ranks_are_not_the_same(tmp_path: Path) -> None:
    for rank in (0, 1):
        trace(tmp_path / f"rank{rank}.json", kernel(0, 10, 1), step(rank, 0, 5))

    found = load(parse(tmp_path, tmp_path / "s.pyprof2")).summary

    assert (found["ranks"], found["busy_ns"], found["steps"]) == ([0, 1], 20_000, [0, 1])


def test_times_since_1970_are_exact(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        kernel("1712195495519689.047", "0.003", 1), kernel("1712195495519689.049", "0.003", 2),
    )  # fmt: skip

    assert (found["kernel_time_ns"], found["busy_ns"], found["span_ns"]) == (6, 5, 5)


def test_kernels_are_counted_by_what_is_known_of_them(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        op("aten::mm", 0, 9, **MM), launched(1, 1, at=100, dur=6),
        op("aten::mm", 10, 9), launched(11, 2, at=110, dur=1),
        launched(30, 3, at=120, dur=2), kernel(130, 1, 4),
    )  # fmt: skip

    wanted = {
        "kernel_count": 4, "launched_count": 3, "linked_count": 2, "shapes_count": 1,
        "linked_pct": 70.0, "costed_pct": 60.0, "op_count": 2, "ops_with_shapes_count": 1,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted


def test_a_shape_of_the_op_around_is_no_shape_of_the_op(tmp_path: Path) -> None:
    found = summary(
        tmp_path, op("aten::linear", 0, 9, **MM), op("aten::mm", 1, 5, dims=[[], []]),
        launched(2, 1, at=20, dur=1),
    )  # fmt: skip

    assert found["shapes_count"] == 0


def test_backward_and_what_runs_again_are_counted_apart(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        op("aten::relu", 0, 9, seq=7), launched(1, 1, at=100, dur=1),
        node("ReluBackward0", 20, 40, seq=7), launched(21, 2, at=110, dur=1, tid=ENGINE),
        op("aten::relu", 30, 9, seq=7, tid=ENGINE), launched(31, 3, at=120, dur=1, tid=ENGINE),
        op("aten::threshold_backward", 45, 9, tid=ENGINE),
        op("autograd::engine::evaluate_function: AccumulateGrad", 70, 9, tid=ENGINE, fwd=1),
        launched(71, 4, at=130, dur=1, tid=ENGINE),
    )  # fmt: skip

    wanted = {"backward_count": 2, "backward_paired_count": 1, "recompute_count": 1}
    assert {name: found[name] for name in wanted} == wanted


def test_kernels_of_graphs_are_counted(tmp_path: Path) -> None:
    graph = [launch(1, 1, name="cudaGraphLaunch"), *(kernel(at, 1, 1) for at in (5, 7))]

    assert summary(tmp_path, graph)["graph_count"] == 2


def test_steps_are_those_that_have_a_range(tmp_path: Path) -> None:
    assert summary(tmp_path, step(11, 20, 9), step(9, 0, 9), step(9, 0, 9))["steps"] == [9, 11]


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        pytest.param([{"id": 0, "name": "A"}, {"id": 1, "name": "B"}], ["A"], id="that ran"),
        pytest.param([{"id": 5, "name": "A"}, {"id": 6, "name": "A"}], ["A"], id="all alike"),
        pytest.param([{"id": 5, "name": "A"}, {"id": 6, "name": "B"}], ["A", "B"], id="unknown"),
        pytest.param([], [], id="none"),
    ],
)
def test_devices_are_those_that_ran(
    tmp_path: Path, devices: list[dict[str, Any]], names: list[str]
) -> None:
    assert summary(tmp_path, kernel(0, 1, 1), deviceProperties=devices)["devices"] == names


def test_without_a_gpu_ops_are_what_is_known(tmp_path: Path) -> None:
    found = summary(tmp_path, op("aten::mm", 0, 9, **MM), op("x::y", 20, 3))

    wanted = {
        "no_gpu": True, "kernel_count": 0, "kernel_time_ns": 0, "busy_ns": 0, "linked_pct": None,
        "op_count": 2, "op_time_ns": 12_000, "span_ns": 23_000, "costed_pct": 75.0,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted


def test_of_nothing_there_is_no_share(tmp_path: Path) -> None:
    found = summary(tmp_path)

    assert (found["linked_pct"], found["costed_pct"], found["span_ns"]) == (None, None, 0)
    assert (found["steps"], found["devices"], found["ranks"]) == ([], [], [0])
