"""pip leaves a training image as it is: NumPy 1.26, pandas 2.2, Arrow 17 and torch stay.

`make test-lowest` runs this in an environment that has the oldest versions that will do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
LOWEST: Final = dict(
    line.split("==")
    for line in (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    if "==" in line
)


def test_pip_would_install_pyprof2_and_change_nothing() -> None:
    if version("pandas") != LOWEST["pandas"]:
        pytest.skip("its environment is that of make test-lowest")
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--dry-run", "--no-index",
            "--no-build-isolation", "--quiet", "--report", "-", str(ROOT),
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    found = {each["metadata"]["name"].lower() for each in json.loads(done.stdout)["install"]}

    assert found == {"pyprof2"}


def test_the_oldest_versions_are_those_of_training_images() -> None:
    assert LOWEST["numpy"].startswith("1.26.")
    assert LOWEST["pandas"].startswith("2.2.")
    assert LOWEST["pyarrow"].startswith("17.")
