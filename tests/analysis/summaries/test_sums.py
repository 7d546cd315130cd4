"""Sums of a rank, stored: what is made of them is what is made of the kernels themselves."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pyprof2.analysis.summaries import sums as summed
from pyprof2.analysis.summaries.profile import select, summarize, total_row
from pyprof2.analysis.summaries.profile_columns import AXES, UNSTORED
from pyprof2.analysis.summaries.rows import activity_rows, frame
from pyprof2.analysis.summaries.stored_sums import StoredSums, names_rows
from pyprof2.analysis.summaries.sums import sums_of_rank
from pyprof2.listings import in_order, listed
from tests.builders import canonical, parted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

OPS = 9
PHASES = (Phase.explicit, Phase.generate)  # of seeds none is simpler than another
YES_OR_NO = (None, True, False)
SOURCES = ("/w/t.py:3", "/w/t.py:9", "/site-packages/torch/nn.py:1")


def some_work(seed: int, rank: int, count: int) -> list[dict[str, Any]]:
    """Return kernels by chance: of few ops, some of which others help, with few keys."""
    chance = np.random.default_rng([seed, rank])

    def some(*values: Any) -> Any:
        return values[int(chance.integers(len(values)))]

    def kernel(number: int) -> dict[str, Any]:
        op = some(None, *range(OPS))
        return {
            "kernel_id": number, "rank": rank, "start_ns": number,
            "dur_ns": some(0, 1, 3, 1000, 12_345), "step": some(None, 1, 2),
            "op_id": some(op, op, None), "cost_op_id": op, "stream": some(None, 7, 20),
            "cost_role": some("main", "main", "helper", None), "op_time_ns": some(1, 777, 5000),
            "direction": some(None, "forward", "backward"), "layer": some(None, "a.b", "a.c", "d"),
            "op": some(None, "aten::mm", "aten::add"), "signature": some("mm([2])", "mm([3])"),
            "kernel": some("gemm", "add<1>", "split"), "source": some(None, *SOURCES),
            "library_source": some(None, *SOURCES), "range": some(None, "x 1 / y 2", "x 3"),
            "flops": some(None, 0, 3, 10**15 + 1), "bytes": some(None, 0, 7, 10**15 - 1),
            "cost_status": some("ok", "assumed", "in_parent", "no_formula", None),
            "roofline_pct": some(None, 0.1, 33.3, 1e-7, 140.0),
            "roofline_flag": some(None, None, "cache", "algorithm"),
            "tensor_core": some("yes", "no", "unknown", None),
            "tensor_core_eligible": some(*YES_OR_NO),
            "compute_dtype": some("f32", "f16", None), "params": some("M=1,N=2", "N=7", None),
            "device_type": some("cuda", "hip"),
        }  # fmt: skip

    return [kernel(number) for number in range(count)]


def tables_of(seed: int, rank: int) -> dict[str, pa.Table]:
    """Return the kernels, copies and ops of a rank."""
    work = some_work(seed, rank, 90)
    chance = np.random.default_rng([seed, rank, 1])
    for row in work:
        row["category"] = ("matmul", "comm", None, "memcpy", "memset")[int(chance.integers(5))]
        if row["category"] == "memcpy":
            row["copy_kind"] = ("h2d pageable", "d2d")[int(chance.integers(2))]
    # Copies may be kernels here: what counts is their category.
    parts = [row for row in work if "copy_kind" not in row], [r for r in work if "copy_kind" in r]
    ops = ({"rank": rank} for _ in range(OPS))
    return {
        "kernels": canonical("kernels", *parts[0]),
        "copies": canonical("copies", *parts[1]),
        "ops": canonical("ops", *ops),
    }


def stored(tables: Sequence[Mapping[str, pa.Table]], size: int | None = None) -> StoredSums:
    """Return the stored sums of ranks whose tables are read in parts of so many rows."""
    found = [sums_of_rank(parted(own, size), rank) for rank, own in enumerate(tables)]
    return StoredSums.of([[table.to_pydict() for table in pair] for pair in found])


def rows_of(tables: Sequence[Mapping[str, pa.Table]]) -> pd.DataFrame:
    """Return the rows of axis `kernel`, as a run does."""
    return frame([activity_rows(own["kernels"], own["copies"]) for own in tables])


def same(values: Sequence[Any]) -> list[Any]:
    """Return values with one kind of null, and numbers as they are written."""
    return [None if value is None or value is pd.NA else str(value) for value in values]


QUERIES: tuple[dict[str, Any], ...] = (
    {}, {"op": "mm"}, {"layer": "a"}, {"kernel": "gemm|split"}, {"range": "x"}, {"rank": 1},
    {"direction": ["forward", "(none)"]}, {"category": ["matmul", "memset"]}, {"stream": [7]},
    {"copies": False}, {"op": "no such op"},
)  # fmt: skip
BY = (
    *([axis] for axis in AXES if axis not in ("step", *UNSTORED)),
    ["op", "name"], ["stream", "rank"],
    ["layer", "direction"], ["source", "library", "category"],
)  # fmt: skip


@settings(max_examples=4, deadline=None, phases=PHASES)
@given(st.integers(0, 10**9), st.sampled_from((1, 7, 40, None)))
def test_sums_of_sums_are_those_of_the_rows(seed: int, size: int | None) -> None:
    tables = [tables_of(seed, rank) for rank in (0, 1)]
    sums, rows = stored(tables, size), rows_of(tables)

    for selection in QUERIES:
        chosen, own = sums.select(selection), select(rows, **selection)
        (total,) = total_row(own).to_dict("records")
        assert same(list(chosen.total().values())) == same(
            [None if isinstance(v, float) and math.isnan(v) else v for v in total.values()]
        )
        for by in BY if not selection else BY[-4:]:
            found, wanted = chosen.summarize(by), listed(summarize(own, by, more=True))
            assert list(found) == list(wanted)
            for name, column in wanted.items():
                assert same(found[name].cells) == same(column.cells), (by, name)
                assert found[name].is_text == column.is_text


@pytest.mark.parametrize(("depth", "fold"), [(1, False), (None, True), (1, True)])
def test_paths_are_cut_and_numbers_folded_as_of_rows(depth: int | None, fold: bool) -> None:  # noqa: FBT001
    tables = [tables_of(5, 0)]
    found = stored(tables).summarize(["range", "layer"], depth, fold_numbers=fold)

    wanted = summarize(rows_of(tables), ["range", "layer"], depth, fold_numbers=fold)

    assert found["range"].cells == wanted["range"].tolist()
    assert found["layer"].cells == wanted["layer"].tolist()
    assert found["time_ns"].cells == wanted["time_ns"].tolist()


def test_shares_with_a_key_are_those_of_the_rows() -> None:
    tables = [tables_of(3, rank) for rank in (0, 1)]
    sums, rows = stored(tables), rows_of(tables)
    time = rows["dur_ns"].sum()

    for axis in AXES.keys() - {*UNSTORED}:
        column = AXES[axis]
        known = rows.loc[rows[column].notna(), "dur_ns"].sum()
        assert sums.known_share(axis) == known / time, axis
    kinds = rows.groupby("copy_kind", observed=True)["dur_ns"].sum()
    assert sums.time_by("copy_kind") == dict(kinds)


def work(**facts: Any) -> dict[str, Any]:
    return {"op": "aten::mm", "dur_ns": 10, "cost_status": "ok", "device_type": "cuda"} | facts


def of_kernels(*rows: Mapping[str, Any]) -> dict[str, pa.Table]:
    numbered = [{"kernel_id": i, "start_ns": i, **row} for i, row in enumerate(rows)]
    return {
        "kernels": canonical("kernels", *numbered),
        "copies": canonical("copies"),
        "ops": canonical("ops", {}, {}, {}),
    }


def test_a_call_with_kernels_of_two_names_counts_once_in_their_op() -> None:
    tables = of_kernels(
        work(kernel="a", op_id=0), work(kernel="b", op_id=0), work(kernel="a", op_id=1)
    )
    sums = stored([tables], size=1)

    assert sums.summarize(["op"])["op_calls"].cells == [2]
    assert sums.summarize(["name"])["op_calls"].cells == [2, 1]


def test_the_time_of_a_helper_counts_only_beside_the_work_it_helps() -> None:
    """Of 30 FLOPs in 10 ns of work and 5 ns of help: 2 with the help, 3 without."""
    one = {"op_id": 0, "cost_op_id": 0}
    tables = of_kernels(
        work(**one, kernel="gemm", flops=30, cost_role="main"),
        work(**one, kernel="split", flops=0, cost_role="helper", dur_ns=5),
    )
    sums = stored([tables], size=1)

    by_op, by_name = sums.summarize(["op"]), sums.summarize(["name"])

    assert by_op["tflops"].cells == [pytest.approx(30 / 15 / 1000)]
    assert by_name["kernel"].cells == ["gemm", "split"]
    assert by_name["tflops"].cells == [pytest.approx(30 / 10 / 1000), None]
    assert sums.select({"kernel": "split"}).total()["tflops"] is None


def test_a_helper_of_an_op_without_work_helps_with_nothing() -> None:
    one, other = ({"op_id": op, "cost_op_id": op} for op in (0, 1))
    tables = of_kernels(
        work(**one, flops=30, cost_role="main"),
        work(**one, flops=0, cost_role="helper", dur_ns=5),
        work(**other, flops=0, cost_role="helper", dur_ns=7),
    )
    rate = 30 / 15 / 1000

    assert stored([tables], size=1).summarize(["op"])["tflops"].cells == [pytest.approx(rate)]
    assert summarize(rows_of([tables]), ["op"])["tflops"].tolist() == [pytest.approx(rate)]


def test_whole_numbers_stay_exact_beyond_what_floats_hold() -> None:
    large = 2**53 + 1
    rows = [work(flops=large, bytes=1), work(flops=1, bytes=large), work(flops=1, bytes=0)]
    found = stored([of_kernels(*rows)]).summarize(["op"])

    assert found["flops"].cells == [large + 2]
    assert found["bytes"].cells == [large + 1]


def test_sums_that_64_bits_do_not_hold_are_not_stored() -> None:
    rows = [work(flops=2**62), work(flops=2**62)]

    sums, calls = sums_of_rank(parted(of_kernels(*rows)), 0)

    assert (sums.num_rows, calls.num_rows) == (0, 0)


def test_more_rows_than_are_wanted_are_not_stored() -> None:
    tables = of_kernels(*(work(kernel=f"k{number}") for number in range(3)))

    assert [t.num_rows for t in sums_of_rank(parted(tables), 0, most=3)] == [3, 0]
    assert [t.num_rows for t in sums_of_rank(parted(tables), 0, most=2)] == [0, 0]


def test_nothing_that_ran_on_a_device_has_no_sums() -> None:
    assert [t.num_rows for t in sums_of_rank(parted(of_kernels()), 0)] == [0, 0]


def test_what_is_held_does_not_grow_with_the_kernels_that_help() -> None:
    def most_held(count: int) -> int:
        one = {"op_id": 0, "cost_op_id": 0, "cost_role": "helper"}
        tables = parted(of_kernels(work(cost_role="main"), *[work(**one)] * count), 100)
        tracemalloc.start()
        sums_of_rank(tables, 0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    most_held(100)  # what is made once

    assert most_held(10_000) < most_held(1_000) + 100_000


@settings(max_examples=8, deadline=None, phases=PHASES)
@given(st.integers(0, 10**9))
def test_rates_do_not_depend_on_the_order_of_rows(seed: int) -> None:
    rows = rows_of([tables_of(seed, 0)])
    shuffled = rows.sample(frac=1, random_state=seed % 2**32).reset_index(drop=True)

    pd.testing.assert_frame_equal(
        summarize(rows, ["op"], more=True), summarize(shuffled, ["op"], more=True), check_exact=True
    )


def test_flops_beyond_what_floats_hold_add_up_in_any_order() -> None:
    large = [work(flops=flops) for flops in (2**53, 1, 1)]
    rates = [
        summarize(rows_of([of_kernels(*rows)]), ["op"])["tflops"].tolist()
        for rows in (large, large[::-1])
    ]

    assert rates[0] == rates[1] == [(2**53 + 2) / 30 * 1e-3]


def test_the_roof_of_a_sum_is_the_exact_one() -> None:
    """Least times as fractions: of one kernel with so much percent of its own time."""
    percents = [33.3, 0.1, 77.7, 1e-3]
    rows = [
        work(op_id=0, cost_op_id=at, roofline_pct=pct, op_time_ns=1009, dur_ns=1009, flops=1)
        for at, pct in enumerate(percents[:3])
    ]
    found = stored([of_kernels(*rows)]).summarize(["op"])["roofline_pct"].cells[0]

    exact = sum(Fraction(pct) * 1009 for pct in percents[:3]) / (3 * 1009)
    assert found == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize("rows", [[[0, 1]], [[-1]], [[None]]])
def test_rows_that_do_not_exist_are_seen(rows: list[list[int | None]]) -> None:
    assert names_rows({"helps": [None]}, {"rows": [[0]]})
    assert not names_rows({"helps": [None]}, {"rows": rows})
    assert not names_rows({"helps": rows}, {"rows": []})


def test_rows_are_put_in_order_as_dataframes_are() -> None:
    made = pd.DataFrame({"n": [3.0, None, 3.0, 1.0], "t": ["b", "a", None, "c"], "at": range(4)})
    table = listed(made)

    for name, rises in (("n", True), ("n", False), ("t", True), ("t", False)):
        values = made[name]
        up = rises or name == "t"
        wanted = values.sort_values(ascending=up, kind="stable").index.tolist()
        assert in_order(table, [(name, rises)]) == wanted, (name, rises)


def test_every_column_that_is_added_is_made() -> None:
    assert set(summed.NEEDED) <= set(canonical("kernels").column_names)
