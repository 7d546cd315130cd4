"""Lines of the user's own where a library calls PyTorch in between: recorded on the spot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2 import load, parse
from pyprof2.cli import main

if TYPE_CHECKING:
    from pyprof2.api.run import Run

LIBRARY: Final = """\
import torch
class Trainer:
    def __init__(self, model):
        self.model = model
    def train(self):
        for _ in range(3):
            torch.mul(self.model(torch.ones(4, 8)), 2).sum().backward()
"""
NET: Final = """\
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)
    def forward(self, x):
        return self.fc(x)
"""
SCRIPT: Final = """\
from nets.net import Net
from trainer_library import Trainer
def main():
    trainer = Trainer(Net())
    trainer.train()
if __name__ == "__main__":
    main()
"""
PROFILED: Final = """\
import sys
import torch
sys.path.insert(0, sys.argv[1])
import trainer_library
sys.path.pop(0)
import train
with torch.profiler.profile(with_stack=True) as profiler:
    train.main()
profiler.export_chrome_trace(sys.argv[2])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose environment, with the library, is inside of its folder."""
    folder = tmp_path / "project"
    package = folder / ".venv" / "lib" / "site-packages" / "trainer_library"
    for path, text in (
        (package / "__init__.py", LIBRARY),
        (folder / "nets" / "net.py", NET),
        (folder / "train.py", SCRIPT),
        (folder / "profiled.py", PROFILED),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def python(folder: Path, *arguments: str) -> None:
    packages = folder / ".venv" / "lib" / "site-packages"
    environment = os.environ | {"PYTHONPATH": str(packages)}
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True)


def captured(folder: Path, profiler: str) -> Path:
    if profiler == "nsys" and shutil.which("nsys") is None:
        pytest.skip("nsys is not installed")
    python(folder, "-m", "pyprof2", "capture", f"--{profiler}", "-o", profiler, "train.py")
    (found,) = (p for p in folder.glob(f"{profiler}.*") if p.suffix in (".gz", ".sqlite"))
    return found


def lines(run: Run, op: str, column: str) -> set[str]:
    """Return the distinct lines of the calls of an op."""
    return set(run.ops.loc[run.ops["op"] == op, column].astype(str))


@pytest.mark.parametrize("profiler", ["kineto", pytest.param("nsys", marks=pytest.mark.nsys)])
def test_a_capture_has_the_users_line_and_the_librarys(project: Path, profiler: str) -> None:
    store = parse(captured(project, profiler))
    run = load(store)
    library = project / ".venv" / "lib" / "site-packages" / "trainer_library" / "__init__.py"

    assert lines(run, "aten::mul", "source") == {f"{project}/train.py:5"}
    assert lines(run, "aten::mul", "library_source") == {f"{library}:7"}
    assert lines(run, "aten::addmm", "source") == {f"{project}/nets/net.py:7"}
    assert lines(run, "aten::addmm", "library_source") == {f"{project}/nets/net.py:7"}
    assert {"trainer_library", "(own)"} <= set(run.profile("library")["library"])
    chosen = load(store, source_root=library.parent)
    assert lines(chosen, "aten::mul", "source") == {f"{library}:7"}


def test_frames_of_torch_profiler_give_both_lines(project: Path) -> None:
    packages = Path(".venv", "lib", "site-packages")
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    command = [sys.executable, "profiled.py", str(project / packages), "trace.json"]
    subprocess.run(command, cwd=project, env=environment, check=True)

    run = load(project / "trace.json")

    # The script's folder is cut off; and a frame has the line at which its function begins.
    assert lines(run, "aten::mul", "source") == {"train.py:3"}
    library = packages / "trainer_library" / "__init__.py"
    assert lines(run, "aten::mul", "library_source") == {f"{library}:5"}
    assert lines(run, "aten::addmm", "source") == {"nets/net.py:6"}


def test_where_one_line_has_most_of_the_time_other_axes_are_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "nets" / "net.py").write_text(
        "from torch.nn import Linear, Sequential\nNet = lambda: Sequential(Linear(8, 8))\n"
    )
    trace = captured(project, "kineto")

    main(["prof", str(trace), "--by", "source", "--direction", "forward,backward", "-w", "300"])

    said = capsys.readouterr().out
    assert "one line of yours, train.py:5, has " in said
    assert "of the time: --by layer or op takes it apart" in said
    assert str(project) not in said.split("\n", 2)[2]


@pytest.mark.parametrize("shell", ["terminal", "kernel"])
def test_a_notebook_has_the_number_of_the_cell(tmp_path: Path, shell: str) -> None:
    compiler = "ipykernel.compiler.XCachingCompiler" if shell == "kernel" else ""
    script = tmp_path / "notebook.py"
    script.write_text(f"""\
import sys
from IPython.core.interactiveshell import InteractiveShell
if {compiler!r}:
    from ipykernel.compiler import XCachingCompiler
    InteractiveShell.compiler_class = XCachingCompiler
shell = InteractiveShell.instance()
for cell in (
    "import torch, pyprof2.nvtx",
    "def double(x):\\n    return torch.mul(x, 2)",
    "pyprof2.nvtx.init(sink='kineto')\\n"
    "with torch.profiler.profile() as profiler:\\n"
    "    double(torch.ones(2))\\n"
    "    torch.neg(torch.ones(2))\\n"
    "profiler.export_chrome_trace({str(tmp_path / "trace.json")!r})",
):
    shell.run_cell(cell, store_history=True).raise_error()
""")
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True)

    run = load(tmp_path / "trace.json")

    assert lines(run, "aten::mul", "source") == {"cell 2:2"}
    assert lines(run, "aten::neg", "source") == {"cell 3:4"}
