"""torch.compile compiles the same graphs, as often, with the annotation and without."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from pyprof2.nvtx import annotate, init, shutdown
from pyprof2.nvtx.annotation import start
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import Gpt, Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def _compile_from_scratch() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def train(compiled: Callable[..., Any], model: nn.Module, x: Tensor) -> list[Any]:
    model.zero_grad()
    out = compiled(x)
    out.sum().backward()
    return [out.detach(), *(p.grad for p in model.parameters())]


MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "gpt": (Gpt, torch.randint(0, 11, (2, 4))),
    "shared": (Shared, torch.randn(4, 8)),
    "a module of torch": (lambda: nn.Linear(8, 8), torch.randn(4, 8)),
}


@pytest.mark.parametrize("begins", ["before compiling", "after compiling"])
@pytest.mark.parametrize("name", MODELS)
def test_one_full_graph_is_compiled_once(name: str, begins: str) -> None:
    make, x = MODELS[name]
    model = make()
    without = train(model, model, x)
    counter: Any = CompileCounter()
    recorder = Recorder()
    if begins == "before compiling":
        start(Options(), recorder.sink())
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    train(compiled, model, x)
    result = train(compiled, model, x)
    if begins == "after compiling":
        start(Options(), recorder.sink())
        result = train(compiled, model, x)
    shutdown()
    train(compiled, model, x)

    assert counter.frame_count == 1
    assert all(map(torch.equal, result, without))
    assert recorder.is_balanced
    assert recorder.ops()


def test_a_method_of_a_module_that_compiles_itself_is_one_full_graph() -> None:
    recorder = Recorder()
    start(Options(), recorder.sink())
    model, counter = Shared(), CompileCounter()
    model.compile(backend=counter, fullgraph=True)
    train(model, model, torch.randn(4, 8))

    assert counter.frame_count == 1


def test_a_graph_that_breaks_breaks_in_the_same_places() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x.sin() + 1
        torch._dynamo.graph_break()
        return y.cos() * x

    counts = []
    x = torch.randn(4)
    for annotated in (False, True):
        torch._dynamo.reset()
        if annotated:
            start(Options(), Recorder().sink())
        counter: Any = CompileCounter()
        result = torch.compile(broken, backend=counter)(x)
        counts.append((counter.frame_count, counter.op_count))
        shutdown()

        assert torch.equal(result, broken(x))
    assert counts[0] == counts[1]


def test_backward_of_a_compiled_model_is_marked() -> None:
    recorder = Recorder()
    start(Options(), recorder.sink())
    model = Shared()
    train(torch.compile(model, backend="aot_eager"), model, torch.randn(4, 8))
    shutdown()

    assert recorder.is_balanced
    assert recorder.ops("aten::mm", "backward")


def test_a_range_of_the_users_own_does_not_break_a_graph() -> None:
    @annotate("whole")
    def function(x: Tensor) -> Tensor:
        with annotate("part"):
            return x.sin() + 1

    start(Options(), Recorder().sink())
    counter: Any = CompileCounter()
    x = torch.randn(4)

    result = torch.compile(function, backend=counter, fullgraph=True)(x)

    assert counter.frame_count == 1
    assert torch.equal(result, x.sin() + 1)


def test_a_running_profiler_makes_nothing_compile_again() -> None:
    init(sink="kineto")
    model, counter = Shared(), CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    x = torch.randn(4, 8)
    train(compiled, model, x)
    with torch.profiler.profile():
        train(compiled, model, x)
    train(compiled, model, x)

    assert counter.frame_count == 1
