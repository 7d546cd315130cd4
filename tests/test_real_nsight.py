"""A real nsys records the examples on the CPU; what pyprof2 reads of it is what PyTorch ran.

The oracles are a dispatch mode that counts ops, and PyTorch's own counter of FLOPs, in processes
without our annotation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from pyprof2.api.run import load
from tests.nsys_runs import nsys_profile

if TYPE_CHECKING:
    from pyprof2.api.run import Run

pytestmark = [pytest.mark.nsys, pytest.mark.torch, pytest.mark.slow, pytest.mark.minutes]

ROOT: Final = Path(__file__).resolve().parent.parent
EXAMPLES: Final = sorted((ROOT / "examples").glob("*.py"))
STEPS: Final = 3

RECORD: Final = """
import runpy, sys
import pyprof2
pyprof2.init()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
COUNT: Final = """
import collections, contextlib, json, runpy, sys
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

class Count(TorchDispatchMode):
    ops = collections.Counter()
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace != "profiler":
            self.ops[str(func.overloadpacket).replace(".", "::")] += 1
        return func(*args, **(kwargs or {}))

sys.argv = sys.argv[1:]
with contextlib.redirect_stdout(sys.stderr), FlopCounterMode(display=False) as flops, Count():
    runpy.run_path(sys.argv[0], run_name="__main__")
total = {str(op).replace(".", "::"): n for op, n in flops.get_flop_counts()["Global"].items()}
print(json.dumps({"ops": Count.ops, "flops": total}))
"""
EXACT: Final = (
    "aten::addmm", "aten::mm", "aten::bmm", "aten::convolution", "aten::convolution_backward",
)  # fmt: skip
"""Ops whose FLOPs PyTorch counts as we do; it takes causal attention for full attention."""


class Recorded(NamedTuple):
    """An example as nsys recorded it, and what PyTorch ran."""

    export: Path
    run: Run
    ops: dict[str, int]
    flops: dict[str, int]


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Record an example with nsys, and count its ops and FLOPs without."""
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("nsys") / request.param.stem
    program = [str(request.param), "--steps", str(STEPS)]
    export = nsys_profile([sys.executable, "-c", RECORD, *program], out)
    counted: Any = json.loads(run([sys.executable, "-c", COUNT, *program]))
    return Recorded(export, load(export), counted["ops"], counted["flops"])


def run(command: list[str]) -> str:
    """Run a program in the checkout and return what it printed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_op_that_ran_is_in_the_recording(recorded: Recorded) -> None:
    found = recorded.run.ops["op"].astype(str).value_counts().to_dict()

    # Modes get more detaches than the program calls: test_both_profilers counts those that it does.
    assert 0 < found.pop("aten::detach") < recorded.ops.pop("aten::detach")
    assert found == recorded.ops


def test_the_flops_are_those_that_pytorch_counts(recorded: Recorded) -> None:
    ops = recorded.run.ops
    found = ops.groupby(ops["op"].astype(str))["flops"].sum().astype(int).to_dict()

    for name in EXACT:
        assert found.get(name, 0) == recorded.flops.get(name, 0), name


def test_the_steps_of_the_loop_are_the_steps(recorded: Recorded) -> None:
    ops = recorded.run.ops
    steps = ops[ops["direction"].isin(["forward", "backward"]) & ops["sequence_nr"].notna()]["step"]

    assert recorded.run.summary["steps"] == list(range(STEPS))
    assert sorted(steps.dropna().unique()) == list(range(STEPS))
    assert steps.value_counts().nunique() == 1


def test_backward_ops_have_the_layer_and_line_of_their_forward_op(recorded: Recorded) -> None:
    ops = recorded.run.ops.set_index("op_id")
    paired = ops[ops["forward_op_id"].notna()]
    forward = ops.loc[paired["forward_op_id"]]

    assert len(paired) > 10 * STEPS
    assert set(paired["direction"]) == {"backward"}
    assert set(forward["direction"]) == {"forward"}
    for column in ("layer", "source", "sequence_nr"):
        mine, borrowed = (
            frame[column].astype(object).fillna("-").tolist() for frame in (paired, forward)
        )
        assert mine == borrowed
    lines = paired["source"].astype(str)
    assert lines.str.startswith(str(ROOT / "examples")).all()


def test_every_direction_is_there(recorded: Recorded) -> None:
    assert {"forward", "backward", "optimizer"} <= set(recorded.run.ops["direction"])


def test_the_report_gives_what_its_export_gives(recorded: Recorded) -> None:
    report = load(recorded.export.with_suffix(".nsys-rep"))

    assert report.ops.equals(recorded.run.ops)
    assert report.ranges.equals(recorded.run.ranges)


def test_nothing_is_wrong_with_the_recording(recorded: Recorded) -> None:
    found = recorded.run.check()

    assert found[found["severity"] == "problem"].empty
