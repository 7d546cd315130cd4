"""Ops nest, and take layer, line, step and direction from what encloses them on their thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pyprof2.analysis.assembly.linked import link_recording
from pyprof2.analysis.linking.stacks import Around, Stacks
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.signatures import DIRECTIONS
from tests.kineto_events import (
    ENGINE,
    Event,
    annotation,
    frame,
    launched,
    linked,
    load_events,
    node,
    op,
    read,
    rows,
    step,
    trace,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.analysis.assembly.linked import Linked
    from pyprof2.columns import TextColumn


STEP_TEXT = "Optimizer.step#SGD.step"


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
        pytest.param([op("b", "10.000", "0.000")], None, id="nothing long, at the end"),
        pytest.param([op("b", "9.999", "0.000")], "a", id="nothing long, a ns before it"),
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


def test_what_runs_again_has_the_whole_path_of_its_module(tmp_path: Path) -> None:
    """In backward there is no frame of the root; `Own_5` never ran in forward."""
    found = linked(
        tmp_path,
        frame("nn.Module: Net_0", 0, 20), frame("nn.Module: Block_1", 1, 15),
        frame("nn.Module: Linear_2", 2, 5), op("aten::addmm", 3, 1, seq=7),
        node("AddmmBackward0", 30, 60, seq=7),
        frame("nn.Module: Block_1", 40, 15, tid=ENGINE),
        frame("nn.Module: Linear_2", 41, 5, tid=ENGINE),
        op("again", 42, 1, seq=9, tid=ENGINE),
        frame("nn.Module: Own_5", 60, 5, tid=ENGINE), op("own", 61, 1, seq=10, tid=ENGINE),
        op("aten::mm", 70, 1, tid=ENGINE),
    )  # fmt: skip

    layers = texts(found.layer, found)
    assert (layers["again"], layers["own"]) == ("Net_0.Block_1.Linear_2", None)


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


# What begins as another ends


def test_what_begins_as_another_ends_is_not_inside_of_it(tmp_path: Path) -> None:
    found = load_events(
        tmp_path,
        step(1, 0, 400), frame("nn.Module: Net_0", 0, 900), frame("nn.Module: Linear_0", 10, 40),
        op("aten::addmm", 12, 30), op("aten::empty", 46, 4), launched(20, 1, at=2000, dur=5),
        op("aten::add", 50, 20), launched(50, 2, at=2010, dur=5),
        annotation("mine", 100, 50), op("aten::relu", 150, 20), launched(160, 3, at=2020, dur=5),
        annotation(STEP_TEXT, 200, 50), op("aten::mul", 250, 20), launched(255, 4, at=2030, dur=5),
        op("MulBackward0", 300, 50, seq=5, fwd=1), op("aten::tanh", 350, 20),
        launched(355, 5, at=2040, dur=5),
        op("aten::exp", 400, 20), launched(400, 6, at=2050, dur=5),
        frame("train.py(10): f", 500, 50), op("aten::log", 550, 5),
        launched(552, 7, at=2060, dur=5),
        op("aten::arange", 600, 20), op("aten::resize_", 604, 6), launched(610, 8, at=2070, dur=5),
    )  # fmt: skip

    columns = ("op", "direction", "step", "layer", "range", "source")
    assert rows(found.table("kernels"), *columns) == [
        (f"aten::{name}", "forward", step, layer, None, None)
        for name, step, layer in (
            ("addmm", 1, "Net_0.Linear_0"), ("add", 1, "Net_0"), ("relu", 1, "Net_0"),
            ("mul", 1, "Net_0"), ("tanh", 1, "Net_0"), ("exp", None, "Net_0"),
            ("log", None, "Net_0"), ("arange", None, "Net_0"),
        )
    ]  # fmt: skip


def test_what_has_no_length_has_no_launch(tmp_path: Path) -> None:
    found = load_events(
        tmp_path, op("aten::add", 0, 9), op("aten::empty", 5, 0), launched(5, 1, at=20, dur=5)
    )

    assert rows(found.table("kernels"), "op") == ["aten::add"]


def test_backward_that_begins_as_a_step_of_the_optimizer_ends_is_no_closure(tmp_path: Path) -> None:
    stepping = [annotation(STEP_TEXT, 0, 10), op("aten::mul", 2, 3, seq=4)]

    assert directions(linked(tmp_path, stepping, BACKWARD_OF_RELU))["aten::mul"] == "optimizer"


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
        *[
            pytest.param(op(around + name, 0, 2), "backward", id=around + name)
            for name in ("AccumulateGrad", "CopySlices", "CopyBackwards", "CppNode<my::F>")
            for around in ("", "torch::autograd::", "autograd::engine::evaluate_function: ")
        ],
        pytest.param(op("my::CopySlices", 0, 2), "forward", id="another one of that name"),
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


ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def test_backward_inside_of_the_step_of_an_optimizer_is_backward(tmp_path: Path) -> None:
    around = annotation(STEP_TEXT, 9, 20, tid=ENGINE)

    assert "optimizer" not in directions(linked(tmp_path, around, BACKWARD_OF_RELU)).values()


def test_the_step_of_an_optimizer_inside_of_backward_is_the_optimizers(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        op(ACCUMULATE, 0, 50, tid=ENGINE),
        op("aten::detach", 1, 1, tid=ENGINE),
        annotation(STEP_TEXT, 10, 20, tid=ENGINE),
        op("aten::lerp_", 12, 2, tid=ENGINE),
        annotation("Optimizer.zero_grad#SGD.zero_grad", 35, 5, tid=ENGINE),
        op("aten::zero_", 36, 2, tid=ENGINE),
    )

    ways = directions(found)
    assert ways["aten::lerp_"] == "optimizer"
    assert ways["aten::zero_"] == "other"
    assert ways["aten::detach"] == ways[ACCUMULATE] == "backward"


CLOSURE = (
    annotation(STEP_TEXT, 0, 100),
    annotation("Optimizer.zero_grad#SGD.zero_grad", 1, 4),
    op("aten::zero_", 2, 1),
    frame("nn.Module: Linear_0", 10, 10),
    op("aten::addmm", 12, 2, seq=7),
    op("aten::mse_loss", 25, 5, seq=8),
    op("aten::sub", 26, 1),
    op("aten::ones_like", 35, 2),
    op("aten::add_", 80, 2),
)


def test_a_closure_of_an_optimizer_runs_forward_and_backward(tmp_path: Path) -> None:
    """Backward may run on a thread of its own, as with a GPU."""
    backward = node("MseLossBackward0", 40, 20, seq=8, fwd=1)
    found = linked(tmp_path, *CLOSURE, backward, op("aten::mul", 45, 2, tid=ENGINE))

    ways = directions(found)
    forward = ("aten::addmm", "aten::mse_loss", "aten::sub", "aten::ones_like")
    assert {ways[name] for name in forward} == {"forward"}
    assert (ways["aten::zero_"], ways["aten::mul"]) == ("other", "backward")
    assert ways["aten::add_"] == "optimizer"


def test_a_closure_without_modules_is_forward_by_its_numbers(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        annotation(STEP_TEXT, 0, 100),
        op("aten::mse_loss", 25, 5, seq=8),
        op("aten::sub", 26, 1),
        node("MseLossBackward0", 40, 20, seq=8, fwd=1),
        op("aten::add_", 80, 2),
    )

    ways = directions(found)
    assert ways["aten::mse_loss"] == ways["aten::sub"] == "forward"
    assert ways["aten::add_"] == "optimizer"


def test_an_optimizer_that_computes_with_gradients_has_no_closure(tmp_path: Path) -> None:
    around = annotation(STEP_TEXT, 0, 100)
    found = linked(tmp_path, around, op("aten::add", 10, 2, seq=7), op("aten::mul", 20, 2, seq=8))

    assert set(directions(found).values()) == {"optimizer"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(True, True, "other", id="between backward and the step"),
        pytest.param(False, True, "forward", id="before backward"),
        pytest.param(True, False, "forward", id="without a step"),
    ],
)
def test_what_clips_gradients_is_other_work(
    tmp_path: Path, expected: str, *, before: bool, after: bool
) -> None:
    found = linked(
        tmp_path,
        node("ReluBackward0", 0 if before else 40, 5, seq=8, fwd=1),
        op("aten::_foreach_norm", 20, 5),
        op("aten::linalg_vector_norm", 21, 2),
        frame("nn.Module: Linear_0", 26, 10),
        op("aten::addmm", 27, 2),
        *([annotation(STEP_TEXT, 60, 20), op("aten::add_", 65, 2)] if after else []),
    )

    ways = directions(found)
    assert ways["aten::_foreach_norm"] == ways["aten::linalg_vector_norm"] == expected
    assert ways["aten::addmm"] == "forward"


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


def test_what_has_the_name_of_the_engines_range_around_it_is_the_node(tmp_path: Path) -> None:
    """Exports number the node as they number ops, and do not say on which thread."""
    found = linked(
        tmp_path,
        op("autograd::engine::evaluate_function: torch::own::Node", 10, 8, seq=7, tid=ENGINE),
        op("torch::own::Node", 11, 6, seq=7, tid=ENGINE),
        op("aten::mul", 12, 2, tid=ENGINE),
    )

    assert found.ops.node.tolist() == [True, True, False]
    assert recomputed(found) == []
    assert set(directions(found).values()) == {"backward"}


def test_own_ops_of_a_pass_that_is_recorded_are_backward(tmp_path: Path) -> None:
    """With `create_graph=True` all have numbers but those that make tensors from nothing."""
    found = linked(
        tmp_path,
        node("AddmmBackward0", 10, 9, seq=7),
        op("aten::mm", 11, 2, seq=9, tid=ENGINE), op("aten::zeros", 14, 1, tid=ENGINE),
        op("aten::resolve_conj", 12, 1, tid=ENGINE),
    )  # fmt: skip

    assert recomputed(found) == []
    assert set(directions(found).values()) == {"backward"}


def test_a_node_that_runs_an_unrecorded_pass_runs_forward_again(tmp_path: Path) -> None:
    """All of its own ops have numbers: it says `enable_grad` at once. The nodes inside have not."""
    found = linked(
        tmp_path,
        node("OnceBackward", 10, 50, seq=7),
        op("aten::detach", 11, 1, seq=8, tid=ENGINE), op("aten::tanh", 13, 2, seq=8, tid=ENGINE),
        node("TanhBackward0", 20, 9, seq=8, fwd=2),
        op("aten::tanh_backward", 21, 2, tid=ENGINE),
    )  # fmt: skip

    assert recomputed(found) == ["aten::detach", "aten::tanh"]


def test_what_the_engine_does_between_nodes_is_backward(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        op("aten::relu", 0, 2, seq=7), op("aten::ones_like", 5, 1),
        BACKWARD_OF_RELU,
        op("aten::add", 30, 2, tid=ENGINE), op("aten::item", 40, 2),
        op("aten::index", 31, 2, tid=9),
    )  # fmt: skip

    ways = directions(found)
    assert ways["aten::add"] == "backward"
    assert {ways[name] for name in ("aten::ones_like", "aten::item", "aten::index")} == {"forward"}


def test_a_thread_that_calls_backward_is_not_the_engines(tmp_path: Path) -> None:
    """On the CPU it runs the nodes too; here forward ran in a thread of its own."""
    found = linked(
        tmp_path,
        op("aten::relu", 0, 2, seq=7, tid=9), op("aten::ones_like", 5, 1, tid=ENGINE),
        BACKWARD_OF_RELU,
        op("aten::add_", 30, 2, tid=ENGINE),
    )  # fmt: skip

    assert directions(found)["aten::add_"] == "forward"


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


# Compilers and FSDP


def test_what_a_compiler_traces_is_left_out_where_nothing_ran_on_a_gpu(tmp_path: Path) -> None:
    timed = "backend_compile (dynamo_timed)"
    events = [op(timed, 0, 9), op("aten::mm", 2, 1), op("aten::add", 10, 1)]

    assert names(linked(tmp_path, events)) == ["aten::add"]
    tried = launched(3, 1, at=20, dur=1)
    assert names(linked(tmp_path, *events, tried)) == ["aten::mm", "aten::add"]


def test_what_hooks_run_before_a_node_has_its_layer_and_line(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        frame("nn.Module: Linear_0", 0, 9),
        frame("/w/net.py(7): forward", 0, 9),
        op("aten::addmm", 1, 2, seq=5),
        op("autograd::engine::evaluate_function: AddmmBackward0", 20, 9, tid=ENGINE),
        op("c10d::_allgather_base_", 21, 2, tid=ENGINE),
        node("AddmmBackward0", 24, 4, seq=5),
    )

    assert texts(found.layer, found)["c10d::_allgather_base_"] == "Linear_0"
    assert texts(found.source, found)["c10d::_allgather_base_"] == "/w/net.py:7"


@pytest.mark.parametrize(
    ("text", "layer", "direction"),
    [
        ("FSDP::all_gather (blocks.1)", "net.blocks.1", "forward"),
        ("FSDP::post_backward_reduce (blocks.1)", "net.blocks.1", "backward"),
        ("FSDP::backward_prefetch for blocks.1", "net.blocks.1", "backward"),
        ("FSDP::root_post_backward_callback", None, "backward"),
        ("FSDP::all_gather (head)", None, "forward"),
        ("FSDP::all_gather (1)", None, "forward"),
        ("my own (blocks.1)", None, "forward"),
    ],
)
def test_what_fsdp_does_has_the_layer_that_it_names_if_there_is_one(
    tmp_path: Path, text: str, layer: str | None, direction: str
) -> None:
    found = linked(
        tmp_path,
        annotation("layer:net.blocks.1", 0, 5),
        annotation("layer:net.more.1", 5, 1),
        annotation(text, 10, 9),
        op("c10d::gather", 11, 2),
    )

    assert texts(found.layer, found)["c10d::gather"] == layer
    assert directions(found)["c10d::gather"] == direction


@pytest.mark.parametrize(("second", "layer"), [(12, "Net_0.Linear_0"), (3, None)])
def test_what_fsdp_names_has_the_layer_in_which_it_works_for_it_in_forward(
    tmp_path: Path, second: int, layer: str | None
) -> None:
    """Where two names stand for one layer, nobody can tell."""
    found = linked(
        tmp_path,
        frame("nn.Module: Net_0", 0, 50),
        frame("nn.Module: Linear_0", 1, 9),
        frame("nn.Module: Linear_1", 11, 9),
        annotation("FSDP::pre_forward (0)", 2, 1),
        op("aten::empty", 2, 1),
        annotation("FSDP::pre_forward (1)", second, 1),
        op("aten::empty", second, 1),
        annotation("FSDP::post_backward_reduce (0)", 60, 9),
        op("fsdp::chunk_cat", 61, 2),
    )

    assert texts(found.layer, found)["fsdp::chunk_cat"] == layer


@pytest.mark.parametrize(
    ("text", "around", "chain"),
    [
        pytest.param("n.py:9", "t.py:1", ["t.py:1", "n.py:9"], id="a module of the user's own"),
        pytest.param("t.py:1", "t.py:1", ["t.py:1"], id="the same call"),
        pytest.param("l.py:5\nt.py:1", "t.py:1", ["t.py:1", "l.py:5"], id="a library in it"),
        pytest.param("l.py:6\nt.py:1", "l.py:5\nt.py:1", ["t.py:1", "l.py:6"], id="beside it"),
        pytest.param("n.py:9", "l.py:5\nt.py:1", ["t.py:1", "l.py:5", "n.py:9"], id="called back"),
    ],
)
def test_a_call_inside_of_another_has_what_called_that(
    text: str, around: str, chain: list[str]
) -> None:
    stacks = Stacks()
    words = [around, text]
    outer = np.array([stacks._below(-1, around.split("\n"))])

    (found,) = stacks.called((np.array([1]), words), Around(outer, (np.array([0]), words))).tolist()

    table = stacks.table().to_pylist()
    lines = []
    while found is not None:
        lines.append(table[found]["line"])
        found = table[found]["caller_id"]
    assert lines[::-1] == chain
