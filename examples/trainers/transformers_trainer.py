"""Train a small BERT with the Trainer of Hugging Face, and record some of its steps.

Usage: python transformers_trainer.py
"""

from __future__ import annotations

import tempfile

import torch
from outcome import report
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from pyprof2.integrations.transformers import RecordCallback

STEPS = 10
BATCHES_PER_STEP = 2


def main() -> None:
    """Train with gradient accumulation."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=128, max_position_embeddings=32,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    rows = 4 * BATCHES_PER_STEP * STEPS
    data = [{"input_ids": torch.randint(0, 100, (24,)), "labels": row % 2} for row in range(rows)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=STEPS, per_device_train_batch_size=4,
            gradient_accumulation_steps=BATCHES_PER_STEP, logging_steps=1, save_strategy="no",
            report_to=[], disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        trainer = Trainer(
            model, arguments, train_dataset=data, callbacks=[RecordCallback(steps=(3, 6))]
        )
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    report(model, losses, BATCHES_PER_STEP)


if __name__ == "__main__":
    main()
