"""What a script sees of Python, and leaves to it, under `pyprof2 capture` and without it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import pyprof2

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="capture needs torch"),
]
both = pytest.mark.parametrize(
    "profiler",
    [
        "--kineto",
        pytest.param(
            "--nsys",
            marks=[
                pytest.mark.nsys,
                pytest.mark.skipif(shutil.which("nsys") is None, reason="nsys is not installed"),
            ],
        ),
    ],
)

OF_TOOLS: Final = (
    "pyprof2: ", "USDT:", "Terminated", "Generating '", "Generated:", "[1/1] ", "    /",
)  # fmt: skip
"""How lines begin that the profilers, and we, write beside the script."""
PLAIN_ENVIRONMENT: Final = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def run(
    folder: Path, *arguments: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder; what is returned says nothing of profilers."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=240, input=stdin,
        env=PLAIN_ENVIRONMENT | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    said = [_script_lines(text) for text in (done.stdout, done.stderr)]
    return subprocess.CompletedProcess(done.args, code, *said)


def _script_lines(text: str) -> str:
    # A bar of progress ends with an empty line.
    return "\n".join(line for line in text.split("\n") if not line.startswith(OF_TOOLS)).rstrip()


def as_python(
    folder: Path, profiler: str, *arguments: str, stdin: str = "", **environment: str
) -> str:
    """Return what a script prints, which must end and say the same under both.

    The recording is `out`.
    """
    plain = run(folder, *arguments, stdin=stdin, **environment)
    options = [profiler, "--force", "-q", "-o", str(folder / "out")]
    capture = ["-m", "pyprof2", "capture", *options, *arguments]
    done = run(folder, *capture, stdin=stdin, **environment)

    assert (done.returncode, done.stdout, done.stderr) == (
        plain.returncode, plain.stdout, plain.stderr,
    )  # fmt: skip
    return plain.stdout


def recorded(folder: Path, profiler: str) -> pyprof2.Run:
    return pyprof2.load(folder / f"out.{'sqlite' if profiler == '--nsys' else 'json.gz'}")


FACTS: Final = """
import sys
names = {k: v for k, v in globals().items() if k != "sys"}
import inspect, os, pickle
assert "torch" not in sys.modules
os.environ["OMP_NUM_THREADS"] = "1"
import torch
for name, value in names.items():
    text = type(value).__name__ if name in ("__builtins__", "__loader__") else value
    print(name, getattr(value, "name", text))
print(sys.argv, sys.orig_argv[1:], sys.path[0], sys.flags, sys.warnoptions)
print(torch.get_num_threads(), sys.modules["__main__"].__dict__ is globals())

class Kept:
    value = 3

def double(x):
    return x * 2

print(type(pickle.loads(pickle.dumps(Kept()))) is Kept, double.__code__.co_filename)
os.chdir("elsewhere")
try:
    print(inspect.getsource(double), torch.jit.script(double)(torch.ones(1)))
except OSError as error:
    print(error)
double(torch.ones(2))
"""


def _in_an_archive(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "packed.pyz", "w") as archive:
        archive.writestr("__main__.py", FACTS)
    return ["packed.pyz", "-o", "b"]


def _behind_a_link(folder: Path) -> list[str]:
    (folder / "link.py").symlink_to(folder / "package" / "facts.py")
    return ["link.py"]


def _compiled(folder: Path) -> list[str]:
    import py_compile

    py_compile.compile(str(folder / "facts.py"), str(folder / "facts.pyc"))
    return ["facts.pyc"]


@both
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(lambda _: ["facts.py", "--", "-o", "x", "--steps"], id="file"),
        pytest.param(lambda _: ["./facts.py", "--force"], id="file of this folder"),
        pytest.param(lambda _: ["package/../facts.py"], id="roundabout"),
        pytest.param(lambda at: [str(at / "facts.py")], id="absolute"),
        pytest.param(lambda _: ["-m", "package.facts", "--", "-m"], id="module"),
        pytest.param(lambda _: ["-m", "package"], id="package"),
        pytest.param(lambda _: ["-c", FACTS, "--", "-c"], id="code"),
        pytest.param(lambda _: ["-", "--", "-"], id="stdin"),
        pytest.param(lambda _: ["package", "--", "a"], id="folder"),
        pytest.param(_in_an_archive, id="archive"),
        pytest.param(_behind_a_link, id="link"),
        pytest.param(_compiled, id="compiled"),
    ],
)
def test_a_script_sees_what_it_sees_without_us(
    profiler: str, how: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    for name in ("elsewhere", "package"):
        (tmp_path / name).mkdir()
    for name in ("facts.py", "package/facts.py", "package/__main__.py", "package/__init__.py"):
        (tmp_path / name).write_text("" if "init" in name else FACTS)

    said = as_python(tmp_path, profiler, *how(tmp_path), stdin=FACTS)

    assert "\n1 True\nTrue" in said
    products = recorded(tmp_path, profiler).ops
    assert (products["op"] == "aten::mul").any()


ENDINGS: Final = {
    "error": "def boom():\n    raise ValueError('bad')\nboom()",
    "error with a cause": "try:\n    1 / 0\nexcept ArithmeticError as e:\n    raise OSError from e",
    "text": "sys.exit('no more')",
    "number": "sys.exit(3)",
    "hook": "sys.excepthook = lambda *a: sys.exit(9)\n1 / 0",
    "at once": "sys.stdout.flush()\nos._exit(4)",
    "at once on a thread": "sys.stdout.flush()\nthreading.Thread(target=os._exit, args=[4]).start()"
    "\ntime.sleep(60)",
    "signal": "sys.stdout.flush()\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)",
    "signal that is handled": "signal.signal(signal.SIGTERM, lambda *a: sys.exit(7))\n"
    "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)",
    "signal while a thread runs": "threading.Thread(target=lambda: (time.sleep(0.5), "
    "sys.stdout.flush(), os.kill(os.getpid(), signal.SIGTERM), time.sleep(60))).start()",
}


@both
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_script_ends_as_without_us_and_is_recorded(
    profiler: str, ending: str, tmp_path: Path
) -> None:
    begin = "import atexit, os, signal, sys, threading, time, torch\ntorch.ones(2)\n"
    (tmp_path / "train.py").write_text(f"{begin}atexit.register(print, 'bye')\n{ending}\n")

    as_python(tmp_path, profiler, "train.py")

    # At os._exit what nsys has not yet taken from the process is lost.
    if profiler == "--kineto" or "_exit" not in ending:
        assert recorded(tmp_path, profiler).ops["op"].tolist().count("aten::ones") == 1


LEFT_BEHIND: Final = """
import atexit, io, pickle, sys, threading, time, torch, __main__

class Kept:
    def __init__(self):
        self.held = torch.ones(2)

def work():
    threading.main_thread().join()
    for _ in range(20):
        torch.ones(5, 5) @ torch.ones(5, 5)
        time.sleep(0.01)
    torch.save(Kept(), io.BytesIO())
    print(type(pickle.loads(pickle.dumps(Kept()))) is __main__.Kept)

def bye():
    print(sys.modules["__main__"].Kept is Kept, torch.ones(2).exp(), threading.active_count())

atexit.register(bye)
threading.Thread(target=work).start()
print("last line")
"""


@both
def test_threads_are_recorded_to_their_end_and_what_is_left_to_atexit_is_not(
    profiler: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(LEFT_BEHIND)

    said = as_python(tmp_path, profiler, "train.py")

    assert said.splitlines() == ["last line", "True", "True tensor([2.7183, 2.7183]) 1"]
    ops = recorded(tmp_path, profiler).ops["op"].tolist()
    assert ops.count("aten::mm") == 20
    assert "aten::exp" not in ops


PROCESSES: Final = """
import multiprocessing, os, sys, torch
from dataclasses import dataclass
from torch.utils.data import DataLoader, Dataset

@dataclass
class Row:
    number: int

class Rows(Dataset):
    def __len__(self): return 4
    def __getitem__(self, at): return torch.full((2,), float(at))

def look(row, queue):
    queue.put((row, __name__, sys.argv, sys.path[0], __file__, type(row).__module__))

if __name__ == "__main__":
    print(len(torch.ones(2)))
    for method in ("spawn", "forkserver", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        process = context.Process(target=look, args=(Row(3), queue))
        process.start()
        print(method, queue.get())
        process.join()
        print(process.exitcode)
    for method in ("spawn", "fork"):
        loader = DataLoader(Rows(), num_workers=1, multiprocessing_context=method)
        print([batch.sum().item() for batch in loader])
"""


@both
@pytest.mark.parametrize("how", [["train.py"], ["-m", "train"]], ids=["file", "module"])
def test_processes_that_a_script_starts_find_it(
    profiler: str, how: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROCESSES)

    said = as_python(tmp_path, profiler, *how)

    assert said.count("[0.0, 2.0, 4.0, 6.0]") == 2
    assert len(recorded(tmp_path, profiler).ops)


@pytest.mark.parametrize("arguments", [["-c", "print(1)"], ["-"]], ids=["code", "stdin"])
def test_code_without_a_file_needs_a_name_for_its_recording(
    arguments: list[str], tmp_path: Path
) -> None:
    capture = ["-m", "pyprof2", "capture", "--kineto", *arguments]
    done = subprocess.run(
        [sys.executable, *capture], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=PLAIN_ENVIRONMENT | {"PYTHONPATH": str(ROOT)}, input="print(1)",
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        "pyprof2: code of -c and of stdin has no name: name the recording with -o OUT"
    )
    assert not list(tmp_path.iterdir())


def test_an_annotation_that_the_script_asks_for_before_it_imports_torch_is_recorded(
    tmp_path: Path,
) -> None:
    script = (
        "import pyprof2, sys\nassert 'torch' not in sys.modules\npyprof2.init(scalars=False)\n"
        "import torch\ntorch.nn.Linear(2, 3)(torch.ones(1, 2))\n"
    )
    (tmp_path / "train.py").write_text(script)

    as_python(tmp_path, "--kineto", "train.py")

    ops = recorded(tmp_path, "--kineto").ops
    assert ops.loc[ops["op"] == "aten::addmm", "source"].tolist() == [f"{tmp_path}/train.py:5"]
