"""torch.compile compiles the same graphs, as often, with the annotation and without.

What it compiles belongs to the call that enters it, and its own work is no op.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.fx import symbolic_trace
from torch.utils.flop_counter import FlopCounterMode

from pyprof2 import load
from pyprof2.nvtx import annotate, compile_notes, init, shutdown
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

OLDER = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9)


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


@pytest.mark.skipif(OLDER, reason="torch before 2.9 compiles no generator of contextlib")
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


class Broken(nn.Module):
    """Two graphs, and between them an op that is not compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        scale = y.sum().item()  # between
        return cast("Tensor", self.last(y) * scale)


def double(x: Tensor) -> Tensor:
    return (x * 2).sum()


def train_broken(backend: str) -> Callable[[], None]:
    model = Broken()
    compiled = torch.compile(model, backend=backend)
    function = torch.compile(double, backend=backend)

    def step() -> None:
        out = compiled(torch.ones(2, 8))  # module
        function(out).backward()  # function

    return step


def line_of(comment: str) -> str:
    """Return where in this file a line is that ends with a comment."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{__file__}:{next(n for n, t in enumerate(lines, 1) if t.endswith(f'# {comment}'))}"


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_what_is_compiled_has_layer_and_line_of_the_call_that_enters_it(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "elsewhere"))
    recorder = Recorder()
    start(Options(), recorder.sink())
    step = train_broken(backend)
    step()
    before = len(recorder.ranges)
    step()

    matmuls = ("aten::addmm", "aten::mm")
    markers = [r.marker for r in recorder.ranges[before:] if r.op in matmuls and r.marker]
    assert {m.direction for m in markers} == {"forward", "backward"}
    assert {(m.layer, m.source) for m in markers} == {("Broken", line_of("module"))}
    read = [r for r in recorder.ranges[before:] if r.op == "aten::_local_scalar_dense"]
    # Frames of an older compiler have no lines of their own: the call's is the innermost.
    line = line_of("module" if OLDER else "between")
    assert [(r.layer, r.marker and r.marker.source) for r in read] == [("Broken", line)]
    sources = {m.source for r in recorder.ops() if (m := r.marker)}
    assert {s.rpartition(":")[0] for s in sources if s} == {__file__}


def test_a_compiled_function_has_the_line_of_its_call_and_no_layer() -> None:
    recorder = Recorder()
    start(Options(), recorder.sink())
    function = torch.compile(double, backend="aot_eager")
    for _ in range(2):
        function(torch.ones(3))  # call

    found = {(r.layer, m.source) for r in recorder.ops("aten::mul") if (m := r.marker)}
    assert found == {(None, line_of("call"))}


def test_a_graph_of_the_users_own_is_a_layer() -> None:
    recorder = Recorder()
    start(Options(), recorder.sink())
    symbolic_trace(nn.Sequential(nn.Linear(8, 4)))(torch.ones(2, 8))

    assert {r.layer for r in recorder.ops("aten::addmm")} == {"0"}


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.inner(x))


def profiled(folder: Path, run: Callable[[], object], *, with_stack: bool) -> Any:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities, record_shapes=True, with_stack=with_stack, with_modules=with_stack
    ) as profiler:
        run()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    return load(path)


def train_deep() -> Callable[[], None]:
    model = Deep()
    compiled = torch.compile(model, backend="aot_eager")

    def run() -> None:
        for _ in range(2):
            compiled(torch.ones(2, 8)).sum().backward()  # deep

    return run


def test_work_of_the_compiler_is_no_op_and_has_no_flops(tmp_path: Path) -> None:
    eager = Deep()
    with FlopCounterMode(display=False) as counter:
        eager(torch.ones(2, 8)).sum().backward()
    run = profiled(tmp_path, train_deep(), with_stack=False)

    names = set(run.ops["op"])
    assert "Torch-Compiled Region: 0/0" in names
    assert not {n for n in names if "dynamo" in n.lower() or "compile_" in n or "Python" in n}
    assert names.isdisjoint({"gc", "dynamo", "inductor_compile", "backend_compile"})
    kernels = run.profile(by="kernel")
    matmul = kernels[kernels["category"] == "matmul"]
    assert matmul["flops"].sum() == 2 * counter.get_total_flops()
    ignored = run.check()["finding"]
    assert any("torch.compile traced" in text for text in ignored)


def test_compiled_regions_in_a_trace_keep_layer_and_line_of_their_call(tmp_path: Path) -> None:
    init(sink="kineto")
    ops = profiled(tmp_path, train_deep(), with_stack=False).ops

    region = ops["op"].str.startswith("Torch-Compiled Region")
    function = ops["op"].isin(["CompiledFunction", "CompiledFunctionBackward"])
    found = ops[region | function]
    assert set(found["op"]) >= {"CompiledFunction", "CompiledFunctionBackward"}
    assert set(found["layer"]) == {"Deep"}
    assert {str(Path(__file__).parent / Path(s).name) for s in found["source"]} == {line_of("deep")}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.fc(x)).tanh()


class Blocks(nn.Module):
    """Blocks that are alike: what one compiles to, the others run."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("chosen", [(0, 1, 2), (1,)])
def test_modules_compiled_in_their_places_are_layers(
    tmp_path: Path, chosen: tuple[int, ...]
) -> None:
    init(sink="kineto")
    model = Blocks()
    for number in chosen:
        model.blocks[number].compile(backend="aot_eager")
    model(torch.ones(2, 8)).sum().backward()
    ops = profiled(tmp_path, lambda: model(torch.ones(2, 8)).sum().backward(), with_stack=False).ops

    for name in ("aten::tanh", "aten::tanh_backward"):
        found = sorted(ops[ops["op"] == name]["layer"])
        assert found == [f"blocks.{number}" for number in range(3)]
    own = ops[ops["op"] == "CompiledFunction"]["layer"].tolist()
    assert own == [f"blocks.{number}" for number in chosen]


def test_a_module_compiled_in_its_place_runs_on_when_the_annotation_has_ended() -> None:
    init()
    model, x = Block(), torch.ones(2, 8)
    counter = CompileCounter()
    model.compile(backend=counter)
    model(x)
    whole = torch.compile(nn.Sequential(model), backend="eager", fullgraph=True)
    assert torch.equal(whole(x), model(x))
    shutdown()

    assert torch.equal(model(x), model.fc(x).tanh())
    assert "compile" in nn.Module.compile.__qualname__
    assert counter.frame_count >= 1


def test_the_stack_of_a_trace_has_no_line_of_generated_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "elsewhere"))
    step = train_broken("inductor")
    step()
    run = profiled(tmp_path, step, with_stack=True)

    frames = run.ranges[run.ranges["kind"] == "python"]["name"]
    assert frames.str.contains("elsewhere").any()
    matmuls = run.ops[run.ops["op"].isin(["aten::addmm", "aten::mm"])]
    assert {Path(s).name.rpartition(":")[0] for s in matmuls["source"]} == {Path(__file__).name}


class _OlderGraph:
    """A compiled graph as torch 2.6 has it: a call of it is no range."""

    def __init__(self) -> None:
        self.current_callable = sum

    def __call__(self, inputs: list[int]) -> int:
        return self.current_callable(inputs)


def test_calls_of_graphs_are_ranges_with_their_key_where_torch_makes_none() -> None:
    graph = _OlderGraph()
    compile_notes._mark_calls(graph, "pyprof2-1-0")

    assert graph([1, 2]) == 3
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        assert graph([1, 2]) == 3
    names = [event.name for event in recorded.events()]
    assert names.count("## Call CompiledFxGraph pyprof2-1-0 ##") == 1


def test_what_is_of_forward_is_tagged_before_backward_runs_it_again() -> None:
    """Newer torch says it itself; where backward is not said either, nothing is known."""

    def tags(*given: str | None) -> list[str | None]:
        graph = torch.fx.Graph()
        nodes = [graph.placeholder("x")]
        for each in given:
            nodes.append(graph.call_function(torch.neg, (nodes[-1],)))
            if each is not None:
                nodes[-1].meta["partitioner_tag"] = each
        module = torch.fx.GraphModule(nn.Module(), graph)
        assert compile_notes._tagged(lambda gm, more: (gm, more), module, 1) == (module, 1)
        assert "partitioner_tag" not in nodes[0].meta
        return [node.meta.get("partitioner_tag") for node in nodes[1:]]

    assert tags(None, "is_backward", None) == ["is_forward", "is_backward", "is_forward"]
    assert tags(None, "must_be_in_backward") == [None, "must_be_in_backward"]
    assert tags("is_forward", None, "is_backward") == ["is_forward", None, "is_backward"]


@pytest.mark.skipif(OLDER, reason="torch before 2.9 makes none")
def test_torch_that_makes_these_ranges_itself_makes_them_alone() -> None:
    from torch._inductor.output_code import CompiledFxGraph

    graph = object.__new__(CompiledFxGraph)
    graph.current_callable = sum
    compile_notes._mark_calls(graph, "k")

    assert graph.current_callable is sum
