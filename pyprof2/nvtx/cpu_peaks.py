"""Measure what this machine's CPU can do at most, for recordings without a GPU.

Data sheets of CPUs do not say: it depends on threads, clocks, and what else runs. So the highest
rates of a large matrix product and a large copy are measured, with the threads that PyTorch uses,
in a process of its own: it leaves this one's threads, modes and random numbers alone. The result
is kept for an hour, so that not every recording waits for it, some seconds; of several results
the highest rates count, for a machine that is busy only seems slow.

Where there is a GPU, or a job of several processes shares the machine, nothing is measured; nor
where anything is in the way: the annotation does without. The environment variable
`PYPROF2_CPU_PEAKS=0` turns it off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from pyprof2.markers import Marker
from pyprof2.own_files import cache_folder, make_own_folder, open_own

if TYPE_CHECKING:
    from collections.abc import Callable

SWITCH: Final = "PYPROF2_CPU_PEAKS"

_GPUS: Final = ("nvidia[0-9]*", "kfd")
"""Devices of the drivers, under /dev."""
_SIZES_OF_JOBS: Final = (
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
)  # fmt: skip
_CPUS: Final = Path("/sys/devices/system/cpu")
_KEPT_SECONDS: Final = 3600
_TRY_SECONDS: Final = 0.1
_TRIES: Final = 3
"""Each rate is tried for so long, so many times, with the others in between."""
_TIMEOUT: Final = 60
_SIZES: Final = {"f32": 1024, "f64": 1024, "bf16": 512}
"""Rows and columns of the matrices: large enough for the peak, and some ms of work."""
_DTYPES: Final = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}
_COPY_BYTES: Final = 64 << 20
_COPY_BYTES_MAX: Final = 256 << 20
_NEEDED_BYTES: Final = 4 << 30
"""Memory that must be free: this and PyTorch take a part of it."""


def cpu_marker() -> Marker | None:
    """Return what the CPU can do; None where it is not measured, or cannot be."""
    try:
        if not _is_to_be_measured():
            return None
        threads = torch.get_num_threads()
        path = _kept_at(threads)
        kept, age = _read(path)
        if kept is None or age > _KEPT_SECONDS:
            kept = _highest(_measure_apart(threads), kept)
            _keep(path, kept)
        return Marker("cpu", **kept) if kept else None
    except Exception:  # noqa: BLE001 -- whatever it is, the user's program goes on without
        return None


def _is_to_be_measured() -> bool:
    jobs = (os.environ.get(name, "1") for name in _SIZES_OF_JOBS)
    if os.environ.get(SWITCH) == "0" or any(size not in ("", "1") for size in jobs):
        return False
    if any(next(Path("/dev").glob(pattern), None) for pattern in _GPUS):
        return False
    # In a frozen application the executable is the application.
    is_python = Path(sys.executable or "").name.lower().startswith("python")
    return is_python and not getattr(sys, "frozen", False) and _free_bytes() >= _NEEDED_BYTES


def _free_bytes() -> int:
    """Return the memory that may still be used, by the machine's and the container's limits."""
    free = 1 << 62
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) << 10
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        free = min(free, int(limit) - int(used))
    return free


def machine_bytes() -> int | None:
    """Return the memory of the machine, or what the container may have of it; None: unknown."""
    sizes = []
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(Path("/sys/fs/cgroup", name).read_text()))
    if not sizes and hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(sizes, default=None)


def _highest(measured: dict[str, Any] | None, kept: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the higher rates of two results."""
    if not measured or not kept:
        return measured or kept
    rates = {
        name: max(rate, kept["flop_per_s"].get(name, 0.0))
        for name, rate in measured["flop_per_s"].items()
    }
    best = max(measured["bytes_per_s"], kept["bytes_per_s"])
    return measured | {"flop_per_s": rates, "bytes_per_s": best}


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
    return cache_folder() / f"cpu-{name}.json"


def _read(path: Path) -> tuple[dict[str, Any] | None, float]:
    """Return what is kept, None if nothing of use is, and its age in seconds."""
    try:
        with open_own(path) as file:
            found = json.loads(file.read())
        Marker("cpu", **found)
        return found, abs(time.time() - path.stat().st_mtime)
    except (OSError, ValueError, TypeError):
        return None, 0.0


def _keep(path: Path, kept: dict[str, Any] | None) -> None:
    """Write a new file in a folder of our own, and never through a link."""
    with contextlib.suppress(OSError):
        make_own_folder(path.parent)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(unfinished, flags, 0o600), "w") as file:
            json.dump(kept or {}, file)
        unfinished.replace(path)


def _measure_apart(threads: int) -> dict[str, Any] | None:
    """Measure in a process of its own, which no profiler of this one follows.

    It finds pyprof2 where this process did, and nothing in the current folder.
    """
    injected = ("NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "LD_PRELOAD")
    environment = {name: text for name, text in os.environ.items() if name not in injected}
    roots = [str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH", "")]
    environment |= {SWITCH: "0", "PYTHONPATH": os.pathsep.join(filter(None, roots))}
    try:
        done = subprocess.run(  # noqa: S603 -- our own file
            [sys.executable, "-P", __file__, str(threads)],
            env=environment,
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
    count = min(max(_COPY_BYTES, cache or 0), _COPY_BYTES_MAX) // 4
    source, target = (torch.ones(count, dtype=torch.float32, device="cpu") for _ in range(2))
    work = {name: _product(name, size) for name, size in _SIZES.items()}
    work["copy"] = lambda: target.copy_(source)
    # They take turns, so that what else the machine does disturbs all alike.
    least = dict.fromkeys(work, float("inf"))
    for _ in range(_TRIES):
        for name, run in work.items():
            least[name] = min(least[name], _least_seconds(run))
    return {
        "name": cpu_name(),
        "threads": torch.get_num_threads(),
        "flop_per_s": {n: float(round(2 * size**3 / least[n])) for n, size in _SIZES.items()},
        "bytes_per_s": float(round(8 * count / least["copy"])),
        "cache_bytes": cache,
    }


def _product(dtype: str, size: int) -> Callable[[], object]:
    a, b = (torch.ones(size, size, dtype=_DTYPES[dtype], device="cpu") for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _least_seconds(run: Callable[[], object]) -> float:
    """Return the least seconds that `run` takes, of many times; the first time does not count."""
    run()
    times: list[float] = []
    end = time.perf_counter() + _TRY_SECONDS
    while len(times) < 2 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return max(min(times), 1e-9)


def cpu_name() -> str:
    """Return what the CPU calls itself."""
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
