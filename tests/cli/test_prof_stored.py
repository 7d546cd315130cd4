"""`prof` of a store reads what `parse` added up, and prints what it prints of the kernels."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyprof2.api import run_profile
from pyprof2.api.run import load, parse
from tests.conftest import once
from tests.kineto_events import annotation, copy, frame, launch, launched, op, step, trace
from tests.synthetic_trace import synthetic_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result
    from tests.kineto_events import Event

    Invoke = Callable[..., Result]

SUMS = ("sums", "sum_calls", "axis_sums", "axis_sum_calls", "idle_sums")
AXES = (
    "name", "op", "signature", "layer", "source", "library", "range", "direction", "stream",
    "rank", "category", "step", "rank,step", "stack", "stack,grid", "block", "registers",
    "tensor_core", "span",
)  # fmt: skip
SHOWN = (
    [],
    *(["--by", axis] for axis in AXES),
    ["--by", "layer,direction", "--depth", "2"],
    ["--by", "range", "--fold-numbers"],
    ["--by", "op", "--sort", "+mean_ns,op"],
    ["--by", "op", "--no-copies", "--direction", "forward,(none)"],
    ["--by", "op", "--category", "matmul,memcpy", "--top", "2"],
    ["--by", "stream", "--kernel", "gemm"],
    ["--by", "layer", "--op", "no such op"],
    ["--by", "step", "--step", "1:1", "--format", "csv"],
    ["--by", "step", "--op", "mm"],
    ["--by", "name", "-c", "kernel,tensor_core_missed,tensor_core_missed_pct,roofline_flag,bytes"],
    ["--by", "op", "--format", "csv"],
    ["--by", "name,op", "--format", "json"],
    ["--by", "layer", "--format", "markdown"],
    ["--by", "kernel"],
    ["--by", "kernel", "--top", "7", "-w", "300"],
    ["--by", "kernel", "--top", "7", "-c", "kernel,dur_ns,copy_kind,source,recompute,grid"],
    ["--by", "kernel", "--top", "7", "-c", "kernel_short,flops,tc"],
    ["--by", "kernel", "--top", "7", "-c", "kernel_short,flops,bytes"],
    ["--by", "kernel", "--top", "7", "--op", "mm"],
    ["--by", "kernel", "--top", "7", "--sort", "dur_us", "--format", "markdown"],
    ["--by", "kernel", "--top", "3", "--format", "markdown"],
)


def in_a_step(number: int) -> list[Event]:
    """Return a step of 1 ms: a product of two kernels, one that is in no op, and copies."""
    at, ids = 1000 * number, range(10 * number + 1, 10 * number + 9)
    square = {"dims": [[512, 512], [512, 512]], "types": ["float", "float"]}
    return [
        step(number, at, 1000),
        annotation(f"batch {number}", at, 900),
        frame("nn.Module: Net_0", at + 1, 400),
        frame("nn.Module: Linear_0", at + 2, 200),
        op("aten::mm", at + 10, 50, id=ids[0], **square),
        *launched(at + 12, ids[0], at=at + 20, dur=30 + number, name="sm80_gemm_f32"),
        *launched(at + 15, ids[1], at=at + 60, dur=7, name="splitKreduce_kernel"),
        op("aten::add", at + 300, 9, id=ids[2], dims=[[4096], [4096]], types=["float", "float"]),
        *launched(at + 301, ids[2], at=at + 310, dur=3, name="elementwise_kernel"),
        *launched(at + 500, ids[3], at=at + 510, dur=40, name="ncclDevKernel_AllReduce"),
        launch(at + 600, ids[4], name="cudaMemcpyAsync"),
        copy(at + 610, 90, ids[4], name="Memcpy HtoD (Pageable -> Device)", bytes=4096),
        launch(at + 800, ids[5], name="cudaMemsetAsync"),
        copy(at + 810, 2, ids[5], name="Memset (Device)", bytes=64, stream=9),
    ]


def made_store(path: Path) -> None:
    devices = [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}]
    recording = path.with_name("sums.json")
    trace(recording, *(in_a_step(number) for number in range(3)), deviceProperties=devices)
    parse(recording, path)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store of three steps."""
    shutil.copytree(once("sums.pyprof2", made_store), tmp_path / "sums.pyprof2")
    return tmp_path / "sums.pyprof2"


def without_sums(store: Path) -> Path:
    """Return the store as an earlier version left it."""
    older = store.with_name(f"older-{store.name}") / store.name
    shutil.copytree(store, older)
    for name in SUMS:
        shutil.rmtree(older / name)
    return older


def assert_same(invoke: Invoke, store: Path) -> None:
    older = without_sums(store)
    for options in SHOWN:
        found, wanted = (invoke("prof", path, *options) for path in (store, older))
        assert (found.code, found.out) == (wanted.code, wanted.out), options


@pytest.mark.slow
def test_sums_that_are_stored_print_what_the_kernels_do(invoke: Invoke, store: Path) -> None:
    assert run_profile.stored_sums(load(store).tables) is not None
    assert_same(invoke, store)


@pytest.mark.minutes
def test_real_traces_print_the_same_with_and_without_sums(
    invoke: Invoke, real_trace: Path, tmp_path: Path
) -> None:
    store = tmp_path / "real.pyprof2"
    parse(real_trace, store)

    assert_same(invoke, store)


def test_no_kernel_is_read_for_what_is_stored(invoke: Invoke, store: Path) -> None:
    shown: list[list[str]] = [
        [],
        ["--by", "layer"],
        ["--by", "step", "--csv"],
        ["--by", "stack"],
        ["--by", "grid"],
    ]
    wanted = [invoke("prof", store, *options) for options in shown]
    for name in ("kernels", "copies", "idle", "ops", "launches", "ranges", "signatures"):
        shutil.rmtree(store / name)

    assert [invoke("prof", store, *options) for options in shown] == wanted


@pytest.mark.parametrize(
    "options",
    [["--device", "H100 SXM"], ["--source-root", "/"], ["--step", "1:1"], ["--by", "step,op"]],
)
def test_what_is_not_stored_is_made_of_the_kernels(
    invoke: Invoke, store: Path, options: list[str]
) -> None:
    axes = [] if "--by" in options else ["--by", "op"]
    older = without_sums(store)

    found, wanted = (invoke("prof", path, *axes, *options) for path in (store, older))

    assert (found.code, found.out) == (0, wanted.out)


def test_sums_that_name_rows_which_do_not_exist_are_refused(invoke: Invoke, store: Path) -> None:
    file = store / "sum_calls" / "rank-0.parquet"
    table = pq.read_table(file)
    file.unlink()
    first = table.slice(0, 1).to_pylist()[0] | {"rows": [10**6]}
    pq.write_table(type(table).from_pylist([first], schema=table.schema), file)

    found = invoke("prof", store)

    assert found.code == 1
    assert "names rows that do not exist; make it anew with 'pyprof2 parse --force'" in found.err


def test_a_damaged_table_that_keys_lead_to_is_named(
    tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    path, store = tmp_path / "trace.json", tmp_path / "net.pyprof2"
    path.write_text(json.dumps(synthetic_trace()))
    assert invoke("parse", path, "-o", store).code == 0
    (store / "launches" / "rank-0.parquet").write_bytes(b"PAR1 cut off PAR1")

    said = invoke("explain", store, "kernel:0")

    assert said.code == 1
    assert said.err.startswith(f"pyprof2: {store / 'launches'}: damaged (")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("column", ["start_ns", "end_ns"])
def test_a_store_that_does_not_say_when_it_was_recorded_is_read(
    column: str, tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    path, store = tmp_path / "trace.json", tmp_path / "net.pyprof2"
    path.write_text(json.dumps(synthetic_trace()))
    assert invoke("parse", path, "-o", store).code == 0
    file = store / "trace" / "rank-0.parquet"
    table = pq.read_table(file)
    place = table.column_names.index(column)
    nulls = pa.nulls(table.num_rows, table.schema.field(column).type)
    pq.write_table(table.set_column(place, table.schema.field(column), nulls), file)

    said = invoke("advise", store)

    assert "a fault in pyprof2" not in said.out + said.err
    assert said.code == 0, said.err


@pytest.mark.parametrize("count", [0, 2])
def test_a_store_whose_rank_has_no_sums_or_several_is_damaged(
    count: int, tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    path, store = tmp_path / "trace.json", tmp_path / "net.pyprof2"
    path.write_text(json.dumps(synthetic_trace()))
    assert invoke("parse", path, "-o", store).code == 0
    file = store / "summary" / "rank-0.parquet"
    pq.write_table(pa.concat_tables([pq.read_table(file)] * 2).slice(0, count), file)

    said = invoke("prof", store)

    assert said.code == 1
    assert f"{file}: not one row; make the store anew" in said.err


def test_pyprofs_columns_of_no_row_are_a_header(
    tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(synthetic_trace()))
    words = "prof", path, "--pyprof", "--format", "csv"
    header, *rows = invoke(*words).out.splitlines()

    assert len(rows) == 10
    assert invoke(*words, "--op", "no such op").out.splitlines() == [header]


def test_work_without_a_name_is_exported_where_there_are_no_ops(
    tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    args = {"device": 0, "stream": 7, "correlation": 1}
    event = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 5, "dur": 3, "args": args}
    path, out = tmp_path / "trace.json", tmp_path / "net.pftrace"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event | {"name": ""}]}))

    assert invoke("export", "--perfetto", path, "-o", out).code == 0
    assert out.stat().st_size
