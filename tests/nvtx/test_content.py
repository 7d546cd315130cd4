"""What the markers of a program say."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import inspect
import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import pyprof2.nvtx
from pyprof2.nvtx import annotate, wrap
from pyprof2.nvtx.annotation import shutdown, start
from pyprof2.nvtx.calls import VARYING_AFTER
from pyprof2.nvtx.options import Options
from pyprof2.signatures import Input, Scalar
from pyprof2.signatures import Tensor as Shape
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import Checkpointed, ConvNet, Gpt, Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

F32 = torch.ones(3, 4)
FALSE = Scalar(value=False)


def markers_of(run: Callable[[], object], **options: Any) -> Recorder:
    """Run something under an annotation with these options, and return what it recorded."""
    recorder = Recorder()
    start(Options(**options), recorder.sink())
    run()
    shutdown()
    return recorder


def inputs_of(run: Callable[[], object], op: str) -> tuple[Input, ...] | None:
    """Return the inputs of the first call of an op."""
    marker = markers_of(run).ops(op)[0].marker
    return marker.inputs if marker else None


@pytest.mark.parametrize(
    ("run", "op", "inputs"),
    [
        pytest.param(
            lambda: torch.mm(F32, F32.t()),
            "aten::mm",
            (Shape((3, 4), "f32"), Shape((4, 3), "f32", (1, 4))),
            id="strides where not contiguous",
        ),
        pytest.param(
            lambda: torch.addmm(torch.ones(4), torch.ones(2, 3), F32, beta=2),
            "aten::addmm",
            (Shape((4,), "f32"), Shape((2, 3), "f32"), Shape((3, 4), "f32"), Scalar(2), Scalar(1)),
            id="defaults too",
        ),
        pytest.param(
            lambda: F32 * 1.5,
            "aten::mul",
            (Shape((3, 4), "f32"), Shape((), "f64")),
            id="a float in place of a tensor",
        ),
        pytest.param(
            lambda: F32 + 1,
            "aten::add",
            (Shape((3, 4), "f32"), Shape((), "i64"), Scalar(1)),
            id="an int in place of a tensor",
        ),
        pytest.param(
            lambda: torch.cat([F32, F32.half().float()], 1),
            "aten::cat",
            ((Shape((3, 4), "f32"), Shape((3, 4), "f32")), Scalar(1)),
            id="a list of tensors",
        ),
        pytest.param(
            lambda: F32[torch.tensor([0, 1])],
            "aten::index",
            (Shape((3, 4), "f32"), (Shape((2,), "i64"),)),
            id="indices",
        ),
        pytest.param(
            lambda: F32[:, torch.tensor([0, 1])],
            "aten::index",
            (Shape((3, 4), "f32"), None),
            id="a missing index",
        ),
        pytest.param(
            lambda: functional.conv2d(torch.ones(1, 2, 5, 5), torch.ones(4, 2, 3, 3), stride=2),
            "aten::convolution",
            (
                Shape((1, 2, 5, 5), "f32"), Shape((4, 2, 3, 3), "f32"), None, Scalar([2, 2]),
                Scalar([0, 0]), Scalar([1, 1]), FALSE, Scalar([0, 0]), Scalar(1),
            ),
            id="a missing tensor",
        ),
        pytest.param(
            lambda: torch.zeros(2, 3, dtype=torch.bfloat16),
            "aten::zeros",
            (Scalar([2, 3]), Scalar(15), None, None, FALSE),
            id="a dtype by its number",
        ),
        pytest.param(
            lambda: torch.full_like(F32, float("-inf")),
            "aten::full_like",
            (Shape((3, 4), "f32"), Scalar("-inf"), None, None, None, FALSE, None),
            id="infinity",
        ),
        pytest.param(
            lambda: torch.bernoulli(F32, generator=torch.Generator()),
            "aten::bernoulli",
            (Shape((3, 4), "f32"), None),
            id="what has no value",
        ),
        pytest.param(
            lambda: torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last).relu(),
            "aten::relu",
            (Shape((2, 3, 4, 4), "f32", (48, 1, 12, 3)),),
            id="channels last",
        ),
        *(
            pytest.param(
                lambda name=name: torch.empty(2, dtype=getattr(torch, name)).view(1, 2),
                "aten::view",
                (Shape((2,), dtype), Scalar([1, 2])),
                id=name,
            )
            for name, dtype in {
                "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8",
                "bool": "bool", "complex64": "c64", "float8_e4m3fn": "f8e4m3", "int32": "i32",
            }.items()
        ),
    ],
)  # fmt: skip
def test_inputs_stand_in_the_order_of_the_schema(
    run: Callable[[], object], op: str, inputs: tuple[Input, ...]
) -> None:
    assert inputs_of(run, op) == inputs


def test_the_device_is_that_of_the_first_tensor_or_of_what_is_made() -> None:
    recorder = markers_of(lambda: (torch.empty(2, device="meta") + 1, torch.ones(2)))

    devices = [(marker.op, marker.device) for marker in recorder.markers("op")]
    assert devices == [("aten::empty", "meta"), ("aten::add", "meta"), ("aten::ones", "cpu")]


def test_the_same_shapes_on_another_device_are_another_text() -> None:
    def run() -> None:
        for device in ("cpu", "meta", "cpu"):
            torch.ones(2, device=device).neg()

    devices = [item.marker.device for item in markers_of(run).ops("aten::neg") if item.marker]

    assert devices == ["cpu", "meta", "cpu"]


def test_the_source_is_the_line_of_user_code_that_calls() -> None:
    linear = nn.Linear(4, 4)
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    recorder = markers_of(lambda: linear(F32).sum().backward())

    sources = {marker.source for marker in recorder.markers("op")}
    assert sources == {f"{__file__}:{line}"}


def test_layers_have_the_path_from_the_root_and_the_root_its_class() -> None:
    model = Gpt()
    recorder = markers_of(lambda: model(torch.zeros(1, 2, dtype=torch.int64)))

    layers = {marker.layer: marker.module for marker in recorder.markers("layer")}
    expected = {name: type(module).__name__ for name, module in model.named_modules()}
    expected["Gpt"] = expected.pop("")
    # A list of modules is never called itself.
    del expected["blocks"]
    assert layers == expected
    assert {item.layer for item in recorder.ops("aten::gelu")} == {
        "blocks.0.mlp.1",
        "blocks.1.mlp.1",
    }
    attention = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert {item.layer for item in recorder.ops(attention)} == {"blocks.0", "blocks.1"}


def test_ranges_of_layers_enclose_the_ops_in_them() -> None:
    model = Gpt()
    recorder = markers_of(lambda: model(torch.zeros(1, 2, dtype=torch.int64)))

    for op in recorder.ops("aten::addmm"):
        assert op.parent is not None
        assert (op.parent.marker and op.parent.marker.kind, op.parent.layer) == ("layer", op.layer)


def test_a_shared_module_has_its_first_path() -> None:
    model = Shared()
    recorder = markers_of(lambda: model(torch.ones(2, 8)))

    assert {item.layer for item in recorder.ops("aten::addmm")} == {"linear"}


def test_a_part_that_was_called_first_has_its_path_in_what_holds_it() -> None:
    model = Gpt()

    def run() -> None:
        model.get_submodule("blocks.0.mlp")(torch.ones(2, 8))
        model(torch.zeros(1, 2, dtype=torch.int64))

    layers = [item.layer for item in markers_of(run).ops("aten::gelu")]
    assert layers == ["blocks.0.mlp.1", "blocks.0.mlp.1", "blocks.1.mlp.1"]


def test_a_module_that_came_later_is_found_in_its_caller() -> None:
    model = nn.Sequential(nn.Linear(4, 4))

    def run() -> None:
        model(F32)
        model.append(nn.Sequential(nn.Linear(4, 4)))
        model(F32)

    assert [item.layer for item in markers_of(run).ops("aten::addmm")] == ["0", "0", "1.0"]


def test_models_that_come_and_go_have_layers_of_their_own() -> None:
    def run() -> None:
        for index in range(3):
            nn.Sequential(*(nn.Identity() for _ in range(index)), nn.Linear(4, 4))(F32)

    assert [item.layer for item in markers_of(run).ops("aten::addmm")] == ["0", "1", "2"]


def test_backward_names_the_forward_op_and_its_layer_and_line() -> None:
    model = ConvNet()
    recorder = markers_of(lambda: model(torch.ones(1, 3, 8, 8)).sum().backward())

    marker = recorder.ops("aten::convolution_backward")[-1].marker
    assert marker is not None
    assert (marker.direction, marker.forward, marker.layer) == (
        "backward", "aten::convolution", "conv_1",
    )  # fmt: skip
    forward = recorder.ops("aten::convolution")[0]
    assert forward.marker is not None
    assert marker.source == forward.marker.source


def test_adding_up_a_gradient_belongs_to_the_node_before_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model(F32).sum().backward()
    recorder = markers_of(lambda: model(F32).sum().backward())

    added = [item.marker for item in recorder.ops("aten::add_") if item.marker]
    assert [(m.accumulate, m.forward, m.layer) for m in added] == [(True, None, "0")] * 2


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_checkpointing_runs_again_is_forward_and_recompute(
    way: str, *, reentrant: bool
) -> None:
    model = Checkpointed(reentrant=reentrant)
    x = torch.randn(2, 8, requires_grad=True)
    recorder = markers_of(lambda: model(x).sum().backward())

    again = [m for m in recorder.markers("op") if m.recompute]
    assert {m.direction for m in again} == {"forward"}
    linear = sorted(m.layer or "" for m in again if m.op == "aten::addmm")
    sines = [m.layer for m in again if m.op == "aten::sin"]
    if reentrant:
        assert linear == ["inner.0", "inner.0", "inner.2", "inner.2"]
        assert sines == ["Checkpointed"]
    else:
        # This way stops as soon as everything is there that backward needs: a mode does not see the
        # op in which that is, the observer does.
        seen = way == "observer"
        assert linear == ["inner.0", "inner.0", *["inner.2"] * (1 + seen)]
        assert sines == ["Checkpointed"] * seen
    assert any(m.recompute and m.layer == "inner" for m in recorder.markers("layer"))


def test_a_function_that_is_checkpointed_is_recomputed_without_modules() -> None:
    x = torch.randn(3, requires_grad=True)

    def run() -> None:
        checkpoint(lambda t: t.sin().exp().sum(), x, use_reentrant=True).backward()

    again = [m.op for m in markers_of(run).markers("op") if m.recompute]
    assert [op for op in again if op in ("aten::sin", "aten::exp", "aten::sum")] == [
        "aten::sin", "aten::exp", "aten::sum",
    ]  # fmt: skip


def test_inference_is_forward() -> None:
    model = ConvNet().eval()

    def run() -> None:
        with torch.inference_mode():
            model(torch.ones(1, 3, 8, 8))

    recorder = markers_of(run)
    assert {m.direction for m in recorder.markers("op")} == {"forward"}
    assert all(item.sequence_nr is None for item in recorder.ops())


WAYS = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


@pytest.mark.parametrize("built", ["before", "after"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD, torch.optim.AdamW])
def test_an_optimizer_steps_as_without_and_is_marked(make: Any, way: str, built: str) -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(3):
            optimizer.zero_grad(set_to_none=False)
            model(torch.ones(4, 8)).pow(2).sum().backward()
            optimizer.step()

    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(Shared())
    expected, model = models
    train(expected, make(expected.parameters(), lr=0.01, **WAYS[way]))
    recorder = Recorder()
    optimizer = make(model.parameters(), lr=0.01, **WAYS[way]) if built == "before" else None
    start(Options(), recorder.sink())
    train(model, optimizer or make(model.parameters(), lr=0.01, **WAYS[way]))
    shutdown()

    assert all(map(torch.equal, model.parameters(), expected.parameters()))
    assert recorder.is_balanced
    assert [m.name for m in recorder.markers("optimizer")] == [make.__name__] * 3
    assert [m.name for m in recorder.markers("zero_grad")] == [make.__name__] * 3
    steps = recorder.ops(direction="optimizer")
    assert steps
    assert {item.layer for item in steps} == {None}
    for item in steps:
        assert item.parent is not None
        assert item.parent.marker is not None
        assert item.parent.marker.kind == "optimizer"


def test_an_optimizer_that_fails_leaves_its_scope() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter])

    def run() -> None:
        def closure() -> Any:
            msg = "no loss"
            raise ValueError(msg)

        with pytest.raises(ValueError, match="no loss"):
            optimizer.step(closure)
        torch.ones(2).neg()

    recorder = markers_of(run)
    assert recorder.is_balanced
    assert [m.direction for m in recorder.markers("op") if m.op == "aten::neg"] == ["forward"]


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_what_a_closure_runs_is_forward_and_backward(make: Any) -> None:
    def calls(*, inside: bool) -> Counter[Any]:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        optimizer = make(model.parameters())

        def closure() -> Any:
            optimizer.zero_grad(set_to_none=False)
            loss = functional.mse_loss(model(F32), F32)
            loss.backward()
            return loss

        def run() -> None:
            for _ in range(2):
                if not inside:
                    closure()
                optimizer.step(closure if inside else None)

        ops = markers_of(run).markers("op")
        return Counter((m.op, m.layer, m.direction, m.forward) for m in ops)

    found = calls(inside=True)
    assert found == calls(inside=False)
    assert found["aten::mse_loss", None, "forward", None] == 2
    assert found["aten::mse_loss_backward", None, "backward", "aten::mse_loss"] == 2


def test_an_optimizer_inside_of_backward_is_the_optimizer() -> None:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight])
    weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())

    recorder = markers_of(lambda: (F32 @ weight).exp().sum().backward())

    assert [m.op for m in recorder.markers("op") if m.direction == "optimizer"] == ["aten::add_"]
    backward = {m.op for m in recorder.markers("op") if m.direction == "backward"}
    assert backward >= {"aten::mul", "aten::mv"}


def test_clearing_gradients_and_loading_data_are_other() -> None:
    loader = DataLoader(TensorDataset(torch.arange(6.0).view(6, 1)), batch_size=2)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())

    def run() -> None:
        for (x,) in loader:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    recorder = markers_of(run)
    names = [m.name for m in recorder.markers("dataloader")]
    assert names == ["_SingleProcessDataLoaderIter"] * 4
    assert {item.op for item in recorder.ops(direction="other")} >= {"aten::stack", "aten::zero_"}


def train(steps: int, model: nn.Module | None = None, loader: Iterable[Any] | None = None) -> None:
    model = model or nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    for _, _ in zip(range(steps), loader or range(steps), strict=False):
        optimizer.zero_grad()
        model(F32).sum().backward()
        optimizer.step()


def test_only_the_steps_that_are_wanted_are_recorded() -> None:
    recorder = markers_of(lambda: train(6), steps=range(2, 4))

    assert recorder.is_balanced
    assert [m.step for m in recorder.markers("step") if m.event == "stepped"] == [2, 3]
    assert len(recorder.ops("aten::addmm")) == 2
    assert {item.layer for item in recorder.ops("aten::mm", "backward")} == {"Linear"}
    assert len(recorder.markers("layer")) == 2


def test_the_first_step_says_which_process_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")

    markers = markers_of(lambda: train(2)).markers("process")

    (marker,) = markers
    assert (marker.rank, marker.world_size, marker.torch) == (3, 8, str(torch.__version__))


def test_values_that_always_change_are_left_out_in_the_end() -> None:
    x = torch.ones(1000)

    def run() -> None:
        for index in range(500):
            x.select(0, index).clamp_(max=index * 0.5)
            x[: index + 1].mul_(index * 0.1)

    recorder = markers_of(run)
    selects = {item.marker.inputs for item in recorder.ops("aten::select") if item.marker}

    assert len(selects) == VARYING_AFTER + 1
    assert (Shape((1000,), "f32"), Scalar(0), None) in selects
    # The shapes do change: they are kept apart.
    shapes = {
        (item.marker.inputs or (None,))[0] for item in recorder.ops("aten::mul_") if item.marker
    }
    assert shapes == {Shape((size,), "f32") for size in range(1, 501)}
    assert len(recorder.texts) < 100


def test_texts_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyprof2.nvtx.sinks.TEXT_LIMIT", 50)
    monkeypatch.setattr("pyprof2.nvtx.catalog.SITES_AT_MOST", 20)

    def run() -> None:
        for size in [*range(150)] * 2:
            torch.ones(size).neg().abs()
            exec(compile(f"x = {size}; torch.ones(2).sin()", __file__ + str(size), "exec"))  # noqa: S102
            with annotate(f"range {size}"):
                pass

    recorder = markers_of(run)

    assert len(set(recorder.texts)) == len(recorder.texts) == 50
    assert recorder.is_balanced
    # What is not registered is copied: nothing is left out.
    marked = [item.marker for item in recorder.ops("aten::neg")]
    assert [m and m.inputs for m in marked] == [(Shape((n,), "f32"),) for n in [*range(150)] * 2]
    assert all(item.marker and item.marker.source for item in recorder.ops("aten::sin"))
    ranges = [item.text for item in recorder.ranges if item.marker is None]
    assert ranges == [f"range {n}" for n in [*range(150)] * 2]


def test_a_text_is_registered_when_it_comes_again() -> None:
    x = torch.ones(4)
    recorder = Recorder()
    start(Options(), recorder.sink())
    counts = []
    for _ in range(4):
        x.neg()
        counts.append(sum("aten::neg" in text for text in recorder.texts))

    assert counts == [0, 1, 1, 1]
    assert len({item.text for item in recorder.ops("aten::neg")}) == 1


def test_without_copies_every_text_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyprof2.nvtx.sinks.TEXT_LIMIT", 10)
    recorder = Recorder()
    start(Options(), replace(recorder.sink(), copied=None))
    for size in range(50):
        torch.ones(size).neg()

    found = [item.marker for item in recorder.ops("aten::neg")]
    assert [m and m.inputs for m in found] == [(Shape((n,), "f32"),) for n in range(50)]


def test_steps_and_batches_register_no_text_each() -> None:
    recorder, model = Recorder(), nn.Linear(4, 4)
    start(Options(cpu_peaks=False, energy=False), recorder.sink())
    counts = []
    for _ in range(3):
        train(40, model, DataLoader(TensorDataset(torch.zeros(50))))
        counts.append(len(recorder.texts))

    assert counts[1] == counts[2]
    steps = [m.step for m in recorder.markers("step") if m.event == "stepped"]
    assert steps == list(range(120))
    assert {"step" in json.loads(item.text) for item in recorder.marks} == {False}


@pytest.mark.usefixtures("way")
def test_an_argument_that_cannot_be_described_does_not_stop_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> Any:
        msg = "what is this?"
        raise TypeError(msg)

    monkeypatch.setattr("pyprof2.nvtx.schema.describe", fail)
    monkeypatch.setattr("pyprof2.nvtx.observed.describe_seen", fail)
    results: list[Tensor] = []
    recorder = markers_of(lambda: results.append(F32 + 1))

    assert torch.equal(results[0], torch.full((3, 4), 2.0))
    marker = recorder.ops("aten::add")[0].marker
    assert marker is not None
    assert marker.inputs == (None, None, None)


def test_where_shapes_change_every_call_has_its_inputs() -> None:
    x = torch.ones(2000)
    sizes = [*range(1, 1500), *range(1400, 1410)]

    def run() -> None:
        for size in sizes:
            x.narrow(0, 0, size).neg()

    recorder = markers_of(run)
    found = [marker.inputs for marker in recorder.markers("op") if marker.op == "aten::neg"]
    assert found == [(Shape((size,), "f32"),) for size in sizes]
    # Those that came twice, of two ops each.
    assert len(recorder.texts) < 40


def test_numbers_that_change_hide_no_shapes() -> None:
    tensors = [torch.ones(100), torch.ones(100, 2), torch.ones(100, 3)]
    recorder = markers_of(lambda: [x[index] for index in range(100) for x in tensors])

    found = [marker.inputs for marker in recorder.markers("op") if marker.op == "aten::select"]
    shapes = [Shape(tuple(x.shape), "f32") for x in tensors]
    assert [(inputs or (None,))[0] for inputs in found] == shapes * 100


def test_a_training_step_that_repeats_registers_nothing_new() -> None:
    recorder = Recorder()
    model = Gpt()
    optimizer = torch.optim.Adam(model.parameters())
    start(Options(), recorder.sink())
    counts = []
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
        optimizer.step()
        counts.append(len(recorder.texts))

    # The numbers that Adam computes change with every step.
    assert counts[-1] - counts[-2] < 40
    assert counts[2] - counts[1] < 120


@pytest.mark.parametrize(
    ("option", "field"), [("shapes", "inputs"), ("source", "source"), ("layers", "layer")]
)
def test_what_is_not_wanted_is_left_out(option: str, field: str) -> None:
    recorder = markers_of(lambda: train(2), **{option: False})

    assert recorder.is_balanced
    assert {getattr(marker, field) for marker in recorder.markers("op")} == {None}
    assert recorder.ops("aten::mm", "backward")


def test_without_scalars_only_tensors_are_inputs() -> None:
    recorder = markers_of(lambda: torch.ones(2, 3).sum(1, keepdim=True), scalars=False)

    marker = recorder.ops("aten::sum")[0].marker
    assert marker is not None
    assert marker.inputs == (Shape((2, 3), "f32"), None, None, None)


def test_ranges_of_the_users_own_are_recorded_as_they_are() -> None:
    @annotate("decorated")
    def function(depth: int) -> int:
        return function(depth - 1) if depth else 0

    def run() -> None:
        with annotate("outer"):
            torch.ones(2)
            with annotate("inner"):
                function(1)
        with torch.profiler.record_function("torch's own"):
            torch.ones(3)
        with pytest.raises(ValueError, match="x"), annotate("raises"):
            raise ValueError("x")  # noqa: EM101

    recorder = markers_of(run)
    texts = [item.text for item in recorder.ranges if item.marker is None]

    assert texts == ["outer", "inner", "decorated", "decorated", "torch's own", "raises"]
    assert recorder.is_balanced
    assert recorder.ops("aten::ones")[0].parent is recorder.ranges[0]


def test_without_annotation_ranges_and_wrapped_functions_do_nothing() -> None:
    class Holder:
        @staticmethod
        def double(x: int) -> int:
            return 2 * x

    wrap(Holder, "double")
    with annotate("nothing"):
        assert Holder.double(4) == 8


class Extension:
    """What a user might wrap."""

    scale = 2

    def method(self, x: Tensor, *, power: int = 1) -> Tensor:
        """Say something of itself."""
        return x**power * self.scale

    @staticmethod
    def static(x: Tensor, parts: list[Tensor]) -> Tensor:
        return x + parts[0]

    @classmethod
    def of_class(cls, x: Tensor) -> Tensor:
        return x * cls.scale


def test_a_wrapped_function_is_marked_like_an_op(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("method", "static", "of_class"):
        monkeypatch.setattr(Extension, name, inspect.getattr_static(Extension, name))
        wrap(Extension, name)
    wrap(Extension, "method")
    module = nn.Module()
    module.forward = lambda x: Extension().method(x, power=3)
    results: list[Any] = []

    def run() -> None:
        results.append(module(F32))
        results.append(Extension.static(F32, [F32, F32.half()]))
        results.append(Extension.of_class(F32))

    recorder = markers_of(run)
    home = f"{__name__}.Extension"
    marked = {m.op: m for m in recorder.markers("op") if m.op and m.op.startswith(home)}

    assert Extension.method.__doc__ == "Say something of itself."
    assert [torch.equal(r, e) for r, e in zip(results, [F32 * 2, F32 * 2, F32 * 2], strict=True)]
    assert list(marked) == [f"{home}::method", f"{home}::static", f"{home}::of_class"]
    method = marked[f"{home}::method"]
    shape = Shape((3, 4), "f32")
    assert method.inputs == (None, shape, Scalar(3))
    assert (method.layer, method.direction, method.device) == ("Module", "forward", "cpu")
    assert marked[f"{home}::static"].inputs == (shape, (shape, Shape((3, 4), "f16")))
    inside = recorder.ops("aten::pow")[0].parent
    assert inside is not None
    assert inside.op == f"{home}::method"
    assert recorder.is_balanced


def test_what_cannot_be_wrapped_is_said_in_one_line() -> None:
    from pyprof2.errors import UsageError

    with pytest.raises(UsageError, match="torch has no function 'nonsense'"):
        wrap(torch, "nonsense")
    with pytest.raises(UsageError, match="is no module and no class"):
        wrap(Extension(), "method")  # type: ignore[arg-type]


def test_the_package_exports_what_users_need() -> None:
    assert sorted(pyprof2.nvtx.__all__) == ["annotate", "init", "shutdown", "step", "wrap"]


def test_a_detach_is_marked_where_the_program_calls_it(recorder: Recorder) -> None:
    """Autograd copies the handles of saved tensors; modes see that as a detach."""
    x = torch.ones(2, requires_grad=True)
    x.exp().sum().backward()
    copied = len(recorder.ops("aten::detach"))
    x.detach()
    with torch.no_grad():
        x.detach()
    shutdown()

    # Accumulating the first gradient of a leaf is a detach that autograd does call.
    assert copied == 1
    assert len(recorder.ops("aten::detach")) == 3
