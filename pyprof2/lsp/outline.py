"""The functions and classes of a Python file, and where they stand."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from pyprof2.lsp.positions import without_mark

if TYPE_CHECKING:
    from collections.abc import Iterator

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The errors of `ast.parse` for text that is no program, such as a half-typed line."""


class Scope(NamedTuple):
    """A function or a class.

    Attributes:
        name: with the names of what it is in, joined with dots.
        is_class: whether it is a class.
        first: its first line, of the first decorator if there is one; from 0, as the others.
        line: the line of `def` or `class`.
        last: its last line.
    """

    name: str
    is_class: bool
    first: int
    line: int
    last: int


def parsed(source: str) -> ast.Module | None:
    """Return the tree of a program; None: it is none."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape is for others to complain of
        try:
            return ast.parse(without_mark(source))
        except UNREADABLE:
            return None


def outline(tree: ast.Module) -> list[Scope]:
    """Return all functions and classes, each after what it is in."""
    return list(_scopes(tree, ""))


def _scopes(node: ast.AST, prefix: str) -> Iterator[Scope]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
            last = child.end_lineno or child.lineno
            is_class = isinstance(child, ast.ClassDef)
            yield Scope(name, is_class, first - 1, child.lineno - 1, last - 1)
            yield from _scopes(child, f"{name}.")
        elif not isinstance(child, ast.expr):
            yield from _scopes(child, prefix)


def innermost(scopes: list[Scope], line: int) -> Scope | None:
    """Return the smallest function or class that a line is in; None: it is in none."""
    found = [scope for scope in scopes if scope.first <= line <= scope.last]
    return max(found, key=lambda scope: scope.first, default=None)
