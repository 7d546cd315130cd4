"""Notes of compiled graphs: what one node says of another."""

from __future__ import annotations

from pyprof2.parsers.compile_notes import read_notes
from tests.compiled_trace import encoded


def test_the_line_of_one_of_several_results_is_that_of_the_calls_that_they_are_of() -> None:
    """As in torch 2.6, whose call that keeps the state of random numbers has no line."""
    frames = [["train.py", 7, "forward", "y = attend(q)"]]
    nodes = [
        {"name": "saved", "kind": "call_function", "target": "run_and_save_rng_state"},
        {"name": "state", "kind": "call_function", "target": "getitem", "inputs": ["saved"]},
        {"name": "both", "kind": "call_function", "target": "getitem", "inputs": ["saved"]},
        {
            "name": "y", "kind": "call_function", "target": "getitem", "inputs": ["both"],
            "original": "aten.attention.default", "frames": frames, "is_backward": False,
        },
        {"name": "other", "kind": "call_function", "target": "aten.mm.default", "inputs": ["y"]},
    ]  # fmt: skip

    found = read_notes(encoded([{"key": "k", "nodes": nodes}]), lambda path, _root, _last: path)

    assert found is not None
    (graph,) = found
    assert {name: node.lines for name, node in graph.nodes.items()} == {
        "saved": ("train.py:7",), "state": (), "both": ("train.py:7",), "y": ("train.py:7",),
        "other": (),
    }  # fmt: skip
    assert graph.nodes["saved"].original == "aten::attention"
    assert graph.nodes["saved"].is_backward is False


def test_the_buffer_of_several_results_holds_the_call_that_they_lead_to() -> None:
    """As attention in torch 2.9, of what `unbind` makes of one product."""
    nodes = [
        {"name": "unbind", "kind": "call_function", "target": "aten.unbind.int"},
        {"name": "q", "kind": "call_function", "target": "getitem", "inputs": ["unbind"]},
        {"name": "y", "kind": "call_function", "target": "aten.attend.default", "inputs": ["q"]},
    ]
    buffers = [
        {"name": "buf0", "origins": ["y", "unbind"]},
        {"name": "buf1", "origins": ["unbind"]},
    ]

    found = read_notes(
        encoded([{"key": "k", "nodes": nodes, "buffers": buffers}]), lambda path, _root, _last: path
    )

    assert found is not None
    assert found[0].buffers == {"buf0": "y", "buf1": "unbind"}
