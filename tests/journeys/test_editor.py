"""Somebody with an entry point records it, opens it in an editor, and drags the batch size."""

from __future__ import annotations

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
KEPT = 4 * (64 * 256 + 256 + 256 * 10 + 10)
"""Bytes of the gradients, which are all there when backward ends."""
TAKEN = 4 * 32 * (64 + 3 * 256 + 3 * 10)
"""Bytes of all that a step of 32 samples makes beside them."""
PRODUCTS = 2 * 32 * (64 * 256 + 256 * 10) + 2 * 32 * (64 * 256 + 2 * 256 * 10)
"""FLOPs of the products of a step, forward and backward; the inputs have no gradient."""
_PATIENCE = 300.0
"""Seconds that three programs may take on a busy machine."""
AT_96 = 4 * (KEPT // 4 + 96 * 64 + 2 * 96 + 3 * 96 * 256 + 256 * 10 + 10 + 2)
"""Bytes at the peak of 96 samples: parameters, input and labels, what the ReLU keeps and its
gradient twice, the gradient of the last layer, the loss and the weight of its mean."""


@pytest.mark.slow
def test_a_dial_that_is_dragged_in_the_editor_changes_the_code(walk: Walk) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("pygls")
    from tests.lsp.editor import Editor

    code = walk.write("ws/entry_point.py", ENTRY)
    walk.folder = code.parent

    walk.run("pyprof2", "capture", "--kineto", "--entry", code.name, "-o", "mine.json.gz")
    editor = Editor("neovim-0.12.4", walk.folder, walk.folder / "state")
    editor.answers = {"may this run": "Allow"}
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
        assert titles[0].startswith("pyprof2: mine.json.gz")
        assert any("iteration_provider.iteration: " in title for title in titles)
        assert code.name in [row["name"] for row in editor.run("breakdown")["rows"]]

        # The other batch sizes are recorded by the server itself, after it asked once.
        assert editor.begin("dialsPage").result(_PATIENCE)["ok"]
        (question,) = editor.asked
        assert "with batch sizes of 16, 64, 128, for the dials" in question
        assert question.endswith(f"pyprof2 capture --kineto --entry {code.name}")
        dials = editor.run("dialsAsk", {"ask": "document"})["document"]
        at = dials["batches"].index(96)
        least, most = (dials["memory"][end][at] for end in ("lo", "hi"))
        (found,) = editor.run("dialsAsk", {"ask": "state", "seen": 0})["code"]["places"]
        assert found["place"] == f"{code.name}:{line_of(ENTRY, 'batch_size=32')}"
        dragged = {"ask": "set", "key": found["key"], "from": 32, "to": 96}
        assert editor.run("dialsAsk", dragged)["ok"]
        assert editor.text == ENTRY.replace("batch_size=32", "batch_size=96")
        # The edit is one of its own version, so an editor can take it back.
        assert len(editor.edits) == 1
    finally:
        editor.shut()
    assert least <= AT_96 <= most
