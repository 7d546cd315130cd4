"""Other people's trainers, unchanged, under capture: which layers cost, and what did they do?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytest.importorskip("torch")

STEPS, BATCH, TOKENS, WIDE, INNER = 4, 4, 24, 64, 128
HUGGING_FACE = f"""
import tempfile
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(
    vocab_size=100, hidden_size={WIDE}, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size={INNER}, max_position_embeddings=32,
)
def sample():
    return dict(input_ids=torch.randint(0, 100, ({TOKENS},)), labels=0)

data = [sample() for _ in range({STEPS * BATCH})]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps={STEPS}, per_device_train_batch_size={BATCH},
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
    )
    Trainer(BertForSequenceClassification(config), arguments, train_dataset=data).train()
"""
LIGHTNING = f"""
import lightning
import torch
from torch import nn

class Gan(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear({WIDE}, {INNER}), nn.ReLU())
        self.dec = nn.Sequential(nn.Linear({INNER}, {WIDE}), nn.ReLU())
    def training_step(self, batch, index):
        return self.dec(self.enc(batch)).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = torch.utils.data.DataLoader(torch.randn({STEPS * BATCH}, {WIDE}), batch_size={BATCH})
trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Gan(), data)
"""


def forward_flops(walk: Walk, script: str) -> dict[str, int]:
    """Return the FLOPs of matrix products of the forward by layer of a script under capture."""
    walk.write("train.py", script)
    walk.run("pyprof2", "capture", "--kineto", "train.py")
    rows = walk.rows(
        "prof", "train.json.gz", "--by", "layer", "--category", "matmul", "--direction", "forward"
    )
    return {row["layer"]: int(row["flops"]) for row in rows}


def test_hugging_face_layers_have_the_flops_of_the_configuration(walk: Walk) -> None:
    pytest.importorskip("transformers")

    found = forward_flops(walk, HUGGING_FACE)

    up = {layer: flops for layer, flops in found.items() if layer.endswith("intermediate.dense")}
    assert set(up.values()) == {STEPS * 2 * BATCH * TOKENS * WIDE * INNER}
    assert sorted(re.findall(r"layer\.(\d)\.intermediate", " ".join(up))) == ["0", "1"]


def test_lightning_modules_called_by_the_step_have_paths_of_their_own(walk: Walk) -> None:
    pytest.importorskip("lightning")

    found = forward_flops(walk, LIGHTNING)

    flops = STEPS * 2 * BATCH * WIDE * INNER
    assert found == {"enc.0": flops, "dec.0": flops}
