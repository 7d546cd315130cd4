"""Find the launches of a graph's code among the op calls of a call of it, or say why not.

All launches must be there, by name and in the order of the code, and what is left over may only
prepare inputs: with anything else allowed, the code of another graph fits now and then.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.recording import PRODUCT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyprof2.recording import CodeLaunch, CompiledGraph

_PREPARES: Final = frozenset({
    "aten::_foreach_copy_", "aten::_to_copy", "aten::alias", "aten::as_strided", "aten::clone",
    "aten::copy_", "aten::detach", "aten::empty", "aten::empty_like", "aten::empty_strided",
    "aten::fill_", "aten::resize_", "aten::set_", "aten::to", "aten::view", "aten::zero_",
    "aten::zeros", "detach",
})  # fmt: skip
"""Op calls that a graph may make beside its code: they copy inputs, or make room."""

NO_GRAPH: Final = "the recording has no notes of the graph that is called"
SEVERAL: Final = "several graphs that were compiled have the key of the one that is called"


class Joined(NamedTuple):
    """The launches that the op calls of a call of a graph are.

    Attributes:
        launches: of each op call its place in the code, -1: it is none; empty: not known.
        note: how many were found, or why none is known.
    """

    launches: tuple[int, ...]
    note: str


def choose_graph(
    graphs: Sequence[CompiledGraph], compile_id: str | None, *, is_backward: bool
) -> CompiledGraph | str:
    """Return the graph that a call is of, or why that is not known.

    Args:
        graphs: those of its key.
        compile_id: that of the region around the call.
        is_backward: whether the call is inside of backward.
    """
    if compile_id is not None and len([each for each in graphs if each.compile_id]) > 1:
        graphs = [
            graph
            for graph in graphs
            if graph.compile_id == compile_id and graph.is_backward in (None, is_backward)
        ]
        if not graphs:
            return NO_GRAPH
    if not graphs:
        return NO_GRAPH
    first, *others = graphs
    same = all((g.launches, g.nodes) == (first.launches, first.nodes) for g in others)
    return first if same else SEVERAL


def join(graph: CompiledGraph, made: Sequence[str]) -> Joined:
    """Find the launches of a graph's code among the op calls that a call of it made.

    Args:
        graph: the graph.
        made: the names of the op calls, in their order.
    """
    launches = graph.launches
    if graph.lacks is not None or launches is None:
        return Joined((), graph.lacks or NO_GRAPH)
    found, at = [], 0
    for name in made:
        if at < len(launches) and launches[at].name == name:
            found.append(at)
            at += 1
        elif name in _PREPARES:
            found.append(-1)
        else:
            awaited = launches[at].name if at < len(launches) else "nothing more"
            return Joined((), f"not the code that was noted: {name} where that has {awaited}")
    if at < len(launches):
        return Joined((), f"not the code that was noted: it lacks {launches[at].name}")
    return Joined(tuple(found), f"{at:,} of {at:,} names of the compiled graph's code")


def worked_on(graph: CompiledGraph) -> list[tuple[tuple[str, ...], str]]:
    """Return the nodes whose work each launch does, and the evidence, `computed` or `listed`.

    The compiler lists more nodes than a kernel runs: also those whose results it only reads. What
    it runs are the nodes between what it writes and what was written before. Views are no work.
    """
    launches = graph.launches or ()
    called_nodes = _called_nodes(graph, launches)
    called = {name for name in called_nodes if name is not None}
    unknown = {
        launch.name
        for launch, node in zip(launches, called_nodes, strict=True)
        if launch.listed is None and node is None and not is_written(launch)
    }
    # No other launch does what one of these is.
    written = {name for name, node in graph.nodes.items() if node.op in unknown}
    place = {name: at for at, name in enumerate(graph.nodes)}
    copied = {
        node.inputs[0]: name
        for name, node in graph.nodes.items()
        if node.op == "aten::copy_" and node.inputs
    }
    found = []
    for launch, called_node in zip(launches, called_nodes, strict=True):
        listed = tuple(name for name in launch.listed or () if name in graph.nodes)
        if called_node is not None:
            listed = (called_node,)
        elif is_written(launch):
            # A product that it prepares the inputs of is the work of another launch.
            listed = tuple(name for name in listed if name not in called) or listed
        work = tuple(name for name in listed if not graph.nodes[name].takes_view)
        nodes, evidence = work or listed, "listed"
        results = _results(graph, launch, called_node)
        if launch.listed is None and is_written(launch):
            # A buffer that is given to the graph holds no node: running means are copied to.
            held = (graph.buffers.get(each) or copied.get(each) for each in launch.writes or ())
            results = [name for name in held if name is not None]
        if launch.listed is None and is_written(launch) and results:
            # Older versions of the compiler list nothing for kernels in C++.
            own = tuple(sorted(_computed(graph, results, written), key=place.__getitem__))
            nodes = tuple(name for name in own if not graph.nodes[name].takes_view) or own
            evidence = "computed"
        elif len(listed) > 1 and results:
            computed = _computed(graph, results, written)
            # It puts together parts that were written before.
            computed = computed or set(results)
            kept = tuple(name for name in nodes if name in computed)
            if kept:
                nodes, evidence = kept, "computed"
        elif len(listed) == 1:
            evidence = "computed"
        written.update(results)
        product = f"{called_node}{PRODUCT}"
        found.append(((product, *nodes) if product in graph.nodes else nodes, evidence))
    return found


def _called_nodes(graph: CompiledGraph, launches: Sequence[CodeLaunch]) -> list[str | None]:
    """Return of each launch the node that is the op which it calls; None: none, or unknown."""
    calls = Counter(launch.name for launch in launches)
    of_op: dict[str, list[str]] = {}
    for name, node in graph.nodes.items():
        of_op.setdefault(node.op, []).append(name)
    # Which of several is which, their order does not say.
    alone = {op: names[0] for op, names in of_op.items() if len(names) == calls[op] == 1}
    return [_called_node(graph, launch, alone) for launch in launches]


def _called_node(graph: CompiledGraph, launch: CodeLaunch, alone: Mapping[str, str]) -> str | None:
    if is_written(launch):
        return None
    if launch.listed is None:
        # Each of several results has a buffer, and so has the call.
        held = {graph.buffers.get(name, "") for name in launch.writes or ()} & graph.nodes.keys()
        own = _calls_op(graph, held, launch.name)
        return own[0] if len(own) == 1 else alone.get(launch.name)
    listed = [name for name in launch.listed or () if name in graph.nodes]
    same = _calls_op(graph, listed, launch.name)
    if len(same) == 1:
        return same[0]
    return listed[0] if len(listed) == 1 else None


def _calls_op(graph: CompiledGraph, names: Collection[str], op: str) -> list[str]:
    """Return which of some nodes are calls of an op."""
    same = [name for name in names if graph.nodes[name].op == op]
    # A call that keeps the state of random numbers is a node around the op.
    for around in ("with_rng_state", "save_rng_state"):
        same = same or [name for name in names if graph.nodes[name].op.endswith(around)]
    return same


def _results(graph: CompiledGraph, launch: CodeLaunch, called: str | None) -> list[str]:
    """Return the nodes whose results a launch writes; empty: not known, or not of all."""
    if called is not None:
        return [called]
    held = [graph.buffers.get(name) for name in launch.writes or ()]
    found = [name for name in held if name is not None]
    if found and len(found) == len(held):
        return found
    known = [name for name in launch.results if name in graph.nodes]
    if len(known) < len(launch.results):
        # A part of a sum has no node: it is of what no other one that is listed takes.
        listed = [name for name in launch.listed or () if name in graph.nodes]
        taken = {each for name in listed for each in graph.nodes[name].inputs}
        known += [name for name in listed if name not in taken and name not in known]
    return known


def _computed(graph: CompiledGraph, results: Sequence[str], written: set[str]) -> set[str]:
    """Return the nodes that lead to some results from what was written before."""
    found: set[str] = set()
    todo = list(results)
    while todo:
        name = todo.pop()
        if name in found or name in written or name not in graph.nodes:
            continue
        found.add(name)
        todo.extend(graph.nodes[name].inputs)
    return found


def is_written(launch: CodeLaunch) -> bool:
    """Return whether a launch is a kernel that the compiler wrote, not an op that it calls."""
    return "::" not in launch.name
