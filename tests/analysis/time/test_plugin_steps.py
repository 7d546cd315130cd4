"""Steps by what was at work: of what runs together the first role has the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.api import run_time
from tests.kineto_events import annotation, copy, kernel, launch, load_events, op, step

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def _times(run: Run) -> list[dict[str, int]]:
    """Return what is not 0 of each step, in microseconds."""
    rows = run_time.plugin_steps(run.tables).drop(columns=["rank", "step"]).to_dict("records")
    return [{str(n).removesuffix("_ns"): t // 1000 for n, t in row.items() if t} for row in rows]


def test_the_first_role_has_the_time(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        step(1, 0, 100),
        annotation(LOADER, 5, 20),
        op("aten::a", 10, 30),
        annotation("nccl:all_reduce", 35, 10),
        launch(37, 1, dur=10), kernel(50, 20, 1),
        copy(60, 20, 2, name="Memcpy HtoD"), copy(75, 15, 3, name="Memset (Device)"),
    )  # fmt: skip

    assert _times(run) == [
        {
            "dataloader": 20, "cpu_exec": 10, "communication": 10, "runtime": 2, "kernel": 20,
            "memcpy": 10, "memset": 10, "other": 18, "total": 100,
        }
    ]  # fmt: skip


def test_a_step_ends_with_its_work_and_the_next_one_begins_then(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        step(1, 0, 50), launch(10, 1), kernel(40, 30, 1),
        step(2, 50, 50), launch(60, 2), kernel(80, 10, 2),
    )  # fmt: skip

    assert [(row["kernel"], row["total"]) for row in _times(run)] == [(30, 70), (10, 30)]


def test_a_last_step_whose_work_was_cut_off_is_left_out(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        step(1, 0, 50), launch(1, 1), kernel(10, 5, 1), launch(3, 2), kernel(20, 5, 2),
        step(2, 50, 50), launch(60, 3), kernel(70, 5, 3),
        step(3, 100, 50),
    )  # fmt: skip

    assert run_time.plugin_steps(run.tables)["step"].tolist() == [1]


def test_work_from_before_the_first_step_delays_it(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        op("aten::a", 0, 5), launch(1, 1), kernel(8, 6, 1),
        step(1, 10, 40), launch(12, 2), kernel(20, 5, 2),
    )  # fmt: skip

    # The launch at 12 ended before the step began at 14.
    assert _times(run) == [{"kernel": 5, "other": 31, "total": 36}]


def test_work_of_nobody_s_delays_no_step_that_has_begun_to_work(tmp_path: Path) -> None:
    run = load_events(tmp_path, step(1, 10, 40), launch(12, 1), kernel(20, 5, 1), kernel(22, 10, 2))

    assert _times(run) == [{"kernel": 12, "runtime": 1, "other": 27, "total": 40}]


def test_a_recording_without_steps_is_one(tmp_path: Path) -> None:
    run = load_events(tmp_path, op("aten::a", 0, 10), op("aten::b", 30, 10))

    assert _times(run) == [{"cpu_exec": 20, "other": 20, "total": 40}]
    assert run_time.plugin_steps(run.tables)["step"].isna().all()


def test_where_nothing_ran_on_the_host_there_are_none(tmp_path: Path) -> None:
    assert not len(run_time.plugin_steps(load_events(tmp_path, kernel(0, 10, 1)).tables))
