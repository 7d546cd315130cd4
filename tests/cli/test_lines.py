"""`pyprof2 lines` says what each line costs, on a recording whose times the eye can check."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2.analysis.summaries.line_profile import COLUMNS
from tests.kineto_events import frame, launched, op, step, trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MM = {"dims": [[100, 100], [100, 100]], "types": ["float", "float"]}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a step of two lines, one of which calls a module; one kernel has no op."""
    return trace(
        tmp_path_factory.mktemp("lines"),
        step(3, 0, 200),
        frame("/w/train.py(20): main", 0, 60), frame("nn.Module: Net_0", 5, 50),
        frame("/w/net.py(9): forward", 10, 40),
        op("aten::mm", 12, 20, **MM), launched(15, 1, at=20, dur=60),
        op("aten::relu", 35, 10), launched(37, 2, at=80, dur=20),
        frame("/w/train.py(30): main", 70, 50),
        op("aten::add", 80, 10), launched(81, 3, at=100, dur=15),
        launched(150, 4, at=160, dur=5),
    )  # fmt: skip


def test_the_table_is_a_tree(invoke: Callable[..., Any], recording: Path) -> None:
    result = invoke("lines", recording)

    assert result.code == 0
    assert result.lines[:2] == [
        "time of kernels and copies, by the line that launched them",
        "step 3 of 200.000 us; 100.000 us in all",
    ]
    assert result.lines[2].startswith("frames of torch.profiler: a line is where its function")
    # Line, module, share, median, calls, TFLOP/s of those that are known, Tensor Cores, idle time.
    assert result.lines[6:14] == [
        "/w/train.py       -         95.00     95.000      3    0.033     -          25.000",
        "  :20             Net_0     80.00     80.000      2    0.033     -          20.000",
        "    /w/net.py:9   Net_0     80.00     80.000      2    0.033     -          10.000",
        "      aten::mm    Net_0     60.00     60.000      1    0.033     -           8.000",
        "      aten::relu  Net_0     20.00     20.000      1        -     -               -",
        "  :30             -         15.00     15.000      1        -     -           5.000",
        "    aten::add     -         15.00     15.000      1        -     -               -",
        "(no op)           -          5.00      5.000      -        -     -          75.000",
    ]
    assert result.lines[-1].split() == ["the", "step", "100.00", "100.000"]


def test_lines_that_only_call_another_are_one_row(
    invoke: Callable[..., Any], recording: Path
) -> None:
    result = invoke("lines", recording, "--ledger", "host")

    labels = [row.split("  -  ")[0].split("  Net")[0].rstrip() for row in result.lines[6:12]]
    assert labels == [
        "(between ops)", "/w/train.py", "  :20 > /w/net.py:9", "    aten::mm", "    aten::relu",
        "  :30 aten::add",
    ]  # fmt: skip


def test_rows_that_are_not_shown_are_counted(invoke: Callable[..., Any], recording: Path) -> None:
    result = invoke("lines", recording, "--top", 2)

    assert result.lines[-1] == "6 more rows: --top 8"
    assert invoke("lines", recording, "--top", 7).lines[-1] == "1 more row: --top 8"
    assert len(invoke("lines", recording, "--top", 8).lines) == len(result.lines) + 6 - 1


def test_a_part_of_the_time_has_its_share_of_the_step(
    invoke: Callable[..., Any], recording: Path
) -> None:
    result = invoke("lines", recording, "--within", "Net_0")

    assert result.lines[0].endswith("; only Net_0")
    part, whole = (line.split() for line in result.lines[-2:])
    assert (part[4:6], whole[2:4]) == (["80.00", "80.000"], ["100.00", "100.000"])


def test_json_has_every_node_and_every_column(invoke: Callable[..., Any], recording: Path) -> None:
    rows = json.loads(invoke("lines", recording, "--format", "json").out)

    assert [list(row) for row in rows] == [[column.name for column in COLUMNS]] * len(rows)
    assert sum(row["own_ns"] for row in rows) == 100_000
    by_name = {row["name"]: row for row in rows}
    assert by_name["aten::mm"]["flops"] == 2 * 100**3
    assert by_name["aten::relu"]["flops"] is None
    parent = rows[by_name["aten::mm"]["parent_id"]]
    assert (parent["name"], parent["module"], parent["time_ns"]) == ("/w/net.py:9", "Net_0", 80_000)
    assert by_name["/w/train.py"]["parent_id"] is None


def test_files_have_what_json_has(
    invoke: Callable[..., Any], recording: Path, tmp_path: Path
) -> None:
    wanted = pd.DataFrame(json.loads(invoke("lines", recording, "--format", "json").out))

    csv = pd.read_csv(io.StringIO(invoke("lines", recording, "--format", "csv").out))
    invoke("lines", recording, "-o", tmp_path / "l.parquet")
    for found in (csv, pd.read_parquet(tmp_path / "l.parquet")):
        for name in ("name", "time_ns", "own_ns", "calls", "kind"):
            assert found[name].tolist() == wanted[name].tolist()


def test_markdown_marks_the_depth(invoke: Callable[..., Any], recording: Path) -> None:
    result = invoke("lines", recording, "--format", "markdown")

    assert any(line.startswith("| · · · aten::mm ") for line in result.lines)


def test_a_recording_without_steps_says_so(invoke: Callable[..., Any], tmp_path: Path) -> None:
    result = invoke("lines", trace(tmp_path, op("aten::mm", 0, 5), op("aten::add", 10, 5)))

    assert result.lines[:2] == [
        "time of the step's thread, by the line that it ran",
        "no steps were recorded: the whole recording is one",
    ]
    assert "few lines were recorded" in result.lines[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--step", 9], "no such step"),
        (["--within", "Nett"], "nearest: Net_0"),
        (["--rank", 4], "rank 4: no such rank"),
    ],
)
def test_what_is_not_there_is_wrong_usage(
    invoke: Callable[..., Any], recording: Path, options: list[Any], words: str
) -> None:
    result = invoke("lines", recording, *options)

    assert result.code == 2
    assert words in result.err


def test_work_without_flops_has_no_rate(tmp_path: Path, invoke: Callable[..., Any]) -> None:
    floats = {"dims": [[100, 100], [100, 100]], "types": ["float", "float"]}
    path = trace(
        tmp_path,
        step(3, 0, 200), frame("/w/train.py(20): main", 0, 60),
        op("aten::mm", 12, 20, **MM), launched(15, 1, at=20, dur=60),
        op("aten::copy_", 35, 10, **floats), launched(37, 2, at=80, dur=20),
    )  # fmt: skip

    lines = invoke("lines", path, "-w", "200").lines
    header = next(line for line in lines if "TFLOP/s" in line)
    end = header.index("TFLOP/s") + len("TFLOP/s")
    rates = {
        name: line[:end].split()[-1] for line in lines for name in ("mm", "copy_") if name in line
    }

    assert rates["mm"] == "0.033"
    assert rates["copy_"] == "-"
