"""Ops nest, and take layer, line, step and direction from what encloses them on their thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.link import DIRECTIONS, NO_ID
from pyprof2.analysis.linked import link_recording
from tests.kineto_events import (
    ENGINE,
    Event,
    annotation,
    frame,
    linked,
    node,
    op,
    read,
    step,
    trace,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.analysis.linked import Linked
    from pyprof2.columns import TextColumn


def names(found: Linked) -> list[str]:
    return [found.ops.names[code] for code in found.ops.name]


def parents(found: Linked) -> dict[str, str | None]:
    """The op around each op, by name."""
    name = names(found)
    return {name[row]: name[at] if at >= 0 else None for row, at in enumerate(found.ops.parent)}


def texts(column: TextColumn, found: Linked) -> dict[str, str | None]:
    codes, words = column
    values = [words[code] if code >= 0 else None for code in codes]
    return dict(zip(names(found), values, strict=True))


def directions(found: Linked) -> dict[str, str]:
    return {
        name: DIRECTIONS[code] for name, code in zip(names(found), found.direction, strict=True)
    }


def test_ops_are_numbered_by_start_longest_first(tmp_path: Path) -> None:
    found = linked(tmp_path, op("c", 5, 2), op("b", 0, 3), op("a", 0, 9, tid=7))

    assert names(found) == ["a", "b", "c"]


def test_of_equal_ops_the_one_that_was_numbered_first_is_around_the_other(tmp_path: Path) -> None:
    for order in (1, -1):
        pair = [op("out", 5, 3, id=17), op("in", 5, 3, id=18)][::order]
        assert parents(linked(tmp_path, pair)) == {"out": None, "in": "out"}


@pytest.mark.parametrize(
    ("events", "parent"),
    [
        pytest.param([op("b", 2, 3)], "a", id="inside"),
        pytest.param([op("b", 9, 1)], "a", id="at the end"),
        pytest.param([op("b", 2, 3, tid=9)], None, id="on another thread"),
        pytest.param([op("b", 2, 3, pid=9)], None, id="in another process"),
        pytest.param([op("b", 5, 9)], None, id="beyond the end"),
        pytest.param([op("b", 10, 2)], None, id="touching"),
        pytest.param([op("b", "10.000", "0.000")], "a", id="nothing long, at the end"),
        pytest.param([op("b", "10.001", "0.000")], None, id="a ns later"),
    ],
)
def test_an_op_is_inside_what_encloses_it_on_its_thread(
    tmp_path: Path, events: list[Event], parent: str | None
) -> None:
    assert parents(linked(tmp_path, op("a", 0, 10), events))["b"] == parent


def test_a_ns_decides_on_a_clock_that_a_float_does_not_hold(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        op("a", "1712195495519689.047", "10.000"),
        op("in", "1712195495519699.046", "0.001"),
        op("out", "1712195495519699.047", "0.001"),
    )

    assert parents(found) == {"a": None, "in": "a", "out": None}


def test_self_time_is_what_no_op_inside_takes(tmp_path: Path) -> None:
    found = linked(tmp_path, op("a", 0, 10), op("b", 2, 3), op("c", 3, 1), op("d", 8, 2))

    own = dict(zip(names(found), found.ops.self_ns, strict=True))
    assert own == {"a": 5000, "b": 2000, "c": 1000, "d": 2000}


def test_self_times_of_ops_that_overlap_add_up_to_the_time_covered(tmp_path: Path) -> None:
    found = linked(tmp_path, op("a", 0, 10), op("b", 5, 10), op("c", 7, 1))

    assert found.ops.self_ns.tolist() == [5000, 9000, 1000]


# Layers and lines


def test_a_layer_is_the_path_of_module_frames(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        frame("nn.Module: Net_0", 0, 20),
        frame("nn.Module: Linear_1", 2, 5),
        frame("nn.Module: Linear_2", 10, 5),
        op("root", 1, 1), op("one", 3, 1), op("two", 11, 1), op("none", 30, 1),
        op("elsewhere", 3, 1, tid=9),
    )  # fmt: skip

    assert texts(found.layer, found) == {
        "root": "Net_0", "one": "Net_0.Linear_1", "two": "Net_0.Linear_2", "none": None,
        "elsewhere": None,
    }  # fmt: skip


def test_a_module_that_is_called_twice_is_one_layer(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        [frame("nn.Module: Net_0", at, 9) for at in (0, 10)],
        [frame("nn.Module: Act_1", at, 3) for at in (1, 5, 11)],
        [op(f"op{at}", at, 1) for at in (1, 5, 11)],
    )

    assert set(texts(found.layer, found).values()) == {"Net_0.Act_1"}


def test_a_range_that_names_the_layer_comes_before_module_frames(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        annotation("layer:encoder.0", 0, 10),
        frame("nn.Module: Linear_1", 1, 5),
        op("a", 2, 1),
    )

    assert texts(found.layer, found) == {"a": "encoder.0"}


@pytest.mark.parametrize(
    ("frames", "source"),
    [
        pytest.param(["train.py(3): main", "net.py(8): f"], "net.py:8", id="innermost"),
        pytest.param(["net.py(8): f", "torch/nn/x.py(9): g"], "net.py:8", id="torch"),
        pytest.param(["net.py(8): f", "<built-in method mm>"], "net.py:8", id="built-in"),
        pytest.param(["net.py(8): f", "nn.Module: Net_0"], "net.py:8", id="module"),
        pytest.param(["net.py(8): f", "threading.py(9): run"], "net.py:8", id="standard library"),
        pytest.param(["torch/nn/x.py(9): g"], None, id="none of the user's"),
        pytest.param([], None, id="no frames"),
    ],
)
def test_the_source_is_the_innermost_line_of_the_user(
    tmp_path: Path, frames: list[str], source: str | None
) -> None:
    around = [frame(name, at, 20 - 2 * at) for at, name in enumerate(frames)]

    found = linked(tmp_path, around, op("a", 9, 1))

    assert texts(found.source, found) == {"a": source}


@pytest.mark.parametrize(
    ("root", "source"),
    [("/home/net", "/home/net/a.py:1"), ("/home/net/", "/home/net/a.py:1"),
     ("/home/n", "/site/b.py:2"), ("/other", "/site/b.py:2"), (None, "/site/b.py:2")],
)  # fmt: skip
def test_frames_below_the_root_come_first(tmp_path: Path, root: str | None, source: str) -> None:
    path = trace(
        tmp_path, frame("/home/net/a.py(1): f", 0, 9), frame("/site/b.py(2): g", 1, 7),
        op("a", 2, 1),
    )  # fmt: skip

    found = link_recording(read(path), root)

    assert texts(found.source, found) == {"a": source}


def test_an_annotation_that_looks_like_a_frame_is_no_line(tmp_path: Path) -> None:
    found = linked(tmp_path, annotation("epoch (3)", 0, 9), op("a", 2, 1))

    assert texts(found.source, found) == {"a": None}


# Steps


def test_a_step_holds_the_ops_of_all_threads_of_its_process(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        step(4, 0, 10), step(5, 10, 10),
        op("a", 2, 1), op("edge", 10, 1), op("b", 12, 1, tid=ENGINE), op("c", 12, 1, pid=9),
        op("d", 30, 1),
    )  # fmt: skip

    steps = dict(zip(names(found), found.step, strict=True))
    assert steps == {"a": 4, "edge": 5, "b": 5, "c": NO_ID, "d": NO_ID}


# Directions


BACKWARD_OF_RELU = [
    node("autograd::engine::evaluate_function: ReluBackward0", 10, 8, seq=7, tid=ENGINE),
    node("ReluBackward0", 11, 6, seq=7),
    op("aten::threshold_backward", 12, 3, tid=ENGINE),
]


def test_what_runs_inside_a_node_is_backward(tmp_path: Path) -> None:
    found = linked(tmp_path, op("aten::relu", 0, 2, seq=7), BACKWARD_OF_RELU)

    backward = [name for name, way in directions(found).items() if way == "backward"]
    assert len(backward) == 3
    assert directions(found)["aten::relu"] == "forward"


@pytest.mark.parametrize(
    ("event", "direction"),
    [
        pytest.param(op("AddBackward0", 0, 2), "backward", id="node by name"),
        pytest.param(op("CudnnBackward", 0, 2), "backward", id="node of old by name"),
        pytest.param(op("x::FooBackward12", 0, 2), "backward", id="node of a library"),
        pytest.param(op("anything", 0, 2, fwd=1), "backward", id="node by number"),
        pytest.param(op("anything", 0, 2, fwd=0), "forward", id="number of forward"),
        pytest.param(op("RegisterPostBackwardFunction", 0, 2), "forward", id="hook"),
        pytest.param(op("Backwards", 0, 2), "forward", id="other word"),
        pytest.param(op("aten::_foo_backward", 0, 2), "forward", id="op of that name"),
        pytest.param(op("aten::_fused_adamw_", 0, 2), "optimizer", id="fused optimizer"),
        pytest.param(op("aten::mul", 0, 2), "forward", id="inference"),
    ],
)
def test_the_op_itself_tells_its_direction(tmp_path: Path, event: Event, direction: str) -> None:
    assert list(directions(linked(tmp_path, event)).values()) == [direction]


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("Optimizer.step#SGD.step", "optimizer"),
        ("Optimizer.zero_grad#SGD.zero_grad", "other"),
        ("enumerate(DataLoader)#_SingleProcess.__next__", "other"),
        ("my range", "forward"),
    ],
)
def test_the_range_around_tells_the_direction(tmp_path: Path, text: str, direction: str) -> None:
    found = linked(tmp_path, annotation(text, 0, 9), op("a", 2, 1), op("b", 2, 1, tid=9))

    assert directions(found) == {"a": direction, "b": "forward"}


def test_a_step_of_the_optimizer_inside_of_backward_is_backward(tmp_path: Path) -> None:
    around = annotation("Optimizer.step#SGD.step", 9, 20, tid=ENGINE)

    assert "optimizer" not in directions(linked(tmp_path, around, BACKWARD_OF_RELU)).values()


def recomputed(found: Linked) -> list[str]:
    return [name for name, again in zip(names(found), found.ops.recompute, strict=True) if again]


def test_a_forward_op_inside_backward_is_recompute_with_all_that_is_in_it(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        node("CheckpointFunctionBackward", 0, 50, seq=3),
        op("aten::empty", 1, 1, tid=ENGINE),
        op("aten::linear", 3, 9, tid=ENGINE, seq=90),
        op("aten::addmm", 4, 3, tid=ENGINE),
        node("AddmmBackward0", 20, 9, seq=90, fwd=2),
        op("aten::mm", 21, 2, tid=ENGINE),
    )

    assert recomputed(found) == ["aten::linear", "aten::addmm"]
    ways = directions(found)
    assert (ways["aten::linear"], ways["aten::addmm"]) == ("forward", "forward")
    assert (ways["aten::empty"], ways["aten::mm"]) == ("backward", "backward")


def test_nothing_outside_of_backward_is_recompute(tmp_path: Path) -> None:
    found = linked(tmp_path, op("a", 0, 9, seq=1), op("b", 2, 1, seq=2), BACKWARD_OF_RELU)

    assert recomputed(found) == []


# Nothing


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="nothing at all"),
        pytest.param([frame("a.py(1): f", 0, 1), step(1, 0, 1)], id="no ops"),
        pytest.param([op("a", 0, 0)], id="one op, nothing long"),
        pytest.param([op("a", 0, 1, tid=None, pid=None)], id="no thread"),
    ],
)
def test_little_is_no_problem(tmp_path: Path, events: list[Any]) -> None:
    assert len(linked(tmp_path, events).ops) <= 1
