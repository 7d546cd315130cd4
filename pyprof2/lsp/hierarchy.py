"""The tree of calls as the editor's call hierarchy: the breakdown, to drill down in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from lsprotocol import types as lsp
from pygls.uris import from_fs_path

from pyprof2.lsp import shown

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyprof2.lsp.costs import Costs
    from pyprof2.lsp.files import File
    from pyprof2.lsp.session import Session

_PARENT, _KIND, _NAME, _MODULE, _TIME, _CALLS = range(6)
_LINE: Final = "line"
_MOST: Final = 50


def items_at(session: Session, file: File, line: int) -> list[lsp.CallHierarchyItem]:
    """Return the branches of the line that stands here; of a function those of all its lines."""
    costs = session.costs
    if costs is None:
        return []
    view = session.view(file)
    here = [f for f in view.functions if f["line"] == line and not f["is_class"]]
    first, last = (here[0]["first"], here[0]["last"]) if here else (line, line)
    recorded = [found["recorded"] for found in view.lines if first <= found["now"] <= last]
    return [_item(session, costs, at) for at in of_lines(session, file, recorded)[:_MOST]]


def of_lines(session: Session, file: File, recorded: Collection[int]) -> list[int]:
    """Return the branches of lines by where they were recorded."""
    costs = session.costs
    if costs is None:
        return []
    names = {
        f"{there}:{line + 1}"
        for line in recorded
        for there, place in session.recordings["main"]["local"].items()
        if os.path.realpath(place) == file.path
    }
    return [at for at, row in enumerate(costs["tree"]) if row[_NAME] in names]


def below(session: Session, item: lsp.CallHierarchyItem) -> list[lsp.CallHierarchyOutgoingCall]:
    """Return the branches below one."""
    costs, number = session.costs, _number(session, item)
    if costs is None or number is None:
        return []
    found = [_item(session, costs, at) for at in children(costs, number)[:_MOST]]
    return [lsp.CallHierarchyOutgoingCall(each, [item.selection_range]) for each in found]


def children(costs: Costs, number: int) -> list[int]:
    """Return the branches right below one; -1: the roots."""
    return [at for at, row in enumerate(costs["tree"]) if row[_PARENT] == number]


def above(session: Session, item: lsp.CallHierarchyItem) -> list[lsp.CallHierarchyIncomingCall]:
    """Return the branch that one is in."""
    costs, number = session.costs, _number(session, item)
    if costs is None or number is None or costs["tree"][number][_PARENT] < 0:
        return []
    found = _item(session, costs, costs["tree"][number][_PARENT])
    return [lsp.CallHierarchyIncomingCall(found, [found.selection_range])]


def _number(session: Session, item: lsp.CallHierarchyItem) -> int | None:
    """Return the branch of an item; None: it is of another recording."""
    costs, data = session.costs, item.data
    if costs is None or not isinstance(data, dict) or data.get("path") != costs["path"]:
        return None
    number = data.get("node")
    return number if isinstance(number, int) and 0 <= number < len(costs["tree"]) else None


class Branch(NamedTuple):
    """A branch of the tree.

    Attributes:
        number: of it.
        kind: what it is: `line`, `op`, or what else there is in the tree.
        name: without the folders of a path.
        time: of all steps, ns.
        words: calls of a step, and the module, if there are such.
        path, line: of the line that it is, or that called it.
    """

    number: int
    kind: str
    name: str
    time: int
    words: list[str]
    path: str
    line: int


def branch(session: Session, costs: Costs, at: int) -> Branch:
    """Return a branch by its number."""
    row = costs["tree"][at]
    name = str(row[_NAME]).replace("\\", "/").rpartition("/")[2]
    words = [shown.times(row[_CALLS], costs["steps"])] if row[_CALLS] else []
    words += [row[_MODULE]] if row[_MODULE] else []
    return Branch(at, row[_KIND], name, row[_TIME], words, *_place(session, costs, at))


def _item(session: Session, costs: Costs, at: int) -> lsp.CallHierarchyItem:
    found = branch(session, costs, at)
    where = lsp.Range(lsp.Position(found.line, 0), lsp.Position(found.line, 0))
    words = [shown.milliseconds(found.time, costs["steps"])]
    words += [f"{shown.share(found.time, costs):.1f} %", *found.words]
    kind = lsp.SymbolKind.Function if found.kind == _LINE else lsp.SymbolKind.Operator
    return lsp.CallHierarchyItem(
        shown.plain(found.name),
        kind,
        from_fs_path(found.path) or "",
        where,
        where,
        detail=shown.plain(", ".join(words)),
        data={"node": at, "path": costs["path"]},
    )


def _place(session: Session, costs: Costs, at: int) -> tuple[str, int]:
    """Return file and line of a branch; of an op those of the line that called it."""
    while at >= 0 and costs["tree"][at][_KIND] != _LINE:
        at = costs["tree"][at][_PARENT]
    if at < 0:
        return costs["path"], 0
    path, _, number = costs["tree"][at][_NAME].rpartition(":")
    recorded = int(number) - 1
    here = session.recordings["main"]["local"].get(path)
    if here is None:
        return path, recorded
    for file in session.files.values():
        if file.path == os.path.realpath(here):
            lines = session.view(file).lines
            return here, next((e["now"] for e in lines if e["recorded"] == recorded), recorded)
    return here, recorded
