"""The observer in C++ says what the dispatch mode says, or what is right; and changes nothing.

The mode is the oracle: where the two differ, the name of the autograd node has to prove it wrong.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from pyprof2.nvtx import annotation, observers
from pyprof2.nvtx.annotation import shutdown, start
from pyprof2.nvtx.observed import Asked
from pyprof2.nvtx.options import Options
from tests.nvtx.oracle import Expected, Oracle, knows_op, names_agree
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import SCENARIOS, Gpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyprof2.markers import Marker

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(observers.observer() is None, reason="there is no observer here"),
    pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:.*torch.jit"),
]

QUIET: Final[dict[str, Any]] = {"cpu_peaks": False, "energy": False}


class Seen(NamedTuple):
    """An op that was marked, and what the node says in which it ran."""

    marker: Marker
    expected: Expected | None


def marked(run: Callable[[], object], monkeypatch: pytest.MonkeyPatch, way: str) -> list[Seen]:
    """Return the ops of a program as they were marked in one way, on all threads in turn."""
    monkeypatch.setenv("PYPROF2_OBSERVER", "0" if way == "mode" else "1")
    torch.manual_seed(0)
    recorder, oracle = Recorder(), Oracle()
    expected: dict[int, Expected | None] = {}
    recorder.watch = lambda pushed: expected.__setitem__(pushed.at, oracle.expect())
    with oracle.watching():
        start(Options(**QUIET), recorder.sink())
        try:
            run()
        finally:
            shutdown()
    assert recorder.is_balanced
    return [Seen(op.marker, expected[op.at]) for op in recorder.ops() if op.marker]


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Train once: what torch imports then may call ops."""
    train()


# -- what is marked ------------------------------------------------

SAME: Final = {"aten::add_": "aten::add", "aten::_reshape_alias": "aten::view"}
"""Ops that a mode has autograd do in another way."""

ONE_SIDED: Final = {
    "aten::detach", "aten::detach_", "aten::empty",  # of `torch.tensor`, and of handles
    "aten::clone",  # of a view that is written into, and of a layout
    "aten::addmm", "aten::sin",  # where a recomputation stops, which a mode does not see
    "aten::t", "aten::transpose",  # inside of transforms
}  # fmt: skip
"""Ops that one way has alone, and why."""

ALONE: Final = [name for name in SCENARIOS if name not in ("threads", "scripted")]
"""Scenarios whose ops come in one order. (A script is run in another way the second time.)"""

ONE_THREAD: Final = [name for name in ALONE if name not in ("threads in turn", "other thread")]
"""Those of them whose ops are on the thread that begins a recording by torch.profiler."""


def pairs(first: list[Seen], second: list[Seen]) -> Iterator[tuple[Seen, Seen]]:
    """Yield the same op in both; the others must be known to differ."""
    names = [[SAME.get(s.marker.op or "", s.marker.op or "") for s in o] for o in (first, second)]
    only = Counter[str]()
    for tag, i, j, k, m in SequenceMatcher(None, names[0], names[1], autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(first[i:j], second[k:m], strict=True)
        else:
            only.update(names[0][i:j])
            only.update(names[1][k:m])
    assert set(only) <= ONE_SIDED


def is_proved_wrong(mode: Seen, observed: Seen) -> bool:
    """Return whether the node says that the mode is wrong, or nothing, and the observer not."""
    expected = observed.expected
    if expected is None or not knows_op(expected):
        return expected is not None and expected.node == "torch::autograd::CopySlices"
    return names_agree(observed.marker, expected) and not (
        expected.source and observed.marker.source != expected.source and mode.marker.source
    )


@pytest.mark.parametrize("name", ALONE)
def test_ops_are_marked_as_by_the_mode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_mode = marked(SCENARIOS[name], monkeypatch, "mode")
    observed = marked(SCENARIOS[name], monkeypatch, "observer")

    count = 0
    for left, right in pairs(by_mode, observed):
        count += 1
        a, b = left.marker, right.marker
        same = (a.layer, a.root, a.direction, a.recompute, a.accumulate, a.device)
        assert same == (b.layer, b.root, b.direction, b.recompute, b.accumulate, b.device)
        tensors = [_tensors(marker) for marker in (a, b)]
        assert tensors[0] == tensors[1], a.op
        forward = [SAME.get(marker.forward or "", marker.forward) for marker in (a, b)]
        if forward[0] != forward[1] or a.source != b.source:
            assert is_proved_wrong(left, right), (a, b)
    assert count > 40


def _tensors(marker: Marker) -> list[Any]:
    """Return the inputs, save numbers that one of two names of an op has more."""
    inputs = marker.inputs or ()
    return [item for item in inputs if hasattr(item, "shape") or isinstance(item, tuple)]


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        z = self.linear(x).clone()
        z[:, 1] = 0.5
        z.clamp_(min=-1)
        return z


def test_a_write_after_one_into_a_view_owns_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = marked(
        lambda: Written()(torch.randn(4, 8)).sum().backward(), monkeypatch, "observer"
    )

    inside = [s for s in observed if s.expected and s.expected.node == "ClampBackward1"]
    assert inside
    assert {seen.marker.forward for seen in inside} == {"aten::clamp_"}
    line = next(s.marker.source for s in observed if s.marker.op == "aten::clamp_")
    assert {seen.marker.source for seen in inside} == {line}


def test_backward_knows_forward_of_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
        nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)),
    ]

    def run() -> None:
        losses: dict[int, Tensor] = {}

        def forward(index: int) -> None:
            model: Any = models[index]
            losses[index] = model(torch.ones(2, model[0].in_features)).sum()

        for index in range(2):
            worker = threading.Thread(target=forward, args=(index,))
            worker.start()
            worker.join()
        (losses[0] + losses[1]).backward()

    observed = marked(run, monkeypatch, "observer")
    backward = [s for s in observed if s.expected and knows_op(s.expected)]
    wrong = [s for s in backward if not names_agree(s.marker, s.expected)]  # type: ignore[arg-type]
    assert len(backward) > 30
    assert wrong == []
    assert {s.marker.layer for s in backward} >= {"0", "1", "2"}


def loss(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


TRANSFORMED: Final[dict[str, Any]] = {
    "grad": lambda: torch.func.grad(loss)(torch.ones(3)),
    "grad of grad": lambda: torch.func.grad(lambda x: torch.func.grad(loss)(x).sum())(
        torch.ones(3)
    ),
    "vmap of grad": lambda: torch.func.vmap(torch.func.grad(loss))(torch.ones(4, 3)),
    "grad of vmap": lambda: torch.func.grad(lambda x: torch.func.vmap(torch.sin)(x).sum())(
        torch.ones(4, 3)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_ops_inside_of_transforms_have_the_numbers_of_their_nodes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def facts(way: str) -> list[Any]:
        monkeypatch.setenv("PYPROF2_OBSERVER", "0" if way == "mode" else "1")
        recorder = Recorder()
        start(Options(**QUIET), recorder.sink())
        try:
            TRANSFORMED[name]()
        finally:
            shutdown()
        assert recorder.is_balanced
        # An op makes a node for each transform around it: which of them it names is as good.
        ranks: dict[int, int] = {}
        return [
            (
                m.op, m.direction, m.forward, m.source,
                None if o.sequence_nr is None else ranks.setdefault(o.sequence_nr, len(ranks)),
            )
            for o in recorder.ops() if (m := o.marker)
        ]  # fmt: skip

    observed = facts("observer")
    assert {fact[0] for fact in observed if fact[1] == "backward"} >= {"aten::cos", "aten::mul"}
    assert all(fact[-1] is not None for fact in observed if fact[1] == "backward")
    assert observed == facts("mode")


def test_ops_are_known_as_soon_as_they_are_marked_inside_of_backward() -> None:
    recorder = Recorder()
    start(Options(**QUIET), recorder.sink())
    try:
        session = annotation._current.session
        assert session is not None
        x = torch.ones(3, requires_grad=True)
        y = x.sin()
        z = y.cos()
        z.register_hook(lambda _: session.write(recording=True))
        end = z.exp().sum()
        session.write(recording=False)
        end.backward()
        x.tanh()
    finally:
        shutdown()

    ops = [o.marker for o in recorder.ops() if o.marker]
    backward = [(m.op, m.forward) for m in ops if m.direction == "backward" and not m.accumulate]
    assert backward == [
        ("aten::sin", "aten::cos"), ("aten::neg", "aten::cos"), ("aten::mul", "aten::cos"),
        ("aten::cos", "aten::sin"), ("aten::mul", "aten::sin"),
    ]  # fmt: skip
    assert [m.op for m in ops if m.direction == "forward"][-1] == "aten::tanh"


def test_marks_of_our_own_are_no_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    site = Asked.site

    def noted(self: Asked, name: str, *args: Any) -> tuple[int, int, int]:
        asked.append(name)
        return site(self, name, *args)

    monkeypatch.setattr(Asked, "site", noted)
    start(Options(sink="kineto", **QUIET), None)
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            train()
    finally:
        shutdown()

    assert "aten::addmm" in asked
    assert [name for name in asked if "{" in name] == []


# -- what runs ------------------------------------------------


def train() -> None:
    model = Gpt()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
        optimizer.step()


def branches() -> None:
    """Add up the gradients of a leaf that is used three times."""
    x = torch.ones(1 << 16, requires_grad=True)
    (x * 2 + x * 3 + x * 4).sum().backward()


def recorded(run: Callable[[], object]) -> tuple[list[str], int]:
    """Return the ops that torch.profiler sees, in order, and the bytes that are allocated."""
    torch.manual_seed(0)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        run()
    events: Any = profiler.events()
    ops = [event for event in events if event.name.startswith("aten::")]
    names = [
        op.name for op in sorted(ops, key=lambda op: (op.time_range.start, -op.time_range.end))
    ]
    return names, sum(max(0, op.self_cpu_memory_usage) for op in ops)


@pytest.mark.parametrize("run", [train, branches])
def test_what_runs_is_what_runs_without(run: Callable[[], None]) -> None:
    without, again = recorded(run), recorded(run)
    recorder = Recorder()
    start(Options(sink="nvtx", **QUIET), recorder.sink())
    found = recorded(run)
    shutdown()

    assert found[0] == without[0]
    # With some versions of torch one run does not allocate what the next one does.
    assert found[1] == without[1] or again[1] != without[1]
    assert recorder.ops()


# -- NVTX itself ------------------------------------------------


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a profiler that only listens."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("listener") / "listener.so"
    source = Path(__file__).with_name("listener.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", path], check=True)
    return path


def listened(listener: Path, folder: Path, code: str) -> dict[str, int]:
    """Run a program whose ranges somebody hears, and return how many there were."""
    environment = os.environ | {
        "NVTX_INJECTION64_PATH": str(listener), "NVTX_LISTENER_COUNTS": str(folder / "counts"),
        "NVTX_LISTENER_OUT": str(folder / "out"), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=ROOT)
    counts: dict[str, int] = json.loads((folder / "counts").read_text())
    return counts


TRAINS: Final = """
import threading, torch
import pyprof2.nvtx
from tests.nvtx.test_observer import train
from tests.nvtx.scenarios import threads
pyprof2.nvtx.init(cpu_peaks=False, energy=False)
train()
threads()
try:
    torch.ones(2, 3) @ torch.ones(2, 3)
except RuntimeError:
    pass
pyprof2.nvtx.shutdown()
"""


@pytest.mark.slow
def test_a_listener_gets_balanced_ranges(listener: Path, tmp_path: Path) -> None:
    counts = listened(listener, tmp_path, TRAINS)

    assert counts["pushes"] == counts["pops"] > 1000
    assert counts["surplus"] == 0
    depths = Counter[str]()
    for line in (tmp_path / "out").read_text().splitlines():
        what, thread, *_ = line.split(" ", 2)
        depths[thread] += {"+": 1, "-": -1}.get(what, 0)
        assert depths[thread] >= 0
    assert set(depths.values()) == {0}


MANY: Final = """
import torch
import pyprof2.nvtx
from pyprof2.nvtx import sinks
sinks.TEXT_LIMIT = 100
pyprof2.nvtx.init(cpu_peaks=False, energy=False)
for _ in range(2):
    for size in range(300):
        torch.ones(size).neg()
pyprof2.nvtx.shutdown()
"""


def test_texts_are_limited_and_nothing_is_dropped(listener: Path, tmp_path: Path) -> None:
    counts = listened(listener, tmp_path, MANY)

    assert counts["registered"] <= 100
    assert counts["pushes"] == 2 * 300 * 2
    shapes = [f'"shape":[{size}]' for size in range(300)]
    text = (tmp_path / "out").read_text()
    assert all(text.count(shape) >= 1 for shape in shapes)


# -- where it is not ------------------------------------------------


@pytest.fixture
def _looks_anew() -> Iterator[None]:
    """Have the observer looked for anew, and say so; afterwards the one that is there is used."""
    found = observers._observer()
    observers._observer.cache_clear()
    observers._say.cache_clear()
    yield
    observers._observer.cache_clear()
    with mock.patch.object(observers, "_load", return_value=found):
        observers._observer()


@pytest.mark.usefixtures("_looks_anew")
def test_without_a_compiler_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "")
    with caplog.at_level(logging.WARNING, "pyprof2"):
        assert observers.observer() is None
        assert observers.observer() is None

    expected = f"{observers.LACKS_RANGES} (there is no C++ compiler)"
    assert [r.getMessage() for r in caplog.records] == [expected]


@pytest.mark.usefixtures("_looks_anew")
def test_a_compiler_that_fails_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiler = tmp_path / "fails"
    compiler.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\necho an error >&2\nexit 1\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(compiler))
    for _ in range(2):
        observers._observer.cache_clear()
        assert observers.observer() is None

    assert (tmp_path / "runs").read_text() == "run\n"
    assert "the compiler failed: an error" in caplog.records[-1].getMessage()


@pytest.mark.usefixtures("_looks_anew")
def test_a_folder_that_others_write_to_is_not_loaded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "pyprof2"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert observers.observer() is None
    assert "is not this user's alone" in caplog.records[-1].getMessage()


def test_an_observer_that_sees_another_op_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "_KNOWN", ())

    with pytest.raises(observers._Unusable, match="the test saw other inputs"):
        observers.check(observers.observer())
