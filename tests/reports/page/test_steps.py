"""Steps on the page: which are left out where there are too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from pyprof2.reports.page import steps as page_steps
from pyprof2.reports.page.steps import kept_steps, parts_of, steps_notes
from tests.kineto_events import launched, load_events, step

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def windows(ranks: int, steps: int) -> pd.DataFrame:
    rows = [{"rank": r, "device": pd.NA, "step": s} for r in range(ranks) for s in range(steps)]
    return pd.DataFrame(rows)


def test_each_device_keeps_its_first_steps_and_those_that_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_steps, "MOST_STEPS", 9)

    found = kept_steps(windows(3, 50), {0: [2], 1: [40], 2: []})

    assert found.groupby("rank")["step"].apply(list).to_dict() == {
        0: [0, 1, 2], 1: [0, 1, 2, 40], 2: [0, 1, 2],
    }  # fmt: skip


def test_as_many_as_may_be_are_all_there() -> None:
    assert len(kept_steps(windows(2, 20_000), {})) == 40_000


def test_parts_are_those_of_the_steps_that_tell_and_a_note_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load_events(
        tmp_path,
        *([step(n, 100 * n, 90), *launched(100 * n + 1, n + 1, at=100 * n + 9, dur=30)]
          for n in range(6)),
    )  # fmt: skip
    monkeypatch.setattr(page_steps, "MOST_PARTS", 5)

    found = parts_of(run, {0: 0}, {0: [4]})

    assert set(found["columns"]["step"]) == {4}
    assert sum(found["columns"]["time_ns"]) == run.steps["dur_ns"].tolist()[4]
    assert any("parts" in note for note in steps_notes(run, {0: [4]}))
