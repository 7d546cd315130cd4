"""What is counted while reading is registered, what is registered is counted and documented."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2 import problems
from pyprof2.analysis.summaries.checks import problem_lines
from pyprof2.parsers.formats import FORMATS
from pyprof2.problems import PROBLEMS, look_up, look_up_skipped, with_detail

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = [
    path
    for folder in ("pyprof2", "parsers", "analysis")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != ROOT / "pyprof2" / "problems.py"
]
NAMES: Final = {
    name: slug
    for name, slug in vars(problems).items()
    if slug in [*problems.PROBLEMS, *problems.SKIPPED]
}
"""The name of each problem and each skipped kind in the code, and its slug."""

PASSED_ON: Final = {"problem"}
"""What holds a slug that was found elsewhere: of a label, of a broken marker."""


def _counted(path: Path) -> Iterator[ast.expr]:
    """Yield what stands between the brackets wherever something is counted."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            counter = ast.unparse(node.value).replace("_", "")
            if counter == "problems" or counter.endswith((".problems", ".skipped")):
                yield node.slice


def _named(expression: ast.expr) -> str:
    """Return the last part of a name; of a key with a detail, that of its slug."""
    if isinstance(expression, ast.Call) and ast.unparse(expression.func) == "with_detail":
        expression = expression.args[0]
    return ast.unparse(expression).rpartition(".")[2]


def test_what_is_counted_is_registered() -> None:
    counted = [(path.name, _named(each)) for path in SOURCES for each in _counted(path)]

    assert len(counted) > 25
    known = {*NAMES, *PASSED_ON, "key"}
    assert [(path, name) for path, name in counted if name not in known] == []


def test_what_is_registered_is_counted_somewhere() -> None:
    used = {
        getattr(node, "attr", getattr(node, "id", ""))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name | ast.Attribute)
    }

    assert len(NAMES) == len(PROBLEMS) + len(problems.SKIPPED)
    assert set(NAMES) - used == set()


@pytest.mark.parametrize("slug", PROBLEMS)
def test_each_problem_has_a_text_an_advice_and_a_place_in_the_documentation(slug: str) -> None:
    page = (ROOT / "docs" / "problems.rst").read_text(encoding="utf-8")
    problem = PROBLEMS[slug]

    assert problem.text
    assert all(len(problem.advice_of(known.advice)) > 10 for known in FORMATS)
    assert f"``{slug}``" in page


def test_a_name_or_a_number_of_a_problem_stands_in_its_text() -> None:
    key = with_detail(problems.NSIGHT_ERROR, "no space: {} left")

    assert key == "nsight-error: no space: {} left"
    assert look_up(key).text == "Nsight Systems: no space: {} left"


def test_a_problem_of_another_version_is_shown_as_it_is_stored() -> None:
    found = look_up("something new: 7")

    assert found.text == "something new: 7"
    assert found.advice_of(FORMATS[0].advice) == FORMATS[0].advice.problem


def test_warnings_have_text_and_count_of_all_ranks_and_leave_out_what_is_harmless() -> None:
    ranks = [
        {"rank": 0, "problems": {"file-cut": 1, "external-ids": 5, "bytes-lost: 1,234": 3}},
        {"rank": 1, "problems": {"file-cut": 2_000}},
    ]

    assert problem_lines({"ranks": ranks}) == [
        "1,234 bytes that are not valid JSON, about so many events: dropped (3)",
        "the file is cut off or damaged; what was whole before is kept (2,001)",
    ]


def test_what_an_error_of_nsight_says_is_not_taken_for_another_problem() -> None:
    found = look_up(with_detail(problems.NSIGHT_ERROR, "the report is cut off"))

    assert "nsys-ui" in found.advice


@pytest.mark.parametrize("slug", problems.SKIPPED)
def test_each_skipped_kind_has_a_place_in_the_documentation(slug: str) -> None:
    page = (ROOT / "docs" / "problems.rst").read_text(encoding="utf-8")

    assert f"``{slug}``" in page


def test_check_says_what_was_skipped_and_whether_a_number_may_lack_it() -> None:
    unknown = with_detail(problems.UNKNOWN_EVENT, "phase Q, category none")

    marks = look_up_skipped(problems.MARKS)
    assert marks.text == "marks of a moment, which no number needs"
    assert look_up_skipped(unknown).text == "events of an unknown kind: phase Q, category none"
    assert look_up_skipped("something new").text == "something new"
