"""Every op in backward has the layer, the line and the forward op that an oracle finds as well.

Once in the process itself, and once in what nsys exports of it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pyprof2.markers import DOMAIN, Marker, parse_marker
from tests.nsys_runs import nsys_profile
from tests.nvtx.oracle import Expected, Oracle, disagreements, knows_op
from tests.nvtx.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.nvtx.recorder import Range, Recorder

ROOT = Path(__file__).resolve().parents[2]

CANNOT_TELL = {
    "torch::autograd::AccumulateGrad",  # adds up a gradient, whosever it is
    "torch::autograd::CopySlices",  # a write into a view
    "torch::jit::(anonymous namespace)::DifferentiableGraphBackward",  # many ops at once
    "BackwardHookFunctionBackward",  # autograd functions: torch's own and the scenario's
    "CheckpointFunctionBackward",
    "ScaledExpBackward",
}
"""Nodes whose names do not tell the forward op; the layer is checked for them as well."""


class Op(NamedTuple):
    """A range of an op, and what the oracle said when it was pushed."""

    process_thread: int
    marker: Marker
    payload: int
    expected: Expected | None


def wrong(ops: Iterable[Op]) -> list[str]:
    """Return what the markers say that is not so."""
    return [
        problem
        for op in ops
        if op.expected is not None and not op.marker.recompute
        for problem in disagreements(op.marker, op.expected)
    ]


def unpaired(ops: Iterable[Op]) -> list[str]:
    """Return ops in backward whose payload does not lead to the forward op that they name.

    The forward op is the one that started last with the same payload.
    """
    forward: dict[int, Marker] = {}
    problems = []
    for op in ops:
        marker = op.marker
        if marker.direction == "forward" and op.payload >= 0:
            forward[op.payload] = marker
        if marker.direction == "backward" and op.payload >= 0:
            found = forward.get(op.payload)
            if marker.forward is not None and (found is None or found.op != marker.forward):
                problems.append(f"{marker.op}: {marker.forward}, not {found and found.op}")
            if found is not None and (found.layer, found.source) != (marker.layer, marker.source):
                problems.append(f"{marker.op}: {marker.layer}, not {found.layer}")
    return problems


def nodes_that_tell_nothing(ops: Iterable[Op]) -> Counter[str]:
    """Count the ops whose forward op the oracle does not know, by node."""
    return Counter(op.expected.node for op in ops if op.expected and not knows_op(op.expected))


@pytest.fixture
def ops_of_this_process(recorder: Recorder, request: pytest.FixtureRequest) -> list[Op]:
    """Run a scenario and return its ops in the order in which they ran."""
    ops: list[Op] = []
    oracle = Oracle()

    def watch(pushed: Range) -> None:
        marker = pushed.marker
        if marker is not None and marker.kind == "op":
            ops.append(Op(pushed.thread, marker, pushed.payload, oracle.expect()))

    recorder.watch = watch
    with oracle.watching():
        SCENARIOS[request.param]()
    return ops


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:.*torch.jit")
@pytest.mark.parametrize("ops_of_this_process", SCENARIOS, indirect=True)
def test_backward_ops_have_the_layer_and_forward_op_of_their_node(
    ops_of_this_process: list[Op],
) -> None:
    assert sum(op.expected is not None for op in ops_of_this_process) > 20
    assert wrong(ops_of_this_process) == []
    assert unpaired(ops_of_this_process) == []
    assert set(nodes_that_tell_nothing(ops_of_this_process)) <= CANNOT_TELL


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[Op]:
    """Run all scenarios under nsys and return the ops from its export, in order by thread."""
    folder = tmp_path_factory.mktemp("nsys")
    script = Path(__file__).with_name("record_scenarios.py")
    program: list[str | Path] = [sys.executable, script, folder / "log"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    export = nsys_profile(program, folder / "out", env=environment)
    return list(_with_expectations(_exported_ranges(export), folder / "log"))


def _exported_ranges(path: Path) -> dict[int, list[tuple[str, int]]]:
    """Return (text, payload) of the ranges in our domain by thread, in order."""
    query = """
        SELECT n.globalTid % 0x1000000, coalesce(s.value, n.text), n.int64Value
          FROM NVTX_EVENTS AS n LEFT JOIN StringIds AS s ON s.id = n.textId
         WHERE n.eventType = 59 AND n.domainId =
               (SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND text = ?)
         ORDER BY n.start, n.end DESC
    """
    ranges = defaultdict(list)
    connection = sqlite3.connect(path)
    for thread, text, payload in connection.execute(query, [DOMAIN]):
        ranges[thread].append((text, payload))
    connection.close()
    return ranges


def _with_expectations(ranges: dict[int, list[tuple[str, int]]], log: Path) -> list[Op]:
    """Return the ops of an export with what the log says of each; they must be the same ops."""
    entries: list[Any] = [json.loads(line) for line in log.read_text().splitlines()]
    marked = {
        thread: [
            (marker, payload) for text, payload in texts if _is_op(marker := parse_marker(text))
        ]
        for thread, texts in ranges.items()
    }
    ops = []
    for thread, text, payload, expected in entries:
        marker, recorded_payload = marked[thread].pop(0)
        assert marker is not None
        assert (marker, recorded_payload) == (parse_marker(text), payload)
        ops.append(Op(thread, marker, payload, Expected(*expected) if expected else None))
    assert not any(marked.values())
    return ops


def _is_op(marker: Marker | None) -> bool:
    return marker is not None and marker.kind == "op"


@pytest.mark.nsys
def test_an_export_says_what_the_oracle_says(exported: list[Op]) -> None:
    assert sum(op.expected is not None for op in exported) > 2000
    assert wrong(exported) == []
    assert unpaired(exported) == []
    assert set(nodes_that_tell_nothing(exported)) <= CANNOT_TELL
