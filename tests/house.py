"""The shape of the source in figures: `python -m tests.house` prints them.

Lengths of functions are without signature and docstring; a private function is used once where its
name stands in the source twice, the definition counted. `tests/test_house.py` has the ceilings.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter, defaultdict
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent

FOLDERS: Final = ("pyprof2", "parsers", "analysis")

_WORD: Final = re.compile(r"[A-Za-z_]\w*")

_CALLED: Final = r"{0}\((?<!def {0}\()(?<!super\(\)\.{0}\()(?<!\w{0}\()"
"""The text that is looked for comes first: the search for it is twenty times as fast."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Figures(NamedTuple):
    """What is counted of the source; percentages are of functions and of files."""

    files: int
    lines: int
    code_lines: int
    median_file: float
    functions: int
    function_p90: int
    functions_over_60: int
    used_once_pct: float
    used_once_in_three_lines: int
    small_modules_pct: float
    root_modules: int
    repeated_classes: int


def source_files() -> dict[Path, str]:
    """Return the text of every module of the package, by its path; links are not followed."""
    paths = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in FOLDERS)
    return {
        path: path.read_text(encoding="utf-8")
        for path in sorted(paths)
        if not any(part.is_symlink() for part in (path, *path.parents))
    }


def called_once_in_three_lines(texts: dict[Path, str]) -> list[Function]:
    """Return those of up to three lines that are no callback, no override, and not decorated."""
    source = "\n".join(texts.values())
    return [
        node
        for node in functions_used_once(texts)
        if _body_length(node) <= 3
        and not node.decorator_list
        and re.search(_CALLED.format(node.name), source)
    ]


def figures(texts: dict[Path, str]) -> Figures:
    """Count the source."""
    functions = [n for text in texts.values() for n in _nodes(text) if isinstance(n, Function)]
    lengths = sorted(map(_body_length, functions))
    lines = [text.count("\n") for text in texts.values()]
    once = functions_used_once(texts)
    modules = [path for path in texts if path.name != "__init__.py"]
    root = [p for p in modules if p.parent == ROOT / "pyprof2" and p.name != "__main__.py"]
    return Figures(
        files=len(texts),
        lines=sum(lines),
        code_lines=sum(map(_code_lines, texts.values())),
        median_file=statistics.median(lines),
        functions=len(functions),
        function_p90=lengths[int(0.9 * len(lengths))],
        functions_over_60=sum(length > 60 for length in lengths),
        used_once_pct=100 * len(once) / len(functions),
        used_once_in_three_lines=len(called_once_in_three_lines(texts)),
        small_modules_pct=100 * sum(texts[p].count("\n") < 100 for p in modules) / len(texts),
        root_modules=len(root),
        repeated_classes=len(repeated_classes(texts)),
    )


def functions_used_once(texts: dict[Path, str]) -> list[Function]:
    """Return the private functions with one use, be it a call or as a value."""
    words = Counter(chain.from_iterable(map(_WORD.findall, texts.values())))
    found = defaultdict(list)
    for text in texts.values():
        for node in _nodes(text):
            if isinstance(node, Function):
                found[node.name].append(node)
    return [
        nodes[0]
        for name, nodes in found.items()
        if len(nodes) == 1 and re.match("_(?!_)", name) and words[name] == 2
    ]


def repeated_classes(texts: dict[Path, str]) -> dict[str, int]:
    """Return the names of classes that several files define, and how many do."""
    files = Counter(
        name
        for text in texts.values()
        for name in {n.name for n in _nodes(text) if isinstance(n, ast.ClassDef)}
    )
    return {name: count for name, count in sorted(files.items()) if count > 1}


@cache
def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def _has_docstring(node: Function | ast.Module | ast.ClassDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _body_length(node: Function) -> int:
    body = node.body[1:] if _has_docstring(node) else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]


def _code_lines(text: str) -> int:
    lines = text.splitlines()
    code = {at for at, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"}
    for node in _nodes(text):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            # Blank lines of a text are code.
            code |= set(range(node.lineno, node.end_lineno + 1))  # type: ignore[operator]
    for node in _nodes(text):
        if isinstance(node, Function | ast.Module | ast.ClassDef) and _has_docstring(node):
            code -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))  # type: ignore[operator]
    return len(code)


if __name__ == "__main__":
    for name, value in figures(source_files())._asdict().items():
        print(
            f"{name:26} {value:>10,.1f}" if isinstance(value, float) else f"{name:26} {value:>10,}"
        )
