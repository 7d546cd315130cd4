"""The lines of the devices below `--summary` and `--breakdown plugin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyprof2
from pyprof2.reports.totals import device_lines
from tests.kineto_events import kernel, trace

if TYPE_CHECKING:
    from pathlib import Path

H100 = {"name": "NVIDIA H100", "totalGlobalMem": 80e9, "computeMajor": 9, "computeMinor": 0}
MI300 = {"name": "", "totalGlobalMem": 192e9, "computeMajor": 9, "computeMinor": 4}


def test_equal_devices_are_one_line_and_one_without_a_name_is_none_of_them(tmp_path: Path) -> None:
    all_ = [{"id": index, **facts} for index, facts in enumerate((H100, H100, MI300))]
    trace(tmp_path / "a.json", kernel(0, 10, 1), deviceProperties=all_)
    run = pyprof2.load(pyprof2.parse(tmp_path / "a.json"))

    assert list(device_lines(run)) == [
        "2 × NVIDIA H100, 80.0 GB, compute capability 9.0",
        "device not named, 192.0 GB, compute capability 9.4",
    ]
