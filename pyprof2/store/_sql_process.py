"""One SELECT over Parquet files, in a process that may do nothing else: no package of ours.

A JSON object comes on stdin, the rows go to stdout as an Arrow stream; why there are none goes to
stderr. No files but those that are named can be read, nothing can be written, and time, memory and
the number of rows are limited.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections import Counter
from typing import Any, Final

REFUSED: Final = 3
"""The exit code where stderr says why."""
_ADDRESSES: Final = 6 << 30
_ROWS_AT_A_TIME: Final = 1 << 14
_BYTES_AT_MOST: Final = 1 << 28


def limit(seconds: float) -> None:
    """Take from this process what it needs not, where the system can."""
    with contextlib.suppress(ImportError):
        import resource

        # macOS knows some of them, and refuses to set them.
        for kind, most in (
            (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, int(4 * seconds) + 4), (resource.RLIMIT_AS, _ADDRESSES),
        ):  # fmt: skip
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(kind, (most, most))


def opened(files: dict[str, list[str]], views: dict[str, str]) -> Any:
    """Return a connection that has the files and views, and no way to anything else."""
    import duckdb

    every = [path for paths in files.values() for path in paths]
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": "2", "memory_limit": "1GB", "temp_directory": "",
            "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
            "allow_community_extensions": "false", "python_enable_replacements": "false",
        },
    )  # fmt: skip
    connection.execute(f"SET allowed_paths = {_listed(every)}")
    connection.execute("SET enable_external_access = false")
    for name, paths in files.items():
        connection.execute(f'CREATE VIEW "{name}" AS SELECT * FROM read_parquet({_listed(paths)})')  # noqa: S608 - names are ours, paths are quoted
    for name, statement in views.items():
        connection.execute(f'CREATE VIEW "{name}" AS {statement}')
    connection.execute("SET lock_configuration = true")
    return connection


def _listed(paths: list[str]) -> str:
    quoted = ("'" + path.replace("'", "''") + "'" for path in paths)
    return f"[{', '.join(quoted)}]"


def answer(asked: dict[str, Any]) -> Any:
    """Return the first rows as an Arrow table; its metadata say whether there are more.

    Raises:
        ValueError: the statement does more than read, fails, or takes too long.
    """
    import duckdb
    import pyarrow as pa

    connection = opened(asked["files"], asked["views"])
    timer = threading.Timer(asked["seconds"], connection.interrupt)
    timer.daemon = True
    try:
        statements = connection.extract_statements(asked["query"])
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            msg = "not one SELECT; nothing else is done here, and only one at a time"
            raise ValueError(msg)
        timer.start()
        return _first_rows(connection.sql(asked["query"]), asked["rows"])
    except duckdb.InterruptException:
        msg = f"ended after {asked['seconds']:g} s; ask for less"
        raise ValueError(msg) from None
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
        raise ValueError(str(error) or "memory is short; ask for less") from error
    finally:
        timer.cancel()


def _first_rows(relation: Any, most: int | None) -> Any:
    import pyarrow as pa

    reader = relation.to_arrow_reader(_ROWS_AT_A_TIME)
    batches, count, size = [], 0, 0
    for batch in reader:
        batches.append(batch)
        count += len(batch)
        size += batch.nbytes
        if size > _BYTES_AT_MOST:
            msg = f"more than {_BYTES_AT_MOST >> 20} MiB of rows; ask for less"
            raise ValueError(msg)
        if most is not None and count > most:
            break
    table = pa.Table.from_batches(batches, reader.schema)
    shown = table.slice(0, most)
    columns = [_plain(column) for column in shown.columns]
    more = {"more": "yes" if len(shown) < count else "no"}
    return pa.table(columns, _apart(table.column_names)).replace_schema_metadata(more)


def _apart(names: list[str]) -> list[str]:
    """Return the names; columns of one name get a number, so that none is lost."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _plain(column: Any) -> Any:
    """Return a column as numbers, truth values or text.

    Sums of whole numbers come as decimals; they are whole numbers where they have room.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if pa.types.is_decimal(kind):
        if not kind.scale:
            with contextlib.suppress(pa.ArrowInvalid):
                return column.cast(pa.int64())
        return column.cast(pa.float64())
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string,
             pa.types.is_large_string)  # fmt: skip
    if any(test(kind) for test in tests):
        return column
    texts = [None if cell is None else str(cell) for cell in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def main() -> None:
    """Answer the question on stdin."""
    question = json.loads(sys.stdin.read())
    sys.path += question["paths"]  # where the process that asks has its packages from
    import pyarrow as pa

    limit(question["seconds"])
    try:
        table = answer(question)
    except ValueError as error:
        sys.stderr.write(str(error))
        sys.stderr.flush()
        os._exit(REFUSED)
    with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
        stream.write_table(table)
    sys.stdout.flush()
    # Threads that still work on an interrupted query have nobody to answer.
    os._exit(0)


if __name__ == "__main__":
    main()
