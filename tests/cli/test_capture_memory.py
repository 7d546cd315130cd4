"""`capture --memory` records what memory is for, and a snapshot where there is a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyprof2
from pyprof2.analysis.memory.tags import tagged_bytes

torch = pytest.importorskip("torch", reason="capture needs torch")

ROOT = Path(__file__).resolve().parents[2]
TRAINING = """
import torch
from torch import nn
from torch.nn import functional

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(16, 256), torch.randint(0, 10, (16,))
for step in range(4):
    optimizer.zero_grad()
    functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def capture(folder: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "pyprof2", "capture", "--memory", *options, "train.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYPROF2_CPU_PEAKS": "0"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_recording_of_one_step_knows_all_that_lives(tmp_path: Path) -> None:
    done = capture(tmp_path, TRAINING, "--steps", "2")

    assert done.returncode == 0, done.stderr
    assert "next: pyprof2 memory train.json.gz" in done.stderr
    assert not (tmp_path / "train.pickle").exists()
    found = pyprof2.memory(tmp_path / "train.json.gz")
    (curve,), (tagged,) = found.curves, found.tagged
    assert tagged is not None
    held = tagged_bytes(curve, tagged, int(tagged.backward[0]))
    assert held["parameter"] == 546_856
    assert held["optimizer_state"] == 1_093_728
    assert held["activation"] == 33_412
    assert found.notes_of(0) == []


def test_nsys_records_no_memory_of_this_kind(tmp_path: Path) -> None:
    done = capture(tmp_path, TRAINING, "--nsys")

    assert done.returncode != 0
    assert "--memory is what torch.profiler records: leave out --nsys" in done.stderr


@pytest.mark.slow
def test_a_script_that_fails_leaves_what_was_recorded_until_then(tmp_path: Path) -> None:
    done = capture(tmp_path, TRAINING + "\nraise torch.OutOfMemoryError('too much')\n")

    assert done.returncode == 1
    assert "too much" in done.stderr
    assert pyprof2.memory(tmp_path / "train.json.gz").curves[0].events.num_rows > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("end", ["", "torch.empty(1 << 50, device='cuda')\n"])
def test_on_a_gpu_there_is_a_snapshot_also_when_memory_runs_out(tmp_path: Path, end: str) -> None:
    script = TRAINING.replace("model = ", "torch.set_default_device('cuda')\nmodel = ") + end

    capture(tmp_path, script)

    profile: Any = pyprof2.memory(tmp_path / "train.pickle")
    assert profile.curves[0].events.num_rows > 0
    assert bool(profile.curves[0].failures) == bool(end)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_peak_on_a_gpu_is_that_of_pytorch_less_what_it_rounds(tmp_path: Path) -> None:
    script = TRAINING.replace("model = ", "torch.set_default_device('cuda')\nmodel = ", 1)

    done = capture(tmp_path, f"{script}print('peak', torch.cuda.max_memory_allocated())\n")

    said = int(done.stdout.rpartition("peak ")[2])
    (curve,) = pyprof2.memory(tmp_path / "train.pickle").curves
    assert curve.base is not None
    # Each block is rounded up to 512 bytes; of the peak there are no more than were ever made.
    rounded = said - (curve.base + curve.over_base(curve.peak))
    assert 0 <= rounded < 512 * curve.events.num_rows
