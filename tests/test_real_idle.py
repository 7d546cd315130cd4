"""Idle time of real traces: it adds up, and is what an independent program found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pytest

from pyprof2.api import run_time
from pyprof2.api.run import load
from tests.conftest import of_each_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GROUPS: Final = ("host waits for the device", "host late", "device", "recording")

# Of each: the trace, the rank, the recorded window, the busy time, and the idle time of the
# groups, by a program of other authors over the same recordings that knows no stalls.
KNOWN: Final = {
    "kineto/rn50_v100_w0": (0, 1065658000, 603558000, 1658000, 445522000, 14920000, 0),
    "kineto/dlrm_v100_w0": (0, 14504000, 6590000, 322000, 7200000, 392000, 0),
    "kineto/hta_df_index_v100_ddp": (
        1, 1738039000, 1000613000, 15786000, 682185000, 39455000, 0,
    ),
    "kineto/tl_owlv2_h100": (0, 1211633485, 566759477, 5322966, 632409791, 6782539, 358712),
    "kineto/hta_ns_v100": (0, 495002377, 472454441, 742981, 15962606, 5842349, 0),
    "kineto/hta_diff_control_a100": (3, 465275000, 388587000, 3346000, 62610000, 10732000, 0),
    "kineto/tl_resnet_ckpt_mi300": (0, 86900793, 84002056, 5773, 0, 394535, 2498429),
    "kineto/tl_vllm_dec": (0, 19114059, 10717708, 12640, 493197, 25473, 7865041),
    "kineto/tl_sglang_dec": (0, 473830532, 9772926, 137852, 572119, 33133, 463314502),
    "kineto/hta_gp100_uanno": (0, 9990000, 291000, 141000, 9376000, 182000, 0),
    "more/kineto/dsv3_train_h800": (0, 129553000, 128515000, 8000, 572000, 458000, 0),
    "more/kineto/part_a100_b16": (0, 37081532, 5975712, 332951, 30669845, 103024, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", of_each_kind(KNOWN))
def test_windows_and_groups_are_those_of_another_program(
    name: str, shared_trace: Callable[[str], Path]
) -> None:
    rank, window_ns, busy_ns, *groups = KNOWN[name]
    run = load(shared_trace(f"{name}.json.gz"))

    (window,) = run_time.idle_windows(run.tables).to_dict("records")
    assert (window["rank"], window["window_ns"], window["busy_ns"]) == (rank, window_ns, busy_ns)
    times = run.idle_profile("group").set_index("group")["time_ns"]
    assert [int(times.get(group, 0)) for group in GROUPS] == groups


def test_loading_of_modules_is_no_launch_call(shared_trace: Callable[[str], Path]) -> None:
    run = load(shared_trace("more/nsight/athrun_5000ada.sqlite"))

    times = run.idle_profile("cause").set_index("cause")["time_ns"]
    # By another program: 155.4 ms in launch calls, and 8,012,365 ns in calls that load modules.
    assert times["module_load"] == pytest.approx(155.4e6 + 8_012_365, rel=1e-3)
    assert times["launch_call"] == pytest.approx(235_625_257 - 155.4e6, rel=1e-3)


def test_causes_give_the_gaps_that_another_tool_names_by_stream(
    shared_trace: Callable[[str], Path],
) -> None:
    """Holistic Trace Analysis splits a stream's gaps by whether the launch came after the last end.

    Where all work is on one stream, its three kinds are sums of parts of our gaps.
    """
    run = load(shared_trace("kineto/rn50_v100_w0.json.gz"))
    work = pd.concat([run.kernels, run.copies]).sort_values("start_ns")
    start, launch = work["start_ns"].to_numpy()[1:], work["launch_ns"].to_numpy("int64")[1:]
    end = np.maximum.accumulate((work["start_ns"] + work["dur_ns"]).to_numpy())[:-1]
    gap = np.maximum(0, start - end)
    waits = launch > end
    kinds = [waits, ~waits & (gap < 30_000), ~waits & (gap >= 30_000)]
    assert set(work["stream"]) == {7}
    assert [int(gap[kind].sum()) for kind in kinds] == [382_676_000, 10_243_000, 0]

    idle = run.idle.merge(work[["kernel_id", "launch_ns"]], on="kernel_id")
    first = idle.groupby("gap_id")["start_ns"].transform("min")
    begun = idle[first > work["start_ns"].min()]
    ours = begun["launch_ns"] > first[begun.index]
    assert [int(begun[ours]["time_ns"].sum()), int(begun[~ours]["time_ns"].sum())] == [
        382_676_000, 10_243_000,
    ]  # fmt: skip
