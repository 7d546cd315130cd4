"""Small trainings that are compiled in tests: each statement of a forward is on a line of its own.

They have the parts of real ones: attention, convolutions, norms, recurrence, dropout, rotary
embeddings, low-rank adapters, autocast, checkpoints, blocks that are compiled one by one.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable


class Training(NamedTuple):
    """A model, what it is called with in a step, and how it is compiled.

    Attributes:
        make: makes the model.
        inputs: of the step of that number.
        compile_: compiles it in its place; returns what is called.
        autocast: whether forward runs in bfloat16.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    compile_: Callable[[nn.Module], Any] = torch.compile
    autocast: bool = False


class Mlp(nn.Module):
    """Three layers in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 32)
        self.b = nn.Linear(32, 32)
        self.c = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = functional.relu(x)
        x = self.b(x)
        x = torch.tanh(x)
        return self.c(x)


class Functional(nn.Module):
    """Products of parameters of its own, and ops between them."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(16, 24) / 4)
        self.v = nn.Parameter(torch.randn(24, 8) / 4)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        h = x @ self.w
        h = torch.sigmoid(h) * h
        y = h @ self.v
        y = y * self.scale
        return y.exp() + 1


class ConvNet(nn.Module):
    """Convolutions with batch norm and a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        x = self.norm(x)
        x = functional.relu(x)
        x = self.conv2(x)
        x = functional.adaptive_avg_pool2d(x, 1)
        x = x.flatten(1)
        return self.head(x)


class Basic(nn.Module):
    """The block of a ResNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(x)
        y = functional.relu(self.bn1(y))
        y = self.conv2(y)
        y = self.bn2(y)
        y = y + x
        return functional.relu(y)


class ResNet(nn.Module):
    """Two such blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layer1 = Basic(8)
        self.layer2 = Basic(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = x.mean((2, 3))
        return self.fc(x)


class Attention(nn.Module):
    """Attention with a product of its own for queries, keys and values."""

    def __init__(self, width: int = 32, heads: int = 4, *, fused: bool = True) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x)
        q, k, v = qkv.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-1, -2)
            weights = torch.softmax(scores * 0.3, -1)
            y = weights @ v
        y = y.transpose(1, 2).reshape(batch, length, width)
        return self.out(y)


class Block(nn.Module):
    """The block of a transformer."""

    def __init__(self, width: int = 32, *, fused: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, fused=fused)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        h = self.attention(h)
        if self.dropout:
            h = functional.dropout(h, self.dropout, self.training)
        x = x + h
        h = self.norm2(x)
        h = self.up(h)
        h = functional.gelu(h)
        h = self.down(h)
        return x + h


class Transformer(nn.Module):
    """Two such blocks, and embeddings."""

    def __init__(self, *, fused: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.blocks = nn.ModuleList(Block(fused=fused, dropout=dropout) for _ in range(2))
        self.head = nn.Linear(32, 50)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class WithLoss(nn.Module):
    """A transformer whose loss is compiled too."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Transformer()

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.body(ids)
        flat = logits[:, :-1].reshape(-1, 50)
        target = ids[:, 1:].reshape(-1)
        return functional.cross_entropy(flat, target)


class Recurrent(nn.Module):
    """An LSTM cell in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Linear(8, 64)
        self.h = nn.Linear(16, 64)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], 16)
        c = h
        for step in range(3):
            gates = self.x(x[:, step])
            gates = gates + self.h(h)
            i, f, g, o = gates.chunk(4, 1)
            c = torch.sigmoid(f) * c
            c = c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.out(h)


class NormDropout(nn.Module):
    """Norms of several kinds, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(32, 32)
        self.group = nn.GroupNorm(4, 32)
        self.b = nn.Linear(32, 32)
        self.layer = nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = self.group(x)
        x = functional.dropout(x, 0.2, self.training)
        x = self.b(x)
        x = functional.silu(x)
        return self.layer(x)


class Broken(nn.Module):
    """Graphs that end in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b = nn.Linear(16, 16)
        self.c = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        torch._dynamo.graph_break()
        x = self.b(x)
        x = functional.relu(x)
        torch._dynamo.graph_break()
        return self.c(x)


class RmsNorm(nn.Module):
    """The norm of a Llama."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x


def rotated(x: Tensor) -> Tensor:
    """Rotate positions into queries and keys."""
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * 0.1
    a, b = x.chunk(2, -1)
    left = a * angle.cos() - b * angle.sin()
    right = a * angle.sin() + b * angle.cos()
    return torch.cat((left, right), -1)


class LlamaLayer(nn.Module):
    """A layer of a Llama: grouped queries without a mask, rotary embeddings, a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.input_norm = RmsNorm(32)
        self.q = nn.Linear(32, 32, bias=False)
        self.k = nn.Linear(32, 16, bias=False)
        self.v = nn.Linear(32, 16, bias=False)
        self.o = nn.Linear(32, 32, bias=False)
        self.norm = RmsNorm(32)
        self.gate = nn.Linear(32, 48, bias=False)
        self.up = nn.Linear(32, 48, bias=False)
        self.down = nn.Linear(48, 32, bias=False)

    def attend(self, x: Tensor) -> Tensor:
        """Attend to what came before."""
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, 4, 8).transpose(1, 2)
        k = self.k(x).view(batch, length, 2, 8).transpose(1, 2)
        v = self.v(x).view(batch, length, 2, 8).transpose(1, 2)
        q = rotated(q)
        k = rotated(k)
        k = k.repeat_interleave(2, 1)
        v = v.repeat_interleave(2, 1)
        y = functional.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).reshape(batch, length, 32)
        return self.o(y)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.input_norm(x))
        h = self.norm(x)
        gate = self.gate(h)
        up = self.up(h)
        h = functional.silu(gate) * up
        return x + self.down(h)


class Llama(nn.Module):
    """Two such layers."""

    def __init__(self, *, checkpoints: bool = False) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        self.embed = nn.Embedding(40, 32)
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(2))
        self.norm = RmsNorm(32)
        self.lm_head = nn.Linear(32, 40, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            if self.checkpoints:  # noqa: SIM108 -- a line for each
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        x = self.norm(x)
        return self.lm_head(x)


class Lora(nn.Module):
    """A frozen layer with an adapter of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(32, 32)
        self.base.requires_grad_(requires_grad=False)
        self.down = nn.Linear(32, 4, bias=False)
        self.up = nn.Linear(4, 32, bias=False)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        z = self.down(x)
        z = self.up(z)
        y = y + 0.5 * z
        y = functional.gelu(y)
        return self.head(y)


class Vit(nn.Module):
    """Patches of an image, and a transformer over them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.position = nn.Parameter(torch.zeros(16, 32))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        x = x.flatten(2).transpose(1, 2)
        x = x + self.position
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.mean(1))


class Residual(nn.Module):
    """Sequences of modules, added to what goes in."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.LayerNorm(32))
            for _ in range(2)
        )
        self.head = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def _one_by_one(model: nn.Module) -> nn.Module:
    """Compile the blocks of a model, which share their graphs where they are alike."""
    blocks: Any = model.blocks
    for number, block in enumerate(blocks):
        blocks[number] = torch.compile(block)
    return model


def _rows(*shape: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda _step: (torch.randn(*shape),)


def _ids(most: int, *shape: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda _step: (torch.randint(0, most, shape),)


def _growing(step: int) -> tuple[Tensor, ...]:
    return (torch.randn(4 + 2 * step, 16),)


TRAININGS: Final[dict[str, Training]] = {
    "mlp": Training(Mlp, _rows(8, 16)),
    "functional": Training(Functional, _rows(8, 16)),
    "conv": Training(ConvNet, _rows(2, 3, 8, 8)),
    "resnet": Training(ResNet, _rows(2, 3, 8, 8)),
    "attention": Training(Attention, _rows(2, 8, 32)),
    "softmax_attention": Training(lambda: Attention(fused=False), _rows(2, 8, 32)),
    "transformer": Training(Transformer, _ids(50, 2, 8)),
    "dropout_transformer": Training(lambda: Transformer(dropout=0.1), _ids(50, 2, 8)),
    "with_loss": Training(WithLoss, _ids(50, 2, 8)),
    "recurrent": Training(Recurrent, _rows(4, 3, 8)),
    "norm_dropout": Training(NormDropout, _rows(8, 32)),
    "graph_breaks": Training(Broken, _rows(8, 16)),
    "one_row": Training(Mlp, _rows(1, 16)),
    "dynamic": Training(Mlp, _growing),
    "llama": Training(Llama, _ids(40, 2, 8)),
    "checkpointed": Training(lambda: Llama(checkpoints=True), _ids(40, 2, 8)),
    "lora": Training(Lora, _rows(8, 32)),
    "vit_amp": Training(Vit, _rows(2, 3, 16, 16), autocast=True),
    "residual": Training(Residual, _rows(8, 32)),
    "one_by_one": Training(lambda: Transformer(fused=False), _ids(50, 2, 8), _one_by_one),
}
"""By name: what is compiled."""
