"""Backward that PyTorch records here and now: several threads, second derivatives, checkpoints."""

from __future__ import annotations

import json
import re
import threading
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.analysis.summaries.checks import find_lacks
from pyprof2.analysis.summaries.findings import findings_table
from pyprof2.parsers.formats import advice_of
from tests.kineto_events import rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

pytest.importorskip("torch", reason="it records with torch.profiler")

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.torch


def record(run: Callable[[], object], path: Path, *, all_threads: bool = False) -> Path:
    config = torch._C._profiler._ExperimentalConfig(verbose=True, profile_all_threads=all_threads)
    torch.manual_seed(0)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        record_shapes=True, with_stack=True, with_modules=True, experimental_config=config,
    ) as profiler:  # fmt: skip
        run()
    profiler.export_chrome_trace(str(path))
    return path


def in_thread(*runs: Callable[[], object]) -> None:
    threads = [threading.Thread(target=run) for run in runs]
    for thread in threads:
        thread.start()
        thread.join()


def makers(run: Run) -> dict[tuple[str, int], tuple[str, int] | None]:
    """For each node, by name and start, the op that made it."""
    table = run.table("ops")
    calls = rows(table, "op", "start_ns")
    pairs = zip(calls, rows(table, "forward_op_id"), strict=True)
    is_node = re.compile(r"\w+Backward\d*").fullmatch
    return {
        call: None if forward is None else calls[forward]
        for call, forward in pairs
        if is_node(call[0])
    }


# Autograd inside of a node


class _Own(torch.autograd.Function):
    """It computes its forward again in backward, and differentiates that by itself."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return (x @ w).relu()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        with torch.enable_grad():
            x, w = (saved.detach().requires_grad_() for saved in ctx.saved_tensors)
            grads = torch.autograd.grad((x @ w).relu(), (x, w), grad)
        return grads[0] * 2, grads[1]


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> Any:
        return _Own.apply(x, self.weight)  # type: ignore[no-untyped-call]


def test_what_a_node_differentiates_by_itself_has_its_layer(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), _Layer(), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters())
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _: optimizer.step()
        )

    run = pyprof2.load(
        record(lambda: model(torch.ones(2, 4)).sum().backward(), tmp_path / "t.json")
    )

    ops = run.ops
    (node,) = ops.index[ops["op"] == "_OwnBackward"]
    ends = ops["start_ns"] + ops["dur_ns"]
    inside = ops[(ops["start_ns"] >= ops["start_ns"][node]) & (ends <= ends[node])]
    assert {"aten::mm", "aten::relu", "MmBackward0", "aten::threshold_backward"} <= {*inside["op"]}
    assert {*inside["layer"]} == {"Sequential_0._Layer_0"}
    steps = ops[ops["direction"] == "optimizer"]
    assert len(steps)
    assert steps["layer"].isna().all()


# Threads


def test_a_forward_thread_that_was_not_recorded_has_no_stand_in(tmp_path: Path) -> None:
    """Its nodes number as the ops of the main thread do, which has nothing to do with them."""
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.randn(4, 4, requires_grad=True)
    losses: list[Any] = []

    def train() -> None:
        (x.exp() * 2).sin().cos().sigmoid()
        in_thread(lambda: losses.append(net(torch.randn(4, 8)).sum()))
        losses[0].backward()

    run = pyprof2.load(record(train, tmp_path / "t.json"))

    found = makers(run)
    assert sorted(name for name, _ in found) == sorted(
        ["AddmmBackward0"] * 2 + ["TBackward0"] * 2 + ["SumBackward0", "TanhBackward0"]
    )
    assert set(found.values()) == {None}
    lacks = findings_table(find_lacks(run.summary, run.tables.manifest, advice_of(["kineto"])))
    lost = lacks[lacks["finding"].str.startswith("autograd nodes whose forward thread")]
    assert lost["count"].tolist() == [6]


class Replicas:
    """Trains as `DataParallel` does: each iteration runs forward in two new threads."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU())
        self.last = nn.Linear(16, 1)

    def forward(self, losses: list[Any], *, whole: bool) -> None:
        hidden = self.net[:3](torch.randn(4, 8))
        out = self.last(self.net[3:](hidden))
        losses.append((out if whole else hidden).sum())

    def __call__(self) -> None:
        for iteration in range(4):
            losses: list[Any] = []
            whole = iteration % 2 == 1
            in_thread(*[partial(self.forward, losses, whole=whole)] * 2)
            sum(losses).backward()


def recorded_pairs(events: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[str, int]]:
    """The recorder's own pairs: the ops that start where its flows begin and end."""
    names = {
        (e["tid"], e["ts"]): e["name"]
        for e in events
        if e.get("cat") == "cpu_op" and not e["name"].startswith("autograd::")
    }
    sides: dict[Any, dict[str, tuple[str, int]]] = {}
    for e in events:
        if e.get("cat") == "fwdbwd":
            call = names[e["tid"], e["ts"]], int(Decimal(repr(e["ts"])) * 1000)
            sides.setdefault(e["id"], {})[e["ph"]] = call
    return {side["f"]: side["s"] for side in sides.values()}


@pytest.mark.parametrize("lacking", ["nothing", "flows", "flows and threads' numbers"])
def test_replicas_in_new_threads_pair_as_the_recorder_ties_them(
    tmp_path: Path, lacking: str
) -> None:
    path = record(Replicas(), tmp_path / "t.json", all_threads=True)
    trace = json.loads(path.read_text())
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") != "python_function"]
    wanted = recorded_pairs(trace["traceEvents"])
    assert len({start for _, start in wanted.values()}) == len(wanted) > 40
    if lacking != "nothing":
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") != "fwdbwd"]
    for event in trace["traceEvents"]:
        if "numbers" in lacking and event.get("args", {}).get("Fwd thread id"):
            event["args"]["Fwd thread id"] = 0
    path.write_text(json.dumps(trace))

    run = pyprof2.load(path)

    found = makers(run)
    tied = {node for node in wanted if found[node] is None}
    assert {node: found[node] for node in wanted if node not in tied} == {
        node: maker for node, maker in wanted.items() if node not in tied
    }
    # Without flows, nothing tells which of two replicas a node is of.
    assert bool(tied) == (lacking != "nothing")


# Second derivatives


class Penalty(nn.Module):
    """Two layers; `run` trains on the gradient of the output."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x: Any) -> Any:
        return self.second(torch.tanh(self.first(x)))

    def run(self) -> None:
        for _ in range(2):
            x = torch.randn(4, 8, requires_grad=True)
            (gradient,) = torch.autograd.grad(self(x).sum(), x, create_graph=True)
            ((gradient.norm() - 1) ** 2).backward()


def test_a_pass_of_backward_that_is_recorded_is_backward(tmp_path: Path) -> None:
    run = pyprof2.load(record(Penalty().run, tmp_path / "t.json"))

    ops = run.ops
    assert not ops["recompute"].any()
    formula = ops[ops["op"] == "aten::tanh_backward"]
    # In an iteration: in the first pass, in its own derivative, and in the node of tanh at last.
    assert formula["direction"].tolist() == ["backward"] * 6
    products = ops[ops["op"] == "aten::mm"]
    assert set(products["direction"]) == {"backward"}


def test_nodes_of_a_second_derivative_belong_to_the_first_pass(tmp_path: Path) -> None:
    run = pyprof2.load(record(Penalty().run, tmp_path / "t.json"))

    ops = run.ops.set_index("op_id")
    second = ops[ops["op"].isin(["MmBackward0", "TanhBackwardBackward0"])]
    makers_of = ops.loc[second["forward_op_id"].astype(int)]
    assert set(zip(second["op"], makers_of["op"], strict=True)) == {
        ("MmBackward0", "aten::mm"), ("TanhBackwardBackward0", "aten::tanh_backward"),
    }  # fmt: skip
    assert set(makers_of["direction"]) == {"backward"}
    # The second derivative runs through the layers in the order of forward.
    wanted = ["Penalty_0.Linear_0", "Penalty_0", "Penalty_0.Linear_1"] * 2
    assert second.sort_values("start_ns")["layer"].tolist() == wanted


# Checkpoints


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.second(torch.tanh(self.first(x)))


class Checkpointed(nn.Module):
    """Blocks, of which each is run again in backward, and those inside of `nested` twice."""

    def __init__(self, *, reentrant: bool, nested: bool) -> None:
        super().__init__()
        self.reentrant, self.nested = reentrant, nested
        self.blocks = nn.ModuleList([Block(), Block()])

    def again(self, run: Any, x: Any) -> Any:
        return checkpoint(run, x, use_reentrant=self.reentrant)

    def both(self, x: Any) -> Any:
        for block in self.blocks:
            x = self.again(block, x)
        return x

    def forward(self, x: Any) -> Any:
        return self.again(self.both, x) if self.nested else self.both(x)

    def run(self) -> None:
        self(torch.randn(4, 8, requires_grad=True)).sum().backward()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(
    ("reentrant", "nested", "count"),
    [
        pytest.param(True, False, 4, id="reentrant"),
        pytest.param(False, False, 4, id="not reentrant"),
        pytest.param(True, True, 4 + 4, id="nested, reentrant: the outer one runs all"),
        pytest.param(False, True, 2 + 4, id="nested: the outer one stops before the last block"),
    ],
)
def test_what_a_checkpoint_runs_again_is_recompute_with_the_layers_of_forward(
    tmp_path: Path, *, reentrant: bool, nested: bool, count: int
) -> None:
    net = Checkpointed(reentrant=reentrant, nested=nested)

    run = pyprof2.load(record(net.run, tmp_path / "t.json"))

    ops = run.ops
    products = ops[ops["op"] == "aten::addmm"]
    again = products[products["recompute"]]
    forward = products[~products["recompute"]]
    assert (len(forward), len(again)) == (4, count)
    assert set(again["direction"]) == {"forward"}
    assert set(again["layer"]) == set(forward["layer"])
    assert ops.loc[ops["op"].str.fullmatch(r"AddmmBackward0"), "forward_op_id"].notna().all()
    assert not ops.loc[ops["op"].str.endswith("_backward"), "recompute"].any()


class Shared(nn.Module):
    """A layer that two blocks share, behind a checkpoint that each of them has."""

    class Part(nn.Module):
        def __init__(self, layer: Any, *, reentrant: bool) -> None:
            super().__init__()
            self.layer, self.reentrant = layer, reentrant

        def forward(self, x: Any) -> Any:
            return checkpoint(self.layer, x, use_reentrant=self.reentrant)

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        block = Block()
        self.a, self.b = (self.Part(block, reentrant=reentrant) for _ in "ab")

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x))

    def run(self) -> None:
        self(torch.randn(4, 8, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_of_a_shared_layer_the_pair_tells_which_of_its_paths_ran_again(
    tmp_path: Path, *, reentrant: bool
) -> None:
    run = pyprof2.load(record(Shared(reentrant=reentrant).run, tmp_path / "t.json"))

    products = run.ops[run.ops["op"] == "aten::addmm"].sort_values("start_ns")
    of_part = [f"Shared_0.Part_{part}.Block_0.Linear_{layer}" for part in "01" for layer in "01"]
    # Backward begins with the part that ran last.
    assert products["layer"].tolist() == of_part + of_part[2:] + of_part[:2]
    assert products["recompute"].tolist() == [False] * 4 + [True] * 4


class Once(torch.autograd.Function):
    """Runs autograd itself in backward, as libraries with checkpoints of their own do."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return torch.tanh(x @ weight)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            y = torch.tanh(x @ weight)
        return torch.autograd.grad(y, (x, weight), gradient)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.before = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        once: Any = Once
        return once.apply(self.before(x), self.weight)

    def run(self) -> None:
        self(torch.randn(4, 8)).sum().backward()


def test_a_gradient_after_a_node_that_ran_autograd_has_the_layer_of_that_node(
    tmp_path: Path,
) -> None:
    run = pyprof2.load(record(Outer().run, tmp_path / "t.json"))

    ops = run.ops.sort_values("start_ns")
    outer = ops[ops["op"] == "OnceBackward"].iloc[0]
    after = ops[ops["start_ns"] > outer["start_ns"] + outer["dur_ns"]]
    gradient = after[after["op"] == "torch::autograd::AccumulateGrad"].iloc[0]
    assert (outer["layer"], gradient["layer"]) == ("Outer_0", "Outer_0")
    products = ops[ops["op"] == "aten::mm"]
    # Forward, the same again, and its two gradients.
    assert products["recompute"].tolist()[:4] == [False, True, False, False]
