"""What steps spend: by hand from joules, seconds and what the user gives; nothing is made up."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.time.step_times import median_interval
from pyprof2.cli import main
from pyprof2.markers import Marker, format_marker
from tests.kineto_events import op, step, trace

if TYPE_CHECKING:
    from pathlib import Path

SECOND_US = 1_000_000


def recording(folder: Path, name: str, joules: float | None, *lengths_us: int) -> Path:
    """Return a recording of steps, one after another, and of what a package counted in them."""
    events = [op("aten::mm", 500, 5)]
    at = 1000
    for number, length in enumerate(lengths_us):
        events.append(step(number, at, length))
        at += length
    if joules is not None:
        first = Marker("energy", joules={"rapl:package-0": 0.0},
                       idle_joules={"rapl:package-0": 30.0}, idle_seconds=2.0)  # fmt: skip
        for ts, marker in ((900, first), (at, Marker("energy", joules={"rapl:package-0": joules}))):
            events.append(op(format_marker(marker, quoteless=True), ts, 1))
    return trace(folder / f"{name}.json", *events)


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> dict[tuple[str, str], dict[str, Any]]:
    assert main(["energy", *words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return {(row["recording"].rpartition("/")[2], row["measure"]): row for row in found}


def test_carbon_and_money_are_those_of_the_formula_and_of_every_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = recording(tmp_path, "a", 800.0, *[SECOND_US] * 8)
    second = recording(tmp_path, "b", None, *[SECOND_US] * 5, 2 * SECOND_US, 5 * SECOND_US)

    found = rows(
        capsys, str(second), str(first), "--price", "7.2", "--grams-per-kwh", "360", "--pue", "1.5",
        "--steps", "50",
    )  # fmt: skip

    # In the order given; without a counter there is neither energy nor carbon.
    assert list(found) == [
        ("b.json", "time"), ("b.json", "price"),
        ("a.json", "time"), ("a.json", "energy"), ("a.json", "idle_energy"), ("a.json", "carbon"),
        ("a.json", "price"),
    ]  # fmt: skip
    value = {key: (row["value"], row["unit"]) for key, row in found.items()}
    assert value["a.json", "time"] == (50, "s")
    assert value["a.json", "energy"] == (pytest.approx(5000, rel=1e-3), "J")
    # 15 W before it began, and 50 steps of 1 s.
    assert value["a.json", "idle_energy"] == (pytest.approx(750, rel=1e-3), "J")
    # 5 kJ at 1.5 are 7.5 kJ, of 3.6 MJ in a kWh: 1 / 480 kWh of 360 g.
    assert value["a.json", "carbon"] == (pytest.approx(0.75, rel=1e-3), "g")
    # 7.2 an hour are 0.002 a second; of the second one the mean step has 12 / 7 s.
    assert value["a.json", "price"] == (pytest.approx(0.1), "price")
    price = found["b.json", "price"]
    assert price["value"] == pytest.approx(50 * 0.002 * 12 / 7)
    assert (price["lo"], price["hi"]) == pytest.approx((0.1, 0.5))


def test_the_price_of_one_short_step_keeps_its_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path, "a", None, *[SECOND_US // 10] * 6)

    assert main(["energy", "-q", str(path), "--price", "3"]) == 0

    # 3 an hour are 0.0000833… in a tenth of a second.
    assert "8.333e-05" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["table", "markdown", "json", "csv"])
def test_a_recording_without_steps_spends_nothing_that_is_known(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(tmp_path / "none.json", op("aten::mm", 500, 5))

    assert main(["energy", "-q", str(path), "--price", "2", "--format", form]) == 0

    said = capsys.readouterr().out
    if form in ("table", "markdown"):
        assert said.splitlines()[-1].endswith("none.json: no steps are recorded")
    else:
        assert "time" not in said.partition("\n")[2]


def test_the_interval_of_the_median_is_that_of_the_tables() -> None:
    # Ranks of the order statistics, as statistics books have them for 95 %.
    known = {5: None, 6: (1, 6), 8: (1, 8), 9: (2, 8), 10: (2, 9), 15: (4, 12), 20: (6, 15),
             25: (8, 18), 30: (10, 21), 50: (18, 33)}  # fmt: skip
    for count, ranks in known.items():
        assert median_interval(range(count, 0, -1)) == ranks, count
    assert median_interval([]) is None


def test_a_profile_by_step_says_how_sure_the_median_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = recording(tmp_path, "odd", None, *[at * SECOND_US for at in (9, 1, 5, 2, 3, 4)])
    even = recording(tmp_path, "even", None, *[SECOND_US] * 6)

    assert main(["prof", str(odd), "--by", "step"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "the median of all such steps 1000.000 ms to 9000.000 ms at 95 % (± 114 %: record more)"
        in said
    )
    assert main(["prof", str(even), "--by", "step"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the median of all such steps 1000.000 ms to 1000.000 ms at 95 %" in said
    assert "record more" not in said


def test_few_steps_have_a_time_and_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = recording(tmp_path, "few", None, SECOND_US, 3 * SECOND_US, SECOND_US)
    several = recording(tmp_path, "several", None, *[at * SECOND_US for at in (9, 1, 5, 2, 3, 4)])

    found = rows(capsys, str(few), str(several))

    row = found["few.json", "time"]
    assert (row["value"], row["lo"], row["note"]) == (1, None, "fewer than 6 steps: no interval")
    row = found["several.json", "time"]
    assert (row["value"], row["lo"], row["hi"], row["note"]) == (3.5, 1, 9, None)


def test_the_table_says_what_was_given_and_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path, "a", None, *[SECOND_US] * 6)

    assert main(["energy", str(path), "--price", "2.5", "--steps", "3600", "-w", "200"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["what 3600 steps take", "as given: 2.50 an hour"]
    assert lines[-1].endswith("a.json: no energy was counted: see Energy of a step in the "
                              "documentation of recording")  # fmt: skip
    assert main(["energy", str(path), "--format", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["measure"], row["value"], row["unit"]) == ("time", "1", "s")
    for words in (["--pue", "0.9"], ["--price", "-1"], ["--grams-per-kwh", "x"], ["--steps", "0"]):
        assert main(["energy", str(path), *words]) == 2
        assert words[1] in capsys.readouterr().err
