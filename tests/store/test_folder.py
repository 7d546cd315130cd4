"""A store is there whole or not at all, and nothing is replaced that nobody meant."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyprof2.api.run import load, parse
from pyprof2.api.run_tables import RunTables
from pyprof2.errors import OutputExistsError, SchemaError, StoreError, TableError
from pyprof2.store import folder as store
from pyprof2.store.folder import (
    STORED,
    StoreWriter,
    is_store,
    read_manifest,
    read_table,
    write_table,
)
from pyprof2.store.places import MANIFEST
from pyprof2.store.unfinished import CLAIM
from pyprof2.tables import KERNELS, SCHEMA_VERSION, TABLES
from tests.kineto_events import kernel, launched, op, trace


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parsed")
    parse(trace(folder, op("a", 0, 9), launched(1, 1, at=20, dur=5)), folder / "s.pyprof2")
    return folder


@pytest.fixture
def made(parsed: Path, tmp_path: Path) -> Path:
    """A store of one kernel, with nothing beside it but its trace."""
    shutil.copytree(parsed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "s.pyprof2"


def beside(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def write(path: Path, *, force: bool = False, note: str = "new") -> None:
    with StoreWriter(path, force=force) as writer:
        writer.finish({"note": note})


def note(path: Path) -> Any:
    return read_manifest(path).get("note")


# Writing


def test_a_store_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "s.pyprof2"
    with StoreWriter(path) as writer:
        assert not path.exists()
        (writer.scratch("0") / "x").write_text("gone")
        writer.finish({"note": "new"})
        assert not path.exists()

    assert beside(path) == ["s.pyprof2"]
    assert [each.name for each in path.iterdir()] == [MANIFEST]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MemoryError])
def test_whatever_stops_the_writing_leaves_nothing(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def stop() -> None:
        with StoreWriter(tmp_path / "s"):
            raise error

    with pytest.raises(error):
        stop()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "text", "remedy"),
    [(28, "No space left on device", "-o"), (24, "Too many open files", "ulimit -n")],
)
def test_what_the_system_refuses_is_one_error_and_leaves_nothing(
    tmp_path: Path, number: int, text: str, remedy: str
) -> None:
    def write() -> None:
        with StoreWriter(tmp_path / "s"):
            raise OSError(number, text)

    with pytest.raises(StoreError, match=rf"s: cannot write \({text}\); .*{remedy}"):
        write()

    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_there_stays_without_force(made: Path) -> None:
    with pytest.raises(OutputExistsError, match=r"exists already.*--force"):
        StoreWriter(made)

    assert is_store(made)
    assert beside(made) == ["s.pyprof2", "trace.json"]


def test_with_force_it_is_replaced_and_nothing_is_left_of_it(made: Path) -> None:
    write(made, force=True)

    assert note(made) == "new"
    assert beside(made) == ["s.pyprof2", "trace.json"]
    assert [each.name for each in made.iterdir()] == [MANIFEST]


def test_with_force_the_old_store_stays_if_the_new_one_fails(made: Path) -> None:
    def fail() -> None:
        with StoreWriter(made, force=True):
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    assert load(made).summary["kernel_count"] == 1


def test_the_old_store_comes_back_if_the_new_one_cannot_be_put_there(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.suffix == ".partial":
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)

    with pytest.raises(StoreError, match="Input/output error"):
        write(made, force=True)

    assert load(made).summary["kernel_count"] == 1
    assert beside(made) == ["s.pyprof2", "trace.json"]


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch], ids=["folder", "file"])
def test_what_is_no_store_is_not_replaced_even_with_force(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "mine"
    make(path)

    with pytest.raises(OutputExistsError, match="not a pyprof2 store, so --force"):
        StoreWriter(path, force=True)

    assert beside(path) == ["mine"]


@pytest.mark.parametrize("target", ["s.pyprof2", "nowhere"])
def test_a_link_is_neither_followed_nor_replaced(made: Path, target: str) -> None:
    link = made.with_name("link")
    link.symlink_to(made.with_name(target))

    with pytest.raises(OutputExistsError, match="exists already"):
        StoreWriter(link)
    with pytest.raises(OutputExistsError, match="is a link, which --force does not replace"):
        StoreWriter(link, force=True)

    assert load(made).summary["kernel_count"] == 1
    assert beside(made) == ["link", "s.pyprof2", "trace.json"]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda s: (s / "mine.txt").touch(), id="a file more"),
        pytest.param(lambda s: (s / "mine").mkdir(), id="a folder more"),
        pytest.param(lambda s: (s / "ops" / "mine.parquet").touch(), id="a file in a table"),
        pytest.param(lambda s: (s / "more").symlink_to(s / "ops"), id="a link"),
        pytest.param(lambda s: _fifo(s / "pipe"), id="a pipe"),
        pytest.param(
            lambda s: (s / MANIFEST).write_text('{"manifest_version": 3, "name": "ext"}'),
            id="the manifest of a browser extension",
        ),
        pytest.param(
            lambda s: (s / MANIFEST).write_text('{"schema_version": 1, "tool": "x 1"}'),
            id="the manifest of another tool",
        ),
    ],
)
def test_a_folder_that_holds_more_than_a_store_is_not_replaced(made: Path, spoil: Any) -> None:
    spoil(made)
    before = sorted(made.rglob("*"))

    with pytest.raises(OutputExistsError, match="not a pyprof2 store, so --force"):
        StoreWriter(made, force=True)

    assert sorted(made.rglob("*")) == before


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "s")

    assert is_store(tmp_path / "a" / "b" / "s")


def test_a_file_on_the_way_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    with pytest.raises(StoreError, match="cannot write"):
        StoreWriter(tmp_path / "a" / "s")


def test_a_store_is_as_readable_as_any_other_folder(made: Path) -> None:
    plain = made.with_name("plain")
    plain.mkdir()

    assert made.stat().st_mode == plain.stat().st_mode


def killed(folder: Path, when: str) -> None:
    """Replace the store `s` in a process that is killed at a point of it."""
    script = textwrap.dedent(
        f"""
        import os, signal
        from pathlib import Path
        from pyprof2.store import folder as store
        def kill(*_, **__):
            os.kill(os.getpid(), signal.SIGKILL)
        if {when!r} == "writing":
            store.StoreWriter.finish = kill
        if {when!r} == "between":
            rename = Path.rename
            Path.rename = lambda a, b: kill() if a.suffix == ".partial" else rename(a, b)
        if {when!r} == "deleting":
            rmtree = store.shutil.rmtree
            store.shutil.rmtree = lambda a, **k: kill() if a.suffix == ".old" else rmtree(a, **k)
        with store.StoreWriter(Path({str(folder / "s")!r}), force=True) as writer:
            writer.finish({{"note": "new"}})
        """
    )
    root = Path(store.__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", script], cwd=root, check=False)
    assert result.returncode == -9


@pytest.mark.parametrize(
    ("when", "then"), [("writing", "old"), ("between", None), ("deleting", "new")]
)
def test_a_killed_run_leaves_no_half_store_and_the_next_one_cleans_up(
    tmp_path: Path, when: str, then: str | None
) -> None:
    write(tmp_path / "s", note="old")

    killed(tmp_path, when)

    assert (note(tmp_path / "s") if (tmp_path / "s").exists() else None) == then
    with pytest.raises(OutputExistsError):
        write(tmp_path / "s")
    assert note(tmp_path / "s") == (then or "old")
    write(tmp_path / "s", force=True, note="newer")
    assert note(tmp_path / "s") == "newer"
    assert beside(tmp_path / "s") == ["s"]


def test_what_another_run_is_writing_is_left_alone(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s") as other:
        write(tmp_path / "s")

        assert other.folder.exists()
        other.finish({"note": "late"})
        other._force = True

    assert note(tmp_path / "s") == "late"
    assert beside(tmp_path / "s") == ["s"]


def _of_another_host(folder: Path) -> None:
    claim = folder / CLAIM
    claim.write_text(claim.read_text().replace('"host": "', '"host": "other-'))


def _by_link(folder: Path) -> None:
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.symlink_to(aside)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_of_another_host, id="another host"),
        pytest.param(_by_link, id="a link"),
        pytest.param(lambda f: (f / CLAIM).unlink(), id="no claim"),
        pytest.param(lambda f: (f / CLAIM).write_text("[" * 9999), id="no claim of ours"),
        pytest.param(lambda f: os.chown(f, 12345, 12345), id="another owner"),
    ],
)
def test_what_may_be_another_ones_is_neither_deleted_nor_taken_for_a_store(
    tmp_path: Path, change: Any
) -> None:
    write(tmp_path / "s", note="old")
    killed(tmp_path, "between")
    (partial,) = tmp_path.glob("*.partial")
    if change.__name__ == "<lambda>" and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    change(partial)

    with StoreWriter(tmp_path / "s") as writer:
        writer.finish({"note": "new"})

    assert note(tmp_path / "s") == "new"
    assert len(list(tmp_path.glob(".s.*.partial"))) == 1
    assert len(list(tmp_path.glob(".s.*.old"))) == 1


# Reading


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("[]", id="list"),
        pytest.param("{}", id="no version"),
        pytest.param("{", id="cut off"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param('"text"', id="text"),
    ],
)
def test_a_damaged_manifest_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)

    with pytest.raises(StoreError, match=r"no readable manifest.json.*'pyprof2 parse'"):
        read_manifest(tmp_path)


def test_a_manifest_that_is_no_text_is_one_error(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(b"\xff\xfe")

    with pytest.raises(StoreError):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("sources", "command"),
    [
        ([{"path": "a.json"}, {"path": "my b.json"}], "a.json 'my b.json'"),
        ([{}], "TRACE"), (None, "TRACE"), ([1, {"path": 2}], "TRACE"), ({}, "TRACE"),
    ],
)  # fmt: skip
def test_a_store_of_another_version_says_how_to_make_it_anew(
    tmp_path: Path, sources: Any, command: str
) -> None:
    manifest = {"schema_version": SCHEMA_VERSION + 1, "sources": sources}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))

    with pytest.raises(SchemaError) as caught:
        RunTables(tmp_path)

    assert f"schema version {SCHEMA_VERSION + 1}" in str(caught.value)
    assert str(caught.value).endswith(f"--force -o {tmp_path} {command}'")


def test_the_command_that_it_says_does_it(made: Path) -> None:
    manifest = made / MANIFEST
    manifest.write_text(manifest.read_text().replace('schema_version": ', 'schema_version": 99'))

    with pytest.raises(SchemaError):
        load(made)

    parse(made.with_name("trace.json"), made, force=True)
    assert load(made).summary["kernel_count"] == 1


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def spoil(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4:200] = bytes(196)
    file.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [shorten, spoil, lambda f: f.write_bytes(b""), lambda f: f.write_bytes(b"PAR1"), Path.unlink],
    ids=["cut off", "overwritten", "empty", "only the mark", "missing"],
)
def test_a_damaged_table_is_one_error(made: Path, damage: Any) -> None:
    damage(made / "kernels" / "rank-0.parquet")

    with pytest.raises(StoreError, match=r"kernels: .*'pyprof2 parse --force'"):
        read_table(made, "kernels")


def test_a_missing_table_is_one_error(made: Path) -> None:
    shutil.rmtree(made / "ops")

    with pytest.raises(StoreError, match="ops: missing"):
        load(made).ops  # noqa: B018


def test_a_table_of_other_columns_is_an_error(made: Path) -> None:
    pq.write_table(pa.table({"kernel_id": [1]}), made / "kernels" / "rank-0.parquet")

    with pytest.raises(StoreError, match="without columns, or with two of one name"):
        read_table(made, "kernels")


def _replace(made: Path, name: str, column: str, value: int) -> None:
    """Put a value into all rows of a column."""
    path = made / name / "rank-0.parquet"
    table = pq.read_table(path)
    at = table.column_names.index(column)
    values = pa.array([value] * table.num_rows, pa.int64())
    pq.write_table(table.set_column(at, table.schema.field(column), values), path)


@pytest.mark.parametrize(
    ("name", "column", "value", "fault"),
    [
        pytest.param("ops", "op_id", 7, "does not number the rows", id="a row key"),
        pytest.param("kernels", "op_id", 10**12, "names rows that do not exist", id="far away"),
        pytest.param("kernels", "cost_op_id", -1, "names rows that do not exist", id="below 0"),
        pytest.param("ops", "parent_op_id", 0, "goes round in circles", id="its own parent"),
        pytest.param("kernels", "dur_ns", -1, "has values that are none", id="a negative length"),
        pytest.param("ops", "start_ns", 2**63 - 1, "has values that are none", id="a far time"),
    ],
)
def test_keys_and_times_that_no_store_has_are_refused(
    made: Path, name: str, column: str, value: int, fault: str
) -> None:
    _replace(made, name, column, value)

    with pytest.raises(StoreError, match=f"{name}/rank-0.parquet: column {column} {fault}"):
        read_table(made, name)


@pytest.mark.parametrize(
    "name", ["rank-\u00b2.parquet", "rank-01.parquet", "rank-.parquet", "rank-1.csv", "x"]
)
def test_a_file_that_is_no_rank_is_one_error(made: Path, name: str) -> None:
    shutil.copy(made / "ops" / "rank-0.parquet", made / "ops" / name)

    with pytest.raises(StoreError, match="not the table of a rank"):
        read_table(made, "ops")


@pytest.mark.parametrize("place", ["ops", "ops/rank-0.parquet"])
@pytest.mark.parametrize(
    "make", [lambda p, to: p.symlink_to(to), lambda p, _: os.mkfifo(p)], ids=["link", "pipe"]
)
def test_a_link_or_a_pipe_in_a_store_is_one_error_and_no_wait(
    made: Path, place: str, make: Any
) -> None:
    path = made / place
    aside = made.with_name("aside")
    path.rename(aside)
    make(path, aside)

    with pytest.raises(StoreError, match=r"not the table of a rank|damaged"):
        read_table(made, "ops")


def test_rows_of_another_rank_are_one_error(made: Path) -> None:
    (made / "ops" / "rank-0.parquet").rename(made / "ops" / "rank-7.parquet")

    with pytest.raises(StoreError, match="rows of other ranks"):
        read_table(made, "ops")


@pytest.mark.parametrize("columns", [None, ["rank", "dur_ns"]])
def test_a_column_of_another_type_is_one_error(made: Path, columns: list[str] | None) -> None:
    file = made / "ops" / "rank-0.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("dur_ns")
    pq.write_table(table.set_column(at, "dur_ns", pa.array([0.5])), file)

    with pytest.raises(StoreError, match=r"columns of other types \(dur_ns\)"):
        read_table(made, "ops", columns)


class _Own(pa.ExtensionType):  # type: ignore[misc]
    """A type that Arrow would make when it reads a file."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.own")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _text: bytes) -> _Own:
        return cls()


def test_an_extension_type_is_one_error(made: Path) -> None:
    file = made / "ops" / "rank-0.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("dur_ns")
    own = pa.ExtensionArray.from_storage(_Own(), table["dur_ns"].combine_chunks())
    pa.register_extension_type(_Own())
    try:
        pq.write_table(table.set_column(at, "dur_ns", own), file)
        with pytest.raises(StoreError, match=r"columns of other types \(dur_ns\)"):
            read_table(made, "ops")
    finally:
        pa.unregister_extension_type("tests.own")


def test_a_small_file_that_would_fill_the_memory_is_refused_before_it_is_read(made: Path) -> None:
    file = made / "ops" / "rank-0.parquet"
    schema = TABLES["ops"].schema()
    needed = [column.name for column in TABLES["ops"].columns if not column.nullable]
    part = TABLES["ops"].conform(pa.table({n: np.zeros(1 << 20, np.int64) for n in needed}))
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for _ in range(3):
            writer.write_table(part)
    assert file.stat().st_size < 1 << 20

    start = pa.total_allocated_bytes()
    with pytest.raises(StoreError, match=r"would take \d\.\d GB, more than 500 times its size"):
        read_table(made, "ops")
    assert pa.total_allocated_bytes() - start < 1 << 24


def test_what_is_read_in_parts_is_refused_if_one_would_fill_the_memory(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_SMALL_TABLE", 1 << 20)
    monkeypatch.setattr(store, "_MOST_EXPANSION", 1)
    file = made / "ops" / "rank-0.parquet"
    rows = pq.read_table(file).take(pa.array(np.zeros(1 << 14, np.int64)))

    pq.write_table(rows, file, row_group_size=1 << 10)
    assert store.open_parts(made, "ops", 0).row_count == 1 << 14
    with pytest.raises(StoreError, match="times its size"):
        read_table(made, "ops")

    pq.write_table(rows, file)
    with pytest.raises(StoreError, match="times its size"):
        store.open_parts(made, "ops", 0)


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": [{"rank": "0"}]}, {"ranks": {}}, {"ranks": [1]}, {"tool": 3},
        {"ranks": [{"rank": 0, "problems": {"x": "y"}, "skipped": {}}]},
        {"sources": [{"path": []}]},
    ],
)  # fmt: skip
def test_a_manifest_with_facts_of_other_types_is_one_error(
    made: Path, change: dict[str, Any]
) -> None:
    manifest = json.loads((made / MANIFEST).read_text())
    (made / MANIFEST).write_text(json.dumps(manifest | change))

    with pytest.raises(StoreError, match="damaged"):
        load(made)


def test_every_table_has_a_file_of_every_rank(tmp_path: Path) -> None:
    sources = [trace(tmp_path / f"rank{rank}.json", kernel(1, 1, 1)) for rank in (3, 11)]

    made = parse(sources, tmp_path / "s.pyprof2")

    for name in STORED:
        files = sorted(each.name for each in (made / name).iterdir())
        assert files == ["rank-11.parquet", "rank-3.parquet"]


def test_ranks_are_read_in_order_of_their_number(tmp_path: Path) -> None:
    sources = [trace(tmp_path / f"rank{rank}.json", kernel(1, 1, 1)) for rank in (11, 3)]

    made = parse(sources, tmp_path / "s.pyprof2")

    assert read_table(made, "kernels")["rank"].to_pylist() == [3, 11]


def test_other_tools_read_a_table_with_what_its_columns_mean(made: Path) -> None:
    found = pq.read_table(made / "kernels")

    assert found["dur_ns"].to_pylist() == [5000]
    assert found.schema.field("dur_ns").metadata == {
        b"meaning": b"End minus start.",
        b"unit": b"ns",
    }
    assert found.schema.field("start_ns").type == pa.int64()


def test_a_part_of_the_wrong_columns_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="unknown columns surprise"):
        write_table(tmp_path, "kernels", 0, [pa.table({"surprise": [1]})])


def test_only_the_columns_that_are_asked_for_are_read(made: Path) -> None:
    found = read_table(made, "kernels", ["dur_ns", "kernel"])

    assert found.column_names == ["dur_ns", "kernel"]
    assert len(KERNELS.columns) > 2
