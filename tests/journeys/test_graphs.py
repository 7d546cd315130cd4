"""Decode runs as replays of a graph: which op, which layer and which line takes the time?"""

from __future__ import annotations

import gzip
import importlib.util
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.kineto_events import annotation, complete, frame, kernel, launch, op, trace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.journeys.conftest import Walk
    from tests.kineto_events import Event

LAYERS: Final = 4
WORK: Final = (
    ("aten::mm", "Cijk_Ailk_Bljk_gemm", 9), ("aten::silu", "silu_kernel", 2),
    ("vllm::unified_attention", "paged_attention_kernel", 5),
)  # fmt: skip
"""The ops of a layer, the kernel of each, and how long it runs."""


def captured_graph() -> list[Event]:
    """Return what is recorded while a server captures its graph for batches of 32."""
    events: list[Event] = [
        annotation("capture_32_FULL", 0, 300),
        frame("server/runner.py(310): capture", 1, 290),
        launch(5, 1, name="hipStreamBeginCapture"),
    ]
    for layer in range(LAYERS):
        at = 10 + 60 * layer
        events.append(frame(f"nn.Module: Block_{layer}", at, 50))
        for place, (name, of_kernel, _) in enumerate(WORK):
            ts = at + 2 + 15 * place
            args: dict[str, Any] = {
                "correlation": 100 * layer + place + 10, "kernel": of_kernel,
                "grid": [8, 1, 1], "block": [256, 1, 1],
            }  # fmt: skip
            events += [
                frame(f"model/block.py({20 + place}): {name[6:]}", ts, 12),
                op(name, ts + 1, 10, dims=[[32, 64], [64, 64]], types=["float", "float"]),
                complete("cuda_runtime", "hipLaunchKernel", ts + 3, 1, args=args),
            ]
    return [*events, launch(280, 2, name="hipStreamEndCapture")]


def decode_step(number: int) -> list[Event]:
    """Return a step of decode, which is one launch."""
    at = 1000 + 500 * number
    events: list[Event] = [
        annotation(f"execute_30_context_0_generation_30 {number}", at, 100),
        frame("server/runner.py(333): replay", at + 1, 60),
        launch(at + 5, 7000 + number, name="hipGraphLaunch", dur=20),
    ]
    begin = at + 40.0
    for _ in range(LAYERS):
        for _, of_kernel, dur in WORK:
            events.append(kernel(begin, dur, 7000 + number, name=f"{of_kernel}.kd"))
            begin += dur + 0.5
    return events


@pytest.mark.slow
def test_kernels_of_a_decode_graph_have_op_layer_and_line(walk: Walk) -> None:
    (walk.folder / "captures").mkdir()
    trace(walk.folder / "captures" / "bs_32_rank0.json", *captured_graph())
    trace(walk.folder / "decode.json", *(decode_step(number) for number in range(3)))

    # Alone, the recording does not know what its kernels are, and says what would help.
    walk.run("pyprof2", "parse", "decode.json", "-o", "alone.pyprof2")
    said = walk.text("check", "alone.pyprof2")
    assert "--capture" in said
    assert "graph of 12 nodes" in said

    walk.run("pyprof2", "parse", "decode.json", "--capture", "captures")

    assert "linked 100.0 % (100.0 % through graphs: names and order)" in " ".join(
        walk.text("prof", "decode.pyprof2").split()
    )
    ops = {row["op"]: row for row in walk.rows("prof", "decode.pyprof2", "--by", "op")}
    calls = 3 * LAYERS
    assert {name: int(row["time_ns"]) for name, row in ops.items()} == {
        name: 1000 * dur * calls for name, _, dur in WORK
    }
    assert {int(row["op_calls"]) for row in ops.values()} == {calls}
    # A multiply-add is 2 FLOPs; batches of 30 are padded to the captured 32.
    assert int(ops["aten::mm"]["flops"]) == calls * 2 * 32 * 64 * 64
    assert ops["vllm::unified_attention"]["flops"] == ""

    layers = {row["layer"] for row in walk.rows("prof", "decode.pyprof2", "--by", "layer")}
    assert layers == {f"Block_{layer}" for layer in range(LAYERS)}

    lines = {
        row["name"]: int(row["time_ns"])
        for row in walk.rows("lines", "decode.pyprof2")
        if row["kind"] == "line" and row["time_ns"]
    }
    assert lines["model/block.py:20"] == 1000 * 9 * calls
    assert lines.get("server/runner.py:333", 0) == 0

    causes = {row["cause"] for row in walk.rows("idle", "decode.pyprof2")}
    assert "graph_gap" in causes
    assert "by names and order" in walk.text("check", "decode.pyprof2")
    assert "capture 1, in bs_32_rank0.json" in walk.text("explain", "decode.pyprof2", "kernel:1")


SERVER: Final = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.head(x).relu()

# There is no GPU: what the class calls in C++ does nothing.
base = torch.cuda.CUDAGraph.__mro__[1]
names = ("capture_begin", "capture_end", "capture_end_pre", "capture_end_post", "instantiate")
for name in names:
    setattr(base, name, lambda *args, **kwargs: None)
if torch.backends.cuda.is_built():
    graph = torch.cuda.CUDAGraph.__new__(torch.cuda.CUDAGraph)
else:  # its own constructor refuses
    graph = object.__new__(torch.cuda.CUDAGraph)
    graph._tracker = None

net, batch = Net(), torch.ones(2, 8)
for _ in range(3):  # the warm-up
    net(batch)
graph.capture_begin()
net(batch)
graph.capture_end()
import pyprof2
for _ in range(3):
    with pyprof2.annotate("decode"):
        batch.add_(1)
    pyprof2.step()
"""
LAUNCHED: Final = {"aten::addmm": "Cijk_gemm", "aten::clamp_min": "relu_kernel"}


def with_a_device(path: Path) -> None:
    """Put into a recording what a GPU would have added: launches, captured ones or replays."""
    with gzip.open(path) as file:
        document = json.load(file)
    events = document["traceEvents"]
    ops = sorted(
        (each for each in events if each.get("cat") == "cpu_op"), key=lambda each: each["ts"]
    )
    made: list[Event] = []
    if path.parent.name == "capture_traces":
        place = {name: ops[0][name] for name in ("pid", "tid")}
        end = max(each["ts"] + each["dur"] for each in ops)
        for number, (name, ts) in enumerate((("Begin", ops[0]["ts"] - 1), ("End", end + 1))):
            made.append(launch(ts, number + 1, name=f"hipStream{name}Capture", dur=0.1) | place)
        for number, each in enumerate(each for each in ops if each["name"] in LAUNCHED):
            args = {"correlation": number + 10, "kernel": LAUNCHED[each["name"]]}
            late = each["ts"] + 0.99 * each["dur"]  # after the ops inside of it
            made.append(complete("cuda_runtime", "hipLaunchKernel", late, 0.001, args=args) | place)
    else:
        replays = [each for each in ops if each["name"] == "aten::add_"]
        for number, each in enumerate(replays):
            at, place = each["ts"] + each["dur"], {name: each[name] for name in ("pid", "tid")}
            made.append(launch(at, 100 + number, name="hipGraphLaunch", dur=1) | place)
            for start, name in enumerate(LAUNCHED.values()):
                made.append(kernel(at + 10 + 5 * start, 4 - start, 100 + number, name=name))
    document["traceEvents"] = [*events, *made]
    path.write_bytes(gzip.compress(json.dumps(document).encode()))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="capture needs torch")
def test_what_our_own_capture_keeps_of_graphs_explains_the_steps(walk: Walk) -> None:
    (walk.folder / "serve.py").write_text(SERVER)

    said = walk.run("pyprof2", "capture", "--kineto", "--steps", "1:2", "-o", "net", "serve.py")

    assert "captures of CUDA graphs in capture_traces" in said.stderr
    of_graph = walk.folder / "capture_traces" / "net-graph-1.json.gz"
    for path in (walk.folder / "net.json.gz", of_graph):
        with_a_device(path)
    walk.run("pyprof2", "parse", "net.json.gz")
    rows = walk.rows("prof", "net.pyprof2", "--by", "op,layer")
    assert [(row["op"], row["layer"], row["op_calls"], row["time_ns"]) for row in rows] == [
        ("aten::addmm", "Net_0.Linear_0", "2", "8000"), ("aten::clamp_min", "Net_0", "2", "6000"),
    ]  # fmt: skip
    lines = {row["name"] for row in walk.rows("lines", "net.pyprof2") if row["time_ns"] == "14000"}
    assert any(name.startswith("serve.py:") for name in lines)
