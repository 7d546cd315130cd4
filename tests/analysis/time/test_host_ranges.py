"""What ranges tell of the host: those that tell only that it ran are merged, the others stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.time.host_ranges import (
    AT_WORK,
    BELOW_ROOT,
    COLUMNS,
    COMM,
    FRAME,
    LOADS,
    OWN,
    RUNS,
    HostRanges,
)
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN_FRAME: Final = "/home/me/train.py(7): step"
SAME_LINE: Final = "/home/me/train.py(7): <lambda>"
TORCH: Final = "torch/nn/modules/module.py(1): forward"
BUILTIN: Final = "<built-in method linear>"
LOADER: Final = "torch/utils/data/dataloader.py(5): next"

Row = tuple[int, int, int, str]
"""Thread, start, length and text."""


def ranges(*rows: Row, kind: str = "python", pid: int | None = 1) -> pa.Table:
    """Return the columns of table `ranges` that count."""
    found = [
        {"tid": tid, "start_ns": start, "dur_ns": dur, "name": name, "kind": kind, "pid": pid}
        for tid, start, dur, name in rows
    ]
    return canonical("ranges", *found).select(COLUMNS)


def told(table: pa.Table, root: str | None = None) -> list[dict[str, Any]]:
    """Return what ranges tell, with the text of their lines."""
    reader = HostRanges(root)
    rows: list[dict[str, Any]] = reader.read(table, *reader.flags(table)).to_pylist()
    return [row | {"line": reader.lines[row["line"]] if row["line"] >= 0 else ""} for row in rows]


def spans(rows: Sequence[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Return thread, start and length of each row, in order."""
    return sorted((row["tid"], row["start_ns"], row["dur_ns"]) for row in rows)


def test_what_only_runs_is_one_row_of_its_thread_where_it_touches_or_overlaps() -> None:
    rows = told(
        ranges(
            (1, 0, 10, TORCH), (1, 2, 3, BUILTIN), (1, 10, 5, TORCH), (1, 20, 1, TORCH),
            (2, 4, 2, TORCH),
        )
    )  # fmt: skip

    assert spans(rows) == [(1, 0, 15), (1, 20, 1), (2, 4, 2)]
    assert {row["flags"] for row in rows} == {RUNS}


@pytest.mark.parametrize(
    ("text", "kind", "root", "flags"),
    [
        pytest.param(OWN_FRAME, "python", "/home/me", RUNS | BELOW_ROOT | OWN, id="below the root"),
        pytest.param("/srv/a.py(7): f", "python", "/home/me", RUNS | OWN, id="own by its path"),
        pytest.param(LOADER, "python", None, RUNS | LOADS, id="code of the data loader"),
        pytest.param("data set", "annotation", None, RUNS | LOADS, id="loads by its name"),
        pytest.param("c10d::x", "annotation", None, RUNS | COMM, id="communicates"),
    ],
)
def test_a_range_that_says_more_stays_as_it_is(
    text: str, kind: str, root: str | None, flags: int
) -> None:
    rows = told(ranges((1, 0, 10, text), (1, 2, 3, text), kind=kind), root)

    assert spans(rows) == [(1, 0, 10), (1, 2, 3)]
    assert [row["flags"] for row in rows] == [flags] * 2


def test_a_step_says_nothing_of_an_instant_but_that_the_process_is_at_work() -> None:
    steps = ranges((1, 0, 10, "ProfilerStep#1"), kind="step")

    assert HostRanges(None).flags(steps)[0].tolist() == [AT_WORK]
    assert told(steps) == []


def test_that_stacks_were_recorded_is_told_by_any_frame_even_one_without_length() -> None:
    frames = ranges((1, 0, 0, BUILTIN))

    assert HostRanges(None).flags(frames)[0].tolist() == [RUNS | FRAME]
    assert told(frames) == []


def test_two_functions_at_one_line_are_two_lines() -> None:
    reader = HostRanges("/home/me")
    _, line = reader.flags(ranges((1, 0, 9, OWN_FRAME), (1, 1, 2, SAME_LINE), (1, 5, 1, OWN_FRAME)))

    assert line.tolist() == [0, 1, 0]
    assert reader.lines == ["/home/me/train.py:7"] * 2


def test_a_thread_without_a_process_is_none_of_another() -> None:
    both = pa.concat_tables(
        [ranges((0, 0, 5, TORCH), pid=None), ranges((0, 3, 5, TORCH), pid=0)]
    ).unify_dictionaries()

    assert spans(told(both)) == [(0, 0, 5), (0, 3, 5)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 30), st.integers(0, 9),
            st.sampled_from([OWN_FRAME, TORCH, BUILTIN, LOADER]),
        )
    )
)  # fmt: skip
def test_python_runs_when_it_ran(rows: list[Row]) -> None:
    found = told(ranges(*rows), "/home/me")

    assert _running(row[:3] for row in rows) == _running(spans(found))
    for text, line in ((OWN_FRAME, "/home/me/train.py:7"), (LOADER, "")):
        kept = [row for row in found if row["flags"] != RUNS and row["line"] == line]
        assert spans(kept) == sorted(row[:3] for row in rows if row[3] == text and row[2])


def _running(spans_of: Any) -> set[tuple[int, int]]:
    """Return each thread with each ns in which any of its ranges is on, counted one by one."""
    return {(tid, ns) for tid, start, dur in spans_of for ns in range(start, start + dur)}
