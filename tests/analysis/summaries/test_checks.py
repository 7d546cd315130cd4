"""What a recording lacks is counted, and each lack has its advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.analysis.summaries.checks import find_lacks
from pyprof2.analysis.summaries.findings import COLUMNS, Finding, findings_table, merge_ranks
from pyprof2.api.run import load
from pyprof2.parsers.formats import advice_of
from tests.kineto_events import (
    ENGINE,
    Event,
    annotation,
    flow,
    frame,
    json_text,
    kernel,
    launch,
    launched,
    load_events,
    node,
    op,
    step,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

ADVICE: Final = advice_of(["kineto"])
MM: dict[str, Any] = {"dims": [[2, 3], [3, 4]], "types": ["float", "float"]}
COMPLETE: list[Event] = [
    step(1, 0, 90), frame("nn.Module: Net_0", 0, 80), frame("net.py(3): forward", 0, 70),
    op("aten::mm", 1, 9, seq=7, **MM), *launched(2, 1, at=100, dur=6),
]  # fmt: skip


def findings(found: pd.DataFrame, severity: str) -> dict[str, int]:
    rows = found[found["severity"] == severity]
    return dict(zip(rows["finding"], rows["count"], strict=True))


def check(run: Run) -> pd.DataFrame:
    return findings_table(find_lacks(run.summary, run.manifest, ADVICE))


def lacks(folder: Path, *events: Event | list[Event]) -> dict[str, int]:
    return findings(check(load_events(folder, *events)), "lack")


def test_a_recording_that_has_all_lacks_nothing(tmp_path: Path) -> None:
    found = check(load_events(tmp_path, COMPLETE))

    assert findings(found, "lack") == {}
    assert findings(found, "problem") == {}


@pytest.mark.parametrize(
    ("more", "finding", "count"),
    [
        pytest.param(
            [kernel(110, 1, 8), kernel(120, 1, 9)], "kernels without a launch in the recording", 2,
            id="no launch",
        ),
        pytest.param(
            launched(60, 2, at=110, dur=1), "kernels launched outside of any op", 1, id="no op"
        ),
        pytest.param(
            [*launched(60, 2, at=110, dur=1, tid=77), *launched(61, 3, at=120, dur=1, tid=78)],
            "kernels launched on threads without any op", 2, id="other threads",
        ),
        pytest.param(
            [op("aten::a", 50, 9), *launched(51, 2, at=110, dur=1)],
            "linked kernels whose op has no shapes", 1, id="no shapes",
        ),
        pytest.param(
            [node("MmBackward0", 40, 9, seq=7, **MM), node("XBackward0", 50, 9, seq=9, **MM),
             *launched(51, 2, at=110, dur=1, tid=ENGINE)],
            "backward kernels without a forward op", 1, id="no forward op",
        ),
    ],
)  # fmt: skip
def test_a_lack_is_counted(tmp_path: Path, more: list[Event], finding: str, count: int) -> None:
    assert lacks(tmp_path, COMPLETE, more) == {finding: count}


@pytest.mark.parametrize(
    ("without", "finding"),
    [("ProfilerStep", "no steps"), ("nn.Module", "no layers"), ("net.py", "no source lines")],
)
def test_what_is_not_there_at_all_is_said(tmp_path: Path, without: str, finding: str) -> None:
    events = [event for event in COMPLETE if without not in event["name"]]

    assert lacks(tmp_path, events) == {finding: 1}


def test_replayed_graphs_are_a_lack_of_ops(tmp_path: Path) -> None:
    graph = [launch(2, 5, name="cudaGraphLaunch"), kernel(110, 1, 5), kernel(112, 1, 5)]

    found = check(load_events(tmp_path, COMPLETE, graph))

    row = found[found["finding"].str.contains("replayed")].iloc[0]
    assert (row["count"], row["share_pct"]) == (2, pytest.approx(100 * 2 / 3))


@pytest.mark.parametrize(
    ("events", "finding"),
    [
        pytest.param([op("a", 0, 9)], "no GPU activity: op calls", id="no GPU"),
        pytest.param([kernel(0, 9, 1)], "no PyTorch ops", id="no ops"),
        pytest.param([annotation("x", 0, 9)], "nothing was recorded", id="nothing"),
    ],
)
def test_half_a_recording_says_which_half(
    tmp_path: Path, events: list[Event], finding: str
) -> None:
    found = lacks(tmp_path, events)

    assert any(each.startswith(finding) for each in found)


def test_every_lack_has_its_advice_and_a_share_of_what_it_is_about(tmp_path: Path) -> None:
    found = check(
        load_events(tmp_path, op("a", 0, 9), launched(1, 1, at=100, dur=1), kernel(110, 1, 9))
    )

    rows = found[found["severity"] == "lack"]
    assert rows["advice"].str.len().min() > 10
    share = dict(zip(rows["finding"], rows["share_pct"], strict=True))
    assert share["kernels without a launch in the recording"] == 50.0
    assert share["linked kernels whose op has no shapes"] == 100.0


def test_repairs_and_losses_are_problems_of_their_rank(tmp_path: Path) -> None:
    path = tmp_path / "rank4.json"
    path.write_bytes(json_text(COMPLETE, kernel(200, -1, 9))[:-2] + b',{"ph": ')

    found = check(load(path))

    problems = found[found["severity"] == "problem"]
    assert problems["rank"].tolist() == [4, 4]
    assert set(findings(found, "problem").values()) == {1}
    assert problems["advice"].str.len().min() > 0


def test_facts_are_no_problems(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        COMPLETE,
        node("MmBackward0", 40, 9, seq=7), op("aten::mm", 41, 5, seq=9, tid=ENGINE, **MM),
        op("aten::mm", 47, 1, tid=ENGINE, **MM),
        launched(42, 2, at=110, dur=1, tid=ENGINE), flow(1, 1, 40),
        {"ph": "M", "name": "process_name"},
    )  # fmt: skip

    found = check(run)

    assert findings(found, "problem") == {}
    facts = findings(found, "info")
    assert facts["kernels of forward ops that checkpointing runs again"] == 1
    assert facts["forward-backward pairs of the recorder that agree with ours"] == 1
    assert facts["not read: names of processes, threads and categories, which no number needs"] == 1


def test_problems_come_first_then_lacks_then_facts(tmp_path: Path) -> None:
    found = check(load_events(tmp_path, kernel(0, -1, 1), {"ph": "M", "name": "x"}))

    order = {"problem": 0, "lack": 1, "info": 2}
    assert [order[each] for each in found["severity"]] == sorted(
        order[each] for each in found["severity"]
    )
    assert found["severity"].nunique() == 3


def test_counts_are_whole_numbers(tmp_path: Path) -> None:
    found = check(load_events(tmp_path, kernel(0, -1, 1)))

    assert [str(found[name].dtype) for name in ("count", "rank")] == ["Int64", "Int64"]
    assert (found["count"] > 0).all()


def test_what_is_found_of_several_ranks_is_one_line() -> None:
    found = pd.DataFrame(
        [
            ("info", "pairs", 1, 50.0, "", 0),
            ("lack", "x", 3, None, "do", 2),
            ("info", "pairs", 8, 100.0, "", 1),
        ],
        columns=COLUMNS,
    )

    merged = merge_ranks(found)

    assert merged["finding"].tolist() == ["pairs", "x"]
    assert merged["count"].tolist() == [9, 3]
    assert merged["share_pct"].iloc[0] == pytest.approx(90.0)  # 9 of 2 + 8
    assert merged["share_pct"].isna().tolist() == [False, True]
    assert merged["rank"].isna().tolist() == [True, False]


def test_nothing_is_advised_that_was_done(tmp_path: Path) -> None:
    events = [
        step(6, 0, 300), op("aten::mm", 0, 50, **MM), *launched(10, 1, at=60, dur=5),
        op("aten::x", 100, 9), *launched(101, 2, at=120, dur=5), kernel(5, 2, 7),
    ]  # fmt: skip

    advice = load_events(tmp_path, *events).check().set_index("finding")["advice"]

    assert "record_shapes" not in advice["linked kernels whose op has no shapes"]
    assert "warm-up" not in advice["kernels without a launch in the recording"]


@pytest.mark.filterwarnings("error")
def test_a_count_that_fits_no_column_is_an_error_and_no_float() -> None:
    found = [Finding("info", "events", 1 << 63), Finding("info", "no count", None)]

    with pytest.raises(OverflowError):
        findings_table(found)
