"""Captures of CUDA graphs are recorded by themselves, and no trouble with it is the program's.

There is no GPU: what torch's class calls in C++ is replaced by functions that do nothing.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import ProfilerActivity, profile  # noqa: E402

from pyprof2.capture import graph_captures  # noqa: E402
from pyprof2.capture.graph_captures import GraphCaptures  # noqa: E402
from pyprof2.capture.recorders import TorchRecorder  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a graph that captures nothing."""
    for name in ("capture_begin", END, "capture_end_post", "instantiate"):
        monkeypatch.setattr(BASE, name, lambda *_args, **_kwargs: None, raising=False)
    return new_graph()


BASE: Final = torch.cuda.CUDAGraph.__mro__[1]
END: Final = "capture_end_pre" if hasattr(BASE, "capture_end_pre") else "capture_end"
"""What ends a capture in C++; since torch 2.14 another function does the rest."""


def new_graph() -> Any:
    """Return one more; where torch has no CUDA, its own constructor refuses."""
    if torch.backends.cuda.is_built():
        return torch.cuda.CUDAGraph.__new__(torch.cuda.CUDAGraph)
    found = object.__new__(torch.cuda.CUDAGraph)
    found._tracker = None
    return found


@pytest.fixture
def captures(tmp_path: Path) -> Iterator[GraphCaptures]:
    found = GraphCaptures(tmp_path / "net-rank1.json.gz")
    yield found
    found.close()


def ops_of(path: Path) -> list[str]:
    """Return the ops of a recording, in order of time."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    own = sorted((e["ts"], e["name"]) for e in events if e.get("cat") == "cpu_op")
    return [name for _, name in own]


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "capture_traces").glob("*"))


def capture(graph: Any, op: Any) -> None:
    graph.capture_begin()
    op(torch.ones(2))
    graph.capture_end()


def test_each_capture_is_a_recording_of_what_ran_in_it(
    graph: Any, captures: GraphCaptures, tmp_path: Path
) -> None:
    torch.cos(torch.ones(2))
    capture(graph, torch.exp)
    torch.cos(torch.ones(2))
    capture(new_graph(), torch.sin)

    assert captures.count == 2
    assert written(tmp_path) == ["net-rank1-graph-1.json.gz", "net-rank1-graph-2.json.gz"]
    for name, op in zip(written(tmp_path), ("aten::exp", "aten::sin"), strict=True):
        found = ops_of(tmp_path / "capture_traces" / name)
        assert op in found
        assert "aten::cos" not in found


def test_captures_that_overlap_are_one_recording(
    graph: Any, captures: GraphCaptures, tmp_path: Path
) -> None:
    other = new_graph()
    graph.capture_begin()
    other.capture_begin()
    torch.exp(torch.ones(2))
    graph.capture_end()
    assert captures.is_open
    other.capture_end()

    assert not captures.is_open
    assert len(written(tmp_path)) == 1


def test_a_profiler_of_the_program_around_captures_has_them(
    graph: Any, captures: GraphCaptures, tmp_path: Path
) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as own:
        capture(graph, torch.exp)

    assert "aten::exp" in {each.key for each in own.key_averages()}
    assert (captures.count, written(tmp_path)) == (0, [])


def test_a_profiler_that_the_program_starts_in_a_capture_gets_its_events(
    graph: Any, captures: GraphCaptures, tmp_path: Path
) -> None:
    graph.capture_begin()
    with profile(activities=[ProfilerActivity.CPU]) as own:
        torch.exp(torch.ones(2))
    graph.capture_end()

    assert "aten::exp" in {each.key for each in own.key_averages()}
    assert (captures.count, written(tmp_path)) == (0, [])


@pytest.mark.parametrize("name", ["capture_begin", END])
def test_a_capture_that_fails_fails_as_ever_and_is_not_kept(
    name: str,
    graph: Any,
    captures: GraphCaptures,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> None:
        msg = "operation not permitted when stream is capturing"
        raise RuntimeError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(BASE, name, fail)
        with pytest.raises(RuntimeError, match="not permitted"):
            capture(graph, torch.exp)
    assert not captures.is_open
    capture(graph, torch.sin)

    assert len(written(tmp_path)) == 1
    assert "aten::sin" in ops_of(tmp_path / "capture_traces" / written(tmp_path)[0])


@pytest.mark.parametrize("place", ["start", "write"])
def test_what_goes_wrong_with_the_recording_is_one_line(
    place: str,
    graph: Any,
    captures: GraphCaptures,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> None:
        msg = "no room"
        raise OSError(msg)

    monkeypatch.setattr(graph_captures, {"start": "profile", "write": "write_trace"}[place], fail)

    capture(graph, torch.exp)

    assert captures.count == 0
    assert "pyprof2: a capture of a CUDA graph is not recorded: no room" in capsys.readouterr().err
    with profile(activities=[ProfilerActivity.CPU]) as own:
        torch.exp(torch.ones(2))
    assert "aten::exp" in {each.key for each in own.key_averages()}


def test_after_so_many_no_more_are_recorded(
    graph: Any,
    captures: GraphCaptures,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(graph_captures, "MOST", 2)

    for _ in range(4):
        capture(graph, torch.exp)

    assert captures.count == 2
    assert capsys.readouterr().err.count("later ones are not") == 1


def test_closed_it_leaves_torch_as_it_was(graph: Any, tmp_path: Path) -> None:
    before = torch.cuda.CUDAGraph.capture_begin, torch.cuda.CUDAGraph.capture_end

    captures = GraphCaptures(tmp_path / "net.json.gz")
    assert torch.cuda.CUDAGraph.capture_begin is not before[0]
    graph.capture_begin()
    captures.close()

    assert (torch.cuda.CUDAGraph.capture_begin, torch.cuda.CUDAGraph.capture_end) == before
    graph.capture_end()
    assert written(tmp_path) == []


def test_the_recording_of_steps_waits_for_the_end_of_a_capture(
    graph: Any, captures: GraphCaptures, tmp_path: Path
) -> None:
    recorder = TorchRecorder(
        tmp_path / "net.json.gz", lambda: None, ends_process=False, graphs=captures
    )
    graph.capture_begin()
    recorder.record()
    torch.exp(torch.ones(2))
    graph.capture_end()
    torch.sin(torch.ones(2))
    recorder.finish()

    assert "aten::exp" in ops_of(tmp_path / "capture_traces" / written(tmp_path)[0])
    found = ops_of(tmp_path / "net.json.gz")
    assert "aten::sin" in found
    assert "aten::exp" not in found
