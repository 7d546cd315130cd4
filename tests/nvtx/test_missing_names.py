"""Where torch lacks a private name, or code of ours fails, the user's program does what it does."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.nvtx.internals import NAMES, Need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "pyprof2"
TRAINING: Final = str(Path(__file__).with_name("train_small.py"))

SAID: Final = {
    "init": {Need.ALL, Need.INNER, Need.PROFILER, Need.BATCHES, Need.COLLECTIVES},
    "kineto": {Need.ALL, Need.INNER, Need.PROFILER, Need.BATCHES, Need.COLLECTIVES, Need.LINES,
               Need.THREADS, Need.OTHERS},
    "memory": {Need.MEMORY},
    "nsys": {Need.ALL, Need.INNER, Need.BATCHES, Need.COLLECTIVES, Need.OPS},
}  # fmt: skip
"""Of what a user is warned, by how the program runs: of what it needs there, and lacks."""

OF_PROGRAMS: Final = [name for name, part in NAMES.items() if part is not Need.NOTES]


def run_without(pairs: Sequence[tuple[str, str]], folder: Path) -> dict[str, Any]:
    """Return what runs did, by their ways and the names that they lacked."""
    code = "import sys; from tests.nvtx.run_without_names import *; main(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder)],
        input=json.dumps(pairs), capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(pairs: Sequence[tuple[str, str]], folder: Path) -> None:
    found = run_without(pairs, folder)
    expected = found.pop("plain")
    assert (expected["code"], expected["stderr"]) == (3, [])
    assert len(found) == len(pairs)
    for way, name in pairs:
        run = found[f"{way} {name}"]
        lines = [line for line in run["stderr"] if not line.startswith("USDT:")]
        part = NAMES.get(name)
        if part in SAID[way]:
            assert part is not None
            start = f"pyprof2: torch {torch_version()} has no torch."
            assert [line.startswith(start) for line in lines] == [True], (way, name, run)
            assert lines[0].endswith(f": {part.value}; the script runs on"), (way, name, run)
        else:
            assert lines == [], (way, name, run)
        assert (run["code"], run["result"]) == (3, expected["result"]), (way, name, run)
        if way in ("kineto", "memory"):
            # Three steps of three calls of layers, of which one is in backward; and two calls.
            assert run["ops"] >= 11, (way, name, run)


def torch_version() -> str:
    import torch

    return torch.__version__


def test_a_program_does_the_same_where_torch_lacks_a_name_of_each_part(tmp_path: Path) -> None:
    names = {part: name for name, part in NAMES.items()}
    pairs = [(way, names[part]) for way, parts in SAID.items() for part in sorted_parts(parts)]
    check([("init", ""), ("kineto", ""), ("nsys", ""), *pairs], tmp_path)


def sorted_parts(parts: set[Need]) -> list[Need]:
    return sorted(parts, key=lambda part: part.name)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["init", "kineto", "nsys"])
def test_a_program_does_the_same_where_torch_lacks_any_name(way: str, tmp_path: Path) -> None:
    check([(way, name) for name in OF_PROGRAMS], tmp_path)


@pytest.mark.slow
def test_memory_is_not_marked_where_torch_lacks_a_name_for_it(tmp_path: Path) -> None:
    check([("memory", name) for name, part in NAMES.items() if part is Need.MEMORY], tmp_path)


# -- all of them are known -------------------------------------------------------------------------

OF_PYTHON: Final = {
    "sys._getframe", "os._exit", "atexit._run_exitfuncs", "runpy._run_module_as_main",
    "threading._shutdown", "subprocess._args_from_interpreter_flags",
    "module.__spec__._initializing", "marked._pyprof2_op",
}  # fmt: skip
"""Private to others than torch."""


def private_names(source: str) -> Iterator[str]:
    """Yield what a module uses that is private to another, but to itself and to named tuples."""
    tree = ast.parse(source)
    for_types = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for each in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            is_tuple = node.attr in ("_asdict", "_replace")
            names = [] if is_tuple else [ast.unparse(node)]
        else:
            continue
        for name in names:
            is_import = not isinstance(node, ast.Attribute)
            parts = name.split(".") if is_import else [name.rpartition(".")[2]]
            is_private = any(part.startswith("_") and part[:2] != "__" for part in parts)
            if is_private and (not is_import or parts[0] == "torch"):
                yield name


def test_no_other_module_names_what_is_private_to_torch() -> None:
    found = {
        (path.name, name)
        for folder in ("nvtx", "capture", "integrations", "watch")
        for path in sorted((PACKAGE / folder).glob("*.py"))
        if path.name != "internals.py"
        for name in private_names(path.read_text())
    }

    assert {name for _, name in found} - OF_PYTHON == set(), found
    assert list(private_names("from torch import _C\ntorch._C.x\n")) == ["torch._C", "torch._C"]


# -- faults of ours --------------------------------------------------------------------------------


def fail(*_: Any, **__: Any) -> Any:
    msg = "planted"
    raise ValueError(msg)


FAULT: Final = r"pyprof2: a fault in pyprof2 \(ValueError: planted, test_missing_names.py:\d+\): "


def test_a_fault_in_init_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    import pyprof2
    from pyprof2.nvtx import annotation, hooks

    monkeypatch.setattr(annotation, "_current", annotation._Annotation())
    monkeypatch.setattr(hooks, "hook_threads", fail)
    call = torch.nn.Module._call_impl
    for _ in range(2):
        pyprof2.init()
        pyprof2.step()
    with pyprof2.annotate("text"):
        pass
    pyprof2.shutdown()

    lost = "no layer, line or step is marked; the script runs on\n"
    assert re.fullmatch(FAULT + re.escape(lost), capsys.readouterr().err)
    assert torch.nn.Module._call_impl is call


def test_a_recording_of_everything_goes_on_where_the_annotation_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyprof2.nvtx import annotation, hooks

    class Recorder:
        count = 0

        def record(self) -> None:
            self.count += 1

    monkeypatch.setattr(hooks, "hook_threads", fail)
    for steps, count in ((None, 1), (range(2), 0)):
        monkeypatch.setattr(annotation, "_current", annotation._Annotation())
        recorder: Any = Recorder()
        capture = annotation.Capture("kineto", steps, recorder=recorder)
        assert not annotation.begin_capture(capture)
        annotation.end_capture()
        lost = "" if count else ", so the steps to record are not known and nothing is recorded"
        text = f"no layer, line or step is marked{lost}; the script runs on\n"
        assert re.fullmatch(FAULT + re.escape(text), capsys.readouterr().err)
        assert recorder.count == count


@pytest.mark.parametrize("owner", ["TorchRecorder", "GraphCaptures"])
def test_a_fault_in_record_is_one_line(
    owner: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import torch

    import pyprof2
    from pyprof2.capture import window

    monkeypatch.setattr(window, owner, fail)
    with pyprof2.record(out=tmp_path / "net"):
        total = torch.ones(3).sum().item()

    text = "nothing is recorded; the script runs on\n"
    assert re.fullmatch(FAULT + re.escape(text), capsys.readouterr().err)
    assert total == 3
    assert list(tmp_path.iterdir()) == []


BROKEN: Final = """
import sys
if any({part!r} in word for word in sys.orig_argv):
    import torch
    del sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
"""
"""A torch that lacks a public name: modules of ours cannot be imported."""


def with_broken_torch(part: str, folder: Path) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text(BROKEN.format(part=part))
    roots = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(roots), "KINETO_LOG_LEVEL": "99"}


def test_a_program_runs_where_ours_cannot_be_imported(tmp_path: Path) -> None:
    code = (
        "import pyprof2, runpy, sys; pyprof2.init(shapes=False); pyprof2.init(); pyprof2.step()\n"
        "with pyprof2.annotate('x'): pyprof2.shutdown()\n"
        f"sys.argv[0] = {TRAINING!r}; runpy.run_path({TRAINING!r}, run_name='__main__')"
    )
    env = with_broken_torch("-c", tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "result")],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip

    start = "pyprof2: a fault in pyprof2 (ImportError: cannot import name"
    lines = done.stderr.splitlines()
    assert [line.startswith(start) for line in lines] == [True], done.stderr
    assert lines[0].endswith(": nothing is marked; the script runs on")
    assert done.returncode == 3
    assert (tmp_path / "result").stat().st_size > 100


@pytest.mark.slow
@pytest.mark.parametrize("way", ["--kineto", pytest.param("--nsys", marks=pytest.mark.nsys)])
def test_capture_runs_a_script_where_ours_cannot_be_imported(way: str, tmp_path: Path) -> None:
    if way == "--nsys" and not shutil.which("nsys"):
        pytest.skip("needs nsys")
    env = with_broken_torch("pyprof2.capture.script", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pyprof2", "capture", way, "-o", str(tmp_path / "out"), TRAINING,
         str(tmp_path / "result")],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 3, done.stderr
    lines = [line for line in done.stderr.splitlines() if "a fault in pyprof2" in line]
    assert [line.endswith("nothing is recorded; the script runs on") for line in lines] == [True]
    assert "Traceback" not in done.stderr
    assert (tmp_path / "result").stat().st_size > 100
