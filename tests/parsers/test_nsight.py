"""What an export of Nsight Systems says ends in the canonical tables; what it lacks is null."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.api import run_profile
from pyprof2.api.run import load, parse
from pyprof2.errors import TraceError
from pyprof2.markers import Marker, pack_payload
from pyprof2.parsers import find_traces, nsight, read_recordings
from pyprof2.signatures import Tensor, parse_inputs
from tests.nsight_exports import (
    CALLS,
    COPIES,
    ENGINE,
    GPUS,
    GRAPHS,
    KERNELS,
    MAIN,
    OURS,
    PID,
    RANGES,
    SETS,
    STARTED,
    STRINGS,
    Export,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

EVALUATE: Final = "autograd::engine::evaluate_function: "


def listed(frame: pd.DataFrame, *columns: str) -> list[Any]:
    """Return columns as Python values, None for null; one column as plain values."""
    values = frame[list(columns)].astype(object)
    rows = values.where(values.notna(), None).to_numpy().tolist()
    return [row[0] for row in rows] if len(columns) == 1 else [tuple(row) for row in rows]


def findings(run: Run) -> dict[str, int]:
    """Return what `check` finds, with counts."""
    found = run.check()
    return dict(zip(found["finding"], found["count"].tolist(), strict=True))


# Real exports against the truth, which an independent reader computed.


@pytest.fixture(scope="module")
def truth(shared: Path) -> dict[str, Any]:
    """Return what each real export must give."""
    found: dict[str, Any] = json.loads((shared / "truth" / "nsight_truth.json").read_text())
    return found


def test_the_counts_of_a_real_export_are_right(nsight_trace: Path, truth: dict[str, Any]) -> None:
    expected = truth[nsight_trace.stem]
    run = load(nsight_trace)

    assert run.summary["kernel_count"] == expected["n_kernels"]
    assert run.summary["kernel_time_ns"] == expected["kernel_time_ns"]
    assert run.summary["busy_kernels_ns"] == expected["busy_kernels_ns"]
    assert run.summary["launched_count"] == expected["k_with_runtime"]
    assert len(run.ops) + len(run.ranges) == expected["n_nvtx"]
    assert run.ops["sequence_nr"].notna().sum() == expected["n_nvtx_seq"]
    assert sorted(run.kernels["device"].unique()) == expected["devices"]
    assert len(run.trace) == expected["processes"]
    assert run.summary["backward_count"] == expected["k_backward"]


def innermost_text(run: Run, kernel: pd.Series) -> str | None:
    """Return the text of the innermost op or range around a kernel's launch, by brute force."""
    ops = run.ops.rename(columns={"op": "name"})
    around = pd.concat(
        [table[["start_ns", "dur_ns", "rank", "tid", "name"]] for table in (ops, run.ranges)]
    )
    at = kernel["launch_ns"]
    around = around[(around["rank"] == kernel["rank"]) & (around["tid"] == kernel["tid"])]
    around = around[(around["start_ns"] <= at) & (at <= around["start_ns"] + around["dur_ns"])]
    return None if around.empty else str(around.sort_values("start_ns")["name"].iloc[-1])


def test_the_ranges_around_launches_are_right(nsight_trace: Path, truth: dict[str, Any]) -> None:
    run = load(nsight_trace)
    launched = run.kernels[run.kernels["launch_id"].notna()]
    sample = launched.iloc[:: max(1, len(launched) // 100)]
    inside = [innermost_text(run, kernel) is not None for _, kernel in sample.iterrows()]
    expected = truth[nsight_trace.stem]

    # In each of the files either all launches lie in a range, or none does.
    assert expected["k_in_nvtx"] in (0, expected["k_with_runtime"])
    assert set(inside) == {expected["k_in_nvtx"] > 0}


def test_the_ops_of_real_kernels_are_right(nsight_trace: Path, truth: dict[str, Any]) -> None:
    run = load(nsight_trace)
    op = run.kernels["op"].astype(object).where(run.kernels["op"].notna(), "<none>")
    found = run.kernels.groupby(op)["dur_ns"].agg(["count", "sum"])
    # A range of the user's own is none of PyTorch's ops.
    expected = {
        name: (count, time)
        for name, count, time in truth[nsight_trace.stem]["top_leaf"]
        if name != "saxpy"
    }

    assert {name: tuple(found.loc[name]) for name in expected} == expected


def test_the_names_of_real_kernels_are_right(nsight_trace: Path, truth: dict[str, Any]) -> None:
    kernels = load(nsight_trace).kernels
    short = kernels["kernel"].astype(str).str[:110]
    found = kernels.groupby(short)["dur_ns"].agg(["count", "sum"])
    expected = truth[nsight_trace.stem]["top_kernels"]

    assert [(n, *found.loc[n]) for n, _, _ in expected] == [tuple(row) for row in expected]


def test_the_launches_of_real_kernels_are_right(nsight_trace: Path, truth: dict[str, Any]) -> None:
    run = load(nsight_trace)
    kernels = run.kernels.merge(run.launches, on=["rank", "launch_id"])
    expected = {
        re.sub(r"_v\d{4,5}$", "", name): count
        for name, count in truth[nsight_trace.stem]["launch_apis"]
    }

    assert kernels["name"].astype(str).value_counts().to_dict() == expected


def rows_of(path: Path, table: str, *columns: str) -> list[Any]:
    """Return columns of a table, read by nothing of ours."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 (our own names)
    return [tuple(row[column] for column in columns) for row in rows]


def test_no_kernel_is_linked_across_processes(shared_trace: Callable[[str], Path]) -> None:
    path = shared_trace("nsight/mfu_2gpu_before.sqlite")
    kernels = load(path).kernels
    calls, work = (
        pd.DataFrame(rows_of(path, table, *columns), columns=names)
        for table, columns, names in (
            (CALLS, ("start", "correlationId", "globalTid"), ["launch_ns", "correlation_id", "of"]),
            (KERNELS, ("start", "deviceId", "globalPid"), ["start_ns", "device", "of"]),
        )
    )
    calls["pid"] = (calls["of"].to_numpy() >> 24) & 0xFFFFFF
    work["pid_of_work"] = (work["of"].to_numpy() >> 24) & 0xFFFFFF
    assert calls["correlation_id"].duplicated().any()
    linked = kernels[kernels["launch_id"].notna()]
    linked = linked.merge(work, on=["start_ns", "device"])
    exact = linked.merge(calls, on=["pid", "correlation_id", "launch_ns"])

    assert len(linked) == len(exact) == 3986
    assert (linked["pid"] == linked["pid_of_work"]).all()
    assert linked.groupby("rank")["pid"].agg(set).tolist() == [{144}, {145}]


def test_check_says_why_kernels_of_a_cut_recording_are_not_linked(
    shared_trace: Callable[[str], Path],
) -> None:
    run = load(shared_trace("nsight/h100_2gpu_1s.sqlite"))
    found = run.check()
    early = found[found["finding"].str.startswith("GPU work launched before the first recorded")]
    unlinked = run.kernels["launch_id"].isna().sum() + run.copies["launch_id"].isna().sum()

    assert run.summary["linked_count"] == 1632
    assert early["count"].sum() == unlinked
    assert early["rank"].isna().tolist() == [True]  # of both ranks
    assert early["advice"].tolist() == [
        "let nsys start before the work, and export the whole of its report"
    ]


# Small exports.


def test_a_kernel_has_what_the_export_says_of_it(tmp_path: Path) -> None:
    export = Export().gpu().kernel("void f<int>(float*)", 2000, 300, 5, graphNodeId=77)
    export.call("cudaLaunchKernel_v7000", 1000, 10, 5)
    [kernel] = export.load(tmp_path).kernels.to_dict("records")
    expected = {
        "start_ns": 2000, "dur_ns": 300, "pid": PID, "tid": MAIN, "correlation_id": 5,
        "launch_ns": 1000, "device": 0, "device_type": "cuda", "stream": 7,
        "device_name": "NVIDIA H100 80GB HBM3", "kernel": "void f<int>(float*)",
        "kernel_short": "f", "grid": "4,2,1", "block": "128,1,1", "registers": 32,
        "shared_bytes": 1040, "blocks_per_sm": 8 / 132, "graph_node_id": 77, "link": "none",
    }  # fmt: skip

    assert {name: kernel[name] for name in expected} == expected
    assert pd.isna(kernel["occupancy_pct"])
    assert pd.isna(kernel["op"])


def test_a_name_that_is_missing_is_the_short_one(tmp_path: Path) -> None:
    export = Export()
    export.kernel("f", 0, 1, demangledName=None).kernel("g", 1, 1, demangledName=999_999)
    export.kernel("h", 2, 1, demangledName=None, shortName=None)

    assert listed(export.load(tmp_path).kernels, "kernel") == ["f", "g", None]


@pytest.mark.parametrize(
    ("kinds", "name", "copy_kind"),
    [
        ((1, 0, 2), "Memcpy HtoD (Pageable -> Device)", "h2d pageable"),
        ((1, 1, 2), "Memcpy HtoD (Pinned -> Device)", "h2d pinned"),
        ((2, 2, 0), "Memcpy DtoH (Device -> Pageable)", "d2h pageable"),
        ((8, 2, 2), "Memcpy DtoD (Device -> Device)", "d2d"),
        ((9, 0, 1), "Memcpy HtoH (Pageable -> Pinned)", "h2h pageable pinned"),
        ((10, 2, 2), "Memcpy PtoP (Device -> Device)", "p2p"),
        ((11, 4, 4), "Memcpy HtoD (Managed -> Managed)", "h2d"),
        ((1, None, 2), "Memcpy HtoD", "h2d"),
        ((0, 0, 2), "Memcpy (Pageable -> Device)", None),
        ((99, 99, -5), "Memcpy", None),
        ((None, None, None), "Memcpy", None),
    ],
)
def test_a_copy_is_named_and_spelled_as_in_other_recordings(
    tmp_path: Path, kinds: tuple[int | None, ...], name: str, copy_kind: str | None
) -> None:
    kind, source, target = kinds
    export = Export().activity(
        COPIES, 10, 5, 1, bytes=4096, copyKind=kind, srcKind=source, dstKind=target
    )
    copies = export.load(tmp_path).copies

    assert listed(copies, "kernel", "copy_kind", "bytes", "category") == [
        (name, copy_kind, 4096, "memcpy")
    ]


@pytest.mark.parametrize("odd", [-1, -(2**62), 2**62])
def test_sizes_that_cannot_be_are_null(tmp_path: Path, odd: int) -> None:
    export = Export().kernel("f", 0, 1, gridX=odd, registersPerThread=odd, dynamicSharedMemory=odd)
    export.activity(COPIES, 10, 5, 1, bytes=odd, copyKind=1)
    run = export.load(tmp_path)

    assert listed(run.kernels, "grid", "registers", "shared_bytes") == [(None, None, None)]
    assert listed(run.copies, "bytes") == [None]


def test_a_memset_is_a_copy_of_its_own_kind(tmp_path: Path) -> None:
    export = (
        Export().activity(SETS, 10, 5, 1, bytes=64, memKind=2).activity(SETS, 20, 5, 2, bytes=32)
    )
    copies = export.load(tmp_path).copies

    assert listed(copies, "kernel", "bytes", "category") == [
        ("Memset (Device)", 64, "memset"), ("Memset", 32, "memset")
    ]  # fmt: skip


def test_runtime_and_driver_calls_launch(tmp_path: Path) -> None:
    export = Export().range("aten::mm, op_id = 1", 0, 100)
    export.launched("f", 10, 1)
    export.call("cuLaunchKernelEx", 20, 5, 2, event_class=1).kernel("g", 3000, 10, 2)
    run = export.load(tmp_path)

    assert listed(run.kernels, "kernel", "op", "link") == [
        ("f", "aten::mm", "range"), ("g", "aten::mm", "range")
    ]  # fmt: skip
    assert listed(run.launches, "name") == ["cudaLaunchKernel", "cuLaunchKernelEx"]


def test_calls_that_repeat_others_for_their_backtrace_are_no_launches(tmp_path: Path) -> None:
    export = Export().launched("f", 10, 1).call("cudaLaunchKernel", 9, 8, 1, event_class=67)
    run = export.load(tmp_path)

    assert listed(run.launches, "start_ns") == [10]
    assert findings(run)["not read: backtraces of CUDA calls, which no number needs"] == 1


def test_correlation_ids_count_within_their_process(tmp_path: Path) -> None:
    export = Export()
    for pid, op in ((200, "aten::add"), (100, "aten::mm")):
        export.range(f"{op}, op_id = 1", 0, 100, pid=pid, tid=pid)
        export.launched(op, 10, 5, pid=pid, tid=pid)
    export.kernel("unlaunched", 50, 1, 6, pid=100).call("cudaFree", 60, 1, 6, pid=200, tid=200)
    kernels = export.load(tmp_path).kernels

    assert listed(kernels, "rank", "kernel", "pid", "op") == [
        (0, "unlaunched", None, None), (0, "aten::mm", 100, "aten::mm"),
        (1, "aten::add", 200, "aten::add"),
    ]  # fmt: skip


def test_ranks_are_the_gpu_processes_in_order_of_their_ids(tmp_path: Path) -> None:
    export = Export().kernel("c", 0, 1, pid=300).kernel("a", 0, 1, pid=7).kernel("b", 0, 1, pid=20)
    export.range("a launcher's range", 0, 5, pid=10).call("cudaFree", 0, 1, pid=10)
    run = export.load(tmp_path)

    assert listed(run.kernels, "rank", "kernel") == [(0, "a"), (1, "b"), (2, "c")]
    skipped = "not read: rows of processes that used no GPU, which no number needs"
    assert findings(run)[skipped] == 2
    assert run.ranges.empty


def test_without_gpu_work_each_process_with_ranges_is_a_rank(tmp_path: Path) -> None:
    export = Export().range("aten::mm, op_id = 1", 0, 5, pid=20).range("x", 0, 5, pid=10)
    export.call("cudaFree", 0, 1, pid=30)
    run = export.load(tmp_path)

    assert listed(run.ranges, "rank", "pid") == [(0, 10)]
    assert listed(run.ops, "rank", "pid") == [(1, 20)]
    assert run.summary["ranks"] == [0, 1]


def test_the_annotation_says_the_rank(tmp_path: Path) -> None:
    export = Export()
    for pid, rank in ((10, 3), (20, 1)):
        export.domain(pid=pid).kernel("f", 10, 5, pid=pid)
        export.marker(Marker("process", rank=rank, world_size=4), 1, None, pid=pid)
    run = export.load(tmp_path)

    assert sorted(listed(run.trace, "rank", "world_size")) == [(1, 4), (3, 4)]
    assert set(listed(run.kernels, "rank")) == {1, 3}


def test_a_rank_in_the_name_is_not_that_of_several_processes(tmp_path: Path) -> None:
    export = Export().kernel("f", 0, 1, pid=10).kernel("f", 0, 1, pid=20)
    path = export.write(tmp_path / "rank5.sqlite")

    assert load(path).summary["ranks"] == [0, 1]


def test_files_of_several_processes_follow_each_other(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.sqlite", "b.sqlite")]
    for path in paths:
        Export().kernel("f", 0, 1, pid=10).kernel("f", 0, 1, pid=20).write(path)

    assert load(parse(paths, tmp_path / "store")).summary["ranks"] == [0, 1, 2, 3]


# GPU work that does not say whose it is.


def test_gpu_work_without_process_is_that_of_the_only_one(tmp_path: Path) -> None:
    export = Export().range("aten::mm, op_id = 1", 0, 100).launched("f", 10, 1)
    run = export.load(tmp_path, without=[f"{KERNELS}.globalPid"])

    assert listed(run.kernels, "pid", "op") == [(PID, "aten::mm")]


def test_gpu_work_of_one_of_several_processes_is_not_linked(tmp_path: Path) -> None:
    export = Export().launched("f", 10, 1).call("cudaLaunchKernel", 10, 1, 1, pid=200)
    run = export.load(tmp_path, without=[f"{KERNELS}.globalPid"])

    assert listed(run.kernels, "pid", "launch_id", "link") == [(None, None, "none")]
    assert findings(run)["GPU work of an unknown one of several processes: not linked"] == 1


# Ranges.


def test_ops_of_emit_nvtx_have_numbers_shapes_and_pairs(tmp_path: Path) -> None:
    export = Export()
    export.range("aten::addmm, seq = 7, op_id = 3, sizes = [[4], [2, 3], [3, 4], [], []]", 0, 10)
    export.range(f"{EVALUATE}AddmmBackward0, op_id = 8", 20, 60, tid=ENGINE)
    export.range("AddmmBackward0, seq = 7, op_id = 9, sizes = [[2, 4]]", 25, 55, tid=ENGINE)
    export.range("aten::mm, op_id = 10, sizes = [[2, 4], [4, 3]]", 30, 40, tid=ENGINE)
    ops = export.load(tmp_path).ops

    assert listed(ops, "op", "direction", "sequence_nr", "forward_op_id", "recorded_id") == [
        ("aten::addmm", "forward", 7, None, 3),
        (f"{EVALUATE}AddmmBackward0", "backward", None, 0, 8),
        ("AddmmBackward0", "backward", 7, 0, 9),
        ("aten::mm", "backward", None, 0, 10),
    ]
    # 2·2·3·4 multiply-adds, and 2·2·4·3.
    assert listed(ops, "op", "flops")[0] == ("aten::addmm", 48)
    assert listed(ops, "op", "flops")[3] == ("aten::mm", 48)


def test_forward_threads_of_emit_nvtx_are_told_apart_by_the_names_of_nodes(tmp_path: Path) -> None:
    export, other = Export(), MAIN + 10
    for seq, (one, two) in enumerate((("mm", "relu"), ("mm", "tanh"))):
        export.range(f"aten::{one}, seq = {seq}", 10 * seq, 10 * seq + 5)
        export.range(f"aten::{two}, seq = {seq}", 10 * seq + 1, 10 * seq + 6, tid=other)
    for seq, (one, two) in ((1, ("Mm", "Tanh")), (0, ("Mm", "Relu"))):
        for start, name, tid in ((200, one, ENGINE), (300, two, ENGINE + 10)):
            at = start - 50 * seq
            export.range(f"{EVALUATE}{name}Backward0, seq = {seq}", at, at + 20, tid=tid)
            export.range(f"{name}Backward0, seq = {seq}", at + 1, at + 19, tid=tid)
    ops = export.load(tmp_path).ops

    made_by = ops.set_index("op_id")["op"]
    nodes = ops[ops["op"].str.contains("Backward0")]
    wanted = {"Mm": "aten::mm", "Tanh": "aten::tanh", "Relu": "aten::relu"}
    names = nodes["op"].str.removeprefix(EVALUATE).str.removesuffix("Backward0")
    assert made_by[nodes["forward_op_id"]].tolist() == [wanted[name] for name in names]


def test_nodes_of_c_functions_in_exports_are_backward(tmp_path: Path) -> None:
    """`emit_nvtx` numbers the node inside of the engine's range, as it numbers ops."""
    export = Export().range("aten::copy_, seq = 8", 0, 10).range("FusedThing, seq = 9", 20, 30)
    for at, name, seq in ((100, "CppNode<FusedThing>", 9), (200, "CopySlices", 8)):
        export.range(f"{EVALUATE}torch::autograd::{name}, seq = {seq}", at, at + 50, tid=ENGINE)
        export.range(f"torch::autograd::{name}, seq = {seq}", at + 1, at + 49, tid=ENGINE)
        export.range("aten::mul", at + 2, at + 40, tid=ENGINE)
    export.range("torch::autograd::CopyBackwards, seq = 77", 300, 350, tid=ENGINE)
    ops = export.load(tmp_path).ops

    found = listed(ops[ops["tid"] == ENGINE], "direction", "forward_op_id")
    assert found == [("backward", 1)] * 3 + [("backward", 0)] * 3 + [("backward", None)]


def test_a_backward_kernel_has_the_layer_of_its_forward_op(tmp_path: Path) -> None:
    export = Export().range("layer:blocks.1.mlp", 0, 20)
    export.range("aten::mm, seq = 7, op_id = 3", 1, 10)
    export.range(f"{EVALUATE}MmBackward0, seq = 7", 30, 60, tid=ENGINE)
    export.launched("f", 35, 1, tid=ENGINE)
    run = export.load(tmp_path)

    assert listed(run.kernels, "op", "layer", "direction", "forward_op_id") == [
        (f"{EVALUATE}MmBackward0", "blocks.1.mlp", "backward", 0)
    ]


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "inline"])
def test_a_range_may_be_registered_or_not(tmp_path: Path, registered: bool) -> None:  # noqa: FBT001
    export = Export().range("aten::mm, seq = 2, op_id = 9", 0, 10, registered=registered)
    export.range("my range", 20, 30, registered=registered)
    run = export.load(tmp_path)

    assert listed(run.ops, "op", "sequence_nr", "recorded_id") == [("aten::mm", 2, 9)]
    assert listed(run.ranges, "name", "kind") == [("my range", "annotation")]


def test_our_markers_say_what_an_op_is(tmp_path: Path) -> None:
    inputs = (Tensor((2, 3), "f32"), Tensor((3, 4), "f32"))
    forward = Marker(
        "op", op="aten::mm", inputs=inputs, layer="a", source="t.py:3", direction="forward"
    )
    backward = Marker("op", op="aten::mm", layer="a", source="t.py:3", direction="backward")
    export = Export().domain().marker(forward, 0, 10, payload=pack_payload(5, 0))
    export.marker(backward, 20, 30, payload=pack_payload(5, 0), tid=ENGINE)
    export.marker(Marker("op", op="aten::add_", direction="optimizer"), 40, 50, payload=-1)
    run = export.load(tmp_path)
    [signature] = run.signatures.to_dict("records")

    columns = ("op", "direction", "layer", "source", "sequence_nr", "forward_op_id", "flops")
    assert listed(run.ops, *columns) == [
        ("aten::mm", "forward", "a", "t.py:3", 5, None, 48),
        ("aten::mm", "backward", "a", "t.py:3", 5, 0, None),
        ("aten::add_", "optimizer", None, None, None, None, None),
    ]
    assert parse_inputs(signature["inputs"]) == inputs


def test_numbers_of_two_forward_threads_do_not_mix(tmp_path: Path) -> None:
    export = Export().domain()
    for thread_nr, tid in ((0, 1), (1, 2)):
        for number in (0, 1):
            op = Marker("op", op=f"aten::op{thread_nr}{number}", direction="forward")
            export.marker(
                op, 10 * number, 10 * number + 5, tid=tid, payload=pack_payload(number, thread_nr)
            )
    backward = Marker("op", op="aten::back", direction="backward")
    for index, (thread_nr, number) in enumerate([(1, 1), (0, 1), (1, 0), (0, 0)]):
        start = 100 + 10 * index
        export.marker(
            backward, start, start + 5, tid=ENGINE, payload=pack_payload(number, thread_nr)
        )
    ops = export.load(tmp_path).ops
    names = dict(listed(ops, "op_id", "op"))
    found = [names[row] for row in listed(ops[ops["op"] == "aten::back"], "forward_op_id")]

    assert found == ["aten::op11", "aten::op01", "aten::op10", "aten::op00"]


def test_a_thread_may_have_the_id_of_an_earlier_one(tmp_path: Path) -> None:
    export = Export().domain()
    for thread_nr in (0, 1):
        start, payload = 100 * thread_nr, pack_payload(4, thread_nr)
        forward = Marker("op", op=f"aten::op{thread_nr}", direction="forward")
        export.marker(forward, start, start + 5, payload=payload)
    for thread_nr in (0, 1):
        start, payload = 200 + 10 * thread_nr, pack_payload(4, thread_nr)
        export.marker(Marker("op", op="b", direction="backward"), start, start + 5, payload=payload)
    ops = export.load(tmp_path).ops

    assert listed(ops[ops["op"] == "b"], "forward_op_id") == [0, 1]


def test_the_forward_op_may_be_one_that_checkpointing_ran_again(tmp_path: Path) -> None:
    again = Marker("op", op="aten::mm", direction="forward", recompute=True)
    export = Export().domain().marker(again, 0, 5, payload=9)
    export.marker(Marker("op", op="b", direction="backward"), 10, 15, payload=9)

    assert listed(export.load(tmp_path).ops, "op", "forward_op_id") == [
        ("aten::mm", None),
        ("b", 0),
    ]


def test_a_gradient_that_is_added_up_has_the_layer_of_the_node_before_it(tmp_path: Path) -> None:
    export = Export().domain()
    export.marker(Marker("op", op="aten::mm", direction="forward", layer="a"), 0, 5, payload=1)
    export.marker(Marker("op", op="aten::mm", direction="backward", layer="a"), 10, 15, payload=1)
    add = Marker("op", op="aten::add_", direction="backward", layer="a", accumulate=True)
    export.marker(add, 20, 25, payload=-1).launched("f", 21, 1)
    run = export.load(tmp_path)

    assert listed(run.kernels, "op", "direction", "layer", "forward_op_id", "link_note") == [
        ("aten::add_", "backward", "a", None,
         "layer and source of the node that ran before AccumulateGrad")
    ]  # fmt: skip


def test_an_op_that_checkpointing_runs_again_says_so(tmp_path: Path) -> None:
    again = Marker("op", op="aten::mm", direction="forward", layer="a", recompute=True)
    run = Export().domain().marker(again, 0, 5, payload=3).load(tmp_path)

    assert listed(run.ops, "direction", "recompute", "layer") == [("forward", True, "a")]


@pytest.mark.parametrize("in_text", [True, False])
def test_steps_last_from_mark_to_mark(tmp_path: Path, *, in_text: bool) -> None:
    """Their numbers stand in the text, as version 1 has them, or in the payload."""
    export = Export().domain().marker(Marker("op", op="aten::mm"), 150, 160)
    export.marker(Marker("op", op="aten::mm"), 450, 460)
    for step, time in ((0, 100), (1, 200), (None, 300), (2, 400)):
        marker = Marker("step", step=step if in_text else None)
        export.marker(marker, time, None, payload=-1 if in_text or step is None else step)
    run = export.load(tmp_path)

    assert listed(run.ranges, "name", "kind", "start_ns", "dur_ns") == [
        ("step#0", "step", 100, 100), ("step#1", "step", 200, 100), ("step#2", "step", 400, 60)
    ]  # fmt: skip
    assert run.summary["steps"] == [0, 1, 2]
    assert listed(run.ops, "step") == [0, 2]


def test_a_step_that_begins_after_the_last_op_is_none(tmp_path: Path) -> None:
    export = Export().domain().marker(Marker("op", op="aten::mm"), 150, 160)
    for step, time in ((0, 100), (1, 200), (None, 250)):
        export.marker(Marker("step", step=step), time, None)
    run = export.range("the end", 300, 400).load(tmp_path)

    steps = run.ranges[run.ranges["kind"] == "step"]
    assert listed(steps, "name", "start_ns", "dur_ns") == [("step#0", 100, 100)]


@pytest.mark.parametrize(
    ("text", "number"), [("ProfilerStep#4", 4), ("step 12", 12), ("Iteration: 3", 3)]
)
def test_a_range_that_is_called_a_step_is_one(tmp_path: Path, text: str, number: int) -> None:
    export = Export().range(text, 0, 50, kind=STARTED, tid=9).range("aten::mm, op_id = 1", 5, 10)
    run = export.load(tmp_path)

    assert run.summary["steps"] == [number]
    assert listed(run.ops, "step") == [number]


def test_the_optimizer_and_the_layers_of_our_annotation_enclose_ops(tmp_path: Path) -> None:
    export = Export().domain().marker(Marker("optimizer", name="Adam"), 0, 10)
    export.range("aten::add_, op_id = 1", 1, 2)
    export.marker(Marker("layer", layer="blocks.0", module="Block"), 20, 30)
    export.range("aten::mm, op_id = 2", 21, 22)
    run = export.load(tmp_path)

    assert listed(run.ops, "op", "direction", "layer") == [
        ("aten::add_", "optimizer", None), ("aten::mm", "forward", "blocks.0")
    ]  # fmt: skip


def layers_of(folder: Path, *layers: tuple[str, str | None, bool]) -> list[Any]:
    """Return the layers of ops, and of the ranges around them, that our markers are in.

    Args:
        folder: for the export.
        layers: of each op path, root, and whether it is the root itself.
    """
    folder.mkdir(exist_ok=True)
    export = Export().domain()
    for at, (path, root, outermost) in enumerate(layers):
        name: dict[str, Any] = {"layer": path, "root": root, "outermost": outermost}
        export.marker(Marker("layer", **name), 20 * at, 20 * at + 9)
        export.marker(Marker("op", op="aten::mm", **name), 20 * at + 1, 20 * at + 2)
    run = export.load(folder)
    found = listed(run.ops, "layer")
    assert listed(run.ranges[run.ranges["kind"] == "layer"], "name") == found
    return found


def test_roots_beside_each_other_have_their_names_in_front(tmp_path: Path) -> None:
    found = layers_of(
        tmp_path, ("0", "teacher", False), ("0", "student", False), ("Net", "student", True),
        ("Loss", None, False), ("Loss#2", None, False), ("0", "teacher", False),
    )  # fmt: skip

    assert found == ["teacher.0", "student.0", "student", "Loss", "Loss#2", "teacher.0"]


def test_a_lone_root_has_no_name_in_front(tmp_path: Path) -> None:
    found = layers_of(tmp_path, ("0", "net", False), ("Net", "net", True), ("Loss", None, False))

    assert found == ["0", "Net", "Loss"]


def test_no_two_modules_share_a_path(tmp_path: Path) -> None:
    """A part is called like a class, and a root like a part of another one."""
    found = layers_of(
        tmp_path / "one", ("Loss", "net", False), ("Loss", None, False), ("Net", "net", True)
    )
    assert found == ["Loss#2", "Loss", "Net"]

    found = layers_of(tmp_path / "two", ("b", "a", False), ("B", "a.b", True))
    assert found == ["a.b", "a.b#2"]


def test_a_range_of_the_users_own_may_be_called_like_a_layer(tmp_path: Path) -> None:
    export = Export().domain().range("net.0", 0, 50)
    for at, root in enumerate(("net", "other")):
        export.marker(Marker("layer", layer="0", root=root), 10 * at + 1, 10 * at + 5)
    run = export.load(tmp_path)

    assert listed(run.ranges, "name", "kind") == [
        ("net.0", "annotation"), ("net.0", "layer"), ("other.0", "layer")
    ]  # fmt: skip


def test_a_marker_in_the_domain_of_another_is_text(tmp_path: Path) -> None:
    marker = Marker("op", op="aten::mm")
    export = (
        Export().domain("nccl", 3).marker(marker, 0, 5, domain=3).marker(marker, 6, 9, domain=0)
    )
    run = export.load(tmp_path)

    assert run.ops.empty
    assert set(run.ranges["kind"]) == {"annotation"}


def test_a_marker_in_a_domain_without_a_name_is_a_marker(tmp_path: Path) -> None:
    run = Export().marker(Marker("op", op="aten::mm"), 0, 5).load(tmp_path)

    assert listed(run.ops, "op") == ["aten::mm"]


def test_a_range_of_the_users_own_in_our_domain_is_a_range(tmp_path: Path) -> None:
    run = Export().domain().range("data loading", 0, 5, domain=OURS).load(tmp_path)

    assert listed(run.ranges, "name", "kind") == [("data loading", "annotation")]


def test_markers_of_another_version_are_counted(tmp_path: Path) -> None:
    export = Export().domain().range('{"pyprof2":99,"kind":"op"}', 0, 5, domain=OURS)
    run = export.range("x", 0, 9).load(tmp_path)

    assert findings(run)["a marker of another version of pyprof2: dropped"] == 1
    assert len(run.ranges) == 1


def test_a_started_range_may_look_like_an_op_and_is_none(tmp_path: Path) -> None:
    run = Export().range("aten::mm, op_id = 1", 0, 5, kind=STARTED).load(tmp_path)

    assert run.ops.empty
    assert listed(run.ranges, "name", "kind") == [("aten::mm", "annotation")]


def test_a_range_that_never_ended_ends_with_the_recording(tmp_path: Path) -> None:
    export = Export().range("aten::mm, op_id = 1", 100, None).launched("f", 150, 1)
    run = export.load(tmp_path)

    assert listed(run.ops, "start_ns", "dur_ns") == [(100, 1150)]
    assert listed(run.kernels, "op") == ["aten::mm"]
    assert findings(run)["a range that was open at the end of the recording: it ends there"] == 1


@pytest.mark.parametrize(
    ("times", "problem", "rows"),
    [
        ((10, 5), "a negative duration: taken as 0", [(10, 0)]),
        ((2**62, 2**62 + 5), "a row without a sensible time: dropped", []),
        ((0, 2**61), "a row without a sensible time: dropped", []),
        ((-(2**63), 2**63 - 1), "a row without a sensible time: dropped", []),
        ((-(2**63), 5), "a row without a sensible time: dropped", []),
        ((None, 5), "a row without a sensible time: dropped", []),
    ],
)
def test_times_that_make_no_sense_are_counted(
    tmp_path: Path, times: tuple[Any, Any], problem: str, rows: list[tuple[int, int]]
) -> None:
    run = Export().range("x", *times).range("y", 20, 25).load(tmp_path)

    assert listed(run.ranges, "start_ns", "dur_ns") == [*rows, (20, 5)]
    assert findings(run)[problem] == 1


# What may be missing.


@pytest.fixture
def whole() -> Export:
    """Return an export with everything in it."""
    export = Export().gpu().domain().range("aten::mm, seq = 1, op_id = 1", 0, 100)
    export.launched("f", 10, 1).marker(Marker("op", op="aten::add"), 200, 300, payload=2)
    export.call("cudaMemcpyAsync_v3020", 210, 5, 2)
    export.activity(COPIES, 3000, 5, 2, bytes=8, copyKind=1, srcKind=0, dstKind=2)
    return export.activity(SETS, 3010, 5, 3, bytes=8, memKind=2)


TABLES: Final = (KERNELS, COPIES, SETS, CALLS, RANGES, STRINGS, GPUS)


@pytest.mark.parametrize("table", TABLES)
def test_a_missing_table_is_no_rows(tmp_path: Path, whole: Export, table: str) -> None:
    run = whole.load(tmp_path, without=[table])

    assert len(run.kernels) == (table != KERNELS)
    assert len(run.copies) == 2 - (table in (COPIES, SETS))
    assert len(run.launches) == (0 if table == CALLS else 2)
    assert len(run.devices) == 1


@pytest.mark.minutes
def test_each_missing_column_is_null_and_nothing_breaks(tmp_path: Path, whole: Export) -> None:
    columns = [f"{table}.{name}" for table in TABLES for name in whole.tables[table][0]]
    for number, column in enumerate(columns):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = whole.load(folder, without=[column])
        without_times = column in (f"{KERNELS}.start", f"{KERNELS}.end")

        assert len(run.kernels) == (0 if without_times else 1), column
        run.check()


@pytest.mark.parametrize(
    ("column", "shown"),
    [("demangledName", "kernel"), ("registersPerThread", "registers"), ("gridY", "grid"),
     ("staticSharedMemory", "shared_bytes"), ("streamId", "stream"), ("deviceId", "device")],
)  # fmt: skip
def test_a_missing_column_is_null(tmp_path: Path, whole: Export, column: str, shown: str) -> None:
    [value] = listed(whole.load(tmp_path, without=[f"{KERNELS}.{column}"]).kernels, shown)

    assert value == ("f" if column == "demangledName" else None)


def test_gpus_go_by_the_ordinals_of_the_process(tmp_path: Path) -> None:
    export = Export().kernel("f", 0, 1, device=0)
    export.gpu(id=0, name="first", cuDevice=1).gpu(id=1, name="second", cuDevice=0)

    assert listed(export.load(tmp_path).devices, "device", "name") == [(0, "second"), (1, "first")]


def test_gpus_go_by_what_is_said_of_the_process(tmp_path: Path) -> None:
    export = Export().kernel("f", 0, 1, device=0).gpu(id=0, name="first").gpu(id=1, name="second")
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=PID)
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=PID + 1)

    assert listed(export.load(tmp_path).devices, "device", "name") == [(0, "second")]


def test_a_gpu_that_is_not_described_is_there_all_the_same(tmp_path: Path) -> None:
    run = Export().kernel("f", 0, 1, device=3).load(tmp_path)

    assert listed(run.devices, "device", "device_type", "name", "multiprocessors") == [
        (3, "cuda", None, None)
    ]
    assert listed(run.kernels, "device_type", "blocks_per_sm") == [("cuda", None)]


def test_a_gpu_has_the_numbers_for_its_roofs(tmp_path: Path) -> None:
    [device] = Export().gpu().kernel("f", 0, 1).load(tmp_path).devices.to_dict("records")

    assert device["compute_capability"] == "9.0"
    assert device["multiprocessors"] == 132
    assert device["clock_hz"] == 1.98e9
    assert device["memory_bytes_per_s"] == 3.352e12


@pytest.mark.parametrize(
    ("facts", "unix_ns"),
    [
        ({}, 1_700_000_000_000_000_000),
        ({"EXPORT_PARAM_TIME_SHIFT": "0"}, 1_700_000_000_000_000_000),
        ({"EXPORT_PARAM_TIME_SHIFT": "5000"}, None),
        ({"EXPORT_PARAM_TIME_NORMALIZE": "true"}, None),
    ],
)
def test_the_clock_is_known_unless_the_export_moved_it(
    tmp_path: Path, facts: dict[str, str], unix_ns: int | None
) -> None:
    export = Export().kernel("f", 0, 1)
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
    for name, value in facts.items():
        export.add("META_DATA_EXPORT", name=name, value=value)

    assert listed(export.load(tmp_path).trace, "unix_ns") == [unix_ns]


def test_what_the_profiler_noticed_is_passed_on(tmp_path: Path) -> None:
    export = Export().kernel("f", 0, 1)
    export.add("DIAGNOSTIC_EVENT", severity=1, text="all is well")
    export.add("DIAGNOSTIC_EVENT", severity=3, text="Buffers\n were lost. " + "x" * 500)
    found = findings(export.load(tmp_path))
    [line] = [finding for finding in found if finding.startswith("Nsight Systems: ")]

    assert line.startswith("Nsight Systems: Buffers were lost. xxx")
    assert len(line) < 200


def test_graphs_that_were_recorded_as_a_whole_are_a_problem(tmp_path: Path) -> None:
    export = Export().activity(GRAPHS, 2000, 900, 5, graphId=4)
    found = export.load(tmp_path).check().set_index("finding")
    finding = "CUDA graphs recorded as a whole: their kernels are not in the file"

    assert found.loc[finding, "count"] == 1
    assert found.loc[finding, "advice"] == "nsys profile --cuda-graph-trace=node"


def test_a_graph_that_was_recorded_as_a_whole_is_one_row_without_the_cost_of_the_op_around_it(
    tmp_path: Path,
) -> None:
    export = Export().range("aten::mm, seq = 1, op_id = 1, sizes = [[2, 3], [3, 4]]", 1000, 1100)
    export.call("cudaGraphLaunch_v10000", 1010, 20, 5).activity(GRAPHS, 2000, 900, 5, graphId=4)
    export.call("cudaGraphLaunch_v10000", 1040, 20, 6).activity(GRAPHS, 2900, 900, 6, graphId=4)
    run = export.load(tmp_path)

    assert listed(
        run.kernels, "kernel", "start_ns", "dur_ns", "op", "link", "category", "cost_status",
        "flops", "launch_ns",
    ) == [
        ("CUDA graph 4", 2000, 900, "aten::mm", "graph", "other", "no_formula", None, 1010),
        ("CUDA graph 4", 2900, 900, "aten::mm", "graph", "other", "no_formula", None, 1040),
    ]  # fmt: skip
    assert run.summary["busy_ns"] == 1800
    assert (
        dict(
            zip(
                run_profile.ledger(run.tables)["bin"],
                run_profile.ledger(run.tables)["time_ns"],
                strict=True,
            )
        )["no_formula"]
        == 1800
    )


def test_a_graph_whose_nodes_are_in_the_file_is_not_counted_twice(tmp_path: Path) -> None:
    export = Export().call("cudaGraphLaunch_v10000", 1000, 20, 5)
    export.kernel("f", 2000, 400, 5, graphNodeId=1).kernel("g", 2400, 400, 5, graphNodeId=2)
    export.activity(GRAPHS, 2000, 800, 5, graphId=4)
    # The same correlation id in another process is another launch.
    export.call("cudaGraphLaunch_v10000", 1000, 20, 5, pid=200, tid=200)
    export.activity(GRAPHS, 5000, 700, 5, graphId=8, pid=200)
    run = export.load(tmp_path)

    assert listed(run.kernels, "rank", "kernel", "dur_ns", "link") == [
        (0, "f", 400, "graph"), (0, "g", 400, "graph"), (1, "CUDA graph 8", 700, "graph"),
    ]  # fmt: skip
    assert "CUDA graphs whose nodes are in the file too" in str(list(findings(run)))


def test_a_real_export_of_whole_graphs_has_all_their_time(
    shared_trace: Callable[[str], Path], shared: Path
) -> None:
    known = json.loads((shared / "truth" / "more_truth.json").read_text())["graphs"]
    expected = known["graph_a100_compile"]
    kernels = load(shared_trace("more/nsight/graph_a100_compile.sqlite")).kernels
    is_graph = kernels["kernel"].astype(str) == "CUDA graph 4"

    assert is_graph.sum() == expected["graph_launches"]
    assert kernels["dur_ns"][is_graph].sum() == expected["graph_time_ns"]
    assert (~is_graph).sum() == expected["n_kernels"]
    assert kernels["dur_ns"][~is_graph].sum() == expected["kernel_time_ns"]
    assert kernels["launch_id"][is_graph].nunique() == expected["graph_launches"]
    assert kernels["tensor_core_eligible"][is_graph].isna().all()


# What is refused.


def no_tables(path: Path) -> None:
    """Write a database without tables."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")


def nothing(path: Path) -> None:
    """Write an empty file."""
    path.touch()


def other_tables(path: Path) -> None:
    """Write a database of somebody else."""
    Export().add("songs", title="x").write(path)


def strings_only(path: Path) -> None:
    """Write an export without what we read."""
    Export().add(STRINGS, id=1, value="x").write(path)


def empty_tables(path: Path) -> None:
    """Write an export with tables and without rows, as old versions did."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {KERNELS} (start INTEGER)")
        connection.execute(f"CREATE TABLE {RANGES} (start INTEGER)")
        connection.commit()


def calls_only(path: Path) -> None:
    """Write an export of a program that used no GPU."""
    Export().call("cudaFree", 0, 1).write(path)


def text_file(path: Path) -> None:
    """Write a file that is no database."""
    path.write_text("hello")


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (nothing, "an SQLite file, but no export of Nsight Systems"),
        (no_tables, "an SQLite file, but no export of Nsight Systems"),
        (other_tables, "an SQLite file, but no export of Nsight Systems"),
        (
            strings_only,
            "neither CUDA nor NVTX tables in it; record with 'nsys profile --trace=cuda,nvtx'",
        ),
        (
            empty_tables,
            "neither GPU work nor NVTX ranges in it; record with 'nsys profile --trace=cuda,nvtx'",
        ),
        (
            calls_only,
            "neither GPU work nor NVTX ranges in it; record with 'nsys profile --trace=cuda,nvtx'",
        ),
        (text_file, "not an SQLite database; name a trace"),
    ],
)
def test_what_holds_no_profile_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Path], None], line: str
) -> None:
    path = tmp_path / "x.sqlite"
    make(path)

    with pytest.raises(TraceError) as error:
        load(path)
    assert str(error.value) == f"{path}: {line}"


def test_the_content_decides_and_not_the_name(tmp_path: Path) -> None:
    path = Export().kernel("f", 0, 1).write(tmp_path / "trace.json")

    assert len(load(path).kernels) == 1


def test_a_name_does_not_hide_what_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_text('{"traceEvents": []}')

    assert load(path).summary["profilers"] == ["kineto"]


def test_of_a_report_and_its_export_a_folder_has_the_export(tmp_path: Path) -> None:
    Export().kernel("f", 0, 1).write(tmp_path / "a.sqlite")
    (tmp_path / "a.nsys-rep").touch()
    (tmp_path / "b.nsys-rep").touch()

    assert [path.name for path in find_traces(tmp_path)] == ["a.sqlite", "b.nsys-rep"]


# Reports, with a program that stands for nsys.

COPIER: Final = """#!/bin/sh
for word in "$@"; do case "$word" in --output=*) out="${word#--output=}";; esac; done
shift $(($# - 1))
cp "$1.exported" "$out"
"""
REFUSER: Final = """#!/bin/sh
echo 'Processing' ; echo 'Exportation error: no report' >&2 ; exit 1
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that puts a program named nsys on PATH."""

    def put(script: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "nsys").write_text(script)
        (folder / "nsys").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")

    return put


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Return a report, beside it what its export shall be."""
    Export().kernel("f", 0, 1).write(tmp_path / "x y.nsys-rep.exported")
    path = tmp_path / "x y.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n")
    return path


def test_a_report_is_exported_and_read(program: Callable[[str], None], report: Path) -> None:
    program(COPIER)
    before = sorted(report.parent.iterdir())
    run = load(report)

    assert listed(run.kernels, "kernel") == ["f"]
    assert listed(run.trace, "source") == ["x y.nsys-rep"]
    assert sorted(report.parent.iterdir()) == before


def test_a_report_is_known_by_how_it_begins(program: Callable[[str], None], report: Path) -> None:
    program(COPIER)
    renamed = report.rename(report.with_name("x"))
    report.with_name("x y.nsys-rep.exported").rename(report.with_name("x.exported"))

    assert len(load(renamed).kernels) == 1


def test_without_nsys_a_report_is_refused(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(TraceError, match=r"needs the program nsys .* name the \.sqlite file$"):
        load(report)


def test_what_nsys_says_of_a_broken_report_is_passed_on(
    program: Callable[[str], None], report: Path
) -> None:
    program(REFUSER)

    with pytest.raises(TraceError) as error:
        load(report)
    assert str(error.value) == f"{report}: nsys cannot export it: Exportation error: no report"


# How it is read.


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path, whole: Export) -> None:
    path = whole.write(tmp_path / "x.sqlite")
    seen: list[int] = []
    nsight.read_recordings(path, tmp_path, seen.append)

    assert seen == sorted(seen)
    assert seen[-1] == path.stat().st_size


def test_rows_stay_right_over_many_batches(tmp_path: Path) -> None:
    export = Export()
    for number in range(70_000):
        export.range(
            f"aten::op{number % 7}, op_id = {number}",
            10 * number,
            10 * number + 5,
            pid=10 + number % 3,
        )
    path = export.write(tmp_path / "x.sqlite")
    recordings = read_recordings(path, tmp_path)

    for rank, recording in enumerate(recordings):
        ops = recording.read("ops", ["start_ns", "op", "recorded_id"]).to_pydict()
        expected = range(rank, 70_000, 3)
        assert ops["recorded_id"] == list(expected)
        assert ops["start_ns"] == [10 * number for number in expected]
        assert ops["op"] == [f"aten::op{number % 7}" for number in expected]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch hacked')",
        "'; DROP TABLE NVTX_EVENTS; --",
        "<script>alert(1)</script>",
        '{"pyprof2":1,"kind":"op","op":' + "[" * 10_000,
        "x" * 100_000,
        "a\x00b",
    ],
)
@pytest.mark.parametrize("domain", [0, OURS])
def test_a_hostile_text_is_text(tmp_path: Path, text: str, domain: int) -> None:
    run = Export().domain().range(text, 0, 5, domain=domain).range("y", 0, 9).load(tmp_path)
    names = listed(run.ranges, "name")

    assert names in (["y", text[:16_384]], ["y"])
    assert not list(tmp_path.glob("hacked"))


def test_what_only_markers_say_is_counted(tmp_path: Path) -> None:
    inputs = (Tensor((2, 3), "f32"), Tensor((3, 4), "f32"))
    export = Export().domain().marker(Marker("process", rank=2, world_size=4), 1, None)
    export.marker(Marker("step", step=5), 2, None)
    for start in (10, 30):
        export.marker(Marker("op", op="aten::mm", inputs=inputs), start, start + 9)
    export.marker(Marker("op", op="aten::relu"), 50, 59)

    (rank,) = export.load(tmp_path).tables.manifest["ranks"]

    assert rank["annotated"] == {"the rank": 1, "steps": 1, "inputs of op calls": 2}


def test_peaks_of_a_cpu_where_a_gpu_worked_are_not_used(tmp_path: Path) -> None:
    peaks = Marker("cpu", name="a CPU", flop_per_s={"f32": 2e11}, bytes_per_s=4e10)
    export = Export().domain().gpu().marker(peaks, 1, None).launched("k", 10, 1)

    run = export.load(tmp_path)

    assert run.devices["device_type"].tolist() == ["cuda"]
    (rank,) = run.tables.manifest["ranks"]
    assert rank["problems"]["marker-peaks"] == 1


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("is_work", [True, False])
def test_an_op_is_work_whether_its_text_was_registered_or_came_once(
    *, registered: bool, is_work: bool, tmp_path: Path
) -> None:
    marker = Marker("op", op="aten::ones") if is_work else Marker("layer", layer="net")
    export = Export().domain().marker(marker, 5, 9, registered=registered)

    assert nsight.holds_work(export.write(tmp_path / "x.sqlite")) is is_work
