"""The examples below each command's help: whole and short; `tests/commands` runs them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.cli import build_parser, main

if TYPE_CHECKING:
    import argparse

MOST_USED: Final = (
    "parse", "prof", "check", "idle", "advise", "compare", "lines", "memory", "batch", "report",
)  # fmt: skip


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
