"""Memory of a small transformer, trained and recorded here on the CPU, at a batch held out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import pyprof2

if TYPE_CHECKING:
    from pathlib import Path

CHANNELS, LENGTH = 64, 32


def record(batch: int, path: Path) -> Path:
    """Train for a few steps at a batch size; return the recording."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(
        CHANNELS, 4, 4 * CHANNELS, dropout=0.0, batch_first=True, activation="gelu"
    )
    optimizer = torch.optim.Adam(block.parameters())
    samples = torch.randn(batch, LENGTH, CHANNELS)
    window = torch.profiler.schedule(wait=1, warmup=1, active=3)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=cpu, schedule=window, record_shapes=True, profile_memory=True
    ) as profiler:
        for _ in range(5):
            optimizer.zero_grad()
            block(samples).pow(2).mean().backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return path


def test_memory_of_a_training_at_a_batch_held_out_is_exact(tmp_path: Path) -> None:
    runs = {batch: record(batch, tmp_path / f"b{batch}.json") for batch in (8, 16, 32, 12)}
    others = {batch: runs[batch] for batch in (12, 16, 32)}
    truth = pyprof2.batch_model(others).answer("memory_bytes", 12, {})

    found = pyprof2.batch_model({b: runs[b] for b in (8, 16, 32)}).answer("memory_bytes", 12, {})

    assert truth.status == "measured"
    assert (found.value, found.status) == (truth.value, "interpolated")
