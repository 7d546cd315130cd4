"""Training on two processes does what it does without, and collectives say who talks to whom."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyprof2 import load

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

# Layers of 8 x 8 and 8 x 4 with biases, in float32.
BYTES = [4 * (8 * 4 + 4), 4 * (8 * 8 + 8)]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the training and return what it found, by kind of parallelism."""
    script = Path(__file__).with_name("run_distributed.py")
    path = tmp_path_factory.mktemp("distributed") / "findings"
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(path)],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    return found | {"trace": f"{path}.json"}


def test_distributed_data_parallel_is_marked_and_unharmed(findings: dict[str, Any]) -> None:
    found = findings["ddp"]

    assert found["same"]
    assert found["balanced"]
    assert found["process"] == [[0, 2]]
    # All gradients are in one bucket.
    assert ["c10d::allreduce_", sum(BYTES), "0", [0, 1]] in found["collectives"]
    assert "c10d::allreduce_ backward" in found["directions"]
    assert found["layers of backward"] == ["module.0", "module.2"]
    assert found["layers of gradients"] == ["module.0", "module.2"]


def test_fully_sharded_data_parallel_is_marked_and_unharmed(findings: dict[str, Any]) -> None:
    found = findings["fsdp"]

    assert found["same"]
    assert found["balanced"]
    gathers = [["c10d::_allgather_base_", size, "0", [0, 1]] for size in BYTES]
    scatters = [["c10d::_reduce_scatter_base_", size, "0", [0, 1]] for size in BYTES]
    assert found["collectives"] == gathers + scatters
    assert found["layers of backward"] == ["0", "2"]
    assert found["layers of gradients"] == ["0", "2"]


def test_tensor_parallel_modules_are_marked_and_unharmed(findings: dict[str, Any]) -> None:
    found = findings["tensor"]

    assert found["same"]
    assert found["balanced"]
    # The parts of a DTensor that this process has are marked: the halves'
    # outputs, 2 x 4 in float32, are added up where the layer ends.
    assert found["products"] == [
        "aten::addmm 0 forward", "aten::addmm 2 forward",
        "aten::mm 0 backward", "aten::mm 2 backward",
    ]  # fmt: skip
    assert found["sums"] == [["2", "forward", 2 * 4 * 4, "0", [0, 1]]]
    assert found["layers of gradients"] == ["0", "2"]


def test_backward_of_sharded_modules_has_their_layers_and_lines(findings: dict[str, Any]) -> None:
    ops = load(findings["trace"]).ops
    in_backward = ops[ops["direction"] == "backward"]

    # The gradient of the sum belongs to no layer.
    of_sum = in_backward["op"].str.contains("Sum|expand|as_strided")
    assert set(in_backward[~of_sum]["layer"]) == {"0", "1", "2"}
    files = {source.rpartition(":")[0].rpartition("/")[2] for source in in_backward["source"]}
    assert files == {"run_distributed.py"}
    scatters = in_backward[in_backward["op"] == "c10d::_reduce_scatter_base_"]
    assert sorted(scatters["layer"]) == ["0"] * 3 + ["2"] * 3  # in each of three steps
    gathers = in_backward[in_backward["op"] == "c10d::_allgather_base_"]
    assert set(gathers["layer"]) <= {"0", "2"}
    assert len(gathers) > 0
