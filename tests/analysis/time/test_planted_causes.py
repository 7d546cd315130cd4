"""What makes a real program slow is found, with its line and its size.

Each program is run and recorded; the device is simulated, so what each pause costs is known: the
device is done so much later than without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

import pyprof2
from pyprof2.api import run_time
from tests.simulated_device import Call, Interval, Recording, device_end, paced, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.api.run import Run
    from tests.simulated_device import Done, Event

pytest.importorskip("torch", reason="a training has to run")
pytestmark = pytest.mark.minutes

ROOT: Final = Path(__file__).resolve().parents[3]
SCRIPT: Final = ROOT / "tests" / "planted_training.py"
FREE_NS: Final = 2_000_000
MALLOC_NS: Final = 3_000_000
CLOSE: Final = 0.02


@dataclass(frozen=True)
class Planted:
    """A recording of a slow program on the simulated device.

    Attributes:
        run: what is known of it.
        cost_ns: what the pauses cost, by the simulation.
        whole: what host and device did.
        healed: the same without the pauses.
    """

    run: Run
    cost_ns: int
    whole: list[Done]
    healed: list[Done]


def _sleep(recording: Recording) -> tuple[list[Interval], list[Call]]:
    return [recording.interval(e) for e in recording.named("<built-in function sleep>")], []


def _python(recording: Recording) -> tuple[list[Interval], list[Call]]:
    frames = [event for event in recording.events if event["name"].endswith(": spin")]
    return [recording.interval(event) for event in frames], []


def _item(recording: Recording) -> tuple[list[Interval], list[Call]]:
    """Return where losses are read, each with a copy and a wait; the loader reads whole numbers."""
    reads = [e for e in recording.named("aten::item") if e["args"]["Input type"] == ["float"]]
    inner = [
        e for e in recording.named("aten::_local_scalar_dense")
        if e["args"]["Input type"] == ["float"]
    ]  # fmt: skip
    copied = {"work_ns": 1000, "work": "Memcpy DtoH (Device -> Pageable)", "args": {"bytes": 4}}
    calls = [
        call
        for op in inner
        for call in (
            _inside(recording, op, "cudaMemcpyAsync", **copied),
            _inside(recording, op, "cudaStreamSynchronize", waits=True),
        )
    ]
    return [recording.interval(event) for event in reads], calls


def _allocator(recording: Recording) -> tuple[list[Interval], list[Call]]:
    ops = recording.named("aten::new_empty")
    calls = [
        call
        for op in ops
        for call in (
            _inside(recording, op, "cudaFree", dur_ns=FREE_NS, waits=True),
            _inside(recording, op, "cudaMalloc", dur_ns=MALLOC_NS),
        )
    ]
    return [recording.interval(op) for op in ops], calls


def _inside(recording: Recording, op: Event, name: str, **rest: Any) -> Call:
    return Call(recording.inside(op), name, op=op, **rest)


# Of each what is planted, how many times as long as the host the device takes, the cause and the
# rule that must be found, and how many pauses there are: steps, and layers in them.
PLANTS: Final[dict[str, tuple[Callable[[Recording], Any], int, str, str, int]]] = {
    "sleep": (_sleep, 2, "data_loading", "data-loading", 4),
    "item": (_item, 4, "sync", "sync", 4),
    "allocator": (_allocator, 2, "allocator", "allocator", 3),
    "python": (_python, 2, "host_python", "host-bound", 4 * 40),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Planted]:
    """Return a function from a plant to the recording of a training with it."""
    return cache(lambda plant: _planted(plant, tmp_path_factory.mktemp(plant)))


def _planted(plant: str, folder: Path) -> Planted:
    find, factor, *_, count = PLANTS[plant]
    recording = Recording(_recorded(plant, folder / "host.json"))
    pauses, calls = find(recording)
    assert len(pauses) == count
    disturbed = recording.preempted(pauses)
    calls += paced(recording, [*pauses, *disturbed], factor)
    whole, healed = simulate(calls, disturbed), simulate(calls, [*pauses, *disturbed])
    run = pyprof2.load(recording.write(folder / "whole.json", whole, disturbed))
    return Planted(run, device_end(whole) - device_end(healed), whole, healed)


def _recorded(plant: str, path: Path) -> Path:
    subprocess.run(
        [sys.executable, str(SCRIPT), plant, str(path)], check=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return path


def _line(plant: str) -> str:
    """Return the line of the script that says that this is planted there."""
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.endswith(f"# planted: {plant}"))
    return f"{SCRIPT.name}:{number}"


@pytest.mark.parametrize("plant", PLANTS)
def test_idle_time_of_a_real_program_names_what_was_planted(
    plant: str, planted: Callable[[str], Planted]
) -> None:
    made, cause = planted(plant), PLANTS[plant][2]

    found = made.run.idle_profile("cause").set_index("cause")["time_ns"]
    by_line = made.run.idle_profile(("cause", "source")).set_index("cause").loc[[cause]].iloc[0]

    assert int(found[cause]) == pytest.approx(made.cost_ns, rel=CLOSE)
    assert by_line["source"].rpartition("/")[2] == _line(plant)
    assert by_line["time_ns"] > 0.9 * found[cause]


@pytest.mark.parametrize("plant", PLANTS)
def test_what_was_planted_is_advised_against_with_an_interval_that_holds(
    plant: str, planted: Callable[[str], Planted]
) -> None:
    made, rule = planted(plant), PLANTS[plant][3]

    found = made.run.advise().set_index("rule").loc[rule]

    assert found["status"] == "fires"
    assert found["at_stake_lo_ns"] <= made.cost_ns <= found["at_stake_hi_ns"]
    assert found["source"].rpartition("/")[2] == _line(plant)


@pytest.mark.parametrize("plant", PLANTS)
def test_the_simulated_device_has_always_work_without_what_was_planted(
    plant: str, planted: Callable[[str], Planted]
) -> None:
    ran = [each.ran for each in planted(plant).healed if each.ran is not None]

    assert {b.start - a.end for a, b in pairwise(ran)} == {1000}


@pytest.mark.parametrize("plant", PLANTS)
def test_idle_and_busy_time_of_a_simulated_device_are_its_own(
    plant: str, planted: Callable[[str], Planted]
) -> None:
    made = planted(plant)
    ran = [each.ran for each in made.whole if each.ran is not None]
    work = pd.concat([made.run.kernels, made.run.copies]).sort_values("start_ns")
    begin = int(made.run.trace["start_ns"].min())

    assert list(zip(work["start_ns"] - begin, work["dur_ns"], strict=True)) == [
        (run.start, run.end - run.start) for run in ran
    ]
    window = run_time.idle_windows(made.run.tables).iloc[0]
    assert window["busy_ns"] == sum(run.end - run.start for run in ran)
