"""Read how much energy GPUs use, through NVML and its package nvidia-ml-py.

Most count it themselves: `nvmlDeviceGetTotalEnergyConsumption`. Of one that does not, older than
Volta or shared out, the power is sampled while steps are recorded, and integrated.
"""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SPREAD: Final = "/spread"
"""What follows the name of a sum of samples: how far that may be off, in joules."""
_MILLI: Final = 1e-3
_PERIOD_SECONDS: Final = 0.05
"""Between two samples of the power."""
_GAP_SECONDS: Final = 1.0
"""Where two samples lie further apart, nobody knows what was between them."""


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
        """Add what was used since the last sample; an error is kept for who reads."""
        with self._lock:
            try:
                watts = self._read() * _MILLI
            except OSError as error:
                self._error = error
                return
            before, self._last = self._last, (now, watts)
            # The thread may have been faster than who has just looked at the clock.
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
    """Sample as long as anybody wants to know: the thread keeps nothing alive."""
    while (power := reference()) is not None and not power.failed:
        power.sample(time.monotonic())
        del power
        time.sleep(_PERIOD_SECONDS)


def nvml_counters(uuids: Sequence[str] | None) -> Iterator[Nvml | Power]:
    """Yield the GPUs that count energy, or at least tell their power; none without NVML.

    Args:
        uuids: of the GPUs, as NVML names them; None: all of the machine.
    """
    try:
        import pynvml
    except ImportError:
        return
    try:
        pynvml.nvmlInit()
        wanted = _all_uuids(pynvml) if uuids is None else uuids
    except (pynvml.NVMLError, OSError):
        return
    for uuid in wanted:
        with suppress(pynvml.NVMLError):
            yield _counter(pynvml, uuid)


def _all_uuids(pynvml: Any) -> list[str]:
    count = pynvml.nvmlDeviceGetCount()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
    return [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]


def _text(name: str | bytes) -> str:
    """Return a name; older versions of the package give bytes."""
    return name.decode() if isinstance(name, bytes) else name


def _counter(pynvml: Any, uuid: str) -> Nvml | Power:
    """Return what counts the energy of a GPU.

    Raises:
        NVMLError: there is no such GPU, or it tells nothing.
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
