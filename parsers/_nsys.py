"""Turn a report of Nsight Systems into its SQLite export, with the program `nsys`."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from pyprof2.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM: Final = "nsys"
_SUFFIX: Final = ".nsys-rep"
_MAGIC: Final = b"NVIDIA Tegra Profiler Report"


def is_report(path: Path) -> bool:
    """Whether a file is a report of Nsight Systems, by its name or by how it begins.

    Raises:
        TraceError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return path.suffix == _SUFFIX or file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        msg = f"{path}: {error.strerror or error}"
        raise TraceError(msg) from error


def export_report(report: Path, export: Path, shown_as: Path | None = None) -> Path:
    """Export a `.nsys-rep` file to the SQLite file `export`, and return that.

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
    return export
