"""Op calls are found in the code of a graph whole and in order, or not at all."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pyprof2.analysis.compiled.joining import NO_GRAPH, SEVERAL, choose_graph, join, worked_on
from pyprof2.recording import CodeLaunch, CodeNode, CompiledGraph
from tests.compiled_trace import graphs

GRAPHS = graphs()
NAMES = [[launch.name for launch in graph.launches or ()] for graph in GRAPHS]


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_a_call_of_a_graph_is_found_launch_by_launch(number: int) -> None:
    names = NAMES[number]

    found = join(GRAPHS[number], names)

    assert found.launches == tuple(range(len(names)))
    assert found.note == f"{len(names)} of {len(names)} names of the compiled graph's code"


def test_copies_of_inputs_are_no_launches() -> None:
    found = join(GRAPHS[0], ["aten::copy_", *NAMES[0], "aten::clone"])

    assert found.launches == (-1, *range(len(NAMES[0])), -1)


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_a_launch_less_is_never_joined(number: int) -> None:
    names = NAMES[number]
    for at in range(len(names)):
        found = join(GRAPHS[number], [*names[:at], *names[at + 1 :]])

        assert found.launches == ()
        assert names[at] in found.note


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_launches_in_another_order_are_never_joined(number: int) -> None:
    names = NAMES[number]
    swapped = 0
    for at in range(len(names) - 1):
        one, other = names[at : at + 2]
        if one != other:
            swapped += 1
            found = join(GRAPHS[number], [*names[:at], other, one, *names[at + 2 :]])

            assert found.launches == ()
            assert re.search(r"not the code that was noted: \S+ where that has \S+", found.note)
    assert swapped > 5


def test_another_op_in_a_call_is_never_passed_over() -> None:
    for at in range(len(NAMES[0]) + 1):
        found = join(GRAPHS[0], [*NAMES[0][:at], "aten::mul", *NAMES[0][at:]])

        assert found.launches == ()
        assert "aten::mul" in found.note


def test_the_code_of_another_graph_is_never_joined() -> None:
    assert join(GRAPHS[0], NAMES[1]).launches == ()
    assert join(GRAPHS[1], NAMES[0]).launches == ()


def test_of_a_graph_without_code_the_note_says_why() -> None:
    graph = CompiledGraph("k", lacks="it came from a cache")

    assert join(graph, ["aten::mm"]) == ((), "it came from a cache")


def test_of_graphs_of_one_key_the_region_says_which_one_is_called() -> None:
    forward, backward = GRAPHS
    other = replace(forward, compile_id="1/1", launches=(forward.launches or ())[:1])

    assert choose_graph([forward], None, is_backward=False) is forward
    assert choose_graph([forward, other], "1/1", is_backward=False) is other
    assert choose_graph([forward, other], None, is_backward=False) == SEVERAL
    assert choose_graph([forward, other], "7/0", is_backward=False) == NO_GRAPH
    both = [replace(forward, compile_id="1/0"), replace(backward, compile_id="1/0")]
    assert choose_graph(both, "1/0", is_backward=True) is both[1]
    assert choose_graph([], "1/0", is_backward=True) == NO_GRAPH


def test_two_graphs_of_one_key_in_one_place_are_no_graph_unless_they_are_equal() -> None:
    forward = GRAPHS[0]
    other = replace(forward, launches=(forward.launches or ())[:1])

    assert choose_graph([forward, other], forward.compile_id, is_backward=False) == SEVERAL
    assert choose_graph([forward, replace(forward)], None, is_backward=False) is forward


def test_a_kernel_runs_what_is_between_its_results_and_what_was_written_before() -> None:
    nodes = {
        "mm": CodeNode("aten::mm", inputs=()),
        "erf": CodeNode("aten::erf", inputs=("mm",)),
        "gelu": CodeNode("aten::mul", inputs=("mm", "erf")),
        "view": CodeNode("aten::view", inputs=("gelu",), takes_view=True),
        "sum": CodeNode("aten::sum", inputs=("view",)),
    }
    launches = (
        CodeLaunch("aten::mm", ("mm",), ("buf0",)),
        CodeLaunch("triton_0", ("gelu", "erf"), ("buf1",)),
        # It is listed with all that leads to its result, and reads what the last one wrote.
        CodeLaunch("triton_1", ("sum", "view", "gelu", "erf"), ("buf2",)),
    )
    graph = CompiledGraph(
        "k", nodes=nodes, launches=launches, buffers={"buf0": "mm", "buf1": "gelu", "buf2": "sum"}
    )

    assert worked_on(graph) == [
        (("mm",), "computed"), (("gelu", "erf"), "computed"), (("sum",), "computed"),
    ]  # fmt: skip
    unknown = replace(graph, buffers={})
    assert worked_on(unknown)[2] == (("sum", "gelu", "erf"), "listed")


def test_a_product_is_the_work_of_the_launch_that_calls_it_alone() -> None:
    nodes = {
        "conv": CodeNode("aten::convolution", inputs=("div",)),
        "div": CodeNode("aten::div"),
    }
    launches = (
        CodeLaunch("cpp_fused_0", ("conv", "div"), ("buf0",)),
        CodeLaunch("aten::convolution", ("conv", "div"), ("buf1",)),
    )

    found = worked_on(CompiledGraph("k", nodes=nodes, launches=launches))

    assert [nodes for nodes, _ in found] == [("div",), ("conv",)]


def test_without_a_list_a_kernel_runs_what_leads_to_its_buffers() -> None:
    """As in torch 2.6, which lists nothing for kernels in C++, nor which call is of which node."""
    nodes = {
        "mm": CodeNode("aten::mm", inputs=()),
        "erf": CodeNode("aten::erf", inputs=("mm",)),
        "gelu": CodeNode("aten::mul", inputs=("mm", "erf")),
        "mm_1": CodeNode("aten::mm", inputs=("gelu",)),
    }
    launches = (
        CodeLaunch("aten::mm", None, ("buf0",)),
        CodeLaunch("cpp_fused_gelu_0", None, ("buf1",)),
        CodeLaunch("aten::mm", None, ("buf2",)),
    )
    graph = CompiledGraph(
        "k", nodes=nodes, launches=launches, buffers={"buf0": "mm", "buf1": "gelu", "buf2": "mm_1"}
    )

    assert worked_on(graph) == [
        (("mm",), "computed"), (("erf", "gelu"), "computed"), (("mm_1",), "computed"),
    ]  # fmt: skip


def test_without_a_list_a_call_of_several_results_is_the_node_of_its_buffer() -> None:
    """As attention, and the gradients of convolutions, in torch 2.6."""
    nodes = {
        "mul": CodeNode("aten::mul"),
        "conv": CodeNode("aten::convolution_backward", inputs=("mul",)),
        "left": CodeNode("getitem", inputs=("conv",), takes_view=True),
        "sum": CodeNode("aten::sum", inputs=("left",)),
        "conv_1": CodeNode("aten::convolution_backward", inputs=("sum",)),
        "right": CodeNode("getitem", inputs=("conv_1",), takes_view=True),
        "exp": CodeNode("aten::exp", inputs=("right",)),
    }
    launches = (
        CodeLaunch("cpp_fused_mul_0", None, ("buf0",)),
        CodeLaunch("aten::convolution_backward", None, ("buf1", "buf2")),
        CodeLaunch("cpp_fused_sum_1", None, ("buf3",)),
        CodeLaunch("aten::convolution_backward", None, ("buf4", "buf5")),
        CodeLaunch("cpp_fused_exp_2", None, ("buf6",)),
    )
    buffers = {
        "buf0": "mul", "buf1": "conv", "buf2": "left", "buf3": "sum", "buf4": "conv_1",
        "buf5": "right", "buf6": "exp",
    }  # fmt: skip
    graph = CompiledGraph("k", nodes=nodes, launches=launches, buffers=buffers)

    found = [nodes for nodes, _ in worked_on(graph)]
    assert found == [("mul",), ("conv",), ("sum",), ("conv_1",), ("exp",)]

    # Without the buffers of both calls nothing says which is which, and no kernel does their work.
    less = {name: node for name, node in buffers.items() if name not in ("buf1", "buf4")}
    found = [nodes for nodes, _ in worked_on(replace(graph, buffers=less))]
    assert found == [("mul",), (), ("sum",), (), ("exp",)]


def test_without_a_list_a_call_that_keeps_the_state_of_random_numbers_is_its_op() -> None:
    """As attention in a checkpoint, in torch 2.6."""
    saved = [f"run_and_save_rng_state{end}" for end in ("", "_1")]
    nodes = {name: CodeNode("run_and_save_rng_state") for name in saved}
    launches = (
        CodeLaunch("aten::attention", None, ("buf0", "buf1")),
        CodeLaunch("aten::attention", None, ("buf2", "buf3")),
    )
    buffers = {"buf0": saved[1], "buf1": "getitem", "buf2": saved[0], "buf3": "getitem_1"}
    graph = CompiledGraph("k", nodes=nodes, launches=launches, buffers=buffers)

    assert worked_on(graph) == [((saved[1],), "computed"), ((saved[0],), "computed")]


def test_without_a_list_a_kernel_runs_what_is_copied_to_an_input() -> None:
    """As the running mean of a batch norm."""
    nodes = {
        "mean": CodeNode("aten::mean", inputs=("x",)),
        "mul": CodeNode("aten::mul", inputs=("mean",)),
        "copy_": CodeNode("aten::copy_", inputs=("running", "mul")),
    }
    launches = (CodeLaunch("cpp_fused_0", None, ("buf0", "running")),)
    graph = CompiledGraph("k", nodes=nodes, launches=launches, buffers={"buf0": "mean"})

    assert worked_on(graph) == [(("mean", "mul", "copy_"), "computed")]
