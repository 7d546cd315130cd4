"""Measure what this machine's CPU can do at most, for recordings without a GPU.

Data sheets of CPUs do not tell: it depends on threads, clocks, and what else runs. So the highest
rates of a large matrix product and a large copy are measured, with the threads that PyTorch uses,
in a process of its own: it leaves this one's threads, modes and random numbers alone. The result
is kept, so that only the first recording on a machine waits for it, some seconds.

Where there is a GPU, or several processes share the machine, nothing is measured. The environment
variable `PYPROF2_CPU_PEAKS=0` turns it off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from pyprof2.markers import Marker

if TYPE_CHECKING:
    from collections.abc import Callable

SWITCH: Final = "PYPROF2_CPU_PEAKS"

_GPUS: Final = ("nvidia[0-9]*", "kfd")
"""Devices of the drivers, under /dev."""
_CPUS: Final = Path("/sys/devices/system/cpu")
_SECONDS: Final = 0.15
"""For each rate: long enough for many tries on a busy machine."""
_TIMEOUT: Final = 60
_SIZES: Final = {"f32": 1024, "f64": 1024, "bf16": 512}
"""Rows and columns of the matrices: large enough for the peak, and some ms of work."""
_DTYPES: Final = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}
_COPY_BYTES: Final = 64 << 20
_COPY_BYTES_MAX: Final = 512 << 20


def cpu_marker() -> Marker | None:
    """Return what the CPU can do; None where it is not measured, or cannot be."""
    if os.environ.get(SWITCH) == "0" or os.environ.get("WORLD_SIZE", "1") != "1":
        return None
    if any(next(Path("/dev").glob(pattern), None) for pattern in _GPUS):
        return None
    threads = torch.get_num_threads()
    kept = _kept_at(threads)
    measured = _read(kept)
    if measured is None:
        measured = _measure_apart(threads)
        _keep(kept, measured)
    try:
        return Marker("cpu", **measured) if measured else None
    except TypeError:  # what was kept is none of ours
        return None


def _kept_at(threads: int) -> Path:
    """Return where the result is kept: for this boot, these cores, threads, and PyTorch."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    facts = [
        boot.read_text() if boot.exists() else platform.node(),
        sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        threads,
        str(torch.__version__),
    ]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"pyprof2-{user}" / f"cpu-{name}.json"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return None
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _keep(path: Path, measured: dict[str, Any] | None) -> None:
    if measured is None:
        return
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        unfinished.write_text(json.dumps(measured))
        unfinished.replace(path)


def _measure_apart(threads: int) -> dict[str, Any] | None:
    """Measure in a process of its own, which no profiler of this one follows."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "LD_PRELOAD")
    }
    try:
        done = subprocess.run(  # noqa: S603 -- our own module
            [sys.executable, "-m", __name__, str(threads)],
            env=environment | {SWITCH: "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=True,
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return found if isinstance(found, dict) else None


def measure() -> dict[str, Any]:
    """Return name, threads, highest rates and cache of the CPU, in FLOP/s, B/s and B.

    A product of n x n matrices is 2·n³ FLOPs; a copy reads and writes its bytes. Where PyTorch
    has a GPU after all there is nothing to return.
    """
    if torch.cuda.is_available():
        return {}
    cache = _cache_bytes()
    flop_per_s = {}
    for name, size in _SIZES.items():
        a, b = (torch.ones(size, size, dtype=_DTYPES[name], device="cpu") for _ in range(2))
        flop_per_s[name] = float(round(2 * size**3 / _least_seconds(a, b)))
    count = min(max(_COPY_BYTES, 2 * (cache or 0)), _COPY_BYTES_MAX) // 4
    source, target = (torch.ones(count, dtype=torch.float32, device="cpu") for _ in range(2))
    copied = _least(lambda: target.copy_(source))
    return {
        "name": _cpu_name(),
        "threads": torch.get_num_threads(),
        "flop_per_s": flop_per_s,
        "bytes_per_s": float(round(8 * count / copied)),
        "cache_bytes": cache,
    }


def _least_seconds(a: torch.Tensor, b: torch.Tensor) -> float:
    out = torch.empty_like(a)
    return _least(lambda: torch.mm(a, b, out=out))


def _least(run: Callable[[], object]) -> float:
    """Return the least seconds that `run` takes, of many times; the first time does not count."""
    run()
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < 2 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return max(min(times), 1e-9)


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model"):
                return value.strip()
    return platform.processor() or platform.machine() or "CPU"


def _cache_bytes() -> int | None:
    """Return the size of the last caches of the cores that this process may use, together."""
    found: dict[str, tuple[int, int]] = {}
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    for core in cores:
        with contextlib.suppress(OSError, ValueError):
            last = max(
                (_CPUS / f"cpu{core}" / "cache").glob("index*"),
                key=lambda index: int((index / "level").read_text()),
                default=None,
            )
            if last is not None:
                shared = (last / "shared_cpu_list").read_text()
                size = (last / "size").read_text().strip()
                found[shared] = (int(size.rstrip("KMG")), "KMG".index(size[-1]) + 1)
    return sum(size << (10 * power) for size, power in found.values()) or None


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    sys.stdout.write(json.dumps(measure()))
