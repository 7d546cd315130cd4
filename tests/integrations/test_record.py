"""`pyprof2.record` and `PYPROF2`: programs that record some of their own steps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

import pyprof2

pytest.importorskip("torch")

ROOT: Final = Path(__file__).resolve().parents[2]

NET: Final = """
import os, sys, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
sgd = torch.optim.SGD(net.parameters(), lr=0.1)

def step():
    sgd.zero_grad()
    loss = net(torch.randn(2, 8)).square().mean()
    loss.backward()
    sgd.step()
    return loss.item()
"""
MATMULS: Final = 2
"""Of the forward of one step: one for each layer."""


def run(
    folder: Path, script: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder."""
    (folder / "train.py").write_text(script)
    return subprocess.run(
        [sys.executable, *(arguments or ["train.py"])],
        cwd=folder, capture_output=True, text=True, check=False, timeout=240,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip


def forward_matmuls(store: Path) -> dict[int, int]:
    """Return how many matrix products of the forward there are in each step."""
    ops = pyprof2.load(store).ops
    found = ops[(ops["op"] == "aten::addmm") & (ops["direction"] == "forward")]
    assert found["step"].notna().all()
    return Counter(found["step"].astype(int).tolist())


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        pytest.param("(3, 6)", [3, 4, 5, 6], id="first and last"),
        pytest.param("0", [0], id="the first one"),
        pytest.param("range(2, 4)", [2, 3], id="a range"),
        pytest.param("(8, 20)", [8, 9], id="more than there are"),
    ],
)
def test_the_wanted_steps_are_recorded_and_shown(
    steps: str, wanted: list[int], tmp_path: Path
) -> None:
    loop = f"""
import pyprof2
with pyprof2.record(steps={steps}):
    for _ in range(10): step()
print("the end")
"""
    done = run(tmp_path, NET + loop)

    assert done.returncode == 0, done.stderr
    assert forward_matmuls(tmp_path / "train.pyprof2") == dict.fromkeys(wanted, MATMULS)
    first, last = wanted[0], wanted[-1]
    heading = done.stdout.replace("\n", " ")  # its lines break where it is as long as a screen
    assert (f"step {first} " if first == last else f"steps {first}-{last} ") in heading
    assert "aten::addmm" in done.stdout
    assert done.stdout.endswith("the end\n")
    assert "train.json.gz" in done.stderr


def test_a_recorded_training_computes_what_it_computes_alone(tmp_path: Path) -> None:
    loop = """
import pyprof2
with pyprof2.record(steps=(1, 3), out="here"):
    losses = [step() for _ in range(6)]
told = [[loss.hex() for loss in losses], [p.tolist() for p in net.parameters()]]
open("told", "w").write(repr(told))
"""
    told = []
    for value in ("0", "1"):
        assert run(tmp_path, NET + loop, PYPROF2=value).returncode == 0
        told.append((tmp_path / "told").read_text())

    assert told[0] == told[1]
    assert (tmp_path / "here.pyprof2").is_dir()


def test_without_steps_the_whole_block_is_recorded(tmp_path: Path) -> None:
    loop = """
import pyprof2
net.eval()
with torch.no_grad(), pyprof2.record():
    for _ in range(5): net(torch.randn(2, 8))
"""
    assert run(tmp_path, NET + loop).returncode == 0

    ops = pyprof2.load(tmp_path / "train.pyprof2").ops
    assert (ops["op"] == "aten::addmm").sum() == 5 * MATMULS


def test_a_program_that_says_where_its_steps_end_is_believed(tmp_path: Path) -> None:
    loop = """
import pyprof2
net.eval()
with torch.no_grad(), pyprof2.record(steps=(2, 3)):
    for _ in range(6):
        for _ in range(3): net(torch.randn(2, 8))
        pyprof2.step()
"""
    assert run(tmp_path, NET + loop).returncode == 0

    found = forward_matmuls(tmp_path / "train.pyprof2")
    assert found == {2: 3 * MATMULS, 3: 3 * MATMULS}


def test_optimizers_that_take_turns_make_one_step(tmp_path: Path) -> None:
    loop = """
import pyprof2
other = torch.nn.Linear(8, 4)
adam = torch.optim.Adam(other.parameters())
with pyprof2.record(steps=(2, 3)):
    for _ in range(6):
        step()
        adam.zero_grad()
        other(torch.randn(2, 8)).sum().backward()
        adam.step()
"""
    assert run(tmp_path, NET + loop).returncode == 0

    assert forward_matmuls(tmp_path / "train.pyprof2") == dict.fromkeys([2, 3], MATMULS + 1)


def test_what_was_recorded_is_kept_where_the_block_fails(tmp_path: Path) -> None:
    loop = """
import pyprof2
def train():
    with pyprof2.record(steps=(1, 9)):
        for _ in range(4): step()
        raise ValueError("of the program's own")
train()
"""
    done = run(tmp_path, NET + loop)

    assert done.returncode == 1
    assert forward_matmuls(tmp_path / "train.pyprof2") == dict.fromkeys([1, 2, 3], MATMULS)
    trace = done.stderr.partition("Traceback")[2]
    assert "ValueError: of the program's own" in trace
    assert str(ROOT / "pyprof2") not in trace


def test_steps_that_never_come_are_said(tmp_path: Path) -> None:
    loop = """
import pyprof2
with pyprof2.record(steps=(50, 60)): step()
"""
    done = run(tmp_path, NET + loop)

    assert done.returncode == 0
    assert "step 50 did not begin" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize("asked", ["by the program", "by the environment"])
def test_where_an_error_ends_it_before_the_first_step_only_the_error_is_said(
    asked: str, tmp_path: Path
) -> None:
    block = "with pyprof2.record(steps=(50, 60)):\n    " if asked == "by the program" else ""
    loop = f"import pyprof2\n{block}step(); raise ValueError('of its own')"
    variables = {"PYPROF2": "50:60"} if asked == "by the environment" else {}
    done = run(tmp_path, NET + loop, **variables)

    assert done.returncode == 1
    assert "ValueError: of its own" in done.stderr
    assert "did not begin" not in done.stderr


def test_a_profiler_of_the_programs_own_goes_on(tmp_path: Path) -> None:
    loop = """
import pyprof2
from torch.profiler import profile
with profile() as own, pyprof2.record(steps=(1, 2)):
    for _ in range(5): step()
print(sum(e.count for e in own.key_averages() if e.key == "aten::addmm"))
"""
    done = run(tmp_path, NET + loop)

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{5 * MATMULS}\n"
    assert "a profiler records this process already" in done.stderr


def test_nothing_that_exists_is_replaced(tmp_path: Path) -> None:
    loop = """
import pyprof2
with pyprof2.record(steps=1{}):
    for _ in range(3): step()
"""
    for name in ("train", "train-2"):
        assert run(tmp_path, NET + loop.format("")).returncode == 0
        assert (tmp_path / f"{name}.pyprof2").is_dir()
    kept = (tmp_path / "train.json.gz").read_bytes()

    refused = run(tmp_path, NET + loop.format(", out='train'"))

    assert refused.returncode == 1
    assert "train.json.gz: exists" in refused.stderr
    assert (tmp_path / "train.json.gz").read_bytes() == kept
    forced = run(tmp_path, NET + loop.format(", out='train.pyprof2', force=True"))
    assert forced.returncode == 0, forced.stderr
    assert (tmp_path / "train.json.gz").read_bytes() != kept


def test_each_rank_has_a_recording_and_the_first_one_shows_its_own(tmp_path: Path) -> None:
    loop = """
import pyprof2
with pyprof2.record(steps=1):
    for _ in range(3): step()
"""
    shown = [run(tmp_path, NET + loop, RANK=rank, WORLD_SIZE="2").stdout for rank in ("0", "1")]

    assert "aten::addmm" in shown[0]
    assert shown[1] == ""
    traces = [tmp_path / f"train-rank{rank}.json.gz" for rank in (0, 1)]
    both = pyprof2.parse(traces, tmp_path / "train.pyprof2")
    assert pyprof2.load(both).summary["ranks"] == [0, 1]


def test_the_programs_own_annotation_goes_on_after_the_steps(tmp_path: Path) -> None:
    loop = """
import pyprof2
from pyprof2.nvtx.annotation import current_session
pyprof2.init(sink="kineto", scalars=False)
mine = current_session().options
with pyprof2.record(steps=(1, 2)):
    for _ in range(5): step()
assert current_session().options == mine
"""
    done = run(tmp_path, NET + loop)

    assert done.returncode == 0, done.stderr
    assert forward_matmuls(tmp_path / "train.pyprof2") == dict.fromkeys([1, 2], MATMULS)


def test_after_the_steps_torch_is_as_it_was(tmp_path: Path) -> None:
    loop = """
import pyprof2, pyprof2.integrations.recording
from torch.optim import optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter as batches
def state():
    hooks = dict(optimizer._global_optimizer_post_hooks)
    return (torch.nn.Module.__call__, batches.__next__, hooks,
            torch.autograd.profiler._is_profiler_enabled)
before = state()
with pyprof2.record(steps=(1, 2)):
    step()
    assert torch.autograd.profiler._is_profiler_enabled is False
    for _ in range(3): step()
    assert state() == before
assert state() == before
with pyprof2.record(steps=(50, 60), out="never"):
    step()
assert state() == before
"""
    done = run(tmp_path, NET + loop)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        pytest.param("1", [3, 4, 5, 6], id="on"),
        pytest.param("2:3", [2, 3], id="steps"),
        pytest.param("0", None, id="off"),
        pytest.param("", None, id="empty"),
    ],
)
def test_importing_pyprof2_records_where_the_variable_says_so(
    value: str, wanted: list[int] | None, tmp_path: Path
) -> None:
    loop = "\nfor _ in range(10): step()\n"
    done = run(tmp_path, "import pyprof2\n" + NET + loop, PYPROF2=value)

    assert done.returncode == 0, done.stderr
    store = tmp_path / "train.pyprof2"
    assert store.exists() == (wanted is not None)
    if wanted is not None:
        assert forward_matmuls(store) == dict.fromkeys(wanted, MATMULS)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        pytest.param("1", [1, 2], id="on: the program's steps"),
        pytest.param("4:5", [4, 5], id="steps: those"),
        pytest.param("0", None, id="off: none"),
    ],
)
def test_the_variable_counts_more_than_the_program(
    value: str, wanted: list[int] | None, tmp_path: Path
) -> None:
    loop = """
with pyprof2.record(steps=(1, 2)):
    for _ in range(8): step()
"""
    done = run(tmp_path, "import pyprof2\n" + NET + loop, PYPROF2=value)

    assert done.returncode == 0, done.stderr
    stores = list(tmp_path.glob("*.pyprof2"))
    assert [forward_matmuls(store) for store in stores] == (
        [] if wanted is None else [dict.fromkeys(wanted, MATMULS)]
    )


def test_a_value_that_says_nothing_is_a_warning(tmp_path: Path) -> None:
    loop = "\nfor _ in range(10): step()\n"
    done = run(tmp_path, "import pyprof2\n" + NET + loop, PYPROF2="sometimes")

    assert done.returncode == 0, done.stderr
    assert "PYPROF2 is 'sometimes'; it can be 1, 0, or steps such as 3:6" in done.stderr


def test_our_own_command_records_nothing(tmp_path: Path) -> None:
    script = """
import runpy, sys
sys.argv = ["pyprof2", "--version"]
sys.orig_argv = [sys.executable, "-m", "pyprof2", "--version"]
try:
    runpy.run_module("pyprof2", run_name="__main__")
except SystemExit: pass
assert "torch" not in sys.modules
"""
    done = run(tmp_path, script, PYPROF2="1")

    assert done.returncode == 0, done.stderr


def test_a_captured_script_is_recorded_once(tmp_path: Path) -> None:
    loop = """
with pyprof2.record(steps=(1, 2), out="inside"):
    for _ in range(5): step()
"""
    done = run(
        tmp_path, "import pyprof2\n" + NET + loop,
        "-m", "pyprof2", "capture", "--kineto", "train.py", PYPROF2="1",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("inside*"))
    assert forward_matmuls(tmp_path / "train.json.gz") == dict.fromkeys(range(5), MATMULS)


@pytest.mark.parametrize("steps", ["(6, 3)", "-1", "'3:6'", "range(0, 9, 2)", "(1, 2, 3)", "()"])
def test_steps_that_make_no_sense_are_refused(steps: str) -> None:
    from pyprof2.errors import UsageError

    needs = pytest.raises(
        UsageError, match=r"give the first and the last one, as in steps=\(3, 6\)"
    )
    with needs, pyprof2.record(steps=eval(steps)):  # noqa: S307 - ours
        pass
