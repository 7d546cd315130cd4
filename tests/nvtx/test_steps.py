"""A training step is what ends in the step of an optimizer; evaluation belongs to none.

Real programs, recorded on the spot: by torch.profiler, and by a sink in place of NVTX. What is
expected is what the program itself notes: it calls an op of its own for each place.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, TensorDataset

import pyprof2
from pyprof2.nvtx.annotation import init, shutdown, start
from pyprof2.nvtx.options import Options
from pyprof2.parsers._steps import OpSpan, StepMark, find_steps
from tests.nvtx.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Found = dict[str, list[int | None]]

pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")

X: Final = torch.ones(4, 4)
PLACES: Final = {"train": "aten::sinh", "eval": "aten::cosh", "after": "aten::atanh"}
"""Ops that nothing else calls, one for each place in a program."""


def here(place: str) -> None:
    """Call the op of a place; it makes no gradients."""
    with torch.no_grad():
        getattr(torch, PLACES[place].removeprefix("aten::"))(X / 2)


class Model(nn.Module):
    """Notes where it is called from: with gradients, it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here("train" if torch.is_grad_enabled() else "eval")
        result: torch.Tensor = self.linear(x)
        return result


class Program:
    """A model and its optimizer, and what programs do with them."""

    def __init__(self) -> None:
        self.model = Model()
        self.optimizer = torch.optim.SGD(self.model.parameters())

    def train(self, x: torch.Tensor = X) -> None:
        self.gradients(x)
        self.optimizer.step()

    def gradients(self, x: torch.Tensor = X) -> None:
        self.model(x).sum().backward()

    def evaluate(self, count: int = 3) -> None:
        self.model.eval()
        with torch.no_grad():
            for _ in range(count):
                self.model(X)
        self.model.train()


def loader(batches: int) -> Any:
    return DataLoader(TensorDataset(torch.ones(2 * batches, 4)), batch_size=2)


def in_kineto(run: Callable[[], object], folder: Path, **options: Any) -> Found:
    """Return the steps in which the ops of each place were, as a recording of a profiler has it."""
    init(sink="kineto", **options)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    shutdown()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    ops = pyprof2.load(folder / "trace.json").ops
    return {
        place: [None if str(n) == "<NA>" else int(n) for n in ops[ops["op"] == op]["step"]]
        for place, op in PLACES.items()
    }


def in_nvtx(run: Callable[[], object], _folder: Path, **options: Any) -> Found:
    """Return the same from what NVTX gets; time is the order."""
    recorder = Recorder()
    start(Options(**options), recorder.sink())
    run()
    shutdown()
    marks = [
        StepMark(mark.at, 0, 0, mark.marker.step, mark.marker.event)
        for mark in recorder.marks
        if mark.marker and mark.marker.kind == "step"
    ]
    ops = recorder.ops()
    span = OpSpan(ops[0].at, ops[-1].at)
    steps = find_steps(marks, span, recorder.count)
    return {
        place: [
            next((s.number for s in steps if s.mark.start_ns < item.at < s.end_ns), None)
            for item in recorder.ops(op)
        ]
        for place, op in PLACES.items()
    }


ways = pytest.mark.parametrize("found_in", [in_kineto, in_nvtx])


@ways
def test_evaluation_between_steps_belongs_to_no_step(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        program = Program()
        for index in range(4):
            program.train()
            if index % 2:
                program.evaluate()

    found = found_in(run, tmp_path)
    assert found["train"] == [0, 1, 2, 3]
    assert found["eval"] == [None] * 6


@ways
@pytest.mark.parametrize("where", ["after the step", "after the wait for a batch"])
def test_evaluation_beside_a_data_loader_belongs_to_no_step(
    found_in: Any, where: str, tmp_path: Path
) -> None:
    def evaluate(program: Program) -> None:
        with torch.no_grad():
            for (x,) in loader(2):
                program.model(x)

    def run() -> None:
        program = Program()
        evaluate(program)
        for (x,) in loader(3):
            if where == "after the wait for a batch":
                evaluate(program)
                program.evaluate(1)
            program.train(x)
            if where == "after the step":
                evaluate(program)

    found = found_in(run, tmp_path)
    assert found["train"] == [0, 1, 2]
    assert set(found["eval"]) == {None}


@ways
def test_a_frozen_teacher_is_part_of_the_step_that_waited_for_its_batch(
    found_in: Any, tmp_path: Path
) -> None:
    def run() -> None:
        program, teacher = Program(), Model().eval().requires_grad_(requires_grad=False)
        for (x,) in loader(3):
            with torch.no_grad():
                teacher(x)
            program.train(x)

    found = found_in(run, tmp_path)
    assert found["train"] == found["eval"] == [0, 1, 2]


@ways
def test_an_op_after_a_finished_loop_makes_no_step(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        program = Program()
        for (x,) in loader(3):
            program.train(x)
        here("after")

    found = found_in(run, tmp_path)
    assert found["train"] == [0, 1, 2]
    assert found["after"] == [None]


@ways
def test_what_comes_between_evaluation_and_the_next_step_is_in_none(
    found_in: Any, tmp_path: Path
) -> None:
    def run() -> None:
        program = Program()
        program.train()
        with torch.no_grad():
            for (x,) in loader(2):
                program.model(x)
        here("after")
        program.train()

    found = found_in(run, tmp_path)
    assert found["train"] == [0, 1]
    assert set(found["eval"] + found["after"]) == {None}


@ways
def test_gradients_of_several_batches_are_one_step(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        program = Program()
        for index, (x,) in enumerate(loader(6)):
            program.gradients(x)
            if index % 3 == 2:
                program.optimizer.step()

    assert found_in(run, tmp_path)["train"] == [0, 0, 0, 1, 1, 1]


@ways
def test_what_no_optimizer_ends_is_no_step(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        program = Program()
        program.train()
        program.gradients()

    assert found_in(run, tmp_path)["train"] == [0, None]


@ways
@pytest.mark.parametrize("critics", [1, 3])
def test_optimizers_that_take_turns_share_a_step(
    found_in: Any, critics: int, tmp_path: Path
) -> None:
    """An optimizer that steps again begins the next step; the other joins the step it follows."""

    def run() -> None:
        critic, generator = Program(), Program()
        for _ in range(3):
            for _ in range(critics):
                critic.train()
            generator.train()

    expected = {1: [0, 0, 1, 1, 2, 2], 3: [0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8]}
    assert found_in(run, tmp_path)["train"] == expected[critics]


@ways
def test_optimizers_inside_of_backward_share_a_step(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        model = Model()
        for parameter in model.parameters():
            optimizer = torch.optim.SGD([parameter])
            parameter.register_post_accumulate_grad_hook(lambda _, o=optimizer: o.step())
        for _ in range(3):
            model(X).sum().backward()

    assert found_in(run, tmp_path)["train"] == [0, 1, 2]


@ways
def test_a_closure_is_in_the_step_of_its_optimizer(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        program = Program()
        for _ in range(3):
            program.optimizer.step(program.gradients)

    assert found_in(run, tmp_path)["train"] == [0, 1, 2]


@ways
def test_without_an_optimizer_each_batch_is_a_step(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        program = Program()
        with torch.no_grad():
            for (x,) in loader(3):
                program.model(x)
            here("after")

    found = found_in(run, tmp_path)
    assert found["eval"] == [0, 1, 2]
    assert found["after"] == [None]


@ways
def test_without_optimizer_and_data_loader_there_are_no_steps(
    found_in: Any, tmp_path: Path
) -> None:
    def run() -> None:
        program = Program()
        program.gradients()
        program.evaluate()

    found = found_in(run, tmp_path)
    assert set(found["train"] + found["eval"]) == {None}


@ways
def test_what_the_program_says_of_steps_wins(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        program = Program()
        for _ in range(3):
            program.train()
            program.evaluate(1)
            program.train()
            pyprof2.step()
        program.train()

    found = found_in(run, tmp_path)
    assert found["train"] == [0, 0, 1, 1, 2, 2, None]
    assert found["eval"] == [0, 1, 2]


@ways
def test_a_program_without_modules_says_its_steps(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        for _ in range(3):
            here("train")
            pyprof2.step()
        here("after")

    found = found_in(run, tmp_path)
    assert found["train"] == [0, 1, 2]
    assert found["after"] == [None]


@ways
def test_training_without_modules_has_steps_from_the_first_optimizer_step_on(
    found_in: Any, tmp_path: Path
) -> None:
    """Nothing says where the first one begins."""

    def run() -> None:
        weight = nn.Parameter(torch.ones(4))
        optimizer = torch.optim.SGD([weight])
        for _ in range(3):
            here("train")
            (X @ weight).sum().backward()
            optimizer.step()

    assert found_in(run, tmp_path)["train"] == [None, 1, 2]


@ways
def test_wanted_steps_are_recorded_whole(found_in: Any, tmp_path: Path) -> None:
    def run() -> None:
        program = Program()
        for index, (x,) in enumerate(loader(6)):
            program.train(x)
            if index in (1, 3):
                program.evaluate()

    found = found_in(run, tmp_path, steps=range(2, 4))
    assert Counter(n for n in found["train"] if n is not None) == {2: 1, 3: 1}
    assert set(found["eval"]) <= {None}
    if found_in is in_nvtx:
        assert found["train"] == [2, 3]
        assert found["eval"] == [None] * 3


def test_steps_of_the_profiler_stay(tmp_path: Path) -> None:
    def run() -> None:
        program = Program()
        for number in (7, 8):
            with record_function(f"ProfilerStep#{number}"):
                program.train()
                program.evaluate(1)

    found = in_kineto(run, tmp_path)
    assert found["train"] == found["eval"] == [7, 8]


def test_steps_without_annotation_do_nothing() -> None:
    pyprof2.step()


def test_another_thread_makes_no_steps(tmp_path: Path) -> None:
    import threading

    def run() -> None:
        program, other = Program(), Program()
        program.train()
        thread = threading.Thread(target=partial(other.train, X))
        thread.start()
        thread.join()
        program.train()

    assert in_nvtx(run, tmp_path)["train"] == [0, 0, 1]
