"""Record because the environment variable `PYPROF2` says so, in a program that imports pyprof2."""

from __future__ import annotations

import sys
import warnings
from importlib import util
from pathlib import Path

from pyprof2.integrations.environment import VARIABLE, be_recordable, is_on, steps_for


def begin() -> None:
    """Record this process if the variable says so, unless it is our own command."""
    # The command itself reads, and needs no torch.
    words = sys.orig_argv
    names = {words[at + 1] for at, word in enumerate(words[:-1]) if word == "-m"}
    is_command = "pyprof2" in names or Path(sys.argv[0]).stem == "pyprof2"
    if is_command or not is_on():
        return
    be_recordable()
    if util.find_spec("torch") is None:
        warnings.warn(f"{VARIABLE} is set, and nothing can be recorded: no torch", stacklevel=3)
        return
    from pyprof2.integrations.recording import begin_unasked

    begin_unasked(steps_for(None))
