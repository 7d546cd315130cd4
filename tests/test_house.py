"""The shape of the source has ceilings; ratios have some room."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.house import ROOT, Figures, figures, functions_used_once, repeated_classes, source_files

if TYPE_CHECKING:
    from collections.abc import Callable

CEILINGS = {
    "functions_over_60": 0, "used_once_pct": 10, "used_once_in_three_lines": 0,
    "small_modules_pct": 17, "root_modules": 13, "repeated_classes": 1,
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


def found_in(texts: dict[Path, str], is_bad: Callable[[ast.Call], bool]) -> list[str]:
    """Return where methods are called in a way that is bad."""
    return [
        f"{path.name}:{node.lineno}"
        for path, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_bad(node)
    ]


def takes_missing_for_text(call: ast.Call) -> bool:
    """Return whether a call makes text of columns in a way that missing values become `nan`."""
    kinds = [part for each in call.args for part in ast.walk(each)]
    return ast.unparse(call.func).endswith(".astype") and any(
        ast.unparse(kind) in {"'str'", "str"} for kind in kinds
    )


def leaves_groups_to_pandas(call: ast.Call) -> bool:
    """Return whether a call leaves it to pandas' version whether groups without rows are there."""
    name = ast.unparse(call.func)
    return (
        name.endswith(".groupby")
        and name != "itertools.groupby"
        and "observed" not in {keyword.arg for keyword in call.keywords}
    )


def test_text_of_columns_is_made_in_one_place() -> None:
    asked = (
        "a.astype(str); a.astype('str'); a.astype(dict.fromkeys(b, 'str')); a.astype({c: 'str'})"
    )

    assert len(found_in({Path("x.py"): asked}, takes_missing_for_text)) == 4
    assert [
        place.partition(":")[0] for place in found_in(source_files(), takes_missing_for_text)
    ] == ["columns.py"]


def test_groups_say_whether_they_are_of_what_there_is() -> None:
    asked = (
        "a.groupby(b)\na.groupby(b, observed=True)\nitertools.groupby(b)\na.b().groupby(level=0)"
    )

    assert found_in({Path("x.py"): asked}, leaves_groups_to_pandas) == ["x.py:1", "x.py:4"]
    assert found_in(source_files(), leaves_groups_to_pandas) == []
