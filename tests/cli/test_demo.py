"""`pyprof2 demo` goes the whole way, with torch and without."""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.cli import demo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHIPPED = demo._DATA / demo._RECORDING


@pytest.fixture
def _no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name)
    )


@pytest.mark.usefixtures("_no_torch")
def test_without_torch_the_recording_that_is_shipped_serves(
    invoke: Callable[..., Any],
) -> None:
    result = invoke("demo", "-q")

    assert (result.code, result.err) == (0, "")
    assert (
        result.lines[0] == "torch is not installed: this is the recording that comes with pyprof2"
    )
    assert "aten::convolution_backward" in result.out
    assert sum(line.startswith("$ pyprof2 prof") for line in result.lines) == 3
    assert sum(line.startswith("total ") or " total " in line for line in result.lines) == 3


@pytest.mark.usefixtures("_no_torch")
def test_what_the_demo_made_can_be_kept_and_is_not_overwritten(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "demo"

    first, second = invoke("demo", "-o", folder), invoke("demo", "-o", folder)

    assert (first.code, second.code) == (0, 1)
    assert sorted(path.name for path in folder.iterdir()) == [
        "demo.json.gz", "demo.pyprof2", "demo_train.py",
    ]  # fmt: skip
    assert "exists" in second.err
    assert invoke("prof", folder / "demo.pyprof2", "--by", "op").code == 0


def test_the_recording_of_a_gpu_is_shown_without_running_anything(
    invoke: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    folder = tmp_path / "gpu"

    first, second = invoke("demo", "--gpu", "-o", folder), invoke("demo", "--gpu", "-o", folder)

    assert (first.code, second.code) == (0, 1)
    assert "device NVIDIA H200" in first.out
    # Lines of fused kernels are known from the log that lies beside the recording.
    assert "/tmp/t.py:10" in first.out  # noqa: S108 - as recorded
    assert sorted(path.name for path in folder.iterdir()) == [
        "dedicated_log_torch_trace_rank_0.log", "gpu.json.gz", "gpu.pyprof2", "t.py",
    ]  # fmt: skip
    assert "exists" in second.err


def test_where_torch_does_not_work_the_recording_serves_and_the_reason_is_said(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "demo_train.py").write_text("raise SystemExit('no\\x1b luck')")
    (data / "demo.json.gz").write_bytes(SHIPPED.read_bytes())
    monkeypatch.setattr(demo, "_DATA", data)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())

    result = invoke("demo")

    assert result.code == 0
    assert r"torch cannot train here (no\x1b luck):" in result.out
    assert "aten::convolution_backward" in result.out


OURS = """
import shutil, sys
sys.stderr.write("a warning\\npyprof2: torch 9 has no torch._C.x: no line\\n")
if {fails}:
    from pyprof2.markers import parse_marker
    parse_marker(5)
shutil.copy({recording!r}, sys.argv[1])
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_fault_of_ours_is_not_said_to_be_torchs(
    *, fails: bool, invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "demo_train.py").write_text(OURS.format(fails=fails, recording=str(SHIPPED)))
    (data / "demo.json.gz").write_bytes(SHIPPED.read_bytes())
    monkeypatch.setattr(demo, "_DATA", data)
    monkeypatch.setattr(demo, "_PACKAGE", SHIPPED.parents[1])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name != "nvtx" or None)

    result = invoke("demo", "-q")

    assert (result.code, result.err) == (0, "pyprof2: torch 9 has no torch._C.x: no line\n")
    assert ("a fault in pyprof2 (TypeError: " in result.out) == fails
    assert "torch cannot train here" not in result.out


@pytest.mark.torch
@pytest.mark.slow
def test_with_torch_it_trains_and_records(invoke: Callable[..., Any]) -> None:
    pytest.importorskip("torch")

    result = invoke("demo", "-q")

    assert result.code == 0
    assert result.lines[0] == "$ python demo_train.py demo.json.gz"
    assert "come with pyprof2" not in result.out
    assert "aten::convolution_backward" in result.out


def test_the_recording_that_is_shipped_is_small_and_names_no_machine() -> None:
    content = gzip.decompress(SHIPPED.read_bytes())
    trace = json.loads(content)

    assert SHIPPED.stat().st_size < 150_000
    assert not {"host_name", "trace_id"} & set(trace)
    assert b"/home/" not in content
    assert b"/tmp/" not in content
