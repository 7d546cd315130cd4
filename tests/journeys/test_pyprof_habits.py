"""Someone who has typed PyProf's commands for years, and types them with the new name."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.builders import mm_trace

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk


def test_parse_into_a_file_and_prof_of_that_file(walk: Walk) -> None:
    walk.write("net.json", json.dumps(mm_trace()))
    # What lies in the folder of the user has no business in the command.
    walk.write("json.py", "raise SystemExit('not this one')")

    walk.write("net.dict", walk.run("python", "-m", "pyprof2.parse", "net.json").stdout)
    shown = walk.run("python", "-m", "pyprof2.prof", "--pyprof", "--csv", "net.dict").stdout

    (row,) = csv.DictReader(io.StringIO(shown))
    assert list(row) == ["Idx", "Direction", "Sub", "Module", "Op", "Kernel", "Params", "Sil(ns)"]
    assert (row["Op"], row["Sil(ns)"]) == ("mm", "40000")


def test_a_recording_through_a_pipe(walk: Walk) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "pyprof2.prof", "-", "--csv", "-c", "op,dur_ns"],
        cwd=walk.folder, check=True, capture_output=True, input=json.dumps(mm_trace()).encode(),
    )  # fmt: skip

    assert shown.stdout.decode() == '"op","dur_ns"\n"aten::mm",40000\n'


def test_what_pyprof_left_is_refused_with_what_to_do(walk: Walk) -> None:
    walk.write("net.dict", "{'kShortName': 'gemm', 'kDuration': 4000, 'layer': []}\n")

    done = walk.run("pyprof2", "prof", "net.dict", code=1)

    assert done.stderr.startswith("pyprof2: net.dict: the output of PyProf's parse")
    assert "pyprof2 capture" in done.stderr


@pytest.mark.slow
def test_a_script_that_imports_the_modules_has_the_function(walk: Walk) -> None:
    walk.write("net.json", json.dumps(mm_trace()))
    walk.write(
        "script.py",
        "import pyprof2, pyprof2.parse, pyprof2.prof\n"
        "print(pyprof2.parse('net.json'), pyprof2.nvtx.wrap is pyprof2.wrap)\n",
    )

    assert walk.run("python", "script.py").stdout == "net.pyprof2 True\n"
