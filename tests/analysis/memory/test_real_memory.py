"""Real recordings: what was published of them, and what a slow reader of our own tests says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

import pyprof2
from pyprof2.analysis.memory.live import AXES
from tests.analysis.memory.slow_memory import read_kineto, snapshot_lines
from tests.conftest import of_each_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.analysis.memory.profile import MemoryProfile

_KINETO: Final = {
    "tl_owlv2_h100": ("cuda", 0, 917_445_120, 2_707_847_680),
    "tl_qwen_mi300": ("hip", 0, 1_085_405_696, 2_219_047_936),
    "tl_bertsmall_h100": ("cuda", 0, 91_360_768, 101_305_344),
    "tl_nsfwvit_h100": ("cuda", 0, 214_877_184, 231_332_864),
    "tl_norm_mi300": ("hip", 0, 665_600, 8_154_624),
    "hta_df_index_v100_ddp": ("cuda", 1, 4_096_614_400, 6_629_508_096),
}
"""Device, base and peak, as the design's table of recordings has them."""

_NUMBERS: Final = {"cpu": 0, "cuda": 1, "hip": 6}
"""How Kineto numbers the types of devices."""
_SNAPSHOT: Final = "memory/snapshot_ctx512.pickle"


def _gpu(profile: MemoryProfile) -> dict[Any, Any]:
    devices = profile.devices.astype(object)
    (row,) = devices[devices["device_type"] != "cpu"].to_dict("records")
    return row


@pytest.mark.parametrize("name", _KINETO)
def test_base_and_peak_of_a_recording_are_those_that_were_published(
    name: str, shared_trace: Callable[[str], Path]
) -> None:
    kind, device, base, peak = _KINETO[name]

    found = _gpu(pyprof2.memory(shared_trace(f"kineto/{name}.json.gz")))

    assert (found["device_type"], found["device"]) == (kind, device)
    assert found["base_bytes"] == base
    assert found["peak_allocated_bytes"] == peak
    assert found["peak_over_base_bytes"] == peak - base


def test_without_totals_nobody_knows_the_base(shared_trace: Callable[[str], Path]) -> None:
    found = _gpu(pyprof2.memory(shared_trace("kineto/rn50_v100_w0.json.gz")))

    assert found["peak_over_base_bytes"] == 2_791_636_480
    assert pd.isna(found["base_bytes"])
    assert pd.isna(found["peak_allocated_bytes"])


@pytest.mark.parametrize(
    ("batch", "base", "peak"),
    [
        (2, 17_139_712, 35_727_872),
        (16, 17_311_744, 170_874_368),
        (64, 17_901_568, 590_053_376),
        (256, 20_262_400, 6_588_780_544),
    ],
)
def test_base_and_peak_grow_with_the_batch(
    batch: int, base: int, peak: int, shared_trace: Callable[[str], Path]
) -> None:
    path = shared_trace("more/kineto")
    (trace,) = path.glob(f"part_a100_b{batch}.*")

    found = _gpu(pyprof2.memory(trace))

    assert (found["base_bytes"], found["peak_allocated_bytes"]) == (base, peak)


@pytest.mark.parametrize("name", of_each_kind([*_KINETO, "rn50_v100_w0"]))
def test_a_reader_that_goes_event_by_event_says_the_same(
    name: str, shared_trace: Callable[[str], Path]
) -> None:
    path = shared_trace(f"kineto/{name}.json.gz")
    slow = read_kineto(path)
    profile = pyprof2.memory(path)

    for curve, entries in zip(profile.curves, profile.entries, strict=True):
        key = (_NUMBERS[curve.device_type], -1 if curve.device is None else curve.device)
        base, over, live = slow[key]
        assert curve.over_base(curve.peak) == over
        assert curve.base == (None if curve.device_type == "cpu" else base)
        if curve.blocks.by_size:
            continue
        own = entries[(entries["begin"] >= 0) & (entries["bytes"] > 0)]
        at_peak = own[(own["begin"] <= curve.peak) & (own["end"] > curve.peak)]
        assert sorted(at_peak["bytes"].tolist()) == live


@pytest.mark.parametrize("at", ["peak", "end", "backward"])
@pytest.mark.parametrize(
    "name", of_each_kind(["rn50_v100_w0", "hta_df_index_v100_ddp", "tl_norm_mi300"])
)
def test_rows_add_up_to_the_moment_to_the_byte_for_every_axis(
    name: str, at: str, shared_trace: Callable[[str], Path]
) -> None:
    profile = pyprof2.memory(shared_trace(f"kineto/{name}.json.gz"))
    totals = profile.devices.astype(object).set_index("device_type").to_dict("index")
    reference: dict[str, int] = {}
    for axis in AXES:
        sums = profile.rows([axis], at).groupby("device_type")["bytes"].sum()
        for kind, total in sums.items():
            assert reference.setdefault(str(kind), total) == total, axis
    if at == "backward":
        return
    for kind, total in reference.items():
        base = totals[kind]["base_bytes"]
        over = totals[kind][f"{at}_over_base_bytes"]
        assert total == over + (0 if pd.isna(base) else base)


def test_blocks_from_forward_to_backward_are_as_many_as_published(
    shared_trace: Callable[[str], Path],
) -> None:
    profile = pyprof2.memory(shared_trace("kineto/hta_df_index_v100_ddp.json.gz"))
    rows = profile.only("cuda:1").entries[0]
    found = {
        ends: (int(size.sum()), len(size))
        for ends, size in rows.groupby(["phase", "released"], observed=True)["bytes"]
    }

    assert found["forward", "backward"] == (6_647_930_880, 1_580)
    assert found["backward", "backward"][0] == 36_852_474_880


def test_a_real_snapshot_is_as_its_truth_says(
    shared: Path, shared_trace: Callable[[str], Path]
) -> None:
    (truth,) = json.loads((shared / "truth/memory_truth.json").read_text())["snapshot_ctx512"]
    profile = pyprof2.memory(shared_trace(_SNAPSHOT))
    found = _gpu(profile)
    rows = profile.rows(["line"])
    lines = dict(zip(rows["line"].str.split("\\").str[-1], rows["bytes"], strict=True))

    assert found["base_bytes"] == truth["base"]
    assert found["peak_over_base_bytes"] == truth["peak_allocated_over_base"]
    assert found["peak_active_bytes"] == truth["base"] + truth["peak_active_over_base"]
    assert found["reserved_bytes"] == truth["reserved_end"]
    assert found["allocated_bytes"] == truth["allocated_end"]
    assert {name: lines[name] for name, _ in truth["lines_at_peak"]} == dict(truth["lines_at_peak"])
    recorded = rows[~rows["line"].isin(["(before the recording)", "(rounding)"])]
    assert recorded["blocks"].sum() == truth["blocks_at_peak"]


def test_every_line_of_a_real_snapshot_is_as_a_slow_reader_says(
    shared_trace: Callable[[str], Path],
) -> None:
    path = shared_trace(_SNAPSHOT)
    base, over, lines, count = snapshot_lines(path, 0)
    profile = pyprof2.memory(path)
    rows = profile.rows(["line"])
    own = rows[~rows["line"].isin(["(before the recording)", "(rounding)"])]

    assert (profile.curves[0].base, profile.curves[0].over_base(profile.curves[0].peak)) == (
        base, over
    )  # fmt: skip
    assert dict(zip(own["line"].str.split("\\").str[-1], own["bytes"], strict=True)) == dict(lines)
    assert own["blocks"].sum() == count


def test_what_a_real_snapshot_reserves_is_the_sum_of_its_parts(
    shared_trace: Callable[[str], Path],
) -> None:
    found = _gpu(pyprof2.memory(shared_trace(_SNAPSHOT)))

    parts = [
        "allocated_bytes",
        "free_segments_bytes",
        "fragmentation_bytes",
        "pending_bytes",
        "private_bytes",
    ]
    assert [found[name] for name in parts] == [42_682_878_464, 28_391_243_776, 1_858_532_864, 0, 0]
    assert sum(found[name] for name in parts) == found["reserved_bytes"] == 72_932_655_104
    assert found["rounding_bytes"] == 134_939_132


def test_rows_of_a_real_snapshot_add_up_for_every_axis(shared_trace: Callable[[str], Path]) -> None:
    profile = pyprof2.memory(shared_trace(_SNAPSHOT))

    for axis in AXES:
        assert profile.rows([axis])["bytes"].sum() == 71_594_879_488, axis
    assert profile.rows(list(AXES))["bytes"].sum() == 71_594_879_488
