"""Models beside each other: each module has a path of its own, whose root is named."""

from __future__ import annotations

import copy
import threading
import weakref
from collections import OrderedDict, deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import nn

from pyprof2.nvtx.annotation import shutdown, start
from pyprof2.nvtx.layers import NUMBERS_AT_MOST
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.ones(2, 4)
Name = tuple[str | None, str | None]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


def names(run: Callable[[], Any]) -> list[Name]:
    """Return root and layer of each call of a Linear."""
    recorder = Recorder()
    start(Options(cpu_peaks=False, energy=False), recorder.sink())
    run()
    shutdown()
    markers = [item.marker for item in recorder.ops("aten::addmm")]
    return [(marker.root, marker.layer) for marker in markers if marker]


class Lit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec = small(), small()
        self.hidden = [small()]
        self.loss = nn.Linear(4, 4)

    def training_step(self, x: torch.Tensor) -> torch.Tensor:
        def closure() -> torch.Tensor:
            return torch.stack([self.loss(self.dec(self.enc(each))) for each in (x,)])[0]

        result: torch.Tensor = self.hidden[0](closure())
        return result


class Trainer:
    def __init__(self, model: Lit) -> None:
        self.model = model
        self.ema = copy.deepcopy(model)
        self.more = {"first": small()}

    def fit(self) -> None:
        self.model.training_step(X)

    def parts(self) -> None:
        self.model.enc(X)
        self.ema.enc(X)
        self.more["first"](X)


def test_roots_have_the_names_of_their_variables() -> None:
    teacher, student = small(), small()

    def run() -> None:
        for _ in range(2):
            teacher(X)
            student(X)

    assert names(run) == [("teacher", "0"), ("student", "0")] * 2


def test_the_module_whose_method_calls_its_parts_is_the_root() -> None:
    found = names(lambda: Trainer(Lit()).fit())

    paths = ["enc.0", "dec.0", "loss", "hidden.0.0"]
    assert found == [("model", path) for path in paths]


def test_modules_that_an_object_holds_have_the_names_of_its_attributes() -> None:
    found = names(lambda: Trainer(Lit()).parts())

    assert found == [("model", "enc.0"), ("ema", "enc.0"), ("more.first", "0")]


@dataclass(frozen=True, slots=True)
class Slots:
    gen: nn.Module
    disc: nn.Module


@dataclass
class Fields:
    gen: nn.Module
    disc: nn.Module


class Named(NamedTuple):
    gen: nn.Module
    disc: nn.Module


class Plain:
    def __init__(self, gen: nn.Module, disc: nn.Module) -> None:
        self.gen, self.disc = gen, disc


@pytest.mark.parametrize(
    ("hold", "wanted"),
    [
        (lambda *both: both, ["models.0", "models.1"]),
        (lambda *both: list(both), ["models.0", "models.1"]),
        (lambda *both: deque(both), ["models.0", "models.1"]),
        (lambda *both: dict(zip("ab", both, strict=True)), ["models.a", "models.b"]),
        (lambda *both: OrderedDict(zip("ab", both, strict=True)), ["models.a", "models.b"]),
        (lambda *both: {1: both[0], "1": both[1]}, ["models.1", "models.1#2"]),
        (lambda *both: {"x": [both]}, ["models.x.0.0", "models.x.0.1"]),
        (Slots, ["models.gen", "models.disc"]),
        (Fields, ["models.gen", "models.disc"]),
        (Named, ["models.gen", "models.disc"]),
        (Plain, ["models.gen", "models.disc"]),
        (lambda *both: SimpleNamespace(gen=both[0], disc=both[1]), ["models.gen", "models.disc"]),
    ],
)
def test_models_that_are_held_together_are_apart(hold: Any, wanted: list[str]) -> None:
    class Job:
        def __init__(self) -> None:
            self.called = small(), small()
            self.models = hold(*self.called)
            self.refs = [weakref.ref(each) for each in self.called]
            del self.called

        def step(self) -> None:
            for ref in self.refs:
                ref()(X)  # type: ignore[misc]

    found = names(Job().step)

    assert found == [(root, "0") for root in wanted]


def test_a_comprehension_names_what_the_function_around_it_holds() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nets = (small(), small())

        def training_step(self) -> None:
            assert len([net(X) for net in self.nets]) == 2

    class Job:
        def __init__(self) -> None:
            self.parts = [Own(), Own()]

        def fit(self) -> None:
            assert all(part.training_step() is None for part in self.parts)  # type: ignore[func-returns-value]

    found = names(Job().fit)
    assert [layer for _, layer in found] == 2 * ["nets.0.0", "nets.1.0"]
    assert len({root for root, _ in found}) == 2
    one, other = small(), small()
    assert names(lambda: [net(X) for net in (one, other)]) == [("one", "0"), ("other", "0")]


def test_keys_that_are_written_alike_are_two_paths() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.extra = {1: small(), "1": small()}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.extra["1"](self.extra[1](x))
            return result

    model = Own()
    assert [layer for _, layer in names(lambda: model(X))] == ["extra.1.0", "extra.1#2.0"]


def test_the_name_of_a_root_is_no_path_below_another() -> None:
    class First:
        def __init__(self) -> None:
            self.models = (small(),)

    class Second:
        def __init__(self) -> None:
            self.models = nn.Sequential(nn.Linear(4, 4))

    first, second = First(), Second()

    def run(job: Any, model: nn.Module) -> None:
        self = job
        model(X)
        del self

    def run_both() -> None:
        run(first, first.models[0])
        run(second, second.models)

    found = names(run_both)
    assert len({f"{root}.{layer}" for root, layer in found}) == 2


def test_a_variable_that_holds_the_module_is_its_root() -> None:
    def run() -> None:
        gan = Lit()
        gan.enc(X)
        gan.loss(X)
        gan.training_step(X)

    assert {root for root, _ in names(run)} == {"gan"}


def test_each_object_of_a_name_has_a_number() -> None:
    def run() -> None:
        for _ in range(3):
            model = small()
            model(X)
        models = [small(), small()]
        for each in models:
            each(X)
        others = [small(), small()]
        others[1](X)

    assert names(run) == [
        ("model", "0"), ("model#2", "0"), ("model#3", "0"), ("each", "0"), ("each#2", "0"),
        ("others.1", "0"),
    ]  # fmt: skip


def test_roots_without_modules_have_their_class() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)

    def run() -> None:
        for _ in range(2):
            first(X)
            second(X)

    assert names(run) == [(None, "Linear"), (None, "Linear#2")] * 2


def test_numbers_of_objects_that_are_gone_come_again() -> None:
    kept = nn.Linear(4, 4)

    def run() -> None:
        kept(X)
        for _ in range(3 * NUMBERS_AT_MOST):
            nn.Linear(4, 4)(X)

    first, *found = names(run)
    assert first not in found
    assert len({*found}) == NUMBERS_AT_MOST - 1


def test_what_torch_compile_puts_around_a_module_is_that_module() -> None:
    def run() -> None:
        model = small()
        model(X)
        compiled = torch.compile(model, backend="eager")
        compiled(X)
        model(X)

    assert {root for root, _ in names(run)} == {"model"}


def test_an_average_of_a_model_is_another_one() -> None:
    def run() -> None:
        model = small()
        average = torch.optim.swa_utils.AveragedModel(model)
        average(X)
        model(X)
        average.module(X)

    assert names(run) == [("average", "module.0"), ("model", "0"), ("average", "module.0")]


def test_threads_name_what_they_call() -> None:
    def work(net: nn.Module) -> None:
        net(X)

    def run() -> None:
        threads = [threading.Thread(target=work, args=(small(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(names(run)) == [("net", "0"), ("net#2", "0"), ("net#3", "0")]


def test_a_module_that_makes_its_parts_when_it_is_called() -> None:
    class Lazy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "fc"):
                self.fc = nn.Linear(4, 4)
            result: torch.Tensor = self.fc(x)
            return result

    def run() -> None:
        lazy = Lazy()
        lazy(X)
        lazy(X)

    assert names(run) == [("lazy", "fc")] * 2


def test_what_the_program_deletes_is_gone() -> None:
    """To look for a name must not keep what is in the variables of the frame."""
    left: list[object] = []

    def run() -> None:
        model, large = small(), torch.ones(4)
        own = locals()
        model(X)
        left.append(own["model"] is model and own["large"] is large)

    def other() -> None:
        model, large = small(), torch.ones(4)
        watched = weakref.ref(large)
        model(X)
        del large
        left.append(watched())

    names(run)
    names(other)
    assert left == [True, None]
