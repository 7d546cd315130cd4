"""Jobs and the daemon are killed at random: `python -m tests.watch.storm` does it with more."""

from __future__ import annotations

import pytest

from tests.watch.storm import ROUNDS, storm


@pytest.mark.release
def test_each_file_is_complete_or_refused_and_nothing_is_left() -> None:
    assert len(storm(seed=1, count=8)) == ROUNDS
