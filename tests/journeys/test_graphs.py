"""Decode runs as replays of a graph: which op, which layer and which line takes the time?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.kineto_events import annotation, complete, frame, kernel, launch, op, trace

if TYPE_CHECKING:
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
