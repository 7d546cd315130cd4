"""An encoder and a decoder of LSTMs, with attention; time comes before the batch."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import torch
from torch import Tensor, nn

WORDS, WIDTH = 200, 32


class Attention(nn.Module):
    """Adds up what was read, by how well it matches a query."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return a context for each query; both are time, batch, width."""
        of_batch = keys.transpose(0, 1)
        scores = self.query(queries).transpose(0, 1) @ of_batch.transpose(1, 2)
        contexts: Tensor = (torch.softmax(scores, -1) @ of_batch).transpose(0, 1)
        return contexts


class Gnmt(nn.Module):
    """Reads a text and writes its translation; returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.LSTM(WIDTH, WIDTH // 2, bidirectional=True)
        self.decoder = nn.LSTM(WIDTH, WIDTH)
        self.attention = Attention()
        self.classifier = nn.Linear(2 * WIDTH, WORDS)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the loss; texts are time, batch, and lengths the batch."""
        packed = nn.utils.rnn.pack_padded_sequence(self.words(source), lengths.cpu())
        read, _ = nn.utils.rnn.pad_packed_sequence(self.encoder(packed)[0])
        states, _ = self.decoder(self.words(target[:-1]))
        known = torch.cat([states, self.attention(states, read)], -1)
        loss: Tensor = self.loss(self.classifier(known).flatten(0, 1), target[1:].flatten())
        return loss
