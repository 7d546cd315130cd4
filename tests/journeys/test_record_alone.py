"""Somebody installs pyprof2 into a training image with `pip install --no-deps`, to record alone.

None of the packages that reading needs is there: the image keeps its own NumPy, pandas and Arrow.
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.conftest import once

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytestmark = [pytest.mark.slow, pytest.mark.torch]

ROOT: Final = Path(__file__).resolve().parent.parent.parent
_TRAINING: Final = """
import sys
{init}
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(sum(p.double().sum() for p in net.parameters()).item())
"""
_NEEDED_TO_READ: Final = ("msgspec", "pandas", "pyarrow", "sqlalchemy", "tabulate", "tqdm")


def _dependencies() -> set[str]:
    """Return the modules of all packages that pyprof2 requires."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    named = re.findall(r"^([A-Za-z][\w-]*)", config["options"]["install_requires"], re.MULTILINE)
    return {name.lower().replace("-", "_") for name in named} - {"numpy"}


def _make_image(folder: Path) -> None:
    """Make an environment with torch and what that needs, and pyprof2 without its dependencies.

    NumPy stays: torch images have it.
    """
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    without = _dependencies()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        name = entry.name.lower().partition(".")[0].partition("-")[0]
        if name not in without and "pyprof2" not in name and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    (site / "pyprof2").symlink_to(ROOT / "pyprof2")


def _run(image: Path, folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [str(image / "bin" / "python"), *map(str, words)], cwd=folder, capture_output=True,
        text=True, check=False, env=environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Path:
    """Return the environment, which all workers share."""
    if sys.platform == "win32":
        pytest.skip("links need rights there")
    return once("image", _make_image)


def test_the_image_lacks_what_reading_needs(image: Path, tmp_path: Path) -> None:
    code = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"

    assert _run(image, tmp_path, "-c", code, *_NEEDED_TO_READ, *_dependencies()).stdout == "[]\n"


def test_a_training_is_recorded_there_and_read_elsewhere(image: Path, walk: Walk) -> None:
    plain, marked = (walk.folder / name for name in ("plain.py", "train.py"))
    plain.write_text(_TRAINING.format(init=""))
    marked.write_text(_TRAINING.format(init=""))
    expected = _run(image, walk.folder, plain)

    done = _run(image, walk.folder, "-m", "pyprof2", "-v", "capture", "--kineto", marked)

    assert (expected.returncode, done.returncode) == (0, 0), done.stderr
    assert done.stdout.splitlines()[0] == expected.stdout.strip()
    assert "Traceback" not in done.stderr
    rows: list[dict[str, Any]] = walk.rows("prof", "train.json.gz", "--by", "layer")
    assert {"0", "2"} <= {row["layer"] for row in rows}


def test_init_marks_a_training_there(image: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_TRAINING.format(init="import pyprof2; pyprof2.init()"))
    plain = tmp_path / "plain.py"
    plain.write_text(_TRAINING.format(init=""))

    done, expected = _run(image, tmp_path, script), _run(image, tmp_path, plain)

    assert (done.returncode, done.stdout) == (0, expected.stdout), done.stderr
    assert "Traceback" not in done.stderr


def test_reading_there_says_what_to_install(image: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")

    done = _run(image, tmp_path, "-m", "pyprof2", "prof", "a.json")

    assert done.returncode == 1
    assert done.stderr == (
        "pyprof2: reading needs packages that recording does not, the first missing one is "
        "pyarrow; read elsewhere, or: pip install pyprof2\n"
    )
