"""Lines of a training that is recorded here and now, against a reader that takes its time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2.api.run import Run, load

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("torch", reason="it records a training")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = Path(__file__).with_name("train_lines.py")
STEP = 2
"""One in the middle, in which all has been run before."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the training, as `pyprof2 capture` records it."""
    path = tmp_path_factory.mktemp("lines") / "train.json.gz"
    subprocess.run(
        [sys.executable, "-m", "pyprof2", "-q", "capture", "--kineto", "-o", path, SCRIPT],
        check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return load(path)


def line(words: str) -> str:
    """Return `path:line` of the line of the script that has a comment of these words."""
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    (number,) = [at for at, text in enumerate(lines, 1) if text.endswith(f"# {words}")]
    return f"{SCRIPT}:{number}"


def paths(table: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the names of the nodes from the root to each node, and its row."""
    found: dict[int, tuple[str, ...]] = {-1: ()}
    for row in table.to_dict("records"):
        parent = -1 if pd.isna(row["parent_id"]) else row["parent_id"]
        found[row["node_id"]] = (*found[parent], row["name"])
        yield found[row["node_id"]], {str(name): value for name, value in row.items()}


def by_name(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the rows by the name of the node; of several of a name the last."""
    return {path[-1]: row for path, row in paths(table)}


def test_the_host_adds_up_to_each_step_to_the_ns(run: Run) -> None:
    lengths = run.steps.set_index("step")["host_dur_ns"]

    assert len(lengths) >= 3
    for step, length in lengths.items():
        table = run.lines(step=int(str(step)), ledger="host")
        main = table[~table["share_pct"].isna()]
        assert main["own_ns"].sum() == length


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_the_slow_line_is_found_in_forward_and_in_backward(run: Run, phase: str) -> None:
    table = run.lines(step=STEP, phase=phase)

    # Of the lines that run ops themselves the one with the most time.
    ops = table[(table["kind"] == "op") & ~table["share_pct"].isna()]
    slowest = ops.sort_values("time_ns").to_dict("records")[-1]
    assert table["name"].tolist()[slowest["parent_id"]] == line("slow product")
    assert slowest["name"] == "aten::matmul"
    assert slowest["time_ns"] > 0.5 * ops["own_ns"].sum()


def test_a_busy_loop_of_python_is_between_ops(run: Run) -> None:
    assert by_name(run.lines(step=STEP))["(between ops)"]["own_ns"] >= 30_000_000


def test_calls_are_told_by_the_line_and_by_the_module_that_is_entered(run: Run) -> None:
    found = dict(paths(run.lines(step=STEP)))
    inside = (line("call of the model"), line("call of parts"), line("loop of three"))

    loop = found[(str(SCRIPT), *inside)]
    assert (loop["calls"], loop["recompute_calls"], loop["module"]) == (6, 0, "parts.*")
    assert found[(str(SCRIPT), *inside[:2])]["module"] == "parts.*"
    once = by_name(run.lines(step=STEP, within="parts.1"))[line("loop of three")]
    # Six in the parts, and three in what is run again, whose first run is forward as well.
    assert (once["calls"], once["overall_calls"]) == (3, 9)


def test_what_checkpointing_runs_again_is_told_apart(run: Run) -> None:
    table = run.lines(step=STEP)
    again = table[table["name"] == line("loop of three")]

    assert again["recompute_calls"].sum() == 3
    assert again["recompute_ns"].sum() > 0
    forward = run.lines(step=STEP, within="again", phase="forward")
    assert by_name(forward)[line("loop of three")]["calls"] == 3


def test_the_line_of_the_optimizer_has_its_time(run: Run) -> None:
    found = by_name(run.lines(step=STEP))[line("optimizer")]

    assert found["optimizer_ns"] == found["time_ns"] > 0


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows, with None for null."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _slow_tree(run: Run, step: int) -> Counter[tuple[str, ...]]:
    """Return the time of each path on the step's thread, one op after another."""
    ops = _records(run.ops)
    callers = {row["stack_id"]: (row["caller_id"], row["line"]) for row in _records(run.stacks)}
    (window,) = run.steps[run.steps["step"] == step].to_dict("records")
    (begun,) = run.ranges[(run.ranges["kind"] == "step") & (run.ranges["name"] == f"step#{step}")][
        "tid"
    ]
    begin, end = window["host_start_ns"], window["host_start_ns"] + window["host_dur_ns"]
    times: Counter[tuple[str, ...]] = Counter()
    for op in ops:
        if op["tid"] != begun or not begin <= op["start_ns"] < end:
            continue
        assert op["start_ns"] + op["dur_ns"] <= end
        inside = [each for each in ops if each["parent_op_id"] == op["op_id"]]
        own = op["dur_ns"] - sum(each["dur_ns"] for each in inside)
        times[_slow_path(op, ops, callers)] += own
        times[("(between ops)",)] -= own
    times[("(between ops)",)] += end - begin
    return Counter({path: time for path, time in times.items() if time})


def _slow_path(
    op: dict[str, Any], ops: list[dict[str, Any]], callers: dict[int, tuple[int | None, str]]
) -> tuple[str, ...]:
    lines = []
    stack = op["stack_id"]
    while stack is not None:
        stack, text = callers[stack]
        lines.append(text)
    call = _slow_call(op, ops)
    forward = op["forward_op_id"] if op["forward_op_id"] is not None else call["forward_op_id"]
    if forward is not None and ops[forward]["stack_id"] == op["stack_id"]:
        call = _slow_call(ops[forward], ops)
    name = call["op"].removeprefix("autograd::engine::evaluate_function: ")
    files = [lines[-1].rpartition(":")[0]] if lines else ["(no source)"]
    return (*files, *reversed(lines), name)


def _slow_call(op: dict[str, Any], ops: list[dict[str, Any]]) -> dict[str, Any]:
    while op["parent_op_id"] is not None:
        outer = ops[op["parent_op_id"]]
        if outer["stack_id"] != op["stack_id"]:
            break
        op = outer
    return op


def test_the_tree_is_that_of_a_slow_reader(run: Run) -> None:
    table = run.lines(step=STEP, ledger="host")
    main = table[~table["share_pct"].isna()]

    found = {path: row["own_ns"] for path, row in paths(main) if row["own_ns"]}
    assert found == dict(_slow_tree(run, STEP))
