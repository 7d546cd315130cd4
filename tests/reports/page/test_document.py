"""What stands on the page is what the other commands say of the same recording."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

import pyprof2.api.run
from pyprof2.analysis.time.cause_names import CAUSES
from pyprof2.api import run_profile, run_time
from pyprof2.api.comparison import compare
from pyprof2.cli import main
from pyprof2.reports.heading import figures
from pyprof2.reports.page import document as documents
from pyprof2.reports.page import html
from tests.kineto_events import (
    complete,
    copy,
    frame,
    kernel,
    launch,
    launched,
    op,
    step,
    trace,
)
from tests.reports.page.reader import data_of, document_of, profile, rows_of
from tests.synthetic_trace import synthetic_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

DEMO: Final = html.DATA / "demo.json.gz"
TRACES: Final = ("rn50_v100_w0", "tl_owlv2_h100", "tl_qwen_mi300", "hta_diff_control_a100")


def page_of(path: Path, folder: Path, *options: object) -> dict[str, Any]:
    file = folder / "page.html"
    assert main(["report", str(path), "-o", str(file), "--force", *map(str, options)]) == 0
    return document_of(file)


@pytest.fixture(scope="module", params=TRACES)
def page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, dict[str, Any]]:
    """Return a real recording as a run, and the data of its page."""
    path = request.getfixturevalue("shared") / "traces" / "kineto" / f"{request.param}.json.gz"
    if not path.exists():
        pytest.skip(f"no real trace {path}")
    run = pyprof2.api.run.load(path)
    return run, page_of(run.path, tmp_path_factory.mktemp("page"))


def known(value: Any) -> Any:
    return None if pd.isna(value) else value


@pytest.mark.parametrize(
    "axis", ["cause", "group", "source", "op", "layer", "call", "step", "note"]
)
def test_idle_time_is_that_of_idle(page: tuple[Run, dict[str, Any]], axis: str) -> None:
    run, document = page
    sums: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows_of(document["idle"]):
        sums[row[axis]][0] += row["time_ns"]
        sums[row[axis]][1] += row["count"]

    wanted = run.idle_profile(by=axis)

    assert sums == {
        known(key): [time, count]
        for key, time, count in zip(
            wanted[axis], wanted["time_ns"], wanted["count"], strict=True
        )
    }  # fmt: skip


def test_what_was_recorded_is_idle_and_busy(page: tuple[Run, dict[str, Any]]) -> None:
    run, document = page
    idle = sum(row["time_ns"] for row in rows_of(document["idle"]))

    recorded = document["recorded"]
    assert sum(row["window_ns"] for row in recorded) == idle + run.summary["busy_ns"]
    assert [row["window_ns"] for row in recorded] == run_time.idle_windows(run.tables)[
        "window_ns"
    ].tolist()


def test_parts_of_a_step_add_up_to_its_window(page: tuple[Run, dict[str, Any]]) -> None:
    run, document = page
    sums: dict[Any, int] = defaultdict(int)
    for row in rows_of(document["parts"]):
        sums[row["rank"], row["device"], row["start_ns"]] += row["time_ns"]
    steps = rows_of(document["steps"])

    assert sums == {(r["rank"], r["device"], r["start_ns"]): r["window_ns"] for r in steps}
    assert [r["window_ns"] for r in steps] == run.steps["dur_ns"].tolist()
    busy = run.steps["dur_ns"] - run.steps["idle_ns"]
    assert [r["busy_ns"] for r in steps] == busy.tolist()
    causes = {row["part"].removeprefix("idle:") for row in rows_of(document["parts"])}
    busy_parts = {"compute_matrix", "compute_other", "comm_exposed", "comm_copy", "copies"}
    assert causes - busy_parts <= {cause.name for cause in CAUSES}


def test_findings_are_those_of_advise(page: tuple[Run, dict[str, Any]]) -> None:
    run, document = page
    wanted = run.advise()
    wanted = wanted[wanted["status"] != "silent"]

    names = {"rule": "rule", "status": "status", "severity": "severity", "finding": "finding",
             "at_stake_lo_ns": "lo_ns", "at_stake_hi_ns": "hi_ns", "expected_ns": "expected_ns",
             "limit": "limit", "evidence": "evidence", "source": "source", "remedy": "remedy",
             "needs": "needs"}  # fmt: skip
    # One rank: none is put together with another's.
    assert [each["ranks"] for each in document["findings"]] == [
        [each["rank"]] for each in document["findings"]
    ]
    assert [{n: each[n] for n in names.values()} for each in document["findings"]] == [
        {to: known(row[name]) for name, to in names.items()} for row in wanted.to_dict("records")
    ]
    assert document["bounds"] == run.gain_bounds.to_dict("records")


def test_dots_are_the_signatures_of_prof(page: tuple[Run, dict[str, Any]]) -> None:
    run, document = page
    wanted = run.profile(by=["rank", "signature"])
    wanted = wanted[wanted["signature"] != "(none)"].set_index(["rank", "signature"])
    dots = rows_of(document["roofline"]["signatures"])

    assert [(r["rank"], r["signature"]) for r in dots] == wanted.index.tolist()
    for name in ("time_ns", "flops", "bytes", "tflops", "gbps", "intensity", "roofline_pct"):
        assert [r[name] for r in dots] == [known(v) for v in wanted[name].tolist()], name
    assert all(row["explain"] for row in dots)


def test_the_text_of_a_dot_is_that_of_explain(
    page: tuple[Run, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, document = page
    monkeypatch.setenv("COLUMNS", "100")
    dots = rows_of(document["roofline"]["signatures"])
    for dot in (dots[0], dots[min(17, len(dots) - 1)]):
        assert main(["explain", str(run.path), f"kernel:{dot['kernel_id']}"]) == 0
        assert capsys.readouterr().out == dot["explain"] + "\n"
        own = run.kernels[run.kernels["signature"] == dot["signature"]]
        bound = own[own["bound"].notna()]
        assert dot["kernel_id"] in set((bound if len(bound) else own)["kernel_id"]) or own.empty


def test_time_lines_hold_all_that_runs_in_their_window(page: tuple[Run, dict[str, Any]]) -> None:
    run, document = page
    zero = {row["rank"]: int(row["first_ns"]) for row in document["meta"]["first_ns"]}
    rows = run_profile.rows_of(run.tables, ["rank", "device", "start_ns", "dur_ns"])
    drawn = 0
    for line in document["timeline"]:
        begin, end = line["start_ns"], line["end_ns"]
        own = rows[(rows["rank"] == line["rank"]) & (rows["device"] == line["device"])]
        start = own["start_ns"] - zero[line["rank"]]
        own = own[(start < end) & (start + own["dur_ns"] > begin)]
        start = start[own.index]
        inside = (start + own["dur_ns"]).clip(upper=end) - start.clip(lower=begin)
        streams = [t["boxes"] for t in line["tracks"] if t["kind"] == "stream"]
        assert sum(sum(each["busy_ns"]) for each in streams) == inside.sum()
        assert sum(sum(each["count"]) for each in streams) == len(own)
        drawn += sum(len(t["boxes"]["start_ns"]) for t in line["tracks"])
        idle = [t["boxes"] for t in line["tracks"] if t["kind"] == "idle"]
        steps = rows_of(document["steps"])
        busy = [r["busy_ns"] for r in steps if r["start_ns"] == begin and r["rank"] == line["rank"]]
        whole = [r["span_ns"] - r["span_idle_ns"] for r in document["recorded"]]
        known = whole if line["why"] == "recording" else busy
        assert [sum(sum(each["busy_ns"]) for each in idle)] == [end - begin - known[0]]
    assert 0 < drawn <= 33_000
    assert {"slowest", "only"} & {line["why"] for line in document["timeline"]}


def test_quality_is_that_of_the_heading_and_of_check(page: tuple[Run, dict[str, Any]]) -> None:
    run, document = page
    quality = document["quality"]

    assert quality["linked_pct"] == run.summary["linked_pct"]
    check = run.check()
    wanted = check[check["severity"] != "info"]["finding"].tolist()
    assert [each["finding"] for each in quality["problems"]] == wanted
    assert quality["polluted"] == any("polluted" in each for each in wanted)


def test_the_lines_above_are_those_of_prof(
    page: tuple[Run, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, document = page
    monkeypatch.setenv("COLUMNS", str(1 << 16))
    assert main(["prof", str(run.path), "--summary"]) == 0

    lines = document["heading"]["lines"]
    assert capsys.readouterr().out.splitlines()[: len(lines)] == lines
    tiles = {each["name"]: each for each in document["heading"]["figures"]}
    own = {each.name: each.value for each in figures(run)}
    # Copies are work too, so kernels alone are in the note.
    kernels = own.pop("GPU utilization", None)
    assert {name: tiles[name]["value"] for name in own} == own
    assert kernels is None or f"kernels alone: {kernels}" in tiles["GPU busy"]["note"]
    mfu = [
        part.removeprefix("MFU ") for line in lines for part in line.split(" | ") if "MFU" in part
    ]
    assert [tiles["MFU"]["value"]] == (mfu or [None])
    peaks = [each["peak"]["allocated"] for each in document["memory"] or []]
    parts = tiles["memory peak"]["parts"] or []
    assert sum(part["bytes"] for part in parts) == max(peaks, default=0)
    assert (tiles["memory peak"]["value"] is None) == (not peaks)


def test_the_sentence_says_how_long_a_step_takes_and_why(
    shared_trace: Callable[[str], Path], tmp_path: Path
) -> None:
    document = page_of(shared_trace("kineto/rn50_v100_w0.json.gz"), tmp_path)

    # 1,065,553,000 ns of six windows; of these 462,100,000 less 105,000, and 352,401,000.
    assert document["heading"]["sentence"] == (
        "177.592 ms per step: 43 % idle (33 % data loading, resnet50_profiler_api.py:42), "
        "busy most with conv (66 % of the GPU work)"
    )


STEPS: Final = [
    [step(n, 1000 * n, 900), op("aten::mm", 1000 * n + 10, 20, dims=[[4, 8], [8, n]],
                                types=["float", "float"]),
     *launched(1000 * n + 12, n + 1, at=1000 * n + 20, dur=100 + n)]
    for n in range(6)
]  # fmt: skip


def test_a_comparison_is_that_of_compare(tmp_path: Path) -> None:
    slower = [[*events[:-1], events[-1] | {"dur": 2 * events[-1]["dur"]}] for events in STEPS]
    a, b = (
        trace(tmp_path / name, *events, deviceProperties=[{"id": 0, "name": "NVIDIA V100"}])
        for name, events in (("a.json", STEPS), ("b.json", slower))
    )
    found = page_of(b, tmp_path, "--against", a)["comparison"]
    wanted = compare(a, b)

    terms = {row["term"]: row["delta_ns"] for row in rows_of(found["terms"])}
    every = {
        row["term"].replace("_", " "): float(row["delta_ns"])
        for row in wanted.terms.to_dict("records")
        if row["delta_ns"]
    }
    assert terms == pytest.approx(every, abs=1)
    assert sum(terms.values()) == round(found["b_step_ns"] - found["a_step_ns"])
    # Kernels of 101 … 105 us take twice as long.
    assert sum(v for n, v in terms.items() if not n.startswith("idle")) == 103_000
    assert (found["a"], found["b"], found["steps"]) == (str(a), str(b), [5, 5])
    # 900 us of each of the five steps compared, and nobody's layers are known.
    assert [each["windows"] for each in found["parts"]] == [5, 5]
    for each, ns in zip(found["parts"], (found["a_step_ns"], found["b_step_ns"]), strict=True):
        assert sum(part["time_ns"] for part in each["sums"]) == pytest.approx(5 * ns)
    assert set(found["by"]) == {"op", "signature"}
    for parts in found["by"].values():
        assert sum(row["delta_ns"] for row in rows_of(parts)) == pytest.approx(103_000)


def test_a_comparison_is_by_module_with_both_steps(tmp_path: Path) -> None:
    a, b = (
        trace(tmp_path / f"{name}.json", *(
            [step(n, 1000 * n, 900), *in_module("First_0", n, 0, 40), *in_module("Net_0", n, 1, us)]
            for n in range(6)
        ))
        for name, us in (("a", 100), ("b", 160))
    )  # fmt: skip

    found = page_of(b, tmp_path, "--against", a)["comparison"]

    # One of two modules takes 60 us more in each of the steps, and only that is named.
    parts = [(r["layer"], r["term"], r["delta_ns"]) for r in rows_of(found["by"]["layer"])]
    of_kernels = [row for row in parts if not row[1].startswith("idle")]
    assert of_kernels == [("Net_0", "kernel speed", 60_000)]
    assert [each["windows"] for each in found["parts"]] == [5, 5]
    bars = [
        {part["label"]: part["time_ns"] / each["windows"] for part in each["sums"]}
        for each in found["parts"]
    ]
    # Each step as a bar of what the device did, as long as the step.
    assert [bar["computing without matrix units"] for bar in bars] == [140_000, 200_000]
    assert [sum(bar.values()) for bar in bars] == [found["a_step_ns"], found["b_step_ns"]]


def in_module(name: str, number: int, place: int, us: int) -> list[Any]:
    """Return the only op of a module in a step, and its kernel."""
    at = 1000 * number + 50 + 300 * place
    return [
        frame(f"nn.Module: {name}", at, 90),
        op("aten::mm", at + 1, 20, dims=[[4, 8], [8, 4]], types=["float", "float"]),
        *launched(at + 2, 10 * number + place + 1, at=at + 5, dur=us),
    ]


def calls(number: int, *lines: int) -> list[Any]:
    """Return a step with a call of one op from each of these lines, of as many us."""
    at, events = 1000 * number, [step(number, 1000 * number, 900)]
    for place, line in enumerate(lines):
        start, correlation = at + 50 + 100 * place, 10 * number + place + 1
        events += [
            frame(f"train.py({line}): f", start, 90),
            op("aten::mm", start + 1, 20, dims=[[4, 8]], types=["float"]),
            *launched(start + 2, correlation, at=start + 5, dur=line),
        ]
    return events


def test_lines_make_no_groups_of_calls_that_compare_would_not_make(tmp_path: Path) -> None:
    a = trace(tmp_path / "a.json", *(calls(n, 10, 10, 40) for n in range(5)))
    b = trace(tmp_path / "b.json", *(calls(n, 10, 40, 40) for n in range(5)))

    found = page_of(b, tmp_path, "--against", a)["comparison"]

    terms = {row["term"]: row["delta_ns"] for row in rows_of(found["terms"])}
    wanted = {
        row["term"].replace("_", " "): float(row["delta_ns"])
        for row in compare(a, b).terms.to_dict("records")
    }
    assert terms == {term: delta for term, delta in wanted.items() if delta}
    # As many calls as before, of the same shapes and kernels, take 30 us more; by line they were
    # fewer of one and more of the other.
    assert terms["kernel speed"] == 30_000


def test_runs_that_are_not_comparable_are_compared_with_the_reason(tmp_path: Path) -> None:
    a, b = (
        trace(tmp_path / f"{name}.json", *STEPS, deviceProperties=[{"id": 0, "name": name}])
        for name in ("NVIDIA V100", "NVIDIA H100")
    )

    found = page_of(b, tmp_path, "--against", a)["comparison"]

    assert found["comparable"] == ["devices are NVIDIA V100 and NVIDIA H100"]


def test_a_recording_without_a_gpu_has_ops_and_no_idle_time(tmp_path: Path) -> None:
    document = page_of(DEMO, tmp_path)
    run = pyprof2.api.run.load(DEMO)

    found = profile(document, lambda row: row["op"])

    wanted = run.profile(by="op").set_index("op")
    assert set(found) == set(wanted.index)
    for name, row in found.items():
        assert row["time_ns"] == wanted.loc[name, "time_ns"]
        assert row["op_calls"] == wanted.loc[name, "op_calls"]
        assert row["tflops"] == pytest.approx(known(wanted.loc[name, "tflops"]))
        assert row["roofline_pct"] == pytest.approx(known(wanted.loc[name, "roofline_pct"]))
    assert document["idle"]["rows"] == 0
    assert document["meta"]["has_gpu"] is False
    assert document["steps"]["columns"]["busy_ns"] == [None, None]
    assert document["quality"]["disturbed"] == ["Python stacks were recorded"]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="nothing"),
        pytest.param([step(1, 0, 100)], id="a step"),
        pytest.param([complete("user_annotation", "x", 0, 5)], id="a range"),
        pytest.param([launch(1, 1)], id="a launch"),
    ],
)
def test_a_page_of_nothing_says_so(events: list[Any], tmp_path: Path) -> None:
    document = page_of(trace(tmp_path, *events), tmp_path)

    assert document["meta"]["notes"][0] == "there is nothing to profile in the recording"
    assert "nothing was recorded" in document["heading"]["sentence"]
    assert document["cube"]["rows"] == 0


def test_ranks_have_their_own_steps_and_rows(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(3):
        own = synthetic_trace(3)
        own["distributedInfo"]["rank"] = rank
        (folder / f"rank{rank}.json").write_text(json.dumps(own))

    document = page_of(folder, tmp_path)

    assert document["meta"]["ranks"] == [0, 1, 2]
    steps = rows_of(document["steps"])
    assert sorted({(row["rank"], row["step"]) for row in steps}) == [
        (rank, number) for rank in range(3) for number in range(3)
    ]
    run = pyprof2.api.run.load(folder)
    found = profile(document, lambda row: row["rank"], lambda row: row["direction"] == "backward")
    wanted = run.profile(by="rank", direction=["backward"]).set_index("rank")
    assert {rank: row["time_ns"] for rank, row in found.items()} == wanted["time_ns"].to_dict()


def test_sources_are_those_of_the_named_folder(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("a\nb\n")
    (tmp_path / "other.py").write_text("secret")
    path = trace(
        tmp_path, frame(f"{code}/train.py(2): f", 0, 90),
        frame(f"{tmp_path}/other.py(1): g", 1, 80), op("aten::mm", 10, 20),
        *launched(12, 1, at=20, dur=5),
    )  # fmt: skip

    named = page_of(path, tmp_path, "--source-root", code)
    none = page_of(path, tmp_path, "--source-root", code, "--no-source")
    unnamed = page_of(path, tmp_path)

    assert named["sources"] == [{"path": f"{code}/train.py", "lines": ["a", "b", ""]}]
    assert (none["sources"], unnamed["sources"]) == ([], [])
    assert {row["source"] for row in rows_of(named["cube"])} == {f"{code}/train.py:2"}
    assert named["cube"]["columns"]["source"]["shown"] == ["train.py:2"]
    assert any("--source-root" in note for note in unnamed["meta"]["notes"])


def test_a_page_that_is_too_large_is_folded_with_exact_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [
        [op(f"my::op{n}", 100 * n, 50, dims=[[n, 2]], types=["float"]),
         *launched(100 * n + 1, n + 1, at=100 * n + 5, dur=10 + n, name=f"k{n * n}_{n}")]
        for n in range(1100)
    ]  # fmt: skip
    path = trace(tmp_path, *events)
    whole = page_of(path, tmp_path)
    size = len(data_of(tmp_path / "page.html"))
    monkeypatch.setattr(documents, "LARGEST", 3 * size // 4)

    small = page_of(path, tmp_path)

    assert len(data_of(tmp_path / "page.html")) <= 3 * size // 4
    assert small["cube"]["rows"] < whole["cube"]["rows"] == 1100
    assert any("smallest groups" in note for note in small["meta"]["notes"])
    for name in ("time_ns", "count"):
        sums = {sum(each["cube"]["columns"][name]) for each in (whole, small)}
        assert len(sums) == 1
    both = [profile(each, lambda row: row["category"])["other"] for each in (whole, small)]
    assert both[0] == pytest.approx(both[1])


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        pytest.param("aten::relu", 8, id="counts"),
        # A copy does no FLOPs, but that does not say what the kernel beside it does.
        pytest.param("my::op", None, id="no counts"),
    ],
)
def test_copies_beside_kernels_keep_the_rates_of_prof(
    name: str, flops: int | None, tmp_path: Path
) -> None:
    path = trace(
        tmp_path,
        op(name, 0, 40, dims=[[8]], types=["float"]),
        launch(1, 1), kernel(5, 10, 1, name="elementwise"),
        launch(20, 2, name="cudaMemcpyAsync"),
        copy(25, 8, 2, name="Memcpy HtoD (Pageable -> Device)", bytes=64),
    )  # fmt: skip
    document, run = page_of(path, tmp_path), pyprof2.api.run.load(path)

    for axis, key in (("op", "op"), ("category", "category"), ("name", "kernel")):
        found = profile(document, lambda row, key=key: row[key])  # type: ignore[misc]
        wanted = run.profile(by=axis).set_index(key)
        for one, row in found.items():
            for column in ("flops", "bytes", "tflops", "gbps", "intensity"):
                assert row[column] == pytest.approx(known(wanted.loc[one, column])), column
    assert profile(document, lambda row: row["op"])[name]["flops"] == flops
