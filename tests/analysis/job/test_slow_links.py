"""Two groups, one of them with slower links; and waits for collectives that nobody recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from pyprof2.analysis.job.what_if import INFERRED, as_the_others, evaluate
from pyprof2.api.job import JobOfRanks
from pyprof2.api.run import load
from pyprof2.reports.ranks import answers
from tests.analysis.job.job_generator import Job, simulate, write
from tests.analysis.job.job_members import replay_error_ns

if TYPE_CHECKING:
    from pathlib import Path


def _two_groups(folder: Path, links: float) -> tuple[JobOfRanks, float]:
    """Return two pairs of ranks, the second one's links that much slower, and the cost in us."""
    files, ends = [], []
    for group in range(2):
        job = Job(2, seed=group, links=links if group else 1.0, gap_us=10, one_stream=True)
        made = simulate(job)
        ends.append(made.end_us[-1])
        own = folder / str(group)
        own.mkdir()
        for rank, one in enumerate(write(made, own)):
            document = json.loads(one.read_text())
            document["distributedInfo"] |= {"rank": 2 * group + rank, "world_size": 4}
            for row in document["traceEvents"]:
                if "Process Group Ranks" in row.get("args", {}):
                    ranks = {"Process Group Ranks": str([2 * group, 2 * group + 1])}
                    row["args"] |= ranks | {"Global rank start": 2 * group}
            files.append(folder / f"rank{2 * group + rank}.json")
            files[-1].write_text(json.dumps(document))
    even = simulate(Job(2, seed=1, gap_us=10, one_stream=True)).end_us[-1]
    return load(files).ranks, ends[1] - max(even, ends[0])


def test_of_two_groups_the_slower_is_named_with_what_it_costs(tmp_path: Path) -> None:
    found, lost_us = _two_groups(tmp_path, 3.0)

    assert answers(found)[0].startswith("the ranks 2, 3 have the slower link: all_reduce of 16777")
    assert "as long as among the ranks 0, 1" in answers(found)[0]
    assert found.slower_of_two_groups["ratio"].tolist() == pytest.approx([3, 3], rel=0.05)
    assert found.gain_of_links().gain_ns == pytest.approx(1000 * lost_us, rel=0.02)


def test_two_groups_of_one_speed_are_silent(tmp_path: Path) -> None:
    found, _ = _two_groups(tmp_path, 1.0)

    assert answers(found)[0].startswith("no rank is slow")


def test_waits_for_collectives_are_inferred_where_nothing_fits_without(tmp_path: Path) -> None:
    """The last kernel of a step waits for the last all_reduce, which takes longest: 8 % of it."""
    job = Job(4, slow={2: 1.5}, links=3, seed=1)
    lost_us = simulate(job).end_us[-1] - simulate(replace(job, slow={})).end_us[-1]
    found = load(write(simulate(job), tmp_path)).ranks
    (slow,) = found.slow_ranks
    gain = slow.gain

    assert found.graph.error_without(found.graph.inferred) > 0.05
    assert gain.model_error == 0
    assert gain.gain_ns == pytest.approx(1000 * lost_us, rel=0.02)
    assert gain.lo_ns is not None
    assert gain.hi_ns is not None
    assert gain.gain_ns is not None
    assert gain.lo_ns <= gain.gain_ns <= gain.hi_ns
    assert answers(found)[0].endswith(INFERRED)


@pytest.mark.kept("4-2-1.2-2", "2-2-1.2-0")
@pytest.mark.parametrize(
    ("ranks", "links", "slow", "rank"),
    [(4, 2, 1.1, 0), (4, 2, 1.2, 2), (4, 3, 1.5, 2), (2, 2, 1.2, 0)],
)
def test_what_a_slow_rank_hides_its_wait_for_is_inferred_from_the_others(
    tmp_path: Path, ranks: int, links: float, slow: float, rank: int
) -> None:
    """The slow rank's last kernel is later than the all_reduce; as the others it would not be."""
    job = Job(ranks, slow={rank: slow}, links=links, seed=1)
    lost_us = simulate(job).end_us[-1] - simulate(replace(job, slow={})).end_us[-1]
    found = load(write(simulate(job), tmp_path)).ranks
    gain = evaluate(found.graph, as_the_others(found.graph, [rank], dict.fromkeys(range(ranks), 0)))

    assert replay_error_ns(found.graph) == 0
    assert gain.gain_ns == pytest.approx(1000 * lost_us, rel=0.03)
    assert gain.lo_ns is not None
    assert gain.hi_ns is not None
    assert gain.lo_ns <= 1000 * lost_us <= gain.hi_ns
    assert gain.hi_ns - gain.lo_ns < 0.01 * gain.window_ns
    assert gain.note is not None
    assert INFERRED in gain.note


def test_two_ranks_that_no_collective_ties_have_only_a_bound(tmp_path: Path) -> None:
    """Their clocks drift apart by more than clocks do, so no collective of them is matched."""
    made = simulate(Job(2, links=2.0, slow={1: 1.2}, seed=1, drift=1e-3))
    assert abs(made.drifts[1]) > 200e-6
    write(made, tmp_path)

    (gain,) = JobOfRanks(load(tmp_path).tables).what_if(rank=1).to_dict("records")

    assert pd.isna(gain["gain_ns"])
    assert pd.isna(gain["hi_ns"])
    assert "no collective ties the ranks" in gain["note"]
