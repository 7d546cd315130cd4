"""Train a small language model of transformers in a loop, and record some of its steps.

Usage: python transformers_loop.py
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import torch
from outcome import report
from transformers import LlamaConfig, LlamaForCausalLM

import pyprof2


def main() -> None:
    """Train for ten steps, with clipped gradients."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=160, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with pyprof2.record(steps=(3, 6)):
        for _ in range(10):
            words = torch.randint(0, 100, (2, 40))
            loss = model(input_ids=words, labels=words).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    report(model, losses)


if __name__ == "__main__":
    main()
