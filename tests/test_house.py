"""The shape of the source has ceilings that only fall: lower them with the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import ROOT, Figures, figures, functions_used_once, repeated_classes, source_files

CEILINGS = {
    "code_lines": 70_450, "function_p90": 22, "functions_over_60": 0, "used_once_pct": 9.1,
    "used_once_in_three_lines": 0, "small_modules_pct": 15.8, "root_modules": 12,
    "repeated_classes": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def source() -> Figures:
    return figures(source_files())


@pytest.mark.parametrize("name", CEILINGS)
def test_no_figure_is_above_its_ceiling(source: Figures, name: str) -> None:
    assert getattr(source, name) <= CEILINGS[name]


def test_lengths_are_without_signature_docstring_comments_and_blanks() -> None:
    text = '''"""Module."""

# Why.
class Place:
    """A class."""


def _once() -> int:
    """Return one."""
    one = 1

    return one


def twice() -> int:
    return _once()
'''
    other = "class Place:\n    pass\n"
    found = figures({ROOT / "pyprof2" / "a.py": text, ROOT / "parsers" / "b.py": other})

    assert found.files == 2
    assert found.lines == 18
    assert found.code_lines == 8
    assert (found.functions, found.function_p90) == (2, 3)
    assert (found.used_once_pct, found.used_once_in_three_lines) == (50.0, 1)
    assert (found.root_modules, found.repeated_classes) == (1, 1)


def test_what_is_used_twice_or_defined_twice_is_not_used_once() -> None:
    path = Path("a.py")

    once = functions_used_once({path: "def _a(): ...\ndef _b(): ...\n_a()\n_b()\n_b()\n"})

    assert [node.name for node in once] == ["_a"]
    assert repeated_classes({path: "class A: ...\nclass A: ...\n"}) == {}
