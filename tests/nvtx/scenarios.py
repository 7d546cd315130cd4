"""Small programs in which it is hard to say which forward op a backward op belongs to."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Any:
        batch, time, width = x.shape
        q, k, v = (
            self.qkv(self.norm_1(x)).view(batch, time, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        )
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    def __init__(self, words: int = 11, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.conv_2 = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(4 * 4 * 4, 5)

    def forward(self, x: Tensor) -> Any:
        x = functional.relu(self.norm(self.conv_1(x)), inplace=True)
        x = x + self.conv_2(x)
        return self.head(self.dropout(x.flatten(1)))


class Views(nn.Module):
    """Writes into views, which makes autograd rebase the history of their bases."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        y = self.first(x) * 1.0
        y[0].mul_(3)
        y[:, 2:4].add_(1).clamp_(min=0)
        y = y.t().contiguous().t()
        z = self.second(y)
        z += y
        z.unsqueeze_(0)
        padded = torch.zeros(4, 8)
        padded[1:3] = z[0, :2]
        return z.sum() + padded.sum()


class ScaledExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.exp() * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x.exp() * 2


class WithFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        return ScaledExp.apply(self.linear(ScaledExp.apply(x * 0.1)))


class Shared(nn.Module):
    """Uses one module five times."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.twice = nn.Sequential(self.linear, nn.Tanh(), self.linear)

    def forward(self, x: Tensor) -> Any:
        return self.linear(self.twice(self.twice(x)))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(8, 8)
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Any:
        x = checkpoint(self.inner, self.first(x), use_reentrant=self.reentrant)
        return checkpoint(lambda t: self.inner(t).sin(), x, use_reentrant=self.reentrant)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8, 2, batch_first=True)
        self.cell = nn.GRUCell(8, 8)

    def forward(self, x: Tensor) -> Any:
        states, _ = self.lstm(x)
        return self.cell(states[:, -1])


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.scripted = torch.jit.script(inner)

    def forward(self, x: Tensor) -> Any:
        return self.scripted(self.linear(x)).sum()


def _multiply_gradient(_module: nn.Module, grads: Any, _outputs: Any) -> Any:
    return (grads[0] * 1.0,)


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.first.register_full_backward_hook(_multiply_gradient)
        self.second.weight.register_hook(lambda grad: grad * 2.0)

    def forward(self, x: Tensor) -> Any:
        hidden = self.first(x)
        hidden.register_hook(lambda grad: grad.clone())
        return self.second(hidden)


class Mixed(nn.Module):
    """Autocast, attention, and a part without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self.linear(x)
            hidden, _ = self.attention(hidden, hidden, hidden)
        with torch.no_grad():
            scale = (hidden * 2).sum()
        return hidden.float() * scale


class Branches(nn.Module):
    """Gradients of several branches add up."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.arms = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        return torch.stack([arm(x).tanh() for arm in self.arms]).sum(0) * x


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int = 2) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(x)
        functional.cross_entropy(out.view(-1, out.shape[-1]), y).backward()
        optimizer.step()


def backward_twice(make: Callable[[], nn.Module], *shape: int) -> None:
    model = make()
    for _ in range(2):
        model(torch.randn(*shape, requires_grad=True)).sum().backward()


def train_mlp() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5))
    train(model, torch.randn(4, 8), torch.randint(0, 5, (4,)))


def train_convnet() -> None:
    train(ConvNet(), torch.randn(2, 3, 8, 8), torch.randint(0, 5, (2,)))


def train_gpt() -> None:
    train(Gpt(), torch.randint(0, 11, (2, 4)), torch.randint(0, 11, (8,)))


def train_encoder() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        layer(torch.randn(2, 8, 32)).pow(2).mean().backward()
        optimizer.step()


def double_backward() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(4, 8, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    grad.pow(2).sum().backward()


def per_sample_gradients() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    parameters = dict(model.named_parameters())

    def loss(values: Any, x: Tensor) -> Any:
        return torch.func.functional_call(model, values, (x,)).sum()

    torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, torch.randn(4, 8))


def retained_graph() -> None:
    model = Branches()
    loss = model(torch.randn(4, 8)).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def threads(*, at_once: bool = True) -> None:
    """Train different models on threads: on each the same numbers mean other ops."""
    targets: list[Callable[[], None]] = [
        train_mlp,
        train_convnet,
        train_gpt,
        partial(backward_twice, Recurrent, 4, 3, 8),
    ]
    workers = [threading.Thread(target=target) for target in targets]
    for worker in workers:
        worker.start()
        if not at_once:
            worker.join()
    for worker in workers:
        worker.join()


def backward_on_another_thread() -> None:
    """Make a graph here and run it there, where other graphs were made."""
    loss = Branches()(torch.randn(4, 8)).sum()

    def run() -> None:
        train_convnet()
        loss.backward()

    worker = threading.Thread(target=run)
    worker.start()
    worker.join()


SCENARIOS: Final[dict[str, Callable[[], None]]] = {
    "mlp": train_mlp,
    "convnet": train_convnet,
    "gpt": train_gpt,
    "encoder": train_encoder,
    "views": partial(backward_twice, Views, 4, 8),
    "function": partial(backward_twice, WithFunction, 4, 8),
    "shared": partial(backward_twice, Shared, 4, 8),
    "checkpoint": partial(backward_twice, partial(Checkpointed, reentrant=False), 4, 8),
    "reentrant": partial(backward_twice, partial(Checkpointed, reentrant=True), 4, 8),
    "recurrent": partial(backward_twice, Recurrent, 4, 3, 8),
    "scripted": partial(backward_twice, Scripted, 4, 8),
    "hooks": partial(backward_twice, Hooked, 4, 8),
    "mixed": partial(backward_twice, Mixed, 2, 4, 8),
    "branches": partial(backward_twice, Branches, 4, 8),
    "retained graph": retained_graph,
    "double backward": double_backward,
    "func": per_sample_gradients,
    "threads": threads,
    "threads in turn": partial(threads, at_once=False),
    "other thread": backward_on_another_thread,
}
