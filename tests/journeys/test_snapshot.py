"""Somebody whose training ran out of memory has a snapshot, and wants the line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.snapshots import MODEL, alloc, block, dump, event, flat, forward, free, segment, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.journeys.conftest import Walk

MB = 1_000_000


@pytest.mark.slow
def test_a_snapshot_says_which_line_holds_the_memory_and_where_it_would_fit(walk: Walk) -> None:
    # Line 12 keeps 30 MB of each of four layers, line 20 5 MB; line 31 gives its 8 MB back.
    kept = [alloc(100 + at, 30 * MB, forward(12)) for at in range(4)]
    freed = [alloc(300, 8 * MB, forward(31)), *free(300, 8 * MB, forward(31))]
    events = flat(*kept, alloc(200, 5 * MB, forward(20)), *freed, event("oom", None, 90 * MB))
    blocks = [block(30 * MB, address=100 + at, requested_size=30 * MB) for at in range(4)]
    blocks.append(block(5 * MB, address=200, requested_size=5 * MB))
    dump(walk.folder, snapshot([segment(*blocks)], events))

    peak = walk.rows("memory", "snapshot.pickle", "--by", "line")
    ran_out = walk.rows("memory", "snapshot.pickle", "--by", "line", "--at", "oom")
    fits, lacks = (
        json.loads(walk.text("memory", "snapshot.pickle", "--memory", size, "--format", "json"))
        for size in ("150MB", "130MB")
    )

    held = [(f"{MODEL}:12", 120 * MB), (f"{MODEL}:31", 8 * MB), (f"{MODEL}:20", 5 * MB)]
    assert [(row["line"], int(row["bytes"])) for row in peak] == held
    assert [(row["line"], int(row["bytes"])) for row in ran_out] == [held[0], held[2]]
    verdicts = [each[0]["fits"]["verdict"] for each in (fits, lacks)]
    assert verdicts == ["fits", "does not fit"]


def test_a_real_snapshot_says_the_line(walk: Walk, shared_trace: Callable[[str], Path]) -> None:
    path = shared_trace("memory/snapshot_ctx512.pickle")

    first, second, *_ = walk.rows("memory", path, "--by", "line", "--device", "cuda:0")

    base, *lines = sorted((first, second), key=lambda row: "model.py" in row["line"])
    assert int(base["bytes"]) > int(lines[0]["bytes"]) == 5_450_629_120
    assert lines[0]["line"].endswith("model.py:41")
