"""The tables of the TensorBoard plugin, as it computes them of the same traces.

`data/tensorboard/make.py` made the figures with the plugin itself. It finds the op of a launch by
`External id`, which in recordings of 2022 and 2023 is no op's: its ops have no time on devices
there, so of these only what does not rest on it is compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.memory.op_memory import block_events
from pyprof2.api.run import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.api.run import Run

    Pair = tuple[Run, dict[str, Any]]

DATA = Path(__file__).parent / "data" / "tensorboard"

OF_OPS = ("calls", "host_self_ns", "host_total_ns", "device_total_ns", "tensor_core_eligible")
OF_KERNELS = ["count", "time_ns", "max_ns", "min_ns"]


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


@pytest.mark.parametrize("name", ["rn50_v100_w0", "dlrm_v100_w0", "tl_bertsmall_h100"])
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


@pytest.mark.parametrize(
    "name",
    [
        "rn50_v100_w0",
        "dlrm_v100_w0",
        "hta_sampled_r0",
        "hta_df_index_v100_ddp",
        "tl_nsfwvit_h100",
        "tl_bertsmall_h100",
    ],
)
def test_steps_by_role_are_the_plugins(pair: Callable[[str], Pair], name: str) -> None:
    run, plugin = pair(name)
    found = run.plugin_steps.drop(columns="rank")

    assert [f"{step}" for step in found.pop("step")] == plugin["overview"]["steps"]
    for times, expected in zip(found.to_numpy(), plugin["overview"]["times"], strict=True):
        assert times.tolist() == pytest.approx(expected, abs=5)  # its floats


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
    found = run.memory_by_op(None if part == "all" else (since, 1e9))
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
    found = [block_events(curve) for curve in run.memory_by_device().curves]

    for events in found:
        device = "GPU0" if events["device_type"].iloc[0] == "cuda" else "CPU"
        expected = plugin["memory"]["events"][device]
        assert plugin["memory"]["event_counts"][device] == [len(events)] * 2
        first = events.sort_values("released_ns", kind="stable").head(200)
        for (_, *row), (_, ours) in zip(expected, first.iterrows(), strict=True):
            assert ours["bytes"] == row[0]
            assert ours["dur_ns"] == pytest.approx(row[3], abs=10)  # it rounds to 10 ns


@pytest.mark.parametrize("name", ["dlrm_v100_w0", "hta_df_index_v100_ddp"])
def test_bytes_of_all_reduce_are_the_plugins(pair: Callable[[str], Pair], name: str) -> None:
    run, plugin = pair(name)
    count, moved, latency, _ = plugin["distributed"]["ops"]["worker"]["nccl:all_reduce"]

    own = run.collectives[run.collectives["kind"] == "all_reduce"]

    assert len(own) == count
    assert own["in_bytes"].isna().all() if moved == 0 else own["in_bytes"].sum() == moved
    # It takes the time of the call on the host.
    assert own["dur_ns"].sum() != latency


def _text(sizes: list[int]) -> str:
    return ",".join(map(str, sizes))
