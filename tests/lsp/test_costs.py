"""What lines and functions cost is what `run.lines()` says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import pyprof2
from pyprof2.lsp.analysis import analyse
from pyprof2.lsp.costs import VALUES, Node, costs_of, total, totals_of_lines
from tests.kineto_events import memory, trace
from tests.lsp.workspaces import CODE, STEP_NS, STEPS, events, workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIME, CALLS = VALUES.index("time_ns"), VALUES.index("calls")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace(tmp_path_factory.mktemp("work") / "ws")


def test_the_times_are_those_of_the_kernels_by_hand(script: Path) -> None:
    costs = costs_of(script.parent / "net.pyprof2")
    file = costs["files"][str(script)]

    times = {line + 1: (v[TIME] or 0) / STEPS for line, v in totals_of_lines(file["nodes"])}
    assert times == {7: 700_000, 8: 100_000, 13: 800_000, 16: 2000}
    assert (costs["total_ns"], costs["steps"]) == (STEPS * STEP_NS, STEPS)
    assert (costs["ledger"], costs["root"]) == ("device", str(script.parent))
    assert costs["leading"] == [(32, 1.0)]
    assert file["memory"] == {"6": 3_000_000}
    assert costs["memory_of"] == "cuda:0"


CPU, FIRST, SECOND = (0, -1), (1, 0), (1, 1)
"""Kind and number of a device, as Kineto writes them: the CPU has none."""


@pytest.mark.parametrize(
    ("blocks", "memory_of", "held"),
    [
        pytest.param([(CPU, 3000)], "cpu", 3000, id="no device but the CPU"),
        pytest.param([(CPU, 9000), (FIRST, 3000)], "cuda:0", 3000, id="a GPU, and more elsewhere"),
        pytest.param([(FIRST, 3000), (SECOND, 4000)], "cuda:1", 4000, id="two GPUs"),
    ],
)
def test_memory_is_of_the_gpu_with_most_else_of_the_cpu(
    blocks: list[tuple[tuple[int, int], int]], memory_of: str, held: int, script: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    allocated = [
        memory(
            35 + at, **{"Addr": 4096 + at, "Device Type": kind, "Device Id": number, "Bytes": size,
            "Total Allocated": size, "Total Reserved": 0},
        )
        for at, ((kind, number), size) in enumerate(blocks)
    ]  # fmt: skip
    recording = trace(tmp_path / "net.json", *events(str(script), str(script.parent)), *allocated)

    found = costs_of(recording)

    assert (found["memory_of"], found["peak_bytes"]) == (memory_of, held)
    assert found["files"][str(script)]["memory"] == {"6": held}


def test_a_function_costs_what_its_lines_and_those_below_do_once(script: Path) -> None:
    file = costs_of(script.parent / "net.pyprof2")["files"][str(script)]

    found = analyse(CODE, "python", file, CODE, trusted=True)

    times = {
        f["name"]: f["values"] and (f["values"][TIME] or 0) / STEPS for f in found["functions"]
    }
    assert times == {"Block": 800_000, "Block.forward": 800_000, "main": 802_000}
    assert {f["name"]: f["memory"] for f in found["functions"]}["Block"] == 3_000_000


def test_recursion_counts_once() -> None:
    def node(line: int, parent: int, time: int) -> Node:
        values: list[int | None] = [time, *[1] * (len(VALUES) - 1)]
        return Node(line=line, parent=parent, module=None, values=values)

    # 5 calls 7, which calls 5 again, which calls 7; beside it 7 is called from elsewhere.
    nodes = [node(5, -1, 100), node(7, 0, 90), node(5, 1, 40), node(7, 2, 30), node(7, -1, 8)]

    times = {line: values[TIME] for line, values in totals_of_lines(nodes)}
    assert times == {5: 100, 7: 98}
    assert (total(nodes, 5, 7) or [])[TIME] == 108
    assert (total(nodes, 7, 9) or [])[TIME] == 98
    assert total(nodes, 8, 9) is None


@pytest.mark.kept("kineto/tl_resnet_ckpt_mi300.json.gz")
@pytest.mark.parametrize(
    "name", ["kineto/tl_resnet_ckpt_mi300.json.gz", "kineto/tl_qwen_mi300.json.gz"]
)
def test_of_real_traces_lines_cost_what_is_said_overall(
    shared_trace: Callable[[str], Path], name: str
) -> None:
    path = shared_trace(name)
    table = pyprof2.load(path).lines()
    lines = table[(table["kind"] == "line") & table["overall_ns"].notna()]
    wanted = dict(zip(lines["name"], lines["overall_ns"], strict=True))
    calls = dict(zip(lines["name"], lines["overall_calls"], strict=True))

    costs = costs_of(path)

    found = {
        f"{place}:{line + 1}": values
        for place, file in costs["files"].items()
        for line, values in totals_of_lines(file["nodes"])
    }
    assert found
    assert {n: v[TIME] for n, v in found.items()} == {name: wanted[name] for name in found}
    assert {n: v[CALLS] for n, v in found.items()} == {name: calls[name] for name in found}
