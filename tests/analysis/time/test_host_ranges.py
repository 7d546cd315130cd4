"""Frames that tell only that Python ran: merged, and nothing that is found of the rest changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.time.host_ranges import COLUMNS, thinned
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN: Final = "/home/me/train.py(7): step"
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


def left(table: pa.Table) -> list[tuple[int, int, int]]:
    """Return thread, start and length of each row, in order."""
    columns = (table[name].to_pylist() for name in ("tid", "start_ns", "dur_ns"))
    return sorted(zip(*columns, strict=True))


def test_frames_that_touch_or_overlap_are_one_row_of_their_thread() -> None:
    found = thinned(
        ranges(
            (1, 0, 10, TORCH), (1, 2, 3, BUILTIN), (1, 10, 5, TORCH), (1, 20, 1, TORCH),
            (2, 4, 2, TORCH),
        ),
        None,
    )  # fmt: skip

    assert left(found) == [(1, 0, 15), (1, 20, 1), (2, 4, 2)]
    assert set(found["kind"].to_pylist()) == {"python"}


@pytest.mark.parametrize(
    ("text", "kind", "root"),
    [
        pytest.param(OWN, "python", "/home/me", id="below the root"),
        pytest.param("/srv/net.py(7): step", "python", "/home/me", id="own by its path alone"),
        pytest.param(LOADER, "python", None, id="code of the data loader"),
        pytest.param("step", "annotation", None, id="no frame"),
    ],
)
def test_what_says_more_than_that_python_ran_stays(text: str, kind: str, root: str | None) -> None:
    rows = ((1, 0, 10, text), (1, 2, 3, text))

    assert thinned(ranges(*rows, kind=kind), root).equals(ranges(*rows, kind=kind))


def test_a_thread_without_a_process_is_none_of_another() -> None:
    both = pa.concat_tables(
        [ranges((0, 0, 5, TORCH), pid=None), ranges((0, 3, 5, TORCH), pid=0)]
    ).unify_dictionaries()

    assert left(thinned(both, None)) == [(0, 0, 5), (0, 3, 5)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 30), st.integers(0, 9),
            st.sampled_from([OWN, TORCH, BUILTIN, LOADER]),
        )
    )
)  # fmt: skip
def test_python_runs_when_it_ran(rows: list[Row]) -> None:
    before, after = ranges(*rows), thinned(ranges(*rows), "/home/me")

    assert _running(before) == _running(after)
    for text in (OWN, LOADER):
        kept = [[row for row in t.to_pylist() if row["name"] == text] for t in (before, after)]
        assert kept[0] == kept[1]


def _running(table: pa.Table) -> Sequence[tuple[int, int]]:
    """Return each thread with each ns in which any of its ranges is on, counted one by one."""
    return sorted(
        {(tid, ns) for tid, start, dur in left(table) for ns in range(start, start + dur)}
    )
