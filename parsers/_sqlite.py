"""Read SQLite files of others: never write, look at what is there, stream rows as Arrow batches.

SQLAlchemy inspects the tables and composes the queries, so no name is ever pasted into SQL. ADBC
runs the queries of tables with many rows. Two ways of opening, one way of failing: `TraceError`
with the path.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import quote

import adbc_driver_manager
import pyarrow as pa
import sqlalchemy as sa
from adbc_driver_sqlite import dbapi

from pyprof2.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

ColumnType = Literal["int", "text"]

_BATCH_ROWS: Final = 1 << 16
_ARROW_TYPES: Final[dict[ColumnType, pa.DataType]] = {"int": pa.int64(), "text": pa.string()}
_WAL_MODE: Final = 2
_FORMAT_AT: Final = slice(18, 20)
# Names and messages of a damaged file may be no UTF-8.
_ERRORS: Final = (sa.exc.SQLAlchemyError, sqlite3.Error, UnicodeError)
_DRIVER_ERRORS: Final = (adbc_driver_manager.Error, OSError, pa.ArrowException, UnicodeError)
_LARGER: Final = "a damaged SQLite file, larger inside than outside; export it again"
_REASONS: Final = (
    ("not a database", "not an SQLite database; name a trace"),
    ("file is encrypted", "not an SQLite database; name a trace"),
    ("locked", "locked by another program; try again when that has finished"),
    ("busy", "locked by another program; try again when that has finished"),
    ("malformed", "a damaged SQLite file; export it again"),
    ("corrupt", "a damaged SQLite file; export it again"),
    ("codec can't decode", "a damaged SQLite file; export it again"),
    ("too big", "has a value of over 64 MiB, which no export has"),
    ("disk I/O error", "cannot be read to its end; copy or export it again"),
    ("interrupted", _LARGER),
)
_ODD: Final = "the first values of a column are not of its type"
_UNMERGED: Final = (
    "its newest rows are in {name}-wal and cannot be read here; open it once with the program that "
    "wrote it, or copy both files to a folder that can be written"
)


_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1 << 26,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 1000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
"""Bytes of a value and of a query, columns, depth of an expression, files beside the first."""
_LARGEST_TEXT: Final = 1 << 26
_MOST_EXPANSION: Final = 4
"""A number of 9 bytes has up to 24 characters as text; beside it there is the head of its row."""
_SMALL: Final = 1 << 20
_SMALLEST_ROW: Final = 4
"""Bytes of a row without any values, and of the pointer to it."""
_STEPS: Final = 100_000
"""Steps of SQLite's machine between two counts; a query takes some ten of them a row."""
_MOST_STEPS: Final = 20
"""A byte of the file, of all queries of few rows together."""
_DECLARATIONS: Final = "SELECT name, substr(sql, 1, 16) FROM sqlite_master WHERE type = 'table'"
_PLAIN_TABLE: Final = "CREATE TABLE "
_GENERATED: Final = "SELECT 1 FROM pragma_table_xinfo(?) WHERE hidden > 0"


class Database:
    """An SQLite file that is open for reading; a context manager.

    Args:
        path: the file.
        shown_as: the path to name in errors, if the file was made from another one.

    Raises:
        TraceError: from every method, if the file cannot be read.
    """

    def __init__(self, path: Path, shown_as: Path | None = None) -> None:
        self.shown_as = shown_as or path
        # SQLite keeps its log beside the file itself, not beside a link to it.
        self.path = path = Path(os.path.realpath(path)) if path.is_symlink() else path
        self._copy = _copy_with_log(path)
        self._uri = _read_only_uri(Path(self._copy.name, path.name) if self._copy else path)
        self._engine = sa.create_engine(
            "sqlite://", creator=self._connect, poolclass=sa.pool.StaticPool
        )
        self._driver: dbapi.Connection | None = None
        files = list(Path(self._copy.name).iterdir()) if self._copy else [path]
        self._bytes = sum(file.stat().st_size for file in files)
        self._steps = _MOST_STEPS * (self._bytes + _SMALL)
        self._columns: dict[str, frozenset[str]] = {}
        self._tables: frozenset[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._engine.dispose()
        if self._driver is not None:
            self._driver.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._uri, uri=True, timeout=2, check_same_thread=False)
        connection.text_factory = _decode
        for limit, most in _LIMITS.items():
            connection.setlimit(limit, most)
        connection.set_progress_handler(self._is_too_much, _STEPS)
        connection.execute("PRAGMA trusted_schema = off")
        return connection

    def _is_too_much(self) -> bool:
        """Whether queries took more steps than a file of this size has rows for.

        Pages that lead to the next one many times each make a table whose rows no one can count.
        """
        self._steps -= _STEPS
        return self._steps < 0

    @property
    def tables(self) -> frozenset[str]:
        """The names of its tables; views are none, for they can be endless."""
        if self._tables is None:
            try:
                # Values that are not in the file but computed can fill any memory.
                with self._engine.connect() as connection:
                    for name, declaration in connection.exec_driver_sql(_DECLARATIONS).all():
                        is_plain = str(declaration).upper().startswith(_PLAIN_TABLE)
                        if not is_plain or connection.exec_driver_sql(_GENERATED, (name,)).first():
                            msg = (
                                f"{self.shown_as}: has computed tables or columns, which no export "
                                "has"
                            )
                            raise TraceError(msg)
                self._tables = frozenset(sa.inspect(self._engine).get_table_names())
            except _ERRORS as error:
                raise self._trouble(error) from error
        return self._tables

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's columns; none if there is no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            try:
                found = sa.inspect(self._engine).get_columns(table)
            except _ERRORS as error:
                raise self._trouble(error) from error
            self._columns[table] = frozenset(column["name"] for column in found)
        return self._columns[table]

    def rows(self, query: sa.Select[Any]) -> list[tuple[object, ...]]:
        """Return the result of a query that has few rows."""
        try:
            with self._engine.connect() as connection:
                found, total = [], 0
                for row in connection.execute(query):
                    total += sum(len(value) for value in row if isinstance(value, (str, bytes)))
                    self._require_room(total)  # texts together larger than the file are a trick
                    found.append(tuple(row))
                return found
        except _ERRORS as error:
            raise self._trouble(error) from error

    def _require_room(self, text_bytes: int) -> None:
        if text_bytes > _MOST_EXPANSION * self._bytes + _SMALL:
            msg = f"{self.shown_as}: {_LARGER}"
            raise TraceError(msg)

    def count(self, table: str) -> int:
        """Return how many rows a table has; 0 if there is no such table."""
        if table not in self.tables:
            return 0
        # The rows that there can be: a count of all is one step to SQLite, and may have no end.
        rows = sa.select(sa.literal(1)).select_from(sa.table(table)).limit(self._most_rows + 1)
        count = self.rows(sa.select(sa.func.count()).select_from(rows.subquery()))[0][0]
        count = count if isinstance(count, int) else 0
        self._require_possible(count)
        return count

    def about(self, table: str) -> int:
        """Return about how many rows a table has, which takes no look at them: its last number."""
        if table not in self.tables:
            return 0
        try:
            last = self.rows(
                sa.select(sa.func.max(sa.column("rowid"))).select_from(sa.table(table))
            )
        except TraceError:  # of a table whose rows have no numbers, or a damaged one
            return 0
        number = last[0][0]
        return min(max(0, number), self._most_rows) if isinstance(number, int) else 0

    @property
    def _most_rows(self) -> int:
        return self._bytes // _SMALLEST_ROW

    def _require_possible(self, row_count: int) -> None:
        if row_count > self._most_rows:
            msg = f"{self.shown_as}: {_LARGER}"
            raise TraceError(msg)

    def batches(
        self, table: str, columns: Mapping[str, ColumnType]
    ) -> Iterator[dict[str, pa.Array]]:
        """Yield the rows of a table as columns, batch by batch, in the order of the file.

        A number that the table lacks, or that is none, is null; such a text is empty. A fraction
        counts as the whole number nearer to 0.

        Args:
            table: its name.
            columns: the wanted columns, by name.
        """
        there = self.columns(table)
        wanted = {name: kind for name, kind in columns.items() if name in there}
        if not wanted:
            return
        done = 0
        try:
            self._refuse_large(table, [name for name in wanted if wanted[name] == "text"])
            if self._has_odd_start(table, [name for name in wanted if wanted[name] == "int"]):
                raise pa.ArrowTypeError(_ODD)
            for batch in self._stream(_select(table, wanted), wanted):
                yield _complete(batch, columns)
                done += batch.num_rows
        except _DRIVER_ERRORS:
            # A value that is not what its column was until then: read on, a type test for each.
            try:
                for batch in self._stream(_select(table, wanted, done, guarded=True), wanted):
                    yield _complete(batch, columns)
            except _DRIVER_ERRORS as error:
                raise self._trouble(error) from error

    def _refuse_large(self, table: str, texts: Sequence[str]) -> None:
        """Raise if a text is too long to be read, or all together are larger than the file.

        Pages that a text continues on may be a ring, so that a small file has a gigabyte of it.
        The sizes stand in the heads of the rows: the texts themselves are not read here.
        """
        for name in texts:
            size = sa.func.octet_length(sa.column(name)).label("size")
            # No more rows than bytes: pages of a table may be a ring as well.
            sizes = sa.select(size).select_from(sa.table(table)).limit(self._bytes).subquery()
            asked = sa.select(sa.func.max(sizes.c.size), sa.func.total(sizes.c.size))
            most, total = self._query(asked)
            if (most or 0) > _LARGEST_TEXT:
                msg = f"{self.shown_as}: has a text of over 64 MiB, which no export has"
                raise TraceError(msg)
            self._require_room(total)

    def _has_odd_start(self, table: str, numbers: Sequence[str]) -> bool:
        """Return whether texts are among the first numbers, by which the driver chooses types."""
        if not numbers:
            return False
        tests = [sa.func.typeof(sa.column(name)).in_(["text", "blob"]) for name in numbers]
        odd = sa.select(sa.or_(*tests).label("odd")).select_from(sa.table(table))
        (found,) = self._query(sa.select(sa.func.max(odd.limit(_BATCH_ROWS).subquery().c.odd)))
        return bool(found)

    def _query(self, query: sa.Select[Any]) -> tuple[Any, ...]:
        """Return the one row of a query that the driver runs, whose SQLite knows more."""
        with self._connection().cursor() as cursor:
            cursor.execute(self._text(query))
            return tuple(cursor.fetchone() or ())

    def _stream(
        self, query: sa.Select[Any], wanted: Mapping[str, ColumnType]
    ) -> Iterator[pa.RecordBatch]:
        options = {"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)}
        with self._connection().cursor(adbc_stmt_kwargs=options) as cursor:
            cursor.execute(self._text(query))
            count = 0
            for batch in cursor.fetch_record_batch():
                count += batch.num_rows
                self._require_possible(count)
                if batch.schema.types != [_ARROW_TYPES[kind] for kind in wanted.values()]:
                    raise pa.ArrowTypeError(_ODD)
                yield batch

    def _connection(self) -> dbapi.Connection:
        if self._driver is None:
            self._driver = dbapi.connect(self._uri)
            with self._driver.cursor() as cursor:
                cursor.execute("PRAGMA trusted_schema = off")
        return self._driver

    def _text(self, query: sa.Select[Any]) -> str:
        dialect = self._engine.dialect
        return query.compile(dialect=dialect, compile_kwargs={"literal_binds": True}).string

    def _trouble(self, error: BaseException) -> TraceError:
        return TraceError(f"{self.shown_as}: {self._reason(error)}")

    def _reason(self, error: BaseException) -> str:
        cause = getattr(error, "orig", None) or error
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        wal = self.path.with_name(f"{self.path.name}-wal")
        if wal.exists() and ("unable to open" in lines[0] or "readonly" in lines[0]):
            return _UNMERGED.format(name=self.path.name)
        known = (reason for word, reason in _REASONS if word in lines[0])
        return next(known, f"cannot be read: {lines[0]}")


def _copy_with_log(path: Path) -> tempfile.TemporaryDirectory[str] | None:
    """Return a folder with copies of a file and of its write-ahead log; None without a log.

    SQLite writes a side file even to read the two.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        if not log.is_file() or not log.stat().st_size:
            return None
        folder = tempfile.TemporaryDirectory(prefix="pyprof2-")
        for file in (path, log):
            shutil.copyfile(file, Path(folder.name, file.name))
    except OSError as error:
        msg = f"{path}: {_UNMERGED.format(name=path.name)} ({error.strerror or error})"
        raise TraceError(msg) from error
    return folder


def _read_only_uri(path: Path) -> str:
    """Return the URI that opens a file for reading and never makes or changes one.

    A file whose changes went through a write-ahead log needs a side file even for reading, which a
    read-only folder does not allow. If the log is merged the file is complete as it is.

    Raises:
        TraceError: there is no such file, or it cannot be opened.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_FORMAT_AT.stop)
        log = path.with_name(f"{path.name}-wal")
        unmerged = log.exists() and log.stat().st_size > 0
        name = quote(str(path.resolve()))
    except OSError as error:
        msg = f"{path}: {error.strerror or error}"
        raise TraceError(msg) from error
    has_log = _WAL_MODE in head[_FORMAT_AT]
    return f"file:{name}?mode=ro" + ("&immutable=1" if has_log and not unmerged else "")


def _select(
    table: str, wanted: Mapping[str, ColumnType], first: int = 0, *, guarded: bool = False
) -> sa.Select[Any]:
    """Return the query of some columns from a row on; with a test of every value's type or not."""
    source = sa.table(table, *(sa.column(name) for name in wanted))
    values: list[sa.ColumnElement[Any]] = []
    for name, kind in wanted.items():
        column: sa.ColumnClause[Any] = sa.column(name)
        if kind == "text":
            # ADBC takes a column's type from its first rows: if all are null, for numbers.
            values.append(sa.func.coalesce(sa.cast(column, sa.Text), "").label(name))
        elif not guarded:
            values.append(column)
        else:
            is_number = sa.func.typeof(column).in_(["integer", "real"])
            values.append(sa.case((is_number, sa.cast(column, sa.Integer))).label(name))
    query = sa.select(*values).select_from(source)
    # SQLite has no OFFSET without LIMIT; -1 is none.
    return query.limit(-1).offset(first) if first else query


def _complete(batch: pa.RecordBatch, columns: Mapping[str, ColumnType]) -> dict[str, pa.Array]:
    found = {name: batch.column(name) for name in batch.schema.names}
    for name, kind in columns.items():
        if kind == "text" and name in found:
            # SQLite does not test that texts are UTF-8.
            try:
                found[name].validate(full=True)
            except pa.ArrowInvalid:
                texts = [_decode(text) for text in found[name].cast(pa.binary()).to_pylist()]
                found[name] = pa.array(texts, pa.string())
        elif kind == "text":
            found[name] = pa.repeat("", batch.num_rows)
        elif name not in found:
            found[name] = pa.nulls(batch.num_rows, _ARROW_TYPES[kind])
    return found


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")
