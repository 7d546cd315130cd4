"""Read the counters of energy that the machine has: those of its CPUs, and of the GPUs in use.

CPUs: the files of RAPL under `/sys/class/powercap`, which many machines let only root read. Of each
only the whole packages count: their parts, such as cores, are inside of them. They count what all
programs on the machine use. GPUs: those on which this process has memory; see `gpu_energy`.

A counter that cannot be read is not there, and one that fails, or that may have wrapped around
unseen, is not read again. Nothing is estimated. The environment variable `PYPROF2_ENERGY=0` turns
it off; `PYPROF2_ENERGY_IDLE=2` waits two seconds before the program begins, and says what the
machine used in them.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import torch

from pyprof2.errors import UsageError
from pyprof2.markers import Marker
from pyprof2.nvtx.gpu_energy import SPREAD, nvml_counters, used_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SWITCH: Final = "PYPROF2_ENERGY"
IDLE: Final = "PYPROF2_ENERGY_IDLE"
"""Seconds to wait before the program begins, to see what the machine uses without it."""
POWERCAP: Final = Path("/sys/class/powercap")

_PACKAGES: Final = "intel-rapl:[0-9]*"
"""The kernel calls those of AMD so, too; `intel-rapl-mmio` has the same packages again."""
_MOST_WATTS: Final = 2000.0
"""No package uses more: so long as a counter cannot have gone around, a fall is one wrap."""
_MICRO: Final = 1e-6
_LEAST_SECONDS: Final = 1.0
"""Between two readings that are written; each time twice as long, so that they cost nothing."""
_LONGEST_IDLE: Final = 60.0
_READ_SECONDS: Final = 0.5
"""Between two readings, to see every wrap."""


class Counter(Protocol):
    """Counts joules.

    Attributes:
        name: where it is from, and what it is of, such as `rapl:package-0`.
        spread: how far the joules may be off, where they are a sum of samples.
    """

    name: str
    spread: float | None

    def joules(self, now: float) -> float:
        """Return what it has counted since it was first read.

        Args:
            now: seconds, on any clock that does not go back.

        Raises:
            OSError, ValueError: it cannot be read, or what it counted is not certain.
        """


class Rapl:
    """A package of CPUs."""

    spread: float | None = None

    def __init__(self, folder: Path) -> None:
        """Read it for the first time.

        Args:
            folder: of the package, with files `name`, `energy_uj` and `max_energy_range_uj`.

        Raises:
            OSError, ValueError: it cannot be read.
        """
        self.name = f"rapl:{(folder / 'name').read_text().strip()}"
        self._file = folder / "energy_uj"
        self._range = int((folder / "max_energy_range_uj").read_text())
        self._last = int(self._file.read_text())
        self._total, self._at = 0, None

    _at: float | None

    def joules(self, now: float) -> float:
        """Return the joules since the first reading; a fall of the counter is one wrap."""
        before, self._at = self._at, now
        if before is not None and (now - before) * _MOST_WATTS > self._range * _MICRO:
            msg = f"{self.name}: may have wrapped around more than once"
            raise ValueError(msg)
        value = int(self._file.read_text())
        change = value - self._last
        self._total += change if change >= 0 else change + self._range
        self._last = value
        return self._total * _MICRO


def rapl_counters(root: Path = POWERCAP) -> Iterator[Counter]:
    """Yield the packages below a folder that can be read."""
    for folder in sorted(root.glob(_PACKAGES)):
        # A zone inside of another one has two numbers.
        if folder.name.count(":") > 1:
            continue
        with contextlib.suppress(OSError, ValueError):
            counter = Rapl(folder)
            if counter.name.startswith("rapl:package"):
                yield counter


def why_uncounted(root: Path = POWERCAP) -> str | None:
    """Return in one line why the energy of the CPUs is not counted; None: it is, or is not wanted.

    Args:
        root: the folder of powercap.
    """
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0 turns it off"
    if any(rapl_counters(root)):
        return None
    files = [f / "energy_uj" for f in sorted(root.glob(_PACKAGES)) if f.name.count(":") == 1]
    refused = next((file for file in files if file.exists() and not os.access(file, os.R_OK)), None)
    if refused is not None:
        return f"{refused} may not be read by this user: sudo chmod a+r {refused}"
    if files:
        return f"{root} counts nothing of a whole package of CPUs"
    if root.is_dir():
        return f"no intel-rapl in {root}: the CPU has no RAPL, or its kernel module is not loaded"
    return f"no {root} (RAPL of Intel and AMD): a virtual machine or container, or no Linux"


class Meter:
    """Reads the counters now and then, where a step begins."""

    def __init__(
        self,
        find: Callable[[], Sequence[Counter]],
        clock: Callable[[], float],
        idle: tuple[dict[str, float], float] | None = None,
    ) -> None:
        """Wait for the first step.

        Args:
            find: returns the counters.
            clock: seconds, that do not go back.
            idle: what `used_in` said before the program began; the first reading has it too.
        """
        self._find, self._clock, self._idle = find, clock, idle
        self._counters: list[Counter] | None = None
        self._first = self._read_at = 0.0
        self._wait = _LEAST_SECONDS

    def restart(self) -> None:
        """Begin anew: another recorder has begun to listen."""
        self._counters = None

    def due(self) -> Marker | None:
        """Return what the counters say, if that is due: at once, after 1 s, 2 s, 4 s and so on."""
        now = self._clock()
        if self._counters is None:
            self._counters = list(self._find())
            self._first, self._wait = now, _LEAST_SECONDS
            is_due = True
        else:
            is_due = now - self._first >= self._wait
        if not self._counters or not (is_due or now - self._read_at >= _READ_SECONDS):
            return None
        if is_due and now > self._first:
            self._wait *= 2
        if is_due and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()  # what was launched before is no part of what comes
        self._read_at = now
        joules = readings(self._counters, self._clock())
        self._counters = [each for each in self._counters if each.name in joules]
        if not is_due or not joules:
            return None
        idle, seconds = self._idle if now == self._first and self._idle else (None, None)
        return Marker("energy", joules=joules, idle_joules=idle, idle_seconds=seconds)


def readings(counters: Sequence[Counter], now: float) -> dict[str, float]:
    """Return what counters say, without those that fail; see `Counter.joules`."""
    found: dict[str, float] = {}
    for counter in counters:
        with contextlib.suppress(OSError, ValueError):
            found[counter.name] = counter.joules(now)
            if counter.spread is not None:
                found[counter.name + SPREAD] = counter.spread
    return found


def used_in(
    seconds: float,
    counters: Sequence[Counter],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[dict[str, float], float] | None:
    """Wait, and return what counters counted meanwhile, and for how many seconds; None: nothing."""
    start = clock()
    before = readings(counters, start)
    sleep(seconds)
    end = clock()
    after = readings(counters, end)
    found = {name: after[name] - joules for name, joules in before.items() if name in after}
    return (found, end - start) if found else None


def machine_meter() -> Meter | None:
    """Return what reads this machine's counters; None where it is turned off."""
    if os.environ.get(SWITCH) == "0":
        return None
    seconds = _idle_seconds()
    everything = [*rapl_counters(POWERCAP), *nvml_counters(None)] if seconds else []
    return Meter(
        lambda: [*rapl_counters(POWERCAP), *nvml_counters(used_gpus())],
        time.monotonic,
        used_in(seconds, everything) if everything else None,
    )


def _idle_seconds() -> float:
    """Return how long to wait before the program begins.

    Raises:
        UsageError: the environment says what is no such time.
    """
    text = os.environ.get(IDLE, "") or "0"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_IDLE:
        msg = f"{IDLE} is {text!r}; it can be a number of seconds, {_LONGEST_IDLE:.0f} at most"
        raise UsageError(msg)
    return seconds
