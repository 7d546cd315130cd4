"""`pyprof2 capture` runs a script as python does, and records it with either profiler."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import pyprof2

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parents[2]

TRAIN: Final = """
import sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.head(x)

net = Net()
sgd = torch.optim.SGD(net.parameters())
for _ in range(2):
    net(torch.ones(2, 8)).sum().backward()
    sgd.step()
print("arguments", sys.argv[1:], __name__)
"""

MEET: Final = """
import os, pathlib, time
pathlib.Path(f"here-{os.getpid()}").touch()
while len(list(pathlib.Path().glob("here-*"))) < 2: time.sleep(0.01)
net = Net()"""
"""Waits for the other process of a job, so that both are recorded at once."""

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="capture needs torch"
)
nsys_only = [
    pytest.mark.nsys,
    pytest.mark.skipif(shutil.which("nsys") is None, reason="nsys is not installed"),
]
both = pytest.mark.parametrize(
    "profiler", ["--kineto", pytest.param("--nsys", marks=nsys_only)]
)  # fmt: skip


def run(
    folder: Path, *arguments: str, script: str = TRAIN, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Capture `train.py` in a folder."""
    (folder / "train.py").write_text(script)
    return subprocess.run(
        [sys.executable, "-m", "pyprof2", "capture", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip


def recording(profiler: str, stem: str = "train") -> str:
    return f"{stem}.sqlite" if profiler == "--nsys" else f"{stem}.json.gz"


@needs_torch
@both
def test_a_script_runs_with_its_arguments_and_is_recorded(profiler: str, tmp_path: Path) -> None:
    done = run(tmp_path, profiler, "train.py", "--lr", "3", "-o", "mine")

    assert done.returncode == 0
    assert "arguments ['--lr', '3', '-o', 'mine'] __main__" in done.stdout
    name = recording(profiler)
    assert f"pyprof2: recorded {name}; next: pyprof2 prof {name}\n" in done.stderr
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"train.py", name, *(["train.nsys-rep"] if profiler == "--nsys" else [])}
    rows = pyprof2.load(tmp_path / name).profile()
    layers = rows[rows["op"] == "aten::addmm"].groupby("step")["layer"].unique()
    assert {step: list(of_step) for step, of_step in layers.items()} == {0: ["head"], 1: ["head"]}
    (source,) = rows.loc[rows["op"] == "aten::addmm", "source"].unique()
    assert source == f"{tmp_path}/train.py:11"


@needs_torch
@both
def test_without_a_gpu_the_roof_is_that_of_the_cpu(
    profiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a script without layers and steps."""
    from pyprof2.nvtx import cpu_peaks

    monkeypatch.delenv(cpu_peaks.SWITCH, raising=False)
    if cpu_peaks.cpu_marker() is None:
        pytest.skip("here the CPU is not measured: there is a GPU, or little memory")
    script = "import torch\nx = torch.ones(256, 256)\nx @ x"
    done = run(tmp_path, profiler, "train.py", script=script, PYPROF2_CPU_PEAKS="1")

    assert done.returncode == 0
    found = pyprof2.load(tmp_path / recording(profiler))
    (device,) = found.devices.to_dict("records")
    assert device["device_type"] == "cpu"
    rows = found.profile()
    assert (rows.loc[rows["op"] == "aten::mm", "roofline_pct"] > 0).all()


@needs_torch
def test_a_job_that_is_told_to_end_keeps_what_it_recorded(tmp_path: Path) -> None:
    """As a scheduler does at the end of the time: SIGTERM to the command."""
    (tmp_path / "train.py").write_text(
        "import time, torch\ntorch.ones(2)\nopen('runs', 'w').close()\ntime.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "pyprof2", "capture", "--kineto", "train.py"],
        cwd=tmp_path, stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        while not (tmp_path / "runs").exists() and process.poll() is None:
            time.sleep(0.05)
        process.terminate()

    assert process.returncode == 128 + signal.SIGTERM
    assert len(pyprof2.load(tmp_path / "train.json.gz").ops)


@needs_torch
@pytest.mark.parametrize("code", [0, 3])
def test_a_script_that_ends_without_python_leaves_nothing(code: int, tmp_path: Path) -> None:
    done = run(tmp_path, "--kineto", "train.py", script=f"import os; os._exit({code})")

    assert done.returncode == max(code, 1)
    assert done.stderr.splitlines()[-1].startswith(
        f"pyprof2: train.py: exited with code {code}; torch.profiler recorded nothing"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@needs_torch
def test_a_script_imports_from_its_own_folder_and_a_module_from_this_one(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "helper.py").write_text("import torch\ntorch.ones(2).exp()\n")
    (tmp_path / "jobs" / "main.py").write_text("import helper\nprint('ran')\n")
    (tmp_path / "jobs" / "other.py").write_text("import jobs.helper\nprint('ran too')\n")

    script = run(tmp_path, "--kineto", "-q", "jobs/main.py")
    module = run(tmp_path, "--kineto", "-o", "kept/mod.json", "-m", "jobs.other")

    assert (script.returncode, script.stdout) == (0, "ran\n")
    assert (module.returncode, module.stdout) == (0, "ran too\n")
    assert "pyprof2" not in script.stderr
    assert (tmp_path / "main.json.gz").is_file()
    assert (tmp_path / "kept" / "mod.json.gz").is_file()


@needs_torch
def test_each_rank_has_its_own_recording(tmp_path: Path) -> None:
    done = run(tmp_path, "--kineto", "-o", "net", "train.py", RANK="3", WORLD_SIZE="4")

    assert done.returncode == 0
    loaded = pyprof2.load(tmp_path / "net-rank3.json.gz")
    assert loaded.summary["ranks"] == [3]
    assert loaded.table("trace")["world_size"].to_pylist() == [4]


@needs_torch
@pytest.mark.minutes
def test_two_processes_of_mpirun_keep_both_recordings(tmp_path: Path) -> None:
    """With its variables, and where nothing tells who they are."""
    at_once = TRAIN.replace("net = Net()", MEET)
    told = [{"OMPI_COMM_WORLD_RANK": str(n), "OMPI_COMM_WORLD_SIZE": "2"} for n in range(2)]
    ranks: list[subprocess.Popen[bytes]] = []
    for folder, environments in (("told", told), ("untold", [{}, {}])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(at_once)
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "pyprof2", "capture", "--kineto", "-o", "mq", "train.py"],
                cwd=tmp_path / folder, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            )
            for environment in environments
        ]  # fmt: skip
        assert [process.wait() for process in ranks] == [0, 0]

    assert {path.name for path in (tmp_path / "told").glob("mq*")} == {
        f"mq-rank{n}.json.gz" for n in range(2)
    }
    for n in range(2):
        loaded = pyprof2.load(tmp_path / "told" / f"mq-rank{n}.json.gz")
        assert loaded.summary["ranks"] == [n]
        assert loaded.table("trace")["world_size"].to_pylist() == [2]
    untold = {path.name for path in (tmp_path / "untold").glob("mq*")}
    assert untold in [{"mq.json.gz", f"mq-pid{process.pid}.json.gz"} for process in ranks]
    assert not list(tmp_path.glob("*/.mq*"))


@needs_torch
def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "train.json.gz").write_text("mine")

    kept = run(tmp_path, "--kineto", "train.py")
    assert (kept.returncode, kept.stdout) == (1, "")
    assert kept.stderr == ("pyprof2: train.json.gz: exists; name another with -o, or say --force\n")
    assert (tmp_path / "train.json.gz").read_text() == "mine"
    assert run(tmp_path, "--kineto", "--force", "train.py").returncode == 0
    assert len(pyprof2.load(tmp_path / "train.json.gz").ops)
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "train.json.gz"}


@needs_torch
def test_where_nothing_is_recorded_the_old_recording_stays(tmp_path: Path) -> None:
    old = tmp_path / recording("--kineto")
    old.write_text("mine")

    done = run(tmp_path, "--kineto", "--force", "train.py", script="import os; os._exit(3)")

    assert done.returncode == 3
    assert old.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", old.name}


PLANT: Final = """
import os
from pathlib import Path
seen = [(p.name, p.stat().st_mode & 0o777) for p in Path().iterdir() if p.name != "train.py"]
Path("../seen").write_text(repr(seen))
for name in ("train.json.gz", "train.nsys-rep", "train.sqlite"):
    for path in (Path(name), Path(f".{name}.{os.getppid()}.old"), Path(f".{name}.part")):
        path.unlink(missing_ok=True)
        path.symlink_to("../theirs")
"""
"""Does what another user can do in a shared folder while a recording runs."""


@needs_torch
@both
@pytest.mark.parametrize("options", [[], ["--force"]], ids=["", "forced"])
def test_a_recording_goes_through_no_link_that_is_planted_in_a_shared_folder(
    profiler: str, options: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    theirs = tmp_path / "theirs"
    theirs.write_text("not to be touched")
    names = [recording(profiler), *(["train.nsys-rep"] if profiler == "--nsys" else [])]
    for name in names if options else []:
        (folder / name).write_text("old")

    done = run(folder, profiler, *options, "train.py", script=PLANT + TRAIN)

    assert done.returncode == 0
    assert theirs.read_text() == "not to be touched"
    assert not any((folder / name).is_symlink() for name in names)
    assert len(pyprof2.load(folder / names[0]).ops)
    seen = ast.literal_eval((tmp_path / "seen").read_text())
    private = [name for name, mode in seen if name not in names and mode == 0o700]
    claim = [name for name, mode in seen if name == ".train.claim" and mode == 0o600]
    assert len(private) == len(claim) == 1
    assert len(seen) == 2 + len(names) * len(options)
    assert not (folder / private[0]).exists()


@needs_torch
def test_a_link_to_nothing_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "train.json.gz").symlink_to("elsewhere")

    done = run(tmp_path, "--kineto", "train.py")

    assert (done.returncode, (tmp_path / "elsewhere").exists()) == (1, False)
    assert done.stderr.startswith("pyprof2: train.json.gz: exists; ")


@needs_torch
def test_a_folder_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "train.json.gz").mkdir()

    done = run(tmp_path, "--kineto", "--force", "train.py")

    assert done.stderr == "pyprof2: train.json.gz: exists; name another with -o\n"


@needs_torch
@pytest.mark.parametrize("profiler", [pytest.param("--nsys", marks=nsys_only)])
def test_a_report_that_cannot_be_exported_is_kept(profiler: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nsys").write_text(
        f'#!/bin/sh\n[ "$1" = export ] && exit 5\nexec {shutil.which("nsys")} "$@"\n'
    )
    (tmp_path / "bin" / "nsys").chmod(0o755)
    path = os.pathsep.join((str(tmp_path / "bin"), os.environ["PATH"]))

    done = run(tmp_path, profiler, "train.py", PATH=path)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "pyprof2: train.nsys-rep: nsys cannot export it: exit code 5"
    )
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"train.py", "train.nsys-rep", "bin"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["gone.py"], 1, "gone.py: no such file; name the script to run (-m for a module)"),
        (["python3", "train.py"], 1, "python3: is a program; name the Python script: "),
        (["-o", ".", "train.py"], 2, ".: is a folder; name the recording in it, such as net"),
    ],
)
def test_what_cannot_be_captured_is_said(
    arguments: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")

    result = invoke("capture", "--kineto", *arguments)

    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(f"pyprof2: {says}")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "missing", "says"),
    [
        ("--kineto", ["torch"], f"{sys.executable} has no torch, which capture needs: "),
        ("--nsys", ["torch", "nvtx"], f"{sys.executable} has no torch and no nvtx, which "),
        ("--nsys", ["nsys"], "nsys is not on the PATH: install Nsight Systems "),
    ],
)
def test_what_is_missing_is_said(
    option: str,
    missing: list[str],
    says: str,
    tmp_path: Path,
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "train.py").write_text("")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    monkeypatch.setattr(
        shutil, "which", lambda name: None if name in missing else f"/usr/bin/{name}"
    )

    result = invoke("capture", option, tmp_path / "train.py")

    assert result.code == 1
    assert result.err.startswith(f"pyprof2: {says}")
    assert not list(tmp_path.glob("train.*[!y]"))
