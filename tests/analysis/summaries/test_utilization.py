"""MFU and HFU, against counts by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.analysis.summaries.totals import total_utilization
from pyprof2.analysis.summaries.utilization import COLUMNS, phase_utilization, utilization
from pyprof2.analysis.time.step_windows import step_windows
from pyprof2.api import run_time
from tests.builders import canonical, chunked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

A100 = {"device": 0, "device_type": "cuda", "name": "A100-SXM4-40GB"}
MS = 1_000_000
# An A100 does 312 TFLOP/s in bf16: 312 GFLOP in a ms.
FULL = 312 * 10**9


def test_phases_are_busy_for_the_union_of_their_kernels() -> None:
    ops = [
        {"direction": "forward", "start_ns": 0, "dur_ns": 10},
        {"direction": "forward", "start_ns": 4, "dur_ns": 4},
        {"direction": "forward", "start_ns": 15, "dur_ns": 5},
        {"direction": "backward", "start_ns": 30, "dur_ns": 10},
        {"direction": "other", "start_ns": 90, "dur_ns": 10},
    ]
    kernels = [
        {"direction": "forward", "start_ns": 10, "dur_ns": 20},
        {"direction": "forward", "start_ns": 20, "dur_ns": 20},
    ]

    with_device = phase_utilization(canonical("kernels", *kernels), canonical("ops", *ops))
    without = phase_utilization(canonical("kernels"), canonical("ops", *ops))

    assert with_device[0] == {
        "phase": "forward", "host_ns": 15, "span_ns": 30, "device_ns": 30, "utilization_pct": 100.0
    }  # fmt: skip
    assert with_device[1] == {
        "phase": "backward", "host_ns": 10, "span_ns": 10, "device_ns": 0, "utilization_pct": 0.0
    }  # fmt: skip
    assert [(row["span_ns"], row["utilization_pct"]) for row in without] == [
        (20, 75.0),
        (10, 100.0),
    ]
    assert all("device_ns" not in row for row in without)


def product(**facts: Any) -> dict[str, Any]:
    """Return a kernel of 1 ms in step 1, a product of half of what an A100 can do in it."""
    return {
        "category": "matmul", "compute_dtype": "bf16", "device": 0, "step": 1, "dur_ns": MS,
        "flops": FULL // 2, "direction": "forward", "recompute": False,
    } | facts  # fmt: skip


def steps(*spans: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Return step ranges of a number, a start and a duration in ms."""
    return [
        {"name": f"ProfilerStep#{n}", "kind": "step", "start_ns": at * MS,
         "dur_ns": dur * MS}
        for n, at, dur in spans
    ]  # fmt: skip


def measure(
    kernels: list[dict[str, Any]],
    ranges: list[dict[str, Any]],
    devices: list[dict[str, Any]] | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """Return the rows, null as None."""
    tables = {name: canonical(name, *more.get(name, ())) for name in ("copies", "ops", "trace")}
    tables["kernels"] = canonical("kernels", *kernels)
    windows = step_windows(canonical("ranges", *ranges), [tables["kernels"], tables["copies"]])
    found = utilization(
        chunked(tables), windows, [A100] if devices is None else devices, more.get("override")
    )
    assert found.column_names == list(COLUMNS)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_mfu_is_flops_over_what_the_device_could_do_in_the_time_of_the_step() -> None:
    # Half of a ms's peak in a step of 4 ms: an eighth.
    (row,) = measure([product()], steps((1, 0, 4)))

    assert row["mfu_pct"] == pytest.approx(12.5)
    assert row["hfu_pct"] == pytest.approx(12.5)
    assert (row["wall_ns"], row["gpu_ns"], row["model_flops"]) == (4 * MS, MS, FULL // 2)
    assert (row["peak_flop_per_s"], row["peak"]) == (
        312e12,
        "A100 SXM 40GB, bf16 on matrix units",
    )


@pytest.mark.parametrize(
    ("more", "mfu", "hfu"),
    [
        pytest.param(product(direction="backward"), 25, 25, id="backward"),
        pytest.param(product(recompute=True), 12.5, 25, id="what checkpointing runs again"),
        pytest.param(product(direction="optimizer"), 12.5, 25, id="products of the optimizer"),
        pytest.param(product(direction="other"), 12.5, 25, id="set-up"),
        # Of the five products of a fused backward one repeats the forward: 4/5 of 12.5.
        pytest.param(
            product(category="attention", direction="backward"), 22.5, 25, id="fused attention"
        ),
        pytest.param(product(category="elementwise"), 12.5, 12.5, id="no matrix work"),
        pytest.param(product(step=2), 12.5, 12.5, id="another step"),
        pytest.param(product(step=None), 12.5, 12.5, id="outside of the steps"),
    ],
)
def test_the_model_counts_forward_and_backward_once(
    more: dict[str, Any], mfu: float, hfu: float
) -> None:
    row = measure([product(), more], steps((1, 0, 4)))[0]

    assert row["mfu_pct"] == pytest.approx(mfu)
    assert row["hfu_pct"] == pytest.approx(hfu)


@pytest.mark.parametrize(
    ("own", "of_op", "mfu"),
    [
        # Half of a ms's peak each, in a step of 4 ms.
        pytest.param("reduce", "conv", 25, id="a sum that did a convolution's work"),
        pytest.param("matmul", "softmax", 12.5, id="a product inside a softmax"),
        pytest.param("matmul", None, 25, id="an op of no category"),
    ],
)
def test_work_is_of_the_kind_of_the_op_that_accounts_for_it(
    own: str, of_op: str | None, mfu: float
) -> None:
    ops = [{"category": "other"}, {"category": of_op}]

    row = measure([product(), product(category=own, cost_op_id=1)], steps((1, 0, 4)), ops=ops)[0]

    assert row["mfu_pct"] == pytest.approx(mfu)


def test_ranges_of_one_step_that_overlap_are_one_step() -> None:
    (row,) = measure([product()], steps((1, 0, 4), (1, 0, 4), (1, 1, 2)))

    assert row["wall_ns"] == 4 * MS


def test_a_step_has_the_number_that_its_ops_have() -> None:
    ranges = [steps((1, 0, 4))[0] | {"name": "iteration 1"}]

    (row,) = measure([product()], ranges)
    assert (row["step"], row["wall_ns"], row["mfu_pct"]) == (1, 4 * MS, 12.5)


def test_without_steps_the_whole_span_of_the_gpu_counts() -> None:
    first = product(step=None, start_ns=0)
    last = product(step=None, start_ns=3 * MS)

    (row,) = measure([first, last], [])

    assert row["step"] is None
    assert row["wall_ns"] == 4 * MS
    assert row["mfu_pct"] == pytest.approx(25)


def test_the_peaks_of_all_devices_of_a_rank_add_up() -> None:
    kernels = [product(device=1), product(device=2)]

    (row,) = measure(kernels, steps((1, 0, 2)), [A100 | {"device": d} for d in (1, 2)])

    assert row["peak_flop_per_s"] == 624e12
    assert row["peak"] == "2 × A100 SXM 40GB, bf16 on matrix units"
    assert row["mfu_pct"] == pytest.approx(25)


def test_the_peak_is_that_of_the_dtype_of_most_flops() -> None:
    f32 = product(compute_dtype="f32", flops=FULL)

    (row,) = measure([product(), f32], steps((1, 0, 4)))

    assert row["peak"] == "A100 SXM 40GB, TF32 on matrix units"


def test_work_without_counts_is_told() -> None:
    unknown = product(flops=None, dur_ns=3 * MS)

    (row,) = measure([product(), unknown], steps((1, 0, 4)))

    assert row["counted_pct"] == pytest.approx(25)


@pytest.mark.parametrize(
    ("kernels", "devices"),
    [
        pytest.param([product()], [], id="no device"),
        pytest.param([product()], [A100 | {"name": "GPU X"}], id="a device that is not known"),
        pytest.param([product(compute_dtype=None)], [A100], id="no dtype"),
        pytest.param([product(flops=None)], [A100], id="no counts"),
        pytest.param([product(category="softmax")], [A100], id="no matrix work"),
    ],
)
def test_unknown_is_null(kernels: list[dict[str, Any]], devices: list[dict[str, Any]]) -> None:
    (row,) = measure(kernels, steps((1, 0, 4)), devices)

    assert row["mfu_pct"] is None
    assert row["hfu_pct"] is None


def test_a_device_can_be_named() -> None:
    (row,) = measure([product()], steps((1, 0, 4)), [], override="H100 SXM")

    assert row["mfu_pct"] == pytest.approx(100 * FULL / 2 / (989.4e12 * 4e-3))


def test_without_a_gpu_the_flops_are_those_of_the_ops() -> None:
    ops = [
        {"op": "aten::mm", "category": "matmul", "flops": 80, "dur_ns": 5, "step": 1,
         "direction": "forward", "recompute": False},
        {"op": "aten::t", "category": "copy", "dur_ns": 5, "step": 1},
    ]  # fmt: skip

    (row,) = measure([], steps((1, 0, 4)), [], ops=ops)

    assert (row["model_flops"], row["gpu_ns"], row["mfu_pct"]) == (80, None, None)


def test_the_total_weighs_steps_by_their_time() -> None:
    rows = [product(), product(step=2)]
    tables = {name: canonical(name) for name in ("copies", "ops", "trace")}
    tables["kernels"] = canonical("kernels", *rows)
    ranges = canonical("ranges", *steps((1, 0, 1), (2, 1, 3)))

    windows = step_windows(ranges, [tables["kernels"]])
    found = utilization(chunked(tables), windows, [A100]).to_pylist()

    # 50 % and 16.7 %; a ms of peak in 4 ms.
    assert total_utilization(found)["mfu_pct"] == pytest.approx(25)
    assert total_utilization([]) == {"mfu_pct": None, "hfu_pct": None}
    assert total_utilization([*found, found[0] | {"mfu_pct": None}])["mfu_pct"] is None


def test_resnet_50_on_a_v100_is_as_counted_by_hand(shared_trace: Callable[[str], Path]) -> None:
    frame = run_time.utilization(pyprof2.load(shared_trace("kineto/rn50_v100_w0.json.gz")).tables)

    # ResNet-50, batch 32: forward and backward in closed form. The windows of the steps, in ms, as
    # test_step_windows.py reads them one by one, and 15.7 TFLOP/s: f32, for which Volta has no
    # matrix units.
    flops = 261_707_792_384 + 515_862_691_840
    wall_ms = [187.948, 175.153, 179.733, 174.564, 182.172, 165.983]
    assert frame["step"].tolist() == [5, 6, 7, 8, 9, 10]
    assert frame["model_flops"].tolist() == [flops] * 6
    assert frame["mfu_pct"].tolist() == pytest.approx(
        [100 * flops / (15.7e12 * ms / 1e3) for ms in wall_ms]
    )
    assert frame["hfu_pct"].tolist() == frame["mfu_pct"].tolist()


def test_checkpointing_shows_in_hfu(shared_trace: Callable[[str], Path]) -> None:
    frame = run_time.utilization(
        pyprof2.load(shared_trace("kineto/tl_resnet_ckpt_mi300.json.gz")).tables
    )

    assert (frame["hfu_pct"] > 1.2 * frame["mfu_pct"]).all()
