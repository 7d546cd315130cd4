"""What is found is stored rank by rank, and a profile reads no more of a store than it shows."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.summaries.findings import Finding
from pyprof2.analysis.summaries.rows import ALL
from pyprof2.analysis.summaries.totals import Totals
from pyprof2.api import run_profile, run_time
from pyprof2.api.run import load, parse
from pyprof2.cli import main
from pyprof2.result_tables import FINDINGS, RESULTS, SUMMARY
from pyprof2.store import folder as stores
from pyprof2.store.folder import read_table
from tests.kineto_events import Event, copy, frame, kernel, launched, op, step, trace

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.tables import Table

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}
V100 = {"id": 0, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7, "computeMinor": 0}
SQUARE: dict[str, Any] = {"dims": [[1000, 1000], [1000, 1000]], "types": ["float", "float"]}
VECTOR, MATRIX = "ampere_sgemm_128x64_tn", "sm90_xmma_gemm_f32f32_tf32f32_f32"
FLOPS = 2 * 1000**3


def product(at: int, dur: int, name: str = VECTOR) -> list[Event]:
    """Return a product of 1000 x 1000 matrices whose kernel runs so long, in us."""
    return [op("aten::mm", at, 20, **SQUARE), *launched(at + 1, 1, at=at + 30, dur=dur, name=name)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks: one with a step of 60 us on an H100, one with two products on a V100."""
    folder = tmp_path_factory.mktemp("store")
    source = [frame("/w/a.py(1): f", 0, 40)]
    trace(folder / "rank0.json", source, step(3, 0, 50), product(0, 30), deviceProperties=[H100])
    again = [
        *launched(301, 2, at=330, dur=100, name="mystery"),
        copy(450, 10, 3, name="Memcpy HtoD"),
    ]
    trace(folder / "rank1.json", product(0, 200), again, deviceProperties=[V100])
    parse(folder, folder / "s.pyprof2")
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """Return a copy of it that a test may change."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "s.pyprof2"


def test_the_fields_of_results_are_the_columns_of_their_tables() -> None:
    assert [field.name for field in fields(Totals)] == SUMMARY.names
    assert [field.name for field in fields(Finding)] == FINDINGS.names


def test_the_totals_of_each_rank_are_stored(store: Path) -> None:
    rows = read_table(store, "summary").to_pylist()

    counted = ["rank", "kernel_time_ns", "copy_time_ns", "linked_ns", "costed_ns", "devices"]
    assert [[row[name] for name in counted] for row in rows] == [
        [0, 30_000, 0, 30_000, 30_000, [H100["name"]]],
        [1, 300_000, 10_000, 200_000, 200_000, [V100["name"]]],
    ]


def test_the_summary_of_all_ranks_is_made_of_theirs(store: Path) -> None:
    found = load(store).summary

    assert found["kernel_time_ns"] == 330_000
    assert found["devices"] == ["NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB"]
    assert (found["ranks"], found["steps"], found["gpu_count"]) == ([0, 1], [3], 2)
    # 30 us; from 30 us to 460 us.
    assert (found["span_ns"], found["busy_ns"]) == (460_000, 340_000)
    assert found["linked_pct"] == pytest.approx(100 * 230 / 330)
    assert found["costed_pct"] == pytest.approx(100 * 230 / 330)
    assert {name: ns for name, ns in found["ledger"].items() if ns} == {
        "ok": 230_000, "no_op": 100_000, "copy": 10_000,
    }  # fmt: skip


def test_the_window_of_a_step_is_stored(store: Path) -> None:
    (found,) = read_table(store, "steps", ["rank", "step", "start_ns", "dur_ns"]).to_pylist()

    assert found == {"rank": 0, "step": 3, "start_ns": 0, "dur_ns": 60_000}
    assert load(store).steps["dur_ns"].tolist() == [60_000]


def test_utilization_is_of_the_device_that_is_named(store: Path) -> None:
    # f32 is 15.7 TFLOP/s on a V100 and, as TF32, 494.7 on an H100. The windows: 60 us, and 430 us.
    stored, named = (
        run_time.utilization(load(store).tables),
        run_time.utilization(load(store, device="V100 SXM2").tables),
    )

    assert stored["mfu_pct"].tolist() == pytest.approx(
        [100 * FLOPS / (494.7e12 * 60e-6), 100 * FLOPS / (15.7e12 * 430e-6)], rel=1e-3
    )
    assert named["mfu_pct"].tolist() == pytest.approx(
        [100 * FLOPS / (15.7e12 * 60e-6), 100 * FLOPS / (15.7e12 * 430e-6)], rel=1e-3
    )


@pytest.mark.parametrize(
    ("device", "peaks"),
    [
        pytest.param(None, [66.9e12, 15.7e12], id="recorded"),
        pytest.param("H100 SXM", [66.9e12, 66.9e12], id="named"),
    ],
)
def test_each_rank_has_its_own_device(store: Path, device: str | None, peaks: list[float]) -> None:
    rows = run_profile.rows_of(load(store, device=device).tables)

    found = rows["roofline_pct"][rows["op"].notna()].tolist()
    times = [30e-6, 200e-6]
    wanted = [100 * FLOPS / p / t for p, t in zip(peaks, times, strict=True)]
    assert found == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("device", [None, "H100 SXM"])
def test_ops_of_two_ranks_that_share_a_number_are_two_ops(
    tmp_path: Path, device: str | None
) -> None:
    trace(tmp_path / "rank0.json", product(0, 30, MATRIX), deviceProperties=[H100])
    trace(tmp_path / "rank1.json", product(0, 30), deviceProperties=[H100])

    rows = run_profile.rows_of(load(parse(tmp_path, tmp_path / "s.pyprof2"), device=device).tables)

    # If they were one op, matrix units would have done it: 494.7 TFLOP/s.
    assert rows["tensor_core"].tolist() == ["yes", "no"]
    assert rows["roofline_pct"].iloc[1] == pytest.approx(100 * FLOPS / 66.9e12 / 30e-6)


def test_a_rank_without_gpu_work_has_no_rows_beside_one_that_has_some(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.json", op("aten::mm", 0, 500, **SQUARE))
    trace(tmp_path / "rank1.json", product(0, 30))

    run = load(parse(tmp_path, tmp_path / "s.pyprof2"))

    assert run_profile.rows_of(run.tables)["rank"].tolist() == [1]
    assert run_profile.ledger(run.tables)["time_ns"].sum() == 30_000
    assert (run.summary["no_gpu"], run.summary["span_ns"]) == (False, 30_000)


def test_another_root_changes_how_many_have_a_source(store: Path) -> None:
    assert load(store).summary["ops_with_source_count"] == 1
    assert load(store, source_root="/w").summary["ops_with_source_count"] == 1
    shutil.rmtree(store / "summary")
    with pytest.raises(Exception, match="summary: missing"):
        load(store).summary  # noqa: B018


def test_a_profile_of_some_columns_is_that_of_all(store: Path) -> None:
    whole = run_profile.rows_of(load(store).tables)

    for name in whole.columns:
        some = run_profile.rows_of(load(store).tables, [name])
        assert some[name].equals(whole[name]), name
        assert list(some) == [name]
    assert set(whole.columns) <= set(ALL)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="what says most"),
        pytest.param(["--by", "op,direction"], id="axes"),
        pytest.param(["--by", "kernel"], id="kernels"),
        pytest.param(["--summary"], id="summary"),
        pytest.param(["--csv"], id="csv"),
    ],
)
def test_a_profile_reads_the_columns_that_it_shows_and_each_once(
    store: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[tuple[Path, str]] = Counter()
    original = stores._read_file

    def spy(file: Path, rank: int, table: Table, columns: list[str] | None) -> Any:
        read.update((file, name) for name in columns or table.names)
        return original(file, rank, table, columns)

    monkeypatch.setattr(stores, "_read_file", spy)
    main(["-q", "prof", str(store), *options])

    assert read
    # What steps are made of is one small table.
    large = {key: count for key, count in read.items() if key[0].parent.name != "steps"}
    assert {key: count for key, count in large.items() if count > 1} == {}
    unseen = {"grid", "registers", "occupancy_pct", "pid"} if options != ["--csv"] else set()
    assert unseen.isdisjoint(name for _, name in large)


@pytest.mark.parametrize("options", [[], ["--by", "layer"], ["--csv"], ["--summary"]])
def test_a_profile_needs_no_table_of_ops(
    store: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["-q", "prof", str(store), *options])
    whole = capsys.readouterr().out

    for name in ("ops", "launches", "ranges", "memory", "stacks", "signatures", "devices"):
        if name != "devices" or options != ["--summary"]:  # which says what they are
            shutil.rmtree(store / name)
    main(["-q", "prof", str(store), *options])

    assert whole
    assert capsys.readouterr().out == whole


def test_results_are_of_a_rank_of_several_recordings_too(tmp_path: Path) -> None:
    """One process recorded twice, a second apart: the gap between is no time of the rank."""
    around = {"distributedInfo": {"rank": 0, "world_size": 1}}
    for number in (0, 1):
        at = number * 1_000_000
        events = [kernel(at, 10, 1), op("aten::mm", at, 5, **SQUARE)]
        trace(tmp_path / f"host_7.{number}.pt.trace.json", events, **around)

    made = parse(tmp_path, tmp_path / "s.pyprof2")

    assert {name: read_table(made, name).num_rows for name in RESULTS} == {
        "summary": 1, "ledger": 7, "utilization": 1, "steps": 0, "clocks": 1,
        # Of each recording the kernel, the call, the op on the host, and what is outside of it.
        "lines": 8, "parts": 0, "segments": 0,
        # Both kernels have all in common, and no launch that would lead to an op; none was late.
        # By recording, along axis `launch`, they are two.
        "sums": 1, "sum_calls": 0, "axis_sums": 3, "axis_sum_calls": 0,
        "idle_sums": 0, "device_use": 1,
    }  # fmt: skip
    assert load(made).summary["span_ns"] == 20_000
