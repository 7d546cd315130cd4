"""How much memory a recording takes while it runs, where the system says it (Linux)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

WRITING: Final = 8
"""A trace takes this many times the memory when torch.profiler ends and writes it: measured with
torch 2.13, 475 bytes for each event while it runs, 3,300 afterwards."""

WARN_AT: Final = 1 << 27
"""Bytes of growth at which the user is warned."""

_WARM_UP: Final = 3
"""Steps in which a training makes what it keeps: gradients, states of optimizers, caches."""

_MEMORY: Final = Path("/proc/meminfo")
_OWN: Final = Path("/proc/self/statm")
_GROUP: Final = Path("/sys/fs/cgroup")

_GROWN: Final = (
    "after {steps} steps the process is {mb} MB larger; a recording is kept in memory, and writing "
    f"it takes {WRITING} times as much: "
)
_ADVICE: Final = "record some steps only, --steps A:B"
_ENDS: Final = "it ends here, with what there is; record some steps only, --steps A:B"


class GrowthNote(NamedTuple):
    """The words for the user, and whether the recording has to end."""

    text: str
    is_full: bool


class Growth:
    """Compares the memory of this process with what it was after the first steps."""

    def __init__(self) -> None:
        self._steps = 0
        self._before = self._room = 0
        self._has_warned = False

    def step(self) -> GrowthNote | None:
        """Look at the memory when a step begins; return what the user should know, if anything."""
        self._steps += 1
        now = own_bytes()
        if now is None:
            return None
        if self._steps <= _WARM_UP:
            self._before, self._room = now, free_bytes() or 0
            return None
        grown = now - self._before
        is_full = self._room > 0 and grown * WRITING > self._room
        if not is_full and (grown < WARN_AT or self._has_warned):
            return None
        self._has_warned = True
        end = _ENDS if is_full else _ADVICE
        return GrowthNote(_GROWN.format(steps=self._steps, mb=grown // 10**6) + end, is_full)


def own_bytes() -> int | None:
    """Return the memory that this process has; None where the system does not say."""
    try:
        return int(_OWN.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def free_bytes() -> int | None:
    """Return the memory that this process could still get, within the limit of its container."""
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = _MEMORY.read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        found.append(int(available.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):
        limit, used = ((_GROUP / name).read_text() for name in ("memory.max", "memory.current"))
        found.append(int(limit) - int(used))
    return min(found, default=None)
