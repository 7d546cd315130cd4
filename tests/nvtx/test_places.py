"""Traces of torch.profiler say where each op was called, as ranges of NVTX do of the same ops."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import gzip
import json
import logging
import os
import subprocess
import sys
import threading
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd
import pytest
import torch
from torch import nn
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile, record_function

from pyprof2 import load
from pyprof2.markers import MEMBER, parse_places
from pyprof2.nvtx import init, observers, shutdown
from pyprof2.nvtx.annotation import start
from pyprof2.nvtx.event_tree import full_path, places_of
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import SCENARIOS, Gpt, train_gpt
from tests.nvtx.test_observer import ONE_THREAD, SAME

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = [
    pytest.mark.filterwarnings("ignore:Warning. Profiler clears events", "ignore:.*torch.jit"),
]
needs_observer = pytest.mark.skipif(
    observers.observer() is None, reason="there is no observer here"
)

ROOT: Final = Path(__file__).resolve().parents[2]
QUIET: Final[dict[str, Any]] = {"cpu_peaks": False, "energy": False}


class Placed(NamedTuple):
    """An op, its layer with the root, and the lines of its call."""

    op: str
    layer: tuple[str | None, str | None]
    source: str | None


def by_ranges(run: Callable[[], object]) -> list[Placed]:
    """Return the ops as NVTX has them, but those that add up gradients, on this thread."""
    torch.manual_seed(0)
    recorder = Recorder()
    start(Options(**QUIET), recorder.sink())
    try:
        run()
    finally:
        shutdown()
    own = threading.get_ident()
    found = [op.marker for op in recorder.ops() if op.thread == own]
    return [
        Placed(m.op or "", (m.layer, m.root), m.source)
        for m in found
        if m and not m.accumulate and (m.layer or m.source)
    ]


def trace_of(run: Callable[[], object], path: Path, **options: Any) -> Path:
    """Record a program with torch.profiler, annotated."""
    torch.manual_seed(0)
    init(sink="kineto", **QUIET)
    try:
        with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
            run()
    finally:
        shutdown()
    profiler.export_chrome_trace(str(path))
    return path


def is_composite(op: str) -> bool:
    """Return whether an op is made of others: ranges are of these, where there are any."""
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.partition(".")[0] == op]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return all(has_kernel(name, "CompositeImplicitAutograd") for name in names)


def by_places(path: Path) -> list[Placed]:
    """Return the ops of a trace that it has places of, in order; the slow way, event by event.

    Composite ones, which have a place only where they are made of nothing, are left out.
    """
    trace = json.loads(path.read_bytes())
    places = parse_places(json.dumps(trace[MEMBER]).encode())
    assert places is not None
    assert places.by == "record_function_id"
    of = dict(zip(places.ids.tolist(), places.rows.tolist(), strict=True))
    events = [e for e in trace["traceEvents"] if e.get("cat") == "cpu_op"]
    found = []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        row = of.get(event["args"]["Record function id"])
        if row is not None:
            place = places.places[row]
            assert place.op == event["name"]
            found.append(Placed(place.op, (place.layer, place.root), place.source))
    composite = {op for op in {each.op for each in found} if is_composite(op)}
    return [each for each in found if each.op not in composite]


@needs_observer
@pytest.mark.parametrize("name", ONE_THREAD)
def test_a_trace_says_of_its_ops_what_ranges_say(name: str, tmp_path: Path) -> None:
    expected = by_ranges(SCENARIOS[name])
    found = by_places(trace_of(SCENARIOS[name], tmp_path / "trace.json"))

    assert found == expected
    assert len(found) > 40


@needs_observer
@pytest.mark.parametrize("name", ["mlp", "convnet", "gpt", "views", "recurrent", "branches"])
def test_a_trace_says_of_forward_what_the_mode_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = by_places(trace_of(SCENARIOS[name], tmp_path / "trace.json"))
    monkeypatch.setenv("PYPROF2_OBSERVER", "0")
    expected = by_ranges(SCENARIOS[name])

    first, second = ([SAME.get(op.op, op.op) for op in each] for each in (expected, found))
    count = 0
    for tag, i, j, k, m in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs = list(zip(expected[i:j], found[k:m], strict=True))
            count += len(pairs)
            assert [a.layer for a, _ in pairs] == [b.layer for _, b in pairs]
            differ = [(a, b) for a, b in pairs if a.source != b.source]
            # `fill_` wrote into a view: see `test_observer`.
            assert name == "views" or not differ
    assert count > 0.9 * len(expected)


def ops_of(path: Path) -> pd.DataFrame:
    return load(path).ops


@needs_observer
def test_all_ops_of_a_trace_have_layer_and_line(tmp_path: Path) -> None:
    path = trace_of(train_gpt, tmp_path / "trace.json")
    ops = ops_of(path)

    found = Counter(ops["source_evidence"])
    assert set(found) == {"record_function_id", "around", "inside", "forward"}
    text = Path(sys.modules["tests.nvtx.scenarios"].__file__ or "").read_text().splitlines()
    for op, words in (
        ("aten::linear", {"self.qkv(self.norm_1(x))", "self.out(heads", "self.mlp(self.norm_2(x))",
                          "return self.head(self.norm(x))"}),
        ("aten::layer_norm", {"self.qkv(self.norm_1(x))", "self.mlp(self.norm_2(x))",
                              "return self.head(self.norm(x))"}),
        ("aten::add", {"x = x + self.out", "return x + self.mlp"}),
    ):  # fmt: skip
        own = ops[(ops["op"] == op) & (ops["direction"] == "forward") & ops["layer"].notna()]
        lines = {text[int(line.rpartition(":")[2]) - 1] for line in own["source"]}
        assert len(own)
        assert all(any(word in line for word in words) for line in lines)
    backward = ops[ops["direction"] == "backward"]
    assert backward["layer"].notna().mean() > 0.95
    assert backward["source"].notna().all()


@needs_observer
def test_operators_and_subscripts_have_the_lines_of_their_own(tmp_path: Path) -> None:
    x = torch.ones(3, 3)

    def run() -> None:
        y = x * 2  # the first
        y = (
            y[0]  # the second
            + 1
        )
        with record_function("mine"):
            torch.neg(y)  # the third

    ops = ops_of(trace_of(run, tmp_path / "trace.json"))
    text = Path(__file__).read_text().splitlines()
    for op, words in (("mul", "the first"), ("select", "the second"), ("neg", "the third")):
        (source,) = ops.loc[ops["op"] == f"aten::{op}", "source"]
        assert text[int(source.rpartition(":")[2]) - 1].endswith(f"# {words}")


@needs_observer
def test_backward_of_a_graph_made_on_another_thread_knows_its_layers(tmp_path: Path) -> None:
    """That thread is not recorded: only the place says it."""
    model = Gpt()
    losses: list[torch.Tensor] = []

    def forward() -> None:
        losses.append(model(torch.zeros(1, 4, dtype=torch.int64)).sum())

    def run() -> None:
        worker = threading.Thread(target=forward)
        worker.start()
        worker.join()
        losses[0].backward()

    ops = ops_of(trace_of(run, tmp_path / "trace.json"))
    found = ops[(ops["source_evidence"] == "record_function_id") & ops["layer"].notna()]
    assert {"blocks.0.mlp.1", "blocks.1.norm_2", "head"} <= {*found["layer"]}


@needs_observer
def test_every_recording_of_a_schedule_has_its_places(tmp_path: Path) -> None:
    paths: list[Path] = []

    def ready(profiler: Any) -> None:
        paths.append(tmp_path / f"{len(paths)}.json")
        profiler.export_chrome_trace(str(paths[-1]))

    init(sink="kineto", **QUIET)
    model = nn.Linear(4, 4)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=2)
    options: Any = {"schedule": schedule, "on_trace_ready": ready}
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        for _ in range(5):
            model(torch.ones(1, 4)).sum().backward()
            profiler.step()

    assert len(paths) == 2
    for path in paths:
        found = by_places(path)
        assert {op.layer for op in found if op.op == "aten::addmm"} == {("Linear", None)}


@needs_observer
def test_nothing_is_noted_after_a_recording() -> None:
    found = observers.observer()
    init(sink="kineto", **QUIET)
    with profile(activities=[ProfilerActivity.CPU]):
        torch.ones(2).neg()
    torch.ones(2).neg()

    assert found.rows() == b""


# -- without the observer ------------------------------------------------

SCRIPT: Final = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, x):
        y = self.first(x)  # a module
        y = y * 2  # an operator
        return torch.sin(y)  # a function

net = Net()
for _ in range(3):
    net(torch.ones(2, 8)).sum().backward()  # a method
"""


@pytest.mark.slow
def test_lines_come_from_stacks_where_there_is_no_observer(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text(SCRIPT)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "PATH": str(tmp_path), "CXX": "", "XDG_CACHE_HOME": str(tmp_path),
    }  # fmt: skip
    command = [sys.executable, "-m", "pyprof2", "capture", "--kineto", "-o", "out", "net.py"]
    done = subprocess.run(
        command, check=True, env=environment, cwd=tmp_path, capture_output=True, text=True
    )

    said = [line for line in done.stderr.splitlines() if "observer" in line or "stacks" in line]
    assert said == [f"{observers.LACKS_LINES} (there is no C++ compiler)"]
    path = tmp_path / "out.json.gz"
    # Some versions of torch write names that are no UTF-8, or have control characters.
    text = gzip.decompress(path.read_bytes()).decode(errors="replace")
    assert MEMBER in json.loads(text, strict=False)
    ops = ops_of(path)
    lines = SCRIPT.splitlines()
    own = ops[ops["direction"] == "forward"]
    for op, words, layer in (("linear", "a module", "first"), ("sin", "a function", "Net")):
        found = own[own["op"] == f"aten::{op}"]
        assert {*found["source"]} == {
            f"{script}:{at}" for at, text in enumerate(lines, 1) if text.endswith(f"# {words}")
        }
        assert {*found["layer"]} == {layer}
        assert {*found["source_evidence"]} == {"external_id"}
    # Which line of `forward` it is nobody knows: none is better than that of its `def`.
    assert own.loc[own["op"] == "aten::mul", "source"].isna().all()
    assert {*own.loc[own["op"] == "aten::mul", "layer"]} == {"Net"}
    backward = ops[(ops["direction"] == "backward") & (ops["layer"] == "first")]
    assert {*backward["source_evidence"]} == {"forward"}


def test_without_observer_a_profiler_of_the_users_gets_what_calls_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(observers, "_observer", lambda: observers._Unusable("none"))
    observers._say.cache_clear()
    with caplog.at_level(logging.WARNING, "pyprof2"):
        path = trace_of(train_gpt, tmp_path / "trace.json")

    assert [r.getMessage() for r in caplog.records] == [f"{observers.LACKS_ALL_LINES} (none)"]
    ops = ops_of(path)
    assert {*ops["source_evidence"].dropna()} <= {"range", "forward"}
    assert {"blocks.0.mlp.1", "head"} <= {*ops["layer"]}


def test_a_file_is_known_where_its_folder_is_on_the_path_in_two_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "net.py").touch()
    (tmp_path / "link").symlink_to(tmp_path / "lib")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "lib"), str(tmp_path / "link")])
    full_path.cache_clear()

    assert Path(full_path("net.py") or "").samefile(tmp_path / "lib" / "net.py")

    (tmp_path / "net.py").touch()  # another file of that name: which one it is is not known
    monkeypatch.setattr(sys, "path", [str(tmp_path / "lib"), str(tmp_path)])
    full_path.cache_clear()
    assert full_path("net.py") is None
    full_path.cache_clear()


def test_lines_of_a_tree_are_those_that_places_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the stacks say a line, it is the line that the observer says."""
    # torch shortens names by what `sys.path` was when it first recorded in this process: where the
    # test is, if a script there was run then.
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])
    if observers.observer() is None:
        pytest.skip("there is no observer here")

    train_gpt()  # torch imports the rest of itself

    def lines(path: Path) -> list[tuple[str, Any]]:
        ops = ops_of(path)
        own = ops[(ops["direction"] == "forward") & (ops["depth"] == 0)]
        return list(zip(own["op"], own["source"], strict=True))

    expected = lines(trace_of(train_gpt, tmp_path / "places.json"))
    torch.manual_seed(0)
    init(sink="kineto", **QUIET)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        train_gpt()
    shutdown()
    results: Any = profiler.profiler and profiler.profiler.kineto_results
    roots = results.experimental_event_tree()
    kinds = {event.typed[0] for root in roots for event in (root, *root.children)}
    if _EventType.PyCall not in kinds:
        pytest.skip("torch recorded no calls of Python this time")
    full_path.cache_clear()  # other tests change what it looks at
    places = places_of(roots, None)
    plain, whole = tmp_path / "plain.json", tmp_path / "whole.json"
    profiler.export_chrome_trace(str(plain))
    from pyprof2.capture.recorders import add_places

    add_places(plain, whole, places)
    found = lines(whole)

    assert [op for op, _ in found] == [op for op, _ in expected]
    known = [(a, b) for (_, a), (_, b) in zip(found, expected, strict=True) if not pd.isna(a)]
    assert [a for a, _ in known] == [b for _, b in known]
    assert len(known) > 0.6 * len(found)
