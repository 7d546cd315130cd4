"""Two runs compared: terms by hand, and that they add up whatever the runs are."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof2.analysis.summaries.compare import Comparison, Side, compare_sides
from pyprof2.analysis.summaries.compared_calls import CallSums, without_dtypes
from pyprof2.analysis.summaries.compared_sides import columns_of

STEP_NS = 1_000


def row(
    step: int, at: int, dur: int, op_id: int | None, op: str | None = "aten::x", **other: Any
) -> dict[str, Any]:
    """Return a kernel's row: the begin `at` counts from that of its step."""
    return {
        "rank": 0, "device": 0, "start_ns": step * STEP_NS + at, "dur_ns": dur, "op_id": op_id,
        "call_id": None, "op": op, "layer": "net", "direction": "forward", "signature": "s1",
        "kernel": "k1", "category": "matmul", "copy_kind": None,
    } | other  # fmt: skip


def side(
    rows: list[dict[str, Any]], lengths: list[int], idle: dict[str, int] | None = None
) -> Side:
    """Return a side whose steps have these lengths; busy is counted ns by ns.

    The rest of the windows is idle, by the causes given; what these leave is `sync`, in step 0.
    """
    frame = pd.DataFrame(rows).astype({"op_id": "Int64", "call_id": "Int64"})
    windows = pd.DataFrame(
        {
            "rank": 0,
            "step": np.arange(len(lengths)),
            "start_ns": np.arange(len(lengths)) * STEP_NS,
            "end_ns": np.arange(len(lengths)) * STEP_NS + lengths,
            "device": 0,
        }
    )
    busy_at = {ns for r in rows for ns in range(r["start_ns"], r["start_ns"] + r["dur_ns"])}
    busy = [
        sum(s <= ns < e for ns in busy_at)
        for s, e in zip(windows["start_ns"], windows["end_ns"], strict=True)
    ]
    idle = dict(idle or {})
    idle["sync"] = sum(lengths) - sum(busy) - sum(idle.values())
    spent = pd.DataFrame(
        [(0, cause, ns) for cause, ns in idle.items() if ns], columns=["step", "cause", "time_ns"]
    )
    calls = CallSums(windows)
    calls.add(columns_of(frame))
    return Side.of(calls, windows.assign(busy_ns=busy), spent)


def deltas(found: Comparison) -> dict[str, Fraction]:
    """Return the terms that are not 0."""
    return {
        term: delta
        for term, delta in zip(found.terms["term"], found.terms["delta_ns"], strict=True)
        if delta
    }


def assert_adds_up(found: Comparison) -> None:
    a, b = found.step_ns
    assert {type(delta) for delta in found.terms["delta_ns"]} <= {Fraction, int}
    assert sum(found.terms["delta_ns"], Fraction(0)) == b - a


def test_the_example_by_hand() -> None:
    """A: x twice, 10 each, idle 5. B, 2 steps: 4 of s1 with k2, 12 each; 2 of s2 with k1, 20."""
    a = side([row(0, 0, 10, 0), row(0, 10, 10, 1)], [25])
    first = [row(0, 0, 12, 0, kernel="k2"), row(0, 10, 12, 1, kernel="k2")]
    second = [row(1, 0, 12, 3, kernel="k2"), row(1, 10, 12, 4, kernel="k2")]
    shapes = [row(0, 22, 20, 2, signature="s2"), row(1, 22, 20, 5, signature="s2")]
    b = side([*first, *second, *shapes], [50, 50])

    found = compare_sides(a, b)

    assert found.step_ns == (Fraction(25), Fraction(50))
    assert found.steps == (1, 2)
    assert deltas(found) == {
        "calls": Fraction(37, 3),
        "shapes": Fraction(15, 2),
        "kernel choice": Fraction(25, 6),
        "overlap": -2,
        "idle: sync": 3,
    }
    assert_adds_up(found)


F32 = "aten::addmm([8] f32, [4,2] f32, [2,8] f32, 1)"
BF16 = "aten::addmm([8] bf16, [4,2] bf16, [2,8] bf16, 1)"
CAST = "aten::copy_([4,2] bf16, [4,2] f32, False)"


def test_the_same_dims_in_another_dtype_are_another_precision() -> None:
    """A: 2 calls of 30 in f32. B: 2 of 10 in bf16, with another kernel, and 2 casts of 3."""
    a = side([row(0, 30 * n, 30, n, signature=F32) for n in (0, 1)], [100])
    half = [row(0, 10 * n, 10, n, signature=BF16, kernel="k2") for n in (0, 1)]
    casts = [row(0, 50 + n, 3, n, "aten::copy_", signature=CAST, kernel="c") for n in (5, 8)]
    b = side([*half, *casts], [90])

    found = compare_sides(a, b)

    assert deltas(found) == {"precision": -40 + 6, "idle: sync": 24}
    assert_adds_up(found)
    assert deltas(compare_sides(b, a)) == {"precision": 34, "idle: sync": -24}


def test_dims_that_change_with_the_dtype_are_shapes() -> None:
    other = BF16.replace("[4,2]", "[4,4]").replace("[2,8]", "[4,8]")
    a = side([row(0, 0, 30, 0, signature=F32)], [50])
    b = side([row(0, 0, 40, 0, signature=other)], [60])

    assert deltas(compare_sides(a, b)) == {"shapes": 10}


def test_a_part_in_half_precision_is_weighed_within_its_dims() -> None:
    """Of 4 calls of one dims 1 and then 3 are in bf16, with 30 and 10 each: 2 · -20."""

    def mixed(count: int) -> Side:
        rows = [
            row(0, 40 * n, 10 if n < count else 30, n, signature=BF16 if n < count else F32)
            for n in range(4)
        ]
        return side([*rows, row(0, 200, 7, 9, signature="s9")], [300])

    assert deltas(compare_sides(mixed(1), mixed(3))) == {"precision": -40, "idle: sync": 40}


def test_what_makes_tensors_of_a_dtype_differs_in_that_alone() -> None:
    texts = ["aten::empty([64,6], 15, 0, -)", "aten::empty([64,6], 6, 0, -)", F32, BF16]

    dims = [without_dtypes(text) for text in texts]

    assert dims[0] == dims[1]
    assert dims[2] == dims[3]
    assert without_dtypes("aten::add([6] f32, 6)") != without_dtypes("aten::add([6] f32, 5)")


BASE = [
    row(0, 0, 30, 0),
    row(0, 40, 20, 1, op="aten::y", signature="t1"),
    row(0, 60, 5, None, None, category="memcpy", copy_kind="h2d", kernel="copy", layer=None),
    row(0, 70, 9, 2, op="c10d::allreduce_", category="comm", kernel="nccl"),
]


def edited(at: int, **changes: Any) -> list[dict[str, Any]]:
    return [r | changes if n == at else r for n, r in enumerate(BASE)]


@pytest.mark.parametrize(
    ("after", "term", "delta"),
    [
        pytest.param(edited(0, dur_ns=36), "kernel speed", 6, id="slower"),
        pytest.param(edited(0, kernel="k9", dur_ns=33), "kernel choice", 3, id="other kernel"),
        pytest.param(edited(0, signature="s9", dur_ns=37), "shapes", 7, id="other shape"),
        pytest.param([*BASE, row(0, 80, 30, 9)], "calls", 30, id="one more call"),
        pytest.param([*BASE, row(0, 80, 3, 9, op="aten::z", layer="n")], "new", 3, id="new"),
        pytest.param(BASE[1:], "gone", -30, id="gone"),
        pytest.param(edited(0, op="aten::fused", dur_ns=22), "replaced", -8, id="replaced"),
        pytest.param(edited(2, dur_ns=7), "copies: kernel speed", 2, id="slower copy"),
        pytest.param(edited(3, dur_ns=19), "communication", 10, id="waits for others"),
    ],
)
def test_an_edit_is_in_its_own_term(after: list[dict[str, Any]], term: str, delta: int) -> None:
    """Each edit leaves the step as long: what it takes is taken from the idle time."""
    found = compare_sides(side(BASE, [200]), side(after, [200]))

    assert deltas(found) == {term: delta, "idle: sync": -delta}


def test_a_gap_is_idle_time_by_its_cause() -> None:
    found = compare_sides(side(BASE, [200]), side(BASE, [250], {"data_loading": 50}))

    assert deltas(found) == {"idle: data_loading": 50}
    assert_adds_up(found)


def test_what_overlaps_counts_once() -> None:
    apart, together = row(0, 100, 20, 7), row(0, 10, 20, 7)
    found = compare_sides(side([*BASE, apart], [200]), side([*BASE, together], [180]))

    assert deltas(found) == {"overlap": -20}


def test_work_over_a_border_is_cut_there() -> None:
    """20 ns from 990: 5 in the first window, 5 between the two, 10 in the second: two calls."""
    rows = [row(0, 0, 10, 0), row(0, 990, 20, 1)]
    windows = [995, 100]
    found = compare_sides(side(rows, windows), side(rows[:1], windows))

    assert deltas(found)["calls"] == -(Fraction(25, 3) + 10) / 2
    assert deltas(found)["kernel speed"] == 10 - Fraction(25, 3)
    assert_adds_up(found)


def test_layers_of_other_names_are_not_compared() -> None:
    other = [r | {"layer": f"model.{r['layer']}"} for r in BASE]

    found = compare_sides(side(BASE, [200]), side(other, [200]))

    assert not found.layers_match
    assert deltas(found) == {}


durations = st.integers(0, 60)
kernels = st.builds(
    row,
    step=st.integers(0, 2),
    at=st.integers(0, 300),
    dur=durations,
    op_id=st.none() | st.integers(0, 5),
    op=st.just("aten::x"),
    signature=st.sampled_from(["s1", F32, BF16, CAST]),
    kernel=st.sampled_from(["k1", "k2"]),
    category=st.sampled_from(["matmul", "comm", "memcpy"]),
    layer=st.sampled_from(["a", "b", None]),
)


def whole(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in which an op has one name, one signature and one layer, in one step."""
    first: dict[int, dict[str, Any]] = {}
    for r in rows:
        if r["op_id"] is None:
            r.update(op=None, layer=None, direction=None, signature=None)
        else:
            same = first.setdefault(r["op_id"], r)
            r.update({name: same[name] for name in ("op", "layer", "signature")})
    return rows


rows_of_runs = st.lists(kernels, min_size=1, max_size=12).map(whole)
lengths_of_steps = st.lists(st.integers(1, 400), min_size=3, max_size=3)
runs = st.builds(side, rows_of_runs, lengths_of_steps)


@settings(max_examples=15)
@given(runs, runs)
def test_the_terms_add_up_and_turn_round(a: Side, b: Side) -> None:
    there, back = compare_sides(a, b), compare_sides(b, a)

    assert_adds_up(there)
    swapped = {"new": "gone", "gone": "new", "copies: new": "copies: gone"}
    swapped["copies: gone"] = "copies: new"
    assert deltas(back) == {swapped.get(t, t): -d for t, d in deltas(there).items()}
    assert sum(there.details["delta_ns"], Fraction(0)) == sum(
        d for t, d in deltas(there).items() if not t.startswith(("idle", "overlap"))
    )


@settings(max_examples=8)
@given(rows_of_runs, lengths_of_steps, st.randoms())
def test_a_run_with_itself_in_any_order_differs_in_nothing(
    rows: list[dict[str, Any]], lengths: list[int], random: Any
) -> None:
    shuffled = random.sample(rows, len(rows))

    assert deltas(compare_sides(side(rows, lengths), side(shuffled, lengths))) == {}


def test_an_interval_is_that_of_the_jackknife() -> None:
    """Steps of 100, 110 and 120 against 200 each: the mean's standard error is 10 / sqrt(3)."""
    a = side([row(n, 0, d, n) for n, d in enumerate((100, 110, 120))], [300, 300, 300])
    b = side([row(n, 0, 200, n) for n in range(3)], [300, 300, 300])

    (found,) = compare_sides(a, b).totals.query("metric == 'busy'").to_dict("records")

    assert (found["a_ns"], found["b_ns"]) == (110, 200)
    half = 2 * 10 / 3**0.5
    assert found["lo_ns"] == pytest.approx(90 - half)
    assert found["hi_ns"] == pytest.approx(90 + half)


def test_the_kernels_of_a_call_are_the_same_in_any_order() -> None:
    first = [row(0, 0, 10, 0, kernel="k1"), row(0, 10, 10, 0, kernel="k2")]
    second = [row(0, 0, 10, 0, kernel="k2"), row(0, 10, 13, 0, kernel="k1")]
    longer = [*first, row(0, 20, 3, 0, kernel="k2")]

    assert deltas(compare_sides(side(first, [20]), side(second, [23]))) == {"kernel speed": 3}
    assert deltas(compare_sides(side(first, [20]), side(longer, [23]))) == {"kernel choice": 3}


@given(runs)
def test_the_time_of_a_side_is_that_of_its_rows(run: Side) -> None:
    assert run.times["time_ns"].sum() == run.sums_ns.sum()


def test_the_time_of_ops_is_summed_by_op_signature_and_category() -> None:
    rows = [
        row(0, 0, 1, 0),
        row(0, 2, 2, 1, op="aten::y"),
        row(0, 5, 4, 2),
        row(0, 9, 8, None, op=None),
    ]

    times = side(rows, [20]).times

    found = zip(times["op"].astype(object).fillna("-"), times["time_ns"], strict=True)
    assert dict(found) == {"aten::x": 5, "aten::y": 2, "-": 8}


def test_two_steps_have_no_interval() -> None:
    a = side([row(n, 0, 10, n) for n in range(2)], [100, 100])

    assert compare_sides(a, a).terms["lo_ns"].isna().all()


def test_work_without_a_length_is_in_the_window_that_begins_with_it() -> None:
    found = side([row(0, 0, 10, 0), row(1, 0, 0, 1), row(1, 10, 0, 2)], [1000, 10])

    assert found.counts.sum(axis=0).tolist() == [1, 1]
