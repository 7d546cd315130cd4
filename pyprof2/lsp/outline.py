"""The functions and classes of a Python file, and where its recorded lines are now.

Numbers follow edits by the content of lines. A line is *fresh* where it and the whole function
around it are as they were recorded, *stale* where only the line is, or where a line with nearly
the same words stands in its place. Any other line has no number: a wrong one is worse than none.
"""

from __future__ import annotations

import ast
import difflib
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.frames import WIDTH, line_hashes
from pyprof2.lsp.positions import without_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.lsp.positions import Text

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The errors of `ast.parse` for text that is no program, such as a half-typed line."""

_ALIKE: Final = 0.75
"""From this ratio of `difflib` on, a changed line is the recorded one in other words."""


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
    """Return all functions and classes, each after the one around it."""
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


# -- recorded lines --------------------------------------------------------------------------------


class Anchor(NamedTuple):
    """Where a recorded line is now; both from 0."""

    recorded: int
    now: int
    is_fresh: bool


def split_hashes(hashes: str) -> list[str]:
    """Return the hashes of lines that `line_hashes` wrote one after another."""
    return [hashes[at : at + WIDTH] for at in range(0, len(hashes), WIDTH)]


def anchors(
    recorded: Sequence[str], now: Text, scopes: list[Scope] | None, before: Text | None = None
) -> list[Anchor]:
    """Return where recorded lines are in a text, in its order; those that are gone are left out.

    Args:
        recorded: the hashes of the recorded lines.
        now: the text.
        scopes: its functions and classes; None: it is no program at the moment.
        before: the recorded text, if that is known; without it no line has other words.
    """
    hashes = split_hashes(line_hashes(now.source.removeprefix("\ufeff")))
    if hashes == list(recorded):
        return [Anchor(line, line, is_fresh=True) for line in range(len(hashes))]
    pairs = dict(_pairs(recorded, hashes))
    changed = dict(_reworded(recorded, hashes, pairs, now, before))
    found = [Anchor(old, new, _is_fresh(new, old, pairs, scopes)) for new, old in pairs.items()]
    found += [Anchor(old, new, is_fresh=False) for new, old in changed.items()]
    return sorted(found, key=lambda each: each.now)


def _pairs(recorded: Sequence[str], hashes: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield lines of now with the recorded lines that they are, in the same order."""
    for new, old, size in _blocks(recorded, hashes):
        for at in range(size):
            yield new + at, old + at


def _blocks(recorded: Sequence[str], hashes: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield equal blocks as (now, recorded, length); most of a file is at its two ends."""
    shorter = min(len(recorded), len(hashes))
    first = next((at for at in range(shorter) if recorded[at] != hashes[at]), shorter)
    last = 0
    while last < shorter - first and recorded[-1 - last] == hashes[-1 - last]:
        last += 1
    yield 0, 0, first
    old, new = recorded[first : len(recorded) - last], hashes[first : len(hashes) - last]
    for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        yield first + block.b, first + block.a, block.size
    yield len(hashes) - last, len(recorded) - last, last


def _reworded(
    recorded: Sequence[str],
    hashes: Sequence[str],
    pairs: dict[int, int],
    now: Text,
    before: Text | None,
) -> Iterator[tuple[int, int]]:
    """Yield lines with other words than recorded, alone or several at the same places."""
    if before is None or len(before.lines) != len(recorded):
        return
    known = [(-1, -1), *sorted(pairs.items()), (len(hashes), len(recorded))]
    for (new, old), (next_new, next_old) in pairwise(known):
        if next_new - new == next_old - old > 1:
            for at in range(1, next_new - new):
                was, now_is = before.lines[old + at].strip(), now.lines[new + at].strip()
                alike = difflib.SequenceMatcher(None, was, now_is, autojunk=False).ratio()
                if now_is and alike >= _ALIKE:
                    yield new + at, old + at


def _is_fresh(now: int, recorded: int, pairs: dict[int, int], scopes: list[Scope] | None) -> bool:
    """Whether all lines of the function around a line are as recorded, and at one distance."""
    if scopes is None:
        return False
    functions = [scope for scope in scopes if not scope.is_class]
    scope = innermost(functions, now)
    lines = (now,) if scope is None else range(scope.first, scope.last + 1)
    return all(pairs.get(line) == recorded + line - now for line in lines)
