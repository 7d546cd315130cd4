"""Journeys: what one user types, from the first command to the answer, in a folder of its own.

A journey runs the installed command, and asserts what it answers: the line, the rank, the number
within what is known of it.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

PYPROF2: Final = Path(sys.executable).with_name("pyprof2")


class Walk:
    """A user in a folder.

    Attributes:
        folder: where the commands run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *words: object, code: int = 0, **environment: str) -> Any:
        """Run a program, `pyprof2` where the first word is that; return what it wrote.

        Args:
            words: the command line.
            code: the exit code that it must have.
            environment: variables beside those of this process.
        """
        name, *rest = map(str, words)
        command = [sys.executable, *rest] if name == "python" else [str(PYPROF2), *rest]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=300, env=os.environ | environment,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done

    def text(self, *words: object) -> str:
        """Return what `pyprof2` with these words writes to stdout."""
        out: str = self.run("pyprof2", *words).stdout
        return out

    def rows(self, *words: object) -> list[dict[str, str]]:
        """Return the rows that `pyprof2` with these words gives as CSV."""
        text = self.text(*words, "--format", "csv")
        return list(csv.DictReader(io.StringIO(text, newline="")))

    def write(self, name: str, text: str) -> Path:
        """Write a file of the user's."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


def line_of(text: str, part: str) -> int:
    """Return the number of the one line of a program that has this part."""
    (found,) = (at for at, line in enumerate(text.splitlines(), 1) if part in line)
    return found


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """Return a user who has just come to a folder that is empty."""
    if not PYPROF2.is_file():
        pytest.skip("pyprof2 is not installed as a command")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return Walk(tmp_path)


@pytest.fixture
def walks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Walk]:
    """Return a function that gives users, each in a folder of its own."""
    return lambda: Walk(tmp_path_factory.mktemp("walk"))
