"""Twenty of each kind of damaged files that `make fuzz` tries by the thousand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent


@pytest.mark.minutes
@pytest.mark.skipif(sys.platform != "linux", reason="its limits on processes are those of Linux")
@pytest.mark.parametrize("kind", ["traces", "exports", "pages", "stores", "names"])
def test_damaged_files_give_a_result_or_one_clear_line(kind: str) -> None:
    words = [
        sys.executable,
        "-m",
        "tests.fuzz_traces",
        "--count",
        "20",
        "--jobs",
        "1",
        "--kind",
        kind,
    ]

    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert f"20 damaged {kind}" in done.stdout
    assert ", 0 failed;" in done.stdout


@pytest.mark.minutes
@pytest.mark.skipif(sys.platform != "linux", reason="its sanitizers are those of Linux")
def test_no_damage_makes_a_compiled_reader_leave_its_memory() -> None:
    words = [sys.executable, "-m", "tests.fuzz_native", "--seconds", "15"]

    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    if "no compiler" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.stdout.count("no fault of memory") == 2
