"""Sums of a rank, stored: what is made of them is what is made of the kernels themselves."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pyprof2.analysis.chunked import chunks_of
from pyprof2.analysis.summaries.profile import Sums, select
from pyprof2.analysis.summaries.profile_columns import AXES, MORE_COLUMNS, SUMMARY_COLUMNS, UNSTORED
from pyprof2.analysis.summaries.rows import activity_parts
from pyprof2.analysis.summaries.sum_tables import ALWAYS, sums_stored
from pyprof2.analysis.summaries.sums import stored_sums, sums_of_rank
from pyprof2.columns import as_pandas, with_text
from pyprof2.reports.cells import in_order, listed
from tests.builders import canonical, chunked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
            "device_type": some("cuda", "hip"), "grid": some(None, "1,1,1", "2,1,1"),
        }  # fmt: skip

    return [kernel(number) for number in range(count)]


def tables_of(seed: int, rank: int) -> dict[str, pa.Table]:
    """Return the kernels, copies and ops of a rank."""
    work = some_work(seed, rank, 40)
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


def stored(tables: Sequence[Mapping[str, pa.Table]], size: int | None = None) -> Sums:
    """Return the stored sums of ranks whose tables are read in parts of so many rows."""
    found = [usual(stored_sums(chunked(own, size), rank)) for rank, own in enumerate(tables)]
    return Sums.together([each for each in found if each is not None])


def usual(made: Mapping[str, pa.Table]) -> Sums | None:
    """Return the sums by the usual keys of what is stored."""
    return sums_stored(made["sums"], made["sum_calls"])


def along(tables: Sequence[Mapping[str, pa.Table]], axis: str, size: int | None = None) -> Sums:
    """Return the stored sums of ranks along one of the other axes."""
    made = [stored_sums(chunked(own, size), rank) for rank, own in enumerate(tables)]
    found = [sums_stored(each["axis_sums"], each["axis_sum_calls"], axis) for each in made]
    return Sums.together([each for each in found if each is not None])


def made(
    tables: Sequence[Mapping[str, pa.Table]],
    keys: Sequence[str],
    size: int | None = None,
    **selection: Any,
) -> Sums:
    """Return the sums by some keys of the rows that fit, as a run makes what is not stored."""

    def of_rank(rank: int, own: Mapping[str, pa.Table]) -> Sums:
        cut = chunked(own, size)
        return sums_of_rank(
            lambda names, keep=None: activity_parts(
                lambda n, stored: chunks_of(cut[n], stored), names, keep=keep
            ),
            [*keys, *ALWAYS], rank, op_count=own["ops"].num_rows, selection=selection,
        )  # fmt: skip

    return Sums.together([of_rank(*each) for each in enumerate(tables)])


def rows_of(tables: Sequence[Mapping[str, pa.Table]]) -> pd.DataFrame:
    """Return kernels and copies of all ranks as rows, with the least time of each, in ns."""
    names = [*canonical("kernels").column_names, "library", "tensor_core_missed"]
    parts = [
        part
        for own in tables
        for part in activity_parts(lambda name, stored: [own[name].select(stored)], names)  # noqa: B023
    ]
    rows = as_pandas(pa.concat_tables(parts).unify_dictionaries(), ("rank", "dur_ns"))
    rows = with_text(rows, ["op", "kernel"])
    rows["works"] = rows["cost_role"].isna() | (rows["cost_role"] == "main")
    rows["of"] = rows["rank"] * 10**6 + rows["cost_op_id"].fillna(-1).astype("int64")
    working = rows["dur_ns"].where(rows["works"], 0).groupby(rows["of"]).transform("sum")
    has_roof = rows["roofline_pct"].notna().groupby(rows["of"]).transform("any")
    part = rows["dur_ns"] / working.where(working > 0).astype("float64")
    least = rows["roofline_pct"] / 100 * rows["op_time_ns"].astype("float64") * part
    rows["least_ns"] = least.where(rows["works"] | ~has_roof, 0)
    return rows


def grouped(
    rows: pd.DataFrame,
    by: Sequence[str],
    known: dict[tuple[int, ...], dict[str, Any]] | None = None,
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return what sums have for each key: a group-by of the rows, one group after another.

    Args:
        rows: the rows.
        by: the axes.
        known: what other axes of the same rows have, by place of the rows.
    """
    every = rows.astype(object).where(rows.notna(), None).to_dict("records")
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at, row in enumerate(every):
        none = {
            axis: None if axis in ("step", "device", "stream", "rank") else "(none)" for axis in by
        }
        key = tuple(none[axis] if row[AXES[axis]] is None else row[AXES[axis]] for axis in by)
        groups.setdefault(key, []).append(at)
    whole = sum(row["dur_ns"] for row in every)
    known = {} if known is None else known  # many axes part the rows alike
    for places in map(tuple, groups.values()):
        if places not in known:
            known[places] = one_group([every[at] for at in places], whole)
    return {key: known[tuple(at)] for key, at in groups.items()}


def one_group(rows: Sequence[Mapping[Any, Any]], whole: int) -> dict[str, Any]:
    """Return the columns of sums of rows of one key."""
    kernels = [row for row in rows if row["category"] not in ("memcpy", "memset")]
    has_flops = not kernels or any(row["flops"] is not None for row in kernels)
    sized = not kernels or any(
        row["bytes"] is not None and row["cost_status"] != "in_parent" for row in kernels
    )
    works = {row["of"] for row in rows if row["works"]}
    beside = [row for row in rows if row["of"] in works]
    used = [
        row for row in rows
        if row["tensor_core_eligible"] and (row["flops"] or 0) > 0 and row["tensor_core"] == "yes"
    ]  # fmt: skip
    missed = [row for row in rows if row["tensor_core_missed"] is not None]
    judged = [row for row in rows if row["tensor_core"] in ("yes", "no")]
    time, could = time_of(rows), time_of([*missed, *used])

    def counts(name: str, among: Sequence[Mapping[Any, Any]] = rows) -> list[Any]:
        hidden = name == "flops" and not has_flops
        return [None if hidden or row["cost_status"] == "in_parent" else row[name] for row in among]

    def over_time(values: Sequence[Any], among: Sequence[Mapping[Any, Any]]) -> float:
        return ratio(values, [row["dur_ns"] for row in among])

    flag, flagged = most("roofline_flag", rows)
    costed = [row for row in rows if row["cost_status"] in COSTED]
    yes = [row for row in judged if row["tensor_core"] == "yes"]
    return {
        "count": len(rows), "time_ns": time, "mean_ns": time / len(rows),
        "op_calls": len({(r["rank"], r["op_id"]) for r in rows if r["op_id"] is not None}),
        "share_pct": 100 * time / whole if whole else None,
        "min_ns": min(r["dur_ns"] for r in rows), "max_ns": max(r["dur_ns"] for r in rows),
        "flops": total(counts("flops")), "bytes": total(counts("bytes")),
        "tflops": over_time(counts("flops", beside), beside) / 1000,
        "gbps": over_time(counts("bytes", beside), beside) if sized else None,
        "intensity": ratio(counts("flops"), counts("bytes")) if sized else None,
        "roofline_pct": 100 * over_time([row["least_ns"] for row in beside], beside),
        "tensor_core_pct": 100 * ratio([time_of(yes)], [time_of(judged)]),
        "costed_pct": 100 * ratio([time_of(costed)], [time]),
        "tensor_core_missed_ns": time_of(missed) if missed or used else None,
        "tensor_core_missed_pct": 100 * ratio([time_of(missed)], [could]),
        "tensor_core_missed": most("tensor_core_missed", rows)[0],
        "roofline_flag": flag if flagged >= time_of([r for r in rows if r["works"]]) / 2 else None,
    }  # fmt: skip


def time_of(rows: Sequence[Mapping[Any, Any]]) -> int:
    return sum(row["dur_ns"] for row in rows)


def total(values: Sequence[Any]) -> Any:
    """Return the sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def ratio(above: Sequence[Any], below: Sequence[Any]) -> float:
    """Return sum over sum of what is known of both; not a number where the lower one is 0."""
    known = [pair for pair in zip(above, below, strict=True) if None not in pair]
    bottom = sum(low for _, low in known)
    return float(sum(high for high, _ in known)) / bottom if bottom else float("nan")


def most(name: str, rows: Sequence[Mapping[Any, Any]]) -> tuple[str | None, int]:
    """Return the text of most of the time, the first of equals, and its time."""
    sums = Counter[str]()
    for row in rows:
        if row[name] is not None:
            sums[row[name]] += row["dur_ns"]
    text = min(sums, key=lambda each: (-sums[each], each), default=None)
    return text, sums[text or ""]


COSTED = ("ok", "assumed", "in_parent")
QUERIES: tuple[dict[str, Any], ...] = (
    {}, {"op": "mm"}, {"layer": "a"}, {"kernel": "gemm|split"}, {"range": "x"}, {"rank": 1},
    {"direction": ["forward", "(none)"]}, {"category": ["matmul", "memset"]}, {"stream": [7]},
    {"copies": False}, {"op": "no such op"},
)  # fmt: skip
BY = (
    *([axis] for axis in AXES if axis not in UNSTORED), ["step", "op"],
    ["op", "name"], ["stream", "rank"],
    ["layer", "direction"], ["source", "library", "category"],
)  # fmt: skip


def assert_equal(found: Mapping[str, Any], wanted: Mapping[str, Any], where: object) -> None:
    for name, value in wanted.items():
        if value is None or pd.isna(value):
            assert found[name] is None, (where, name)
        elif isinstance(value, float):
            assert found[name] == pytest.approx(value, rel=1e-12), (where, name)
        else:
            assert found[name] == value, (where, name)


@settings(max_examples=2, deadline=None, phases=PHASES)
@given(st.integers(0, 10**9), st.sampled_from((3, 7, 40, None)))
def test_sums_stored_or_not_are_those_of_a_group_by(seed: int, size: int | None) -> None:
    tables = [tables_of(seed, rank) for rank in (0, 1)]
    sums, rows = stored(tables, size), rows_of(tables)
    names = [column.name for column in (*SUMMARY_COLUMNS, *MORE_COLUMNS)]

    for selection in QUERIES:
        kept = select(rows, **selection)
        known: dict[tuple[int, ...], dict[str, Any]] = {}
        for by in BY if not selection else BY[-2:]:
            keys = [AXES[axis] for axis in by]
            wanted = grouped(kept, by, known)
            own = made(tables, keys, size, **selection)
            for each in (sums.select(**selection), own) if "step" not in by else (own,):
                found = each.summarize(by).to_pylist()
                assert {tuple(row[key] for key in keys) for row in found} == wanted.keys(), by
                assert len(found) == len(wanted)
                for row in found:
                    assert list(row) == [*keys, *names]
                    assert_equal(row, wanted[tuple(row[key] for key in keys)], (selection, by))
        if len(kept):
            (all_rows,) = grouped(kept, []).values()
            shown = {column.name: all_rows[column.name] for column in SUMMARY_COLUMNS}
            assert_equal(sums.select(**selection).total(), shown, selection)


@settings(max_examples=2, deadline=None, phases=PHASES)
@given(st.integers(0, 10**9), st.sampled_from((1, 7, None)))
def test_sums_stored_along_other_axes_are_those_of_a_group_by(seed: int, size: int | None) -> None:
    tables = [tables_of(seed, rank) for rank in (0, 1)]
    rows = rows_of(tables)

    for axis, by in (
        ("step", ["step"]), ("step", ["rank", "step"]), ("launch", ["grid"]),
        ("launch", ["tensor_core", "grid"]),
    ):  # fmt: skip
        found = along(tables, axis, size).summarize(by).to_pylist()
        wanted = grouped(rows, by)
        assert len(found) == len(wanted)
        for row in found:
            assert_equal(row, wanted[tuple(row[key] for key in by)], by)


@pytest.mark.parametrize("selection", [{"step": (1, 1)}, {"step": (1, 2), "op": "mm"}])
def test_steps_are_chosen_before_rows_are_added_up(selection: dict[str, Any]) -> None:
    tables = [tables_of(11, rank) for rank in (0, 1)]

    found = made(tables, ["op"], 7, **selection).summarize(["op"]).to_pylist()

    wanted = grouped(select(rows_of(tables), **selection), ["op"])
    for row in found:
        assert_equal(row, wanted.pop((row["op"],)), selection)
    assert not wanted


@pytest.mark.parametrize(("depth", "fold"), [(1, False), (None, True), (1, True)])
def test_paths_are_cut_and_numbers_folded(depth: int | None, fold: bool) -> None:  # noqa: FBT001
    tables = [tables_of(5, 0)]
    found = stored(tables).summarize(["range", "layer"], depth, fold_numbers=fold)

    rows = rows_of(tables).astype({"range": object, "layer": object})
    for name, separator in (("range", " / "), ("layer", ".")):
        cut = rows[name].str.split(separator).str[:depth].str.join(separator)
        rows[name] = cut.str.replace(r"\d+", "N", regex=True) if fold and name == "range" else cut
    wanted = grouped(rows, ["range", "layer"])
    assert {(row["range"], row["layer"]): row["time_ns"] for row in found.to_pylist()} == {
        key: row["time_ns"] for key, row in wanted.items()
    }


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

    assert sums.summarize(["op"])["op_calls"].to_pylist() == [2]
    assert sums.summarize(["name"])["op_calls"].to_pylist() == [2, 1]


def test_the_time_of_a_helper_counts_only_beside_the_work_it_helps() -> None:
    """Of 30 FLOPs in 10 ns of work and 5 ns of help: 2 with the help, 3 without."""
    one = {"op_id": 0, "cost_op_id": 0}
    tables = of_kernels(
        work(**one, kernel="gemm", flops=30, cost_role="main"),
        work(**one, kernel="split", flops=0, cost_role="helper", dur_ns=5),
    )
    sums = stored([tables], size=1)

    by_op, by_name = sums.summarize(["op"]), sums.summarize(["name"])

    assert by_op["tflops"].to_pylist() == [pytest.approx(30 / 15 / 1000)]
    assert by_name["kernel"].to_pylist() == ["gemm", "split"]
    assert by_name["tflops"].to_pylist() == [pytest.approx(30 / 10 / 1000), None]
    assert sums.select(kernel="split").total()["tflops"] is None


def test_a_helper_of_an_op_without_work_helps_with_nothing() -> None:
    one, other = ({"op_id": op, "cost_op_id": op} for op in (0, 1))
    tables = of_kernels(
        work(**one, flops=30, cost_role="main"),
        work(**one, flops=0, cost_role="helper", dur_ns=5),
        work(**other, flops=0, cost_role="helper", dur_ns=7),
    )
    rate = 30 / 15 / 1000

    for sums in (stored([tables], size=1), made([tables], ["op"])):
        assert sums.summarize(["op"])["tflops"].to_pylist() == [pytest.approx(rate)]


def test_whole_numbers_stay_exact_beyond_what_floats_hold() -> None:
    large = 2**53 + 1
    rows = [work(flops=large, bytes=1), work(flops=1, bytes=large), work(flops=1, bytes=0)]
    found = stored([of_kernels(*rows)]).summarize(["op"])

    assert found["flops"].to_pylist() == [large + 2]
    assert found["bytes"].to_pylist() == [large + 1]


def test_sums_that_64_bits_do_not_hold_are_not_stored() -> None:
    rows = [work(flops=2**62), work(flops=2**62)]

    found = stored_sums(chunked(of_kernels(*rows)), 0)

    assert {table.num_rows for table in found.values()} == {0}


def test_more_rows_than_are_wanted_are_not_stored() -> None:
    tables = of_kernels(*(work(kernel=f"k{number}") for number in range(3)))

    found = [stored_sums(chunked(tables), 0, most=most) for most in (3, 2)]

    # Along the other axes all kernels are one.
    assert [each["sums"].num_rows for each in found] == [3, 0]
    assert [each["axis_sums"].num_rows for each in found] == [2, 2]


def test_nothing_that_ran_on_a_device_has_no_sums() -> None:
    assert {t.num_rows for t in stored_sums(chunked(of_kernels()), 0).values()} == {0}


def test_what_is_held_does_not_grow_with_the_kernels_that_help() -> None:
    def most_held(count: int) -> int:
        one = {"op_id": 0, "cost_op_id": 0, "cost_role": "helper"}
        tables = chunked(of_kernels(work(cost_role="main"), *[work(**one)] * count), 100)
        tracemalloc.start()
        stored_sums(tables, 0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    most_held(100)  # what is made once

    assert most_held(10_000) < most_held(1_000) + 100_000


@settings(max_examples=8, deadline=None, phases=PHASES)
@given(st.integers(0, 10**9))
def test_rates_do_not_depend_on_the_order_of_rows(seed: int) -> None:
    tables = tables_of(seed, 0)
    chance = np.random.default_rng(seed)
    shuffled = {
        name: table.take(pa.array(chance.permutation(table.num_rows)))
        for name, table in tables.items()
    }

    assert made([tables], ["op"]).summarize(["op"]) == made([shuffled], ["op"]).summarize(["op"])


def test_flops_beyond_what_floats_hold_add_up_in_any_order() -> None:
    large = [work(flops=flops) for flops in (2**53, 1, 1)]
    rates = [
        made([of_kernels(*rows)], ["op"]).summarize(["op"])["tflops"].to_pylist()
        for rows in (large, large[::-1])
    ]

    assert rates[0] == rates[1] == [(2**53 + 2) / 30 * 1e-3]


def test_a_helper_of_one_rank_is_none_of_the_work_of_an_op_of_another() -> None:
    """By name, `k` of rank 0 does 10 FLOPs in 1000 ns; of rank 1 it helps `m`, of the same op."""
    work = {"dur_ns": 1000, "cost_op_id": 0, "op_time_ns": 1000, "tflops": 1e-5, "flops": 10}
    main = {"cost_role": "main"}
    helper = {"dur_ns": 1000, "cost_op_id": 0, "flops": 0, "cost_role": "helper"}
    ranks = [
        canonical("kernels", {"kernel": "k", "rank": 0} | main | work),
        canonical(
            "kernels",
            {"kernel": "m", "rank": 1} | main | work,
            {"kernel": "k", "rank": 1} | helper,
        ),
    ]

    tables = [
        {"kernels": kernels, "copies": canonical("copies"), "ops": canonical("ops", {})}
        for kernels in ranks
    ]

    for sums in (made(tables, ["kernel"]), stored(tables)):
        rates = {row["kernel"]: row["tflops"] for row in sums.summarize(["name"]).to_pylist()}
        assert rates == {"k": pytest.approx(1e-5), "m": pytest.approx(1e-5)}


def test_the_roof_of_a_sum_is_the_exact_one() -> None:
    """Least times as fractions: of one kernel with so much percent of its own time."""
    percents = [33.3, 0.1, 77.7, 1e-3]
    rows = [
        work(op_id=0, cost_op_id=at, roofline_pct=pct, op_time_ns=1009, dur_ns=1009, flops=1)
        for at, pct in enumerate(percents[:3])
    ]
    found = stored([of_kernels(*rows)]).summarize(["op"])["roofline_pct"][0].as_py()

    exact = sum(Fraction(pct) * 1009 for pct in percents[:3]) / (3 * 1009)
    assert found == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize("rows", [[0, 1], [-1], [None]])
def test_rows_that_do_not_exist_are_seen(rows: list[int | None]) -> None:
    found = stored_sums(chunked(of_kernels(work(op_id=0))), 0)
    sums, calls = found["sums"], found["sum_calls"]

    def altered(table: pa.Table, name: str) -> pa.Table:
        lists = pa.array([rows], pa.list_(pa.int64()))
        return table.set_column(table.column_names.index(name), table.schema.field(name), lists)

    assert sums_stored(sums, calls) is not None
    assert sums_stored(altered(sums, "helped_rows"), calls) is None
    assert sums_stored(sums, altered(calls, "rows")) is None


def test_rows_are_put_in_order_as_dataframes_are() -> None:
    made = pd.DataFrame({"n": [3.0, None, 3.0, 1.0], "t": ["b", "a", None, "c"], "at": range(4)})
    table = listed(made)

    for name, rises in (("n", True), ("n", False), ("t", True), ("t", False)):
        values = made[name]
        up = rises or name == "t"
        wanted = values.sort_values(ascending=up, kind="stable").index.tolist()
        assert in_order(table, [(name, rises)]) == wanted, (name, rises)
