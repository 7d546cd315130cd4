"""What the CPU can do is measured once, apart, and only where it is the roof."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

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

    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setattr(cpu_peaks, "_GPUS", ())
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cpu_peaks, "_measure_apart", measure_apart)
    return calls


def kept(folder: Path) -> Iterator[Path]:
    return folder.glob("pyprof2-*/cpu-*.json")


def test_it_is_measured_once_for_a_machine(measured: list[int], tmp_path: Path) -> None:
    first, second = cpu_marker(), cpu_marker()

    assert first == second == Marker("cpu", **MEASURED)
    assert len(measured) == 1
    assert len(list(kept(tmp_path))) == 1


@pytest.mark.parametrize("content", ["", "[]", "{", '{"speed": 1}', "{}"])
def test_what_was_kept_and_is_broken_is_no_marker(
    measured: list[int], tmp_path: Path, content: str
) -> None:
    cpu_marker()
    (path,) = kept(tmp_path)
    path.write_text(content)

    assert cpu_marker() in (None, Marker("cpu", **MEASURED))
    assert len(measured) <= 2


@pytest.mark.usefixtures("measured")
def test_it_is_not_measured_where_somebody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")

    assert cpu_marker() is None


@pytest.mark.usefixtures("measured")
def test_it_is_not_measured_where_processes_share_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert cpu_marker() is None


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
    monkeypatch.setattr(cpu_peaks, "_SECONDS", 0.02)
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
