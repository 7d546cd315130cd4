"""A trace of Perfetto's, read back with Perfetto's schema, holds what the store holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyprof2
import pyprof2.store.folder
from pyprof2.errors import StoreError, UsageError
from pyprof2.reports.cells import clean
from pyprof2.reports.perfetto.export import PerfettoQuery, row_count, show
from tests.kineto_events import (
    annotation,
    complete,
    copy,
    frame,
    kernel,
    launch,
    launched,
    load_events,
    memory,
    op,
    step,
)
from tests.kineto_events import trace as write_trace
from tests.reports.perfetto_reader import Slice, Trace, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

RN50 = "kineto/rn50_v100_w0.json.gz"
OTHERS = (
    "kineto/tl_owlv2_h100.json.gz", "kineto/hta_mi250_toy.json.gz", "kineto/tl_vllm_dec.json.gz",
    "kineto/hta_gp100_uanno.json.gz",
)  # fmt: skip


def export(run: Run, path: Path, **query: Any) -> Trace:
    """Return what `pyprof2 export --perfetto` writes, read back."""
    assert show(run, PerfettoQuery(path, **query)) == []
    return read(path)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], tuple[Run, Trace]]:
    """Return a function from a real trace to its run and its export, made once."""
    known: dict[Path, tuple[Run, Trace]] = {}

    def of(path: Path) -> tuple[Run, Trace]:
        if path not in known:
            run = pyprof2.load(path)
            known[path] = run, export(run, tmp_path_factory.mktemp("perfetto") / "x.pftrace")
        return known[path]

    return of


@pytest.fixture(params=[RN50, *OTHERS], ids=lambda name: name.split("/")[1].split(".")[0])
def real(
    request: pytest.FixtureRequest,
    shared_trace: Callable[[str], Path],
    exported: Callable[[Path], tuple[Run, Trace]],
) -> tuple[Run, Trace]:
    """Return a real run and its export."""
    return exported(shared_trace(request.param))


@pytest.fixture
def rn50(
    shared_trace: Callable[[str], Path], exported: Callable[[Path], tuple[Run, Trace]]
) -> tuple[Run, Trace]:
    """Return the run of ResNet-50 on a V100 and its export."""
    return exported(shared_trace(RN50))


def work_of(run: Run) -> pd.DataFrame:
    return pd.concat([run.kernels, run.copies], ignore_index=True)


def spans(rows: pd.DataFrame, key: str) -> set[tuple[int, int, int]]:
    """Return id, start and end of each row."""
    end = rows["start_ns"] + rows["dur_ns"]
    return set(zip(rows[key].tolist(), rows["start_ns"].tolist(), end.tolist(), strict=True))


def spans_of(slices: list[Slice], key: str) -> set[tuple[int, int | None, int | None]]:
    return {(each.args[key], each.start, each.end) for each in slices if key in each.args}


def test_every_kernel_and_copy_is_there_with_its_times(real: tuple[Run, Trace]) -> None:
    run, trace = real
    work = work_of(run)

    assert spans_of(trace.slices, "kernel_id") == spans(work, "kernel_id")
    on_streams = [each for each in trace.slices if "kernel_id" in each.args]
    assert len(on_streams) == len(work)
    stream = dict(zip(work["kernel_id"], work["stream"], strict=True))
    assert all(
        each.track[2].partition(" (")[0] == f"stream {stream[each.args['kernel_id']]}"
        for each in on_streams
    )


def test_every_op_launch_and_range_is_there_with_its_times(real: tuple[Run, Trace]) -> None:
    run, trace = real

    assert spans_of(trace.slices, "op_id") == spans(run.ops, "op_id")
    calls = [each for each in trace.slices if each.category == "launch"]
    assert spans_of(calls, "launch_id") == spans(run.launches, "launch_id")
    kinds = ["step", "annotation", "layer", "module", "python", "internal"]
    ranges = run.ranges[run.ranges["kind"].isin(kinds)]
    found = [each for each in trace.slices if each.category in kinds]
    wanted = zip(
        ranges["name"], ranges["start_ns"], ranges["start_ns"] + ranges["dur_ns"], strict=True
    )
    assert Counter((e.name, e.start, e.end) for e in found) == Counter(
        (clean(name), start, end) for name, start, end in wanted
    )


def test_nothing_on_a_stream_is_inside_anything(real: tuple[Run, Trace]) -> None:
    _, trace = real

    assert {each.depth for each in trace.slices if "kernel_id" in each.args} <= {0}


def test_ops_are_as_deep_as_linking_has_them(rn50: tuple[Run, Trace]) -> None:
    run, trace = rn50
    depth = dict(zip(run.ops["op_id"], run.ops["depth"], strict=True))

    ops = [each for each in trace.slices if "op_id" in each.args]
    assert [each.depth for each in ops] == [depth[each.args["op_id"]] for each in ops]


def test_kernels_are_named_by_layer_and_op(real: tuple[Run, Trace]) -> None:
    run, trace = real
    wanted = {}
    for row in work_of(run).to_dict("records"):
        has = {name for name in ("layer", "op") if isinstance(row[name], str)}
        name = row["kernel_short"]
        if "op" in has and row["category"] not in {"memcpy", "memset"}:
            name = f"{row['layer']}: {row['op']}" if "layer" in has else row["op"]
        wanted[row["kernel_id"]] = name

    found = {e.args["kernel_id"]: e.name for e in trace.slices if "kernel_id" in e.args}
    assert found == wanted


def test_flows_are_the_links_of_the_store(real: tuple[Run, Trace]) -> None:
    run, trace = real
    begins: dict[int, Slice] = {}
    for each in trace.slices:
        for flow in each.flows_out:
            assert flow not in begins
            begins[flow] = each
    ends = {flow: each for each in trace.slices for flow in each.flows_in}
    assert set(begins) == set(ends)
    pairs = [(begins[flow].args, ends[flow].args) for flow in begins]

    work = work_of(run).dropna(subset=["launch_id"])
    launched = {(b["launch_id"], e["kernel_id"]) for b, e in pairs if "launch_id" in b}
    assert launched == set(zip(work["launch_id"], work["kernel_id"], strict=True))
    backward = run.ops.dropna(subset=["forward_op_id"])
    paired = {(b["op_id"], e["op_id"]) for b, e in pairs if "op_id" in b}
    assert paired == set(zip(backward["forward_op_id"], backward["op_id"], strict=True))
    assert len(pairs) == len(work) + len(backward)


def counter(trace: Trace, name: str) -> dict[str, list[tuple[int, float]]]:
    """Return the values of the counters of this name, by the track above."""
    return {track[-2]: v for track, v in trace.counters.items() if track[-1] == name}


def test_queue_depth_is_that_of_the_run(real: tuple[Run, Trace]) -> None:
    run, trace = real
    for (device, stream), rows in run.queue.groupby(["device", "stream"]):
        changed = rows["queued"].diff().fillna(rows["queued"]) != 0
        wanted = list(zip(rows["time_ns"][changed], rows["queued"][changed], strict=True))
        found = counter(trace, f"queued, stream {stream}")
        values = [v for name, v in found.items() if name.split(" · ")[0] == f"device {device}"]
        assert (values[0] if values else []) == wanted


@pytest.mark.parametrize(("name", "column"), [("TFLOP/s", "flops"), ("GB/s", "bytes")])
def test_the_integral_of_a_rate_is_the_work(
    real: tuple[Run, Trace], name: str, column: str
) -> None:
    run, trace = real
    work = work_of(run)
    work = work[work["dur_ns"] > 0]
    for device, rows in work.groupby("device"):
        found = [
            values
            for track, values in counter(trace, name).items()
            if track.split(" · ")[0] == f"device {device}"
        ]
        values = found[0] if found else []
        area = sum(v * (t1 - t0) for (t0, v), (t1, _) in pairwise(values))
        wanted = rows[column].sum() / (1000 if name == "TFLOP/s" else 1)
        assert area == pytest.approx(wanted, rel=1e-6)
        assert not values or values[-1][1] == 0


def test_the_share_of_the_roof_is_that_of_the_kernels(rn50: tuple[Run, Trace]) -> None:
    run, trace = rn50
    ((_, values),) = counter(trace, "% of roof").items()
    at = dict(values)

    rows = run.kernels.dropna(subset=["roofline_pct"])
    rows = rows[rows["roofline_pct"] >= 0.0001]
    # There is one stream, so what runs is one kernel; those that touch change it at once.
    for row in rows.to_dict("records"):
        assert at.get(row["start_ns"], row["roofline_pct"]) == pytest.approx(
            row["roofline_pct"], abs=1e-4
        )
    assert len(set(rows["start_ns"]) - set(at)) < len(rows) / 100
    assert set(trace.units.values()) >= {"% of roof", "TFLOP/s", "GB/s"}


def test_memory_is_that_of_the_recorder(
    shared_trace: Callable[[str], Path], exported: Callable[[Path], tuple[Run, Trace]]
) -> None:
    run, trace = exported(shared_trace(OTHERS[0]))

    for column in ("allocated_bytes", "reserved_bytes"):
        for (kind, device), rows in run.memory.groupby(
            ["device_type", "device"], observed=True, dropna=False
        ):
            name = f"{kind} {device}" if kind == "cuda" else str(kind)
            found = counter(trace, f"{name} {column.removesuffix('_bytes')}")
            assert found["memory"] == list(zip(rows["time_ns"], rows[column], strict=True))


def test_memory_that_the_recorder_does_not_count_is_added_up(rn50: tuple[Run, Trace]) -> None:
    run, trace = rn50
    assert run.memory["allocated_bytes"].isna().all()

    name = "cuda 0 allocated, change since the start"
    rows = run.memory[run.memory["device_type"] == "cuda"]
    running, wanted = 0, []
    for time, change in zip(rows["time_ns"], rows["bytes"], strict=True):
        running += change
        wanted.append((time, running))
    assert counter(trace, name)["memory"] == wanted


def test_idle_time_is_there_by_cause(real: tuple[Run, Trace]) -> None:
    run, trace = real
    found: defaultdict[str, int] = defaultdict(int)
    for each in trace.on("idle"):
        assert each.end is not None
        assert each.depth == 0
        found[each.name] += each.end - each.start

    assert found == run.idle.groupby("cause", observed=True)["time_ns"].sum().to_dict()


def test_steps_have_their_windows_on_the_device(rn50: tuple[Run, Trace]) -> None:
    run, trace = rn50
    wanted = [
        (f"step {row['step']}", row["start_ns"], row["start_ns"] + row["dur_ns"])
        for row in run.steps.to_dict("records")
    ]

    found = [each for each in trace.on("steps") if each.track[1].startswith("device")]
    assert [(each.name, each.start, each.end) for each in found] == wanted


def test_findings_are_tracks_at_their_evidence(rn50: tuple[Run, Trace]) -> None:
    run, trace = rn50
    fires = run.advise().query("status == 'fires'")

    found = trace.below("findings")
    assert {each.name for each in found} == set(fires["rule"])
    by_rule = dict(zip(fires["rule"], fires["finding"], strict=True))
    assert all(each.args["finding"] == by_rule[each.name] for each in found)
    (half,) = fires.loc[fires["rule"] == "half-precision", "evidence"]
    ids = [int(number) for number in half.split(":")[1].split(" ")[0].split(",")]
    rows = run.kernels.set_index("kernel_id").loc[ids]
    assert {each.start for each in trace.on("half-precision")} == set(rows["start_ns"])


def test_an_event_takes_few_bytes(rn50: tuple[Run, Trace], tmp_path: Path) -> None:
    run, trace = rn50
    show(run, PerfettoQuery(tmp_path / "x.pftrace"))

    size = (tmp_path / "x.pftrace").stat().st_size
    assert size / trace.packet_count < 60
    assert row_count(run) + len(run.idle) < trace.packet_count


def test_parts_of_any_size_give_the_same(
    rn50: tuple[Run, Trace],
    shared_trace: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, whole = rn50
    monkeypatch.setattr(pyprof2.store.folder, "_ROW_GROUP", 777)
    store = pyprof2.parse(shared_trace(RN50), tmp_path / "small-parts.pyprof2")
    run = pyprof2.load(store)
    assert len(run.tables.ranks[0].parts("ops")) > 20

    trace = export(run, tmp_path / "x.pftrace")

    assert sorted(map(repr, trace.slices)) == sorted(map(repr, whole.slices))
    assert trace.counters == whole.counters


# ------------------------------------------------------------------------- what is made by hand


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Trace]:
    """Return a function from events in us to what is exported of them."""
    return lambda *events: export(
        load_events(tmp_path, *events), tmp_path / "x.pftrace", findings=False
    )


def test_an_op_that_ends_outside_of_the_one_around_it_has_a_track_of_its_own(
    made: Callable[..., Trace],
) -> None:
    trace = made(op("aten::a", 0, 10), op("aten::b", 5, 10), op("aten::c", 6, 2))

    found = {e.name: (e.track[-1], e.start, e.end, e.depth) for e in trace.slices}
    assert found == {
        "aten::a": ("thread 101", 0, 10_000, 0),
        "aten::b": ("ops (2)", 5_000, 15_000, 0),
        "aten::c": ("thread 101", 6_000, 8_000, 1),
    }


def test_kernels_that_overlap_on_a_stream_are_side_by_side(made: Callable[..., Trace]) -> None:
    trace = made(
        launched(0, 1, at=10, dur=10, name="one"), launched(2, 2, at=15, dur=10, name="two"),
        launched(4, 3, at=25, dur=5, name="three"),
    )  # fmt: skip

    found = {e.name: e.track[-1] for e in trace.slices if "kernel_id" in e.args}
    assert found == {"one": "stream 7", "two": "stream 7 (2)", "three": "stream 7"}


def test_what_touches_is_not_nested_and_an_instant_is_no_parent(
    made: Callable[..., Trace],
) -> None:
    trace = made(op("a", 0, 5), op("b", 5, 5), op("z", 5, 0), op("c", 5, 2))

    assert {e.name: (e.depth, e.start, e.end) for e in trace.slices} == {
        "a": (0, 0, 5_000), "b": (0, 5_000, 10_000), "c": (1, 5_000, 7_000),
        "z": (2, 5_000, 5_000),
    }  # fmt: skip


def test_nanoseconds_are_exact(made: Callable[..., Trace]) -> None:
    trace = made(op("aten::a", "1623142623454003.001", "0.007"))

    (only,) = trace.slices
    assert (only.start, only.end) == (1623142623454003001, 1623142623454003008)


def test_names_show_what_a_terminal_or_a_reader_would_obey(made: Callable[..., Trace]) -> None:
    name = "\x1b[31m\u202eevil\n\x07<script>"
    trace = made(
        op(name, 0, 10), annotation(name, 0, 20), launched(1, 1, at=20, dur=5, name=name),
        step(1, 0, 30), frame(f"a.py(1): {name}", 0, 9),
    )  # fmt: skip

    texts = [e.name for e in trace.slices] + [
        value for e in trace.slices for value in e.args.values() if isinstance(value, str)
    ]
    shown = r"\x1b[31m\u202eevil\n\x07<script>"
    assert shown in texts
    assert all(text.isprintable() for text in texts)


def test_markers_for_programs_are_no_slices(made: Callable[..., Trace]) -> None:
    trace = made(op("aten::a", 0, 10), annotation("mine", 0, 20), frame("a.py(1): f", 0, 30))

    assert {e.track[3:]: e.name for e in trace.slices} == {
        (): "aten::a", ("ranges",): "mine", ("Python",): "a.py(1): f",
    }  # fmt: skip


def test_a_launch_of_many_kernels_has_a_flow_to_each(made: Callable[..., Trace]) -> None:
    graph = [launch(0, 5, name="cudaGraphLaunch")]
    trace = made(*graph, *(kernel(10 + 2 * i, 2, 5) for i in range(200)))

    (call,) = (e for e in trace.slices if e.name == "cudaGraphLaunch")
    assert len(set(call.flows_out)) == 200
    assert {f for e in trace.slices for f in e.flows_in} == set(call.flows_out)


def test_counters_by_hand(made: Callable[..., Trace]) -> None:
    shapes = {"dims": [[4, 8], [8, 16]], "types": ["float", "float"]}
    trace = made(
        op("aten::mm", 0, 20, **shapes), launched(5, 1, at=30, dur=40),
        launched(50, 2, at=60, dur=1), copy(80, 10, 3, name="Memcpy HtoD", bytes=5000),
    )  # fmt: skip

    # 2·4·8·16 FLOPs in 40 us; of the second kernel nothing is known; two are queued never.
    assert counter(trace, "TFLOP/s").popitem()[1] == [(30_000, 2.56e-5), (70_000, 0)]
    assert counter(trace, "GB/s").popitem()[1][-2:] == [(80_000, 0.5), (90_000, 0)]
    queued = [(6_000, 1), (30_000, 0), (51_000, 1), (60_000, 0)]
    assert counter(trace, "queued, stream 7").popitem()[1] == queued


def test_memory_by_hand(made: Callable[..., Trace]) -> None:
    device = {"Device Type": 1, "Device Id": 0, "Addr": 1}
    totals = {"Total Allocated": 50, "Total Reserved": 90}
    trace = made(
        op("a", 0, 9), memory(1, Bytes=10, **device, **totals), memory(2, Bytes=-4, **device),
        memory(3, Bytes=7, **device),
    )  # fmt: skip

    assert {track[-1]: values for track, values in trace.counters.items()} == {
        "cuda 0 allocated": [(1_000, 50)],
        "cuda 0 reserved": [(1_000, 90)],
        "cuda 0 allocated, change since the start": [(2_000, -4), (3_000, 3)],
    }


def test_samples_of_counters_by_hand(made: Callable[..., Trace]) -> None:
    def sample(name: str, ts: int, args: dict[str, float], pid: Any = 7) -> dict[str, Any]:
        return {"ph": "C", "name": name, "ts": ts, "pid": pid, "args": args}

    trace = made(
        op("a", 0, 9), sample("power", 2, {"W": 3.5, "V": 1}), sample("power", 4, {"W": 2}),
        sample("sm", 3, {"": 7}, "GPU 0 Counters"),
        complete("cuda_profiler_range", "k", 1, 1, args={"inst": 5}),
    )  # fmt: skip

    assert {track[-2:]: values for track, values in trace.counters.items()} == {
        ("counters", "process 7 · power · W"): [(2_000, 3.5), (4_000, 2)],
        ("counters", "process 7 · power · V"): [(2_000, 1)],
        ("device 0", "sm"): [(3_000, 7)],
    }


def test_ranks_are_on_one_clock_and_can_be_chosen(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank, base in enumerate((1_000_000, 1_000_250)):
        write_trace(
            folder / f"rank-{rank}.json", op("aten::a", 1, 2), baseTimeNanoseconds=base,
            distributedInfo={"rank": rank, "world_size": 2},
        )  # fmt: skip
    run = pyprof2.load(folder)

    both = export(run, tmp_path / "both.pftrace")
    one = export(run, tmp_path / "one.pftrace", rank=1)

    of_ops = [[(e.track[0], e.start) for e in x.slices if e.name == "aten::a"] for x in (both, one)]
    first, second = ("rank 0: rank-0.json", 1_000), ("rank 1: rank-1.json", 1_250)
    assert of_ops == [[first, second], [second]]
    assert {e.track[0] for e in one.slices} == {second[0]}
    with pytest.raises(UsageError, match="rank 7: no such rank; there is 0, 1"):
        show(run, PerfettoQuery(tmp_path / "x.pftrace", rank=7))
    assert not (tmp_path / "x.pftrace").exists()


def test_of_a_long_recording_findings_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyprof2.reports.perfetto.export.MOST_ROWS_FOR_FINDINGS", 1)
    run = load_events(tmp_path, op("aten::a", 0, 1), op("aten::a", 2, 1))

    (line,) = show(run, PerfettoQuery(tmp_path / "x.pftrace"))

    assert line.endswith("'pyprof2 advise' and 'ranks' do")


def test_rows_that_are_not_in_order_of_time_are_refused(tmp_path: Path) -> None:
    store = pyprof2.parse(
        write_trace(tmp_path, op("aten::a", 0, 1), op("aten::b", 5, 1)), tmp_path / "s.pyprof2"
    )
    file = store / "ops" / "rank-0.parquet"
    table = pq.read_table(file)
    starts = table["start_ns"].to_pylist()[::-1]
    at = table.column_names.index("start_ns")
    field = table.schema.field(at)
    pq.write_table(table.set_column(at, field, pa.chunked_array([starts], pa.int64())), file)

    with pytest.raises(StoreError, match="table ops: its rows are not in order of start"):
        show(pyprof2.load(store), PerfettoQuery(tmp_path / "x.pftrace", findings=False))
