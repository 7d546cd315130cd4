"""Turn a report of Nsight Systems into its SQLite export, with the program `nsys`."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import subprocess
from typing import TYPE_CHECKING, Final

from pyprof2.errors import TraceError
from pyprof2.parsers.formats import REPORT_MAGIC

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM: Final = "nsys"
_SUFFIX: Final = ".nsys-rep"

_SECRET: Final = re.compile(rb"TOKEN|SECRET|PASSWORD|KEY|CREDENTIAL", re.IGNORECASE)
"""Words in the names of variables whose values are secret."""
_HIDDEN: Final = b"(hidden)"
_NEXT_VARIABLE: Final = re.compile(rb";(?=[A-Za-z_][A-Za-z0-9_]*=)")
_ENVIRONMENTS: Final = (
    ("StringIds", "instr(value, char(0)) > 0"),
    ("TARGET_INFO_SYSTEM_ENV", "name = 'DeviceEnvironment'"),
    ("META_DATA_CAPTURE", "name LIKE '%ENVIRONMENT_VARIABLE'"),
)
"""Where an export has variables of environments, those of all processes of the machine: tables
with a column `value`, and which of their rows."""


def is_report(path: Path) -> bool:
    """Whether a file is a report of Nsight Systems, by its name or by how it begins.

    Raises:
        TraceError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return path.suffix == _SUFFIX or file.read(len(REPORT_MAGIC)) == REPORT_MAGIC
    except OSError as error:
        msg = f"{path}: {error.strerror or error}"
        raise TraceError(msg) from error


def export_report(report: Path, export: Path, shown_as: Path | None = None) -> Path:
    """Export a `.nsys-rep` file to the SQLite file `export`, and return that.

    Variables of environments whose names say that they are secret have no values there.

    Args:
        report: the file.
        export: what is written.
        shown_as: the path to name in errors, if the report will be somewhere else.

    Raises:
        TraceError: `nsys` is not on PATH, or it cannot read the report.
    """
    program, shown = shutil.which(PROGRAM), shown_as or report
    if program is None:
        msg = (
            f"{shown}: needs the program nsys to be read, which is not on PATH; where it is, run "
            "'nsys export --type sqlite' and name the .sqlite file"
        )
        raise TraceError(msg)
    command = [program, "export", "--type=sqlite", "--force-overwrite=true"]
    command += [f"--output={export.absolute()}", str(report.absolute())]
    done = subprocess.run(  # noqa: S603 (a program on PATH, and no shell)
        command, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode or not export.is_file():
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        why = said[-1].strip() if said else f"exit code {done.returncode}"
        msg = f"{shown}: nsys cannot export it: {why}"
        raise TraceError(msg)
    with contextlib.closing(sqlite3.connect(export)) as database:
        with database:
            changed = sum(_hide_in(database, *place) for place in _ENVIRONMENTS)
        if changed:
            # The values that were replaced are still in the file, between the rows.
            database.execute("VACUUM")
    return export


def _hide_in(database: sqlite3.Connection, table: str, rows: str) -> int:
    """Hide what is secret in a table, if there is one, and return in how many rows."""
    known = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
    if known.fetchone() is None:
        return 0
    texts = f"SELECT rowid, CAST(value AS BLOB) FROM {table} WHERE {rows}"  # noqa: S608 -- ours
    found = [(row, text, _without_secrets(text)) for row, text in database.execute(texts) if text]
    changed = [(new, row) for row, text, new in found if new != text]
    update = f"UPDATE {table} SET value = CAST(? AS TEXT) WHERE rowid = ?"  # noqa: S608 -- ours
    database.executemany(update, changed)
    return len(changed)


def _without_secrets(environment: bytes) -> bytes:
    """Return `NAME=value` or several of them, with a null byte or a semicolon between."""
    is_apart = b"\0" in environment
    parts = environment.split(b"\0") if is_apart else _NEXT_VARIABLE.split(environment)
    return (b"\0" if is_apart else b";").join(map(_without_secret, parts))


def _without_secret(variable: bytes) -> bytes:
    name, equals, _ = variable.partition(b"=")
    return name + equals + _HIDDEN if equals and _SECRET.search(name) else variable
