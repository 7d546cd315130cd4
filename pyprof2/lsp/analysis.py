"""The analysis of a version of a file: costs at its lines now, functions, batch sizes.

Runs in the worker: parsing ten thousand lines takes longer than an editor waits.

Numbers follow edits by the content of lines. A line is *fresh* where it and the whole function
around it are as they were recorded, *stale* where only the line is, or where a line with nearly
the same words stands in its place. Any other line has no number: a wrong one is worse than none.
"""

from __future__ import annotations

import ast
import difflib
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from pyprof2.frames import WIDTH, line_hashes
from pyprof2.lsp import batch_size
from pyprof2.lsp.costs import total, totals_of_lines
from pyprof2.lsp.positions import Text, without_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.lsp.costs import FileCosts


class LineCosts(TypedDict):
    """The costs of a line; lines from 0.

    Attributes:
        now, recorded: where it is, and where it was.
        fresh: whether it and its function are as they were.
        values: `costs.VALUES` of all steps.
        memory: bytes at the peak; None: nothing, or not recorded.
        rates: of the ops that the line calls.
    """

    now: int
    recorded: int
    fresh: bool
    values: list[int | None]
    memory: int | None
    rates: dict[str, float]


class Function(TypedDict):
    """A function or class with its costs; `values` None: nothing, or it changed too much."""

    name: str
    is_class: bool
    first: int
    line: int
    last: int
    fresh: bool
    values: list[int | None] | None
    memory: int | None


class Analysis(TypedDict):
    """Lines, functions and batch sizes of a version of a file.

    Attributes:
        lines: those with costs, in order.
        functions: all of the file.
        candidates: `batch_size.Candidate` as lists.
        is_program: whether it could be parsed.
    """

    lines: list[LineCosts]
    functions: list[Function]
    candidates: list[list[Any]]
    is_program: bool


def analyse(
    source: str, language: str, costs: FileCosts | None, before: str | None, *, trusted: bool
) -> Analysis:
    """Return the analysis of a version of a file.

    Args:
        source: its text.
        language: `python` or `yaml`.
        costs: as recorded of the file; None: nothing.
        before: the text that was recorded, if it is known.
        trusted: whether, without hashes of the recorded lines, `before` is the recorded text.
    """
    text = Text(source)
    if language == "yaml":
        found = batch_size.in_yaml(text)
        return Analysis(lines=[], functions=[], candidates=[[*c] for c in found], is_program=True)
    tree = parsed(source)
    scopes = None if tree is None else outline(tree)
    places: list[Anchor] = []
    hashes = None if costs is None else costs["hashes"]
    if costs is not None and hashes is None and before is not None and trusted:
        from pyprof2.frames import line_hashes

        hashes = line_hashes(before.removeprefix("\ufeff"))
    # Without hashes nothing says which lines were recorded.
    if hashes is not None:
        old = None if before is None else Text(before)
        places = anchors(split_hashes(hashes), text, scopes, old)
    return Analysis(
        lines=[] if costs is None else _lines(places, costs),
        functions=[_function(scope, places, costs) for scope in scopes or []],
        candidates=[] if tree is None else [[*c] for c in batch_size.in_python(tree, text)],
        is_program=tree is not None,
    )


def _lines(places: Sequence[Anchor], costs: FileCosts) -> list[LineCosts]:
    known = dict(totals_of_lines(costs["nodes"]))
    return [
        LineCosts(
            now=place.now,
            recorded=place.recorded,
            fresh=place.is_fresh,
            values=known[place.recorded],
            memory=costs["memory"].get(str(place.recorded)),
            rates=costs["rates"].get(str(place.recorded), {}),
        )
        for place in places
        if place.recorded in known
    ]


def _function(scope: Scope, places: Sequence[Anchor], costs: FileCosts | None) -> Function:
    """Return a function with its costs: if its first and last line are still there."""
    name, is_class, first_line, line, last_line = scope
    found = Function(
        name=name, is_class=is_class, first=first_line, line=line, last=last_line,
        fresh=False, values=None, memory=None,
    )  # fmt: skip
    here = {place.now: place for place in places}
    first, last = here.get(scope.line), here.get(scope.last)
    if costs is None or first is None or last is None or first.recorded > last.recorded:
        return found
    above = here.get(scope.first, first)
    found["fresh"] = all(
        (place := here.get(at)) is not None and place.is_fresh
        for at in range(scope.first, scope.last + 1)
    )
    found["values"] = total(costs["nodes"], above.recorded, last.recorded)
    held = [
        size for at, size in costs["memory"].items() if above.recorded <= int(at) <= last.recorded
    ]
    found["memory"] = sum(held) if held else None
    return found


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
