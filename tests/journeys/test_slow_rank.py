"""Eight ranks, one of which has a device that is a fifth slower: which, and by how much?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.analysis.job.job_generator import Job, simulate, write

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

SLOW, FACTOR = 5, 1.2


@pytest.mark.slow
def test_the_slow_rank_of_eight_is_named_in_the_first_sentence(walk: Walk) -> None:
    files = write(simulate(Job(8, slow={SLOW: FACTOR})), walk.folder)

    first, *_ = walk.text("ranks", *files).splitlines()
    (row,) = walk.rows("ranks", *files, "--by", "straggler")

    assert re.search(rf"(?i)\brank {SLOW}\b", first)
    assert row["rank"] == str(SLOW)
    assert abs(float(row["excess_pct"]) - 100 * (FACTOR - 1)) < 1


@pytest.mark.slow
def test_healthy_ranks_are_said_to_be_healthy(walk: Walk) -> None:
    files = write(simulate(Job(4)), walk.folder)

    first, *_ = walk.text("ranks", *files).splitlines()

    assert re.search(r"(?i)no(ne| rank)\b", first)
