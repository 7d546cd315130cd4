"""The table of the predecessors is whole and in step with its rows, and can say no."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from docs import predecessors
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from docs.predecessors import Row

PROMISES: Final = predecessors.read_promises()
COUNTS: Final = {"S1": 10, "S2": 17, "S3": 37, "S4": 45, "S5": 62}
"""Promises of each part: 171 in all."""
VERSION: Final = predecessors.Row(
    id="S1.8", promise="says its version", run="pyprof2 --version", shows=r"^pyprof2 \d"
)


def test_every_promise_has_its_row() -> None:
    ids = [row.id for row in PROMISES.rows]

    assert ids == [f"{part}.{i}" for part, most in COUNTS.items() for i in range(1, most + 1)]


@pytest.mark.parametrize("row", PROMISES.rows, ids=lambda row: row.id)
def test_a_row_has_a_command_that_must_show_something_or_a_test_or_a_reason(row: Row) -> None:
    if row.run:
        assert not row.test
        assert row.shows
        assert re.compile(row.shows).search("") is None, "whatever is shown fits"
    elif row.test:
        file, name = row.test.split("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)
    else:
        assert row.note


def test_the_page_is_that_of_the_rows_and_every_promise_is_kept_or_left() -> None:
    page = predecessors.PAGE.read_text(encoding="utf-8")

    grades = predecessors.grades_of(page)

    assert predecessors.page_of(PROMISES, grades) == page
    assert {row.id for row in PROMISES.rows if row.is_left} == {
        row for row, grade in grades.items() if grade == "left"
    }
    untried = {row.id for row in PROMISES.rows if row.note and grades[row.id] == "?"}
    assert {row for row, grade in grades.items() if grade not in {"y", "left"}} == untried


def test_a_promise_is_kept_where_code_and_text_are_as_they_must_be(tmp_path: Path) -> None:
    rows = [
        VERSION,
        replace(VERSION, id="another text", shows="pyprof3"),
        replace(VERSION, id="another code", code=1),
        replace(VERSION, id="refused", run="pyprof2 --no-such", code=2, shows="pyprof2 --help"),
    ]

    found = {row.id: grade for row, grade, _ in predecessors.grades_now(rows, tmp_path)}

    assert found == {"S1.8": "y", "another text": "n", "another code": "n", "refused": "y"}


def test_what_a_query_finds_is_part_of_the_text(tmp_path: Path) -> None:
    asked = replace(VERSION, query="new.sqlite: SELECT 6 * 7", shows=r"pyprof2.*\(42,\)")

    ((_, grade, _),) = predecessors.grades_now([asked], tmp_path)

    assert grade == "y"


def test_a_test_that_was_skipped_or_failed_or_is_not_there_keeps_nothing() -> None:
    report = """<testsuites><testsuite>
      <testcase classname="tests.test_a" name="test_one[x]"/>
      <testcase classname="tests.test_a" name="test_one[y]"><skipped/></testcase>
      <testcase classname="tests.test_a" name="test_two"><failure/></testcase>
      <testcase classname="tests.test_a" name="test_three"/>
    </testsuite></testsuites>"""

    found = predecessors.outcomes_of(report)

    assert {name.rpartition("_")[2]: predecessors.worst(all_) for name, all_ in found.items()} == {
        "one": "?", "two": "n", "three": "y",
    }  # fmt: skip
    assert predecessors.worst([]) == "n"


@pytest.mark.slow
def test_a_file_that_lacks_its_package_is_not_tried_and_takes_no_other_along(
    tmp_path: Path,
) -> None:
    for name, text in (
        ("good", ""), ("extra", "import no_such_package\n"), ("wrong", "import tests.no_such\n"),
        ("bad", "1 +\n"), ("none", "import pytest\npytest.skip('no X', allow_module_level=True)\n"),
    ):  # fmt: skip
        (tmp_path / f"test_{name}.py").write_text(f"{text}def test_it():\n    pass\n")
    names = ("extra", "good", "wrong", "bad", "none")
    rows = [replace(VERSION, id=each, run="", test=f"test_{each}.py::test_it") for each in names]

    found = {row.id: (grade, seen) for row, grade, seen in predecessors.try_tests(rows, tmp_path)}

    assert {name: grade for name, (grade, _) in found.items()} == {
        "extra": "?", "good": "y", "wrong": "n", "bad": "n", "none": "?",
    }  # fmt: skip
    assert found["extra"][1] == "\nnot run here: there is no package no_such_package"
    assert found["none"][1] == "\nnot run here: no X"


@pytest.mark.release
def test_what_needs_only_an_entry_point_is_kept(tmp_path: Path) -> None:
    predecessors.make_recordings(PROMISES, tmp_path, tmp_path)
    (tmp_path / "out").mkdir()
    rows = [row for row in PROMISES.rows if row.run and not row.stands]

    found = {row.id: grade for row, grade, _ in predecessors.grades_now(rows, tmp_path)}

    assert [row for row, grade in found.items() if grade != "y"] == []
