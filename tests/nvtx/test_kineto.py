"""Under torch.profiler the trace gets layers, steps and lines, and the ops are as they were."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from pyprof2 import load
from pyprof2.markers import Marker, parse_marker
from pyprof2.nvtx import annotate, init, shutdown, wrap
from pyprof2.nvtx.annotation import start
from pyprof2.nvtx.internals import dispatch_modes
from pyprof2.nvtx.options import Options
from pyprof2.signatures import Tensor as Shape
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import SCENARIOS, Checkpointed, Gpt

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")


class Trace:
    """A trace that torch.profiler wrote, as far as these tests look into it."""

    def __init__(self, path: Path) -> None:
        events = json.loads(path.read_bytes())["traceEvents"]
        wanted = [e for e in events if e.get("ph") == "X" and e.get("cat") != "Trace"]
        self.events = sorted(wanted, key=lambda e: (e["tid"], e["ts"], -e["dur"]))

    def markers(self, kind: str) -> list[Marker]:
        found = [parse_marker(event["name"]) for event in self.events]
        return [marker for marker in found if marker and marker.kind == kind]

    def ops(self) -> list[str]:
        return [e["name"] for e in self.events if not parse_marker(e["name"])]

    def around(self, name: str, kind: str) -> list[Marker | None]:
        """Return for each event of that name the innermost marker of a kind that encloses it."""
        open_events: list[tuple[Any, float, Marker | None]] = []
        found = []
        for event in self.events:
            end = event["ts"] + event["dur"]
            while open_events and (
                open_events[-1][0] != event["tid"] or open_events[-1][1] <= event["ts"]
            ):
                open_events.pop()
            if event["name"] == name:
                inside = [m for *_, m in reversed(open_events) if m and m.kind == kind]
                found.append(inside[0] if inside else None)
            open_events.append((event["tid"], end, parse_marker(event["name"])))
        return found


def trace_of(run: Callable[[], object], folder: Path, **options: Any) -> Trace:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, **options) as profiler:
        run()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    return Trace(path)


def train_gpt(steps: int = 2) -> Callable[[], None]:
    torch.manual_seed(0)
    model = Gpt()
    optimizer = torch.optim.Adam(model.parameters())
    tokens = torch.zeros(2, 4, dtype=torch.int64)

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(tokens).sum().backward()
            optimizer.step()

    return run


@pytest.mark.parametrize("scenario", ["mlp", "gpt", "checkpoint", "views", "function", "recurrent"])
def test_the_trace_has_the_same_ops_as_without(scenario: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    without = trace_of(SCENARIOS[scenario], tmp_path).ops()
    init()
    torch.manual_seed(0)
    trace = trace_of(SCENARIOS[scenario], tmp_path)

    assert trace.ops() == without


def test_every_op_is_inside_its_layer(tmp_path: Path) -> None:
    init()
    trace = trace_of(train_gpt(), tmp_path)

    layers = Counter(m.layer if m else None for m in trace.around("aten::layer_norm", "layer"))
    expected = ["blocks.0.norm_1", "blocks.0.norm_2", "blocks.1.norm_1", "blocks.1.norm_2", "norm"]
    assert layers == dict.fromkeys(expected, 2)
    attention = trace.around("aten::scaled_dot_product_attention", "layer")
    assert Counter(m.layer for m in attention if m) == {"blocks.0": 2, "blocks.1": 2}
    assert {m.layer: m.module for m in trace.markers("layer")}["blocks.0.mlp.1"] == "GELU"


def test_every_call_has_its_line_and_those_around_it(tmp_path: Path) -> None:
    from tests.nvtx import scenarios

    init()
    trace = trace_of(train_gpt(), tmp_path)

    called = {m.source for m in trace.around("aten::scaled_dot_product_attention", "source") if m}
    ops = load(tmp_path / "trace.json").ops
    own = {*ops.loc[ops["op"] == "aten::scaled_dot_product_attention", "source"]}
    text = Path(scenarios.__file__).read_text(encoding="utf-8").splitlines()
    for lines, expected in (
        (called, "x = block(x)"),
        (own, "heads = functional.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    ):
        found = {int((line or "").rpartition(":")[2]) for line in lines}
        assert [text[number - 1].strip() for number in found] == [expected]


@pytest.mark.parametrize("options", [{"source": False}, {}], ids=["not wanted", "with_stack"])
def test_lines_are_not_marked_where_nobody_needs_them(
    options: dict[str, Any], tmp_path: Path
) -> None:
    init(**options)
    trace = trace_of(train_gpt(), tmp_path, with_stack=not options)

    assert trace.markers("layer")
    assert not trace.markers("source")


def stepped(trace: Trace) -> list[int | None]:
    return [m.step for m in trace.markers("step") if m.event == "stepped"]


def test_steps_are_counted_from_the_first_one_of_the_program(tmp_path: Path) -> None:
    init()
    run = train_gpt(3)
    run()
    trace = trace_of(run, tmp_path)

    assert stepped(trace) == [3, 4, 5]


def test_a_recording_that_begins_inside_a_step_says_so(tmp_path: Path) -> None:
    init()
    model = nn.Linear(2, 2)
    model(torch.ones(2))

    trace = trace_of(lambda: model(torch.ones(2)), tmp_path)

    assert [m.event for m in trace.markers("step")] == ["begins"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_layers_say_so(tmp_path: Path, *, reentrant: bool) -> None:
    model = Checkpointed(reentrant=reentrant)
    x = torch.randn(2, 8, requires_grad=True)
    init()
    trace = trace_of(lambda: model(x).sum().backward(), tmp_path)

    again = {m.layer for m in trace.markers("layer") if m.recompute}
    assert {"inner", "inner.0"} <= again


def test_the_profiler_takes_over_and_gives_back(tmp_path: Path) -> None:
    recorder = Recorder()
    start(Options(), recorder.sink())
    run = train_gpt(1)
    run()
    before = len(recorder.ranges)
    modes: list[int] = []

    def run_and_look() -> None:
        modes.append(len(dispatch_modes()))
        run()

    trace = trace_of(run_and_look, tmp_path)
    during = len(recorder.ranges)
    run()
    after = len(recorder.ranges)
    shutdown()

    assert modes == [0]
    assert before == during < after
    assert trace.markers("layer")
    assert not trace.markers("op")
    assert recorder.is_balanced
    assert len(dispatch_modes()) == 0


def test_with_the_sink_nvtx_the_profiler_gets_nothing(tmp_path: Path) -> None:
    recorder = Recorder()
    start(Options(sink="nvtx"), recorder.sink())
    trace = trace_of(train_gpt(1), tmp_path)

    assert recorder.ops()
    assert not trace.markers("layer")


def test_init_while_a_profiler_runs_is_in_time(tmp_path: Path) -> None:
    train = train_gpt(1)

    def run() -> None:
        init()
        train()

    trace = trace_of(run, tmp_path)

    assert trace.markers("layer")


def test_profiling_inside_a_module_keeps_ranges_balanced(tmp_path: Path) -> None:
    traces: list[Trace] = []

    class Profiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            traces.append(trace_of(lambda: self.linear(x), tmp_path))
            return x

    recorder = Recorder()
    start(Options(), recorder.sink())
    nn.Sequential(Profiled(), nn.ReLU())(torch.ones(2, 4))
    shutdown()

    assert [m.layer for m in traces[0].markers("layer")] == ["0.linear"]
    assert recorder.is_balanced
    assert [item.layer for item in recorder.ops("aten::relu")] == ["1"]


def test_a_schedule_of_the_profiler_works(tmp_path: Path) -> None:
    init()
    run = train_gpt(1)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule) as profiler:
        for _ in range(4):
            run()
            profiler.step()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = Trace(tmp_path / "trace.json")

    assert len([m for m in trace.markers("layer") if m.layer == "Gpt"]) == 2
    assert stepped(trace) == [2, 3]


def test_ranges_of_the_users_own_and_wrapped_functions_are_in_the_trace(tmp_path: Path) -> None:
    class Extension:
        @staticmethod
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

    wrap(Extension, "double")
    init()

    def run() -> None:
        with annotate("part one"), record_function("torch's own"):
            Extension.double(torch.ones(2, 3))

    trace = trace_of(run, tmp_path)

    assert Counter(trace.ops())["part one"] == 1
    assert Counter(trace.ops())["torch's own"] == 1
    (op,) = trace.markers("op")
    assert op.op == f"{Extension.__module__}.{Extension.__qualname__}::double"
    here = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = here.index("            Extension.double(torch.ones(2, 3))") + 1
    assert op.source == f"{__file__}:{line}"
    read = load(tmp_path / "trace.json").ops.set_index("op")["source"]
    assert read[op.op] == op.source
    assert op.inputs == (Shape((2, 3), "f32"),)


def test_only_wanted_steps_have_markers(tmp_path: Path) -> None:
    init(steps=range(1, 2))
    trace = trace_of(train_gpt(3), tmp_path)

    assert stepped(trace) == [1]
    assert len([m for m in trace.markers("layer") if m.layer == "Gpt"]) == 1


def test_models_beside_each_other_share_no_layer(tmp_path: Path) -> None:
    teacher, student = (nn.Sequential(nn.Linear(4, 4)) for _ in range(2))

    def run() -> None:
        for _ in range(2):
            teacher(torch.ones(2, 4))
            student(torch.ones(2, 4)).sum().backward()

    init()
    trace_of(run, tmp_path)
    ops = load(tmp_path / "trace.json").ops

    layers = ops.loc[ops["op"] == "aten::linear", "layer"]
    assert layers.tolist() == ["teacher.0", "student.0"] * 2
    assert {*ops.loc[ops["direction"] == "backward", "layer"].dropna()} == {"student.0"}


def test_odd_names_of_layers_and_files_keep_the_trace_readable(tmp_path: Path) -> None:
    model = nn.Module()
    model.add_module('it\'s "odd" \\ é', nn.Linear(2, 2))
    # As it is, the module would become a child.
    model.forward = lambda x: next(model.children())(x)  # noqa: PLW0108
    init()
    code = compile("model(x) + x", 'a "file" of é.py', "eval")

    trace = trace_of(lambda: eval(code, {"model": model, "x": torch.ones(2)}), tmp_path)  # noqa: S307

    assert {m.layer for m in trace.markers("layer")} == {"Module", 'it\'s "odd" \\ é'}
    assert 'a "file" of é.py:1' in {m.source for m in trace.markers("source")}
