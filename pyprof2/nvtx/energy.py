"""Read the counters of energy that the machine has: those of its CPUs, and of the GPUs in use.

CPUs: the files of RAPL under `/sys/class/powercap`, which many machines let only root read. Only
whole packages count: their parts, such as cores, are inside of them. They count what all programs
on the machine use. GPUs: those on which this process has memory, through NVML and its package
nvidia-ml-py. Most count their energy themselves: `nvmlDeviceGetTotalEnergyConsumption`. Where one
does not, older than Volta or shared out, its power is sampled while steps are recorded, and
integrated.

A counter that cannot be read is not there, and one that fails, or that may have wrapped around
unseen, is not read again. Nothing is estimated. The environment variable `PYPROF2_ENERGY=0` turns
it off; `PYPROF2_ENERGY_IDLE=2` waits two seconds before the program begins, and says what the
machine used in them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from pyprof2.errors import refuse
from pyprof2.markers import Marker

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
SPREAD: Final = "/spread"
"""Follows the name of a sum of samples, for how far that may be off, in joules."""
_MILLI: Final = 1e-3
_PERIOD_SECONDS: Final = 0.05
"""Between two samples of the power."""
_GAP_SECONDS: Final = 1.0
"""Where two samples lie further apart, it is not known what was between them."""


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


@dataclass
class Nvml:
    """A GPU, which counts in millijoules since its driver was loaded."""

    name: str
    read: Callable[[], int]
    first: int | None = None
    spread: float | None = None

    def joules(self, now: float) -> float:  # noqa: ARG002 -- it does not wrap around
        """Return the joules since the first reading."""
        value = self.read()
        if self.first is None:
            self.first = value
        if value < self.first:
            msg = f"{self.name}: counts backwards"
            raise ValueError(msg)
        return (value - self.first) * _MILLI


class Power:
    """A GPU whose power is sampled, and integrated by the trapezoid rule.

    Attributes:
        name: where it is from.
        spread: how far the joules may be off, if the power between two samples lies between them:
            by half of their difference, for the time between them.
    """

    def __init__(self, name: str, read: Callable[[], int]) -> None:
        """Wait for the first reading.

        Args:
            name: where it is from.
            read: returns milliwatts, or raises an `OSError`.
        """
        self.name = name
        self.spread: float | None = 0.0
        self._read, self._joules = read, 0.0
        self._last: tuple[float, float] | None = None
        self._error: OSError | ValueError | None = None
        self._lock = threading.Lock()

    def joules(self, now: float) -> float:
        """Return the joules since the first reading; the samples begin with that.

        Raises:
            OSError, ValueError: a sample could not be read, or came too late.
        """
        is_first = self._last is None
        self.sample(now)
        if self._error is not None:
            raise self._error
        if not is_first:
            return self._joules
        # The thread may have sampled before this returns.
        threading.Thread(target=_keep_sampling, args=[weakref.ref(self)], daemon=True).start()
        return 0.0

    def sample(self, now: float) -> None:
        """Add what was used since the last sample; an error is kept for the next reader."""
        with self._lock:
            try:
                watts = self._read() * _MILLI
            except OSError as error:
                self._error = error
                return
            before, self._last = self._last, (now, watts)
            # The thread may have been faster than a reader that has just looked at the clock.
            if before is not None and now < before[0]:
                self._last = before
            elif before is not None:
                self._add(now - before[0], before[1], watts)

    @property
    def failed(self) -> bool:
        """Whether it is of no more use."""
        return self._error is not None

    def _add(self, seconds: float, before: float, after: float) -> None:
        if seconds > _GAP_SECONDS:
            self._error = ValueError(f"{self.name}: not sampled for {seconds:.1f} s")
        self._joules += seconds * (before + after) / 2
        self.spread = (self.spread or 0.0) + seconds * abs(after - before) / 2


def _keep_sampling(reference: weakref.ref[Power]) -> None:
    """Sample as long as the counter is in use: the thread keeps nothing alive."""
    while (power := reference()) is not None and not power.failed:
        power.sample(time.monotonic())
        del power
        time.sleep(_PERIOD_SECONDS)


def nvml_counters(uuids: Sequence[str] | None) -> Iterator[Nvml | Power]:
    """Yield the GPUs that count energy, or at least report their power; none without NVML.

    Args:
        uuids: of the GPUs, as NVML names them; None: all of the machine.
    """
    try:
        import pynvml
    except ImportError:
        return
    try:
        pynvml.nvmlInit()
        if uuids is None:
            count = pynvml.nvmlDeviceGetCount()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
            names = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
            # Older versions of the package give bytes.
            uuids = [name.decode() if isinstance(name, bytes) else name for name in names]
    except (pynvml.NVMLError, OSError):
        return
    for uuid in uuids:
        with contextlib.suppress(pynvml.NVMLError):
            yield _counter(pynvml, uuid)


def _counter(pynvml: Any, uuid: str) -> Nvml | Power:
    """Return what counts the energy of a GPU.

    Raises:
        NVMLError: there is no such GPU, or it reports nothing.
    """
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        # Older GPUs count none, and say so here.
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError:
        pynvml.nvmlDeviceGetPowerUsage(handle)
        read = _reader(pynvml, pynvml.nvmlDeviceGetPowerUsage, handle)
        return Power(f"nvml-power:{uuid}", read)
    read = _reader(pynvml, pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    return Nvml(f"nvml:{uuid}", read)


def _reader(pynvml: Any, function: Callable[[Any], int], handle: Any) -> Callable[[], int]:
    def read() -> int:
        try:
            return int(function(handle))
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
    """Return what reads this machine's counters; None where it is turned off.

    Raises:
        UsageError: how long to wait, as the environment says it, is no such time.
    """
    if os.environ.get(SWITCH) == "0":
        return None
    text = os.environ.get(IDLE, "") or "0"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_IDLE:
        refuse(f"{IDLE} is {text!r}; it can be a number of seconds, {_LONGEST_IDLE:.0f} at most")
    everything = [*rapl_counters(POWERCAP), *nvml_counters(None)] if seconds else []
    return Meter(
        lambda: [*rapl_counters(POWERCAP), *nvml_counters(used_gpus())],
        time.monotonic,
        used_in(seconds, everything) if everything else None,
    )
