"""What others than the allocator use of a device: from `capture` to the rows of `memory`."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.memory.fits import fits
from pyprof2.cli import main
from pyprof2.errors import TraceError
from pyprof2.parsers.snapshot import read_snapshot
from tests.snapshots import alloc, block, dump, flat, forward, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

_GB = 10**9


def _snapshot() -> dict[str, Any]:
    """Return a snapshot of 3 GB on device 0, of which 1 GB is allocated, and none on device 1."""
    kept = block(_GB, address=1 << 20, requested_size=_GB, frames=forward(1))
    held = segment(kept, block(2 * _GB, "inactive", address=(1 << 20) + _GB))
    return snapshot([held], flat(alloc(1 << 20, _GB, forward(1))))


class _Cuda:
    """Stands for `torch.cuda` of two devices, where there is none: the second one is not used."""

    def __init__(self) -> None:
        self.ended = False
        self.memory = SimpleNamespace(_snapshot=_snapshot, _record_memory_history=self._record)

    def _record(self, enabled: str | None) -> None:
        self.ended = enabled is None

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def memory_reserved(self, device: int) -> int:
        return [3 * _GB, 0][device]

    def mem_get_info(self, device: int) -> tuple[int, int]:
        assert device == 0
        return 76 * _GB, 80 * _GB


def test_what_others_use_is_what_is_used_less_what_is_reserved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from pyprof2.capture.recorders import write_snapshot

    cuda, path = _Cuda(), tmp_path / "x.pickle"
    write_snapshot(cuda, path)

    assert cuda.ended
    assert main(["memory", str(path), "--format", "json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)
    assert device["reserved_bytes"] == 3 * _GB
    assert device["non_torch_bytes"] == (80 - 76 - 3) * _GB
    assert main(["memory", str(path), "--memory", "2GB"]) == 0
    text = capsys.readouterr().out
    assert "used beside it on the device 1.00 GB" in text
    assert "1.00 GB are used beside the allocator" in text


def test_a_snapshot_of_torch_alone_does_not_know_what_others_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dump(tmp_path, _snapshot())

    assert read_snapshot(path).non_torch == {}
    assert main(["memory", str(path), "--format", "json", "--memory", "80GB"]) == 0
    (device,) = json.loads(capsys.readouterr().out)
    assert device["non_torch_bytes"] is None
    assert device["fits"]["non_torch_bytes"] is None
    assert main(["memory", str(path), "--memory", "80GB"]) == 0
    assert "what is not of the allocator, such as libraries and CUDA's context, comes on top" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("device", "why"),
    [
        pytest.param({"device": 0, "used": "1", "reserved": 0}, "no whole number", id="text"),
        pytest.param({"device": 0, "used": 1}, "no whole number", id="absent"),
        pytest.param({"device": 0, "used": -1, "reserved": 0}, "out of range", id="negative"),
        pytest.param([], "holds a list", id="list"),
    ],
)
def test_numbers_of_devices_that_are_none_are_refused(
    device: object, why: str, tmp_path: Path
) -> None:
    path = dump(tmp_path, _snapshot() | {"pyprof2_devices": [device]})

    with pytest.raises(TraceError, match=why):
        read_snapshot(path)


def test_a_device_that_uses_less_than_is_reserved_says_nothing(tmp_path: Path) -> None:
    odd = {"pyprof2_devices": [{"device": 0, "used": 5, "reserved": 6}]}

    assert read_snapshot(dump(tmp_path, _snapshot() | odd)).non_torch == {}


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        pytest.param(None, "fits", id="not known"),
        pytest.param(30, "fits", id="little"),
        pytest.param(90, "may fit", id="less than 2 % stay free"),
        pytest.param(101, "does not fit", id="too much"),
    ],
)
def test_what_others_use_takes_place_on_the_other_device(others: int | None, verdict: str) -> None:
    totals = {
        "peak_allocated_bytes": 900, "peak_over_base_bytes": 100, "peak_reserved_bytes": 900,
        "reserved_bytes": None, "non_torch_bytes": others,
    }  # fmt: skip

    assert fits(totals, 1000)["verdict"] == verdict
