"""The tree of lines, on recordings whose times the eye can add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2.errors import UsageError
from tests.kineto_events import Event, frame, launched, load_events, node, op, step

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

TRAIN, NET = "/w/train.py", "/w/net.py"


def forward(at: int, layer: str, *, dur: int = 10) -> list[Event]:
    """Return a call of a module at `at` whose line 9 runs an op of 10 us."""
    return [
        frame(f"nn.Module: {layer}", at, dur + 2),
        frame(f"{NET}(9): forward", at + 1, dur + 1),
        op("aten::relu", at + 1, dur),
    ]


def a_step(number: int, at: int, slow: int = 10) -> list[Event]:
    """Return a step of 100 us: line 20 calls a module three times, line 30 runs an op itself."""
    return [
        step(number, at, 100),
        frame(f"{TRAIN}(20): main", at + 1, 60),
        *forward(at + 2, "Block_0"),
        *forward(at + 20, "Block_1"),
        *forward(at + 40, "Block_2"),
        frame(f"{TRAIN}(30): main", at + 70, 20),
        op("aten::mm", at + 72, slow),
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three steps; in the last one line 30 takes 15 us instead of 10."""
    return load_events(
        tmp_path_factory.mktemp("run"), a_step(1, 0), a_step(2, 100), a_step(3, 200, slow=15)
    )


def shown(table: pd.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Return the nodes, indented, each with these columns."""
    labels = [f"{'  ' * (d - 1)}{n}" for d, n in zip(table["depth"], table["name"], strict=True)]
    columns = [[None if pd.isna(v) else v for v in table[name].tolist()] for name in names]
    return list(zip(labels, *columns, strict=True))


def by_name(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the rows by the name of the node; of several of a name the last."""
    rows = table.to_dict("records")
    return {row["name"]: {str(name): value for name, value in row.items()} for row in rows}


def test_the_tree_is_file_then_lines_that_call_then_op(run: Run) -> None:
    table = run.lines(step=1)

    assert shown(table, "module", "time_ns", "own_ns", "calls") == [
        ("(between ops)", None, 60_000, 60_000, 0),
        ("/w/train.py", None, 40_000, 0, 4),
        ("  /w/train.py:20", "Block_*", 30_000, 0, 3),
        ("    /w/net.py:9", "Block_*", 30_000, 0, 3),
        ("      aten::relu", "Block_*", 30_000, 30_000, 3),
        ("  /w/train.py:30", None, 10_000, 0, 1),
        ("    aten::mm", None, 10_000, 10_000, 1),
    ]


def test_own_times_add_up_to_the_step_at_any_depth(run: Run) -> None:
    for depth in (1, 2, 3, 4):
        table = run.lines(step=2, depth=depth)
        assert table["own_ns"].sum() == 100_000
        assert table["depth"].max() <= depth
    assert shown(run.lines(step=1, depth=1), "own_ns") == [
        ("(between ops)", 60_000), ("/w/train.py", 40_000),
    ]  # fmt: skip


def test_a_line_in_a_loop_of_three_is_called_three_times(run: Run) -> None:
    assert by_name(run.lines(step=1))["/w/net.py:9"]["calls"] == 3


def test_times_of_several_steps_have_a_median_a_least_and_a_most(run: Run) -> None:
    found = by_name(run.lines())["/w/train.py:30"]

    assert [found[name] for name in ("time_ns", "median_ns", "min_ns", "max_ns")] == [
        35_000, 10_000, 10_000, 15_000,
    ]  # fmt: skip
    assert found["share_pct"] == pytest.approx(100 * 35 / 300)


@pytest.mark.parametrize(("path", "calls"), [("Block_1", 1), ("Block_*", 3), ("*", 3)])
def test_a_line_answers_for_one_module_and_over_all(run: Run, path: str, calls: int) -> None:
    rows = by_name(run.lines(step=1, within=path))

    found = rows["/w/net.py:9"]
    assert (found["calls"], found["time_ns"]) == (calls, calls * 10_000)
    assert (found["overall_calls"], found["overall_ns"]) == (3, 30_000)
    assert {"/w/train.py:30", "(between ops)"}.isdisjoint(rows)


def test_recursion_counts_once_over_all(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        frame("/w/a.py(3): f", 0, 100), frame("/w/a.py(3): f", 10, 80),
        frame("/w/a.py(3): f", 20, 60), op("aten::mm", 30, 40),
    )  # fmt: skip

    lines = run.lines()
    lines = lines[lines["kind"] == "line"]
    assert lines["name"].tolist() == ["/w/a.py:3"] * 3
    assert lines["overall_ns"].tolist() == [40_000] * 3
    assert lines["overall_calls"].tolist() == [1] * 3


def test_backward_stands_at_the_call_of_its_forward_op(tmp_path: Path) -> None:
    engine = "autograd::engine::evaluate_function: MmBackward0"
    run = load_events(
        tmp_path,
        step(0, 0, 100), frame(f"{TRAIN}(5): main", 0, 40),
        op("aten::matmul", 10, 20), op("aten::mm", 12, 15, seq=7), launched(13, 1, at=20, dur=8),
        node(engine, 50, 30, seq=7, fwd=1), node("MmBackward0", 52, 26, seq=7, fwd=1),
        op("aten::mm", 55, 20, tid=102), launched(56, 2, at=60, dur=21, tid=102),
    )  # fmt: skip

    table = run.lines()
    assert shown(table, "forward_ns", "backward_ns", "calls") == [
        ("/w/train.py", 8_000, 21_000, 1),
        ("  /w/train.py:5", 8_000, 21_000, 1),
        ("    aten::matmul", 8_000, 21_000, 1),
        ("(no op)", 0, 0, 0),
    ]
    assert run.lines(phase="backward")["own_ns"].sum() == 21_000
    host = run.lines(ledger="host")
    # On the host the engine's thread is a tree of its own: 30 us, all of it of that call.
    assert shown(host[host["name"] == "aten::matmul"], "forward_ns", "backward_ns") == [
        ("    aten::matmul", 20_000, 0),
        ("      aten::matmul", 0, 30_000),
    ]  # fmt: skip
    assert host[host["kind"] == "thread"]["name"].tolist() == ["thread 102"]


def test_what_has_no_line_is_a_remainder(tmp_path: Path) -> None:
    library = "site-packages/lib/x.py(8): f"
    run = load_events(
        tmp_path,
        op("aten::add", 0, 5), launched(1, 1, at=5, dur=3),
        frame(library, 10, 10), op("aten::mul", 12, 5), launched(13, 2, at=20, dur=4),
        launched(25, 3, at=30, dur=5),
    )  # fmt: skip

    rows = by_name(run.lines(ledger="device", depth=1))
    assert {name: row["time_ns"] for name, row in rows.items()} == {
        "(no op)": 5_000,
        "(library code)": 4_000,
        "(no source)": 3_000,
    }


def test_idle_time_is_that_of_the_line_that_the_host_ran(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        step(0, 0, 2000),
        frame(f"{TRAIN}(5): main", 0, 100), op("aten::mm", 0, 20), launched(2, 1, at=10, dur=100),
        frame(f"{TRAIN}(6): main", 110, 1800), op("aten::add", 120, 1500),
        launched(1600, 2, at=1610, dur=10),
    )  # fmt: skip

    assert by_name(run.lines())["/w/train.py:6"]["idle_caused_ns"] >= 1_490_000
    roots = run.lines(depth=1)
    assert roots["idle_caused_ns"].sum() == run.idle[run.idle["step"] == 0]["time_ns"].sum()


def test_a_first_step_that_is_an_outlier_is_left_out(tmp_path: Path) -> None:
    long = [step(0, 0, 9000), op("aten::mm", 10, 8000)]
    later = [event for n in range(1, 6) for event in a_step(n, 9000 + 100 * n)]
    run = load_events(tmp_path, long, later)

    assert run.lines()["own_ns"].sum() == 5 * 100_000
    assert run.lines(step=0)["own_ns"].sum() == 9_000_000
    assert run.lines(step=(0, 5))["own_ns"].sum() == 9_500_000


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"rank": 3}, "rank 3: no such rank; there is 0"),
        ({"step": 9}, "--step 9: no such step; there are 1 to 3"),
        ({"ledger": "device"}, "no work of a device was recorded"),
        ({"ledger": "both"}, "no ledger 'both'"),
        ({"within": "Blok_1"}, "no module has this path; nearest: Block_1"),
    ],
)
def test_what_is_not_there_is_a_usage_error(run: Run, query: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run.lines(**query)
