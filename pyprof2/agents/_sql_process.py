"""One SELECT over Parquet files, in a process that may do nothing else: no package of ours.

A JSON object comes on stdin, another one goes to stdout. No files but those that are named
can be read, nothing can be written, and time, memory and the number of rows are limited.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from typing import Any, Final

_CELL: Final = 200
_ADDRESSES: Final = 6 << 30


def limit(seconds: float) -> None:
    """Take from this process what it needs not, where the system can."""
    with contextlib.suppress(ImportError):
        import resource

        for kind, most in (
            (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, int(4 * seconds) + 4), (resource.RLIMIT_AS, _ADDRESSES),
        ):  # fmt: skip
            resource.setrlimit(kind, (most, most))


def opened(files: dict[str, list[str]]) -> Any:
    """Return a connection that has views of the files, and no way to anything else."""
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
    connection.execute("SET lock_configuration = true")
    return connection


def _listed(paths: list[str]) -> str:
    quoted = ("'" + path.replace("'", "''") + "'" for path in paths)
    return f"[{', '.join(quoted)}]"


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the columns and the first rows, or the error."""
    import duckdb

    connection = opened(asked["files"])
    try:
        statements = connection.extract_statements(asked["query"])
    except duckdb.Error as error:
        return {"error": str(error)}
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        return {"error": "not one SELECT; nothing else is done here, and only one at a time"}
    timer = threading.Timer(asked["seconds"], connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        result = connection.execute(statements[0])
        rows = result.fetchmany(asked["rows"] + 1)
        columns = [each[0] for each in result.description]
    except duckdb.InterruptException:
        return {"error": f"ended after {asked['seconds']:g} s; ask for less"}
    except (duckdb.Error, MemoryError) as error:
        return {"error": str(error) or "memory is short; ask for less"}
    finally:
        timer.cancel()
    shown = [[_plain(cell) for cell in row] for row in rows[: asked["rows"]]]
    return {"columns": columns, "rows": shown, "more": len(rows) > asked["rows"]}


def _plain(cell: Any) -> Any:
    if cell is None or isinstance(cell, (bool, int)):
        return cell
    if isinstance(cell, float):
        return cell if abs(cell) < float("inf") else None
    text = str(cell)
    return text if len(text) <= _CELL else f"{text[:_CELL]}…"


if __name__ == "__main__":
    question = json.loads(sys.stdin.read())
    limit(question["seconds"])
    sys.stdout.write(json.dumps(answer(question)))
    sys.stdout.flush()
    # Threads that still work on an interrupted query have nobody to answer.
    os._exit(0)
