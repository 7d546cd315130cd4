"""The table `memory`: which op, layer, line, step and phase each allocation happened in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kineto_events import (
    ENGINE,
    MAIN,
    annotation,
    flow,
    frame,
    load_events,
    memory,
    node,
    op,
    rows,
    step,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

GPU: dict[str, Any] = {"Device Type": 1, "Device Id": 0}


def _event(ts: float, size: int, *, tid: int = MAIN, addr: int = 1, **more: Any) -> dict[str, Any]:
    return memory(ts, Bytes=size, Addr=addr, **GPU, **more) | {"tid": tid}


def _memory(folder: Path, *events: Any) -> pa.Table:
    return load_events(folder, *events).table("memory")


def test_the_op_is_the_innermost_on_its_thread_at_that_time(tmp_path: Path) -> None:
    found = _memory(
        tmp_path,
        op("aten::linear", 0, 100),
        op("aten::empty", 10, 20),
        op("aten::other", 0, 100, tid=ENGINE),
        _event(15, 512),
        _event(50, 512, addr=2),
        _event(150, -512),
    )

    assert rows(found, "op", "op_id") == [("aten::empty", 2), ("aten::linear", 0), (None, None)]


def test_an_allocation_has_the_layer_and_line_of_its_op(tmp_path: Path) -> None:
    found = _memory(
        tmp_path,
        frame("/home/me/net.py(7): forward", 0, 100),
        frame("nn.Module: Linear_0", 1, 90),
        op("aten::linear", 5, 50),
        _event(10, 512),
        _event(95, -512),
    )

    assert rows(found, "layer", "source") == [("Linear_0", "/home/me/net.py:7"), (None, None)]


def test_in_backward_it_has_those_of_the_forward_op(tmp_path: Path) -> None:
    found = _memory(
        tmp_path,
        frame("/home/me/net.py(7): forward", 0, 100),
        frame("nn.Module: Linear_0", 1, 90),
        op("aten::mm", 5, 50, seq=3),
        node("MmBackward0", 200, 50, seq=3),
        flow(1, 5, 200),
        _event(210, 512, tid=ENGINE),
    )

    assert rows(found, "layer", "source", "phase") == [
        ("Linear_0", "/home/me/net.py:7", "backward")
    ]


def test_a_step_range_on_any_thread_of_the_process_holds_it(tmp_path: Path) -> None:
    found = _memory(
        tmp_path, step(4, 0, 100), op("aten::mm", 5, 10), _event(50, 8, tid=ENGINE), _event(150, -8)
    )

    assert rows(found, "step") == [4, None]


def _training() -> list[Any]:
    return [
        annotation("Optimizer.zero_grad#SGD.zero_grad", 0, 10),
        op("aten::mm", 20, 10, seq=3),
        node("MmBackward0", 50, 10, seq=3),
        flow(1, 20, 50),
        annotation("Optimizer.step#SGD.step", 80, 20),
        op("aten::add_", 85, 5),
    ]


@pytest.mark.parametrize(
    ("ts", "tid", "phase"),
    [
        pytest.param(5, MAIN, "zero_grad", id="clearing gradients"),
        pytest.param(25, MAIN, "forward", id="in forward"),
        pytest.param(40, MAIN, "forward", id="after a forward op"),
        pytest.param(55, ENGINE, "backward", id="in a node"),
        pytest.param(70, ENGINE, "backward", id="between nodes"),
        pytest.param(70, MAIN, "other", id="on the thread that waited for backward"),
        pytest.param(82, MAIN, "optimizer", id="in a step, before its ops"),
        pytest.param(87, MAIN, "optimizer", id="in an op of the optimizer"),
        pytest.param(95, MAIN, "optimizer", id="in a step, after its ops"),
        pytest.param(-5, MAIN, None, id="before anything"),
    ],
)
def test_the_phase_is_that_of_the_op_or_the_range_or_what_came_last(
    ts: int, tid: int, phase: str | None, tmp_path: Path
) -> None:
    found = _memory(tmp_path, *_training(), _event(ts, 512, tid=tid))

    assert rows(found, "phase") == [phase]


def test_events_of_one_time_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = _memory(
        tmp_path, op("aten::mm", 0, 9), _event(5, 512, addr=1), _event(5, -512, addr=1),
        _event(3, 8, addr=2),
    )  # fmt: skip

    assert rows(found, "bytes") == [8, 512, -512]


def test_a_file_without_memory_has_an_empty_table(tmp_path: Path) -> None:
    assert _memory(tmp_path, op("aten::mm", 0, 9)).num_rows == 0
