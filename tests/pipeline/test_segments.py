"""Recordings that one process made one after another are one rank, and linked each by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyprof2.api import run_time
from pyprof2.api.run import Run, load, parse
from pyprof2.cli import main
from pyprof2.errors import TraceError
from pyprof2.pipeline.assemble import joined
from pyprof2.reports.heading import figures
from pyprof2.store.folder import write_table
from pyprof2.tables import TABLES
from tests.builders import canonical
from tests.kineto_events import Event, annotation, kernel, launch, memory, node, op, rows, trace
from tests.nsys_runs import nsys_profile
from tests.reports.page.reader import document_of

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=tensorboard_trace_handler(sys.argv[1]),
    record_shapes=True,
) as profiler:
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        profiler.step()
"""
CAPTURED = """
import time, nvtx, pyprof2, torch

pyprof2.init()
model = torch.nn.Linear(8, 8)
for capture in (False, True, False, True, False):
    range_id = nvtx.start_range("captured") if capture else None
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
    if range_id is not None:
        nvtx.end_range(range_id)
    time.sleep(0.3)
"""


def is_dense(run: Run, table: str, column: str) -> bool:
    found: list[int] = rows(run.table(table), column)
    return found == list(range(len(found)))


@pytest.mark.torch
@pytest.mark.slow
def test_the_files_of_a_repeated_schedule_are_one_rank(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "out"
    subprocess.run([sys.executable, "-c", TRAIN, str(out)], check=True, capture_output=True)
    files = sorted(out.iterdir())
    recorded = [json.loads(file.read_bytes())["traceEvents"] for file in files]
    alone = [load(file) for file in files]

    run = load(out)

    assert len(files) == 2
    assert run.summary["ranks"] == [0]
    assert run.summary["steps"] == [2, 3, 6, 7]
    assert len(run.ops) == sum(e.get("cat") == "cpu_op" for events in recorded for e in events)
    assert is_dense(run, "ops", "op_id")
    assert is_dense(run, "ranges", "range_id")
    assert is_dense(run, "signatures", "signature_id")
    assert run.ops["start_ns"].is_monotonic_increasing
    assert run.summary["span_ns"] == sum(each.summary["span_ns"] for each in alone)
    assert rows(run.table("trace"), "source") == [file.name for file in files]
    assert called(run) == [call for each in alone for call in called(each)]


def called(run: Run) -> list[tuple[Any, ...]]:
    """Return each op with the names of the ops that it refers to, and its inputs."""
    ops, texts = run.table("ops"), rows(run.table("signatures"), "signature")
    names = rows(ops, "op")
    return [
        (name, start, *(None if at is None else names[at] for at in others), text)
        for name, start, *others, text in zip(
            names, rows(ops, "start_ns"), rows(ops, "parent_op_id"), rows(ops, "forward_op_id"),
            [None if at is None else texts[at] for at in rows(ops, "signature_id")], strict=True,
        )
    ]  # fmt: skip


@pytest.mark.nsys
@pytest.mark.torch
def test_the_repeats_of_a_capture_range_are_one_rank_on_one_clock(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    nsys_profile(
        [sys.executable, "-c", CAPTURED], tmp_path / "report", "--capture-range=nvtx",
        "--nvtx-capture=captured", "--capture-range-end=repeat:2", "--env-var",
        "NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
    )  # fmt: skip
    files = sorted(tmp_path.glob("*.sqlite"))
    alone = [load(file) for file in files]

    run = load(tmp_path)

    assert len(files) == 2
    assert run.summary["ranks"] == [0]
    assert len(run.ops) == sum(len(each.ops) for each in alone) > 0
    assert is_dense(run, "ops", "op_id")
    assert run.ops["start_ns"].is_monotonic_increasing
    assert run.summary["span_ns"] == sum(each.summary["span_ns"] for each in alone)
    first, second = (each.trace.loc[0] for each in alone)
    shift = second["unix_ns"] - first["unix_ns"]
    assert run.trace["unix_ns"].tolist() == [first["unix_ns"]] * 2
    assert run.trace["start_ns"].tolist() == [first["start_ns"], second["start_ns"] + shift]
    # The loop sleeps twice between the captured ranges.
    assert run.trace["start_ns"][1] - run.trace["end_ns"][0] > 600_000_000


def stage(at: int, number: int, *, pid: int = 100) -> list[Event]:
    """Return a forward op, its node, and a kernel of each; ids begin at 1 in each file."""
    main: dict[str, Any] = {"pid": pid, "tid": pid}
    engine: dict[str, Any] = {"pid": pid, "tid": pid + 1}
    return [
        op("aten::mm", at, 8, seq=number, dims=[[2, 3], [3, 4]], types=["float", "float"], **main),
        launch(at + 1, 1, **main), kernel(at + 20, 5, 1, name=f"forward_{number}"),
        node("MmBackward0", at + 10, 8, seq=number, fwd=1, **engine),
        launch(at + 11, 2, **engine), kernel(at + 30, 5, 2, name=f"backward_{number}"),
    ]  # fmt: skip


def test_stages_of_one_process_are_linked_each_by_itself(tmp_path: Path) -> None:
    trace(tmp_path / "17-TP-1-DECODE.trace.json", stage(1000, 7))
    trace(tmp_path / "17-TP-1-EXTEND.trace.json", stage(0, 3))

    run = load(tmp_path)

    columns = ("rank", "kernel_id", "kernel", "launch_ns", "launch_id", "op_id", "forward_op_id")
    assert rows(run.table("kernels"), *columns) == [
        (1, 0, "forward_3", 1_000, 0, 0, None), (1, 1, "backward_3", 11_000, 1, 1, 0),
        (1, 2, "forward_7", 1_001_000, 2, 2, None), (1, 3, "backward_7", 1_011_000, 3, 3, 2),
    ]  # fmt: skip
    assert rows(run.table("launches"), "correlation_id") == [1, 2, 3, 4]
    # Each stage has an estimate of its product.
    assert rows(run.table("ops"), "op_id", "estimate_id") == [(0, 0), (1, None), (2, 1), (3, None)]
    assert rows(run.table("estimates"), "estimate_id", "bytes_read") == [(0, 72), (1, 72)]
    assert rows(run.table("kernels"), "correlation_id") == [1, 2, 3, 4]
    # 35 us from the first start to the last end of the GPU's work in each, less its first 20.
    assert run.summary["span_ns"] == 2 * 15_000
    assert run.check()["finding"].str.contains("one job").sum() == 0


@pytest.mark.parametrize(
    ("second", "around"),
    [
        pytest.param(stage(1000, 7, pid=200), {}, id="another process"),
        pytest.param(stage(1000, 7), {"host_name": "b"}, id="on another machine"),
        pytest.param(stage(10, 7), {}, id="at the same time"),
        pytest.param(stage(1000, 2), {}, id="autograd's numbers begin again"),
        pytest.param(stage(1000, 7), {"baseTimeNanoseconds": 10**18}, id="on another clock"),
    ],
)
def test_other_files_that_claim_one_rank_are_an_error(
    tmp_path: Path, second: list[Event], around: dict[str, Any]
) -> None:
    one = trace(tmp_path / "TP-0-a.json", stage(0, 3), host_name="a")
    two = trace(tmp_path / "TP-0-b.json", second, **{"host_name": "a"} | around)

    with pytest.raises(TraceError, match=r"TP-0-a.json, .*TP-0-b.json: both are of rank 0"):
        parse([one, two], tmp_path / "store")


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        pytest.param(["9-TP-3-DECODE.trace.json"], [3], id="a tensor-parallel rank"),
        pytest.param(["TP-0-PP-0.json", "TP-0-PP-1.json"], [0, 1], id="pipeline stages"),
        pytest.param(["HTTP-3.json"], [0], id="another word"),
    ],
)
def test_a_tensor_parallel_rank_in_the_name_is_a_rank(
    tmp_path: Path, names: list[str], ranks: list[int]
) -> None:
    files = [trace(tmp_path / n, stage(0, 3, pid=100 + i)) for i, n in enumerate(names)]

    assert load(parse(files, tmp_path / "s")).summary["ranks"] == ranks


@pytest.mark.parametrize(
    ("names", "sizes", "warnings"),
    [
        pytest.param(["a.json", "b.json"], [None, None], [2], id="neither job nor rank"),
        pytest.param(["rank0.json", "rank1.json"], [None, None], [], id="ranks"),
        pytest.param(["rank0.json", "rank1.json"], [2, 2], [], id="ranks of one job"),
        pytest.param(["rank0.json", "rank1.json"], [2, 8], [2], id="ranks of other jobs"),
        pytest.param(["rank0.json", "b.json"], [None, None], [2], id="only one is a rank"),
        pytest.param(["a.json"], [None], [], id="a file alone"),
    ],
)
def test_files_that_may_not_belong_together_are_said_to_be_merged(
    tmp_path: Path, names: list[str], sizes: list[int | None], warnings: list[int]
) -> None:
    files = [
        trace(
            tmp_path / name, stage(0, 3, pid=100 + i),
            **({} if size is None else {"distributedInfo": {"world_size": size}}),
        )
        for i, (name, size) in enumerate(zip(names, sizes, strict=True))
    ]  # fmt: skip
    found = load(parse(files, tmp_path / "store")).check()
    warning = found[found["finding"].str.contains("of one job")]

    assert warning["count"].tolist() == warnings


def test_ranks_with_clocks_of_their_own_have_each_its_span(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day_us = 86_400_000_000
    trace(tmp_path / "rank0.json", stage(0, 3))
    trace(tmp_path / "rank1.json", stage(day_us, 3, pid=200))

    summary = load(tmp_path).summary

    assert summary["span_ns"] == summary["gpu_span_ns"] == 2 * 15_000
    assert summary["busy_ns"] == 4 * 5_000
    assert main(["prof", str(tmp_path), "--by", "op", "-w", "200"]) == 0
    out = capsys.readouterr().out
    assert "busy 20.000 us of 70.000 us recorded, sum of 2 devices" in out
    assert "(30.000 us from first to last activity)" in out


def test_a_length_is_the_same_on_every_clock(tmp_path: Path) -> None:
    """The second clock began 1000 ns later: what starts at 5 there starts at 1005."""
    folders = [tmp_path / "first", tmp_path / "second"]
    made = {
        "idle": canonical("idle", {"start_ns": 5, "time_ns": 20, "drained": False}),
        "memory": canonical("memory", {"time_ns": 5}),
        "counters": canonical("counters", {"time_ns": 5, "dur_ns": 7, "value": 1.5}),
    }
    for folder in folders:
        for name in TABLES:
            (folder / name).mkdir(parents=True)
            write_table(folder, name, 0, [made.get(name, TABLES[name].empty())])

    idle, memory, counters = (
        pa.concat_tables(joined(name, folders, 0, [0, 1000], [0, 1])) for name in made
    )

    assert rows(idle, "start_ns", "time_ns", "span") == [(5, 20, 0), (1005, 20, 1)]
    assert rows(memory, "time_ns") == [5, 1005]
    assert rows(counters, "time_ns", "dur_ns", "span") == [(5, 7, 0), (1005, 7, 1)]


FIRST, SECOND, THIRD = (1_600_000_000_000_000 + at * 1_000_000_000 for at in range(3))
"""Times of spans in us since 1970, 1000 s apart."""


def span_of(at: int, pid: int) -> list[Event]:
    """Return step 0 of a process, a product whose kernel runs for `pid` us; 60 us in all."""
    of: dict[str, Any] = {"pid": pid, "tid": pid}
    return [
        annotation("ProfilerStep#0", at, 60, **of),
        op("aten::mm", at, 8, seq=3, dims=[[2, 3], [3, 4]], types=["float", "float"], **of),
        launch(at + 1, 9, **of), kernel(at + 20, pid, 9, name=f"kernel_{pid}"),
    ]  # fmt: skip


def spans_of_worker(folder: Path, *names: str, rank: int | None = 0) -> list[Path]:
    """Write recordings of processes 10, 20 and 30, one after another; return their files."""
    around = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 1}}
    times = (FIRST, SECOND, THIRD)
    return [
        trace(folder / name, span_of(at, 10 * (number + 1)), **around)
        for number, (name, at) in enumerate(zip(names, times, strict=False))
    ]


WORKER = ("worker0.1600000000123.pt.trace.json", "worker0.1600001000123.pt.trace.json")


DIGITS, ONE_WITHOUT = (
    tuple(f"{name}.pt.trace.json" for name in names)
    for names in (("a_7.9", "a_7.10"), ("w", "w.5"))
)


@pytest.fixture(scope="module")
def worker_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store of two spans of a worker."""
    folder = tmp_path_factory.mktemp("worker")
    spans_of_worker(folder, *WORKER)
    return parse(folder, folder / "store")


# Each two of names, order and rank meet once.
@pytest.mark.kept("names0-folder-None", "names4-given-3", "names8-reversed-0")
@pytest.mark.parametrize(
    ("names", "order", "rank"),
    [
        (WORKER, "folder", None), (WORKER, "given", 0), (WORKER, "reversed", 3),
        (DIGITS, "folder", 0), (DIGITS, "given", 3), (DIGITS, "reversed", None),
        (ONE_WITHOUT, "folder", 3), (ONE_WITHOUT, "given", None), (ONE_WITHOUT, "reversed", 0),
    ],
)  # fmt: skip
def test_the_spans_of_a_worker_are_one_rank(
    tmp_path: Path, names: tuple[str, str], order: str, rank: int | None
) -> None:
    files = spans_of_worker(tmp_path, *names, rank=rank)
    given = {"folder": [tmp_path], "given": files, "reversed": files[::-1]}

    run = load(parse(given[order], tmp_path / "store"))

    columns = ("rank", "span", "kernel_id", "op_id", "kernel", "dur_ns")
    own = 0 if rank is None else rank
    assert rows(run.table("kernels"), *columns) == [
        (own, 0, 0, 0, "kernel_10", 10_000), (own, 1, 1, 1, "kernel_20", 20_000),
    ]  # fmt: skip
    assert rows(run.table("trace"), "source", "span") == [(names[0], 0), (names[1], 1)]
    assert is_dense(run, "ops", "op_id")
    assert is_dense(run, "launches", "launch_id")
    # 60 us of each are recorded; the 1000 s between them are not.
    assert run.summary["gpu_count"] == 1
    assert run_time.idle_windows(run.tables)[["window_ns", "busy_ns"]].sum().tolist() == [
        120_000,
        30_000,
    ]
    assert run.idle["time_ns"].sum() == 90_000
    assert run.idle.groupby("span")["time_ns"].sum().tolist() == [50_000, 40_000]


@pytest.mark.kept("span0-40", "span2-90")
@pytest.mark.parametrize(
    ("span", "idle_us"), [([], 40), (["--span", "0"], 50), (["--span", "all"], 90)]
)
def test_idle_time_and_lines_are_of_the_latest_span_too(
    worker_store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    span: list[str],
    idle_us: int,
) -> None:
    store = str(worker_store)

    def total(command: str, column: str) -> int:
        assert main([command, store, *span, "--format", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        return sum(row[column] for row in rows if row.get("depth", 1) == 1)

    assert total("idle", "time_ns") == 1000 * idle_us
    assert total("lines", "time_ns") == 1000 * {40: 20, 50: 10, 90: 30}[idle_us]
    assert main(["-q", "report", store, *span, "-o", str(tmp_path / "page.html")]) == 0
    page = document_of(tmp_path / "page.html")
    assert len(page["steps"]["columns"]["step"]) == (2 if idle_us == 90 else 1)
    # What explains a kernel there is of the kernel with the id that the row has.
    explained = " ".join(page["roofline"]["signatures"]["columns"]["explain"]["texts"])
    assert ("kernel_20" in explained, "kernel_10" in explained) == (idle_us != 50, idle_us == 50)
    # And what the page says to type gives what it shows.
    asked = "".join(f" {word}" for word in span)
    assert page["meta"]["command"] == f"pyprof2 prof {store}{asked}"
    assert (
        f"pyprof2 whatif {store}{asked} --overlap"
        in (page["job"]["whatif"]["columns"]["command"]["texts"])
    )
    capsys.readouterr()
    assert main(["whatif", store, *span, "--scale", "kernel=.=0", "--format", "json"]) == 0
    (gain,) = json.loads(capsys.readouterr().out)
    # Of all spans only the end of the last one moves.
    assert gain["gain_ns"] == 1000 * {40: 20, 50: 10, 90: 20}[idle_us]


@pytest.mark.parametrize(("span", "peak"), [([], 4300), (["--span", "0"], 6000)])
def test_memory_is_of_the_latest_span_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], span: list[str], peak: int
) -> None:
    """What was not released, and happened between both recordings, is no one's."""
    for name, at, before, size in zip(
        WORKER, (FIRST, SECOND), (5000, 300), (1000, 4000), strict=True
    ):
        allocated = memory(
            at + 15, **{"Bytes": size, "Addr": size, "Device Type": 1, "Device Id": 0,
            "Total Allocated": before + size},
        )  # fmt: skip
        rank = {"rank": 0, "world_size": 1}
        trace(tmp_path / name, op("aten::empty", at + 10, 9), allocated, distributedInfo=rank)
    store = str(parse(tmp_path, tmp_path / "store"))

    assert main(["memory", store, *span, "--format", "json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)
    assert device["peak_allocated_bytes"] == peak
    assert main(["memory", store, *span, "--statistics", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["allocation_bytes"] == {4300: 4000, 6000: 1000}[peak]


def test_a_profile_is_of_the_latest_span_unless_others_are_asked_for(
    worker_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = worker_store
    run = load(store)

    def kernels(**span: Any) -> list[tuple[int, str]]:
        found = run.profile(**span)
        return list(zip(found["kernel_id"], found["kernel"], strict=True))

    assert kernels() == [(1, "kernel_20")]
    assert kernels(span=0) == [(0, "kernel_10")]
    assert kernels(span="all") == [(0, "kernel_10"), (1, "kernel_20")]
    assert run.of_span("latest").summary["kernel_time_ns"] == 20_000
    assert run.of_span(0).spent.recorded_ns == 60_000
    assert run.of_span("all") is run
    by_span = run.profile("span")
    assert dict(zip(by_span["span"], by_span["time_ns"], strict=True)) == {0: 10_000, 1: 20_000}
    # Both have a step 0, of 60 us: two steps, none of 120 us.
    for span, note in ((0, "a step"), ("all", "mean of 2 steps")):
        assert figures(run.of_span(span))[0] == ("step time", "60.000 us", note)
    assert main(["prof", str(store), "--by", "op"]) == 0
    out = capsys.readouterr().out
    assert "span 1, of several: --span N or all" in out
    assert "busy 20.000 us of 60.000 us recorded" in out
    assert main(["prof", str(store), "--by", "span,step"]) == 0
    out = capsys.readouterr().out
    assert "spans 0-1" in out
    assert "a step takes 60.000 us on average" in out
    assert main(["prof", str(store), "--span", "2"]) == 2
    assert "span 2: no such span; there is 0, 1, latest and all" in capsys.readouterr().err


def test_a_span_of_ops_has_the_ids_that_they_have_in_all(tmp_path: Path) -> None:
    for number, (name, at) in enumerate(zip(WORKER, (FIRST, SECOND), strict=True)):
        of = {"pid": 10 + number, "tid": 10 + number}
        node_of = node("MmBackward0", at + 10, 8, seq=1, **{**of, "tid": 5})
        trace(tmp_path / name, op(f"aten::op_{number}", at, 8, **of), node_of)
    run = load(tmp_path)

    whole, latest = run.profile(span="all"), run.profile()

    assert whole[["kernel_id", "span", "op"]].to_numpy().tolist() == [
        [0, 0, "aten::op_0"], [1, 1, "aten::op_1"]
    ]  # fmt: skip
    assert latest[["kernel_id", "op_id"]].to_numpy().tolist() == [
        whole[["kernel_id", "op_id"]].to_numpy().tolist()[1]
    ]


def test_each_rank_has_spans_of_its_own(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    spans_of_worker(first, *(f"a.{at}.pt.trace.json" for at in range(3)), rank=0)
    spans_of_worker(first, *(f"b.{at}.pt.trace.json" for at in range(2)), rank=1)
    run = load(first)

    assert run.tables.spans == {0: [0, 1, 2], 1: [0, 1]}
    assert run.profile()["kernel"].tolist() == ["kernel_30", "kernel_20"]
    assert run.profile(span=2)["kernel"].tolist() == ["kernel_30"]


@pytest.mark.parametrize(
    ("names", "second"),
    [
        pytest.param(("a.1.pt.trace.json", "b.2.pt.trace.json"), SECOND, id="another worker"),
        pytest.param(WORKER, FIRST + 10, id="at the same time"),
        pytest.param((WORKER[0], "other/" + WORKER[1]), SECOND, id="another folder"),
        pytest.param((WORKER[0], "worker0.json"), SECOND, id="another kind of name"),
    ],
)
def test_one_rank_of_what_is_no_worker_s_spans_is_an_error(
    tmp_path: Path, names: tuple[str, str], second: int
) -> None:
    (tmp_path / "other").mkdir()
    around = {"distributedInfo": {"rank": 0, "world_size": 2}}
    files = [
        trace(tmp_path / name, span_of(at, pid), **around)
        for name, at, pid in zip(names, (FIRST, second), (10, 20), strict=True)
    ]

    with pytest.raises(TraceError, match="both are of rank 0"):
        parse(files, tmp_path / "store")


def test_ranks_that_share_a_worker_s_name_are_ranks(tmp_path: Path) -> None:
    spans_of_worker(tmp_path, WORKER[0], rank=0)
    trace(tmp_path / WORKER[1], span_of(SECOND, 20), distributedInfo={"rank": 1, "world_size": 2})

    assert load(tmp_path).tables.spans == {0: [0], 1: [0]}
