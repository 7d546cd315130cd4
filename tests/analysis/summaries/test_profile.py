"""What the profile adds up, divides and leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.axes import NONE
from pyprof2.analysis.summaries.profile import select
from pyprof2.analysis.summaries.profile_columns import AXES, MORE_COLUMNS, SUMMARY_COLUMNS
from pyprof2.errors import TableError, UsageError
from pyprof2.reports.cells import headers
from tests.builders import profile_rows, summarized, sums_of, total_of
from tests.counted_calls import calls_of

SUMS = ["count", "time_ns", "flops", "bytes"]


def one(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the only row of `frame`."""
    (row,) = frame.to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_a_rate_is_sum_over_sum_and_no_mean_of_rates() -> None:
    rows = profile_rows(
        {"op": "mm", "dur_ns": 1000, "flops": 6_000_000, "bytes": 3000},
        {"op": "mm", "dur_ns": 3000, "flops": 2_000_000, "bytes": 1000},
    )

    mm = one(summarized(rows, ["op"]))

    assert mm["tflops"] == 2.0  # 8 MFLOP in 4 us; the mean of 6 and 0.67 is 3.3
    assert mm["gbps"] == 1.0  # 4000 B in 4000 ns
    assert mm["intensity"] == 2000.0


def test_the_largest_rate_is_that_of_a_kernel_that_is_known() -> None:
    rows = profile_rows(
        {"op": "mm", "gbps": 3.0, "dur_ns": 40}, {"op": "mm", "gbps": 7.5}, {"op": "mm"},
        {"op": "mm", "gbps": 7.25, "rank": 1}, {"op": "relu", "gbps": 0.0, "dur_ns": 3},
        {"op": "add", "dur_ns": 2},
    )  # fmt: skip
    sums = sums_of(rows, "op", means=("max_gbps",))

    found = sums.summarize(["op"], means=("max_gbps",))

    assert found.select(["op", "max_gbps"]).to_pydict() == {
        "op": ["mm", "relu", "add"], "max_gbps": [7.5, 0.0, None],
    }  # fmt: skip
    assert sums.select(rank=1).summarize(["op"], means=("max_gbps",))["max_gbps"].to_pylist() == [
        7.25
    ]
    assert headers("max_gbps") == {"max GB/s"}


def test_time_whose_work_is_unknown_does_not_dilute_a_rate() -> None:
    rows = profile_rows(
        {"dur_ns": 1000, "flops": 5_000_000, "bytes": 4000, "cost_status": "ok"},
        {"dur_ns": 3000, "cost_status": "no_formula"},
    )

    total = total_of(rows)

    assert total["tflops"] == 5.0
    assert total["gbps"] == 4.0
    assert total["costed_pct"] == 25.0


def test_copies_do_not_tell_that_kernels_of_unknown_work_did_none() -> None:
    """A memset beside a product without shapes; and what a copy says where it is alone."""
    copy = {"category": "memcpy", "flops": 0, "bytes": 8, "cost_status": "ok"}
    product = {"category": "matmul", "cost_status": "no_shapes"}
    counted = {"category": "matmul", "flops": 5, "bytes": 2, "cost_status": "ok"}

    found = summarized(
        profile_rows(
            copy | {"op": "mm"}, product | {"op": "mm"},
            copy | {"op": "both"}, product | {"op": "both"}, counted | {"op": "both"},
            copy | {"op": "copy_"},
        ),
        ["op"],
    ).set_index("op")  # fmt: skip

    assert found.loc[["mm"], ["flops", "tflops"]].isna().all(axis=None)
    assert found.loc[["both", "copy_"], "flops"].tolist() == [5, 0]
    assert found.loc[["mm", "both", "copy_"], "bytes"].tolist() == [8, 10, 8]


@pytest.mark.parametrize("category", ["memset", "memcpy"])
def test_copies_do_not_tell_the_bytes_of_kernels_that_nobody_knows(category: str) -> None:
    """FLOPs are known and bytes are not: no quotient is of the copies beside them alone."""
    copy = {"dur_ns": 10, "flops": 0, "bytes": 4096, "category": category, "cost_status": "ok"}
    product = {"dur_ns": 1000, "flops": 2_000_000, "category": "matmul", "cost_status": "assumed"}
    found = total_of(profile_rows(product, copy))
    assert [found[name] for name in ("flops", "gbps", "intensity")] == [2_000_000, None, None]
    # With a kernel whose bytes are known, they are quotients of what is known.
    more = {"dur_ns": 100, "flops": 100, "bytes": 50, "category": "elementwise"}
    known = total_of(profile_rows(product, copy, more | {"cost_status": "ok"}))
    assert (known["bytes"], known["intensity"]) == (4146, 100 / 4146)
    alone = total_of(profile_rows(copy))
    assert (alone["gbps"], alone["intensity"]) == (409.6, 0)


def test_intensity_needs_both_counts_of_a_row() -> None:
    rows = profile_rows({"flops": 100, "bytes": 50}, {"flops": 900}, {"bytes": 7})

    assert total_of(rows)["intensity"] == 2.0


def test_roofline_is_the_time_that_the_roof_allows_over_the_time_taken() -> None:
    rows = profile_rows(
        {"dur_ns": 1000, "roofline_pct": 50.0},  # 500 ns would do
        {"dur_ns": 3000, "roofline_pct": 100.0},
        {"dur_ns": 9000},
    )

    assert total_of(rows)["roofline_pct"] == 87.5


def test_tensor_core_share_is_of_the_time_with_a_verdict() -> None:
    rows = profile_rows(
        {"dur_ns": 1000, "tensor_core": "yes"},
        {"dur_ns": 3000, "tensor_core": "no"},
        {"dur_ns": 5000, "tensor_core": "unknown"},
        {"dur_ns": 7000},
    )

    assert total_of(rows)["tensor_core_pct"] == 25.0


def test_where_nothing_is_known_all_is_null_and_nothing_is_zero() -> None:
    known = one(summarized(profile_rows({"dur_ns": 1000}), ["rank"]))

    null = ["flops", "bytes", "tflops", "gbps", "intensity", "roofline_pct", "tensor_core_pct"]
    assert all(pd.isna(known[name]) for name in null)
    assert known["costed_pct"] == 0.0


def test_counts_inside_an_op_that_has_them_are_not_counted_again() -> None:
    rows = profile_rows(
        {"dur_ns": 1000, "rate_ns": 4000, "flops": 8_000_000, "cost_status": "ok"},
        {"dur_ns": 3000, "rate_ns": 3000, "flops": 8_000_000, "cost_status": "in_parent"},
    )

    total = total_of(rows)

    assert total["flops"] == 8_000_000
    assert total["tflops"] == 2.0  # over the whole 4 us of the outer op
    assert total["time_ns"] == 4000
    assert total["costed_pct"] == 100.0


def test_null_keys_have_a_row_of_their_own() -> None:
    rows = profile_rows(
        {"op": "mm", "step": 3, "dur_ns": 3000},
        {"op": None, "step": None, "dur_ns": 5000},
    )

    by_op, by_step = summarized(rows, ["op"]), summarized(rows, ["step"])

    assert by_op["op"].tolist() == [NONE, "mm"]
    assert by_step["step"].isna().tolist() == [False, True]
    assert by_step["time_ns"].tolist() == [3000, 5000]


def test_the_longest_time_comes_first_and_ties_are_in_order_of_the_keys() -> None:
    rows = profile_rows(
        {"op": "b", "step": 2}, {"op": "b", "step": 1}, {"op": "a", "step": 9},
        {"op": "c", "dur_ns": 2000, "step": 5},
    )  # fmt: skip

    keys = summarized(rows, ["op", "step"])[["op", "step"]].to_numpy().tolist()

    assert keys == [["c", 5], ["a", 9], ["b", 1], ["b", 2]]


def test_columns_are_the_keys_and_then_the_documented_ones() -> None:
    frame = summarized(profile_rows({"layer": "a"}), ["layer", "name"])
    names = [column.name for column in (*SUMMARY_COLUMNS, *MORE_COLUMNS)]

    assert frame.columns.tolist() == ["layer", "kernel", *names]


@pytest.mark.parametrize("axis", AXES)
def test_no_rows_give_no_groups_with_the_same_columns(axis: str) -> None:
    rows = profile_rows({"op": "mm"})

    empty, full = summarized(rows[:0], [axis]), summarized(rows, [axis])

    assert len(empty) == 0
    assert empty.dtypes.astype(str).tolist() == full.dtypes.astype(str).tolist()


@pytest.mark.parametrize(
    ("depth", "time_ns"),
    [
        pytest.param(1, {"net": 7000, "head": 8000}, id="roots"),
        pytest.param(2, {"net": 1000, "net.0": 6000, "head": 8000}, id="children"),
        pytest.param(9, {"net": 1000, "net.0": 2000, "net.0.fc": 4000, "head": 8000}, id="all"),
    ],
)
def test_depth_cuts_the_path_of_a_layer_and_sums(depth: int, time_ns: dict[str, int]) -> None:
    rows = profile_rows(
        {"layer": "net", "dur_ns": 1000},
        {"layer": "net.0", "dur_ns": 2000},
        {"layer": "net.0.fc", "dur_ns": 4000},
        {"layer": "head", "dur_ns": 8000},
    )

    frame = summarized(rows, ["layer"], depth)

    assert dict(zip(frame["layer"], frame["time_ns"], strict=True)) == time_ns


def test_an_op_call_with_several_kernels_counts_once_and_ranks_number_their_own() -> None:
    rows = profile_rows(
        {"rank": 0, "op_id": 7, "kernel": "gemm"},
        {"rank": 0, "op_id": 7, "kernel": "splitk"},
        {"rank": 1, "op_id": 7, "kernel": "gemm"},
        {"rank": 1, "op_id": None, "kernel": "gemm"},
    )

    by_name = summarized(rows, ["name"]).set_index("kernel")

    assert by_name["op_calls"].to_dict() == {"gemm": 2, "splitk": 1}
    assert total_of(rows)["op_calls"] == 2


def test_sums_are_exact_where_a_float_is_not() -> None:
    odd = 2**53 + 1
    rows = profile_rows(
        {"dur_ns": odd, "flops": odd, "bytes": odd}, {"dur_ns": 2, "flops": 2, "bytes": 2}
    )

    total = total_of(rows)

    assert [total[name] for name in ("time_ns", "flops", "bytes")] == [odd + 2] * 3


def test_a_sum_that_no_int64_holds_is_null_and_its_rate_is_right() -> None:
    rows = profile_rows({"dur_ns": 10**9, "flops": 2**62}, {"dur_ns": 10**9, "flops": 2**62})

    total = total_of(rows)

    assert pd.isna(total["flops"])
    assert total["tflops"] == pytest.approx(2**62 / 1e12)


def test_times_that_no_int64_holds_are_an_error() -> None:
    rows = profile_rows({"dur_ns": 2**62}, {"dur_ns": 2**62})

    with pytest.raises(TableError, match="recording is broken"):
        summarized(rows, ["op"])


def test_of_nothing_the_total_is_zero_and_the_rest_null() -> None:
    total = total_of(profile_rows({})[:0])

    assert {name for name, value in total.items() if value == 0} == {"count", "op_calls", "time_ns"}
    assert all(pd.isna(value) or value == 0 for value in total.values())


def test_time_of_nothing_has_no_share() -> None:
    frame = summarized(profile_rows({"op": "a", "dur_ns": 0}, {"op": "b", "dur_ns": 0}), ["op"])

    assert frame["share_pct"].isna().all()
    assert frame["mean_ns"].tolist() == [0.0, 0.0]


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["mm", "add", None]),
            "layer": st.sampled_from(["net.0", "net.1.fc", None]),
            "step": st.sampled_from([1, 2, None]),
            "rank": st.integers(0, 1),
            "dur_ns": st.integers(0, 10**12),
            "flops": st.none() | st.integers(0, 10**15),
            "bytes": st.none() | st.integers(0, 10**12),
        }
    ),
    max_size=20,
)


@given(
    rows=ROWS, by=st.sampled_from([["op"], ["layer"], ["step"], ["rank", "step"], ["op", "layer"]])
)
def test_columns_add_up_to_the_total(rows: list[dict[str, Any]], by: list[str]) -> None:
    frame = profile_rows(*rows) if rows else profile_rows({})[:0]

    summary, total = summarized(frame, by), total_of(frame)

    for name in SUMS:
        assert summary[name].sum() == (0 if pd.isna(total[name]) else total[name]), name
    if total["time_ns"]:
        assert summary["share_pct"].sum() == pytest.approx(100)
    assert total["time_ns"] == sum(row["dur_ns"] for row in rows)
    assert not summary.duplicated(summary.columns[: len(by)].tolist()).any()


@given(rows=ROWS)
def test_the_order_of_the_rows_does_not_matter(rows: list[dict[str, Any]]) -> None:
    frame = profile_rows(*rows, {})
    shuffled = frame.sample(frac=1, random_state=0)

    pd.testing.assert_frame_equal(
        summarized(frame, ["op", "step"]), summarized(shuffled, ["op", "step"])
    )


@pytest.mark.parametrize(
    ("by", "depth", "message"),
    [
        pytest.param(["opp"], None, "no axis 'opp'.*op, signature", id="unknown"),
        pytest.param(["op", "op"], None, "named twice", id="twice"),
        pytest.param([], None, "no axis", id="none"),
        pytest.param(["op"], 2, "add axis layer", id="depth without layers"),
        pytest.param(["layer"], 0, "1 or more", id="depth of nothing"),
    ],
)
def test_axes_that_make_no_sense_are_wrong_usage(
    by: list[str], depth: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        summarized(profile_rows({}), by, depth)


CHOICE = profile_rows(
    {"rank": 0, "step": 1, "layer": "net.0", "op": "aten::mm", "kernel": "gemm<float>"},
    {"rank": 0, "step": 2, "layer": "net.1", "op": "aten::add", "kernel": "vec"},
    {"rank": 1, "step": 3, "layer": None, "op": None, "category": "memcpy"},
    {"rank": 1, "step": None, "op": "aten::zero_", "category": "memset"},
)


@pytest.mark.parametrize(
    ("chosen", "kernel_ids"),
    [
        pytest.param({}, [0, 1, 2, 3], id="all"),
        pytest.param({"rank": 1}, [2, 3], id="rank"),
        pytest.param({"step": (2, 3)}, [1, 2], id="steps, both ends"),
        pytest.param({"layer": "^net"}, [0, 1], id="layer"),
        pytest.param({"layer": r"\.1$"}, [1], id="end of layer"),
        pytest.param({"op": "add|zero"}, [1, 3], id="op"),
        pytest.param({"kernel": "<float>"}, [0], id="kernel"),
        pytest.param({"op": ""}, [0, 1, 3], id="any op"),
        pytest.param({"copies": False}, [0, 1], id="no copies"),
        pytest.param({"rank": 0, "op": "mm", "step": (1, 1)}, [0], id="together"),
        pytest.param({"rank": 9}, [], id="nothing"),
    ],
)
def test_select_keeps_what_fits_all_that_is_given(
    chosen: dict[str, Any], kernel_ids: list[int]
) -> None:
    assert select(CHOICE, **chosen)["kernel_id"].tolist() == kernel_ids


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "x{99999999999}"])
def test_a_malformed_regular_expression_is_wrong_usage(pattern: str) -> None:
    with pytest.raises(UsageError, match="is no regular expression"):
        select(CHOICE, op=pattern)


def test_steps_out_of_order_are_wrong_usage() -> None:
    with pytest.raises(UsageError, match="swap them"):
        select(CHOICE, step=(3, 2))


def test_many_rows_are_no_more_calls_than_few() -> None:
    few = profile_rows({"op": "mm", "op_id": 1, "flops": 2}, {"layer": "a"}, {"step": 3})

    def calls(count: int) -> int:
        at = np.random.default_rng(0).integers(0, 3, count)
        rows = few.take(at).reset_index(drop=True)
        summarized(rows, ["op", "layer", "step"])  # what is imported and kept comes with the first
        return calls_of(lambda: summarized(rows, ["op", "layer", "step"]))

    assert calls(100_000) < 1.1 * calls(1000)
