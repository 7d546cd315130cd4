"""The user's own ranges: which they are, what is inside them, and who lends one."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.linking.ranges import Ranges
from pyprof2.analysis.linking.threads import Threads
from pyprof2.analysis.linking.user_ranges import BORROWED, UserRanges, is_users
from pyprof2.api import run_profile
from pyprof2.api.run import Run, load
from pyprof2.recording import UNNAMED_DOMAIN
from tests.kineto_events import (
    ENGINE,
    MAIN,
    PID,
    Event,
    annotation,
    launched,
    load_events,
    op,
    rows,
    step,
)
from tests.nsight_exports import STARTED, Export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NO_OP: Final = "launched outside of any op"


def kernels(run: Run, *columns: str) -> list[Any]:
    """Return the values of the columns by kernel; null is None."""
    frame = run_profile.rows_of(run.tables).sort_values("kernel_id")[list(columns)].astype(object)
    rows = frame.where(frame.notna(), None).itertuples(index=False)
    return [row[0] if len(columns) == 1 else tuple(row) for row in rows]


def kernel_at(ts: float, number: int = 1, tid: int = MAIN, pid: int = PID) -> list[Event]:
    return launched(ts, number, at=1000 + number, dur=10, tid=tid, pid=pid)


@pytest.mark.parametrize(
    "name",
    [
        "more/kineto/dsv3_train_h800.json.gz",
        "more/nsight/athrun_5000ada.sqlite",
        "nsight/saxpy_mpi_a100_schema2.sqlite",
        "kineto/hta_gp100_uanno.json.gz",
    ],
)
def test_time_by_innermost_range_is_that_of_the_truth(
    name: str, shared: Path, shared_trace: Callable[[str], Path]
) -> None:
    known = json.loads((shared / "truth" / "more_truth.json").read_text())["ranges"]
    truth = known[PurePath(name).name.partition(".")[0]]
    rows = run_profile.rows_of(load(shared_trace(name)).tables)
    borrowed = rows["link_note"].astype(str).str.contains(BORROWED)

    paths = rows["range"].astype(object)
    inner = paths.where(paths.notna(), "(none)").str.rpartition(" / ")[2]
    sums = rows.groupby(inner)["dur_ns"].agg(["size", "sum"])

    found = {key: {"count": row["size"], "time_ns": row["sum"]} for key, row in sums.iterrows()}
    assert {
        "by time": {"count": borrowed.sum(), "time_ns": rows["dur_ns"][borrowed].sum()}
    } | found == truth


# What is around a launch


def test_the_path_is_the_names_around_the_launch_outermost_first(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        annotation("epoch", 0, 100),
        annotation("train", 10, 50),
        annotation("loss", 20, 10),
        kernel_at(25, 1),
        kernel_at(40, 2),
        kernel_at(80, 3),
        kernel_at(200, 4),
    )

    assert kernels(run, "range") == ["epoch / train / loss", "epoch / train", "epoch", None]


def test_the_launch_decides_and_not_when_the_kernel_runs(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        annotation("first", 0, 10),
        annotation("second", 20, 50),
        launched(5, 1, at=30, dur=10),
    )

    assert kernels(run, "range") == ["first"]


def test_ops_have_the_range_around_their_start(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, annotation("a", 5, 20), op("aten::mm", 0, 9), op("aten::mm", 10, 90)
    )

    assert kernels(run, "range", "link") == [(None, "self"), ("a", "self")]
    assert run.ops["range"].astype(object).tolist()[1] == "a"


def test_ranges_that_touch_are_not_inside_each_other(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        annotation("a", 0, 10),
        annotation("b", 10, 10),
        kernel_at(10, 1),
        kernel_at(20, 2),
    )

    assert kernels(run, "range") == ["b", None]


def test_ranges_that_overlap_are_both_around_what_is_in_both(tmp_path: Path) -> None:
    export = Export()
    export.range("request 17", 0, 100, kind=STARTED).range("request 18", 50, 150, kind=STARTED)
    for number, at in enumerate((10, 70, 120, 200)):
        export.launched("k", at, number + 1)

    assert kernels(export.load(tmp_path), "range") == [
        "request 17", "request 17 / request 18", "request 18", None,
    ]  # fmt: skip


def test_of_ranges_that_were_never_closed_the_inner_ends_are_kept(tmp_path: Path) -> None:
    run = load_events(tmp_path, *(annotation("r", i, 1000 - i) for i in range(40)), kernel_at(500))

    assert kernels(run, "range") == [" / ".join(["…"] + ["r"] * 32)]


Rows = list[tuple[int, int, int, int]]
Queries = list[tuple[int, int]]
BORROWERS: Final = [(7, 1), (7, 2), (8, 2), (8, 3)]
LONERS: Final = (2, 3)
"""Of three threads to each of two processes those that run no nodes."""


def brute_force(ranges: Rows, thread: int, time: int) -> tuple[list[int], bool]:
    """The names around a time, as the documentation has it, and whether they are borrowed."""

    def around(wanted: int) -> list[int]:
        held = sorted(
            (start, -end, at)
            for at, (t, start, end, _) in enumerate(ranges)
            if t == wanted and start <= time < end
        )
        return [ranges[at][3] for _, _, at in held]

    with_ranges = {row[0] for row in ranges}
    if thread in with_ranges or thread in LONERS:
        return around(thread), False
    inside = [found for t in with_ranges if t // 3 == thread // 3 and (found := around(t))]
    return (inside[0], True) if len(inside) == 1 else ([], False)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 12), st.integers(0, 12), st.integers(0, 3))
    ),
    st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 26)), min_size=1),
)
def test_paths_are_those_of_a_search_one_by_one(rows: Rows, queries: Queries) -> None:
    ranges = [(thread, start, start + dur, name) for thread, start, dur, name in rows]
    thread, start, end, name = np.array(ranges, np.int64).reshape(-1, 4).T
    # Three threads to each of two processes: thread 4 is the second of process 1.
    threads = Threads(np.array([7, 8]), np.array([1, 2, 3]))
    users = UserRanges.of(
        Ranges(thread, start, end, name, ["n0", "n1", "n2", "n3"]), threads, BORROWERS
    )

    found = users.at(*np.array(queries, np.int64).T)

    for query, path, borrowed in zip(queries, found.path, found.borrowed, strict=True):
        names, is_lent = brute_force(ranges, *query)
        assert (users.paths[path] if path >= 0 else "") == " / ".join(f"n{i}" for i in names)
        assert borrowed == is_lent


# Threads that have none


def test_a_thread_of_autograd_borrows_that_of_the_only_one_inside_one(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        annotation("epoch", 0, 90),
        annotation("backward", 10, 50),
        op("MmBackward0", 20, 10, tid=ENGINE),
        kernel_at(25, 1, tid=ENGINE),
        kernel_at(40, 2, tid=ENGINE),
        kernel_at(45, 3),
    )

    assert kernels(run, "range", "link_note") == [
        ("epoch / backward", BORROWED),
        ("epoch / backward", f"{NO_OP}; {BORROWED}"),
        ("epoch / backward", NO_OP),
    ]
    assert run.ops[["range", "link_note"]].astype(object).to_numpy().tolist() == [
        ["epoch / backward", BORROWED]
    ]


def test_op_rows_of_a_cpu_recording_say_that_a_range_is_borrowed(tmp_path: Path) -> None:
    node = [op("MmBackward0", 20, 10, tid=ENGINE), op("aten::mm", 22, 6, tid=ENGINE)]
    run = load_events(tmp_path, annotation("backward", 0, 50), node)

    assert kernels(run, "range", "link", "link_note") == [("backward", "self", BORROWED)]


@pytest.mark.parametrize(
    ("others", "path"),
    [
        pytest.param([("b", 0, 10, 103)], "a", id="the other one has left its range"),
        pytest.param([("b", 0, 50, 103)], None, id="two are inside one"),
        pytest.param([("c", 90, 5, ENGINE)], None, id="it has ranges of its own, elsewhere"),
        pytest.param([("nccl:all_reduce", 19, 5, ENGINE)], "a", id="those it has are PyTorch's"),
        pytest.param([("ProfilerStep#3", 0, 90, 103)], "a", id="the other one is in a step alone"),
    ],
)
def test_who_lends_a_range(
    others: list[tuple[str, float, float, int]], path: str | None, tmp_path: Path
) -> None:
    ranges = [annotation(name, ts, dur, tid=tid) for name, ts, dur, tid in others]
    node = op("MmBackward0", 15, 2, tid=ENGINE)
    run = load_events(tmp_path, annotation("a", 0, 50), node, *ranges, kernel_at(20, tid=ENGINE))

    assert kernels(run, "range") == [path]


def test_a_thread_that_fetches_data_borrows_nothing(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        annotation("train", 0, 90),
        op("aten::embedding", 20, 10, tid=103),
        kernel_at(25, 1, tid=103),
        op("MmBackward0", 40, 10, tid=ENGINE),
        kernel_at(45, 2, tid=ENGINE),
        kernel_at(60, 3, tid=103),
    )

    assert kernels(run, "range", "link_note") == [
        (None, None), ("train", BORROWED), (None, NO_OP),
    ]  # fmt: skip


def test_no_range_is_borrowed_from_another_process(tmp_path: Path) -> None:
    node = op("MmBackward0", 15, 9, tid=201, pid=200)
    run = load_events(tmp_path, annotation("a", 0, 50), node, kernel_at(20, tid=201, pid=200))

    assert kernels(run, "range") == [None]


def test_gpu_work_without_a_launch_has_no_range(tmp_path: Path) -> None:
    _, lone = kernel_at(20)
    run = load_events(tmp_path, annotation("a", 0, 5000), op("aten::mm", 0, 1), lone)

    assert kernels(run, "range") == [None]


# What is the user's


@pytest.mark.parametrize(
    "name",
    [
        "Optimizer.step#AdamW.step", "Optimizer.zero_grad#SGD.zero_grad",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "enumerate(DataPipe)#Mapper",
        "nccl:all_reduce", "gloo:broadcast", "DistributedDataParallel.forward",
        "DataParallel.forward", "FSDP::pre_forward (layers.0)",
        "FullyShardedDataParallel.forward", "## Call CompiledFxGraph fal4xp ##",
        "Torch-Compiled Region: 0/0", "CompiledFunctionBackward", "TorchDynamo Cache Lookup",
        "Pregraph bytecode", "compile_fx_inner (dynamo_timed)", "rpc_sync#f(a -> b)",
        "AOTDispatcher Runtime Wrapper Prologue", "graph_0_inductor_wrapper_call", "",
    ],
)  # fmt: skip
def test_ranges_of_pytorch_are_not_the_users(name: str) -> None:
    assert not is_users(name)


@pytest.mark.parametrize(
    "name",
    [
        "forward", "Optimizer", "my nccl: test", "attn(F)", "FSDP", "## forward ##",
        "step[DECODE bs=32]", "CompiledFunctions", "[param|torch.add|0|0|0]",
    ],
)  # fmt: skip
def test_ranges_that_look_alike_are_the_users(name: str) -> None:
    assert is_users(name)


@pytest.mark.parametrize(
    ("domain", "users"),
    [
        (None, True), ("pyprof2", True), ("my loader", True), ("Megatron", True), ("NCCL", False),
        ("nccl", False), ("MPI", False), ("cuBLAS", False), ("CCCL", False),
        (UNNAMED_DOMAIN, False),
    ],
)  # fmt: skip
def test_a_domain_of_the_users_counts_and_a_librarys_does_not(
    domain: str | None,
    users: bool,  # noqa: FBT001
) -> None:
    assert is_users("work", domain) is users


def test_an_nvtx_domain_decides_whose_a_range_is(tmp_path: Path) -> None:
    export = Export().domain("NCCL", 1).domain("my loader", 2).domain()
    export.range("ncclAllReduce", 0, 100, domain=1).range("read", 0, 100, domain=2)
    export.range("mine", 10, 100, domain=7).range("plain", 20, 100).range(
        "no name", 0, 100, domain=3
    )

    run = export.launched("k", 50, 1).load(tmp_path)

    assert kernels(run, "range") == ["read / mine / plain"]
    names = run.ranges[["name", "domain"]].astype(object)
    assert dict(names.where(names.notna(), None).to_numpy().tolist()) == {
        "ncclAllReduce": "NCCL", "read": "my loader", "mine": "pyprof2", "plain": None,
        "no name": UNNAMED_DOMAIN,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "{'mod': 'Tensor', 'op': 'add', 'args': []}",
        "{'traceMarker': ['net.py:34'], 'funcStack': '/<module>/add'}",
        "{'mod': 'Linear', 'strRepr': 'in_features=3'}",
        '{"model_config": {"emit_nvtx": true}}',
        "layer:encoder",
        "aten::mm, seq = 7, op_id = 3",
    ],
)
def test_markers_layers_and_ops_are_not_the_users(text: str, tmp_path: Path) -> None:
    run = Export().range("mine", 0, 100).range(text, 10, 90).launched("k", 50, 1).load(tmp_path)

    assert kernels(run, "range") == ["mine"]


def test_a_started_range_counts_on_the_thread_that_started_it(tmp_path: Path) -> None:
    export = Export().range("request", 0, 100, kind=STARTED, tid=MAIN)
    export.range("other", 200, 300, tid=ENGINE)
    run = export.launched("k", 50, 1, tid=MAIN).launched("k", 50, 2, tid=ENGINE).load(tmp_path)

    assert sorted(kernels(run, "range", "link_note"), key=str) == [
        ("request", NO_OP), (None, NO_OP),
    ]  # fmt: skip


def test_steps_are_left_out_of_the_path(tmp_path: Path) -> None:
    run = load_events(tmp_path, annotation("run", 0, 100), step(3, 10, 50), kernel_at(20))

    assert kernels(run, "range", "step") == [("run", 3)]


# The profile


def profiled(tmp_path: Path) -> Run:
    """Kernels of 10 µs: two in each of two requests, one of these in a part of it, two outside."""
    return load_events(
        tmp_path,
        annotation("request 17", 0, 100),
        annotation("decode 2", 50, 40),
        annotation("request 18", 100, 100),
        kernel_at(10, 1),
        kernel_at(60, 2),
        kernel_at(110, 3),
        kernel_at(120, 4),
        kernel_at(300, 5),
        kernel_at(310, 6),
    )


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param(
            {},
            {"request 17": 1, "request 17 / decode 2": 1, "request 18": 2, "(none)": 2},
            id="whole paths",
        ),
        pytest.param(
            {"depth": 1}, {"request 17": 2, "request 18": 2, "(none)": 2}, id="the outermost"
        ),
        pytest.param(
            {"fold_numbers": True},
            {"request N": 3, "request N / decode N": 1, "(none)": 2},
            id="numbers folded",
        ),
        pytest.param({"fold_numbers": True, "depth": 1}, {"request N": 4, "(none)": 2}, id="both"),
        pytest.param({"range": "decode"}, {"request 17 / decode 2": 1}, id="filtered"),
        pytest.param(
            {"range": "^request 1[78]$"}, {"request 17": 1, "request 18": 2}, id="whole, filtered"
        ),
    ],
)
def test_time_by_range_adds_up_to_all_of_it(
    options: dict[str, Any], wanted: dict[str, int], tmp_path: Path
) -> None:
    found = profiled(tmp_path).profile(by="range", **options)

    assert dict(zip(found["range"], found["time_ns"], strict=True)) == {
        key: count * 10_000 for key, count in wanted.items()
    }
    assert found["share_pct"].sum() == pytest.approx(100)


def test_the_axis_goes_with_others_and_depth_cuts_both_paths(tmp_path: Path) -> None:
    found = profiled(tmp_path).profile(by=["range", "layer"], depth=1)

    assert found[["range", "layer"]].to_numpy().tolist() == [
        ["(none)", "(none)"], ["request 17", "(none)"], ["request 18", "(none)"],
    ]  # fmt: skip


def ranges_of(run: Run) -> dict[str, str | None]:
    return dict(rows(run.table("kernels"), "kernel", "range"))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        pytest.param("pt_autograd_0", "train", id="autograd"),
        pytest.param("pt_autograd_13", "train", id="of another device"),
        pytest.param("pt_data_pin", None, id="of another kind"),
        pytest.param("my_pt_autograd_0", None, id="named alike"),
        pytest.param(None, None, id="without a name"),
    ],
)
def test_a_thread_named_as_autograds_borrows_where_no_ops_were_recorded(
    name: str | None, wanted: str | None, tmp_path: Path
) -> None:
    export = Export().range("train", 0, 10_000).launched("fwd", 1000, 1)
    export.launched("bwd", 5000, 2, tid=ENGINE).launched("after", 20_000, 3, tid=ENGINE)
    if name is not None:
        export.thread_name("python", MAIN).thread_name(name, ENGINE)

    found = ranges_of(export.load(tmp_path))

    assert found == {"fwd": "train", "bwd": wanted, "after": None}


def test_a_thread_of_autograd_that_has_a_range_of_its_own_borrows_none(tmp_path: Path) -> None:
    export = Export().range("train", 0, 10_000).thread_name("pt_autograd_0", ENGINE)
    export.range("hook", 4000, 4500, tid=ENGINE)
    export.launched("in", 4100, 1, tid=ENGINE).launched("out", 6000, 2, tid=ENGINE)

    assert ranges_of(export.load(tmp_path)) == {"in": "hook", "out": None}


def test_names_of_threads_of_another_process_or_machine_say_nothing(tmp_path: Path) -> None:
    export = Export().range("train", 0, 10_000).launched("fwd", 1000, 1)
    export.launched("bwd", 5000, 2, tid=ENGINE)
    export.thread_name("pt_autograd_0", ENGINE, pid=999)
    export.thread_name("pt_autograd_0", ENGINE, machine=1)

    assert ranges_of(export.load(tmp_path)) == {"fwd": "train", "bwd": None}


@pytest.mark.parametrize("machines", [(0, 1), (0, 1, 2, 100)])
def test_processes_of_one_number_on_several_machines_are_apart(
    machines: tuple[int, ...], tmp_path: Path
) -> None:
    export = Export()
    for machine in machines:
        export.range(f"machine {machine}", 0, 10_000, machine=machine)
        export.launched(f"k{machine}", 1000, 7, machine=machine)

    run = export.load(tmp_path)

    assert run.summary["ranks"] == list(range(len(machines)))
    assert ranges_of(run) == {f"k{m}": f"machine {m}" for m in machines}
