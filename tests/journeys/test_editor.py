"""Somebody with an entry point records it, opens it in an editor, and drags the batch size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.journeys.conftest import line_of

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

ENTRY = """\
import torch
from torch import nn


def skyline_model_provider():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def skyline_input_provider(batch_size=32):
    return torch.randn(batch_size, 64), torch.randint(0, 10, (batch_size,))


def skyline_iteration_provider(model):
    optimizer, loss_of = torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss()

    def iteration(inputs, labels):
        optimizer.zero_grad()
        loss = loss_of(model(inputs), labels)
        loss.backward()
        optimizer.step()

    return iteration
"""
SIZES = (8, 16, 32)
KEPT = 4 * (64 * 256 + 256 + 256 * 10 + 10)
"""Bytes of the gradients, which are all there when backward ends."""
TAKEN = 4 * 32 * (64 + 3 * 256 + 3 * 10)
"""Bytes of all that a step of 32 samples makes beside them."""
PRODUCTS = 2 * 32 * (64 * 256 + 256 * 10) + 2 * 32 * (64 * 256 + 2 * 256 * 10)
"""FLOPs of the products of a step, forward and backward; the inputs have no gradient."""
AT_64 = 206_896
"""Bytes at the peak that a recording of 64 samples has."""


def test_a_dial_that_is_dragged_in_the_editor_changes_the_code(walk: Walk) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("pygls")
    from tests.lsp.editor import Editor

    code = walk.write("ws/entry_point.py", ENTRY)
    walk.folder = code.parent

    def record(batch: int) -> None:
        capture = ("pyprof2", "capture", "--kineto", "--threads", 1, "--entry", code.name)
        more = () if batch == 32 else ("--batch", batch)  # 32 is what the code says
        walk.run(*capture, *more, "-o", f"b{batch}.json.gz")

    with ThreadPoolExecutor(len(SIZES)) as threads:
        list(threads.map(record, SIZES))
    (walk.folder / "b32.json.gz").touch()  # the newest is what the editor shows
    batches = {str(size): f"b{size}.json.gz" for size in SIZES}
    editor = Editor("neovim-0.12.4", walk.folder, walk.folder / "state", batches=batches)
    try:
        editor.open(code)
        hints = dict(editor.wait(editor.hints))
        place = line_of(ENTRY, "loss = ")
        assert place in hints
        said = editor.hover(place)  # with the backward of its ops
        flops = float(said.partition("FLOPs: ")[2].split()[0]) * 1e6
        assert flops == pytest.approx(1.01 * PRODUCTS, rel=0.01)
        held = said.partition("memory at the peak on cpu: ")[2].split()
        assert KEPT <= float(held[0]) * 1e6 <= KEPT + TAKEN
        titles = [title for _, title in editor.lenses()]
        assert titles[0].startswith("pyprof2: b32.json.gz")
        assert any("iteration_provider.iteration: " in title for title in titles)
        assert code.name in [row["name"] for row in editor.run("breakdown")["rows"]]

        dials = editor.run("dialsAsk", {"ask": "document"})["document"]
        at = dials["batches"].index(64)
        least, most = (dials["memory"][end][at] for end in ("lo", "hi"))
        (found,) = editor.run("dialsAsk", {"ask": "state", "seen": 0})["code"]["places"]
        assert found["place"] == f"{code.name}:{line_of(ENTRY, 'batch_size=32')}"
        dragged = {"ask": "set", "key": found["key"], "from": 32, "to": 64}
        assert editor.run("dialsAsk", dragged)["ok"]
        assert editor.text == ENTRY.replace("batch_size=32", "batch_size=64")
        # The edit is one of its own version, so an editor can take it back.
        assert len(editor.edits) == 1
    finally:
        editor.shut()
    assert least <= AT_64 <= most
