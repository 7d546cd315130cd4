"""A page and an explanation read a long store in parts, and of most tables only some of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import pyprof2.store.folder
from pyprof2.analysis.summaries.cube import KEYS, cube
from pyprof2.api import run_findings, run_profile, run_time
from pyprof2.api.run import load, parse
from pyprof2.errors import StoreError
from pyprof2.reports.page.document import ReportQuery, packed_document
from pyprof2.reports.page.roofline import roofline_of
from tests.kineto_events import launched, load_events, op, step
from tests.reports.page.reader import rows_of
from tests.training_trace import training_trace

if TYPE_CHECKING:
    from pyprof2.api.run import Run

ROWS_OF_PART = 97
HELPER = "void splitKreduce_kernel<float, float>()"
QUERY = ReportQuery(Path("training.pyprof2"), "1")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the store of a training as it is, and one of it in parts of a few rows."""
    folder = tmp_path_factory.mktemp("parts")
    trace = folder / "training.json"
    trace.write_bytes(training_trace())
    whole = parse(trace, folder / "whole.pyprof2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyprof2.store.folder, "_ROW_GROUP", ROWS_OF_PART)
        return whole, parse(trace, folder / "cut.pyprof2")


def rows(store: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table, read with nothing of ours."""
    file = pq.ParquetFile(store / table / "rank-0.parquet")
    found: list[dict[str, Any]] = file.read().to_pylist()
    return found


@pytest.mark.minutes
def test_the_page_is_the_same_however_its_store_is_cut(stores: tuple[Path, Path]) -> None:
    parts = pq.ParquetFile(stores[1] / "idle" / "rank-0.parquet").num_row_groups

    whole, cut = (packed_document(load(store), QUERY) for store in stores)

    assert parts > 1
    assert whole == cut


@pytest.mark.parametrize("most", [1, 12, 1_000_000])
def test_steps_that_are_one_from_the_start_make_the_same_cube(tmp_path: Path, most: int) -> None:
    run = load_events(
        tmp_path,
        *(
            event
            for number in range(6)
            for begin in (1000 * number,)
            for event in (
                step(number, begin, 900),
                op("aten::mm", begin + 1, 9, dims=[[4, 8], [8, 16]], types=["float", "float"]),
                launched(begin + 2, 3 * number + 1, at=begin + 20, dur=3, name="volta_sgemm_nn"),
                launched(begin + 3, 3 * number + 2, at=begin + 30, dur=5, name=HELPER),
                op(f"my::op{number % 4}", begin + 950, 9),
                launched(begin + 951, 3 * number + 3, at=begin + 960, dur=7, name="mine"),
            )
        ),
    )  # fmt: skip
    apart = {0: [2]}

    sums, others = run_profile.sums_apart(run.tables, KEYS, apart, most)

    assert others == (0 if most == 1_000_000 else 5)
    found, wanted = (
        cube(sums, others, apart, most),
        cube(run_profile.sums_of(run.tables, KEYS), 0, apart, most),
    )
    assert (found.others, found.small) == (wanted.others, wanted.small)
    for name in ("keys", "sums", "helpers"):
        assert getattr(found, name).equals(getattr(wanted, name))
    for name in ("calls", "helped"):
        for one, other in zip(getattr(found, name), getattr(wanted, name), strict=True):
            assert one.tolist() == other.tolist()
    assert found.op_calls.tolist() == wanted.op_calls.tolist()
    assert len(found.helpers) > 0


def test_a_dot_is_of_the_first_longest_kernel_that_works(tmp_path: Path) -> None:
    times = [(3, 9), (5, 1), (5, 8), (2, 2)]
    run = load_events(
        tmp_path,
        *(
            event
            for number, (time, of_helper) in enumerate(times)
            for begin in (100 * number,)
            for event in (
                op("aten::mm", begin, 9, dims=[[4, 8], [8, 16]], types=["float", "float"]),
                launched(begin + 1, 4 * number + 1, at=begin + 20, dur=time, name="volta_sgemm_nn"),
                launched(begin + 2, 4 * number + 2, at=begin + 30, dur=of_helper, name=HELPER),
                op("my::op", begin + 50, 9, dims=[[4]], types=["float"]),
                launched(begin + 51, 4 * number + 3, at=begin + 60, dur=9 - time, name="mine"),
                op("nothing", begin + 80, 5),
                launched(begin + 81, 4 * number + 4, at=begin + 85, dur=10, name="other"),
            )
        ),
        deviceProperties=[{"id": 0, "name": "Tesla V100-SXM2-16GB", "computeMajor": 7}],
    )  # fmt: skip
    kernels = run.kernels.set_index("kernel_id")

    dots = rows_of(roofline_of(run)["signatures"])

    assert kernels["bound"].notna().sum() == len(times)
    assert {row["signature"]: row["kernel_id"] for row in dots} == {
        "aten::mm([4,8] f32, [8,16] f32)": 4, "my::op([4] f32)": 14,
    }  # fmt: skip


def test_what_is_explained_are_the_rows_of_the_store(stores: tuple[Path, Path]) -> None:
    run = load(stores[1])
    kernels, ops, launches = (rows(stores[1], name) for name in ("kernels", "ops", "launches"))
    asked = kernels[:: len(kernels) // 40]

    found = list(
        run_findings.explain_all(run.tables, [(0, f"kernel:{row['kernel_id']}") for row in asked])
    )

    assert len({row["kernel_id"] // ROWS_OF_PART for row in asked}) > 1
    for row, facts in zip(asked, found, strict=True):
        assert {name: row[name] for name in facts["kernel"]} == facts["kernel"]
        launch = facts["link"]["launch"]
        assert {name: launches[row["launch_id"]][name] for name in launch} == launch
        op = {name: value for name, value in facts["op"].items() if name in ops[0]}
        assert {name: ops[row["op_id"]][name] for name in op} == op
        shared = [k["kernel_id"] for k in kernels if k["cost_op_id"] == row["cost_op_id"]]
        assert facts["sharing"] is None or [s["kernel_id"] for s in facts["sharing"]] == shared


def test_what_is_explained_of_an_op_are_the_ops_that_name_it(stores: tuple[Path, Path]) -> None:
    ops = rows(stores[1], "ops")
    asked = ops[:: len(ops) // 60]

    whole, cut = (
        list(
            run_findings.explain_all(load(store).tables, [(0, f"op:{op['op_id']}") for op in asked])
        )
        for store in stores
    )

    assert whole == cut
    for row, facts in zip(asked, cut, strict=True):
        outer, around = row["parent_op_id"], []
        while outer is not None:
            around.append(outer)
            outer = ops[outer]["parent_op_id"]
        assert [each["op_id"] for each in facts["op"]["inside"]] == around
        named = [op["op_id"] for op in ops if op["forward_op_id"] == row["op_id"]]
        named = [number for number in named if "Backward" in ops[number]["op"]]
        assert not named or [each["op_id"] for each in facts["pair"]["backward"]] == named
    assert any(facts["pair"]["backward"] for facts in cut)


def test_the_steps_of_the_plugin_are_the_same_however_their_store_is_cut(
    stores: tuple[Path, Path],
) -> None:
    whole, cut = (run_time.plugin_steps(load(store).tables) for store in stores)

    assert len(whole) > 1
    assert whole.equals(cut)


def damage(store: Path, table: str, column: str) -> None:
    """Make a column of the last part of a table unreadable."""
    file = store / table / "rank-0.parquet"
    parquet = pq.ParquetFile(file)
    at = parquet.schema_arrow.get_field_index(column)
    chunk = parquet.metadata.row_group(parquet.num_row_groups - 1).column(at)
    content = bytearray(file.read_bytes())
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    content[begin : begin + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(content)


@pytest.mark.parametrize(("table", "column"), [("kernels", "grid"), ("ops", "library_source")])
def test_an_explanation_reads_only_the_parts_with_its_rows(
    stores: tuple[Path, Path], tmp_path: Path, table: str, column: str
) -> None:
    store = tmp_path / "damaged.pyprof2"
    shutil.copytree(stores[1], store)
    damage(store, table, column)
    run: Run = load(store)
    first, last = 0, max(row["kernel_id"] for row in rows(stores[1], "kernels"))

    assert run.explain(f"kernel:{first}") == load(stores[1]).explain(f"kernel:{first}")
    with pytest.raises(StoreError, match=table):
        run.explain(f"kernel:{last}")
