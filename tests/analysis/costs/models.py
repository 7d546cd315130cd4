"""Eight networks, small to write: run on no device, they give every op with its shapes."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it


class Bottleneck(nn.Module):
    """Three convolutions and a way around them; the 3x3 one has the stride."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.around = nn.Identity() if inputs == outputs and stride == 1 else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.around(x))


def resnet50() -> tuple[nn.Module, torch.Tensor]:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(count):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers), torch.empty(32, 3, 224, 224)


class Attention(nn.Module):
    """Attention as separate products over whole matrices."""

    def __init__(self, width: int, heads: int, kv_heads: int, *, bias: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias)
        self.kv = nn.Linear(width, 2 * kv_heads * self.size, bias)
        self.out = nn.Linear(width, width, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, _ = x.shape
        q = self.q(x).view(batch, rows, self.heads, self.size).transpose(1, 2)
        kv = self.kv(x).view(batch, rows, 2, self.kv_heads, self.size)
        k, v = kv.permute(2, 0, 3, 1, 4).repeat_interleave(self.heads // self.kv_heads, 2)
        probabilities = torch.softmax(q @ k.transpose(-2, -1), -1)
        found: torch.Tensor = self.out((probabilities @ v).transpose(1, 2).reshape(x.shape))
        return found


class Block(nn.Module):
    """A transformer's layer: attention, then two products with an activation between."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, heads, bias=True)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        found: torch.Tensor = x + self.mlp(self.norms[1](x))
        return found


class Bert(nn.Module):
    """Base size, with the pooler on the first row."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30522, 768)
        self.blocks = nn.Sequential(*(Block(768, 12) for _ in range(12)))
        self.pooler = nn.Linear(768, 768)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.pooler(self.blocks(self.table(x))[:, 0]))


class Gpt2(nn.Module):
    """Small size, with the scores of all words."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50257, 768)
        self.blocks = nn.Sequential(*(Block(768, 12) for _ in range(12)))
        self.head = nn.Linear(768, 50257, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.blocks(self.table(x)))
        return found


class Vit(nn.Module):
    """Base size on patches of 16, the class in a row of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 16, 16)
        self.token = nn.Parameter(torch.empty(1, 1, 768))
        self.blocks = nn.Sequential(*(Block(768, 12) for _ in range(12)))
        self.head = nn.Linear(768, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.patches(x).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(len(x), -1, -1), rows], 1)
        found: torch.Tensor = self.head(self.blocks(rows)[:, 0])
        return found


class Llama(nn.Module):
    """One layer of the 8B size: 32 heads on 8 of keys and values, a gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(4096, 32, 8, bias=False)
        self.gate = nn.Linear(4096, 14336, bias=False)
        self.up = nn.Linear(4096, 14336, bias=False)
        self.down = nn.Linear(14336, 4096, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        found: torch.Tensor = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return found


class Unet(nn.Module):
    """Four levels down, and up again by transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 128, 256, 512, 1024)
        self.down = nn.ModuleList(
            self.pair(c, k) for c, k in zip((3, *widths[:-1]), widths, strict=True)
        )
        self.rise = nn.ModuleList(nn.ConvTranspose2d(2 * k, k, 2, 2) for k in widths[3::-1])
        self.up = nn.ModuleList(self.pair(2 * k, k) for k in widths[3::-1])
        self.last = nn.Conv2d(64, 2, 1)

    @staticmethod
    def pair(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, pair in enumerate(self.down):
            x = pair(x if level == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for rise, pair, other in zip(self.rise, self.up, kept[3::-1], strict=True):
            x = pair(torch.cat([other, rise(x)], 1))
        found: torch.Tensor = self.last(x)
        return found


class Experts(nn.Module):
    """Eight experts, two for each row, all with as many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(1024, 8, bias=False)
        self.one = nn.Parameter(torch.empty(8, 1024, 4096))
        self.two = nn.Parameter(torch.empty(8, 4096, 1024))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.router(x), -1)
        rows = x.repeat(2, 1).view(8, 1024, 1024)
        done = torch.bmm(torch.relu(torch.bmm(rows, self.one)), self.two)
        # The weight of each row, whoever computed it: every router output takes part.
        return done.view(2, 4096, 1024).sum(0) * weights.sum(-1, keepdim=True)


def _words(batch: int, rows: int) -> torch.Tensor:
    return torch.empty(batch, rows, dtype=torch.int64)


MODELS: Final = {
    "resnet50": resnet50,
    "bert-base": lambda: (Bert(), _words(8, 128)),
    "gpt2-small": lambda: (Gpt2(), _words(4, 1024)),
    "vit-b16": lambda: (Vit(), torch.empty(16, 3, 224, 224)),
    "llama3-8b-block": lambda: (Llama(), torch.empty(1, 2048, 4096, requires_grad=True)),
    "unet": lambda: (Unet(), torch.empty(2, 3, 256, 256)),
    "moe-top2": lambda: (Experts(), torch.empty(4096, 1024)),
}
"""Each gives a network and its input; make them on the device `meta`."""
