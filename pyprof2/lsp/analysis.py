"""The analysis of a version of a file: costs at its lines now, functions, batch sizes.

Runs in the worker: parsing ten thousand lines takes longer than an editor waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from pyprof2.lsp import batch_size
from pyprof2.lsp.costs import total, totals_of_lines
from pyprof2.lsp.outline import Anchor, anchors, outline, parsed, split_hashes
from pyprof2.lsp.positions import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.lsp.costs import FileCosts
    from pyprof2.lsp.outline import Scope


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
