"""Run a program and measure what it took."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """What a process took: seconds on the clock and of CPU, and the most memory it held."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def measure(command: Sequence[str | Path]) -> Usage:
    """Run a command, its output thrown away, and return what it took; stop if it fails.

    Its peak is at least what this process holds when it starts it: Linux counts it for both.
    """
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read() if process.stderr else b""
    _, status, used = os.wait4(process.pid, 0)
    # wait4 has taken the exit code, so the object must be told.
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {errors.decode(errors='replace')}")
    return Usage(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
