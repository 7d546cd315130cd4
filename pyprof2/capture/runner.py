"""Start a Python that runs somebody's code for us, and wait for its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_PROGRAM: Final = """
import sys
if not sys.flags.safe_path:
    del sys.path[0]
sys.path.insert(0, sys.argv[1])
import pyprof2
del sys.path[0]
from pyprof2.capture.script import main
main(sys.argv[2:])
"""
"""Python puts the current folder on the path, from which nothing of ours is to be imported."""

STDIN: Final = "-"
"""The script that is read from there."""
BY_SIGNAL: Final = 128
"""Shells add to it the number of the signal that ended a program."""
_PATIENCE_S: Final = 10
"""How long a process that is to end may take to do so."""


def command(arguments: Sequence[str], flags: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a script, with the options of this very Python.

    Args:
        arguments: of `pyprof2.capture.script`.
        flags: more options of Python.
    """
    own = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    return [sys.executable, *own, *flags, "-c", _PROGRAM, str(_PACKAGE.parent), *arguments]


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a process of ours: it finds this very package, wherever it runs."""
    paths = [str(_PACKAGE.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    own = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, paths)))}
    return os.environ | own | more


def start(
    program: Sequence[str],
    *,
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a command to its end, and return its exit code; of a signal its negative number.

    Args:
        program: the command.
        timeout: seconds that it may take.
        environment: variables to set.

    Raises:
        TimeoutError: it took longer, and was ended.
    """
    variables = {**os.environ, **(environment or {})}
    with subprocess.Popen(program, env=variables) as process:  # noqa: S603 -- the user asks for it
        before = signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
        try:
            while True:
                # An interrupt reaches the command too, and ends it; what it recorded is kept.
                with contextlib.suppress(KeyboardInterrupt):
                    return process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            _end(process)
            raise TimeoutError from error
        finally:
            signal.signal(signal.SIGTERM, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def ending(code: int) -> str:
    """Say how a process ended."""
    return f"exited with code {code}" if code >= 0 else f"was ended by signal {-code}"
