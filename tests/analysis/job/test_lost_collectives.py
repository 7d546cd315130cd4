"""A collective that one rank's recording lost: those after it are matched with their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from pyprof2.analysis.job.instances import _met
from pyprof2.api.job import JobOfRanks
from pyprof2.api.run import load, parse
from tests.analysis.job.job_generator import REDUCED, Job, simulate, write

if TYPE_CHECKING:
    from pathlib import Path

RANKS, STEPS = 4, 6
OF_STEP = len(REDUCED)


def _without(path: Path, lost: list[int]) -> None:
    """Take collectives out of a recording: their ops, launches and kernels."""
    whole = json.loads(path.read_text())
    rows = whole["traceEvents"]
    kernels = [row for row in rows if row["cat"] == "kernel" and row["name"].startswith("nccl")]
    gone = {kernels[at]["args"]["correlation"] for at in lost}
    launches = [row for row in rows if row["cat"] == "cuda_runtime"]
    begins = [row["ts"] for row in launches if row["args"]["correlation"] in gone]

    def is_lost(row: dict[str, object]) -> bool:
        args = row.get("args", {})
        own = isinstance(args, dict) and args.get("correlation") in gone
        is_op = row["cat"] == "cpu_op"
        return own or (is_op and any(abs(float(str(row["ts"])) + 0.5 - t) < 0.1 for t in begins))

    path.write_text(json.dumps(whole | {"traceEvents": [r for r in rows if not is_lost(r)]}))


def _members(folder: Path, lost: dict[int, list[int]]) -> pd.DataFrame:
    files = write(simulate(Job(RANKS, steps=STEPS)), folder, seq=False)
    for rank, which in lost.items():
        _without(files[rank], which)
    return load(parse(files, folder / "job.pyprof2")).ranks.members


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param({2: [2 * OF_STEP + 1]}, id="within a step"),
        pytest.param({2: [2 * OF_STEP]}, id="the first of a step"),
        pytest.param({2: [3 * OF_STEP - 1]}, id="the last of a step"),
        pytest.param({0: [0]}, id="of the first rank, the first of all"),
        pytest.param({1: [5, 6]}, id="two at once"),
        pytest.param({0: [1], 1: [2]}, id="one of each of two ranks"),
        pytest.param({}, id="none"),
    ],
)
def test_only_what_lost_its_others_is_unmatched(tmp_path: Path, lost: dict[int, list[int]]) -> None:
    """The true number of each member is its place, which the lost ones count in."""
    found = _members(tmp_path, lost)
    gone = {at for own in lost.values() for at in own}
    true = {
        rank: [at for at in range(OF_STEP * STEPS) if at not in lost.get(rank, [])]
        for rank in range(RANKS)
    }

    assert len(found) == RANKS * STEPS * OF_STEP - sum(map(len, lost.values()))
    together: dict[int, set[int]] = {}
    for rank, own in found.sort_values("start_ns").groupby("rank"):
        for number, instance in zip(true[int(str(rank))], own["instance_id"], strict=True):
            assert (number in gone) == (pd.isna(instance))
            if number not in gone:
                together.setdefault(int(instance), set()).add(number)
    assert all(len(numbers) == 1 for numbers in together.values())
    matched = found[found["instance_id"].notna()]
    assert matched["wait_ns"].notna().all()
    for _, own in matched.groupby("instance_id"):
        assert own["aligned_ns"].max() <= (own["aligned_ns"] + own["dur_ns"]).min()
    for rank, which in lost.items():
        note = (
            f"unmatched: none of rank {rank} matches it; those after it are matched by their times"
        )
        assert (found["match_note"] == note).sum() == (RANKS - 1) * len(which)


@pytest.mark.parametrize("lost", [{2: [9]}, {0: [0]}, {1: [5, 6], 3: [20]}])
def test_without_steps_ranks_on_one_clock_go_on_behind_what_was_lost(
    tmp_path: Path, lost: dict[int, list[int]]
) -> None:
    files = write(simulate(Job(RANKS, steps=STEPS, offset_us=0, drift=0)), tmp_path, seq=False)
    for rank, which in lost.items():
        _without(files[rank], which)
    for path in files:
        whole = json.loads(path.read_text())
        rows = [r for r in whole["traceEvents"] if not r["name"].startswith("ProfilerStep")]
        path.write_text(json.dumps(whole | {"traceEvents": rows}))
    found = JobOfRanks(load(parse(files, tmp_path / "job.pyprof2")).tables, one_clock=True).members
    gone = sum(map(len, lost.values()))

    assert found["wait_ns"].notna().sum() == RANKS * (STEPS * OF_STEP - gone)
    matched = found[found["instance_id"].notna()]
    for _, own in matched.groupby("instance_id"):
        assert own["start_ns"].max() <= (own["start_ns"] + own["dur_ns"]).min()


def test_calls_that_do_not_end_in_order_are_not_matched_by_their_ends() -> None:
    """A long call on another stream ends after the one behind it: the nearest end is of neither."""
    long, after = {"_start": 0, "_end": 350, "n": 0}, {"_start": 10, "_end": 60, "n": 1}
    whole = pd.DataFrame([long, after]).assign(sign="sum", rank=0)
    part = pd.DataFrame([after]).assign(sign="sum", rank=1)

    assert _met(whole, part, 0).tolist() != [0]
    assert _met(whole.iloc[1:], part, 0).tolist() == [1]
