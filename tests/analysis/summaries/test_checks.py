"""What a recording lacks is counted, and each lack has its advice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.analysis.summaries.checks import decided, find_lacks
from pyprof2.analysis.summaries.findings import COLUMNS, Finding, findings_table, merge_ranks
from pyprof2.analysis.summaries.range_times import INPUT, range_times
from pyprof2.api.run import load, parse
from pyprof2.cli import main
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
    trace,
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
    advice = decided(run.summary, run.tables.manifest, ADVICE)
    return findings_table(find_lacks(run.summary, run.tables.manifest, advice))


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
        pytest.param(
            [annotation("x", 0, 9)],
            "neither ops nor work of a GPU: the file holds 1 ranges",
            id="nothing",
        ),
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


EARLY = "launched before the recording began"
LOST = "1 of them ran after work that has a launch: the recorder lost launches"
DEFAULT = "start recording before the work"
OTHER = {"device": 0, "stream": 9}


@pytest.mark.parametrize(
    ("loose", "reason"),
    [
        pytest.param([kernel(5, 2, 7)], EARLY, id="before all of its stream"),
        pytest.param([kernel(100, 2, 7)], LOST, id="between others"),
        pytest.param([kernel(5, 2, 7), kernel(100, 2, 8)], LOST, id="both"),
        pytest.param([kernel(5, 2, 7, OTHER)], DEFAULT, id="on a stream without any launch"),
        pytest.param([kernel(5, 2, 7), kernel(5, 2, 8, OTHER)], DEFAULT, id="some on such a one"),
    ],
)  # fmt: skip
def test_why_launches_are_missing_is_said_only_where_the_stream_shows_it(
    tmp_path: Path, loose: list[Any], reason: str
) -> None:
    events = [launched(10, 1, at=60, dur=5), launched(101, 2, at=120, dur=5), *loose]

    advice = load_events(tmp_path, *events).check().set_index("finding")["advice"]

    assert reason in advice["kernels without a launch in the recording"]


@pytest.mark.filterwarnings("error")
def test_a_count_that_fits_no_column_is_an_error_and_no_float() -> None:
    found = [Finding("info", "events", 1 << 63), Finding("info", "no count", None)]

    with pytest.raises(OverflowError):
        findings_table(found)


GPU: Final = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]}
CUPTI: Final = "delivered nothing"
WITHOUT: Final = "on a machine with a GPU"


@pytest.mark.parametrize(
    ("events", "around", "finding", "said", "not_said"),
    [
        pytest.param(
            [launch(1, 1), launch(3, 2, name="cudaMemcpyAsync")], {}, "calls gave the GPU work",
            CUPTI, WITHOUT, id="calls",
        ),
        pytest.param(
            [launch(1, 1, name="hipGraphLaunch")], GPU, "calls gave the GPU work", CUPTI, WITHOUT,
            id="calls and a list",
        ),
        pytest.param([], GPU, "a GPU is listed", CUPTI, WITHOUT, id="listed alone"),
        # Calls that give no work are no sign of work that was lost.
        pytest.param(
            [launch(1, 1, name="cudaDeviceSynchronize")], {}, "no GPU activity", WITHOUT, CUPTI,
            id="only waits",
        ),
        pytest.param([], {}, "no GPU activity", WITHOUT, CUPTI, id="no GPU"),
    ],
)  # fmt: skip
def test_work_that_was_not_delivered_is_not_called_a_lack_of_a_gpu(
    tmp_path: Path, events: list[Event], around: dict[str, Any], finding: str, said: str,
    not_said: str,
) -> None:  # fmt: skip
    found = load_events(tmp_path, op("aten::mm", 0, 9), *events, **around).check()
    (row,) = found[found["finding"].str.startswith(finding)].to_dict("records")
    assert said in row["advice"]
    assert not_said not in " ".join(found["advice"])
    delivered = [*events, kernel(50, 5, 1)] if events else [launch(1, 1), kernel(50, 5, 1)]
    run = load_events(tmp_path, op("aten::mm", 0, 9), *delivered, **around)
    assert not run.check()["finding"].str.startswith(finding).any()


@pytest.mark.parametrize(
    ("events", "finding", "advice"),
    [
        pytest.param(
            [annotation("a", 0, 9), annotation("b", 2, 3)], "2 ranges", "prof --by range",
            id="ranges",
        ),
        pytest.param([frame("a.py(3): f", 0, 9)], "1 calls of Python", "activities", id="frames"),
        pytest.param(
            [{"ph": "X", "cat": "toplevel", "name": "RunTask", "ts": at, "dur": 5, "pid": 1,
              "tid": 1} for at in (0, 9)],
            "2 events of an unknown kind: phase X, category toplevel", "torch.profiler",
            id="another tool",
        ),
        pytest.param(
            [{"ph": "X", "name": "mm", "ts": at, "dur": 5, "pid": "CPU functions", "tid": 0}
             for at in (0, 9)],
            "2 events of an unknown kind: phase X, category none", "before 2021", id="2020",
        ),
    ],
)  # fmt: skip
def test_a_file_without_work_says_what_it_holds(
    tmp_path: Path, events: list[Event], finding: str, advice: str
) -> None:
    found = check(load_events(tmp_path, *events))
    (row,) = found[found["finding"].str.contains("the file holds")].to_dict("records")
    assert finding in row["finding"]
    assert advice in row["advice"]
    assert not found["finding"].str.startswith("nothing was recorded").any()
    whole = check(load_events(tmp_path, *events, COMPLETE))
    assert not whole["finding"].str.contains("the file holds").any()


def test_of_ranges_alone_the_profile_is_their_time_on_the_host(tmp_path: Path) -> None:
    path = trace(
        tmp_path / "a.json", annotation("epoch", 0, 100), annotation("load", 10, 20),
        annotation("load", 40, 30), annotation("load", 10, 5, tid=7),
    )  # fmt: skip
    rows = [("epoch", 1, 100_000, 50_000), ("epoch / load", 2, 50_000, 50_000),
            ("load", 1, 5_000, 5_000)]  # fmt: skip
    main(["prof", str(path), "--by", "range", "--format", "json", "-o", str(tmp_path / "b")])
    found = json.loads((tmp_path / "b").read_text())
    assert [tuple(row.values()) for row in found] == rows
    ranges = load(path).table("ranges").select(INPUT)
    cut = range_times(ranges, 1)
    assert cut[["range", "host_ns", "host_self_ns"]].to_numpy().tolist() == [
        ["epoch", 100_000, 100_000], ["load", 5_000, 5_000],
    ]  # fmt: skip


def test_of_ranges_alone_nothing_else_is_selected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(tmp_path / "a.json", annotation("epoch", 0, 100))

    for words in (["--step", "3"], ["--direction", "backward"], ["--sort", "count"]):
        assert main(["prof", str(path), "--by", "range", *words]) == 0
        assert "epoch" not in capsys.readouterr().out


SCALAR: dict[str, Any] = {"dims": [[], []], "types": ["float", "Scalar"]}


def test_a_tensor_of_one_number_has_a_shape(tmp_path: Path) -> None:
    shaped = [op("aten::neg", 50, 9, **SCALAR), *launched(51, 2, at=110, dur=1)]
    bare = [op("aten::neg", 50, 9, dims=[[]], types=["Scalar"]), *launched(51, 2, at=110, dur=1)]
    name = "linked kernels whose op has no shapes"
    assert name not in lacks(tmp_path, COMPLETE, shaped)
    assert lacks(tmp_path, COMPLETE, bare)[name] == 1


FRAMES: Final = [frame("/lib/python3.12/site-packages/x/y.py(3): f", 0, 90)]
PARTS: Final[dict[str, list[Event]]] = {
    "shapes": [op("aten::mm", 1, 9, **MM), *launched(2, 1, at=100, dur=6)],
    "none": [op("aten::relu", 20, 9), *launched(21, 2, at=110, dur=6)],
    "frames": FRAMES, "steps": [step(6, 0, 90)], "lost": [kernel(120, 1, 9)],
    "calls": [launch(70, 7)], "ranges": [annotation("x", 60, 5)],
}  # fmt: skip
DONE: Final = {
    "shapes": "record_shapes", "frames": "with_stack", "calls": WITHOUT, "steps": "prof.step()",
}  # fmt: skip
"""What a recording holds, and the advice that would tell to record just that."""


def test_no_line_advises_what_was_done_whatever_a_recording_holds(tmp_path: Path) -> None:
    for number in range(1 << len(PARTS)):
        chosen = [name for at, name in enumerate(PARTS) if number >> at & 1]
        found = load_events(tmp_path, *(PARTS[name] for name in chosen)).check()
        said = " ".join(found["advice"])
        assert not [name for name in chosen if name in DONE and DONE[name] in said], chosen
        lines = dict(zip(found["finding"], found["advice"], strict=True))
        nothing = [line for line in lines if line.startswith(("nothing was", "neither ops"))]
        assert not nothing or not {"shapes", "none", "lost", "calls"} & set(chosen), chosen
        # What is said of the shapes of ops is one thing.
        shapes = {advice for line, advice in lines.items() if "no shapes" in line}
        assert len(shapes) <= 1, chosen


def test_work_launched_before_a_second_recording_of_a_worker_is_early_too(tmp_path: Path) -> None:
    """Both files of the worker begin with a kernel whose launch came before them."""
    for number in range(2):
        at = number * 1_000_000
        trace(
            tmp_path / f"host_5.{1000 + number}.pt.trace.json",
            kernel(at + 5, 2, 7), launched(at + 10, 1, at=at + 60, dur=5),
        )  # fmt: skip
    run = load(parse(tmp_path, tmp_path / "net.pyprof2"))

    assert run.table("kernels")["span"].to_pylist() == [0, 0, 1, 1]
    advice = run.check().set_index("finding")["advice"]
    assert EARLY in advice["kernels without a launch in the recording"]
