"""Somebody with recordings, or an entry point, wants to know the largest batch that fits."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from typing import TYPE_CHECKING

import pytest

from tests.dialled import CODE, held_bytes, named, step_ns, workspace
from tests.journeys.conftest import line_of
from tests.reports.page.reader import document_of

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

USABLE = 80_000_000 * 0.98
"""Bytes of the recorded device that may be allocated."""


@pytest.mark.slow
def test_a_sweep_says_which_batch_fits_and_the_page_changes_it_in_the_code(walk: Walk) -> None:
    script = workspace(walk.folder / "ws")
    walk.folder = script.parent
    recorded = [f"{batch}={path}" for batch, path in named().items()]

    first, *_ = walk.text("batch", *recorded).splitlines()
    asked = walk.rows("batch", *recorded, "--at", "24,80")
    binds = walk.text("batch", *recorded, "--at", "80")
    page = walk.text("batch", *recorded, "-o", "dials.html", "--code", script.name)

    # (5 + b) MB <= 78.4; that is sure where 5 % more are too, beyond 64 0.05 · (b / 32 - 1).
    fits = max(b for b in range(1, 99) if held_bytes(b) <= USABLE)
    sure = max(b for b in range(64, 99) if (1 + 0.05 * (b / 32 - 1)) * held_bytes(b) <= USABLE)
    assert first.startswith(f"largest batch that fits: about {fits}; {sure} is sure")
    assert "80.000 MB (recorded, Small GPU)" in first
    found = {(int(row["batch_size"]), row["measure"]): row for row in asked}
    for batch in (24, 80):
        for measure, truth in (
            ("step_time_ns", step_ns(batch)),
            ("memory_bytes", held_bytes(batch)),
        ):
            row = found[batch, measure]
            assert float(row["value"]) == truth
            assert float(row["lo"]) < truth < float(row["hi"])
    lacks = (held_bytes(80) - USABLE) / 1e6
    assert f"80 is asked for and is not expected to fit: it lacks about {lacks:.3f} MB" in binds
    assert page.strip() == "dials.html"
    shown = document_of(walk.folder / "dials.html")
    assert [(place["place"], place["value"]) for place in shown["code"]["places"]] == [
        (f"{script.name}:{line_of(CODE, 'batch_size')}", 32)
    ]
    assert shown["memory"]["value"][shown["batches"].index(fits)] == held_bytes(fits)


ENTRY = """\
import torch

def skyline_model_provider():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))

def skyline_input_provider(batch_size=8):
    return torch.randn(batch_size, 64), torch.randint(0, 8, (batch_size,))

def skyline_iteration_provider(model):
    optimizer = torch.optim.Adam(model.parameters())
    def iteration(x, y):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return iteration
"""
PARAMETERS = 4 * (64 * 128 + 128 + 128 * 8 + 8)
STATE = 2 * PARAMETERS + 4 * 4


@pytest.mark.minutes
def test_from_an_entry_point_to_its_weights_its_peak_and_the_largest_batch(walk: Walk) -> None:
    pytest.importorskip("torch")
    walk.write("entry_point.py", ENTRY)
    for batch in (4, 8, 16):
        words = ("capture", "--kineto", "--entry", "entry_point.py", "--batch", batch)
        walk.run("pyprof2", *words, "-o", f"b{batch}", PYPROF2_CPU_PEAKS="0")
    others = ("4=b4.json.gz", "16=b16.json.gz")

    weights = walk.rows("memory", "b8.json.gz", "--weights")
    held = walk.rows("memory", "b8.json.gz", "--by", "category,certainty")
    walk.text("export", "b8.json.gz", "--skyline", "b8.sqlite")
    walk.text("export", "b8.json.gz", "--deepview", "b8.json", "--batches", *others)
    said = walk.text("batch", "8=b8.json.gz", *others, "--memory", "1MB", "--csv-files", "sweep")
    first, *_ = said.splitlines()

    assert [row["name"] for row in weights] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert sum(int(row["bytes"]) for row in weights) == PARAMETERS
    assert sum(int(row["gradient_bytes"]) for row in weights) == PARAMETERS
    assert sum(int(row["state_bytes"]) for row in weights) == STATE
    line = line_of(ENTRY, "nn.Linear(64")
    assert {row["source"].rpartition("/")[2] for row in weights} == {f"entry_point.py:{line}"}
    peak = sum(int(row["bytes"]) for row in held)
    assert {row["certainty"] for row in held} == {"exact"}
    (sizes,) = sqlite3.connect(walk.folder / "b8.sqlite").execute("SELECT * FROM misc_sizes")
    assert sizes == ("peak_usage_bytes", peak)
    report = json.loads((walk.folder / "b8.json").read_text())["analysisState"]
    assert report["breakdown"]["peakUsageBytes"] == str(peak)
    # Steps of less than a millisecond may not get longer with the batch: then it is not known.
    most = report["throughput"].get("predictedMaxSamplesPerSecond")
    below = re.search(r"^throughput stays below (\d+) samples/s$", said, re.MULTILINE)
    assert (most is None) == (below is None)
    assert below is None or most == pytest.approx(float(below[1]), abs=1)
    # The line that touches the model at 8.
    slope, bias = (report["throughput"]["peakUsageBytes"][name] for name in ("slope", "bias"))
    assert slope * 8 + bias == pytest.approx(peak)
    found = re.match(r"largest batch that fits: about (\d+); \d+ is sure", first)
    assert found is not None
    fits = int(found[1])
    asked = walk.rows("batch", "8=b8.json.gz", *others, "--at", f"{fits},{fits + 1}")
    takes = [float(row["value"]) for row in asked if row["measure"] == "memory_bytes"]
    assert takes[0] <= 980_000 < takes[1]
    with (walk.folder / "sweep" / "measure-batches.csv").open() as file:
        measured = {int(row["batch_size"]): row for row in csv.DictReader(file)}
    assert int(measured[8]["memory_usage_bytes"]) == peak
