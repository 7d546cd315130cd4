"""The examples below each command's help: whole, short, and calls that work."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.cli import build_parser, main

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

DEMO: Final = Path(__file__).parent.parent.parent / "pyprof2" / "data" / "demo.json.gz"
MOST_USED: Final = (
    "parse", "prof", "check", "idle", "advise", "compare", "lines", "memory", "batch", "report",
)  # fmt: skip
ABSENT: Final = ("traces/", "nsys-rep", "pickle", "b8.pyprof2", "~/net")
"""What examples name that is not made here; these are only taken apart, not run."""


def _commands() -> dict[str, argparse.ArgumentParser]:
    (commands,) = (a for a in build_parser()._actions if a.dest == "==SUPPRESS==")
    assert isinstance(commands.choices, dict)
    return commands.choices


def _examples(command: argparse.ArgumentParser) -> list[str]:
    title, *lines = (command.epilog or "examples:").splitlines()
    assert title == "examples:"
    return lines


def _call(line: str) -> list[str]:
    """Return the arguments of an example, whose remark three blanks or more stand before."""
    program, *arguments = shlex.split(line.strip().partition("   ")[0])
    assert program == "pyprof2"
    return arguments


ALL: Final = [line for command in _commands().values() for line in _examples(command)]
RUNNABLE: Final = [
    pytest.param(line, marks=pytest.mark.minutes if _call(line)[0] == "report" else ())
    for line in ALL
    if _call(line)[0] in MOST_USED and not any(word in line for word in ABSENT)
]


@pytest.mark.parametrize("name", MOST_USED)
def test_the_help_of_a_command_that_is_used_most_ends_with_two_or_three_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = _examples(_commands()[name])

    assert main([name, "--help"]) == 0

    assert 2 <= len(examples) <= 3
    assert all(_call(line)[0] == name for line in examples)
    assert capsys.readouterr().out.splitlines()[-len(examples) :] == examples


@pytest.mark.parametrize("line", ALL)
def test_an_example_is_a_call_that_is_understood_and_fits_a_terminal(line: str) -> None:
    assert callable(build_parser().parse_args(_call(line)).run)
    assert len(line) <= 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the recording of the package under the names that examples use."""
    made = tmp_path_factory.mktemp("examples")
    shutil.copy(DEMO, made / "net.json.gz")
    assert main(["-q", "parse", str(made / "net.json.gz")]) == 0
    for name in ("before", "after"):
        shutil.copytree(made / "net.pyprof2", made / f"{name}.pyprof2")
    return made


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in that folder; what is written goes away again."""
    monkeypatch.chdir(folder)
    there = set(folder.iterdir())
    yield folder
    for path in set(folder.iterdir()) - there:
        path.unlink()


@pytest.mark.parametrize("line", RUNNABLE)
def test_an_example_runs(here: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    again = ["--force"] if " parse " in line else []

    code = main([*_call(line), *again])

    said = capsys.readouterr()
    assert code == 0, said.err
    written = [here / word for word in _call(line) if word.endswith((".csv", ".html"))]
    assert said.out or all(path.stat().st_size for path in written)
