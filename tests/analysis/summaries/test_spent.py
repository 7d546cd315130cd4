"""Where the time of devices went, from sums of idle time that are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyprof2.analysis.summaries.spent import IDLE_INPUT, Spent, idle_sums, spent
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_GPU_WORK_OF_NOTE: Mapping[str, Any] = {"busy_ns": 1000, "ledger": {}}
STEP = {"idle_ns": 60, "dur_ns": 300, "copy_only_ns": 40, "comm_only_ns": 2}


def idle(
    cause: str | None, time_ns: int, source: str | None = None, step: int | None = None
) -> Any:
    return {"cause": cause, "time_ns": time_ns, "source": source, "step": step}


def sums(*rows: Mapping[str, Any], size: int = 100) -> list[dict[str, Any]]:
    """Return what rows of table `idle` add up to, read in parts of so many."""
    table = pa.Table.from_pylist(list(rows), schema=TABLES["idle"].schema(IDLE_INPUT))
    parts = [table.slice(at, size) for at in range(0, max(1, len(rows)), size)]
    found: list[dict[str, Any]] = idle_sums(parts).to_pylist()
    return found


def found(rows: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]) -> Spent:
    def nothing_else() -> Any:
        pytest.fail("nothing that is recorded needs to be looked at")

    return spent(NO_GPU_WORK_OF_NOTE, steps, rows, nothing_else)


PIECES = (
    idle("start", 900), idle("host_op", 20, "/w/t.py:3", 1), idle("host_op", 5, "/w/t.py:9", 1),
    idle("launch", 25, None, 2), idle(None, 10, None, 2), idle("launch", 400, "/w/t.py:7"),
)  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 100])
def test_only_idle_time_in_steps_counts_where_there_are_steps(size: int) -> None:
    """Of 60 ns in two steps 25 are each of two causes: that comes first which does in all."""
    steps: list[dict[str, Any]] = [STEP, STEP, STEP | {"idle_ns": None, "dur_ns": 10**6}]

    assert found(sums(*PIECES, size=size), steps) == Spent(
        windows=2, window_ns=600, idle_ns=60, copies_ns=80, comm_ns=None, cause="host_op",
        cause_ns=25, source="/w/t.py:3", recorded_ns=1000 + 1360,
    )  # fmt: skip


def test_without_steps_all_idle_time_counts() -> None:
    assert found(sums(*PIECES), []) == Spent(
        windows=0, window_ns=2360, idle_ns=1360, copies_ns=None, comm_ns=None, cause="start",
        cause_ns=900, source=None, recorded_ns=2360,
    )  # fmt: skip


@pytest.mark.parametrize(("time_ns", "named"), [(24, None), (25, "/w/t.py:3")])
def test_a_line_with_little_of_the_cause_is_not_named(time_ns: int, named: str | None) -> None:
    rows = [idle("host_op", time_ns, "/w/t.py:3"), idle("host_op", 100 - time_ns)]

    assert found(sums(*rows), []).source == named


def test_sums_of_several_ranks_are_added_up() -> None:
    ranks = [*sums(idle("launch", 5), idle("host_op", 7)), *sums(idle("launch", 5))]

    assert (found(ranks, []).cause, found(ranks, []).cause_ns) == ("launch", 10)


def test_nothing_idle_has_no_cause() -> None:
    assert sums() == []
    assert found(sums(), []).cause is None
