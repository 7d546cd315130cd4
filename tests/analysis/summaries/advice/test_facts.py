"""What rules take of a rank is what a slow reader finds, row by row, in recordings of any kind."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from pyprof2.analysis.chunked import ENDLESS, InMemory
from pyprof2.analysis.summaries.advice.advise import gain_bound
from pyprof2.analysis.summaries.advice.device import elementwise_chains
from pyprof2.analysis.summaries.advice.facts import having
from pyprof2.analysis.summaries.advice.findings import RuleFinding
from pyprof2.analysis.summaries.advice.recording import DRIFT, DRIFT_CALLS, DRIFT_NS, kernel_drift
from pyprof2.analysis.summaries.advice.rules import RULES
from tests.analysis.summaries.advice.recordings import Rows, event, facts_of_ranks, tables

if TYPE_CHECKING:
    from pyprof2.analysis.summaries.advice.facts import RankFacts

SIZES = {"aten::add([8] f32)": 32, "aten::add([9] f32)": 36}


def _any(seed: int) -> Rows:
    """Return rows of kernels and copies on some streams of two devices, in no order of streams."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    rows: Rows = {name: [] for name in ("ops", "ranges", "stalls", "memory", "memory_tags")}
    rows |= {"kernels": [], "copies": [], "launches": [], "signatures": []}
    first = draw.choice([0, 5])
    for number in range(120):
        start = 40_000 * number + draw.randrange(60_000)
        launch = draw.choice([first + number, None])
        category = draw.choice(["elementwise", "elementwise", "norm", "memcpy", "comm"])
        rows["launches"].append(
            event((start - 30_000) / 1000, draw.randrange(90), name="cudaLaunchKernel",
                  launch_id=first + number)
        )  # fmt: skip
        rows["copies" if category == "memcpy" else "kernels"].append({
            "kernel_id": number, "start_ns": start, "dur_ns": draw.choice([9_000, 30_000, 45_000]),
            "launch_id": launch, "launch_ns": None if launch is None else max(0, start - 30_000),
            "device": draw.choice([0, 0, 1]), "device_type": "cuda",
            "stream": draw.choice([7, 7, 7, 20, None]),
            "category": category, "kernel": draw.choice(["a", "b"]), "op": draw.choice(["x", "y"]),
            "grid": draw.choice(["1,1,1", None]), "block": "1,1,1",
            "layer": draw.choice(["n", None]),
            "signature": draw.choice([*SIZES]), "direction": "forward", "source": "net.py:1",
            "bound": draw.choice(["memory", "memory", "memory", "compute"]),
        })  # fmt: skip
    for name in ("kernels", "copies"):
        rows[name].sort(key=lambda row: row["start_ns"])
    rows["trace"] = [{"start_ns": 0, "end_ns": 5_000_000, "profiler": "kineto"}]
    return rows


def _facts(rows: Rows) -> RankFacts:
    (facts,) = facts_of_ranks(tables(rows), [])
    return facts


def _in_streams(rows: Rows, *keys: str) -> list[list[dict[str, Any]]]:
    """Return kernels and copies by stream, or the like, in order of time."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(rows["kernels"] + rows["copies"], key=lambda row: row["start_ns"]):
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(found.values())


@pytest.mark.parametrize("seed", range(6))
def test_what_follows_was_queued_when_its_launch_returned(seed: int) -> None:
    rows = _any(seed)
    ends = {call["launch_id"]: call["start_ns"] + call["dur_ns"] for call in rows["launches"]}

    found = _facts(rows).followers

    for work in _in_streams(rows, "device", "stream"):
        for row, following in pairwise([*work, None]):
            assert row is not None
            wanted = ENDLESS if following is None else ends.get(following["launch_id"], ENDLESS)
            assert found[row["kernel_id"]] == wanted


@pytest.mark.parametrize("seed", range(6))
def test_a_chain_goes_on_where_the_kernel_right_before_wrote_as_much(seed: int) -> None:
    rows = _any(seed)
    chained = ("elementwise", "norm")
    wanted = {
        row["kernel_id"]
        for work in _in_streams(rows, "stream")
        for before, row in pairwise(work)
        if before["category"] in chained and row["category"] in chained
        and before["op"] != row["op"] and before["layer"] == row["layer"]
        and before["bound"] == row["bound"] == "memory"
        and SIZES[before["signature"]] == SIZES[row["signature"]]
    }  # fmt: skip

    found = elementwise_chains(_facts(rows))

    assert wanted
    assert found is not None
    assert {int(each) for each in found.evidence["kernels"]} == wanted
    assert found.hi_ns == 0  # how fast the memory is, is not known


@pytest.mark.parametrize("seed", range(6))
def test_equal_kernels_drift_by_what_nine_of_ten_stay_below(seed: int) -> None:
    rows = _any(seed)
    times: dict[tuple[Any, ...], list[int]] = {}
    for row in rows["kernels"]:
        key = tuple(row[name] for name in ("device", "kernel", "grid", "block", "signature"))
        if row["category"] != "comm":
            times.setdefault(key, []).append(row["dur_ns"])
    ratios = sorted(
        max(own) / min(own)
        for own in times.values()
        if len(own) >= DRIFT_CALLS and statistics.median(own) > DRIFT_NS
    )
    at = 0.9 * (len(ratios) - 1)
    low, high = ratios[int(at)], ratios[min(int(at) + 1, len(ratios) - 1)]
    ratio = low + (at - int(at)) * (high - low)

    found = kernel_drift(_facts(rows))

    assert ratio > DRIFT
    assert found is not None
    assert f"up to {ratio:.2f} times" in found.text


@pytest.mark.parametrize("seed", range(3))
def test_idle_time_by_cause_is_that_of_its_rows(seed: int) -> None:
    rows = _any(seed)
    idle = tables(rows)["idle"].to_pylist()

    facts = _facts(rows)

    for cause in {row["cause"] for row in idle}:
        own = [row["time_ns"] for row in idle if row["cause"] == cause]
        assert facts.idle_ns(cause) == sum(own)
    assert facts.devices_count == len({row["device"] for row in idle})


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [3, 1000])
def test_the_host_needs_what_its_busiest_thread_does_outside_of_what_is_removed(
    seed: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)  # noqa: S311 - no secret
    rows = _any(seed)
    for name, named in (("ops", {}), ("launches", {"name": "cudaLaunchKernel"})):
        begins = sorted(draw.randrange(4000) for _ in range(60))
        lengths, threads = draw.choices([0, 5, 40, 80], k=60), draw.choices([1, 2], k=60)
        each = zip(begins, lengths, threads, strict=True)
        rows[name] = [event(start, length, tid=thread, **named) for start, length, thread in each]
    made = tables(rows)
    (facts,) = facts_of_ranks(made, [])
    monkeypatch.setattr(facts.tables, "_read", lambda name: InMemory.cut(made[name], size))
    starts = np.array(sorted(draw.sample(range(0, 4_000_000, 100_000), 15)))
    removed = RuleFinding("", removed=(starts, starts + 60_000))

    found = gain_bound(facts, [(RULES[0], removed)])["host_ns"]

    gone = {at for start in starts.tolist() for at in range(start, start + 60_000, 1000)}
    times = {
        tid: {
            at
            for name in ("ops", "launches")
            for row in rows[name]
            if row["tid"] == tid
            for at in range(row["start_ns"], row["start_ns"] + row["dur_ns"], 1000)
        }
        for tid in (1, 2)
    }
    assert found == max(1000 * len(each - gone) for each in times.values())


@pytest.mark.parametrize("most", [0, 1, 3, 30])
def test_rows_with_a_wanted_text_are_found_however_many_texts_are_wanted(most: int) -> None:
    texts = pd.Series([str(n % 40) for n in range(120)] + [None]).astype("category")

    found = having(texts, lambda text: int(text) < most)

    assert found.tolist() == [n % 40 < most for n in range(120)] + [False]
