"""Entry points by the command line: samples run unchanged, and nothing else runs code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pandas as pd
import pytest

import pyprof2
from pyprof2.analysis.summaries.batch.recorded import Recorded
from pyprof2.capture.entry_process import EntryFacts
from pyprof2.capture.sweep import Sweep
from pyprof2.cli import build_parser, main
from pyprof2.cli.batch import NOTHING_TO_VERIFY, _tried
from pyprof2.reports.batch import BatchQuery

ROOT: Final = Path(__file__).resolve().parents[2]
SAMPLES: Final = ROOT / "examples" / "entry_points"

pytest.importorskip("torch")
import torch  # noqa: E402

no_gpu = not torch.cuda.is_available()


def pyprof2_in(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyprof2", *map(str, words)],
        cwd=folder, capture_output=True, text=True, check=False, timeout=500,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sample", "batch", "line", "asks"),
    [
        ("resnet", 8, "resnet.py:30", True),
        ("gnmt", 4, "seq2seq/model.py:46", True),
        ("transformer", 8, "entry_point.py:32", False),
    ],
)
def test_a_sample_runs_unchanged_and_its_iterations_are_the_steps(
    sample: str,
    batch: int,
    line: str,
    asks: object,
    tmp_path: Path,
) -> None:
    file = SAMPLES / sample / "entry_point.py"
    done = pyprof2_in(tmp_path, "capture", "--kineto", "--entry", file, "-o", "net")

    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert f"with a batch size of {batch}\n" in done.stderr
    is_moved = bool(asks and no_gpu)
    assert ("pyprof2: on the CPU: what the code asks of a GPU" in done.stderr) == is_moved
    run = pyprof2.load(pyprof2.parse(tmp_path / "net.json.gz"))
    assert run.summary["steps"] == [3, 4, 5, 6, 7]
    entry = {"file": str(file), "batch_size": batch, "on_cpu": is_moved}
    assert run.tables.manifest["ranks"][0]["entry"] == entry
    rows = run.profile()
    assert {"forward", "backward", "optimizer"} <= set(rows["direction"])
    assert any(str(source).endswith(line) for source in rows["source"])
    # The steps are whole iterations: each has the same ops.
    counts = rows.groupby("step")["op"].count().tolist()
    assert counts == counts[:1] * len(counts)
    assert len(run.memory)
    assert f"entry point {file}" in run.check()["finding"].str.cat(sep="|")


ENTRY = """\
import pathlib
import torch

with pathlib.Path(__file__).with_name("ran").open("a") as file:
    file.write("x")
print("printed by the entry point")

def skyline_model_provider():
    return torch.nn.Linear(64, 64)

def skyline_input_provider(batch_size=4):
    return (torch.ones(batch_size, 64),)

def skyline_iteration_provider(model):
    def iteration(x):
        model(x).sum().backward()
    return iteration
"""


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    path = tmp_path / "the_entry.py"
    path.write_text(ENTRY)
    return path


def times_run(entry: Path) -> int:
    ran = entry.with_name("ran")
    return len(ran.read_text()) if ran.exists() else 0


@pytest.mark.slow
def test_lines_and_memory_run_the_entry_point_and_print_only_the_answer(
    entry: Path, tmp_path: Path
) -> None:
    lines = pyprof2_in(tmp_path, "lines", "--entry", entry, "--batch", 32, "--format", "json")
    memory = pyprof2_in(
        tmp_path, "memory", "--entry", entry, "--by", "line", "--format", "json", "--threads", 1
    )

    assert times_run(entry) == 2
    assert "printed by the entry point" in lines.stderr
    assert "with a batch size of 32" in lines.stderr
    assert any(row["name"] == f"{entry}:16" for row in json.loads(lines.stdout)), lines.stdout
    # The batch of 4 makes an output of 4 · 64 floats.
    assert f"{entry}:16" in memory.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ran", "the_entry.py"]


@pytest.mark.slow
def test_no_code_runs_but_by_capture_entry_and_verify(
    entry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store names the entry point; a store of somebody else's could name any file."""
    for batch in (2, 4):
        words = ["capture", "--kineto", "--entry", str(entry), "--batch", str(batch)]
        assert pyprof2_in(tmp_path, *words, "-o", f"b{batch}").returncode == 0
    assert times_run(entry) == 2
    two, four = (str(tmp_path / f"b{batch}.json.gz") for batch in (2, 4))

    for words in (
        ["parse", two, "-o", str(tmp_path / "b2.pyprof2")],
        ["prof", two], ["check", two], ["lines", two], ["memory", two], ["memory", two, four],
        ["advise", two], ["explain", two, "op:0"], ["compare", two, four], ["idle", two],
        ["batch", f"2={two}", f"4={four}", f"8={four}", "--at", "16"],
        ["report", two, "-o", str(tmp_path / "out.html")],
    ):  # fmt: skip
        assert main(words) in (0, 1), words

    assert times_run(entry) == 2
    assert main(["batch", f"2={two}", f"4={four}", f"8={four}", "--verify"]) == 2
    assert "--verify runs code, and no recording is run" in capsys.readouterr().err
    assert times_run(entry) == 2


@pytest.mark.slow
def test_an_error_is_one_line_with_file_and_line_and_leaves_nothing(
    entry: Path, tmp_path: Path
) -> None:
    entry.write_text(ENTRY.replace("torch.ones(batch_size, 64)", "torch.ones(batch_size, 63)"))
    done = pyprof2_in(tmp_path, "capture", "--kineto", "--entry", entry)

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pyprof2: the_entry.py:16: RuntimeError: mat1 and mat2 shapes cannot be")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ran", "the_entry.py"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lines"], "name what was recorded, or an entry point to run: --entry FILE"),
        (["lines", "a", "--entry", "b"], "what was recorded is given as well: leave one of them"),
        (["lines", "a", "--batch", "4"], "--batch is for entry points: say --entry FILE"),
        (["memory", "a", "--on", "cpu"], "--on is for entry points"),
        (["capture", "--threads", "4", "a"], "--threads is for entry points"),
        (["capture"], "name a script, or an entry point to run: --entry FILE"),
        (["capture", "--entry", "ENTRY", "-m", "x"], "a script is given as well"),
        (["batch"], "name recordings at three or more batch sizes, as 8=net8.pyprof2, or an entry"),
        (["batch", "--batches", "1,2,4"], "--batches runs code, and no recording is run"),
        (["batch", "--entry", "ENTRY", "--batches", "1,2"], "a batch model needs three or more"),
        (["batch", "--entry", "ENTRY", "--batches", "1,2,2"], "'1,2,2' has a batch size twice"),
        (["batch", "--entry", "ENTRY", "--rounds", "1"], "'1' is not a number of 2 or more"),
        (["lines", "--entry", "ENTRY", "--timeout", "-1"], "'-1' is not a number of seconds"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_exits_with_2(
    words: list[str], message: str, entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(entry) if word == "ENTRY" else word for word in words]) == 2

    assert message in capsys.readouterr().err.splitlines()[-1]
    assert times_run(entry) == 0


def test_a_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lines", "--entry", "nowhere.py"]) == 1

    assert "nowhere.py: no such file; name the file with the providers" in capsys.readouterr().err


@pytest.mark.minutes
def test_batch_runs_each_size_in_fresh_processes_and_verifies_what_it_suggests(
    entry: Path, tmp_path: Path
) -> None:
    # Of sizes that take as long as one another none is suggested: these differ by more than chance.
    words = ["--batches", "256,1024,4096", "--rounds", 2, "--threads", 1, "--verify"]
    words += ["--format", "json"]
    done = pyprof2_in(tmp_path, "batch", "--entry", entry, *words)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    tried = sorted({row["batch_size"] for row in found if row["status"] == "verified"})
    assert len(tried) == 2
    assert tried[1] == tried[0] + 1
    # Of each size one process is recorded, and two take times.
    assert times_run(entry) == 3 * (3 + 2)
    assert {row["batch_size"] for row in found if row["status"] == "measured"} <= {256, 1024, 4096}


def test_where_no_size_is_suggested_none_is_tried_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps = pd.Series({("forward", "matmul"): 100.0})
    same = EntryFacts(threads=1, wall_ns=[5000] * 2, cpu_ns=[5000] * 2, waits=[0] * 2)
    recordings = {b: Recorded(b, steps, [100], []) for b in (2, 4, 8)}
    sweep = Sweep(recordings, times={b: [same] for b in recordings})
    args = build_parser().parse_args(["batch", "--entry", "gone.py", "--verify"])

    assert _tried(args, sweep, sweep.model(), BatchQuery(), lambda: None) == {}

    assert capsys.readouterr().err == f"pyprof2: {NOTHING_TO_VERIFY}\n"
