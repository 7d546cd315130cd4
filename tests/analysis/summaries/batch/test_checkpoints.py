"""Advice where memory binds: layers to run again in backward, state that others may hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from pyprof2.analysis.memory.retained import CHECKPOINT_COLUMNS
from pyprof2.analysis.summaries.batch.model import Model, fit_model
from pyprof2.analysis.summaries.batch.recorded import Memory, Recorded, Savable
from pyprof2.analysis.summaries.batch.savings import checkpoints, sharded, state_bytes
from pyprof2.api.batch import recorded_of
from pyprof2.api.run import load

if TYPE_CHECKING:
    from pathlib import Path

_MB = 1_000_000
_ENTRY = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return self.down(torch.sigmoid(self.up(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x).square().mean()

def skyline_model_provider():
    return Net()

def skyline_input_provider(batch_size=8):
    return (torch.randn(batch_size, 64),)

def skyline_iteration_provider(model):
    optimizer = torch.optim.Adam(model.parameters())
    def iteration(x):
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
    return iteration
"""


def _held(batch: int) -> Savable:
    """Return blocks that keep 50 MB a sample, of which 6.25 MB come back at once."""
    rows = [
        ["blocks.*", "net.py:7", 8, 50 * batch * _MB, batch * 25 * _MB // 4, 1000 * batch],
        ["head", None, 1, batch * _MB, batch * _MB, None],
    ]
    frame = pd.DataFrame(rows, columns=[column.name for column in CHECKPOINT_COLUMNS])
    return Savable(frame.astype({"recompute_ns": "Int64"}), 1001)


def _model(optimizer: int = 1500) -> Model:
    """Return recordings of 1,000 MB and 100 MB a sample, and of the optimizer's MB."""
    index = pd.MultiIndex.from_tuples([("forward", "matmul")], names=["phase", "group"])
    return fit_model(
        [
            Recorded(
                batch, pd.Series([1e6 * batch], index), [10**6 * batch], [10**6 * batch],
                memory=Memory(
                    {"backward": (1000 + 100 * batch) * _MB, "optimizer": optimizer * _MB},
                    over_base=False, reserved_ratio=1.0,
                ),
                savable=lambda batch=batch: _held(batch),  # type: ignore[misc]
            )
            for batch in (8, 16, 32)
        ]
    )  # fmt: skip


def test_what_layers_keep_grows_with_the_batch_and_comes_back_one_at_a_time() -> None:
    # `head` gives back all that it frees while it runs again: nothing is gained.
    (found,) = checkpoints(_model(), 60, {})

    assert (found.layer, found.layers, found.line) == ("blocks.*", 8, "net.py:7")
    assert (found.kept, found.again) == (3000 * _MB, 375 * _MB)
    assert found.less == 2625 * _MB
    assert found.time_ns == 60_000


@pytest.mark.parametrize(
    ("optimizer", "less"),
    [
        pytest.param(6000, [1000 * _MB], id="no further than the optimizer's peak"),
        pytest.param(7500, [], id="the optimizer's peak is the highest"),
    ],
)
def test_a_checkpoint_lowers_no_peak_of_the_optimizer(optimizer: int, less: list[int]) -> None:
    found = [each.less for each in checkpoints(_model(optimizer), 60, {})]

    assert found == pytest.approx(less, abs=2)


def test_each_process_keeps_its_part_of_the_state_rounded_up() -> None:
    assert state_bytes(_model()) == 1001
    # ceil(1001 / 2) = 501, ceil(1001 / 8) = 126
    assert [sharded(1001, processes) for processes in (1, 2, 8)] == [0, 500, 875]


def test_state_that_no_recording_knows_is_not_known() -> None:
    known = _model()
    unknown = [replace(each, savable=lambda: None) for each in known.recordings]

    assert state_bytes(fit_model(unknown)) is None
    assert list(checkpoints(fit_model(unknown), 60, {})) == []


@pytest.mark.minutes
def test_blocks_of_a_real_network_keep_what_is_counted_by_hand(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from pyprof2.capture.entry_process import EntryRun, record

    file = tmp_path / "entry.py"
    file.write_text(_ENTRY)
    for batch in (8, 24):
        trace = tmp_path / f"{batch}.json.gz"
        record(EntryRun(file, batch=batch, threads=1), trace)
        held = recorded_of(batch, load(trace)).savable()

        assert held is not None
        rows = held.checkpoints.set_index("layer")
        # The sigmoid's result is kept once, for its own backward and that of `down`; what `up`
        # returns nobody keeps, and what the block returns is needed anyway.
        assert rows.loc["blocks.*", "frees_bytes"] == 3 * 4 * 256 * batch
        assert rows.loc["blocks.*", "again_bytes"] == 4 * 256 * batch
        assert rows.loc["blocks.*", "layers"] == 3
        assert str(rows.loc["blocks.*", "line"]) == f"{file}:11"
        # Adam: two numbers for each parameter, and a count of 4 bytes for each tensor.
        parameters = 3 * (64 * 256 + 256 + 256 * 64 + 64) + 64 * 10 + 10
        assert held.optimizer == 2 * 4 * parameters + 4 * (3 * 4 + 2)
