"""Packages bring formulas for operators of their own, found by entry points."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kineto_events import launched, op, trace

ROOT: Final = Path(__file__).resolve().parents[3]
MODULE: Final = """
from pyprof2.analysis.costs import cost_of
from pyprof2.analysis.costs.operands import numel, tally, tensor

@cost_of("mylib::scale", category="elementwise")
def scale(call):
    "x -> x times a number."
    x = tensor(call, 0)
    return tally(numel(x.shape), read=[x], written=[x], dtype=x.dtype)
"""
TERMINATED: Final = "from pyprof2.errors import TerminatedError; raise TerminatedError(143)"
SCALE: Final[dict[str, Any]] = {"dims": [[3, 4]], "types": ["float"]}


def install(folder: Path, **modules: str) -> None:
    """Put packages into a folder as pip does, each with a module of formulas."""
    for name, code in modules.items():
        (folder / f"{name}_costs.py").write_text(code)
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pyprof2.costs]\n{name} = {name}_costs\n")


def pyprof2(folder: Path, *arguments: str) -> str:
    """Return what a command prints, with the packages in a folder installed."""
    return python(folder, "-m", "pyprof2", *arguments)


def python(folder: Path, *arguments: str) -> str:
    """Return what Python prints, with the packages in a folder installed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))},
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_formula_of_another_package_is_used_and_explained(tmp_path: Path, jobs: str) -> None:
    """12 elements of 4 bytes, read and written."""
    install(tmp_path, mylib=MODULE)
    for rank in "01":
        path = tmp_path / f"rank{rank}.json"
        trace(path, op("mylib::scale", 0, 9, **SCALE), launched(1, 1, at=10, dur=4))

    pyprof2(tmp_path, "parse", "-q", "--jobs", jobs, "-o", "s", "rank0.json", "rank1.json")
    found = json.loads(pyprof2(tmp_path, "prof", "s", "--by", "op", "--format", "json"))
    text = pyprof2(tmp_path, "explain", "s", "kernel:0", "--rank", "1")

    (row,) = found["rows"] if isinstance(found, dict) else found
    assert (row["flops"], row["bytes"]) == (24, 192)
    assert "mylib_costs.scale" in text
    assert "x -> x times a number." in text


def test_what_cannot_be_loaded_is_left_out_and_said(tmp_path: Path) -> None:
    install(
        tmp_path,
        broken="import no_such_module",
        taken=MODULE.replace("mylib::scale", "aten::mm"),
        mylib=MODULE,
    )
    trace(tmp_path / "t.json", op("mylib::scale", 0, 9, **SCALE), launched(1, 1, at=10, dur=4))

    text = pyprof2(tmp_path, "check", "t.json", "--format", "csv")

    assert "cost formulas of broken (broken_costs) not loaded: ModuleNotFoundError" in text
    assert "cost formulas of taken (taken_costs) not loaded: CostRegistrationError" in text
    assert "mylib" not in text


def test_formulas_that_end_the_program_end_nothing(tmp_path: Path) -> None:
    install(tmp_path, ending="raise SystemExit(3)", mylib=MODULE)
    trace(tmp_path / "t.json", op("mylib::scale", 0, 9, **SCALE), launched(1, 1, at=10, dur=4))

    pyprof2(tmp_path, "parse", "-q", "-o", "s", "t.json")

    said = pyprof2(tmp_path, "check", "s")
    assert "cost formulas of ending (ending_costs) not loaded: SystemExit: 3" in " ".join(
        said.split()
    )


def test_a_formula_that_fails_gives_no_counts(tmp_path: Path) -> None:
    install(tmp_path, mylib=MODULE.replace("x = tensor", "raise RuntimeError; x = tensor"))
    trace(tmp_path / "t.json", op("mylib::scale", 0, 9, **SCALE), launched(1, 1, at=10, dur=4))

    text = pyprof2(tmp_path, "check", "t.json", "--format", "csv")

    assert "the formula failed: mylib_costs.scale: RuntimeError" in text
    assert "mend the formula" in text


def test_a_formula_that_ends_the_program_ends_nothing(tmp_path: Path) -> None:
    install(tmp_path, mylib=MODULE.replace("x = tensor", "raise SystemExit(3); x = tensor"))
    trace(tmp_path / "t.json", op("mylib::scale", 0, 9, **SCALE), launched(1, 1, at=10, dur=4))

    text = pyprof2(tmp_path, "check", "t.json", "--format", "csv")

    assert "the formula failed: mylib_costs.scale: SystemExit: 3" in text


@pytest.mark.parametrize(
    "code", [TERMINATED, MODULE.replace("x = tensor", f"{TERMINATED}; x = tensor")]
)
def test_a_program_that_is_terminated_while_formulas_run_ends(tmp_path: Path, code: str) -> None:
    install(tmp_path, mylib=code)
    trace(tmp_path / "t.json", op("mylib::scale", 0, 9, **SCALE), launched(1, 1, at=10, dur=4))

    with pytest.raises(subprocess.CalledProcessError) as error:
        pyprof2(tmp_path, "prof", "t.json")

    assert error.value.returncode == 128 + signal.SIGTERM


LOUD: Final = "from pathlib import Path; Path('imported').touch(); raise SystemExit('LOUD')"


@pytest.mark.parametrize(
    ("command", "is_imported"),
    [
        ("--version", False),
        ("prof s", False),
        ("prof s --by layer --format csv", False),
        ("prof t.json", True),
        ("check s", False),
        ("check t.json", True),
        ("explain s kernel:0", True),
        ("parse -q -o new t.json", True),
    ],
)
def test_formulas_of_others_are_imported_only_where_costs_are_computed(
    tmp_path: Path, command: str, *, is_imported: bool
) -> None:
    trace(tmp_path / "t.json", op("aten::mm", 0, 9), launched(1, 1, at=10, dur=4))
    pyprof2(tmp_path, "parse", "-q", "-o", "s", "t.json")
    install(tmp_path, loud=LOUD)

    pyprof2(tmp_path, *command.split())

    assert (tmp_path / "imported").exists() == is_imported


@pytest.mark.parametrize(("path", "is_imported"), [("s", False), ("t.json", True)])
def test_loading_a_store_imports_no_formulas_of_others(
    tmp_path: Path, path: str, *, is_imported: bool
) -> None:
    trace(tmp_path / "t.json", op("aten::mm", 0, 9), launched(1, 1, at=10, dur=4))
    pyprof2(tmp_path, "parse", "-q", "-o", "s", "t.json")
    install(tmp_path, loud=LOUD)
    use = "run = pyprof2.load(sys.argv[1]); run.profile(); run.summary; run.check(); run.kernels"

    python(tmp_path, "-c", f"import pyprof2, sys; {use}", path)

    assert (tmp_path / "imported").exists() == is_imported


@pytest.mark.torch
def test_recording_imports_no_formulas_of_others(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    install(tmp_path, loud=LOUD)
    (tmp_path / "train.py").write_text("import torch; torch.ones(2).exp()")

    pyprof2(tmp_path, "capture", "--kineto", "train.py")

    assert (tmp_path / "train.json.gz").is_file()
    assert not (tmp_path / "imported").exists()
