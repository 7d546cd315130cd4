"""What a recording of an entry point says of its memory equals what is counted by hand."""

from __future__ import annotations

import gzip
import json
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

import pyprof2
from pyprof2.api import run_memory

pytest.importorskip("torch")

from pyprof2.capture.entry_process import EntryRun, record

if TYPE_CHECKING:
    from pyprof2.api.run import Run

SAMPLES: Final = Path(__file__).resolve().parents[2] / "examples" / "entry_points"

TIED = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("mask", torch.ones(8, dtype=torch.int64))

    def forward(self, x):
        return self.head(self.frozen(self.words(x)) * self.mask[:, None])

def skyline_model_provider():
    return Net()

def skyline_input_provider(batch_size=4):
    return torch.randint(0, 50, (batch_size, 8)), torch.randint(0, 50, (batch_size * 8,))

def skyline_iteration_provider(model):
    optimizer = torch.optim.Adam(p for p in model.parameters() if p.requires_grad)
    def iteration(x, y):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, 1), y).backward()
        optimizer.step()
    return iteration
"""

DOUBLE = """\
import torch

def deepview_model_provider():
    model = torch.nn.GRU(8, 24, batch_first=True).double()
    torch.empty(1 << 20)  # is gone when the recording begins
    return model

def deepview_input_provider(batch_size=3):
    return [torch.randn(batch_size, 10, 8, dtype=torch.float64)]

def deepview_iteration_provider(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def iteration(x):
        model(x)[0].sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return iteration
"""


class Truth(NamedTuple):
    """Bytes, counted by hand; `held` is whether gradients stay from iteration to iteration."""

    parameters: int
    gradients: int
    state: int
    buffers: int
    inputs: int
    held: bool


def adam(parameters: int, tensors: int) -> int:
    """Two numbers for each parameter, and a count of 4 bytes for each of their tensors."""
    return 2 * parameters + 4 * tensors


TRANSFORMER = 4 * (
    128 * 32 + 2 * (4 * 32 * 32 + 4 * 32 + 2 * 32 * 64 + 64 + 32 + 4 * 32) + 32 * 128 + 128
)
GNMT = 4 * (
    200 * 32 + 2 * (64 * (32 + 16) + 2 * 64) + (128 * (32 + 32) + 2 * 128) + 32 * 32
    + 64 * 200 + 200
)  # fmt: skip
NORMS = 16 + 8 + 8 + 32 + 32 + 16 + 16 + 64 + 64
RESNET = 4 * (
    9 * 3 * 16 + 2 * NORMS + (16 * 8 + 9 * 8 * 8 + 8 * 32 + 16 * 32)
    + (32 * 16 + 9 * 16 * 16 + 16 * 64 + 32 * 64) + 64 * 10 + 10
)  # fmt: skip
WORDS, FROZEN = 4 * 50 * 16, 4 * (16 * 16 + 16)
GRU = 8 * (3 * 24 * (8 + 24) + 2 * 3 * 24)

TRUTH: Final = {
    "transformer": Truth(
        TRANSFORMER, TRANSFORMER, adam(TRANSFORMER, 27), 0, 2 * 8 * 16 * 8, held=True
    ),
    "gnmt": Truth(GNMT, GNMT, adam(GNMT, 16), 0, 8 * (2 * 12 * 4 + 4), held=False),
    "resnet": Truth(
        RESNET,
        RESNET,
        RESNET,
        2 * 4 * NORMS + 9 * 8,
        4 * 8 * 3 * 32 * 32 + 8 * 8,
        held=True,
    ),
    "tied": Truth(WORDS + FROZEN, WORDS, adam(WORDS, 1), 8 * 8, 8 * (4 * 8 + 4 * 8), held=True),
    "double": Truth(GRU, GRU, 0, 0, 8 * 3 * 10 * 8, held=True),
}
WRITTEN: Final = {"tied": TIED, "double": DOUBLE}


def recorded(name: str, folder: Path) -> tuple[Run, list[int]]:
    """Return the run of an entry point, and the bytes of its events, in order."""
    file = SAMPLES / name / "entry_point.py"
    if name in WRITTEN:
        file = folder / "entry.py"
        file.write_text(WRITTEN[name])
    trace = folder / "entry.json.gz"
    record(EntryRun(file, threads=1), trace)
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    own = [e for e in events if e.get("name") == "[memory]" and e["args"]["Device Type"] == 0]
    own.sort(key=lambda event: float(event["ts"]))
    return pyprof2.load(trace), [event["args"]["Bytes"] for event in own]


@pytest.mark.minutes
@pytest.mark.parametrize("name", TRUTH)
def test_weights_gradients_state_and_peak_equal_closed_forms(name: str, tmp_path: Path) -> None:
    truth = TRUTH[name]

    run, changes = recorded(name, tmp_path)

    memory = run_memory.memory_by_device(run.tables)
    assert memory.weights is not None
    weights = memory.weights.to_pandas().groupby("category", observed=True)
    sums = weights[["bytes", "gradient_bytes", "state_bytes"]].sum()
    of_parameters = tuple(sums.loc["parameter"])
    assert of_parameters == (truth.parameters, truth.gradients, truth.state)
    assert sums["bytes"].get("buffer", 0) == truth.buffers
    (device,) = memory.devices.to_dict("records")
    base = truth.parameters + truth.state + truth.buffers + truth.inputs
    base += truth.gradients * truth.held
    assert device["base_bytes"] == base
    # The own replay: what lived before, and everything that was allocated and released since.
    peak = max(accumulate(changes, initial=base))
    assert device["peak_allocated_bytes"] == peak
    rows = memory.rows(["category", "certainty"])
    assert rows["bytes"].sum() == peak
    found = {(row.category, row.certainty): row.bytes for row in rows.itertuples()}
    assert found["parameter", "exact"] == truth.parameters
    assert found.get(("optimizer_state", "exact"), 0) == truth.state
    assert found.get(("buffer", "exact"), 0) == truth.buffers
    assert found["input", "exact"] == truth.inputs
    assert {certainty for _, certainty in found} == {"exact"}
    assert memory.named(0)[1] == 0


@pytest.mark.minutes
def test_a_profiler_of_the_entry_points_own_leaves_the_rest_unknown(tmp_path: Path) -> None:
    file = tmp_path / "entry.py"
    own = "    with torch.profiler.profile(): torch.ones(3)\n    def iteration"
    file.write_text(DOUBLE.replace("    def iteration", own))

    record(EntryRun(file, threads=1), tmp_path / "entry.json.gz")

    memory = pyprof2.memory(tmp_path / "entry.json.gz")
    assert memory.devices["base_bytes"].isna().all()
    assert memory.named(0)[0]["bytes"].to_pylist() == [
        8 * 72 * 8, 8 * 72 * 24, 8 * 72, 8 * 72
    ]  # fmt: skip
