"""Rows that are read from pages are what SQLite says they are; it is asked for all others."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.parsers._sqlite import Database
from pyprof2.parsers._sqlite_tables import TablePages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

pytest.importorskip("pyprof2.parsers._sqlite_pages", reason="it was not compiled")

COLUMNS: Final[dict[str, Any]] = {"a": "int", "text": "text", "b": "int"}
INTEGERS: Final = [
    None, 0, 1, 2, -1, 127, 128, -128, -129, 2**15, -(2**15) - 1, 2**23, 2**31, 2**47, -(2**47) - 1,
    2**63 - 1, -(2**63),
]  # fmt: skip
TEXTS: Final = [None, "", "x", "é🙂", "a\x00b", "aten::mm, op_id = 7", "y" * 57, "z" * 200]


@pytest.fixture
def by_sqlite(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the queries that the driver runs, as they are run."""
    asked: list[str] = []
    stream = Database._stream

    def noted(self: Database, query: Any, wanted: Any) -> Any:
        asked.append(str(query))
        return stream(self, query, wanted)

    monkeypatch.setattr(Database, "_stream", noted)
    return asked


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    with Database(path) as database:
        batches = list(database.batches("t", COLUMNS))
    columns = ([v for batch in batches for v in batch[name].to_pylist()] for name in COLUMNS)
    return list(zip(*columns, strict=True))


def said_by_sqlite(path: Path) -> list[tuple[Any, ...]]:
    """Return the same rows as Python's own module of SQLite gives them."""
    is_number = "CASE WHEN typeof({0}) IN ('integer', 'real') THEN CAST({0} AS INTEGER) END"
    a, b = (is_number.format(name) for name in "ab")
    with closing(sqlite3.connect(path)) as connection:
        query = f"SELECT {a}, coalesce(CAST(text AS TEXT), ''), {b} FROM t"  # noqa: S608
        return connection.execute(query).fetchall()


def write(
    path: Path, rows: Iterable[tuple[Any, ...]], *scripts: str, page_size: int = 4096,
    declared: str = "a INTEGER, other, text TEXT, b INTEGER",
) -> Path:  # fmt: skip
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute(f"CREATE TABLE t ({declared})")
        connection.execute("CREATE TABLE beside (x)")
        for at, row in enumerate(rows):
            connection.execute("INSERT INTO t (a, other, text, b) VALUES (?, ?, ?, ?)", row)
            # Tables that grow together have each other's pages between their own.
            if at % 7 == 0:
                connection.execute("INSERT INTO beside VALUES (?)", ("w" * 100,))
        for script in scripts:
            connection.executescript(script)
        connection.commit()
    return path


def plain_rows(count: int, seed: int = 0) -> list[tuple[Any, ...]]:
    rng = random.Random(seed)  # noqa: S311
    others = [*INTEGERS, 1.5, "text", b"\xff" * 20]
    return [
        (rng.choice(INTEGERS), rng.choice(others), rng.choice(TEXTS), rng.choice(INTEGERS))
        for _ in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 3000])
@pytest.mark.parametrize("page_size", [512, 1024, 4096, 65536])
def test_plain_rows_are_read_from_their_pages(
    tmp_path: Path, by_sqlite: list[str], page_size: int, count: int
) -> None:
    path = write(tmp_path / "x.sqlite", plain_rows(count, seed=page_size), page_size=page_size)

    assert rows_of(path) == said_by_sqlite(path)
    assert not by_sqlite


def test_rows_come_in_batches_in_their_order(tmp_path: Path, by_sqlite: list[str]) -> None:
    rows = [(number, None, "x" * 150, number) for number in range(60_000)]
    path = write(tmp_path / "x.sqlite", rows)

    with Database(path) as database:
        batches = [batch["a"].to_pylist() for batch in database.batches("t", COLUMNS)]

    assert len(batches) > 1
    assert [number for batch in batches for number in batch] == list(range(60_000))
    assert not by_sqlite


DELETED: Final = "DELETE FROM t WHERE rowid % 3 = 0; UPDATE t SET text = 'new' WHERE rowid % 5 = 0;"
ODD: Final[dict[str, Callable[[Path], Path]]] = {
    "fraction": lambda path: write(path, [*plain_rows(2000), (1.5, 0, "x", 2), *plain_rows(20)]),
    "text for a number": lambda path: write(path, [*plain_rows(2000), ("abc", 0, "x", 2)]),
    "number for a text": lambda path: write(
        path, [*plain_rows(200), (1, 0, 7, 2)], declared="a INTEGER, other, text, b INTEGER"
    ),
    "text on its own pages": lambda path: write(path, [*plain_rows(2000), (1, 0, "x" * 9000, 2)]),
    "column that came later": lambda path: write(
        path, plain_rows(500), "CREATE TABLE u AS SELECT a, other, text FROM t; DROP TABLE t;"
        "ALTER TABLE u RENAME TO t; ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 5;",
    ),
    "key": lambda path: write(
        path, [(i, *row[1:]) for i, row in enumerate(plain_rows(500))],
        declared="a INTEGER PRIMARY KEY, other, text TEXT, b INTEGER",
    ),
    "without numbers of rows": lambda path: write(
        path, [(i, *row[1:]) for i, row in enumerate(plain_rows(500))],
        declared="a INTEGER PRIMARY KEY, other, text TEXT, b INTEGER) WITHOUT ROWID --",
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_plain_sqlite_is_asked_for(
    tmp_path: Path, by_sqlite: list[str], odd: str
) -> None:
    path = ODD[odd](tmp_path / "x.sqlite")

    assert rows_of(path) == said_by_sqlite(path)
    assert by_sqlite


def test_rows_that_are_no_more_are_not_read(tmp_path: Path, by_sqlite: list[str]) -> None:
    path = write(tmp_path / "x.sqlite", plain_rows(3000), DELETED)

    assert rows_of(path) == said_by_sqlite(path)
    assert not by_sqlite


def test_the_rows_before_the_first_odd_page_are_not_read_again(
    tmp_path: Path, by_sqlite: list[str]
) -> None:
    plain = [(number, None, "x" * 150, number) for number in range(60_000)]
    path = write(tmp_path / "x.sqlite", [*plain, (1.5, 0, "y", 7)])

    assert rows_of(path) == said_by_sqlite(path)
    assert "OFFSET" in by_sqlite[0]


@pytest.mark.parametrize("last", [(7, 0, "y" * 9000, 7), (1.5, 0, "y", 7)])
def test_the_rows_after_an_odd_page_are_those_after_it_whatever_the_order_of_an_index(
    tmp_path: Path, by_sqlite: list[str], last: tuple[Any, ...]
) -> None:
    plain = [(60_000 - number, None, "x" * 150, number) for number in range(60_000)]
    path = write(tmp_path / "x.sqlite", [*plain, last], "CREATE INDEX i ON t (a, text, b)")

    found = rows_of(path)

    assert found == [(a, text, b) for a, _, text, b in [*plain, (int(last[0]), *last[1:])]]
    assert "OFFSET" in by_sqlite[0]


def test_nobody_writes_while_pages_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", plain_rows(100))
    with Database(path) as database:
        batches = database.batches("t", COLUMNS)
        next(batches)
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("INSERT INTO t (a) VALUES (1)")
            batches.close()  # type: ignore[attr-defined]
            other.execute("INSERT INTO t (a) VALUES (1)")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_pages_never_give_more_than_they_hold(tmp_path: Path, seed: int) -> None:
    content = bytearray(write(tmp_path / "x.sqlite", plain_rows(300), page_size=512).read_bytes())
    rng = random.Random(seed)  # noqa: S311
    for _ in range(30):
        page = rng.randrange(1, len(content) // 512) * 512
        content[page + rng.choice((0, 3, 4, 8, 9, 10, 11, rng.randrange(512)))] = rng.randrange(256)
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(content)
    with closing(sqlite3.connect(damaged)) as connection, damaged.open("rb", buffering=0) as file:
        names = {name: kind == "text" for name, kind in COLUMNS.items()}
        pages = TablePages.of(file, connection, "t", names)
        batches = [] if pages is None else list(pages.batches())

    for batch in batches:
        batch.validate(full=False)
    assert sum(batch.num_rows for batch in batches) <= len(content) // 2
    assert sum(batch["text"].nbytes for batch in batches) <= 2 * len(content)
