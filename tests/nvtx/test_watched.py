"""The observer beside what else watches a program: debuggers, coverage, other profilers."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import cProfile
import json
import sys
import sysconfig
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch

from pyprof2.nvtx import init, observers
from pyprof2.nvtx.annotation import shutdown, start
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import Gpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(observers.observer() is None, reason="there is no observer here")


def train() -> torch.Tensor:
    torch.manual_seed(0)
    model = Gpt()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def marked(run: Callable[[], torch.Tensor]) -> tuple[list[Any], torch.Tensor]:
    recorder = Recorder()
    start(Options(cpu_peaks=False, energy=False), recorder.sink())
    try:
        result = run()
    finally:
        shutdown()
    assert recorder.is_balanced
    return [(op.marker, op.sequence_nr is None) for op in recorder.ops()], result


@contextmanager
def traced() -> Iterator[None]:
    """Stop at every line, as a debugger and coverage do."""
    lines = 0

    def trace(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
    assert lines > 1000


@contextmanager
def profiled() -> Iterator[None]:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()
    assert any("forward" in str(entry.code) for entry in profiler.getstats())


@contextmanager
def monitored() -> Iterator[None]:
    """Stop at every line in the way of Python 3.12 and later."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        pytest.skip("this Python has no sys.monitoring")
    lines: list[int] = []
    monitoring.use_tool_id(monitoring.DEBUGGER_ID, "test")
    monitoring.register_callback(
        monitoring.DEBUGGER_ID, monitoring.events.LINE, lambda _, line: lines.append(line)
    )
    monitoring.set_events(monitoring.DEBUGGER_ID, monitoring.events.LINE)
    try:
        yield
    finally:
        monitoring.set_events(monitoring.DEBUGGER_ID, 0)
        monitoring.free_tool_id(monitoring.DEBUGGER_ID)
    assert len(lines) > 1000


WATCHES: Final = {"settrace": traced, "cProfile": profiled, "monitoring": monitored}


@pytest.mark.parametrize("watch", WATCHES)
def test_ops_have_the_same_markers_beside_another_watcher(watch: str) -> None:
    def watched() -> torch.Tensor:
        with WATCHES[watch]():
            return train()

    expected, plain = marked(lambda: train())  # noqa: PLW0108 -- one frame more, as below
    found, result = marked(watched)

    def without_caller(ops: list[Any]) -> list[Any]:
        """Leave out what is outside of `train`: it is another line."""
        return [
            (m.op, m.layer, m.inputs, m.forward, (m.source or "").split("\n")[0], has_none)
            for m, has_none in ops
        ]

    assert torch.equal(plain, result)
    assert without_caller(found) == without_caller(expected)
    assert len(found) > 500


def test_python_without_a_gil_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sysconfig.get_config_var
    monkeypatch.setattr(
        sysconfig, "get_config_var", lambda n: 1 if n == "Py_GIL_DISABLED" else real(n)
    )

    with pytest.raises(observers._Unusable, match="without a GIL"):
        observers._path_of_binary()


def test_shutdown_takes_the_callback_off_torch(tmp_path: Path) -> None:
    """Ops have ids in a trace only where something that is called for each asks for them."""

    def ids(name: str) -> set[int]:
        path = tmp_path / name
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities) as profiler:
            train()
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_bytes())["traceEvents"]
        return {e["args"]["Record function id"] for e in events if e.get("cat") == "cpu_op"}

    init(sink="kineto", cpu_peaks=False, energy=False)
    during = ids("during.json")
    shutdown()

    assert len(during) > 500
    assert ids("after.json") == {0}
