"""Try what the predecessors could do, one promise after another, and write the table of it.

Usage: python -m docs.predecessors [--only ID[,ID…]] [--traces DIR] [--folder DIR]

`predecessors.toml` has a row for each promise: a command that a user types, or the test that walks
it where an editor or a browser is needed, and what must be seen. The commands run in a folder of
their own, on recordings that are made first; what needs a GPU reads real recordings of others
(`--traces`; by default where the tests look for them) or made-up ones, and the table says which.
All of it takes some ten minutes; with `--folder` what was recorded and found stays there, and
another run tries the rows that are new or have changed, or those of `--only`. `predecessors.rst`
is written where all rows were tried. The exit code is 1 where a promise is not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from tests.analysis.job.job_generator import Job, simulate, write
from tests.conftest import SHARED
from tests.dialled import workspace
from tests.training_trace import training_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
ROWS: Final = ROOT / "docs" / "predecessors.toml"
PAGE: Final = ROOT / "docs" / "predecessors.rst"
SECONDS: Final = 300
"""That one command may take."""
_OURS: Final = ("pyprof2", "tests", "docs")
"""Packages that are always there: a module of theirs that is missing is a mistake."""
_FOUND: Final = "found.json"
"""The file of results in a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A promise of a predecessor, and how it is tried.

    Attributes:
        id: number of the group, a point, number in the group.
        promise: what a user of the predecessor had.
        run: what a user of pyprof2 types; for `sh`, in the folder of the recordings.
        test: a test that walks it, `FILE::NAME`; instead of `run`.
        shows: a regular expression; what is found in the output.
        query: `FILE: SELECT …`; its rows are added to the output.
        code: the exit code.
        stands: the recording that stands for a GPU; where none is needed, empty.
        note: what is other than there, or why it is left.
    """

    id: str
    promise: str
    run: str = ""
    test: str = ""
    shows: str = ""
    query: str = ""
    code: int = 0
    stands: str = ""
    note: str = ""

    @property
    def is_left(self) -> bool:
        """Return whether it is left out on purpose."""
        return not self.run and not self.test


@dataclass(frozen=True, slots=True)
class Group:
    """Promises of one part of a predecessor."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Promises:
    """The content of `predecessors.toml`.

    Attributes:
        groups: of rows.
        recordings: the commands that make what the rows read.
        real: recordings of others, below the folder of real traces, by the name that they get.
        files: the texts of programs, by name.
    """

    groups: tuple[Group, ...]
    recordings: tuple[str, ...]
    real: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def rows(self) -> list[Row]:
        """Return the rows of all groups."""
        return [row for group in self.groups for row in group.rows]


def read_promises(path: Path = ROWS) -> Promises:
    """Read the rows, and what they need.

    Raises:
        TypeError: a row has a key that is none.
    """
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    groups = tuple(
        Group(group["title"], tuple(Row(**row) for row in group["rows"]))
        for group in found["groups"]
    )
    return Promises(groups, tuple(found["recordings"]), found["real"], found["files"])


def main() -> int:
    """Try the rows; return the exit code."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__).splitlines()[0])
    parser.add_argument("--only", metavar="ID[,ID…]", help="these rows, S4 is a group")
    parser.add_argument(
        "--traces", type=Path, default=SHARED / "traces", metavar="DIR", help="real recordings"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="what is recorded stays there")
    args = parser.parse_args()
    promises = read_promises()
    with contextlib.ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        if not (folder / "out").exists():
            make_recordings(promises, folder, args.traces)
        shutil.rmtree(folder / "out", ignore_errors=True)
        (folder / "out").mkdir()
        found = _found_before(folder)
        for row, grade, seen in grades_now(_wanted(promises, args.only, found), folder):
            found[row.id] = [repr(row), grade]
            (folder / _FOUND).write_text(json.dumps(found), encoding="utf-8")
            print(
                f"{grade} {row.id} {row.run or row.test}{seen if grade != 'y' else ''}", flush=True
            )
    grades = {row.id: found[row.id][1] for row in promises.rows if row.id in found}
    failed = [name for name, grade in grades.items() if grade != "y"]
    print(f"{len(grades)} rows tried, not kept: {', '.join(failed) or 'none'}")
    if len(grades) == sum(not row.is_left for row in promises.rows):
        PAGE.write_text(page_of(promises, grades), encoding="utf-8")
    return bool(failed)


def _found_before(folder: Path) -> dict[str, list[str]]:
    """Return the rows that were tried in a folder, as they were then, with their grades."""
    file = folder / _FOUND
    found: dict[str, list[str]] = (
        json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    )
    return found


def _wanted(promises: Promises, only: str | None, found: Mapping[str, list[str]]) -> list[Row]:
    """Return the rows to try: those that are named, else those of which nobody knows a `y`."""
    rows = [row for row in promises.rows if not row.is_left]
    if only is not None:
        words = only.split(",")
        return [row for row in rows if row.id in words or row.id.partition(".")[0] in words]
    return [row for row in rows if found.get(row.id) != [repr(row), "y"]]


def make_recordings(promises: Promises, folder: Path, traces: Path) -> None:
    """Record and make up what the commands read.

    Args:
        promises: what they read.
        folder: where to.
        traces: the real recordings; of one that is not there nothing is made.
    """
    for name, trace in promises.real.items():
        if (traces / trace).is_file():
            (folder / name).symlink_to((traces / trace).resolve())
    for name, text in promises.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "examples" / "entry_points", folder, dirs_exist_ok=True)
    shutil.copy(ROOT / "examples" / "mlp.py", folder / "train.py")
    (folder / "gpu.json").write_bytes(training_trace())
    (folder / "job").mkdir()
    write(simulate(Job(4, steps=3, slow={2: 1.2})), folder / "job")
    workspace(folder / "sweep")
    (folder / "spans").mkdir()
    for span, begins in ((100, b"0"), (200, b"9000000000")):
        recording = re.sub(rb'(?<="baseTimeNanoseconds":) *0', begins, training_trace())
        (folder / "spans" / f"host_7.{span}.pt.trace.json").write_bytes(recording)
    for command in promises.recordings:
        done = _shell(command, folder)
        if done.returncode:
            print(f"{command}\n{done.stdout}", file=sys.stderr)


def grades_now(rows: Sequence[Row], folder: Path) -> Iterator[tuple[Row, str, str]]:
    """Give each row with its grade and what was seen; a command of several rows runs once."""
    seen: dict[str, tuple[int, str]] = {}
    for row in rows:
        if row.run:
            if row.run not in seen:
                done = _shell(row.run, folder)
                seen[row.run] = (done.returncode, done.stdout)
            code, text = seen[row.run]
            text += _queried(row, folder) if code == 0 else ""
            yield row, grade_of(row, code, text), f"\nexit code {code}\n{text[-3000:]}"
    yield from try_tests([row for row in rows if row.test])


def grade_of(row: Row, code: int, text: str) -> str:
    """Return `y` where a command ended with this code and text as was promised, else `n`."""
    return "y" if code == row.code and re.search(row.shows, text, re.DOTALL) else "n"


def _queried(row: Row, folder: Path) -> str:
    """Return the rows of its query."""
    file, _, query = row.query.partition(": ")
    if not query:
        return ""
    with closing(sqlite3.connect(folder / file)) as database:
        return "\n".join(map(repr, database.execute(query)))


def _shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
    environment["PYPROF2_CPU_PEAKS"] = "0"
    try:
        return subprocess.run(
            ["/bin/bash", "-c", f"set -o pipefail; {command}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            text=True, check=False, cwd=folder, env=environment, timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 124, f"{error}", "")


def try_tests(rows: Sequence[Row], root: Path = ROOT) -> Iterator[tuple[Row, str, str]]:
    """Give rows that a test walks, with `y`, `n`, or `?` where it was skipped or cannot run here.

    Each file runs for itself: one that cannot be imported says nothing of the others.

    Args:
        rows: which.
        root: the folder that their files are in.
    """
    by_file: dict[str, list[Row]] = {}
    for row in rows:
        by_file.setdefault(row.test.partition("::")[0], []).append(row)
    for own in by_file.values():
        yield from _try_file(own, root)


def _try_file(rows: Sequence[Row], root: Path) -> Iterator[tuple[Row, str, str]]:
    """Give the rows of one file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        tests = sorted({row.test for row in rows})
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", f"--junitxml={report}", *tests],
            cwd=root, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        outcomes = outcomes_of(
            report.read_text(encoding="utf-8") if report.is_file() else "<none/>"
        )
    why = why_not_run(done.stdout)
    for row in rows:
        if row.test not in outcomes and why:
            yield row, "?", f"\nnot run here: {why}"
        else:
            yield row, worst(outcomes.get(row.test, [])), f"\n{done.stdout[-3000:]}"


def why_not_run(text: str) -> str | None:
    """Return why a whole file of tests was not run; None: it was, or it is a mistake of ours.

    Args:
        text: what pytest wrote.
    """
    if "ERROR collecting" in text:
        found = re.search(r"^E +ModuleNotFoundError: No module named '([^'.]+)", text, re.MULTILINE)
        return f"there is no package {found[1]}" if found and found[1] not in _OURS else None
    skipped = re.search(r"^SKIPPED \[\d+\] \S+: (.+)$", text, re.MULTILINE)
    return skipped[1] if skipped else None


def outcomes_of(report: str) -> dict[str, list[str]]:
    """Return what became of each test, of all its parameters."""
    found: dict[str, list[str]] = {}
    for case in ET.fromstring(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        file = case.get("classname", "").replace(".", "/")
        name = case.get("name", "").partition("[")[0]
        tags = {child.tag for child in case}
        outcome = "n" if tags & {"failure", "error"} else "?" if "skipped" in tags else "y"
        found.setdefault(f"{file}.py::{name}", []).append(outcome)
    return found


def worst(outcomes: Sequence[str]) -> str:
    """Return the worst: a test of several parameters of which one is skipped was not all tried."""
    return min(outcomes, key="n?y".index, default="n")


def page_of(promises: Promises, grades: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        promises: its rows.
        grades: by the id of those that were tried.
    """
    rows = promises.rows
    kept = sum(grades.get(row.id) == "y" for row in rows)
    left = sum(row.is_left for row in rows)
    rest = len(rows) - kept - left
    is_open = f", {rest} are open" if rest else ""
    head = _HEAD.format(all=len(rows), kept=kept, left=left, is_open=is_open)
    return "\n".join([head, *(_section(group, grades) for group in promises.groups)])


def grades_of(page: str) -> dict[str, str]:
    """Return the grades that a page has."""
    return dict(
        re.findall(r"^   \* - (S[\d.]+)\n     - \S[^\n]*\n     - (\S+)$", page, re.MULTILINE)
    )


def _section(group: Group, grades: Mapping[str, str]) -> str:
    lines = [group.title, "-" * len(group.title), "", ".. list-table::", "   :header-rows: 1"]
    lines += ["   :widths: 6 26 4 40 24", ""]
    lines += _cells("row", "what was promised", " ", "with", "what to know")
    for row in group.rows:
        grade = "left" if row.is_left else grades.get(row.id, "?")
        lines += _cells(row.id, row.promise, grade, _how(row), _what_to_know(row))
    return "\n".join([*lines, ""])


def _cells(*cells: str) -> list[str]:
    return [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(cells)]


def _how(row: Row) -> str:
    return f"``{row.run or row.test}``" if row.run or row.test else ""


def _what_to_know(row: Row) -> str:
    gpu = f"Needs a GPU; here {row.stands}." if row.stands else ""
    return " ".join(filter(None, (gpu, row.note)))


_HEAD: Final = """\
What the predecessors could do
==============================

Skyline with DeepView, PyProf, and Kineto with its plugin for TensorBoard: {all} promises, and what
a user types here for each. {kept} are kept, {left} are left for a reason that stands beside
them{is_open}.

The table is written by ``python -m docs.predecessors``, which runs each command, and compares its
exit code and output with what was promised: ``y`` where both are as they must be, ``n`` where not,
``?`` where what it needs was not there. What is an action in an editor or a browser is walked by
the test that is named. What needs a GPU was tried with a recording of one, which is named too: real
ones that others recorded, or made-up ones. In the commands ``net.json.gz`` is a training script
under ``capture --kineto --memory``, ``entry.json.gz`` an entry point, ``gpu.json`` a made-up
training on a GPU, ``job`` one of four ranks, ``sweep`` one at three batch sizes, ``resnet.json.gz``
and ``fb.json.gz`` real trainings, and ``pyprof.sqlite`` an export of Nsight Systems with PyProf's
markers.
"""


if __name__ == "__main__":
    sys.exit(main())
