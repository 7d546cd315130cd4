"""Read the counters of energy that the machine has: those of its CPUs, and of the GPUs in use.

CPUs: the files of RAPL under `/sys/class/powercap`, which many machines let only root read. Of each
only the whole packages count: their parts, such as cores, are inside of them. They count what all
programs on the machine use. GPUs: `nvmlDeviceGetTotalEnergyConsumption`, through the package
nvidia-ml-py, of those on which this process has memory.

A counter that cannot be read is not there, and one that fails, or that may have wrapped around
unseen, is not read again. Nothing is estimated. The environment variable `PYPROF2_ENERGY=0` turns
it off.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from pyprof2.markers import Marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SWITCH: Final = "PYPROF2_ENERGY"
POWERCAP: Final = Path("/sys/class/powercap")

_PACKAGES: Final = "intel-rapl:[0-9]*"
"""The kernel calls those of AMD so, too; `intel-rapl-mmio` has the same packages again."""
_MOST_WATTS: Final = 2000.0
"""No package uses more: so long as a counter cannot have gone around, a fall is one wrap."""
_MICRO: Final = 1e-6
_MILLI: Final = 1e-3
_LEAST_SECONDS: Final = 1.0
"""Between two readings that are written; each time twice as long, so that they cost nothing."""
_READ_SECONDS: Final = 0.5
"""Between two readings, to see every wrap."""


class Counter(Protocol):
    """Counts joules.

    Attributes:
        name: where it is from, and what it is of, such as `rapl:package-0`.
    """

    name: str

    def joules(self, now: float) -> float:
        """Return what it has counted since it was first read.

        Args:
            now: seconds, on any clock that does not go back.

        Raises:
            OSError, ValueError: it cannot be read, or what it counted is not certain.
        """


class Rapl:
    """A package of CPUs."""

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


@dataclass
class Nvml:
    """A GPU, which counts in millijoules since its driver was loaded."""

    name: str
    read: Callable[[], int]
    first: int | None = None

    def joules(self, now: float) -> float:  # noqa: ARG002 -- it does not wrap around
        """Return the joules since the first reading."""
        value = self.read()
        if self.first is None:
            self.first = value
        if value < self.first:
            msg = f"{self.name}: counts backwards"
            raise ValueError(msg)
        return (value - self.first) * _MILLI


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


def nvml_counters(uuids: Sequence[str]) -> Iterator[Counter]:
    """Yield the GPUs that count energy; none without NVML.

    Args:
        uuids: of the GPUs, as NVML names them.
    """
    try:
        import pynvml
    except ImportError:
        return
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError):
        return
    for uuid in uuids:
        with contextlib.suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            # Older GPUs count none, and say so here.
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            yield Nvml(f"nvml:{uuid}", _reader(pynvml, handle))


def _reader(pynvml: Any, handle: Any) -> Callable[[], int]:
    def read() -> int:
        try:
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except pynvml.NVMLError as error:
            raise OSError(str(error)) from error

    return read


def used_gpus() -> list[str]:
    """Return the UUIDs of the GPUs on which this process has memory."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return []
    used = [at for at in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(at)]
    found = (getattr(torch.cuda.get_device_properties(at), "uuid", None) for at in used)
    return [f"GPU-{uuid}" for uuid in found if uuid is not None]


class Meter:
    """Reads the counters now and then, where a step begins."""

    def __init__(self, find: Callable[[], Sequence[Counter]], clock: Callable[[], float]) -> None:
        """Wait for the first step.

        Args:
            find: returns the counters.
            clock: seconds, that do not go back.
        """
        self._find, self._clock = find, clock
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
        joules = self._readings(now)
        return Marker("energy", joules=joules) if is_due and joules else None

    def _readings(self, now: float) -> dict[str, float]:
        found: dict[str, float] = {}
        for counter in list(self._counters or ()):
            try:
                found[counter.name] = counter.joules(now)
            except (OSError, ValueError):
                self._counters = [each for each in self._counters or () if each is not counter]
        return found


def machine_meter() -> Meter | None:
    """Return what reads this machine's counters; None where it is turned off."""
    if os.environ.get(SWITCH) == "0":
        return None
    return Meter(lambda: [*rapl_counters(POWERCAP), *nvml_counters(used_gpus())], time.monotonic)
