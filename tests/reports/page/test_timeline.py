"""Time lines of the page: spans of phases and layers, against a slow reader of the same rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.api.run import load
from pyprof2.reports.page.timeline import spans, timeline_of
from pyprof2.reports.page.values import zeros
from tests.kineto_events import launched, op, step, trace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LAYERS: Final = (None, "net", "net.a", "net.a.fc", "net.b")
CATEGORIES: Final = (None, "norm", "conv", "matmul")
_PHASES: Final = {"range": "range", "phase": "direction"}
_COLUMNS: Final = ("start_ns", "dur_ns", "busy_ns", "name", "category")
_TEXTS: Final = ("range", "direction", "layer", "category")


def _rows(seed: int, count: int) -> list[dict[str, Any]]:
    draw, rows, start = random.Random(seed), [], 0  # noqa: S311 -- no secret
    for _ in range(count):
        start += draw.choice([0, 5, 10, 30])
        rows.append(
            {
                "start_ns": start,
                "dur_ns": draw.choice([0, 4, 10, 25]),
                "range": draw.choice([None, None, "warm-up"]),
                "direction": draw.choice([None, "forward", "backward"]),
                "layer": draw.choice(LAYERS),
                "category": draw.choice(CATEGORIES),
            }
        )
    return rows


def _slow_spans(rows: Iterable[dict[str, Any]], keys: Iterable[str | None]) -> list[Any]:
    """Return start, time, busy time, name and category of the spans of rows in order of time."""
    found: list[Any] = []
    covered = 0
    for row, key in zip(rows, keys, strict=True):
        if key is None:
            continue
        begin, end = row["start_ns"], row["start_ns"] + row["dur_ns"]
        if not found or found[-1][3] != key:
            found.append([begin, end, 0, key, {}])
        span = found[-1]
        span[1] = max(span[1], end)
        span[2] += max(0, end - max(begin, covered))
        covered = max(covered, end)
        span[4][row["category"]] = span[4].get(row["category"], 0) + row["dur_ns"]
    for span in found:
        span[1] -= span[0]
        # The category with the most time; of equals the first in the alphabet, null after all.
        span[4] = min(span[4], key=lambda name: (-span[4][name], name is None, name or ""))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_spans_are_those_of_a_slow_reader(seed: int) -> None:
    rows = _rows(seed, 60)
    random.Random(seed).shuffle(rows)  # noqa: S311 -- no secret
    frame = pd.DataFrame(rows).astype(dict.fromkeys(_TEXTS, "category"))
    rows.sort(key=lambda row: int(row["start_ns"]))
    layers = [(row["layer"] or "").split(".") for row in rows]

    wanted = {name: [row[key] for row in rows] for name, key in _PHASES.items()}
    # All is below `net`, which has no track; the name of each begins where that above it ends.
    for depth in (2, 3):
        deep = [each[:depth] if len(each) >= depth else None for each in layers]
        wanted[f"layer {depth}"] = [each and ".".join(each) for each in deep]

    found = {name: own for name, _, own in spans(frame)}
    assert set(found) == set(wanted)
    for name, keys in wanted.items():
        own = found[name].astype(object).where(found[name].notna(), None)
        got = list(zip(*(own[column] for column in _COLUMNS), strict=True))
        assert got == [(*each[:3], each[3].rpartition(".")[2], each[4]) for each in
                       _slow_spans(rows, keys)], name  # fmt: skip


def test_nothing_has_no_spans() -> None:
    frame = pd.DataFrame(columns=["start_ns", "dur_ns", *_TEXTS])
    assert not [*spans(frame.astype(dict.fromkeys(_TEXTS, "category")))]


@pytest.mark.parametrize(
    ("lengths", "whys"),
    [
        ([[40], [60], [50]], [("only", 1), ("only", 2), ("only", 0)]),
        ([[40, 45, 41], [60, 61]], [("slowest", 0), ("median", 0), ("median", 1), ("slowest", 1)]),
    ],
)  # fmt: skip
def test_the_only_step_of_a_rank_is_neither_median_nor_slowest(
    lengths: list[list[int]], whys: list[tuple[str, int]], tmp_path: Path
) -> None:
    """Of several ranks with one step the longest is drawn first."""
    for rank, own in enumerate(lengths):
        events: list[Any] = []
        for number, length in enumerate(own):
            at = 100 * number
            work = launched(at + 1, number + 1, at=at + 5, dur=length - 6)
            events += [step(number, at, length), op("aten::mm", at, 9), *work]
        info = {"distributedInfo": {"rank": rank, "world_size": len(lengths)}}
        trace(tmp_path / f"{rank}.json", *events, **info)
    run = load(tmp_path)
    found = timeline_of(run, zeros(run))

    assert [(each["why"], each["rank"]) for each in found][: len(whys)] == whys
