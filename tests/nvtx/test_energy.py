"""Counters of energy are read without gaps, and never where that is not certain."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch

import pyprof2
from pyprof2.errors import UsageError
from pyprof2.markers import Marker
from pyprof2.nvtx import energy
from pyprof2.nvtx.energy import SWITCH, Meter, Power, Rapl, rapl_counters, used_in, why_uncounted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).parents[2]


def zone(root: Path, folder: str, name: str, value: int = 0, most: int = 10**9) -> Path:
    """Make a zone as the kernel has it, and return its counter."""
    path = root / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{most}\n")
    (path / "energy_uj").write_text(f"{value}\n")
    return path / "energy_uj"


def test_whole_packages_are_counted_and_their_parts_are_not(tmp_path: Path) -> None:
    for folder, name in (
        ("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram"),
        ("intel-rapl:1", "package-1"), ("intel-rapl:2", "psys"),
        ("intel-rapl-mmio:0", "package-0"),
    ):  # fmt: skip
        zone(tmp_path, folder, name)

    assert [each.name for each in rapl_counters(tmp_path)] == ["rapl:package-0", "rapl:package-1"]


def test_what_cannot_be_read_is_not_there(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0").unlink()
    zone(tmp_path, "intel-rapl:1", "package-1").write_text("?")
    refused = zone(tmp_path, "intel-rapl:2", "package-2")
    refused.unlink()
    refused.mkdir()

    assert list(rapl_counters(tmp_path)) == []
    assert list(rapl_counters(tmp_path / "none")) == []


def test_what_keeps_energy_from_being_counted_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    assert why_uncounted(tmp_path / "none") == (
        f"no {tmp_path / 'none'} (RAPL of Intel and AMD): a virtual machine or container, or no "
        "Linux"
    )
    assert f"no intel-rapl in {tmp_path}" in str(why_uncounted(tmp_path))
    folder = tmp_path / "intel-rapl:0"
    folder.mkdir()
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "9"), ("energy_uj", "1")):
        (folder / name).write_text(text)
    assert why_uncounted(tmp_path) is None
    monkeypatch.setattr("os.access", lambda *_: False)
    (folder / "name").write_text("psys")
    assert f"{folder / 'energy_uj'} may not be read" in str(why_uncounted(tmp_path))
    monkeypatch.setenv(SWITCH, "0")
    assert why_uncounted(tmp_path) == f"{SWITCH}=0 turns it off"


def test_a_counter_that_falls_has_wrapped_around_once(tmp_path: Path) -> None:
    file = zone(tmp_path, "intel-rapl:0", "package-0", value=900_000_000)
    counter = Rapl(file.parent)

    found = []
    for now, value in enumerate((900_000_000, 950_000_000, 30_000_000, 30_000_000, 20_000_000)):
        file.write_text(str(value))
        found.append(counter.joules(now / 10))

    # Microjoules: 0, 50e6, then 50e6 to the end and 30e6 on, nothing, and nearly once around.
    assert found == pytest.approx([0, 50, 130, 130, 1120])


def test_a_counter_that_may_have_gone_around_unseen_is_dropped(tmp_path: Path) -> None:
    file = zone(tmp_path, "intel-rapl:0", "package-0")
    counter = Rapl(file.parent)

    assert counter.joules(0.0) == 0
    assert counter.joules(0.49) == 0
    # 1000 J at 2000 W.
    with pytest.raises(ValueError, match="wrapped around more than once"):
        counter.joules(1.0)


class Clock:
    """Tells the time that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_readings_are_written_at_once_and_after_doubling_times(tmp_path: Path) -> None:
    file, clock = zone(tmp_path, "intel-rapl:0", "package-0", most=10**12), Clock()
    meter = Meter(lambda: list(rapl_counters(tmp_path)), clock)

    found: list[Any] = []
    for tenth in range(95):
        clock.now = 100 + tenth / 10
        file.write_text(str(tenth * 10**6))
        marker = meter.due()
        found += [] if marker is None else [(tenth / 10, marker.joules)]
    assert found == [
        (at, {"rapl:package-0": pytest.approx(10 * at)}) for at in (0.0, 1.0, 2.0, 4.0, 8.0)
    ]
    meter.restart()
    marker = meter.due()
    assert marker is not None
    assert marker.joules == {"rapl:package-0": 0}


def test_a_counter_that_goes_away_is_not_read_again(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", most=10**12)
    file, clock = zone(tmp_path, "intel-rapl:1", "package-1", most=10**12), Clock()
    meter = Meter(lambda: list(rapl_counters(tmp_path)), clock)

    first = meter.due()
    file.unlink()
    clock.now = 1.0
    second = meter.due()

    assert first is not None
    assert first.joules == {"rapl:package-0": 0, "rapl:package-1": 0}
    assert second is not None
    assert second.joules == {"rapl:package-0": 0}


def train(step: Any) -> None:
    """Train for a little more than two seconds."""
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters())
    for number in range(24):
        step(number)
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.1)


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "powercap"
    file = zone(root, "intel-rapl:0", "package-0", value=5 * 10**6, most=60 * 10**6)
    monkeypatch.setattr(energy, "POWERCAP", root)
    monkeypatch.setattr(energy, "_MOST_WATTS", 1.0)
    monkeypatch.setenv(SWITCH, "1")
    yield file
    pyprof2.shutdown()


def test_a_recording_has_the_energy_of_its_steps(powercap: Path, tmp_path: Path) -> None:
    value = itertools.count(5 * 10**6, 7 * 10**6)
    pyprof2.init(sink="kineto", cpu_peaks=False)
    with torch.profiler.profile() as profiler:
        # Seven joules for each step, and the counter goes around at sixty.
        train(lambda _: powercap.write_text(str(next(value) % (60 * 10**6))))
    pyprof2.shutdown()
    profiler.export_chrome_trace(str(tmp_path / "a.json"))

    run = pyprof2.load(tmp_path / "a.json")

    (row,) = run.energy.to_dict("records")
    assert (row["counter"], row["note"]) == ("rapl:package-0", None)
    assert row["joules_per_step"] == pytest.approx(7)
    assert row["lo"] < 7 < row["hi"] < 7.02
    assert row["joules"] == pytest.approx(7 * row["steps"])
    assert 0 < row["seconds"] <= run.steps["dur_ns"].sum() / 1e9


def test_it_can_be_turned_off(powercap: Path, tmp_path: Path) -> None:
    pyprof2.init(sink="kineto", cpu_peaks=False, energy=False)
    with torch.profiler.profile() as profiler:
        torch.nn.Linear(4, 4)(torch.ones(2, 4))
    pyprof2.shutdown()
    profiler.export_chrome_trace(str(tmp_path / "a.json"))

    assert pyprof2.load(tmp_path / "a.json").energy.empty
    assert powercap.exists()


# -- NVML: its own Python package, on a library that counts --------------------------------------

LIBRARY: Final = """
#include <string.h>
typedef void *device;
static int gpus[2];
static unsigned long long counts;
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return "no"; }
int nvmlDeviceGetHandleByUUID(const char *uuid, device *found) {
  if (strcmp(uuid, "GPU-a") && strcmp(uuid, "GPU-old")) return 6;
  *found = &gpus[!strcmp(uuid, "GPU-old")];
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found) { *found = &gpus[1]; return 0; }
int nvmlDeviceGetUUID(device gpu, char *uuid, unsigned length) {
  strcpy(uuid, "GPU-old");
  return 0;
}
static int usages;
int nvmlDeviceGetPowerUsage(device gpu, unsigned *milliwatts) {
  if (gpu != (device)&gpus[1]) return 3;
  usages++;
  *milliwatts = 120000;
  return 0;
}
int used(void) { return usages; }
int nvmlDeviceGetTotalEnergyConsumption(device gpu, unsigned long long *energy) {
  if (gpu == (device)&gpus[1]) return 3;
  if (++counts > 4) return 999;
  *energy = 5000000000ULL + 1500 * counts;
  return 0;
}
"""
PROGRAM: Final = """
import ctypes
import gc
import json
import threading
import time
from pyprof2.nvtx.energy import nvml_counters
counts, tells = nvml_counters(["GPU-a", "GPU-old", "GPU-none"])
said = [[counts.name, counts.joules(0.0), counts.joules(1.0), counts.joules(2.0)]]
try:
    counts.joules(3.0)
except OSError as error:
    said.append(type(error).__name__)

start = time.monotonic()
first = tells.joules(start)
time.sleep(0.6)
end = time.monotonic()
said.append([tells.name, first, tells.joules(end) / (end - start), tells.spread])
said.append([each.name for each in nvml_counters(None)])
usages = ctypes.CDLL("libnvidia-ml.so.1").used()
del tells
gc.collect()
for _ in range(100):
    time.sleep(0.1)
    if threading.active_count() == 1:
        break
said.append([usages, threading.active_count()])
print(json.dumps(said))
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_gpus_that_count_energy_are_read_through_nvml(tmp_path: Path) -> None:
    pytest.importorskip("pynvml")
    (tmp_path / "nvml.c").write_text(LIBRARY)
    library = tmp_path / "libnvidia-ml.so.1"
    compiler = shutil.which("gcc") or "gcc"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"], check=True)
    places = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": places}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip

    counted, refused, sampled, everything, (usages, threads) = json.loads(done.stdout)
    # The first count is of the look whether it counts: 1.5 J lie between two.
    assert (counted, refused) == (["nvml:GPU-a", 0, 1.5, 3.0], "OSError")
    # One that counts nothing tells its power, 120 W; a thread asks, and ends when nobody does.
    assert sampled == ["nvml-power:GPU-old", 0, pytest.approx(120), 0]
    assert everything == ["nvml-power:GPU-old"]
    assert usages > 5
    assert threads == 1


@pytest.mark.parametrize("times", [range(11), (0, 0.3, 1.1, 1.2, 4, 9.5, 10)], ids=["even", "odd"])
@pytest.mark.parametrize(
    ("slope", "joules"), [(0, 100 * 10), (20, 100 * 10 + 20 * 10**2 / 2)], ids=["flat", "ramp"]
)
def test_the_integral_of_power_is_that_of_a_closed_formula(
    times: Iterable[float], slope: float, joules: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "_GAP_SECONDS", 6)
    monkeypatch.setattr(energy, "_keep_sampling", lambda _: None)
    clock = Clock()
    power = Power("nvml-power:GPU-x", lambda: round(1000 * (100 + slope * clock.now)))

    found = []
    for clock.now in times:
        found.append(power.joules(clock.now))

    assert found[0] == 0
    assert found[-1] == pytest.approx(joules)
    # Between two samples it may have been as one of them all the time.
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert power.spread == pytest.approx(sum(slope * gap**2 / 2 for gap in gaps))
    assert power.joules(clock.now - 1) == found[-1]


def test_power_that_was_not_sampled_for_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "_keep_sampling", lambda _: None)
    clock, power = Clock(), Power("nvml-power:GPU-x", lambda: 100_000)
    meter = Meter(lambda: [power], clock)

    assert meter.due() == Marker("energy", joules={power.name: 0, f"{power.name}/spread": 0})
    clock.now = 1.1
    assert meter.due() is None
    with pytest.raises(ValueError, match=r"not sampled for 1\.1 s"):
        power.joules(1.2)


def test_the_first_reading_says_what_was_used_before_the_program_began(tmp_path: Path) -> None:
    file, clock = zone(tmp_path, "intel-rapl:0", "package-0", most=10**12), Clock()
    counters = list(rapl_counters(tmp_path))

    def sleep(seconds: float) -> None:
        clock.now += seconds
        file.write_text(str(round(30e6 * seconds)))

    idle = used_in(2, counters, clock, sleep)
    meter = Meter(lambda: list(rapl_counters(tmp_path)), clock, idle)

    assert idle == ({"rapl:package-0": 60}, 2)
    first = meter.due()
    assert first is not None
    assert (first.idle_joules, first.idle_seconds) == idle
    clock.now += 2
    second = meter.due()
    assert second is not None
    assert second.idle_joules is None


@pytest.mark.parametrize("text", ["soon", "-1", "61", "nan"])
def test_a_time_to_wait_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(energy.IDLE, text)
    monkeypatch.setenv(SWITCH, "1")

    with pytest.raises(UsageError, match=r"PYPROF2_ENERGY_IDLE is .* seconds, 60 at most"):
        energy.machine_meter()


def test_without_nvml_no_gpu_is_read() -> None:
    assert list(energy.nvml_counters(["GPU-a"])) == []
