"""Each command line of the table works in a process of its own, as a user starts it.

`make test` runs each command with one or two formats, `prof` with all, and each kind of input and
output; `make test-slow` each format with each kind of input, recordings and outputs in turn;
`make test-release` every line: more than an hour of a core.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
import pytest

from pyprof2.cli import build_parser
from pyprof2.store.folder import is_store
from tests.commands.table import (
    COMMANDS,
    ELSEWHERE,
    MACHINE,
    PROGRAM,
    RECORDINGS,
    ROOT,
    SEVERAL,
    Line,
    api_rows,
    forms_of,
    lines,
    make_recordings,
    stdin_of,
)
from tests.conftest import once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.commands.table import Command

_OF_INPUT: Final = ("prof --by op", "idle", "advise")
"""The commands that `make test` runs with a trace, a folder and stdin."""
_OLD_NAMES: Final = {"spend", "skyline-report"}
"""Names of commands that have others, which stand in the table."""


def _turn(line: Line) -> bool:
    """Whether `make test-slow` runs a line: each command meets each recording in turn."""
    command = line.command
    outputs = list(dict.fromkeys(each.output for each in lines(command)))
    form = forms_of(command.name).index(line.form)
    turn = form + command.inputs.index(line.input) + COMMANDS.index(command)
    recording = command.recordings[turn % len(command.recordings)]
    return outputs[(turn + form) % len(outputs)] == line.output and (
        line.recording == recording or line.input == SEVERAL
    )


def _is_quick(line: Line) -> bool:
    """Whether `make test` runs a line."""
    command = line.command
    if line.recording != "gpu":
        return False
    if line.input in ("store", "", SEVERAL):
        is_pipe = line.output == "pipe" or bool(command.output)
        forms = forms_of(command.name)
        one = forms[COMMANDS.index(command) % len(forms)]
        return is_pipe and (command.name == "prof" or line.form in (one, "csv"))
    inputs = ("trace", "folder", "-")
    name = next((n for n, kind in zip(_OF_INPUT, inputs, strict=True) if kind == line.input), None)
    return command.words == name and line.form in (None, "csv") and line.output == "-o"


def _is_of(recording: str) -> Callable[[Line], bool]:
    return lambda line: line.recording == recording


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Return the folder of the recordings, which all workers share."""
    return once("command-table", make_recordings)


def _run(line: Line, recordings: Path, out: Path) -> bytes:
    """Run a line and return what it wrote, to stdout or to the file that it names.

    Raises:
        AssertionError: it failed, or said that something is wrong with pyprof2 or with the store.
    """
    words = [str(PROGRAM), *line.words(recordings, out / (line.command.output or "out"))]
    source = stdin_of(line, recordings)
    printed = out / "stdout"
    with (source or Path(os.devnull)).open("rb") as stdin:
        if line.output == "file":
            with printed.open("wb") as stdout:
                done = subprocess.run(
                    words, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, check=False, cwd=ROOT
                )
        else:
            done = subprocess.run(words, stdin=stdin, capture_output=True, check=False, cwd=ROOT)
            printed.write_bytes(done.stdout)
    error = done.stderr.decode()
    assert done.returncode == 0, f"{line}: exit code {done.returncode}: {error}"
    assert "Traceback" not in error, f"{line}: {error}"
    assert "fault in pyprof2" not in error, f"{line}: {error}"
    written = out / (line.command.output or "out")
    if line.output != "-o" and not line.command.output:
        return printed.read_bytes()
    if written.is_dir():
        assert is_store(written), line
        return b"a store"
    return written.read_bytes()


def _rows(content: bytes, form: str) -> list[dict[str, Any]]:
    """Return what a program reads from an output."""
    if form == "json":
        found = json.loads(content)
        return found if isinstance(found, list) else [found]
    if form == "parquet":
        rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(content)).to_pylist()
        return rows
    return list(csv.DictReader(io.StringIO(content.decode())))


def _is_same(one: object, other: object) -> bool:
    """Whether two cells are the same: in CSV all are text, and null is empty."""
    if isinstance(other, str) and not isinstance(one, str):
        one, other = other, one
    if other is None or (isinstance(other, float) and math.isnan(other)):
        return one in (None, "", "null") or (isinstance(one, float) and math.isnan(one))
    if isinstance(other, bool):
        return one == other or one == str(other).lower()
    if isinstance(other, (int, float)):
        try:
            return math.isclose(float(str(one)), other, rel_tol=1e-9, abs_tol=1e-12)
        except ValueError:
            return False
    return one == other or (other in (None, "") and one in (None, ""))


def _differences(rows: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> Iterator[str]:
    """Yield in words where rows are not those that are wanted."""
    if len(rows) != len(wanted):
        yield f"{len(rows)} rows, not {len(wanted)}"
        return
    named = {"recording"}  # as the user names it
    for at, (row, expected) in enumerate(zip(rows, wanted, strict=True)):
        if row.keys() != expected.keys():
            yield f"row {at}: columns {sorted(row.keys() ^ expected.keys())}"
            return
        for name, cell in row.items():
            if name not in named and not _is_same(cell, expected[name]):
                yield f"row {at}, {name}: {cell!r}, not {expected[name]!r}"


def _check(chosen: Iterable[Line], recordings: Path, folder: Path) -> None:
    """Run lines of one command; what they write is the same by format and input, and the API's."""
    failed = []
    first: dict[Any, list[dict[str, Any]]] = {}
    for number, line in enumerate(chosen):
        out = folder / str(number)
        out.mkdir()
        try:
            content = _run(line, recordings, out)
        except AssertionError as error:
            failed.append(str(error))
            continue
        if not content:
            failed.append(f"{line}: no output")
        if not line.is_machine:
            continue
        rows = _rows(content, str(line.form))
        wanted = api_rows(recordings, line)
        if wanted is None:
            alike = (line.recording, line.input == SEVERAL, line.form if line.command.nests else "")
            wanted = first.setdefault(alike, rows)
        failed += [f"{line}: {what}" for what in list(_differences(rows, wanted))[:3]]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize(
    "is_chosen",
    [
        pytest.param(_is_quick, id="quick"),
        pytest.param(_turn, id="in turn", marks=pytest.mark.slow),
        *(
            pytest.param(_is_of(name), id=f"all of {name}", marks=pytest.mark.release)
            for name in RECORDINGS
        ),
    ],
)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.words)
def test_a_command_works_as_a_user_starts_it(
    command: Command, is_chosen: Callable[[Line], bool], recordings: Path, tmp_path: Path
) -> None:
    _check(filter(is_chosen, lines(command)), recordings, tmp_path)


def test_every_command_has_a_row() -> None:
    parser = build_parser()
    known = {command.name for command in COMMANDS} | set(ELSEWHERE) | _OLD_NAMES

    assert {name for each in parser._actions for name in (each.choices or ()) if name in known} == (
        known
    )
    for action in parser._actions:
        if isinstance(action.choices, dict):
            assert set(action.choices) == known
    for path in ELSEWHERE.values():
        assert (ROOT / path).exists()


def test_every_format_is_in_the_table() -> None:
    for command in COMMANDS:
        asked = {line.form for line in lines(command)}

        assert asked == set(forms_of(command.name))
        assert asked == {None} or asked >= set(MACHINE) or command.name in ("check", "explain")


def test_an_output_that_differs_from_the_api_is_seen() -> None:
    row = {"op": "aten::mm", "time_ns": 9, "tflops": None}

    assert not [*_differences([{"op": "aten::mm", "time_ns": "9", "tflops": ""}], [row])]
    assert [*_differences([{"op": "aten::mm", "time_ns": "8", "tflops": ""}], [row])]
    assert [*_differences([{"op": "aten::mm", "time_ns": "9"}], [row])]
    assert [*_differences([], [row])]
