"""Recordings by a real `nsys`, of NVTX ranges alone: what it records without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
_OPTIONS: Final = ("-t", "nvtx", "-s", "none", "--cpuctxsw=none", "--export", "sqlite", "-f")


def nsys_profile(
    program: Sequence[str | Path],
    out: Path,
    *options: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
) -> Path:
    """Run a program under `nsys profile`, and return its export, of SQLite; skip without nsys.

    Args:
        program: the command line.
        out: path of the report, without suffix.
        options: more options of `nsys profile`.
        cwd: where the program runs.
        env: its environment; None: that of the tests.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        pytest.skip("nsys is not installed")
    done = subprocess.run(
        [nsys, "profile", *_OPTIONS, "true", *options, "-o", out, *program],
        cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    # `conftest.py` runs a test again that failed with these words.
    assert done.returncode == 0, f"nsys profile failed: {done.stdout}{done.stderr}"
    return out.with_suffix(".sqlite")
