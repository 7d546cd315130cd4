"""Whose own times stand out: by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from pyprof2.analysis.job.rank_parts import PARTS, compared_ranks
from pyprof2.analysis.job.slow_ranks import bubbles, scores, standing_out

ROLES = dict.fromkeys(range(4), "same")


def _times(host: list[int], window: int | None = 100) -> pd.DataFrame:
    frame = pd.DataFrame({"rank": range(len(host)), "step": 0, "busy_ns": 50, "host_ns": host})
    return frame if window is None else frame.assign(window_ns=window)


@pytest.mark.parametrize(
    ("late", "found"),
    [
        pytest.param(5, [3], id="5 % of the step"),
        pytest.param(2, [], id="2 % of the step"),
        pytest.param(0, [], id="nobody"),
    ],
)
def test_a_late_host_stands_out_where_the_others_never_are_late(
    late: int, found: list[int]
) -> None:
    """Of a median of 0 there is no share; a spread is a hundredth of the step."""
    rows = scores(_times([0, 0, 0, late]), ROLES)
    own = rows[(rows["rank"] == 3) & (rows["score"] == "host_ns")].iloc[0]

    assert own["z"] == late
    assert math.isnan(own["excess_pct"])
    assert standing_out(rows)["rank"].tolist() == found


def test_without_the_length_of_steps_nothing_is_known_of_it() -> None:
    assert standing_out(scores(_times([0, 0, 0, 5], None), ROLES)).empty


def test_bubbles_of_a_pipeline_by_hand() -> None:
    """Two stages, three micro-batches, forward 10 and backward 20, one after another.

    Stage 0 waits for the gradients of the first micro-batch: 10 · 3 forward until 30, its backward
    begins when stage 1 has made 10 + 10 and 20 more, at 40; stage 1 begins at 10 and goes on
    until 10 + 3 · 30 = 100; stage 0 ends 20 after it, at 120. So each works 90 of 120.
    """
    parts = pd.DataFrame(
        {
            "rank": [0, 1], "device": 0, "step": 0, "window_ns": 120, "compute_ns": [90, 90],
            "comm_ns": [15, 5], "comp_comm_ns": [5, 5],
        }
    )  # fmt: skip
    found = bubbles(parts)

    assert found["bubble_ns"].tolist() == [120 - 90 - 10, 120 - 90]
    assert found["bubble_pct"].tolist() == pytest.approx([100 / 6, 25])


def _side(compute: list[int]) -> pd.DataFrame:
    """Return two equal steps of ranks that compute for so long; their step takes 1000."""
    ranks = [rank for rank in range(len(compute)) for _ in range(2)]
    frame = pd.DataFrame({"rank": ranks, "window_ns": 1000, "host_ns": 0})
    frame["compute_ns"] = [compute[rank] for rank in ranks]
    return frame.assign(**{f"{part}_ns": 0 for part in PARTS}, exposed_wait_ns=0)


def test_what_all_ranks_do_longer_is_no_ranks_own() -> None:
    """All compute 100 longer, as with other work; only rank 2, which is 200 longer, by itself."""
    before = _side([500, 500, 500, 500])

    everybody = compared_ranks(before, _side([600, 600, 600, 600]))
    assert everybody["changed"].isna().all()
    one = compared_ranks(before, _side([600, 600, 700, 600]))
    assert one["changed"].fillna("").tolist() == ["", "", "computes longer", ""]
    # Beside the others this one has become faster, though its own time is the same.
    stayed = compared_ranks(before, _side([600, 600, 600, 500]))
    assert stayed["changed"].fillna("").tolist() == ["", "", "", "computes less"]
