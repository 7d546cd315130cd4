"""The work of kernels that a compiler wrote: what their nodes do, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.compiled.costs import GraphWork, bound_sizes, has_open_sizes
from pyprof2.recording import CodeLaunch, CodeNode, CodeTensor, CompiledGraph
from pyprof2.signatures import OpCall, Scalar, Tensor
from tests.counted_calls import calls_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROWS, COLUMNS = 8, 128
N = ROWS * COLUMNS


def node(
    op: str, *inputs: str, sizes: tuple[int | str, ...] = (ROWS, COLUMNS), **known: Any
) -> CodeNode:
    return CodeNode(op, inputs=inputs, sizes=sizes, dtype="f32", **known)


def tensor(name: str, role: str, *sizes: int | str, at: int = 0, **known: Any) -> CodeTensor:
    dtype = known.pop("dtype", "f32")
    return CodeTensor(name, at, "in" in role, "out" in role, sizes, dtype=dtype, **known)


X = {"x": node("", sizes=(ROWS, COLUMNS))}
GELU = {
    "half": node("aten::mul", "x"),
    "scaled": node("aten::mul", "x"),
    "erf": node("aten::erf", "scaled"),
    "one": node("aten::add", "erf"),
    "gelu": node("aten::mul", "half", "one"),
}
KERNEL = CodeLaunch(
    "triton_poi_fused_gelu_0", tuple(GELU), ("buf0",), results=("gelu",),
    tensors=(tensor("x", "in", ROWS, COLUMNS), tensor("buf0", "out", ROWS, COLUMNS, at=1)),
    elements=(N,),
)  # fmt: skip
GRAPH = CompiledGraph("k", nodes=GELU, inputs=X, launches=(KERNEL,))


def test_each_node_counts_for_each_element_and_each_argument_once() -> None:
    found = GraphWork(GRAPH).of(0, None)

    assert found.flops == (N,) * 5
    assert found.evidence == "computed"
    assert found.estimate is not None
    cost = found.estimate.cost
    assert cost is not None
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (5 * N, 4 * N, 4 * N)
    assert (cost.flops_lo, cost.flops_hi) == (5 * N, 5 * N)
    assert (cost.flops_formula, cost.flops_numbers) == ("5·N", f"5·{N}")
    assert found.estimate.category == "elementwise"
    assert "an estimate" in found.estimate.note


def test_nodes_that_are_only_listed_are_the_most_that_it_may_be() -> None:
    found = GraphWork(replace(GRAPH, launches=(KERNEL._replace(results=()),))).of(0, None)

    assert found.evidence == "listed"
    assert found.estimate is not None
    assert found.estimate.cost is not None
    assert (found.estimate.cost.flops_lo, found.estimate.cost.flops_hi) == (0, 5 * N)


def test_a_node_without_a_known_work_leaves_the_kernel_without() -> None:
    odd = GELU | {"erf": node("mine::odd", "scaled")}
    found = GraphWork(replace(GRAPH, nodes=odd)).of(0, None)

    assert found.flops == (N, N, None, N, N)
    assert found.estimate is None


def summed(*launches: CodeLaunch) -> GraphWork:
    nodes = {
        "square": node("aten::mul", "x"),
        "sum": node("aten::sum", "square", sizes=(1, COLUMNS)),
    }
    return GraphWork(CompiledGraph("k", nodes=nodes, inputs=X, launches=launches))


def test_a_reduction_counts_what_it_reduces() -> None:
    red = CodeLaunch("triton_red_fused_sum_0", ("sum", "square"), ("b",), results=("sum",))
    found = summed(red).of(0, None)

    assert dict(zip(found.nodes, found.flops, strict=True)) == {"sum": N, "square": N}
    assert found.estimate is not None
    assert found.estimate.category == "reduce"
    # Its arguments are not known.
    assert found.estimate.cost is not None
    assert found.estimate.cost.bytes is None


def test_the_second_part_of_a_sum_counts_what_the_first_left_alone() -> None:
    first = CodeLaunch("triton_red_fused_sum_0", ("sum", "square"), ("b0",), results=("buf0",))
    second = CodeLaunch(
        "triton_per_fused_sum_1", ("sum", "square"), ("b1",), results=("sum",),
        tensors=(tensor("b0", "in", 4, COLUMNS), tensor("b1", "out", 1, COLUMNS, at=1)),
    )  # fmt: skip
    work = summed(first, second)

    assert sum(count or 0 for count in work.of(0, None).flops) == 2 * N
    again = work.of(1, None)
    assert (again.nodes, again.flops, again.evidence) == (("sum",), (4 * COLUMNS,), "computed")


M, K, P = 8, 16, 4
FACTORS = {"a": node("", sizes=(M, K)), "b": node("", sizes=(K, P))}
PRODUCT = {
    "mm": node("aten::mm", "a", "b", sizes=(M, P)),
    "relu": node("aten::relu", "mm", sizes=(M, P)),
}


def test_a_product_counts_where_it_is_computed_and_there_alone() -> None:
    called = CodeLaunch("aten::mm", ("mm",), ("b0",))
    fused = CodeLaunch("triton_poi_fused_mm_relu_0", ("relu", "mm"), ("b1",))
    graph = CompiledGraph("k", nodes=PRODUCT, inputs=FACTORS, launches=(called, fused))
    work = GraphWork(graph)

    assert work.of(0, None).estimate is None
    assert work.of(0, None).flops == (None,)
    found = work.of(1, None)
    assert (found.nodes, found.flops) == (("relu",), (M * P,))


def test_a_template_is_its_product_with_what_is_fused_to_it() -> None:
    template = CodeLaunch("triton_tem_fused_mm_relu_0", ("relu", "mm"), ("b1",), results=("relu",))
    graph = CompiledGraph("k", nodes=PRODUCT, inputs=FACTORS, launches=(template,))
    found = GraphWork(graph).of(0, None)

    assert dict(zip(found.nodes, found.flops, strict=True)) == {"mm": 2 * M * K * P, "relu": M * P}
    assert found.estimate is not None
    assert found.estimate.cost is not None
    assert found.estimate.category == "matmul"
    assert found.estimate.cost.flops == 2 * M * K * P + M * P


def test_what_lists_the_product_of_a_template_has_not_computed_it() -> None:
    template = CodeLaunch("triton_tem_fused_mm_0", ("mm",), ("b0",), results=("mm",))
    fused = CodeLaunch("triton_poi_fused_mm_relu_1", ("relu", "mm"), ("b1",))
    graph = CompiledGraph("k", nodes=PRODUCT, inputs=FACTORS, launches=(template, fused))
    found = GraphWork(graph).of(1, None)

    assert dict(zip(found.nodes, found.flops, strict=True)) == {"mm": 0, "relu": M * P}


def bytes_of(
    *tensors: CodeTensor, call: OpCall | None = None, elements: int = N
) -> tuple[int, int]:
    launch = KERNEL._replace(tensors=tensors, elements=(elements,))
    estimate = GraphWork(replace(GRAPH, launches=(launch,))).of(0, call).estimate
    assert estimate is not None
    assert estimate.cost is not None
    assert estimate.cost.bytes_read is not None
    assert estimate.cost.bytes_written is not None
    return estimate.cost.bytes_read, estimate.cost.bytes_written


def test_of_a_table_no_more_is_read_than_the_kernel_runs_over() -> None:
    table, out = tensor("t", "in", 50_000, 64), tensor("o", "out", 16, 64, at=1)

    assert bytes_of(table, out, elements=16 * 64) == (4 * 16 * 64, 4 * 16 * 64)
    launch = KERNEL._replace(tensors=(table, out), elements=(16 * 64,))
    found = GraphWork(replace(GRAPH, launches=(launch,))).of(0, None).estimate
    assert found is not None
    assert found.cost is not None
    # At the most the whole table is read.
    assert found.cost.bytes_hi == 4 * (50_000 * 64 + 16 * 64)


def test_what_is_repeated_is_read_once_and_what_changes_in_its_place_is_read_and_written() -> None:
    row = tensor("r", "in", ROWS, COLUMNS, strides=(0, 1))
    both = tensor("x", "in_out", ROWS, COLUMNS, at=1, dtype="bf16")

    assert bytes_of(row, both) == (4 * COLUMNS + 2 * N, 2 * N)


def test_sizes_as_they_were_recorded_come_first() -> None:
    given = tensor("x", "in", "s0", COLUMNS), tensor("o", "out", "s0", COLUMNS, at=1)
    call = OpCall("triton", (Tensor((2, COLUMNS), "f16"), Tensor((2, COLUMNS), "f16"), Scalar(256)))

    assert bytes_of(*given, call=call) == (2 * 2 * COLUMNS, 2 * 2 * COLUMNS)


OPEN = {
    "x": node("", sizes=("s0", COLUMNS)),
    "y": node("aten::mul", "x", sizes=("2*s0 - 1", COLUMNS)),
}


def test_sizes_that_a_call_decides_are_those_of_its_recorded_inputs() -> None:
    graph = CompiledGraph(
        "k", nodes={"y": OPEN["y"]}, inputs={"x": OPEN["x"]},
        launches=(KERNEL._replace(listed=("y",), results=("y",), elements=()),),
    )  # fmt: skip
    extern = CodeLaunch("aten::mm", tensors=(tensor("x", "in", "s0", COLUMNS),))
    bound = bound_sizes([(extern, OpCall("aten::mm", (Tensor((5, COLUMNS), "f32"),)))])

    assert bound == (("s0", 5),)
    assert has_open_sizes(graph)
    assert not has_open_sizes(GRAPH)
    assert GraphWork(graph, bound).of(0, None).flops == (9 * COLUMNS,)
    assert GraphWork(graph).of(0, None).estimate is None


def test_a_size_with_two_values_has_none() -> None:
    launch = CodeLaunch("aten::mm", tensors=(tensor("x", "in", "s0", "s0"),))

    assert bound_sizes([(launch, OpCall("aten::mm", (Tensor((5, 6), "f32"),)))]) == ()
    assert bound_sizes([(launch, None)]) == ()


@pytest.mark.parametrize(
    "text", ["s0//0", "f(s0)", "s0.real", "__import__('os')", "(" * 400, "1" * 600, "s0**9", "s1"]
)
def test_a_size_that_is_no_sum_or_product_of_known_ones_is_not_known(text: str) -> None:
    nodes = {"y": OPEN["y"]._replace(sizes=(text,), inputs=())}
    launch = KERNEL._replace(listed=("y",), results=("y",))
    graph = CompiledGraph("k", nodes=nodes, launches=(launch,))

    assert GraphWork(graph, [("s0", 5)]).of(0, None).flops == (None,)


@pytest.mark.parametrize("sizes", [(1 << 40, 1 << 40), (-3, 4)])
def test_sizes_that_no_tensor_has_are_not_known(sizes: tuple[int, ...]) -> None:
    nodes = {"y": node("aten::neg", sizes=sizes)}
    launch = KERNEL._replace(listed=("y",), results=("y",))

    assert GraphWork(CompiledGraph("k", nodes=nodes, launches=(launch,))).of(0, None).flops == (
        None,
    )


def many_products(count: int) -> CompiledGraph:
    """Return a graph without lists: products, each with a kernel that reduces its result."""
    nodes, launches = {}, []
    for at in range(count):
        nodes[f"mm{at}"] = node("aten::mm", f"sum{at - 1}" if at else "x")
        nodes[f"sum{at}"] = node("aten::sum", f"mm{at}", sizes=(1,))
        launches.append(CodeLaunch("aten::mm", None, (f"buf{2 * at}",)))
        launches.append(CodeLaunch(f"cpp_fused_sum_{at}", None, (f"buf{2 * at + 1}",)))
    buffers = {f"buf{at}": name for at, name in enumerate(nodes)}
    return CompiledGraph("k", nodes=nodes, inputs=X, launches=tuple(launches), buffers=buffers)


class CountedNodes(dict[str, CodeNode]):
    """Counts how often nodes are looked through one after another."""

    def __init__(self, nodes: Mapping[str, CodeNode]) -> None:
        super().__init__(nodes)
        self.walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()

    def items(self) -> Any:
        self.walks += 1
        return super().items()


@pytest.mark.parametrize("held", [True, False], ids=["buffers", "no buffers"])
def test_the_work_of_a_graph_grows_as_its_launches(*, held: bool) -> None:
    def counts(number: int) -> tuple[int, int]:
        graph = many_products(number)
        nodes = CountedNodes(graph.nodes)
        graph = replace(graph, nodes=nodes, buffers=graph.buffers if held else {})
        return calls_of(lambda: GraphWork(graph)), nodes.walks

    (few, walks), (many, same_walks) = counts(50), counts(500)

    assert many < 10.5 * few
    assert walks == same_walks
