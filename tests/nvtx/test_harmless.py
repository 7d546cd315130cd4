"""A program does under the annotation what it does without: same results, ranges balanced."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import copy
import io
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from pyprof2.nvtx.annotation import shutdown, start
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import (
    Branches,
    Checkpointed,
    ConvNet,
    Gpt,
    Hooked,
    Mixed,
    Recurrent,
    Shared,
    Views,
    WithFunction,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def small_mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def gradients(make: Callable[[], nn.Module], *shape: int) -> list[Any]:
    """Return what a model computes, and the gradients of all that went in."""
    model = make()
    x = torch.randn(*shape, requires_grad=True)
    out = model(x)
    out.sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in model.parameters())]


def gpt() -> list[Any]:
    model = Gpt()
    out = model(torch.randint(0, 11, (2, 4)))
    functional.cross_entropy(out.view(8, 11), torch.randint(0, 11, (8,))).backward()
    return [out.detach(), *(p.grad for p in model.parameters())]


def an_op_that_raises() -> list[Any]:
    model = small_mlp()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        model(torch.randn(4, 9))
    with pytest.raises(IndexError):
        torch.randn(3)[5]
    return [model(torch.ones(4, 8)).detach()]


def a_forward_that_is_interrupted() -> list[Any]:
    class Interrupted(nn.Module):
        def forward(self, _x: Tensor) -> Any:
            raise KeyboardInterrupt

    model = nn.Sequential(nn.Linear(8, 8), Interrupted())
    with pytest.raises(KeyboardInterrupt):
        model(torch.ones(4, 8))
    return gradients(small_mlp, 4, 8)


def a_backward_that_raises() -> list[Any]:
    def fail(_grad: Tensor) -> Tensor:
        msg = "in a hook"
        raise ValueError(msg)

    x = torch.randn(4, requires_grad=True)
    y = x.exp()
    y.register_hook(fail)
    with pytest.raises(ValueError, match="in a hook"):
        y.sum().backward()
    return gradients(small_mlp, 4, 8)


def no_grad_and_inference_mode() -> list[Any]:
    model = ConvNet().eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        first = model(x)
    with torch.inference_mode():
        second = model(x) + functional.linear(torch.ones(5), torch.ones(5, 5))
    assert second.is_inference()
    return [first, second.clone()]


def double_backward() -> list[Any]:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(4, 8, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    grad.pow(2).sum().backward()
    return [grad.detach(), x.grad, *(p.grad for p in model.parameters())]


def transforms_of_func() -> list[Any]:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    parameters: Any = dict(model.named_parameters())

    def loss(values: Any, x: Tensor) -> Any:
        return torch.func.functional_call(model, values, (x,)).sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, torch.randn(4, 8))
    jacobian = torch.func.jacrev(lambda x: x.sin() * x.sum())(torch.randn(3))
    hessian = torch.func.hessian(lambda x: (x**3).sum())(torch.randn(3))
    zero_dim = torch.vmap(lambda x: x * 2 + 1)(torch.randn(3))
    return [*each.values(), jacobian, hessian, zero_dim]


def scripted_and_traced() -> list[Any]:
    model = small_mlp()
    x = torch.randn(4, 8)
    scripted = torch.jit.script(model)
    traced = torch.jit.trace(model, x)
    nodes = [node.kind() for node in traced.inlined_graph.nodes()]
    return [scripted(x).detach(), traced(x).detach(), nodes]


def exported() -> list[Any]:
    model = small_mlp()
    x = torch.randn(4, 8)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    strict = torch.export.export(model, (x,), dynamic_shapes=({0: batch},), strict=True)
    made = make_fx(lambda t: (t @ t.T).relu() + t.shape[0], tracing_mode="symbolic")(x)
    results = [program.module()(x), program.module()(x[:3]), strict.module()(x), made(x[:3])]
    return [*(r.detach() for r in results), program.graph_module.code, made.code]


def fake_and_meta_tensors() -> list[Any]:
    with FakeTensorMode():
        fake = small_mlp()(torch.empty(4, 8)).relu()
    meta = small_mlp().to("meta")(torch.empty(4, 8, device="meta"))
    return [tuple(fake.shape), type(fake).__name__, tuple(meta.shape), str(meta.device)]


def nested_tensors() -> list[Any]:
    parts = [torch.randn(2, 8), torch.randn(3, 8)]
    strided = torch.nested.nested_tensor(parts)
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    linear = nn.Linear(8, 4)
    return [t.detach() for n in (strided, jagged) for t in linear(n).relu().unbind()]


def sparse_tensors() -> list[Any]:
    dense = torch.randn(4, 4).relu()
    results = [
        (layout.matmul(dense) + dense) for layout in (dense.to_sparse(), dense.to_sparse_csr())
    ]
    embedding = nn.Embedding(10, 4, sparse=True)
    embedding(torch.tensor([1, 2, 2])).sum().backward()
    grad = embedding.weight.grad
    assert grad is not None
    return [*results, grad.to_dense(), dense.to_sparse().coalesce().values()]


class Logged(torch.Tensor):
    """A subclass that counts what it is asked."""

    calls: Final[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def a_subclass_with_torch_function() -> list[Any]:
    Logged.calls.clear()
    x = torch.randn(4, 4).as_subclass(Logged).requires_grad_()
    y = (x @ x).relu() * x
    y.sum().backward()
    return [y.detach().as_subclass(Tensor), type(y), type(x.grad), x.grad, list(Logged.calls)]


class Counting(torch.Tensor):
    """A wrapper subclass that runs ops on what it holds."""

    ops: Final[list[str]] = []
    held: Tensor

    @staticmethod
    def __new__(cls: Any, held: Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        cls.ops.append(str(func))
        plain = [getattr(a, "held", a) for a in args]
        result = func(*plain, **(kwargs or {}))
        return Counting(result) if isinstance(result, Tensor) else result


def a_subclass_with_torch_dispatch() -> list[Any]:
    Counting.ops.clear()
    x = Counting(torch.randn(4, 4))
    y = torch.relu(x @ torch.eye(4)) + 1
    return [getattr(y, "held", None), type(y), list(Counting.ops)]


class Names(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def modes_of_the_user() -> list[Any]:
    model = small_mlp()
    x = torch.randn(4, 8, requires_grad=True)
    with Names() as names:
        model(x).sum().backward()
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    with torch.device("meta"):
        meta = nn.Linear(3, 3)
    return [x.grad, names.seen, counter.get_total_flops(), str(meta.weight.device)]


def copies_and_files() -> list[Any]:
    model = small_mlp()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model, "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)["model"]
    copied = copy.deepcopy(model)
    return [model(torch.ones(4, 8)).detach(), loaded(torch.ones(4, 8)), copied(torch.ones(4, 8))]


def several_threads() -> list[Any]:
    makes: list[Callable[[], nn.Module]] = [small_mlp, Recurrent, Views, Branches]
    shapes = [(4, 8), (4, 3, 8), (4, 8), (4, 8)]
    models: list[nn.Module] = [make() for make in makes]
    inputs = [torch.randn(*shape) for shape in shapes]

    def run(index: int) -> Any:
        models[index](inputs[index]).sum().backward()
        return next(models[index].parameters()).grad

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(run, range(4)))


def a_sync_is_not_added() -> list[Any]:
    # A meta tensor has no value: who reads it fails.
    x = torch.empty((), device="meta")
    return [tuple((x + 1.0).shape), str(torch.add(x, x).device)]


def random_numbers() -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    return [
        torch.rand(3),
        torch.rand(3, generator=generator),
        nn.Dropout(0.5)(torch.ones(9)),
        torch.randperm(5),
    ]


def a_generator_of_batches() -> list[Any]:
    model = small_mlp()

    def outputs() -> Any:
        for index in range(3):
            yield model(torch.full((2, 8), float(index)))

    batches = outputs()
    first = next(batches)
    other = small_mlp()(torch.ones(2, 8))
    return [first.detach(), other.detach(), *(b.detach() for b in batches)]


def a_module_that_calls_itself() -> list[Any]:
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor, depth: int = 3) -> Any:
            return self.linear(x) if depth == 0 else self(x, depth - 1).tanh()

    return gradients(Recursive, 2, 8)


PROGRAMS: Final[dict[str, Callable[[], list[Any]]]] = {
    "an op that raises": an_op_that_raises,
    "a forward that is interrupted": a_forward_that_is_interrupted,
    "a backward that raises": a_backward_that_raises,
    "nested modules": gpt,
    "shared modules": partial(gradients, Shared, 4, 8),
    "a recursive module": a_module_that_calls_itself,
    "hooks": partial(gradients, Hooked, 4, 8),
    "autograd functions": partial(gradients, WithFunction, 4, 8),
    "in-place and views": partial(gradients, Views, 4, 8),
    "branches": partial(gradients, Branches, 4, 8),
    "recurrent": partial(gradients, Recurrent, 4, 3, 8),
    "checkpoint": partial(gradients, partial(Checkpointed, reentrant=False), 4, 8),
    "reentrant checkpoint": partial(gradients, partial(Checkpointed, reentrant=True), 4, 8),
    "autocast": partial(gradients, Mixed, 2, 4, 8),
    "no_grad and inference_mode": no_grad_and_inference_mode,
    "double backward": double_backward,
    "torch.func": transforms_of_func,
    "jit": scripted_and_traced,
    "export": exported,
    "fake and meta tensors": fake_and_meta_tensors,
    "nested tensors": nested_tensors,
    "sparse tensors": sparse_tensors,
    "a subclass with torch_function": a_subclass_with_torch_function,
    "a subclass with torch_dispatch": a_subclass_with_torch_dispatch,
    "modes of the user": modes_of_the_user,
    "deepcopy, save and load": copies_and_files,
    "threads": several_threads,
    "no sync": a_sync_is_not_added,
    "random numbers": random_numbers,
    "generators": a_generator_of_batches,
}


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


# Warnings of torch about its own betas.
@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore:.*torch.jit"
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_does_what_it_does_without(program: str) -> None:
    torch.manual_seed(1)
    without = PROGRAMS[program]()
    recorder = Recorder()
    torch.manual_seed(1)
    start(Options(), recorder.sink())
    result = PROGRAMS[program]()
    shutdown()

    assert same(result, without)
    assert recorder.is_balanced
    assert recorder.ops()


IMPORTS_IN_A_THREAD: Final = """
import sys, threading
from pyprof2.capture import script

def begin():
    thread = threading.Thread(target=__import__, args=["torch"], daemon=True)
    thread.start()
    thread.join(20)
    print(thread.is_alive())

sys.meta_path.insert(0, script._Watch(begin))
import torch
"""


def test_a_thread_can_import_torch_while_a_recording_begins_in_the_import_of_torch() -> None:
    """As the C++ of torch 2.6 does where it is first used on another thread."""
    command = [sys.executable, "-c", IMPORTS_IN_A_THREAD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
