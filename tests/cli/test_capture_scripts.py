"""Scripts as people write them under `pyprof2 capture`: each ends as it ends without us."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

import pyprof2

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

NET: Final = """
import os, sys, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
sgd = torch.optim.SGD(net.parameters(), lr=0.1)

def step():
    loss = net(torch.randn(2, 8)).square().mean()
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    return loss.item()
"""
MATMULS: Final = 2
"""Of the forward of one step: one for each layer."""

OWN_PROFILER: Final = (
    NET
    + """
import json
from torch.profiler import ProfilerActivity, profile, schedule
def keep(p):
    p.export_chrome_trace("own.json")
losses = [step(), step()]
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2),
             on_trace_ready=keep) as p:
    for _ in range(5):
        losses.append(step())
        p.step()
print(json.dumps(losses))
"""
)


def start(
    folder: Path, *arguments: str, script: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, on `train.py` there if a script is given."""
    if script is not None:
        (folder / "train.py").write_text(script)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=240,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip


@functools.cache
def plainly(script: str) -> subprocess.CompletedProcess[str]:
    """Return how plain Python ends on a script, which is the same for each profiler."""
    with tempfile.TemporaryDirectory() as folder:
        return start(Path(folder), "train.py", script=script)


def capture(
    folder: Path, *arguments: str, script: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return start(folder, "-m", "pyprof2", "capture", *arguments, script=script, **environment)


def load(folder: Path, profiler: str, stem: str = "train") -> pyprof2.Run:
    return pyprof2.load(folder / f"{stem}.{'sqlite' if profiler == '--nsys' else 'json.gz'}")


def forward_matmuls(run: pyprof2.Run) -> dict[int, int]:
    """Return how many matrix products of the forward there are in each step."""
    ops = run.ops
    found = ops[(ops["op"] == "aten::addmm") & (ops["direction"] == "forward")]
    return Counter(found["step"].dropna().astype(int).tolist())


@both
@pytest.mark.parametrize(("steps", "wanted"), [("1", [1]), ("2:4", [2, 3, 4])])
def test_only_the_wanted_steps_are_recorded(
    profiler: str, steps: str, wanted: list[int], tmp_path: Path
) -> None:
    script = NET + (
        "import nvtx\nfor _ in range(7):\n    step()\n    with nvtx.annotate('mine'): pass\n"
        "print('all', 7)"
    )
    done = capture(tmp_path, profiler, "--steps", steps, "train.py", script=script)

    assert done.returncode == 0
    assert "all 7" in done.stdout
    run = load(tmp_path, profiler)
    assert forward_matmuls(run) == dict.fromkeys(wanted, MATMULS)
    # What the model was made with, before the first step, is not there either.
    calls = run.ops["op"].value_counts()
    assert calls["aten::addmm"] == MATMULS * len(wanted)
    assert "aten::uniform_" not in calls
    assert (run.ops.loc[run.ops["op"] == "aten::addmm", "source"] == f"{tmp_path}/train.py:8").all()
    # Nor what others record: all that nsys takes up is limited, as its kernels are.
    if profiler == "--nsys":
        assert run.ranges["name"].tolist().count("mine") == len(wanted)


@both
def test_a_step_that_never_begins_is_said(profiler: str, tmp_path: Path) -> None:
    script = NET + "for _ in range(3): step()"
    done = capture(tmp_path, profiler, "--steps", "5:6", "train.py", script=script)

    assert done.returncode == 1
    assert "pyprof2: step 5 did not begin: " in done.stderr
    assert "recorded nothing" in done.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize("how", ["a script", "an entry point"])
def test_where_an_error_ends_it_before_the_first_step_only_the_error_is_said(
    how: str, tmp_path: Path
) -> None:
    script = NET + "step()\nraise ValueError('of its own')"
    if how == "an entry point":
        script = """
import torch
def skyline_model_provider():
    return torch.nn.Linear(4, 4)
def skyline_input_provider(batch_size=2):
    return (torch.ones(batch_size, 4),)
def skyline_iteration_provider(model):
    def iteration(x):
        raise ValueError("of its own")
    return iteration
"""
    words = ["--entry"] if how == "an entry point" else ["--steps", "5:6"]
    done = capture(tmp_path, "--kineto", *words, "train.py", script=script)

    assert done.returncode == 1
    assert "ValueError: of its own" in done.stderr
    assert "did not begin" not in done.stderr


def test_steps_that_the_script_asks_for_limit_ops_and_keep_sources(tmp_path: Path) -> None:
    script = "import pyprof2\n" + NET + "pyprof2.init(steps=range(2, 4))\nfor _ in range(9): step()"
    done = capture(tmp_path, "--kineto", "train.py", script=script)

    assert done.returncode == 0
    run = load(tmp_path, "--kineto")
    assert forward_matmuls(run) == {2: MATMULS, 3: MATMULS}
    products = run.ops[run.ops["op"] == "aten::addmm"]
    assert len(products) == 2 * MATMULS
    assert set(products["source"]) == {f"{tmp_path}/train.py:9"}
    assert set(products["layer"]) == {"0", "2"}


@pytest.mark.parametrize("options", ["", "scalars=False"])
def test_a_call_of_init_in_the_script_keeps_steps_and_sources(options: str, tmp_path: Path) -> None:
    script = f"import pyprof2\n{NET}pyprof2.init({options})\nfor _ in range(4): step()"
    whole = capture(tmp_path, "--kineto", "-o", "whole", "train.py", script=script)
    assert whole.returncode == 0
    products = load(tmp_path, "--kineto", "whole").ops
    sources = products.loc[products["op"] == "aten::addmm", "source"]
    assert sources.tolist() == [f"{tmp_path}/train.py:9"] * 4 * MATMULS
    done = capture(tmp_path, "--kineto", "--steps", "1:2", "train.py", script=script)

    assert done.returncode == 0
    assert forward_matmuls(load(tmp_path, "--kineto")) == {1: MATMULS, 2: MATMULS}


@both
def test_the_source_root_is_the_folder_of_the_script_unless_said(
    profiler: str, tmp_path: Path
) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
    (tmp_path / "theirs" / "lib.py").write_text("def call(f, x):\n    return f(x)\n")
    main = tmp_path / "mine" / "main.py"
    main.write_text(
        f"import sys, torch\nsys.path.append({str(tmp_path / 'theirs')!r})\nimport lib\n"
        "net = torch.nn.Linear(8, 4)\nlib.call(net, torch.ones(2, 8))\n"
    )
    for root, stem in ((None, "plain"), (tmp_path / "theirs", "rooted")):
        options = [] if root is None else ["--source-root", str(root)]
        done = capture(tmp_path, profiler, *options, "-o", stem, str(main))
        assert done.returncode == 0, done.stderr

    sources = {}
    for stem in ("plain", "rooted"):
        ops = load(tmp_path, profiler, stem).ops
        (sources[stem],) = ops.loc[ops["op"] == "aten::addmm", "source"]
    assert sources["plain"] == f"{main}:5"
    assert sources["rooted"] == f"{tmp_path}/theirs/lib.py:2"


def test_the_options_of_the_interpreter_reach_the_script(tmp_path: Path) -> None:
    script = (
        "import sys, torch\ntorch.ones(2)\n"
        "print(sys.warnoptions, sorted(sys._xoptions), sys.flags.optimize, sys.dont_write_bytecode)"
    )
    flags = ["-W", "ignore::UserWarning", "-X", "faulthandler", "-O", "-B"]
    plain = start(tmp_path, *flags, "train.py", script=script)
    ours = ["-m", "pyprof2", "capture", "--kineto"]
    before = start(tmp_path, *flags, *ours, "train.py")
    after = start(
        tmp_path, "-O", "-B", *ours, "--force", "-W", "ignore::UserWarning", "-X", "faulthandler",
        "train.py",
    )  # fmt: skip

    assert plain.stdout == "['ignore::UserWarning'] ['faulthandler'] 1 True\n"
    assert before.stdout == after.stdout == plain.stdout


ENDINGS: Final = [
    "sys.exit()",
    "sys.exit(7)",
    "sys.exit(-1)",
    "sys.exit('no more')",
    "1 / 0",
    "raise KeyboardInterrupt",
    "os.kill(os.getpid(), 9)",
    "import atexit; atexit.register(print, 'at exit'); sys.exit(3)",
    "sys.excepthook = lambda *a: print(a[0].__name__); 1 / 0",
]


@both
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_script_ends_as_under_plain_python(profiler: str, ending: str, tmp_path: Path) -> None:
    script = f"import os, sys, torch\ntorch.ones(2)\n{ending}"
    plain = plainly(script)
    done = capture(tmp_path, profiler, "train.py", script=script)

    # A shell adds 128 to the number of the signal by which a process ends.
    code = plain.returncode if plain.returncode >= 0 else 128 - plain.returncode
    assert done.returncode == code
    assert done.stdout.startswith(plain.stdout)
    # It ran elsewhere; the last line of a traceback says what the error is.
    assert set(plain.stderr.splitlines()[-1:]) <= set(done.stderr.splitlines())
    if "os.kill" in ending:  # by what nobody can catch
        return
    assert len(load(tmp_path, profiler).ops)
    if "exit(7)" in ending or ending == "1 / 0":
        assert f"; the script exited with code {code};" in done.stderr
    if ending == "1 / 0":
        lines = done.stderr.splitlines()
        begin = lines.index("Traceback (most recent call last):")
        assert lines[begin + 1] == f'  File "{tmp_path}/train.py", line 3, in <module>'
        assert "ZeroDivisionError: division by zero" in lines


@both
@pytest.mark.parametrize(
    ("end", "code"), [("finally: pass", 130), ("except KeyboardInterrupt: sys.exit(5)", 5)]
)
def test_ctrl_c_ends_a_script_as_under_plain_python(
    profiler: str, end: str, code: int, tmp_path: Path
) -> None:
    script = NET + (
        "import time\nstep()\n"
        "try:\n    print('READY', flush=True)\n"
        f"    for _ in range(2000): step(); time.sleep(0.01)\n{end}"
    )
    (tmp_path / "train.py").write_text(script)
    with subprocess.Popen(
        [sys.executable, "-m", "pyprof2", "capture", profiler, "train.py"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert any("READY" in line for line in process.stdout)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everybody
        said = process.stdout.read()

    assert process.returncode == code
    assert ("KeyboardInterrupt" in said) == (code == 130)
    assert len(load(tmp_path, profiler).ops)


ERRORS: Final = (
    NET
    + """
import traceback
from torch.utils.data import DataLoader, Dataset

class Bad(Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): raise ValueError(index)

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, grad): raise ValueError("backward")

def in_a_module(): net(torch.ones(3, 7))
def in_an_op(): torch.ones(2) @ torch.ones(3)
def in_a_batch(): next(iter(DataLoader(Bad())))
def in_backward(): Double.apply(torch.ones(2, requires_grad=True)).sum().backward()
def on_a_device():
    with torch.device("cpu"): torch.ones(2).add_(torch.ones(3))

for fails in (in_a_module, in_an_op, in_a_batch, in_backward, on_a_device):
    try:
        fails()
    except Exception as error:
        print(type(error).__name__)
        for frame in traceback.extract_tb(error.__traceback__):
            folder, file = os.path.split(frame.filename)
            print(os.path.basename(folder) * folder.endswith("nvtx") + file, frame.name)
"""
)


@both
def test_tracebacks_have_no_frame_of_ours(profiler: str, tmp_path: Path) -> None:
    plain = plainly(ERRORS)
    done = capture(tmp_path, profiler, "train.py", script=ERRORS)

    assert plain.stdout.count("Error\n") == 5
    assert "linear.py forward" in plain.stdout
    assert "nvtx" not in done.stdout
    # torch goes another way to an op where there are modes, with frames of its own.
    frames = iter(done.stdout.splitlines())
    assert all(line in frames for line in plain.stdout.splitlines())


def test_a_profiler_of_the_scripts_own_wins(tmp_path: Path) -> None:
    plain = start(tmp_path, "train.py", script=OWN_PROFILER)
    own = json.loads((tmp_path / "own.json").read_text())
    (tmp_path / "own.json").unlink()
    done = capture(tmp_path, "--kineto", "train.py")

    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (0, plain.stdout)
    assert done.stderr.count("pyprof2: the script starts a profiler of its own") == 1
    # Ours has the steps before, and the script's own file has what it has without us.
    assert forward_matmuls(load(tmp_path, "--kineto")) == {0: MATMULS, 1: MATMULS}
    names = [
        sorted(
            e["name"] for e in trace["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation")
        )
        for trace in (own, json.loads((tmp_path / "own.json").read_text()))
    ]
    assert names[0] == names[1]
    assert "aten::addmm" in names[0]


ON_A_THREAD: Final = """
import threading
def profiled():
    with torch.profiler.profile(): step()
thread = threading.Thread(target=profiled)
thread.start()
thread.join()
"""


@pytest.mark.parametrize(
    "own",
    [
        "with torch.autograd.profiler.profile(): step()",
        "with torch.autograd.profiler.emit_nvtx(enabled=False): step()",
        "p = torch.profiler.profile(); p.start(); step(); p.stop()",
        ON_A_THREAD,
    ],
    ids=["autograd", "emit_nvtx that is off", "start and stop", "on a thread"],
)
def test_every_kind_of_profiler_in_a_script_works(own: str, tmp_path: Path) -> None:
    done = capture(tmp_path, "--kineto", "train.py", script=f"{NET}\nstep()\n{own}\nprint('done')")

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert forward_matmuls(load(tmp_path, "--kineto"))[0] == MATMULS


ENDS_OF_CHILDREN: Final = {
    "sys.exit(0)": 0,
    "sys.exit(4)": 4,
    "1 / 0": 1,
    "import signal; os.kill(os.getpid(), signal.SIGTERM)": -15,
    "import atexit; atexit.register(print, 'child leaves'); sys.exit(6)": 6,
}
FORK: Final = (
    NET
    + """
step()
for ending in {endings}:
    pid = os.fork()
    if pid == 0:
        torch.ones(3) * 2
        exec(ending)
    _, status = os.waitpid(pid, 0)
    print("child ended with", os.waitstatus_to_exitcode(status), flush=True)
step()
"""
)


@both
def test_a_forked_child_ends_as_without_us_and_the_parent_goes_on(
    profiler: str, tmp_path: Path
) -> None:
    script = FORK.replace("{endings}", repr(list(ENDS_OF_CHILDREN)))
    plain = plainly(script)
    done = capture(tmp_path, profiler, "train.py", script=script)

    assert done.returncode == 0
    assert done.stdout.startswith(plain.stdout)
    ends = [line for line in plain.stdout.splitlines() if line != "child leaves"]
    assert ends == [f"child ended with {code}" for code in ENDS_OF_CHILDREN.values()]
    assert plain.stdout.count("child leaves") == 1
    assert forward_matmuls(load(tmp_path, profiler)) == {0: MATMULS, 1: MATMULS}


THREADS: Final = """
import torch
from concurrent.futures import ThreadPoolExecutor
nets = [torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()) for _ in range(3)]

def work(net):
    for _ in range(4):
        net(torch.ones(2, 8)).sum().backward()

with ThreadPoolExecutor(3) as pool:
    list(pool.map(work, nets))
"""


@both
def test_worker_threads_are_recorded_with_layer_and_line(profiler: str, tmp_path: Path) -> None:
    done = capture(tmp_path, profiler, "train.py", script=THREADS)

    assert done.returncode == 0
    ops = load(tmp_path, profiler).ops
    products = ops[(ops["op"] == "aten::addmm") & (ops["direction"] == "forward")]
    assert len(products) == 3 * 4
    # Three networks, each a root with children.
    assert set(products["layer"]) == {"net.0", "net#2.0", "net#3.0"}
    assert set(products["source"]) == {f"{tmp_path}/train.py:8"}


@pytest.mark.parametrize(
    "launcher",
    [
        ["-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"],
        ["torchrun", "--nproc-per-node=2", "train.py"],
        ["-m", "accelerate.commands.launch", "train.py"],
        ["accelerate", "launch", "train.py"],
        ["deepspeed", "train.py"],
    ],
    ids=" ".join,
)
def test_a_launcher_inside_is_one_clear_error(launcher: list[str], tmp_path: Path) -> None:
    done = capture(tmp_path, "--kineto", *launcher, script="open('ran', 'w')")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "starts other processes, which would not be recorded; let it start" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@both
def test_a_script_that_only_starts_others_is_not_recorded(profiler: str, tmp_path: Path) -> None:
    script = "import subprocess, sys, torch\nsubprocess.run([sys.executable, '-c', 'print(1)'])"
    done = capture(tmp_path, profiler, "train.py", script=script)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "recorded nothing: no op ran in this process; if it starts others, let them start capture"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


DDP: Final = (
    NET
    + """
import torch.distributed as dist
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(net)
for _ in range(2): step()
dist.destroy_process_group()
"""
)


@pytest.mark.slow
def test_torchrun_outside_gives_one_recording_per_rank(tmp_path: Path) -> None:
    done = start(
        tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        "-m", "pyprof2", "capture", "--kineto", "train.py", script=DDP, OMP_NUM_THREADS="1",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    for rank in range(2):
        run = pyprof2.load(tmp_path / f"train-rank{rank}.json.gz")
        assert run.summary["ranks"] == [rank]
        assert run.table("trace")["world_size"].to_pylist() == [2]
        assert forward_matmuls(run) == {0: MATMULS, 1: MATMULS}


def test_what_lies_in_the_current_folder_is_not_imported(tmp_path: Path) -> None:
    """Plain Python looks in the folder of the script."""
    scripts, here = tmp_path / "scripts", tmp_path / "here"
    for folder in (scripts, here):
        folder.mkdir()
    (scripts / "train.py").write_text("import torch\ntorch.ones(2)\nprint('fine')")
    for name in ("torch", "json", "nvtx", "argparse", "numpy"):
        (here / f"{name}.py").write_text(f"print('{name} of the current folder'); raise SystemExit")

    plain = start(here, "../scripts/train.py")
    done = capture(here, "--kineto", "../scripts/train.py")
    assert (plain.returncode, plain.stdout) == (0, "fine\n")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_a_long_recording_is_said_early_to_take_memory(tmp_path: Path) -> None:
    """Each step records some thousand events of about 475 bytes, on a process that stays small."""
    script = NET + (
        "import pyprof2.capture.growth as growth\ngrowth.WARN_AT = 1 << 22\n"
        "x = torch.ones(2)\n"
        "for _ in range(30):\n    step()\n    for _ in range(2000): x.neg()\n"
    )
    done = capture(tmp_path, "--kineto", "train.py", script=script)

    assert done.returncode == 0
    (said,) = [line for line in done.stderr.splitlines() if "a recording is kept in memory" in line]
    assert said.startswith("pyprof2: after ")
    assert int(said.split()[2]) < 20
    assert "record some steps only, --steps A:B" in said
    assert max(forward_matmuls(load(tmp_path, "--kineto"))) == 29


def test_a_recording_ends_before_there_is_no_memory(tmp_path: Path) -> None:
    script = NET + (
        "import pyprof2.capture.growth as growth\ngrowth.free_bytes = lambda: 1 << 25\n"
        "x = torch.ones(2)\n"
        "for _ in range(40):\n    step()\n    for _ in range(2000): x.neg()\n"
        "print('all steps')"
    )
    done = capture(tmp_path, "--kineto", "train.py", script=script)

    assert (done.returncode, done.stdout) == (0, "all steps\n")
    assert "it ends here, with what there is" in done.stderr
    steps = forward_matmuls(load(tmp_path, "--kineto"))
    assert 3 < len(steps) < 40
    assert set(steps.values()) == {MATMULS}
