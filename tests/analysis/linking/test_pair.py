"""Every backward op finds the forward op that made its node, and none finds a wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyprof2.analysis.linking.pair import TIED
from tests.kineto_events import (
    ENGINE,
    MAIN,
    Event,
    flow,
    launched,
    linked,
    load_events,
    node,
    op,
    rows,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.analysis.assembly.linked import Linked
    from pyprof2.analysis.intervals import Int

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


TWO_THREADS = [
    relu(0, 7), relu(1, 7, tid=OTHER), relu(3, 8), relu(4, 8, tid=OTHER),
    node("ReluBackward0", 20, 1, seq=8, fwd=1), node("ReluBackward0", 22, 1, seq=8, fwd=2),
    node("ReluBackward0", 24, 1, seq=7, fwd=1), node("ReluBackward0", 26, 1, seq=7, fwd=2),
]  # fmt: skip


def test_of_threads_that_fit_equally_well_none_is_taken(tmp_path: Path) -> None:
    run = load_events(tmp_path, TWO_THREADS, launched(20, 1, at=90, dur=5, tid=ENGINE))

    assert rows(run.table("kernels"), "op", "forward_op_id", "link_note") == [
        ("ReluBackward0", None, TIED)
    ]
    assert rows(run.table("ops"), "link_note") == [None] * 4 + [TIED] * 4
    lost = "autograd nodes whose forward thread was not found: no forward op, no layer"
    found = run.check()
    assert found.loc[found["finding"] == lost, "count"].tolist() == [4]


@pytest.mark.parametrize(
    ("flows", "wanted"),
    [
        pytest.param([flow(1, 3, 22)], {20: 4, 22: 3, 24: 1, 26: 0}, id="of one thread"),
        pytest.param(
            [flow(1, 3, 20), flow(2, 0, 24)], {20: 3, 22: 4, 24: 0, 26: 1}, id="of both threads"
        ),
    ],
)
def test_flows_tell_threads_with_the_same_numbers_apart(
    tmp_path: Path, flows: list[list[Event]], wanted: dict[int, int]
) -> None:
    assert forward_of(linked(tmp_path, TWO_THREADS, *flows)) == wanted


def test_the_thread_of_another_number_is_no_choice(tmp_path: Path) -> None:
    found = linked(
        tmp_path, TWO_THREADS, relu(6, 9), node("ReluBackward0", 18, 1, seq=9, fwd=1)
    )  # fmt: skip

    assert forward_of(found) == {18: 6, 20: 3, 22: 4, 24: 0, 26: 1}


def test_names_tell_which_thread_a_number_means(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        op("aten::relu", 0, 1, seq=7), op("aten::add_", 2, 1, seq=7, tid=OTHER),
        node("AddBackward0", 20, 1, seq=7, fwd=1), node("ReluBackward0", 30, 1, seq=7, fwd=2),
    )  # fmt: skip

    assert forward_of(found) == {20: 2, 30: 0}


def test_a_forward_thread_that_was_not_recorded_has_no_stand_in(tmp_path: Path) -> None:
    """Number 7 means a thread that was not recorded; what number 1 means is sure."""
    found = linked(
        tmp_path,
        relu(0, 4), op("aten::sum", 3, 2, seq=5),
        relu_node(20, 4),
        node("ConvolutionBackward0", 30, 3, seq=5, fwd=7),
        node("AddmmBackward0", 40, 3, seq=4, fwd=7),
    )  # fmt: skip

    assert forward_of(found) == {20: 0, 21: 0, 22: 0, 30: None, 40: None}
    assert found.pairs.lost_count == 2


def test_within_a_thread_the_number_decides_whatever_the_names_are(tmp_path: Path) -> None:
    found = linked(
        tmp_path,
        relu(0, 4), op("aten::nll_loss_forward", 3, 2, seq=5),
        node("NllLossBackward0", 20, 3, seq=5), relu_node(30, 4),
    )  # fmt: skip

    assert forward_of(found)[20] == 3
    assert found.pairs.lost_count == 0


def test_a_flow_of_the_recorder_agrees_as_a_name_does(tmp_path: Path) -> None:
    events = [op("my::op", 0, 2, seq=4), node("OwnNodeOfMine", 20, 3, seq=4)]

    assert forward_of(linked(tmp_path, events)) == {20: None}
    assert forward_of(linked(tmp_path, events, flow(1, 0, 20))) == {20: 0}


def test_new_threads_of_each_iteration_have_the_nodes_that_follow(tmp_path: Path) -> None:
    """The thread of the first iteration has a number already when the nodes of the second run."""
    forward = [
        op(name, at + 10 * seq, 2, seq=seq, tid=tid)
        for tid, at in ((11, 0), (12, 500))
        for seq, name in enumerate(("aten::mm", "aten::relu"))
    ]

    found = linked(
        tmp_path, forward,
        node("MmBackward0", 200, 2, seq=0, fwd=2),
        node("ReluBackward0", 700, 2, seq=1, fwd=5), node("MmBackward0", 720, 2, seq=0, fwd=5),
    )  # fmt: skip

    assert forward_of(found) == {200: 0, 700: 510, 720: 500}


def test_two_numbers_do_not_share_the_ops_of_a_thread(tmp_path: Path) -> None:
    """The thread of number 7 was not recorded, and ran what the main thread ran."""
    found = linked(
        tmp_path, relu(0, 4), relu(10, 5),
        node("ReluBackward0", 20, 2, seq=5, fwd=1), node("ReluBackward0", 30, 2, seq=4, fwd=1),
        node("ReluBackward0", 40, 2, seq=5, fwd=7),
    )  # fmt: skip

    assert forward_of(found) == {20: 10, 30: 0, 40: None}


def test_without_numbers_of_threads_names_tell_them_apart(tmp_path: Path) -> None:
    """As `emit_nvtx` writes it: two stages in two threads, each with its own engine."""
    second = 104
    found = linked(
        tmp_path,
        op("aten::mm", 0, 2, seq=0, fwd=0), op("aten::mm", 5, 2, seq=1, fwd=0),
        op("aten::relu", 1, 2, seq=0, fwd=0, tid=OTHER),
        op("aten::tanh", 6, 2, seq=1, fwd=0, tid=OTHER),
        op("aten::nll_loss_forward", 9, 2, seq=2, fwd=0, tid=OTHER),
        node("MmBackward0", 20, 2, seq=1, fwd=0), node("MmBackward0", 30, 2, seq=0, fwd=0),
        node("NllLossBackward0", 40, 2, seq=2, fwd=0, tid=second),
        node("TanhBackward0", 45, 2, seq=1, fwd=0, tid=second),
        node("ReluBackward0", 50, 2, seq=0, fwd=0, tid=second),
    )  # fmt: skip

    assert forward_of(found) == {20: 5, 30: 0, 40: 9, 45: 6, 50: 1}


@pytest.mark.parametrize("second", [12, 11], ids=["two threads", "one thread"])
def test_without_numbers_of_threads_what_ran_last_on_a_thread_runs_back_first(
    second: int, tmp_path: Path
) -> None:
    found = linked(
        tmp_path,
        [
            op("aten::relu", at, 2, seq=0, fwd=0, tid=tid)
            for tid, at in ((11, 0), (second, 10), (13, 100))
        ],
        [node("ReluBackward0", at, 2, seq=0, fwd=0) for at in (20, 30, 120, 130)],
    )

    # The last one has no op of its own left: a graph that was kept runs back again.
    first = {20: 10, 30: 0} if second == 11 else {20: None, 30: None}
    assert forward_of(found) == first | {120: 100, 130: 100}


def test_without_numbers_of_threads_a_stranger_is_no_choice_either(tmp_path: Path) -> None:
    found = linked(
        tmp_path, op("aten::sigmoid", 0, 2, seq=4, fwd=0),
        node("AddmmBackward0", 20, 2, seq=4, fwd=0),
    )  # fmt: skip

    assert forward_of(found) == {20: None}
    assert found.pairs.lost_count == 1


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


def test_what_ran_inside_of_a_node_is_not_before_what_follows_it(tmp_path: Path) -> None:
    name = "torch::autograd::AccumulateGrad"
    found = linked(
        tmp_path,
        op("CheckpointFunction", 0, 9, seq=7), relu(2, 8),
        node("CheckpointFunctionBackward", 20, 40, seq=7),
        op("aten::detach", 21, 1, tid=ENGINE),
        relu_node(30, 8),
        op(f"autograd::engine::evaluate_function: {name}", 40, 5, tid=ENGINE),
        op(f"autograd::engine::evaluate_function: {name}", 70, 5, tid=ENGINE),
        op(name, 71, 3, tid=ENGINE),
    )  # fmt: skip

    accumulate = starts(found, found.pairs.accumulate)
    assert {at: accumulate[at] for at in (40, 70, 71)} == {40: 2, 70: 0, 71: 0}


def test_gradients_after_a_node_without_forward_op_have_none(tmp_path: Path) -> None:
    found = linked(
        tmp_path, relu(0, 7), relu_node(20, 7), node("XBackward0", 30, 2, seq=5),
        op("AccumulateGrad", 40, 2, tid=ENGINE),
    )  # fmt: skip

    assert starts(found, found.pairs.accumulate)[40] is None


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
