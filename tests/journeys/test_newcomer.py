"""Somebody who has just read the README looks at the recording that comes with pyprof2."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyprof2

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

DEMO = Path(pyprof2.__file__).parent / "data" / "demo.json.gz"
CONV_FLOPS = 2 * 32 * 32 * 32 * 32 * 32 * 3 * 3
"""Of a convolution: 32 pictures of 32 × 32 pixels, 32 channels to 32, filters of 3 × 3."""


def test_newcomer_reads_the_demo_recording(walk: Walk) -> None:
    shutil.copy(DEMO, walk.folder / "demo.json.gz")

    ops = walk.rows("demo.json.gz", "--by", "op")
    by_layer = walk.rows("prof", "demo.json.gz", "--by", "layer,direction")
    lacks = walk.text("check", "demo.json.gz")

    assert ops[0]["op"] == "aten::convolution_backward"
    assert sum(float(row["share_pct"]) for row in ops) == pytest.approx(100)
    conv = {  # of two steps; the backward has the gradients of input and weight
        row["direction"]: int(row["flops"]) for row in by_layer if row["layer"] == "blocks.0.conv2"
    }
    assert conv == {"forward": 2 * CONV_FLOPS, "backward": 4 * CONV_FLOPS}
    assert "no GPU activity" in lacks
