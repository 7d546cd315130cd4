"""Every backward op finds the forward op that made its node, and none finds a wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kineto_events import ENGINE, MAIN, Event, flow, linked, node, op

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.linked import Linked

OTHER = 103
"""A second thread that runs forward."""


def starts(found: Linked, to: Int) -> dict[int, int | None]:
    """For ops in backward the start of the op that they are tied to, both in µs."""
    start = (found.ops.start // 1000).tolist()
    rows = [row for row in range(len(start)) if found.ops.backward[row]]
    return {start[row]: start[to[row]] if to[row] >= 0 else None for row in rows}


def forward_of(found: Linked) -> dict[int, int | None]:
    return starts(found, found.pairs.forward)


def relu(ts: int, seq: int, *, tid: int = MAIN) -> Event:
    return op("aten::relu", ts, 2, seq=seq, tid=tid, fwd=0)


def relu_node(ts: int, seq: int, *, fwd: int = 1) -> list[Event]:
    """An engine's range with the node in it, and an op in that."""
    name = "ReluBackward0"
    return [
        node(f"autograd::engine::evaluate_function: {name}", ts, 5, seq=seq, fwd=fwd),
        node(name, ts + 1, 3, seq=seq, fwd=fwd),
        op("aten::threshold_backward", ts + 2, 1, tid=ENGINE),
    ]


def test_a_node_and_all_in_it_belong_to_the_op_of_its_number(tmp_path: Path) -> None:
    found = linked(tmp_path, relu(0, 7), relu(10, 8), relu_node(20, 8), relu_node(30, 7))

    assert forward_of(found) == {20: 10, 21: 10, 22: 10, 30: 0, 31: 0, 32: 0}


def test_of_ops_that_share_a_number_the_last_to_start_is_the_one(tmp_path: Path) -> None:
    forward = [
        op("aten::conv2d", 0, 9, seq=7),
        op("aten::convolution", 1, 7, seq=7),
        op("aten::empty", 3, 1),
    ]

    found = linked(tmp_path, forward, node("ConvolutionBackward0", 20, 3, seq=7))

    assert forward_of(found) == {20: 1}


def test_where_numbers_repeat_the_last_before_the_node_counts(tmp_path: Path) -> None:
    iterations = [[relu(at, 7), node("ReluBackward0", at + 10, 3, seq=7)] for at in (0, 100, 200)]

    found = linked(tmp_path, *iterations)

    assert forward_of(found) == {10: 0, 110: 100, 210: 200}


def test_an_op_that_starts_after_the_node_is_not_its_own(tmp_path: Path) -> None:
    found = linked(tmp_path, node("ReluBackward0", 10, 3, seq=7), relu(20, 7))

    assert forward_of(found) == {10: None}


def test_a_graph_that_is_kept_runs_twice_and_pairs_twice(tmp_path: Path) -> None:
    found = linked(tmp_path, relu(0, 7), relu_node(10, 7), relu_node(20, 7))

    assert set(forward_of(found).values()) == {0}


@pytest.mark.parametrize("swap", [False, True], ids=["tids rise", "tids fall"])
def test_threads_with_the_same_numbers_are_told_apart(tmp_path: Path, *, swap: bool) -> None:
    one, two = (OTHER, MAIN) if swap else (MAIN, OTHER)

    found = linked(
        tmp_path,
        relu(0, 7, tid=one), relu(1, 7, tid=two), relu(3, 8, tid=one), relu(4, 8, tid=two),
        node("ReluBackward0", 20, 1, seq=8, fwd=1), node("ReluBackward0", 22, 1, seq=8, fwd=2),
        node("ReluBackward0", 24, 1, seq=7, fwd=1), node("ReluBackward0", 26, 1, seq=7, fwd=2),
    )  # fmt: skip

    assert forward_of(found) == {20: 3, 22: 4, 24: 0, 26: 1}


def test_names_tell_which_thread_a_number_means(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        op("aten::relu", 0, 1, seq=7), op("aten::add_", 2, 1, seq=7, tid=OTHER),
        node("AddBackward0", 20, 1, seq=7, fwd=1), node("ReluBackward0", 30, 1, seq=7, fwd=2),
    )  # fmt: skip

    assert forward_of(found) == {20: 2, 30: 0}


def test_processes_do_not_mix(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        relu(0, 7) | {"pid": 1}, relu(1, 7) | {"pid": 2},
        node("ReluBackward0", 20, 1, seq=7, pid=1), node("ReluBackward0", 30, 1, seq=7, pid=2),
    )  # fmt: skip

    assert forward_of(found) == {20: 0, 30: 1}


def test_nodes_that_backward_made_do_not_pair_with_forward_ops(tmp_path: Path) -> None:
    """The engine's thread numbers the nodes of a second derivative by itself, from 0."""
    found = linked(
        tmp_path,
        relu(0, 0), op("aten::sum", 3, 1, seq=1),
        node("SumBackward0", 20, 2, seq=1, fwd=1),
        node("ReluBackward0", 30, 9, seq=0, fwd=1),
        op("aten::mul", 31, 2, tid=ENGINE),
        node("MulBackward0", 50, 2, seq=0, fwd=2),
        node("ExpandBackward0", 60, 2, seq=1, fwd=2),
    )  # fmt: skip

    assert forward_of(found) == {20: 3, 30: 0, 31: 0, 50: None, 60: None}


def test_what_checkpointing_runs_again_is_no_partner(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        relu(0, 7), op("aten::exp", 3, 1, seq=8),
        node("ExpBackward0", 20, 2, seq=8),
        node("CheckpointBackward", 30, 60, seq=7),
        op("aten::relu", 32, 2, seq=7, tid=ENGINE, fwd=0),
        node("ReluBackward0", 40, 2, seq=7),
    )  # fmt: skip

    assert forward_of(found)[40] == 0
    assert 32 not in forward_of(found)


def test_that_holds_on_one_thread_too(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        relu(0, 7),
        node("CheckpointBackward", 30, 60, seq=9, tid=MAIN),
        relu(32, 7),
        node("ReluBackward0", 40, 2, seq=7, tid=MAIN),
    )

    assert forward_of(found) == {30: None, 40: 0}


def test_nodes_of_what_ran_again_belong_to_it_where_the_first_run_made_none(
    tmp_path: Path,
) -> None:
    """Checkpointing with reentry: the first run is without gradients, the second makes nodes."""
    found = linked(
        tmp_path,
        op("aten::relu", 0, 2, fwd=0),
        node("CheckpointFunctionBackward", 30, 60, seq=9),
        op("aten::relu", 32, 2, seq=0, tid=ENGINE, fwd=0),
        node("ReluBackward0", 40, 2, seq=0, fwd=2),
    )

    assert forward_of(found)[40] == 32


def test_old_nodes_without_a_thread_pair_by_their_number(tmp_path: Path) -> None:
    found = linked(tmp_path, relu(0, 7), op("ReluBackward", 20, 2, seq=7, tid=ENGINE))

    assert forward_of(found) == {20: 0}


def test_a_node_without_a_number_has_no_forward_op(tmp_path: Path) -> None:
    found = linked(tmp_path, relu(0, 7), op("ReluBackward0", 20, 2, tid=ENGINE, fwd=1))

    assert forward_of(found) == {20: None}


def test_gradients_are_accumulated_for_the_node_before(tmp_path: Path) -> None:
    name = "torch::autograd::AccumulateGrad"
    found = linked(
        tmp_path,
        relu(0, 7), relu(5, 8),
        relu_node(20, 8),
        node(f"autograd::engine::evaluate_function: {name}", 30, 5, seq=0),
        op("aten::add_", 31, 2, tid=ENGINE),
        relu_node(40, 7),
        node(f"autograd::engine::evaluate_function: {name}", 50, 5, seq=0),
        op("aten::detach", 51, 2, tid=ENGINE),
    )  # fmt: skip

    assert {forward_of(found)[at] for at in (30, 31, 50, 51)} == {None}
    accumulate = starts(found, found.pairs.accumulate)
    assert {at: accumulate[at] for at in (20, 30, 31, 50, 51)} == {
        20: None, 30: 5, 31: 5, 50: 0, 51: 0,
    }  # fmt: skip


def test_the_first_accumulation_has_no_node_before(tmp_path: Path) -> None:
    name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"

    found = linked(tmp_path, relu(0, 7), node(name, 10, 2, seq=0), relu_node(20, 7))

    assert starts(found, found.pairs.accumulate)[10] is None


@pytest.mark.parametrize(
    ("flows", "counts"),
    [
        pytest.param([], (0, 0), id="none"),
        pytest.param(flow(1, 10, 31), (1, 1), id="the same two ops"),
        pytest.param(flow(1, 0, 31), (1, 0), id="another forward op"),
        pytest.param([*flow(1, 10, 31), *flow(2, 0, 21)], (2, 2), id="two"),
        pytest.param(flow(1, 11, 31), (0, 0), id="no op starts there"),
        pytest.param(flow(1, 10, 31)[:1], (0, 0), id="half a flow"),
        pytest.param(flow(1, 10, 31)[1:], (0, 0), id="the other half"),
        pytest.param(
            [event | {"id": {}} for event in [*flow(1, 10, 31), *flow(2, 0, 21)]], (0, 0),
            id="no numbers",
        ),
    ],
)  # fmt: skip
def test_flows_of_the_recorder_are_compared(
    tmp_path: Path, flows: list[Event], counts: tuple[int, int]
) -> None:
    found = linked(tmp_path, relu(0, 8), relu(10, 7), relu_node(20, 8), relu_node(30, 7), flows)

    assert (found.pairs.flow_count, found.pairs.flow_agree_count) == counts


def test_layer_and_line_of_a_backward_op_are_those_of_its_forward_op(tmp_path: Path) -> None:
    forward = op("aten::relu", 0, 2, seq=7, **{"Module Hierarchy": "net.act"})
    own = op("aten::fill_", 32, 1, tid=ENGINE, **{"Module Hierarchy": "other"})

    found = linked(tmp_path, forward, relu_node(20, 7), node("XBackward0", 31, 5, seq=9), own)

    codes, words = found.layer
    layers = [words[code] if code >= 0 else None for code in codes]
    assert layers == ["net.act"] * 4 + [None, None]


def test_a_c_node_belongs_to_the_op_of_its_name_next_to_the_one_of_its_number(
    tmp_path: Path,
) -> None:
    """Two lookups: only the helpers before them have a number."""
    lookup = "fbgemm::split_embedding_codegen_lookup_adagrad_function"
    name = "torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>"
    found = linked(
        tmp_path,
        op("aten::zero_", 0, 1, seq=5), op(lookup, 2, 3),
        op("aten::zero_", 6, 1, seq=6), op(lookup, 8, 3),
        node(name, 100, 2, seq=6), node(name, 110, 2, seq=5),
        node("torch::autograd::CppNode<Other>", 120, 2, seq=5),
    )  # fmt: skip

    assert [found.ops.start[at] // 1000 for at in found.pairs.forward[4:]] == [8, 2, 0]
    assert found.pairs.unsure[4:].tolist() == [False, False, True]
