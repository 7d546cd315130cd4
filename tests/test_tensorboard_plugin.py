"""The tables of the TensorBoard plugin, as it computes them of the same traces.

`data/tensorboard/make.py` made the figures with the plugin itself. It finds the op of a launch by
`External id`, which in recordings of 2022 and 2023 is no op's: its ops have no time on devices
there, so of these only what does not rest on it is compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2.analysis.memory.op_memory import block_events
from pyprof2.api import run_memory, run_time
from pyprof2.api.job import JobOfRanks
from pyprof2.api.run import load
from pyprof2.reports.ranks import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from pyprof2.api.run import Run

    Pair = tuple[Run, dict[str, Any]]

DATA = Path(__file__).parent / "data" / "tensorboard"

OF_OPS = ("calls", "host_self_ns", "host_total_ns", "device_total_ns", "tensor_core_eligible")
OF_KERNELS = ["count", "time_ns", "max_ns", "min_ns"]
OF_DEVICES = ("GPU Utilization", "Est. SM Efficiency", "Est. Achieved Occupancy")
STEPPED = (
    "rn50_v100_w0", "dlrm_v100_w0", "hta_sampled_r0", "hta_ns_v100", "hta_df_index_v100_ddp",
    "tl_nsfwvit_h100", "tl_bertsmall_h100",
)  # fmt: skip
COMMUNICATING = ("dlrm_v100_w0", "hta_sampled_r0", "hta_ns_v100", "hta_df_index_v100_ddp")
FLOATS = {"hta_ns_v100": 8000}
"""Ns that its floats are off: of µs since 1970, with digits behind, each is off by a fourth."""
NOT_LISTED: dict[str, set[str]] = {
    "dlrm_v100_w0": {"all_to_all"},
    "hta_sampled_r0": {"all_to_all", "all_gather"},
    "hta_ns_v100": set(),
    "hta_df_index_v100_ddp": set(),
}
RECORDED = {
    "dlrm_v100_w0": {}, "hta_sampled_r0": {}, "hta_df_index_v100_ddp": {},
    "hta_ns_v100": {"all_reduce": 511140640, "broadcast": 1064520},
}  # fmt: skip


@pytest.fixture
def pair(shared_trace: Callable[[str], Path]) -> Callable[[str], Pair]:
    """Return a function from a trace's name to its run and what the plugin says of it."""

    def of(name: str) -> Pair:
        tables: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
        return load(shared_trace(f"kineto/{name}.json.gz")), tables

    return of


def test_operators_are_the_plugins(pair: Callable[[str], Pair]) -> None:
    run, plugin = pair("rn50_v100_w0")
    found = run.profile("op", columns=OF_OPS).set_index("op")
    names = [*OF_OPS[:1], "time_ns", "device_total_ns", *OF_OPS[1:3], "tensor_core_eligible"]

    assert {op: found.loc[op, names].tolist() for op in found.index} == {
        op: row[:6] for op, row in plugin["operator"]["name"].items()
    }


def test_operators_by_shape_are_the_plugins(pair: Callable[[str], Pair]) -> None:
    run, plugin = pair("rn50_v100_w0")
    found = run.profile(["op", "signature"], columns=["calls", "host_self_ns"])

    rows = {
        op: sorted(own[["calls", "time_ns", "host_self_ns"]].to_numpy().tolist())
        for op, own in found.groupby("op")
    }
    differ = {op for op, own in plugin["operator"]["input"].items() if rows[op] != own}
    # It does not tell types apart; and a call that hands over to its own name has one shape.
    assert differ == {"aten::copy_", "aten::to", "aten::div"}


def test_ops_by_stack_add_up_to_those_of_the_op(pair: Callable[[str], Pair]) -> None:
    run, plugin = pair("rn50_v100_w0")
    found = run.profile(["op", "stack"], columns=["calls", "host_self_ns"])
    known = found[found["stack"] != "(none)"]

    assert found.groupby("op")["host_self_ns"].sum().to_dict() == {
        op: row[3] for op, row in plugin["operator"]["name"].items()
    }
    # Backward ops have the stack of their forward op; there it has none.
    assert set(plugin["operator"]["stacks"]) <= set(known["op"])


@pytest.mark.parametrize("name", ["dlrm_v100_w0", "tl_bertsmall_h100"])
def test_host_times_need_no_links(pair: Callable[[str], Pair], name: str) -> None:
    run, plugin = pair(name)
    found = run.profile("op", columns=["calls", "host_total_ns"]).set_index("op")

    assert set(found.index) == set(plugin["operator"]["name"])
    for op, row in plugin["operator"]["name"].items():
        assert found.loc[op, "calls"] == row[0]
        assert found.loc[op, "host_total_ns"] == pytest.approx(row[4], abs=row[0])  # its floats


@pytest.mark.parametrize(
    "name", ["rn50_v100_w0", "dlrm_v100_w0", "tl_bertsmall_h100", "hta_ns_v100"]
)
def test_kernels_are_the_plugins(pair: Callable[[str], Pair], name: str) -> None:
    run, plugin = pair(name)
    means = ["blocks_per_sm", "occupancy_pct"]
    found = run.profile("name", columns=means, copies=False).set_index("kernel")

    assert {kernel: found.loc[kernel, OF_KERNELS].tolist() for kernel in found.index} == {
        kernel: row[1:5] for kernel, row in plugin["kernel"]["name"].items()
    }
    for kernel, row in plugin["kernel"]["name"].items():
        assert found.loc[kernel, means].tolist() == pytest.approx(row[5:], abs=1e-4)


def test_kernels_by_op_and_properties_are_the_plugins(pair: Callable[[str], Pair]) -> None:
    run, plugin = pair("rn50_v100_w0")
    keys = ["kernel", "op", "grid", "block", "registers", "shared_bytes"]
    found = run.profile(["name", *keys[1:]], copies=False)
    names = list(plugin["kernel"]["name"])

    assert sorted(found[[*keys, *OF_KERNELS]].to_numpy().tolist()) == sorted(
        [names[at], op, _text(grid), _text(block), *row[:6]]
        for at, op, grid, block, *row in plugin["kernel"]["op"]
    )


@pytest.mark.parametrize("name", STEPPED)
def test_steps_by_role_are_the_plugins(pair: Callable[[str], Pair], name: str) -> None:
    run, plugin = pair(name)
    found = run_time.plugin_steps(run.tables).drop(columns="rank")

    assert [f"{step}" for step in found.pop("step")] == plugin["overview"]["steps"]
    for times, expected in zip(found.to_numpy(), plugin["overview"]["times"], strict=True):
        assert times.tolist() == pytest.approx(expected, abs=FLOATS.get(name, 5))


@pytest.mark.parametrize("name", ["tl_nsfwvit_h100", "tl_bertsmall_h100"])
def test_modules_are_the_plugins(pair: Callable[[str], Pair], name: str) -> None:
    run, plugin = pair(name)
    columns = [
        "occurrences", "operators", "host_total_ns", "host_self_ns", "device_total_ns",
        "device_self_ns",
    ]  # fmt: skip
    found = run.profile("layer", columns=columns).set_index("layer")
    found = found[found["occurrences"].notna()]
    rows = {path: row for path, *row in plugin["module"]}
    first = plugin["module"][0][0]

    assert set(found.index) == set(rows)
    # It takes launches that name no op for the first module's.
    assert found.loc[first, "host_self_ns"] > rows[first][3]
    rows[first][3] = found.loc[first, "host_self_ns"]
    for path, row in rows.items():
        assert found.loc[path, columns].tolist() == pytest.approx(row, abs=20)  # its floats


@pytest.mark.parametrize("name", ["rn50_v100_w0", "tl_nsfwvit_h100"])
@pytest.mark.parametrize("part", ["all", "second_half"])
def test_memory_by_op_is_the_plugins(pair: Callable[[str], Pair], name: str, part: str) -> None:
    run, plugin = pair(name)
    begin = int(run.trace["start_ns"].iloc[0])
    since = (plugin["memory"]["middle"] - begin) / 1e6
    found = run_memory.memory_by_op(run.tables, None if part == "all" else (since, 1e9))
    names = [
        "self_increase_bytes", "self_allocation_bytes", "self_allocations", "increase_bytes",
        "allocation_bytes", "allocations", "calls",
    ]  # fmt: skip
    rows: dict[str, dict[str, list[int]]] = {}
    for row in found.to_dict("records"):
        device = "CPU" if row["device_type"] == "cpu" else f"GPU{row['device']}"
        rows.setdefault(device, {})[row["op"]] = [row[each] for each in names]

    assert rows == plugin["memory"][part]


def test_blocks_are_the_plugins(pair: Callable[[str], Pair]) -> None:
    run, plugin = pair("tl_nsfwvit_h100")
    found = [block_events(curve) for curve in run_memory.memory_by_device(run.tables).curves]

    for events in found:
        device = "GPU0" if events["device_type"].iloc[0] == "cuda" else "CPU"
        expected = plugin["memory"]["events"][device]
        assert plugin["memory"]["event_counts"][device] == [len(events)] * 2
        first = events.sort_values("released_ns", kind="stable").head(200)
        for (_, *row), (_, ours) in zip(expected, first.iterrows(), strict=True):
            assert ours["bytes"] == row[0]
            assert ours["dur_ns"] == pytest.approx(row[3], abs=10)  # it rounds to 10 ns


@pytest.mark.parametrize("name", STEPPED)
def test_shares_of_the_overview_are_the_plugins(pair: Callable[[str], Pair], name: str) -> None:
    run, plugin = pair(name)
    said = {row["title"]: row["value"] for row in plugin["overview"]["summary"]}
    expected = [float(said[title].removesuffix(" %")) for title in OF_DEVICES]

    (use,) = run.tables.frame("device_use").to_dict("records")

    # From the first step to the last, as there; its floats.
    assert [use[share] for share in run.device_shares] == pytest.approx(expected, abs=0.015)
    # Of the steps; a step in which kernels run for twice as long counts twice for occupancy.
    assert list(run.device_shares.values()) == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize("name", COMMUNICATING)
def test_overlap_is_the_plugins_where_a_kernel_communicates(
    pair: Callable[[str], Pair], name: str
) -> None:
    run, plugin = pair(name)
    ours = JobOfRanks(run.tables).parts
    steps = {step["step"]: step for step in run.steps.to_dict("records")}
    found = plugin["distributed"]["overlap"]

    assert [f"{step}" for step in ours["step"]] == [step for step in found if step != "all"]
    for row in ours.to_dict("records"):
        computation, overlap, communication, other = _ns(found[f"{row['step']}"]["worker"])
        step = steps[row["step"]]
        # It takes every kernel for computation, and calls on the host for communication.
        floats = FLOATS.get(name, 5)
        assert computation + overlap == pytest.approx(step["busy_kernels_ns"], abs=floats)
        on_host = _union(_calls_in(run, step))
        assert overlap + communication == pytest.approx(on_host, abs=3000)
        whole = computation + overlap + communication + other
        assert whole == pytest.approx(row["window_ns"], abs=1000)
        # Ours are of the device; what communicates there is not in its computation.
        assert row["compute_ns"] + row["comm_ns"] - row["comp_comm_ns"] == step["busy_kernels_ns"]
        parts = ["compute_only_ns", "comp_comm_ns", "comm_only_ns"]
        kernels = [_times(run, step, "comp"), _times(run, step, "comm")]
        assert [row["compute_ns"], row["comm_ns"]] == [_union(each) for each in kernels]
        assert sum(row[part] for part in parts) <= row["busy_ns"]


@pytest.mark.parametrize("name", COMMUNICATING)
def test_transfer_and_wait_need_the_other_ranks(pair: Callable[[str], Pair], name: str) -> None:
    run, plugin = pair(name)
    ours = JobOfRanks(run.tables).parts
    steps = {step["step"]: step for step in run.steps.to_dict("records")}
    waits = plugin["distributed"]["wait"]

    for row in ours.to_dict("records"):
        transfer, wait = _ns(waits[f"{row['step']}"]["worker"])
        # Of one rank it takes all calls on the host for transfer, and says that none waits.
        step = steps[row["step"]]
        assert transfer == pytest.approx(_union(_calls_in(run, step)), abs=3000)
        assert wait == 0
    # Which part of it was waiting only the other ranks tell: ours is unknown.
    assert ours[["exposed_wait_ns", "exposed_transfer_ns"]].isna().all(axis=None)
    assert ours["exposed_unmatched_ns"].tolist() == ours["comm_only_ns"].tolist()


@pytest.mark.parametrize("name", COMMUNICATING)
def test_collectives_by_op_are_the_plugins(pair: Callable[[str], Pair], name: str) -> None:
    run, plugin = pair(name)
    rows = plugin["distributed"]["ops"]["worker"]
    own = run.collectives
    ours = VIEWS["op"](JobOfRanks(run.tables)).set_index("kind")

    # It knows ops of five names; `nccl:all_to_all` and `nccl:_all_gather_base` are none of them.
    assert set(ours.index) - {op.removeprefix("nccl:") for op in rows} == NOT_LISTED[name]
    for op, (count, size, latency, transfer) in rows.items():
        kind = op.removeprefix("nccl:")
        mine, calls = ours.loc[kind], own[own["kind"] == kind]
        assert mine["count"] == len(calls) == count
        if size:
            assert mine["total_bytes"] == calls["in_bytes"].sum() == size
            assert mine["mean_bytes"] == pytest.approx(size / count)
        else:
            # It reads them off the range, which has none; ours are known where the recorder says.
            known = RECORDED[name].get(kind)
            assert mine["total_bytes"] == known if known else pd.isna(mine["total_bytes"])
        # It takes the time of the call on the host; ours is the kernel's, or the op's without one.
        ranges = run.ranges[run.ranges["name"] == op]
        spans = list(zip(ranges["start_ns"], ranges["start_ns"] + ranges["dur_ns"], strict=True))
        assert latency == pytest.approx(_union(spans), abs=1000 * count)
        assert transfer == latency
        assert mine["total_latency_ns"] == calls["dur_ns"].sum() > 2 * latency
        assert mine["mean_latency_ns"] == pytest.approx(calls["dur_ns"].mean())
        # Of one rank nothing tells how long the transfer itself took.
        assert pd.isna(mine["total_transfer_ns"])


def test_a_collective_of_a_job_of_one_has_no_kernel(pair: Callable[[str], Pair]) -> None:
    run, plugin = pair("hta_ns_v100")

    # There it communicates; here nothing does.
    assert plugin["distributed"]["wait"]["all"]["worker"] == [149, 0]
    assert run.collectives["kernel_id"].isna().all()
    assert JobOfRanks(run.tables).parts["comm_ns"].tolist() == [0] * 5


def _ns(times: list[float]) -> list[float]:
    """Return times in ns that it shows in us."""
    return [1000 * each for each in times]


def _times(run: Run, step: dict[Hashable, Any], what: str) -> list[tuple[int, int]]:
    """Return the kernels of a step that communicate, or that do not."""
    is_comm = run.kernels["category"] == "comm"
    return _inside(run.kernels[is_comm if what == "comm" else ~is_comm], step)


def _calls_in(run: Run, step: dict[Hashable, Any]) -> list[tuple[int, int]]:
    """Return the calls of a step that it knows for communication."""
    names = ["nccl:all_reduce", "nccl:broadcast"]
    return _inside(run.ranges[run.ranges["name"].isin(names)], step)


def _inside(rows: pd.DataFrame, step: dict[Hashable, Any]) -> list[tuple[int, int]]:
    first, last = step["start_ns"], step["start_ns"] + step["dur_ns"]
    begins, ends = rows["start_ns"], rows["start_ns"] + rows["dur_ns"]
    found = zip(begins.clip(first), ends.clip(upper=last), strict=True)
    return [(begin, end) for begin, end in found if begin < end]


def _union(spans: list[tuple[int, int]]) -> int:
    """Return the time in which any of the spans is."""
    whole, until = 0, 0
    for begin, end in sorted(spans):
        whole += max(0, end - max(begin, until))
        until = max(until, end)
    return whole


def _text(sizes: list[int]) -> str:
    return ",".join(map(str, sizes))
