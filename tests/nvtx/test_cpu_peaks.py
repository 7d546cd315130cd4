"""What the CPU can do is measured once, apart, and only where it is the roof."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch

from pyprof2.markers import Marker, format_marker, parse_marker
from pyprof2.nvtx import cpu_peaks
from pyprof2.nvtx.cpu_peaks import SWITCH, cpu_marker, measure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEASURED: Final[dict[str, Any]] = {
    "name": "a CPU", "threads": 2, "flop_per_s": {"f32": 2e11}, "bytes_per_s": 4e10,
    "cache_bytes": 1 << 25,
}  # fmt: skip


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Take the place of the measurement, and count how often it is made."""
    calls: list[int] = []

    def measure_apart(threads: int) -> dict[str, Any]:
        calls.append(threads)
        return MEASURED

    for name in cpu_peaks._SIZES_OF_JOBS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_peaks, "_GPUS", ())
    monkeypatch.setattr(cpu_peaks, "_NEEDED_BYTES", 0)
    monkeypatch.setattr(cpu_peaks, "_measure_apart", measure_apart)
    return calls


def kept(folder: Path) -> Iterator[Path]:
    return folder.glob("cache/pyprof2/cpu-*.json")


def test_it_is_measured_once_for_a_machine(measured: list[int], tmp_path: Path) -> None:
    first, second = cpu_marker(), cpu_marker()

    assert first == second == Marker("cpu", **MEASURED)
    assert len(measured) == 1
    assert len(list(kept(tmp_path))) == 1


def test_after_an_hour_it_is_measured_again_and_the_higher_rates_count(
    measured: list[int], tmp_path: Path
) -> None:
    cpu_marker()
    (path,) = kept(tmp_path)
    path.write_text(json.dumps(MEASURED | {"flop_per_s": {"f32": 3e11}, "bytes_per_s": 1e10}))
    os.utime(path, (0, 0))

    again = cpu_marker()

    assert again == Marker("cpu", **(MEASURED | {"flop_per_s": {"f32": 3e11}}))
    assert len(measured) == 2


@pytest.mark.parametrize("content", ["", "[]", "{", '{"speed": 1}'])
def test_what_was_kept_and_is_broken_is_measured_anew(
    measured: list[int], tmp_path: Path, content: str
) -> None:
    cpu_marker()
    (path,) = kept(tmp_path)
    path.write_text(content)

    assert cpu_marker() == Marker("cpu", **MEASURED)
    assert len(measured) == 2


@pytest.mark.usefixtures("measured")
def test_no_file_of_the_users_is_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    path = cpu_peaks._kept_at(torch.get_num_threads())
    path.parent.mkdir(parents=True)
    path.with_name(f"{path.name}.{os.getpid()}").symlink_to(precious)

    assert cpu_marker() == Marker("cpu", **MEASURED)
    assert precious.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("sys.executable", None, id="embedded"),
        pytest.param("sys.executable", "/opt/app/train", id="an application"),
        pytest.param("pathlib.Path.home", None, id="no home"),
        pytest.param("pyprof2.nvtx.cpu_peaks._free_bytes", lambda: -1, id="no memory"),
    ],
)
@pytest.mark.usefixtures("measured")
def test_where_anything_is_in_the_way_the_annotation_does_without(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(name, value)

    assert cpu_marker() is None


@pytest.mark.slow
def test_nothing_in_the_current_folder_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)

    found = cpu_peaks._measure_apart(1)

    assert not (tmp_path / "ran").exists()
    assert found is not None


@pytest.mark.usefixtures("measured")
def test_it_is_not_measured_where_somebody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")

    assert cpu_marker() is None


@pytest.mark.usefixtures("measured")
def test_it_is_not_measured_where_processes_share_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in cpu_peaks._SIZES_OF_JOBS:
        monkeypatch.setenv(name, "2")
        assert cpu_marker() is None
        monkeypatch.delenv(name)


def test_it_is_not_measured_where_there_is_a_gpu(
    measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_peaks, "_GPUS", ("null",))

    assert cpu_marker() is None
    assert measured == []


def test_a_measurement_that_fails_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")

    assert cpu_peaks._measure_apart(1) is None


def test_a_measurement_has_rates_in_the_order_of_their_widths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Real ones, of short tries; f64 has half the lanes of f32, and no more than its rate."""
    monkeypatch.setattr(cpu_peaks, "_TRY_SECONDS", 0.02)
    monkeypatch.setattr(cpu_peaks, "_TRIES", 1)
    monkeypatch.setattr(cpu_peaks, "_COPY_BYTES", 1 << 20)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    found = measure()

    assert set(found) == set(MEASURED)
    assert found["flop_per_s"]["f32"] > 1e8
    assert found["flop_per_s"]["f64"] < 2 * found["flop_per_s"]["f32"]
    assert found["bytes_per_s"] > 1e7
    assert parse_marker(format_marker(Marker("cpu", **json.loads(json.dumps(found))))) is not None


def test_the_marker_is_read_in_both_forms() -> None:
    marker = Marker("cpu", **MEASURED)

    assert parse_marker(format_marker(marker)) == marker
    assert parse_marker(format_marker(marker, quoteless=True)) == marker
