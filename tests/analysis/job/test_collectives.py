"""Table `collectives`: one member of nested rows, described as the recorder describes it."""

from __future__ import annotations

import gzip
import json
import math
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2.analysis.job.collective_calls import describe
from pyprof2.analysis.job.collective_rows import kind_of, transport_of
from pyprof2.analysis.job.members import with_group_keys
from pyprof2.api.run import load
from tests.kineto_events import complete, kernel, launch, load_events, op, rows, step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def comms(name: str, into: int, out: int, /, size: int = 4, **more: Any) -> dict[str, Any]:
    """Return the arguments of `record_param_comms` as PyTorch writes them since 2024."""
    return {
        "Collective name": name, "In msg nelems": into, "Out msg nelems": out, "dtype": "Float",
        "Group size": size, "Process Group Name": "7", "Process Group Description": "dp",
        "Process Group Ranks": str(list(range(size))), "In split size": "[]",
        "Out split size": "[]", "Global rank start": 0, "Global rank stride": 1,
    } | more  # fmt: skip


def called(
    at: int, number: int, args: dict[str, Any], *, name: str = "c10d::allreduce_"
) -> list[Any]:
    """Return the nested rows of a call of a collective, its launch and its kernel."""
    return [
        op(name, at, 50),
        op("record_param_comms", at + 1, 40, **args),
        op("nccl:all_reduce", at + 2, 30),
        launch(at + 10, number),
        kernel(at + 100, 20, number, name=ALL_REDUCE),
    ]


def _collectives(folder: Path, *events: Any, **around: Any) -> pd.DataFrame:
    return load_events(folder, *events, **around).collectives


def test_nested_rows_are_one_member_keyed_by_its_kernel(tmp_path: Path) -> None:
    args = comms("allreduce", 100, 100, Seq=41, **{"Is asynchronized op": True})
    (row,) = _collectives(tmp_path, step(3, 0, 1000), called(10, 1, args)).to_dict("records")

    wanted = {
        "kernel_id": 0, "op": "c10d::allreduce_", "step": 3, "start_ns": 110_000, "dur_ns": 20_000,
        "issued_ns": 20_000, "kind": "all_reduce", "transport": "nccl", "seq": 41,
        "group_key": "0-3|dp|0", "group_name": "7", "group_desc": "dp", "group_size": 4,
        "seq_source": "recorded", "in_bytes": 400, "out_bytes": 400, "dtype": "f32",
        "asynchronous": True, "bytes_source": "recorded", "coalesced": 1,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert list(row["group_ranks"]) == [0, 1, 2, 3]


def test_times_keep_every_digit(tmp_path: Path) -> None:
    events = [
        launch("1694128201429795.001", 1),
        kernel("1694128201429796.003", "7.001", 1, name=ALL_REDUCE),
    ]
    found = _collectives(tmp_path, *events)

    assert found["start_ns"].tolist() == [1694128201429796003]
    assert found["issued_ns"].tolist() == [1694128201429795001]


def test_a_wait_is_no_member(tmp_path: Path) -> None:
    rows = [op("record_param_comms", 10, 5), op("record_param_comms", 20, 5, **comms("wait", 0, 0))]

    assert len(_collectives(tmp_path, *rows, called(100, 1, comms("allreduce", 1, 1)))) == 1


def test_a_group_of_one_has_ops_and_no_kernel(tmp_path: Path) -> None:
    args = comms("allreduce", 100, 100, 1)
    alone = [op("c10d::allreduce_", 10, 50), op("record_param_comms", 11, 40, **args)]

    found = _collectives(tmp_path, *alone, called(100, 1, comms("allreduce", 1, 1)))

    assert found["group_size"].tolist() == [1, 4]
    assert found["kernel_id"].isna().tolist() == [True, False]
    assert found["match_note"].iloc[0].startswith("a group of one rank")


def test_bytes_that_contradict_the_group_are_not_used(tmp_path: Path) -> None:
    good = called(10, 1, comms("_allgather_base", 100, 400), name="c10d::_allgather_base_")
    bad = called(200, 2, comms("_allgather_base", 400, 400), name="c10d::_allgather_base_")

    found = _collectives(tmp_path, good, bad)

    assert found["in_bytes"].fillna(-1).tolist() == [400, -1]
    assert found["bytes_source"].tolist()[0] == "recorded"
    assert "do not fit 4 ranks of all_gather" in found["bytes_note"].iloc[1]


def test_an_op_of_several_kernels_is_counted_once(tmp_path: Path) -> None:
    args = comms("allreduce", 100, 100)
    more = [launch(25, 2), kernel(150, 60, 2, name=ALL_REDUCE)]

    found = _collectives(tmp_path, called(10, 1, args), more)

    assert found["in_bytes"].tolist() == [100, 300]


def test_calls_of_a_group_are_the_kernel_at_its_end(tmp_path: Path) -> None:
    calls = [op("record_param_comms", at, 5, **comms("allreduce", 10, 10)) for at in (10, 20, 30)]

    found = _collectives(tmp_path, *calls, launch(50, 1), kernel(60, 5, 1, name=ALL_REDUCE))

    assert found[["coalesced", "in_bytes", "group_size"]].to_numpy().tolist() == [[3, 120, 4]]


def test_what_an_uneven_all_to_all_sends_leaves_the_own_part_out(tmp_path: Path) -> None:
    splits: dict[str, Any] = {
        "In split size": "[10, 20, 30, 40]", "Out split size": "[30, 10, 10, 10]",
    }  # fmt: skip
    args = comms("all_to_allv", 100, 60, **splits)
    around = {"distributedInfo": {"rank": 3, "world_size": 4}}

    found = _collectives(tmp_path, called(10, 1, args, name="c10d::alltoall_base_"), **around)

    assert found[
        ["uneven", "send_bytes_to_others", "recv_bytes_from_others"]
    ].to_numpy().tolist() == [[True, 240, 200]]


@pytest.mark.parametrize(
    ("name", "column", "args", "wanted"),
    [
        ("broadcast", "root", {"Rank": 2}, 14), ("send", "peer", {"Dst Rank": 1}, 12),
        ("recv", "peer", {"Rank": 3}, 16), ("allreduce", "root", {"Rank": 1}, None),
    ],
)  # fmt: skip
def test_root_and_peer_are_ranks_of_the_job(
    tmp_path: Path, name: str, column: str, args: dict[str, int], wanted: int | None
) -> None:
    said = comms(name, 4, 4, **(dict[str, Any]({"Process Group Ranks": "[10, 12, 14, 16]"}) | args))

    found = _collectives(tmp_path, called(10, 1, said))

    assert found[column].astype(object).where(found[column].notna(), None).tolist() == [wanted]


def test_a_list_of_ranks_that_is_cut_is_made_of_start_and_stride(tmp_path: Path) -> None:
    said: dict[str, Any] = {
        "Process Group Ranks": "[1, 3, 5, ...]",
        "Global rank start": 1,
        "Global rank stride": 2,
    }

    found = _collectives(tmp_path, called(10, 1, comms("allreduce", 1, 1, 64, **said)))

    assert list(found["group_ranks"].iloc[0]) == list(range(1, 129, 2))


def test_groups_of_the_same_ranks_are_told_apart_by_order_not_name() -> None:
    import pandas as pd

    def keys(*names: str) -> list[str]:
        ranks = [[0, 1]] * len(names)
        frame = pd.DataFrame({"group_ranks": ranks, "group_desc": "dp", "group_name": names})
        found: list[str] = with_group_keys(frame)["group_key"].tolist()
        return found

    assert keys("9", "10", "9") == ["0-1|dp|0", "0-1|dp|1", "0-1|dp|0"]
    assert keys("3", "7", "3") == keys("9", "10", "9")


@pytest.mark.parametrize(
    ("name", "kind", "transport"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter", "nccl"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "all_to_all", "nccl"),
        ("ncclDevKernel_Generic", None, "nccl"), ("nccl:_all_gather_base", "all_gather", "nccl"),
        ("c10d::reduce_", "reduce", None), ("gloo:broadcast", "broadcast", "gloo"),
        ("symm_mem::multimem_all_reduce_", "all_reduce", "symmetric_memory"),
        ("void vllm::cross_device_reduce_1stage", "all_reduce", "custom"),
        ("nvshmem_allgather", "all_gather", "nvshmem"), ("c10d::barrier", "barrier", None),
    ],
)  # fmt: skip
def test_names_tell_kind_and_transport(name: str, kind: str | None, transport: str | None) -> None:
    assert (kind_of(name), transport_of(name)) == (kind, transport)


def test_our_marker_says_group_and_bytes() -> None:
    inputs = '[null,{"value":{"group_name":"0","group_ranks":[0,1],"marked_bytes":96}}]'

    gather = describe("c10d::_allgather_base_", inputs, 0)
    reduce = describe("c10d::allreduce_", inputs, 0)

    assert (gather.in_bytes, gather.out_bytes, gather.bytes_source) == (48, 96, "marker")
    assert (reduce.in_bytes, reduce.out_bytes, reduce.ranks) == (96, 96, (0, 1))


@pytest.mark.parametrize(
    ("name", "count", "kinds", "sources"),
    [
        ("dlrm_v100_w0", 8, {"all_to_all": 5, "all_reduce": 3}, {"input_dims": 8}),
        ("hta_df_index_v100_ddp", 2020, {"all_reduce": 2020}, {}),
        (
            "hta_diff_control_a100", 60, {"all_to_all": 42, "all_reduce": 18},
            {"input_dims": 60},
        ),
        (
            "tl_resnet_ckpt_mi300", 17, {"all_reduce": 6, "broadcast": 6, "other": 5},
            {"recorded": 12},
        ),
        ("hta_ns_v100", 35, {"all_reduce": 25, "broadcast": 10}, {"recorded": 35}),
    ],
)  # fmt: skip
def test_real_recordings_have_a_member_for_each_kernel(
    shared_trace: Callable[[str], Path],
    name: str,
    count: int,
    kinds: dict[str, int],
    sources: dict[str, int],
) -> None:
    run = load(shared_trace(f"kineto/{name}.json.gz"))
    found = run.collectives

    assert len(found) == count
    assert found["kind"].value_counts().loc[lambda s: s > 0].to_dict() == kinds
    assert found["bytes_source"].value_counts().loc[lambda s: s > 0].to_dict() == sources
    kernels = run.kernels.set_index("kernel_id")["dur_ns"]
    own = found[found["kernel_id"].notna()]
    assert kernels.loc[own["kernel_id"].astype("int64")].tolist() == own["dur_ns"].tolist()


def annotated(
    at: int, number: int, name: str, dims: object, types: object, /, outer: str = "", **args: Any
) -> list[Any]:
    """Return a kernel launched in PyTorch's range of a collective, and the ops around them."""
    of_range = {"Input Dims": dims, "Input type": types}
    found = [
        complete("user_annotation", name, at + 2, 30, args=of_range),
        launch(at + 10, number),
        kernel(at + 100, 20, number, name="ncclDevKernel_Generic"),
    ]
    return [op(outer, at, 50, **args), *found] if outer else found


@pytest.mark.parametrize(
    ("outer", "name", "dims", "types", "wanted"),
    [
        ("c10d::allreduce_", "nccl:all_reduce", [[394241]], ["float"], (1576964, 1576964, "f32")),
        ("c10d::allreduce_", "nccl:all_reduce", [[2, 3], [5]], ["c10::Half"] * 2, (22, 22, "f16")),
        (
            "c10d::allreduce_",
            "nccl:all_reduce",
            [[[2, 3], [5]]],
            [["long int"] * 2],
            (88, 88, "i64"),
        ),
        ("", "nccl:broadcast", [[20]], ["long int"], (160, 160, "i64")),
        ("record_param_comms", "nccl:all_to_all", [[8], [4]], ["int", "int"], (48, None, "i32")),
        ("record_param_comms", "nccl:_all_gather_base", [[7]], ["signed char"], (7, None, "i8")),
        ("c10d::allreduce_", "nccl:all_reduce", [[3], [5]], ["float", ""], (None, None, None)),
        ("c10d::allreduce_", "nccl:all_reduce", [[3]], ["Tensor"], (None, None, None)),
        ("c10d::allreduce_", "nccl:all_reduce", [], [], (None, None, None)),
        ("c10d::allreduce_", "nccl:all_reduce", None, None, (None, None, None)),
        ("c10d::allreduce_", "my own range", [[3]], ["float"], (None, None, None)),
        ("c10d::barrier", "nccl:all_reduce", [[1]], ["float"], (None, None, None)),
    ],
)
def test_bytes_of_the_range_stand_in_for_those_of_the_op(
    tmp_path: Path,
    outer: str,
    name: str,
    dims: object,
    types: object,
    wanted: tuple[int | None, ...],
) -> None:
    found = _collectives(tmp_path, annotated(10, 1, name, dims, types, outer))

    (row,) = found[["in_bytes", "out_bytes", "dtype"]].astype(object).itertuples(index=False)
    assert tuple(None if pd.isna(value) else value for value in row) == wanted
    assert (found["bytes_source"] == "input_dims").tolist() == [wanted[0] is not None]


def test_bytes_of_the_range_never_replace_recorded_ones(tmp_path: Path) -> None:
    rest: tuple[Any, ...] = ("nccl:all_gather", [[7]], ["float"], "record_param_comms")
    good = annotated(10, 1, *rest, **comms("allgather", 100, 400))
    bad = annotated(200, 2, *rest, **comms("allgather", 400, 400))
    silent = comms("allgather", 0, 0)
    del silent["In msg nelems"], silent["Out msg nelems"]
    unsaid = annotated(400, 3, *rest, **silent)

    found = _collectives(tmp_path, good, bad, unsaid)

    assert found["in_bytes"].fillna(-1).tolist() == [400, -1, 28]
    assert found["out_bytes"].fillna(-1).tolist() == [1600, -1, 112]


def test_ranges_in_one_op_are_added_and_shared_by_its_kernels(tmp_path: Path) -> None:
    outer = op("c10d::allreduce_coalesced_", 0, 500)
    one = annotated(10, 1, "nccl:all_reduce", [[100]], ["float"])
    other = annotated(200, 2, "nccl:all_reduce", [[300]], ["float"])

    found = _collectives(tmp_path, outer, one, other)

    assert found["in_bytes"].sum() == 1600


def test_a_range_of_several_kernels_says_nothing_of_each(tmp_path: Path) -> None:
    rows = annotated(10, 1, "nccl:all_reduce", [[100]], ["float"])
    more = [launch(25, 2), kernel(150, 60, 2, name=ALL_REDUCE)]

    assert _collectives(tmp_path, rows, more)["in_bytes"].isna().all()


_SIZES = {
    "float": 4, "int": 4, "long int": 8, "long": 8, "unsigned char": 1, "signed char": 1,
    "c10::BFloat16": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", ["dlrm_v100_w0", "hta_diff_control_a100"])
def test_real_ranges_tell_the_bytes_of_their_kernels(
    shared_trace: Callable[[str], Path], name: str
) -> None:
    path = shared_trace(f"kineto/{name}.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ranges = [e for e in events if str(e.get("name")).startswith("nccl:")]
    launches = {
        e["args"]["correlation"]: (e["tid"], e["ts"])
        for e in events
        if str(e.get("cat")).lower() in ("runtime", "cuda_runtime") and "correlation" in e["args"]
    }
    wanted = []
    for each in events:
        if each.get("cat", "").lower() == "kernel" and "nccl" in each["name"]:
            tid, at = launches[each["args"]["correlation"]]
            (around,) = [
                r for r in ranges if r["tid"] == tid and r["ts"] <= at <= r["ts"] + r["dur"]
            ]
            args = around["args"]
            sizes = zip(args["Input Dims"], args["Input type"], strict=True)
            wanted.append((each["ts"], sum(math.prod(d) * _SIZES[t] for d, t in sizes)))

    found = load(path).collectives

    # Where the op itself says what goes in, it is as much.
    assert found["in_bytes"].tolist() == [moved for _, moved in sorted(wanted)]


@pytest.mark.parametrize(
    ("name", "kernel_name", "size"),
    [
        ("c10d::allreduce_", "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)", 2),
        ("c10d::allreduce_", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 4),
        ("c10d::allreduce_", "ncclKernel_AllReduce_TREE_LL_Sum___nv_bfloat16(ncclWorkElem)", 2),
        ("c10d::reduce_", "ncclDevKernel_Reduce_Sum_f64_RING_LL(ncclDevComm*)", 8),
    ],
)
def test_a_list_without_a_type_has_that_of_the_kernel_in_all_tables(
    tmp_path: Path, name: str, kernel_name: str, size: int
) -> None:
    """1,000 elements are read and as many written."""
    run = load_events(
        tmp_path, op(name, 10, 50, dims=[[[1000]], []], types=["TensorList", ""]),
        launch(20, 1), kernel(100, 20, 1, name=kernel_name),
    )  # fmt: skip
    (row,) = run.collectives.to_dict("records")
    assert (row["in_bytes"], row["out_bytes"]) == (1000 * size, 1000 * size)
    assert rows(run.table("kernels"), "bytes", "cost_status") == [(2 * 1000 * size, "ok")]


@pytest.mark.parametrize(
    "kernel_name",
    ["ncclDevKernel_AllGather_RING_LL(ncclDevComm*)",
     "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)"],
)  # fmt: skip
def test_a_kernel_that_only_moves_bytes_does_not_say_a_type(
    tmp_path: Path, kernel_name: str
) -> None:
    run = load_events(
        tmp_path, op("c10d::broadcast_", 10, 50, dims=[[[1000]], []], types=["TensorList", ""]),
        launch(20, 1), kernel(100, 20, 1, name=kernel_name),
    )  # fmt: skip
    assert run.collectives["in_bytes"].isna().all()
    assert rows(run.table("kernels"), "cost_status") == ["assumed"]


@pytest.mark.parametrize(
    ("name", "collective", "dims", "counts", "wanted"),
    [
        # The kernel's name says f32, the recorder knows better.
        ("c10d::allreduce_", "allreduce", [[[1000]], []], (1000, 1000), (2000, 2000)),
        # The list of lists of results has no shapes in the recording.
        ("c10d::allgather_", "allgather", [[], [[1000]]], (1000, 4000), (2000, 8000)),
        ("c10d::reduce_scatter_", "reduce_scatter", [[[250]], []], (1000, 250), (2000, 500)),
    ],
)
def test_the_recorders_description_is_the_size_in_all_tables(
    tmp_path: Path, name: str, collective: str, dims: list[Any], counts: tuple[int, int],
    wanted: tuple[int, int],
) -> None:  # fmt: skip
    events = called(10, 1, comms(collective, *counts) | {"dtype": "Half"}, name=name)
    events[0]["args"] |= {"Input Dims": dims, "Input type": ["TensorList", "TensorList"]}
    run = load_events(tmp_path, *events)
    (row,) = run.collectives.to_dict("records")
    assert (row["in_bytes"], row["out_bytes"]) == wanted
    assert rows(run.table("kernels"), "bytes", "cost_status") == [(sum(wanted), "ok")]


def test_a_description_that_contradicts_its_group_is_used_nowhere(tmp_path: Path) -> None:
    events = called(
        10, 1, comms("_allgather_base", 400, 400) | {"dtype": "Half"}, name="c10d::_allgather_base_"
    )  # fmt: skip
    events[0]["args"] |= {"Input Dims": [[400], [100]], "Input type": ["c10::Half"] * 2}
    run = load_events(tmp_path, *events)
    assert run.collectives["in_bytes"].isna().all()
    assert rows(run.table("kernels"), "bytes") == [2 * 500]
