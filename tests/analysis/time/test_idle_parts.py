"""Idle time in windows: whatever their size, and that of the parts, the rows are the same."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyprof2
from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.time.idle import IN_PARTS, idle_in_windows
from pyprof2.analysis.time.recordings import source_root
from pyprof2.analysis.time.rows_in_time import RowsInTime
from pyprof2.store.folder import ranks_of
from pyprof2.store.parts import spooled
from pyprof2.store.rank_tables import RankTables
from pyprof2.tables import IDLE
from tests.analysis.time.test_idle import (
    COLUMNS,
    as_tables,
    call,
    hosts,
    idle_time,
    note,
    op,
    recording,
    recordings,
    work,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FRAMES: Final = st.sampled_from(
    ["/me/train.py(5): main", "/me/train.py(5): <lambda>", "/srv/x.py(3): f", "torch/a.py(1): g"]
)


def rows_in_windows(
    tables: Mapping[str, pa.Table], window: int, part: int, **options: Any
) -> list[dict[str, Any]]:
    """Return the rows of idle time, from windows and parts of so many rows."""
    parts = {name: InMemory.cut(tables[name], part) for name in IN_PARTS}
    found = idle_in_windows(parts, tables, window=window, **options)
    return [row for each in found for row in IDLE.conform(each, COLUMNS).to_pylist()]


def numbered_in_time(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows as a store has them: in order of time, keys counting up."""
    new: dict[str, dict[int, int]] = {}
    found = dict(rows)
    for name, key in (("launches", "launch_id"), ("ops", "op_id"), ("ranges", "range_id")):
        ordered = sorted(rows[name], key=lambda r: (r["start_ns"], -r["dur_ns"], r[key]))
        new[key] = {row[key]: i for i, row in enumerate(ordered)}
        found[name] = [row | {key: i} for i, row in enumerate(ordered)]
    for name in ("launches", "kernels", "copies"):
        for key in ("launch_id", "op_id"):
            if (name, key) != ("launches", "launch_id"):
                found[name] = [row | {key: new[key].get(row[key])} for row in found[name]]
    activities = sorted(found["kernels"] + found["copies"], key=lambda r: r["start_ns"])
    is_kernel = {row["kernel_id"] for row in rows["kernels"]}
    for name in ("kernels", "copies"):
        found[name] = [
            row | {"kernel_id": i}
            for i, row in enumerate(activities)
            if (row["kernel_id"] in is_kernel) == (name == "kernels")
        ]
    return found


@st.composite
def long_recordings(draw: st.DrawFn) -> dict[str, pa.Table]:
    """Draw a recording with Python frames, of up to 40 activities on two devices."""
    rows = draw(recordings())
    for shift in range(60, 60 * draw(st.integers(1, 5)), 60):
        later = draw(recordings())
        for name in ("launches", "ops", "ranges", "stalls", "kernels", "copies"):
            rows[name] += [row | {"start_ns": row["start_ns"] + shift} for row in later[name]]
    frames = draw(st.lists(hosts(name=FRAMES), max_size=6))
    rows["ranges"] += [row | {"kind": "python"} for row in frames]
    keys = {"launches": "launch_id", "ops": "op_id", "ranges": "range_id", "stalls": "stall_id"}
    for name, key in keys.items():
        rows[name] = [row | {key: i} for i, row in enumerate(rows[name])]
    count = len(rows["launches"])
    known = st.none() | st.integers(0, count - 1) if count else st.none()
    for i, row in enumerate(rows["kernels"] + rows["copies"]):
        row |= {"kernel_id": i, "launch_id": draw(known)}
    return as_tables(numbered_in_time(rows))


@settings(max_examples=15, deadline=None)
@given(
    tables=long_recordings(), window=st.sampled_from([1, 2, 7]), part=st.sampled_from([1, 3, 50]),
    normal_ns=st.integers(0, 20), root=st.sampled_from([None, "/me"]),
)  # fmt: skip
def test_windows_of_any_size_give_the_rows_of_one(
    tables: dict[str, pa.Table], window: int, part: int, normal_ns: int, root: str | None
) -> None:
    whole = idle_time(tables, root, normal_ns)

    assert rows_in_windows(tables, window, part, root=root, normal_ns=normal_ns) == whole


@pytest.mark.minutes
def test_windows_of_a_real_trace_give_the_rows_of_the_store(
    real_trace: Path, tmp_path: Path
) -> None:
    run = pyprof2.load(real_trace)
    for rank in ranks_of(run.path):
        tables = RankTables(run.path, rank)
        whole = tables.several(dict.fromkeys((*IN_PARTS, "stalls", "trace")))
        parts = {name: InMemory.cut(whole[name], 700) for name in IN_PARTS}
        root = source_root(whole["trace"])
        found = idle_in_windows(
            parts, whole, root, window=300, spool=partial(spooled, tmp_path / f"{rank}")
        )
        rows = [IDLE.conform(part, COLUMNS) for part in found]
        assert texts(rows) == texts([tables.read("idle").select(COLUMNS)])


def texts(parts: list[pa.Table]) -> pa.Table:
    """Return rows with texts as such, whatever their codes."""
    schema = pa.schema([(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type)
                        for f in IDLE.schema(COLUMNS)])  # fmt: skip
    return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])


def test_work_that_was_launched_long_before_still_has_its_call_op_and_line() -> None:
    frame = note(0, 30, "/me/train.py(5): main", "python")
    kernels = [work(40 + 20 * i, 50 + 20 * i, i) for i in range(8)]
    calls = [call(i, i + 1) | {"op_id": i} for i in range(8)]
    sources = [None if i % 2 else f"net.py:{i}" for i in range(8)]
    ops = [op(i, i + 1, f"aten::x{i}", source=source) for i, source in enumerate(sources)]
    last = op(150, 200, "aten::late")
    tables = recording(
        [row | {"op_id": i} for i, row in enumerate(kernels)], calls, ops=[*ops, last],
        ranges=[frame], window=(0, 190),
    )  # fmt: skip
    rows = rows_in_windows(tables, 1, 1, root="/me")

    assert rows == idle_time(tables, "/me")
    queued = [row for row in rows if row["cause"] == "kernel_gap"]
    assert [(row["op"], row["source"]) for row in queued] == [
        (f"aten::x{i}", sources[i] or "/me/train.py:5") for i in range(1, 8)
    ]


def test_the_last_launcher_speaks_for_a_silent_thread_however_long_ago_it_launched() -> None:
    unknown = [work(20 * i, 20 * i + 10) for i in range(1, 6)]
    calls = [call(-20, -10, tid=2), call(150, 160, tid=3)]
    ops = [op(112, 150, "aten::zero", tid=1), op(115, 140, "aten::main", tid=2)]
    tables = recording([work(0, 10, 0), *unknown, work(160, 170, 1)], calls, ops=ops)
    rows = rows_in_windows(tables, 1, 1)

    assert [(r["op"], r["start_ns"], r["time_ns"]) for r in rows if r["cause"] == "host_op"] == [
        ("aten::zero", 112, 3), ("aten::main", 115, 25), ("aten::zero", 140, 10)
    ]  # fmt: skip


def test_of_what_ended_before_the_only_gap_no_more_is_held_than_a_part() -> None:
    ops = [op(i, i + 1) for i in range(400)]
    calls = [call(i, i + 1) for i in range(400)]
    tables = recording([work(0, 400, 0)], calls, ops=ops, window=(0, 410))
    parts = {name: InMemory.cut(tables[name], 10) for name in IN_PARTS}
    seen: list[int] = []

    def read_until(self: RowsInTime, *args: Any) -> pa.Table:
        seen.append(until(self, *args).num_rows)
        return self.rows

    until = RowsInTime.read_until
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowsInTime, "read_until", read_until)
        assert [part.num_rows for part in idle_in_windows(parts, tables)] == [1]

    assert max(seen) <= 50


def test_a_wait_between_two_launches_is_known_across_windows() -> None:
    calls = [call(-20, -10), call(20, 25, "cudaStreamWaitEvent"), call(40, 50)]
    tables = recording([work(0, 100, 0), work(100_000, 100_010, 2)], calls)

    assert [row["note"] for row in rows_in_windows(tables, 1, 1)] == [
        "a wait call precedes the launch"
    ]
