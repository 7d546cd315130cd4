"""Results of a rank whose tables are read in small parts: those of the tables as a whole."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyprof2.analysis.chunked import ENDLESS, InMemory, chunks_of, in_time_order, stretches
from pyprof2.analysis.intervals import Covered, innermost_time
from pyprof2.analysis.summaries import ledger, summary, utilization
from pyprof2.analysis.time import lines, steps
from pyprof2.analysis.time.line_ops import INPUT, OpsAtLines
from pyprof2.analysis.time.step_windows import step_windows
from pyprof2.api.run import load
from pyprof2.result_tables import RESULTS
from pyprof2.store.folder import ranks_of
from pyprof2.store.rank_tables import RankTables
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

YES_OR_NO = (None, False, True)
FOUND = ("steps", "summary", "ledger", "utilization", "lines")
READ = {
    name: list(dict.fromkeys(chain.from_iterable(needed.get(name, ()) for needed in (
        steps.INPUT, summary.NEEDED, ledger.NEEDED, utilization.NEEDED, lines.INPUT,
    ))))
    for name in (
        "kernels", "copies", "ops", "ranges", "signatures", "devices", "trace", "idle",
        "graph_nodes", "launches",
    )
}  # fmt: skip


class Stored(InMemory):
    """A table whose parts have texts of their own each, as those of a file have."""

    def read(self, part: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of a part."""
        rows = super().read(part, columns)
        texts = [name for name in rows.column_names if pa.types.is_dictionary(rows[name].type)]
        for name in texts:
            own = rows[name].cast(pa.string()).dictionary_encode()
            rows = rows.set_column(rows.column_names.index(name), name, own)
        return rows


def results(
    tables: Mapping[str, pa.Table], devices: Sequence[Mapping[str, Any]], rank: int, size: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables of results, from tables in parts of so many rows."""
    of = {name: Stored.cut(table, size) for name, table in tables.items()}
    work = chain(*(chunks_of(of[name], READ[name]) for name in ("kernels", "copies")))
    windows = step_windows(tables["ranges"], work)
    of_steps, used = steps.steps_and_use(of, windows, rank)
    found = {
        "steps": of_steps,
        "device_use": used,
        "summary": summary.totals(of, rank).table(),
        "ledger": ledger.of_tables(of, rank),
        "utilization": utilization.utilization(of, windows, devices, None, rank),
        "lines": pa.concat_tables(lines.lines_of_rank(of, rank)),
    }
    return {name: table.to_pylist() for name, table in found.items()}


# -- a rank with all that is hard for parts -------------------------------------------------------


class Made:
    """The tables of a rank by chance: ops that nest or overlap, on threads, with steps or without.

    Forward ops are before and, rarely, after those that name them; kernels run beside one another
    for a part of the recording, or all of it.
    """

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        count = int(self.chance.integers(0, 30))
        self.long = int(self.chance.integers(20, 90))
        self.starts = np.sort(self.chance.integers(0, self.long, count)).tolist()
        self.ops = [self.op(number) for number in range(count)]
        self.own()

    def some(self, *values: Any) -> Any:
        """Return one of the values."""
        return values[int(self.chance.integers(len(values)))]

    def up_to(self, end: int) -> int:
        """Return a number from 0, below `end`."""
        return int(self.chance.integers(max(1, end)))

    def op(self, number: int) -> dict[str, Any]:
        """Return an op."""
        forward = self.up_to(len(self.starts) if self.up_to(20) == 0 else number)
        return self.work() | {
            "op_id": number, "start_ns": self.starts[number], "dur_ns": self.some(0, 3, 9, 40),
            "pid": 1, "tid": self.some(1, 1, 2, None), "stack_id": self.some(None, 0, 1),
            "parent_op_id": self.some(None, self.up_to(number)) if number else None,
            "forward_op_id": self.some(None, None, forward) if number else None,
            "op": self.some("aten::mm", "aten::add", "MulBackward0", "aten::linear"),
            "signature_id": self.some(None, 0, 1), "sequence_nr": self.some(None, 7),
        }  # fmt: skip

    def work(self) -> dict[str, Any]:
        """Return what ops and kernels have."""
        return {
            "step": self.some(None, 0, 1, 2), "flops": self.some(None, 0, 10**15 + 1),
            "bytes": self.some(None, 5), "recompute": self.some(*YES_OR_NO),
            "cost_status": self.some("ok", "in_parent", "no_formula", None),
            "layer": self.some(None, "a", "b.c"), "source": self.some(None, "/w/t.py:3"),
            "direction": self.some(None, "forward", "backward", "optimizer"),
            "category": self.some("matmul", "attention", "comm", "norm", None),
            "compute_dtype": self.some("f32", "bf16", None),
        }  # fmt: skip

    def own(self) -> None:
        """Fill in how long each op is the innermost one."""
        ids = [-1 if op["tid"] is None else op["tid"] for op in self.ops]
        start, length = ([op[name] for op in self.ops] for name in ("start_ns", "dur_ns"))
        begin = np.array(start, np.int64)
        end = begin + np.array(length, np.int64)
        times = innermost_time(np.array(ids, np.int64), begin, end)
        for op, time in zip(self.ops, times.tolist(), strict=True):
            op["self_ns"] = time

    def activities(self, first: int, count: int, *, kernels: bool) -> list[dict[str, Any]]:
        """Return kernels or copies, in order of start."""
        found: list[dict[str, Any]] = []
        for start in np.sort(self.chance.integers(0, 2 * self.long, count)).tolist():
            op = self.some(None, self.up_to(len(self.ops))) if self.ops else None
            launch = self.some(None, max(0, start - 7))
            own = {
                "kernel_id": first + len(found), "start_ns": start, "op_id": op,
                "dur_ns": self.some(0, 5, 17, 200), "device": self.some(0, 0, 1, None),
                "launch_ns": launch, "launch_id": None if launch is None else 0, "pid": 1,
                "tid": self.some(1, 2, 3), "tensor_core": self.some("yes", "no", "unknown", None),
                "cost_op_id": self.some(None, op), "link": self.some("graph", "correlation"),
                "device_name": self.some("A", "B"), "forward_op_id": op,
                "graph_node": self.some(None, None, 0, 1, 2),
            }  # fmt: skip
            used = {"blocks_per_sm": self.chance.random(), "occupancy_pct": self.some(0.1, 33.3)}
            found.append(self.work() | own | (used if kernels else {}))
        return found

    def tables(self) -> dict[str, pa.Table]:
        """Return the canonical tables."""
        bounds = np.sort(self.chance.integers(0, self.long + 30, self.some(0, 2, 6))).tolist()
        pairs = zip(bounds[:-1:2], bounds[1::2], strict=True)
        ranges = [
            {"name": f"ProfilerStep#{n}", "kind": "step", "start_ns": start, "dur_ns": end - start,
             "pid": 1, "tid": 1}
            for n, (start, end) in enumerate(pairs)
        ]  # fmt: skip
        counts = [int(self.some(0, 1, 12)) for _ in range(2)]
        idle = [
            {"start_ns": self.up_to(self.long), "time_ns": 3, "step": self.some(None, 0, 1),
             "op_id": self.some(None, self.up_to(len(self.ops))) if self.ops else None,
             "op": self.some(None, "aten::mm"),
             "kernel_id": self.some(None, self.up_to(sum(counts))) if sum(counts) else None,
             "source": self.some(None, "/w/t.py:3", "/w/t.py:9"), "drained": None}
            for _ in range(self.some(0, 9))
        ]  # fmt: skip
        nodes = [
            {
                "layer": self.some(None, "a", "b.c"), "recompute": self.some(*YES_OR_NO),
                "direction": self.some(None, "forward", "backward"), "graph_node": n,
                "call_node": self.some(None, self.up_to(n)),
                "stack_id": self.some(None, 0, 1), "op": self.some(None, "aten::mm", "aten::add"),
                "forward_op": self.some(None, None, "aten::linear"),
            }
            for n in range(3)
        ]  # fmt: skip
        rows: dict[str, list[dict[str, Any]]] = {
            "graph_nodes": nodes, "kernels": self.activities(0, counts[0], kernels=True),
            "copies": self.activities(counts[0], counts[1], kernels=False), "ops": self.ops,
            "ranges": ranges, "idle": idle, "devices": [{"device": 0, "name": "A"}],
            "signatures": [{"has_shapes": True}, {"has_shapes": False}],
            "trace": [{"start_ns": 0, "end_ns": self.long}],
            "launches": [],
        }  # fmt: skip
        return {name: canonical(name, *own).select(READ[name]) for name, own in rows.items()}


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from((1, 2, 3, 7)))
@example(1_000_000_000, 1)  # ops without a status in parts where none is in its parent's
@example(5012, 1)  # no dtype of any FLOPs is known, and parts without ops that have some
@example(463129088, 1)  # two dtypes of as many FLOPs, one of them of no matrix work before
def test_results_in_parts_are_those_of_the_whole(seed: int, size: int) -> None:
    tables = Made(seed).tables()
    devices = [{"device": 0, "name": "NVIDIA H100 80GB HBM3"}]

    whole, found = (results(tables, devices, 0, each) for each in (10**6, size))

    for name in FOUND:
        assert repr(found[name]) == repr(whole[name]), name


@pytest.mark.minutes
def test_results_of_a_recording_in_parts_are_those_that_are_stored(real_trace: Path) -> None:
    run = load(real_trace)
    for number in ranks_of(run.path)[:2]:
        rank = RankTables(run.path, number)
        tables = rank.several(READ)
        size = max(1, tables["ops"].num_rows // 23)

        found = results(tables, rank.devices(), number, size)

        for name in FOUND:
            stored = rank.read(name, [c for c in RESULTS[name].names if c != "rank"])
            own = [{c: row[c] for c in stored.column_names} for row in found[name]]
            assert repr(own) == repr(stored.to_pylist()), name


# -- the pieces, each beside a slow one -----------------------------------------------------------


def _calls_one_by_one(ops: list[dict[str, Any]]) -> Iterator[tuple[int, bool]]:
    """Yield the call of each op, and whether it begins at its line, as the docs say it."""

    def begins(op: dict[str, Any]) -> bool:
        above = op["parent_op_id"]
        return above is None or ops[above]["stack_id"] != op["stack_id"]

    def call(op: dict[str, Any]) -> dict[str, Any]:
        return op if begins(op) else call(ops[op["parent_op_id"]])

    for op in ops:
        own = call(op)
        forward = own["forward_op_id"] if op["forward_op_id"] is None else op["forward_op_id"]
        is_same = forward is not None and ops[forward]["stack_id"] == op["stack_id"]
        yield (call(ops[forward]) if is_same else own)["op_id"], begins(op)


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 5))
def test_what_an_op_is_at_its_line_does_not_depend_on_parts(seed: int, size: int) -> None:
    made = Made(seed)
    ops = canonical("ops", *made.ops)
    finder, calls, begins, names = OpsAtLines(), [], [], []
    for stretch in stretches(Stored.cut(ops, size), [*INPUT, "start_ns"], "forward_op_id"):
        found = finder.add(stretch.rows)
        calls += found.at.tolist()
        begins += found.begins.tolist()
        names += [found.call[1][code] for code in found.call[0].tolist()]

    wanted = list(_calls_one_by_one(made.ops))
    assert list(zip(calls, begins, strict=True)) == wanted
    assert names == [made.ops[call]["op"] for call, _ in wanted]


def test_parts_out_of_order_of_time_are_one_stretch() -> None:
    rows = pa.table({"start_ns": [0, 5, 5, 9, 3, 20, 21], "to": [0, 0, 1, 1, 0, 6, 0]})

    by_time, by_both = (
        [
            each.rows["start_ns"].to_pylist()
            for each in stretches(InMemory.cut(rows, 1), ["start_ns"], to)
        ]
        for to in (None, "to")
    )

    assert by_time == [[0], [5, 5, 9, 3], [20], [21]]
    assert by_both == [[0], [5, 5, 9, 3], [20, 21]]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=9), min_size=2,
             max_size=2),
    st.integers(1, 4),
)  # fmt: skip
def test_rows_of_two_tables_come_in_order_of_time_and_in_their_own(
    rows: list[list[tuple[int, int]]], size: int
) -> None:
    tables = [
        pa.table({"start_ns": pa.array([start for start, _ in own], pa.int64()),
                  "n": pa.array([n for _, n in own], pa.int64())})
        for own in ([*sorted(rows[0], key=lambda row: row[0])], rows[1])
    ]  # fmt: skip
    columns = ("start_ns", "n")
    found: list[list[tuple[int, int]]] = [[], []]
    since = -ENDLESS
    for parts, until in in_time_order([InMemory.cut(each, size) for each in tables], [columns] * 2):
        for own, part in zip(found, parts, strict=True):
            pairs = [(row["start_ns"], row["n"]) for row in part.to_pylist()]
            assert all(since <= start < until for start, _ in pairs)
            own.extend(pairs)
        since = until

    assert since == ENDLESS
    assert [sorted(own) for own in found] == [sorted(own) for own in rows]
    assert [n for _, n in found[0]] == tables[0]["n"].to_pylist()


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 9)), max_size=9),
    st.integers(0, 21),
)
def test_what_a_device_did_before_is_not_counted_again(
    work: list[tuple[int, int, int]], cut: int
) -> None:
    covered, fresh = Covered(), 0
    for rows in ([r for r in work if r[1] < cut], [r for r in work if r[1] >= cut]):
        device, start, length = np.array(rows, np.int64).reshape(-1, 3).T
        fresh += int((start + length - covered.add(device, start, start + length)).sum())

    assert fresh == len(
        {(own, at) for own, start, long in work for at in range(start, start + long)}
    )


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_table_in_memory_has_at_least_one_part(count: int) -> None:
    table = InMemory.cut(pa.table({"start_ns": pa.array(range(count), pa.int64())}), 2)

    assert [part.num_rows for part in chunks_of(table, ["start_ns"])] == {
        0: [0], 1: [1], 5: [2, 2, 1],
    }[count]  # fmt: skip
