"""Energy of a step is what counters counted, over the steps between their readings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2.markers import Marker, format_marker
from tests.kineto_events import load_events, op, step

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kineto_events import Event

SECOND = 1_000_000


def reading(ts: int, **joules: float) -> Event:
    """Return a reading; names are of packages."""
    counters = {f"{name.replace('_', ':')}": value for name, value in joules.items()}
    return op(format_marker(Marker("energy", joules=counters), quoteless=True), ts, 1)


def named_reading(ts: int, joules: dict[str, float], **more: Any) -> Event:
    """Return a reading of counters by their names."""
    return op(format_marker(Marker("energy", joules=joules, **more), quoteless=True), ts, 1)


def steps(count: int, length: int = SECOND // 2, apart: int = SECOND // 2) -> list[Event]:
    """Return steps of half a second, one after another."""
    return [step(number, 1000 + number * apart, length) for number in range(count)]


def row(folder: Path, *events: Any) -> dict[str, Any]:
    (found,) = load_events(folder, op("aten::mm", 500, 5), *events).energy.to_dict("records")
    assert isinstance(found, dict)
    return {str(name): value for name, value in found.items()}


def test_it_is_the_first_reading_to_the_last_over_the_steps_between(tmp_path: Path) -> None:
    found = row(
        tmp_path,
        reading(900, rapl_package=3), reading(SECOND + 900, rapl_package=100),
        reading(4 * SECOND + 900, rapl_package=403), steps(10),
    )  # fmt: skip

    assert (found["counter"], found["steps"], found["note"]) == ("rapl:package", 8, None)
    assert (found["joules"], found["seconds"]) == (400, 4)
    # One millisecond of four seconds, at each end.
    assert found["joules_per_step"] == 50
    assert (found["lo"], found["hi"]) == pytest.approx((50 * (1 - 1 / 4000), 50 * (1 + 1 / 4000)))


def test_power_that_was_sampled_has_its_accuracy_and_spread_in_the_interval(
    tmp_path: Path,
) -> None:
    at_first = {"nvml-power:GPU-x": 0.0, "nvml-power:GPU-x/spread": 0.0}
    in_the_end = {"nvml-power:GPU-x": 1000.0, "nvml-power:GPU-x/spread": 30.0}
    found = row(
        tmp_path, named_reading(900, at_first), named_reading(10 * SECOND + 900, in_the_end),
        steps(22),
    )  # fmt: skip

    assert (found["steps"], found["joules_per_step"]) == (20, 50)
    # 5 % of 1000 J, 1 s of 10 s of them, and 30 J.
    assert found["hi"] - 50 == pytest.approx((50 + 100 + 30) / 20)
    assert 50 - found["lo"] == pytest.approx((50 + 100 + 30) / 20)
    assert pd.isna(found["idle_joules"])


def test_what_was_used_before_is_beside_it_and_not_taken_off(tmp_path: Path) -> None:
    first = named_reading(900, {"rapl:package": 0.0}, idle_joules={"rapl:package": 40.0},
                         idle_seconds=2.0)  # fmt: skip
    found = row(tmp_path, first, reading(4 * SECOND + 900, rapl_package=400), steps(10))

    assert found["joules_per_step"] == 50
    # 20 W in steps of half a second, ± 1 ms of the 2 s in which that was counted.
    assert found["idle_joules"] == pytest.approx(10)
    assert (found["idle_lo"], found["idle_hi"]) == pytest.approx((10 - 10 / 2000, 10 + 10 / 2000))


def test_a_gpu_counts_in_longer_periods(tmp_path: Path) -> None:
    found = row(tmp_path, reading(900, nvml_a=0), reading(2 * SECOND + 900, nvml_a=80), steps(6))

    assert found["joules_per_step"] == 20
    assert (found["lo"], found["hi"]) == pytest.approx((19, 21))


def test_counters_that_began_anew_are_added_up(tmp_path: Path) -> None:
    found = row(
        tmp_path,
        reading(900, rapl_package=0), reading(SECOND + 900, rapl_package=100),
        reading(2 * SECOND + 900, rapl_package=0), reading(3 * SECOND + 900, rapl_package=60),
        steps(8),
    )  # fmt: skip

    assert (found["joules"], found["seconds"], found["steps"]) == (160, 2, 4)
    assert found["joules_per_step"] == 40


@pytest.mark.parametrize(
    ("events", "note"),
    [
        ([reading(900, rapl_p=7), reading(SECOND + 900, rapl_p=7), *steps(3)], "does not move"),
        ([reading(900, rapl_p=0), reading(SECOND + 900, rapl_p=7),
          *steps(3, length=SECOND // 4)], "50 % of the time is outside of steps"),
        ([reading(900, rapl_p=0), reading(SECOND + 900, rapl_p=7)], "no step begins"),
    ],
)  # fmt: skip
def test_where_it_is_not_the_energy_of_steps_there_is_none(
    tmp_path: Path, events: list[Event], note: str
) -> None:
    found = row(tmp_path, *events)

    assert note in found["note"]
    assert (
        [found[name] for name in ("joules_per_step", "lo", "hi")]
        == [pytest.approx(float("nan"), nan_ok=True)] * 3
        or found["joules_per_step"] is None
        or str(found["joules_per_step"]) == "<NA>"
    )


def test_one_reading_says_nothing_and_neither_does_none(tmp_path: Path) -> None:
    one = load_events(tmp_path, op("aten::mm", 500, 5), reading(900, rapl_p=7), *steps(3))

    assert one.energy.empty
    assert list(one.energy.columns)[:3] == ["rank", "counter", "joules_per_step"]
    assert load_events(tmp_path, op("aten::mm", 500, 5), *steps(3)).energy.empty


def test_it_is_shown_with_steps_and_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyprof2.cli import main
    from tests.kineto_events import trace

    path = trace(
        tmp_path, op("aten::mm", 1500, 5),
        reading(900, rapl_package=0), reading(4 * SECOND + 900, rapl_package=400), steps(10),
    )  # fmt: skip
    line = (
        "rapl:package: 50.0 J in a step (50.0 to 50.0; 400 J in 4.0 s, 8 steps; RAPL, the whole "
        "package with all programs on it)"
    )

    for command in (["prof", "--by", "step"], ["lines"]):
        assert main([command[0], str(path), *command[1:]]) == 0
        assert line in " ".join(capsys.readouterr().out.split())
