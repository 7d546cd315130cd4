"""SQLite files of others are read, never written, and fail in one clear line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import sqlalchemy as sa

from pyprof2.errors import TraceError
from pyprof2.parsers._sqlite import Database
from tests.mutate_pages import write_rung

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
READ_ONLY = 0o555


def write(path: Path, *values: Any, declared: str = "INTEGER", script: str = "") -> Path:
    """Write a table `t` with a column `x` of some values."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
        connection.execute(f"CREATE TABLE t (x {declared}, y TEXT)")
        connection.executemany("INSERT INTO t (x) VALUES (?)", [(value,) for value in values])
        connection.commit()
    return path


def read(path: Path, kind: Any = "int", column: str = "x") -> list[Any]:
    """Return a column of `t`."""
    with Database(path) as database:
        batches = database.batches("t", {column: kind})
        return [value for batch in batches for value in batch[column].to_pylist()]


@pytest.fixture
def locked_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder, and make it read-only when asked; skip where that means nothing."""
    if os.geteuid() == 0 and os.name != "posix":
        pytest.skip("permissions mean nothing here")
    folder = tmp_path / "locked"
    folder.mkdir()
    yield folder
    folder.chmod(0o755)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "name",
    ["a b.sqlite", "a%20b.sqlite", "a?mode=rw.sqlite", "a#b.sqlite", "é;'\".sqlite", "file:x"],
)
def test_any_file_name_can_be_read(tmp_path: Path, name: str) -> None:
    assert read(write(tmp_path / name, 1, 2)) == [1, 2]


def test_a_relative_path_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "x.sqlite", 1)
    monkeypatch.chdir(tmp_path)

    assert read(Path("x.sqlite")) == [1]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_nothing_in_the_folder_changes(tmp_path: Path, mode: str) -> None:
    path = write(tmp_path / "x.sqlite", 1, script=f"PRAGMA journal_mode = {mode};")
    before = contents(tmp_path)

    assert read(path) == [1]
    assert contents(tmp_path) == before


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_read_only_folder_works(locked_folder: Path, mode: str) -> None:
    path = write(locked_folder / "x.sqlite", 1, script=f"PRAGMA journal_mode = {mode};")
    path.chmod(0o444)
    locked_folder.chmod(READ_ONLY)

    assert read(path) == [1]


def test_a_log_that_is_not_merged_is_read_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", 1, script="PRAGMA journal_mode = wal;")
    with closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO t (x) VALUES (2)")
        other.commit()

        assert read(path) == [1, 2]


def test_a_log_that_is_not_merged_is_read_through_a_link_too(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", 1, script="PRAGMA journal_mode = wal;")
    link = tmp_path / "here" / "y.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO t (x) VALUES (2)")
        other.commit()

        assert read(link) == [1, 2]


def test_how_many_rows_there_are_about_is_the_number_of_the_last(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE u (x INTEGER); INSERT INTO u (rowid) VALUES (-7);"
        "CREATE TABLE w (x INTEGER PRIMARY KEY) WITHOUT ROWID; INSERT INTO w VALUES (5);"
        "CREATE TABLE far (x INTEGER); INSERT INTO far (rowid) VALUES (9223372036854775807);"
    )
    path = write(tmp_path / "x.sqlite", 1, 2, script=script)

    with Database(path) as database:
        found = [database.about(table) for table in ("t", "u", "w", "none")]
        assert found == [2, 0, 0, 0]
        assert database.about("far") == path.stat().st_size // 4


def test_nothing_is_written_beside_a_file_whose_log_is_not_merged(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", 1, script="PRAGMA journal_mode = wal;")
    mailed = tmp_path / "mailed"
    mailed.mkdir()
    with closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO t (x) VALUES (2)")
        other.commit()
        for name in ("x.sqlite", "x.sqlite-wal"):
            shutil.copyfile(tmp_path / name, mailed / name)
    before = contents(mailed)

    with Database(mailed / "x.sqlite") as database:
        assert database.count("t") == 2
        assert contents(mailed) == before
    assert contents(mailed) == before


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE u (x INT, y TEXT AS (printf('%.*c', 100000000, 'a')));",
        "CREATE TABLE u (x INT, y TEXT AS (hex(zeroblob(100000000))) STORED);",
        "CREATE VIRTUAL TABLE u USING fts4(x);",
        "CREATE VIRTUAL TABLE u USING rtree(x, y, z);",
    ],
)
def test_computed_columns_and_tables_are_refused(tmp_path: Path, script: str) -> None:
    path = write(tmp_path / "x.sqlite", 1, script=script)

    with pytest.raises(TraceError, match=r"x\.sqlite: has computed tables or columns"):
        read(path)


def test_functions_of_a_schema_are_not_trusted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", 1)

    with Database(path) as database:
        setting: sa.Select[Any] = sa.select(sa.column("trusted_schema")).select_from(
            sa.table("pragma_trusted_schema")
        )
        assert database.rows(setting) == [(0,)]


def test_a_log_that_cannot_be_read_is_an_error_and_not_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", 1, script="PRAGMA journal_mode = wal;")
    log = tmp_path / "x.sqlite-wal"
    log.mkdir()
    (log / "full").touch()

    with pytest.raises(TraceError, match=r"x\.sqlite: its newest rows are in x\.sqlite-wal"):
        read(path)


def test_a_file_that_another_program_writes_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", 1)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")

        with pytest.raises(TraceError, match=r"x\.sqlite: locked by another program; try again"):
            read(path)


def _varint(number: int, length: int) -> bytes:
    """Return a number as SQLite writes it, in that many bytes."""
    groups = [number >> 7 * at & 0x7F for at in reversed(range(length))]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


PAGE: Final = 4096
STORED: Final = 2_100_000
"""Characters of a text whose sizes take 4 bytes, as do those of 134 million."""


def write_rings(path: Path, sizes: Sequence[int]) -> Path:
    """Write texts that claim sizes which are not there: their last page leads to their first.

    Sizes that differ by whole pages keep as much of a text in its row. SQLite takes no text for
    larger than the file, which therefore ends in a hole.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("CREATE TABLE t (x, y)")
        connection.executemany("INSERT INTO t (x) VALUES (?)", [("a" * STORED,)] * len(sizes))
        connection.commit()
    content = bytearray(path.read_bytes())
    # A row: its size, its number, the size of its head, the types of its columns.
    head = bytes([6]) + _varint(13 + 2 * STORED, 4) + bytes([0])
    for number, size in enumerate(sizes, 1):
        claimed = STORED + (size - STORED) // (PAGE - 4) * (PAGE - 4)
        at = content.index(_varint(STORED + 6, 4) + bytes([number]) + head)
        content[at : at + 4] = _varint(claimed + 6, 4)
        content[at + 6 : at + 10] = _varint(13 + 2 * claimed, 4)
        _close_ring(content, at + 11)
    pages = max(max(sizes) + PAGE, len(content)) // PAGE + 1
    content[28:32] = pages.to_bytes(4, "big")
    path.write_bytes(content)
    os.truncate(path, pages * PAGE)
    return path


def _close_ring(content: bytearray, at: int) -> None:
    """Let the last page of the text at `at` lead to the first; its number follows the text."""
    while content[at] == ord("a"):
        at += 1
    page = first = int.from_bytes(content[at : at + 4], "big")
    while following := int.from_bytes(content[(page - 1) * PAGE :][:4], "big"):
        page = following
    content[(page - 1) * PAGE : (page - 1) * PAGE + 4] = first.to_bytes(4, "big")


READS: Final = """
import sys
from pathlib import Path
from pyprof2.parsers._sqlite import Database
from pyprof2.errors import TraceError

def held(what):
    return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(what)) * 1024

before = held("VmHWM:")
with Database(Path(sys.argv[1])) as database:
    try:
        for batch in database.batches("t", {"x": sys.argv[2]}):
            print(batch["x"].null_count)
    except TraceError as error:
        print(error)
print(held("VmHWM:") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in Linux's way")
@pytest.mark.parametrize(
    ("sizes", "kind", "says"),
    [
        ([120 << 20], "text", "x.sqlite: has a text of over 64 MiB, which no export has"),
        ([30 << 20] * 5, "text", "x.sqlite: a damaged SQLite file, larger inside than outside; "),
        ([120 << 20] * 2, "int", "2"),
    ],
    ids=["a text", "a ring", "a number"],
)
def test_a_text_that_is_larger_than_its_file_is_not_read(
    tmp_path: Path, sizes: list[int], kind: str, says: str
) -> None:
    """It would take 120 MB or more, and its copies as much again."""
    path = write_rings(tmp_path / "x.sqlite", sizes)

    done = subprocess.run(
        [sys.executable, "-c", READS, path, kind],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip

    line, held = done.stdout.splitlines()
    assert line.removeprefix(f"{tmp_path}/").startswith(says)
    assert int(held) < 100_000_000


def test_the_rings_of_these_tests_are_what_sqlite_takes_for_long_texts(tmp_path: Path) -> None:
    path = write_rings(tmp_path / "x.sqlite", [30 << 20] * 5)

    with closing(sqlite3.connect(path)) as connection:
        sizes = [size for (size,) in connection.execute("SELECT length(x) FROM t")]
    assert all((30 << 20) - PAGE <= size <= 30 << 20 for size in sizes)
    with Database(path) as database, pytest.raises(TraceError, match="larger inside"):
        database.rows(sa.select(sa.column("x")).select_from(sa.table("t")))


def write_ladder(path: Path, table: str, levels: int = 12) -> Path:
    """Write a file with a table `t`; `table` has 41 ** `levels` equal rows."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("CREATE TABLE t (x, value, globalTid, rootpage, sql)")
        # As a row of the list of tables it is an index of no table, which SQLite passes over.
        connection.execute("INSERT INTO t VALUES ('index', 'i', 'i', 0, '')")
        connection.commit()
    content = bytearray(path.read_bytes())
    leaf = len(content) // PAGE + 1
    content += content[PAGE : 2 * PAGE] + bytes((levels - 1) * PAGE)
    rungs = [{"t": 2, "sqlite_master": 1}[table], *range(leaf + 1, leaf + levels)]
    for page, child in zip(rungs, [*rungs[1:], leaf], strict=True):
        write_rung(content, page, child, PAGE)
    content[28:32] = (len(content) // PAGE).to_bytes(4, "big")
    path.write_bytes(content)
    return path


ASKS: Final = """
import sys
from pathlib import Path
import sqlalchemy as sa
from pyprof2.parsers._sqlite import Database
from pyprof2.errors import TraceError

t = sa.table("t", sa.column("x"))
asked = {
    "count": lambda database: database.count("t"),
    "numbers": lambda database: list(database.batches("t", {"x": "int"})),
    "texts": lambda database: list(database.batches("t", {"x": "text"})),
    "query": lambda database: database.rows(sa.select(t.c.x).distinct().limit(2)),
    "tables": lambda database: database.tables,
}[sys.argv[2]]
with Database(Path(sys.argv[1])) as database:
    try:
        asked(database)
    except TraceError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "asked"),
    [
        ("t", "count"), ("t", "numbers"), ("t", "texts"), ("t", "query"),
        ("sqlite_master", "tables"),
    ],
)  # fmt: skip
def test_pages_that_lead_to_the_next_many_times_are_no_endless_table(
    tmp_path: Path, table: str, asked: str
) -> None:
    path = write_ladder(tmp_path / "x.sqlite", table)

    done = subprocess.run(
        [sys.executable, "-c", ASKS, path, asked],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert done.stdout.startswith(f"{path}: a damaged SQLite file")
    assert done.stdout.count("\n") == 1


def test_the_ladders_of_these_tests_are_tables_of_equal_rows(tmp_path: Path) -> None:
    path = write_ladder(tmp_path / "x.sqlite", "t", levels=2)

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(x), min(x) FROM t").fetchone() == (41**2, "index")


@pytest.mark.parametrize(
    "values", [[7] * 1000, [-(2**63)] * 1000, [0, 1] * 2000, ["a" * 9_000_000]]
)
def test_what_a_file_really_holds_is_read_whatever_its_size(
    tmp_path: Path, values: list[Any]
) -> None:
    path = write(tmp_path / "x.sqlite", *values, declared="")

    assert read(path, "text") == [str(value) for value in values]


def _missing(path: Path) -> None:
    del path


def _not_sqlite(path: Path) -> None:
    path.write_bytes(b"certainly no database" * 100)


def _cut_short(path: Path) -> None:
    write(path, *range(20_000))
    path.write_bytes(path.read_bytes()[:50_000])


@pytest.mark.parametrize(
    ("make", "line"),
    [
        pytest.param(_missing, "No such file or directory", id="missing"),
        pytest.param(Path.mkdir, "Is a directory", id="folder"),
        pytest.param(_not_sqlite, "not an SQLite database; name a trace", id="other"),
        pytest.param(_cut_short, "a damaged SQLite file; export it again", id="cut"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(
    tmp_path: Path, make: Callable[[Path], None], line: str
) -> None:
    path = tmp_path / "x.sqlite"
    make(path)

    with pytest.raises(TraceError) as error:
        read(path)
    assert str(error.value) == f"{path}: {line}"


def test_the_error_names_the_file_that_the_user_named(tmp_path: Path) -> None:
    _not_sqlite(tmp_path / "x.sqlite")

    with (
        Database(tmp_path / "x.sqlite", shown_as=Path("report")) as database,
        pytest.raises(TraceError, match=r"^report: "),
    ):
        database.columns("t")


def test_missing_tables_and_columns_are_no_rows_and_nulls(tmp_path: Path) -> None:
    with Database(write(tmp_path / "x.sqlite", 1)) as database:
        assert list(database.batches("u", {"x": "int"})) == []
        assert list(database.batches("t", {"z": "int"})) == []
        [rows] = database.batches("t", {"x": "int", "z": "int", "text": "text"})
        assert {name: column.to_pylist() for name, column in rows.items()} == {
            "x": [1], "z": [None], "text": [""]
        }  # fmt: skip
        assert (database.count("u"), database.count("t")) == (0, 1)


def test_a_view_is_no_table(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    path = write(tmp_path / "x.sqlite", 1, script=f"CREATE VIEW v AS {endless};")

    with Database(path) as database:
        assert database.tables == {"t"}
        assert list(database.batches("v", {"x": "int"})) == []


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        pytest.param([1, None, 3], [1, None, 3], id="null"),
        pytest.param([None, None], [None, None], id="only null"),
        pytest.param([2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)], id="largest"),
        pytest.param([2**53 + 1, 1.5, "x"], [2**53 + 1, 1, None], id="exact beside a fraction"),
        pytest.param([1.5, 2], [1, 2], id="fraction first"),
        pytest.param(["abc", 1], [None, 1], id="text first"),
        pytest.param([1, "abc", b"\xff", 2], [1, None, None, 2], id="text later"),
    ],
)
def test_what_is_no_number_is_null(tmp_path: Path, values: list[Any], numbers: list[Any]) -> None:
    assert read(write(tmp_path / "x.sqlite", *values)) == numbers


@pytest.mark.parametrize("odd", ["abc", 1.5, b"\xff"])
def test_a_wrong_value_after_many_right_ones_costs_only_itself(tmp_path: Path, odd: Any) -> None:
    numbers = read(write(tmp_path / "x.sqlite", *range(100_000), odd, 7, 8))

    assert numbers[:100_000] == list(range(100_000))
    assert numbers[100_000:] == [1 if odd == 1.5 else None, 7, 8]


def _texts(values: Iterable[Any], path: Path, script: str = "") -> list[Any]:
    return read(write(path, *values, declared="TEXT", script=script), "text")


def test_text_is_read_whatever_it_is(tmp_path: Path) -> None:
    values = [None, "", "é🙂", "a\x00b", b"\xff\xfeA", 7]

    assert _texts(values, tmp_path / "x.sqlite") == ["", "", "é🙂", "a\x00b", "��A", "7"]


def test_text_after_many_nulls_is_read(tmp_path: Path) -> None:
    assert _texts([*[None] * 100_000, "é"], tmp_path / "x.sqlite")[-2:] == ["", "é"]


def test_text_in_utf_16_is_read(tmp_path: Path) -> None:
    script = "PRAGMA encoding = 'UTF-16le';"

    assert _texts(["é🙂"], tmp_path / "x.sqlite", script) == ["é🙂"]
