"""From traces to a store and from a store to answers: the Python interface as a whole."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.api import run_findings, run_memory, run_profile, run_time
from pyprof2.api.run import Run, default_store, load, parse
from pyprof2.errors import LeftOutWarning, OutputExistsError, StoreError, TraceError, UsageError
from pyprof2.store.folder import STORED, ranks_of, read_table
from pyprof2.tables import TABLES
from tests.kineto_events import copy, frame, json_text, kernel, launched, memory, op, step, trace

if TYPE_CHECKING:
    from collections.abc import Callable


ROOT = Path(pyprof2.__file__).parent.parent


def ranks(store: Path) -> list[int]:
    return load(store).summary["ranks"]  # type: ignore[no-any-return]


# Ranks


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        pytest.param({"a.json": 5}, [5], id="as the trace says"),
        pytest.param({"rank3.json": 5}, [5], id="the trace comes before the name"),
        pytest.param({"rank3.json": None}, [3], id="as the name says"),
        pytest.param({"run_rank-12.json": None, "x-RANK_4.json": None}, [4, 12], id="two names"),
        pytest.param({"ranks7.json": None, "frank.json": None}, [0, 1], id="names of no rank"),
        pytest.param({"b.json": None, "a.json": None}, [0, 1], id="the order given"),
        pytest.param({"a.json": None, "b.json": 0, "c.json": None}, [0, 1, 2], id="what is free"),
    ],
)
def test_a_rank_is_told_by_the_trace_or_the_name_or_the_order(
    tmp_path: Path, files: dict[str, int | None], wanted: list[int]
) -> None:
    paths = []
    for name, rank in files.items():
        around = {} if rank is None else {"distributedInfo": {"rank": rank}}
        paths.append(trace(tmp_path / name, kernel(1, 1, 1), **around))

    assert ranks(parse(paths, tmp_path / "s")) == wanted


def test_the_order_given_is_the_order_of_the_ranks(tmp_path: Path) -> None:
    paths = [trace(tmp_path / f"{name}.json", kernel(1, 1, 1, name=name)) for name in "ba"]

    found = load(parse(paths, tmp_path / "s")).kernels

    assert found["kernel"].tolist() == ["b", "a"]


def test_two_files_of_one_rank_are_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    one = trace(tmp_path / "rank1.json", kernel(1, 1, 1))
    two = trace(tmp_path / "b.json", kernel(1, 1, 1), distributedInfo={"rank": 1})

    with pytest.raises(TraceError, match=r"rank1.json, .*b.json: both are of rank 1") as caught:
        parse([one, two], tmp_path / "s")

    assert "\n" not in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.json", "rank1.json"]


# Files


def test_a_folder_is_all_its_traces(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    text = json_text(kernel(1, 1, 1))
    (folder / "rank0.json").write_bytes(text)
    (folder / "rank1.json.gz").write_bytes(gzip.compress(text))
    for other in (".hidden.json", "notes.txt", "plot.png"):
        (folder / other).write_bytes(b"no trace")
    (folder / "sub.json").mkdir()

    made = parse(folder)

    assert made == tmp_path / "run.pyprof2"
    assert ranks(made) == [0, 1]


@pytest.mark.parametrize(
    ("name", "store"),
    [
        ("net.json", "net.pyprof2"), ("net.json.gz", "net.pyprof2"), ("net.gz", "net.pyprof2"),
        ("host_1.1699.pt.trace.json.gz", "host_1.1699.pyprof2"), ("x.sqlite", "x.pyprof2"),
        ("a.b.json", "a.b.pyprof2"), ("net", "net.pyprof2"), (".json", ".json.pyprof2"),
    ],
)  # fmt: skip
def test_a_store_is_named_after_its_trace(name: str, store: str) -> None:
    assert default_store(Path("some") / name) == Path("some") / store


def test_the_folder_one_is_in_has_a_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert default_store(Path()).name == f"{tmp_path.name}.pyprof2"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda _: None, "No such file", id="nothing"),
        pytest.param(lambda p: p.mkdir(), "no traces in this folder", id="empty folder"),
        pytest.param(lambda p: p.touch(), "the file is empty", id="empty file"),
        pytest.param(lambda p: p.write_text("hello"), "not a trace", id="text"),
        pytest.param(lambda p: p.write_text("{}"), "no traceEvents", id="other JSON"),
        pytest.param(lambda p: p.write_text("[}"), "", id="no JSON at all"),
        pytest.param(lambda p: p.write_bytes(b"\x1f\x8bxx"), "not a gzip file", id="no gzip"),
        pytest.param(lambda p: p.write_bytes(b"\xff\xfe{\0}\0"), "not a trace", id="UTF-16"),
    ],
)
def test_what_is_no_trace_is_one_line_and_leaves_nothing(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "t.json"
    make(path)
    before = sorted(tmp_path.rglob("*"))
    if message:
        with pytest.raises(TraceError, match=rf"t.json: .*{message}") as caught:
            parse(path)
        assert "\n" not in str(caught.value)
        assert sorted(tmp_path.rglob("*")) == before
    else:
        assert load(path).check()["severity"].tolist()[0] == "problem"


def test_no_trace_at_all_is_an_error() -> None:
    with pytest.raises(UsageError, match="no trace given"):
        parse([])


def test_paths_may_be_text(tmp_path: Path) -> None:
    source = trace(tmp_path, kernel(1, 1, 1))

    assert parse([str(source)], str(tmp_path / "s")) == tmp_path / "s"
    assert parse(str(source)) == tmp_path / "trace.pyprof2"


def test_the_manifest_says_what_the_store_was_made_from(tmp_path: Path) -> None:
    source = trace(tmp_path, kernel(1, -1, 1), distributedInfo={"rank": 2})

    manifest = load(parse(source)).tables.manifest

    assert manifest["tool"] == f"pyprof2 {pyprof2.__version__}"
    assert manifest["sources"][0]["path"] == str(source)
    assert manifest["sources"][0]["bytes"] == source.stat().st_size
    assert len(manifest["sources"][0]["sha256"]) == 64
    (rank,) = manifest["ranks"]
    assert (rank["rank"], rank["source"]) == (2, "trace.json")
    assert rank["problems"] == {"negative-duration": 1}


def eventful(at: int) -> list[Any]:
    return [
        op("aten::mm", at, 9, dims=[[2, 3], [3, 4]], types=["float"] * 2, seq=1),
        *launched(at + 1, 1, at=at + 20, dur=5),
        step(4, at, 90), frame("a.py(3): f", at, 80), memory(at, Bytes=8),
        op("{'pyprof2':1,'kind':'memory','moment':'forward'}", at, 0),
        op(
            "{'pyprof2':2,'kind':'memory','moment':'forward','device':'cpu','category':'parameter',"
            "'weights':[['fc.weight','float32',64,8,null,16,'/w/a.py:1']]}",
            at, 0,
        ),
    ]  # fmt: skip


def test_more_processes_give_the_same_store(tmp_path: Path) -> None:
    sources = [trace(tmp_path / f"rank{rank}.json", eventful(rank)) for rank in range(3)]

    one, two = (parse(sources, tmp_path / f"s{jobs}", jobs=jobs) for jobs in (1, 2))

    for name in STORED:
        assert read_table(one, name).equals(read_table(two, name))
    manifests = [load(store).tables.manifest for store in (one, two)]
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_bad_file_of_many_leaves_the_others(tmp_path: Path, jobs: int) -> None:
    sources = [trace(tmp_path / f"rank{rank}.json", kernel(1, 1, 1)) for rank in range(2)]
    sources[1].write_text("hello")

    with pytest.warns(LeftOutWarning, match=r"rank1.json: not a trace"):
        parse(sources, tmp_path / "s", jobs=jobs)

    assert ranks_of(tmp_path / "s") == [0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank0.json", "rank1.json", "s"]


def test_a_process_that_is_killed_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [trace(tmp_path / f"rank{rank}.json", kernel(1, 1, 1)) for rank in range(2)]
    monkeypatch.setattr("pyprof2.pipeline.parsing._read_file", _exit)

    with pytest.raises(TraceError, match=r"a process that read a trace was killed.*--jobs 1"):
        parse(sources, tmp_path / "s", jobs=2)

    assert not (tmp_path / "s").exists()


def _exit(*_: object) -> None:
    os._exit(9)


def test_an_output_that_exists_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    source = trace(tmp_path, kernel(1, 1, 1))
    parse(source)
    source.write_text("hello")

    with pytest.raises(OutputExistsError):
        parse(source)


# Loading


def test_a_trace_is_parsed_into_a_store_that_goes_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    source = trace(tmp_path, kernel(1, 1, 1))

    run = load(source)
    assert run.path.parent.parent == temporary
    assert len(run.kernels) == 1
    del run

    assert list(temporary.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tmp", "trace.json"]


def test_findings_do_not_keep_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    run = load(trace(tmp_path, kernel(1, 1, 1)))

    assert len(run.check())
    assert len(run.advise())
    del run

    assert list(temporary.iterdir()) == []


def test_what_a_run_still_has_to_read_keeps_its_store(tmp_path: Path) -> None:
    source = trace(tmp_path, op("a", 0, 9), launched(1, 1, at=2, dur=1), kernel(40, 1, 2))

    memory = run_memory.memory_by_device(load(source).tables)
    idle = run_time.idle_parts(load(source).tables, ["time_ns"])
    rows = run_findings.explain_all(load(source).tables, [(0, "op:0")])

    assert memory.forward is not None
    assert list(memory.forward(0).columns)
    assert sum(part.num_rows for part in idle) == 3
    assert len(list(rows)) == 1


def test_a_trace_that_fails_leaves_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (tmp_path / "t.json").write_text("{}")

    with pytest.raises(TraceError):
        load(tmp_path / "t.json")

    assert list(temporary.iterdir()) == []


def test_a_store_that_lost_its_manifest_is_an_error(tmp_path: Path) -> None:
    made = parse(trace(tmp_path, kernel(1, 1, 1)))
    (made / "manifest.json").unlink()

    with pytest.raises(StoreError, match=r"no readable manifest.json"):
        load(made)


@pytest.mark.parametrize(
    ("root", "sources"), [("/w", ["/w/a.py:1", "/w/a.py:1"]), ("/x", ["/x/b.py:2", "/w/a.py:1"])]
)
def test_the_root_of_sources_is_chosen_of_a_store_too(
    tmp_path: Path, root: str, sources: list[str]
) -> None:
    frames = [frame("/w/a.py(1): f", 0, 9), frame("/x/b.py(2): g", 1, 3)]
    made = parse(trace(tmp_path, frames, op("a", 2, 1), op("b", 7, 1)), source_root="/w")

    run = load(made, source_root=root)
    assert run.ops["source"].tolist() == sources
    assert [run.explain(f"op:{op}")["op"]["source"] for op in (0, 1)] == sources
    assert load(made).ops["source"].tolist() == ["/w/a.py:1", "/w/a.py:1"]
    assert load(made).ops["library_source"].tolist() == ["/x/b.py:2", "/w/a.py:1"]


def test_a_stack_is_kept_once_and_knows_its_callers(tmp_path: Path) -> None:
    frames = [
        frame("/w/a.py(1): f", 0, 9),
        frame("/x/b.py(2): g", 1, 3),
        frame("torch/x.py(3): h", 2, 2),
    ]
    again = [frame("/w/a.py(1): f", 20, 9), frame("/x/b.py(2): g", 21, 3)]
    run = load(trace(tmp_path, frames, again, op("a", 2, 1), op("b", 7, 1), op("c", 22, 1)))

    assert run.stacks["line"].tolist() == ["/w/a.py:1", "/x/b.py:2"]
    assert run.stacks["caller_id"].fillna(-1).tolist() == [-1, 0]
    assert run.ops["stack_id"].tolist() == [1, 0, 1]


def test_the_root_of_sources_reaches_the_rows(tmp_path: Path) -> None:
    frames = [frame("/w/a.py(1): f", 0, 9), frame("/x/b.py(2): g", 1, 7)]
    source = trace(tmp_path, frames, op("a", 2, 1))

    assert run_profile.rows_of(load(source).tables)["source"].tolist() == ["/x/b.py:2"]
    assert run_profile.rows_of(load(source, source_root=Path("/w")).tables)["source"].tolist() == [
        "/w/a.py:1"
    ]


def test_another_root_leaves_the_columns_of_idle_time_in_order(tmp_path: Path) -> None:
    store = parse(trace(tmp_path, op("a", 0, 9), launched(1, 1, at=2, dur=1), kernel(40, 1, 2)))
    columns = ["time_ns", "cause", "source", "start_ns"]

    plain, rooted = (
        run_time.idle_parts(load(store, source_root=root).tables, columns) for root in (None, "/w")
    )

    assert next(rooted).schema.names == next(plain).schema.names


def test_the_progress_that_readers_tell_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    from pyprof2.parsers import read_recordings

    told: list[int] = []
    source = trace(tmp_path, kernel(1, 1, 1))

    read_recordings(source, tmp_path, told.append)

    assert told[-1] == source.stat().st_size


# Tables


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    other = [kernel(90, 1, 99), copy(95, 1, 98, name="Memset (Device)")]
    flush = {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "ts": 96, "dur": 1}
    flush |= {"pid": -1, "tid": 0}
    watts = {"ph": "C", "name": "power", "ts": 1, "args": {"W": 2.5}}
    return load(
        trace(
            tmp_path_factory.mktemp("run"),
            eventful(0),
            other,
            flush,
            watts,
            deviceProperties=[{"id": 0}],
        )
    )


def test_a_run_is_one_class_of_forty_names_at_most() -> None:
    names = {name for name in [*dir(Run), *Run.__dataclass_fields__] if not name.startswith("_")}

    assert len(names) <= 40
    assert [each.__name__ for each in Run.__mro__] == ["Run", "Displayed", "object"]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_a_frame_whose_whole_numbers_are_whole(run: Run, name: str) -> None:
    found = run.tables.frame(name)

    assert list(found.columns) == TABLES[name].names
    kinds = {
        "int64": ("int64", "Int64"),
        "uint64": ("uint64", "UInt64"),
        "bool": ("bool", "boolean"),
    }
    for column in TABLES[name].columns:
        if str(column.type) in kinds:
            assert found[column.name].dtype == kinds[str(column.type)][column.nullable]
    # The recording is of one device, no graph is replayed in it, and nothing was compiled.
    assert len(found) > 0 or name in ("collectives", "graph_nodes", "kernel_parts")


def test_a_time_that_no_float_holds_stays_exact(tmp_path: Path) -> None:
    run = load(
        trace(tmp_path, launched("1712195495519689.047", 1, at="1712195495519699.001", dur="0.003"))
    )

    row = run.profile().iloc[0]

    assert (row["start_ns"], row["launch_ns"]) == (1712195495519699001, 1712195495519689047)
    assert run.profile(by="name")["time_ns"].tolist() == [3]


def test_a_profile_may_be_selected(run: Run) -> None:
    assert len(run.profile()) == 3
    assert len(run.profile(copies=False)) == 2
    assert len(run.profile(op="mm")) == 1
    assert len(run.profile(step=4)) == 1
    assert run.profile(by=["op", "step"])["count"].tolist() == [1, 2]
    assert "rate_ns" not in run.profile()


def test_findings_name_what_is_missing(run: Run) -> None:
    found = run.check()

    assert found.columns.tolist() == [
        "severity", "finding", "count", "share_pct", "advice", "rank",
    ]  # fmt: skip
    assert "kernels without a launch in the recording" in found["finding"].tolist()


def test_a_frame_is_made_once(run: Run) -> None:
    assert run.kernels is run.kernels


# The package


def test_importing_the_package_is_light() -> None:
    heavy = ("torch", "nvtx", "pandas", "pyarrow", "numpy", "msgspec", "sqlalchemy")
    script = f"import sys, pyprof2; print([m for m in {heavy} if m in sys.modules])"

    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"


def test_reading_a_profile_imports_neither_torch_nor_nvtx(tmp_path: Path) -> None:
    source = trace(tmp_path, eventful(0))
    script = (
        f"import sys, pyprof2; run = pyprof2.load({str(source)!r}); run.profile(by='op');"
        "run.check(); print([m for m in ('torch', 'nvtx') if m in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"


def test_public_names_are_there_when_they_are_used() -> None:
    assert pyprof2.load is load
    assert pyprof2.Run is Run
    assert set(pyprof2.__all__) <= set(dir(pyprof2))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pyprof2.nothing


def test_a_store_may_be_moved(tmp_path: Path) -> None:
    made = parse(trace(tmp_path, kernel(1, 1, 1)))

    moved = shutil.move(made, tmp_path / "elsewhere")

    assert len(load(moved).kernels) == 1
