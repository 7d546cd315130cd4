"""The breakdown as rows of a panel: files, then functions and lines, then the calls of a line.

The tree of calls is the editor's call hierarchy too: the breakdown, to drill down in.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from lsprotocol import types as lsp
from pygls.uris import from_fs_path, to_fs_path

from pyprof2.lsp import shown
from pyprof2.lsp.costs import total
from pyprof2.lsp.session import MAIN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyprof2.lsp.analysis import Function
    from pyprof2.lsp.costs import Costs
    from pyprof2.lsp.files import File
    from pyprof2.lsp.session import Session


FILE, FUNCTION, CLASS, LINE = "file", "function", "class", "line"
_EVERY_LINE: Final = 1 << 60
_MOST: Final = 200


class Row(TypedDict):
    """A bar of the panel.

    Attributes:
        kind: `file`, `class`, `function`, `line`, or a kind of `costs.Costs.tree`.
        name: what it is.
        time, memory: of a step, and at the peak, as text; memory empty: none, or not known.
        time_pct, memory_pct: of the step, and of the peak; null: not known.
        detail: calls, and the module.
        stale: whether the code is not as it was recorded.
        uri, first, last: where it is here, lines from 0; null: nowhere.
        below: the question for the rows below it; null: there are none.
    """

    kind: str
    name: str
    time: str
    time_pct: float
    memory: str
    memory_pct: float | None
    detail: str
    stale: bool
    uri: str | None
    first: int
    last: int
    below: dict[str, Any] | None


def rows(session: Session, wanted: Mapping[str, Any]) -> list[Row]:
    """Return the rows below a row, those with the most time first.

    Rows have their times with all that they call, so rows that call one another add up to more.

    Args:
        session: the state of the server.
        wanted: `below` of a row; empty: the files, and the time that no line of them has.
    """
    costs = session.costs
    if costs is None:
        return []
    if isinstance(number := wanted.get("node"), int):
        found = _branches(session, costs, number, wanted.get("recording"))
    elif (file := opened(session, wanted.get("uri"))) is not None:
        found = list(_of_file(session, costs, file, wanted))
    else:
        found = [] if wanted else [*_files(session, costs), *_rest(session, costs)]
    return sorted(found, key=lambda row: -row["time_pct"])[:_MOST]


def _row(costs: Costs, kind: str, name: str, ns: int, **more: Any) -> Row:
    found = Row(
        kind=kind, name=shown.plain(name), time=shown.milliseconds(ns, costs["steps"]),
        time_pct=shown.share(ns, costs), memory="", memory_pct=None, detail="", stale=False,
        uri=None, first=0, last=0, below=None,
    )  # fmt: skip
    found.update(more)  # type: ignore[typeddict-item]
    return found


def _measured(
    costs: Costs, values: Sequence[int | None], memory: int | None, detail: str = ""
) -> dict[str, Any]:
    """Return the columns of a row of lines beside its time."""
    calls = shown.value(values, "calls")
    words = [shown.times(calls, costs["steps"])] if calls else []
    peak = costs["peak_bytes"]
    return {
        "memory": shown.size(memory) if memory else "",
        "memory_pct": 100 * memory / peak if memory and peak else None,
        "detail": ", ".join([*words, *([detail] if detail else [])]),
    }


def _files(session: Session, costs: Costs) -> Iterator[Row]:
    local, states = (session.recordings[MAIN][name] for name in ("local", "states"))
    for there, file in costs["files"].items():
        values = total(file["nodes"], 0, _EVERY_LINE)
        if values is None:
            continue
        uri = _uri(session, local.get(there))
        state = states[there] if states[there] != "same" else ""
        yield _row(
            costs, FILE, _short(there, costs["root"]), shown.time_of(values),
            uri=uri, below=uri and {"uri": uri},
            **_measured(costs, values, sum(file["memory"].values()), state),
        )  # fmt: skip


def _short(path: str, root: str | None) -> str:
    return path.removeprefix(f"{root}/") if root else path


def _rest(session: Session, costs: Costs) -> Iterator[Row]:
    """Yield the rows that no file has: roots of the tree that are no file."""
    for at in children(costs, -1):
        row = branch(session, costs, at)
        if row.kind != FILE and row.time:
            yield _of_branch(session, costs, row)


def opened(session: Session, uri: Any) -> File | None:
    """Return an open file; None: it is not open, or that is no file."""
    if uri in session.files:
        return session.files[uri]
    place = os.path.realpath(path) if isinstance(uri, str) and (path := to_fs_path(uri)) else None
    return next((f for f in session.files.values() if place and f.path == place), None)


def _uri(session: Session, path: str | None) -> str | None:
    """Return a file as the editor calls it, if it is open."""
    if path is None:
        return None
    uri = from_fs_path(path)
    file = opened(session, uri)
    return uri if file is None else file.document.uri


def _of_file(
    session: Session, costs: Costs, file: File, wanted: Mapping[str, Any]
) -> Iterator[Row]:
    if isinstance(recorded := wanted.get("recorded"), int):
        for at in of_lines(session, file, [recorded]):
            yield from _branches(session, costs, at, costs["path"])
        return
    functions = session.view(file).functions
    of = _function(functions, wanted)
    if of is None and wanted.get("function"):
        return
    # Right below that function, or below none.
    inside = [
        each
        for each in functions
        if each["name"].rpartition(".")[0] == ("" if of is None else of["name"])
        and (of is None or of["first"] <= each["first"] <= each["last"] <= of["last"])
    ]
    uri = file.document.uri
    for each in inside:
        if (values := each["values"]) is not None:
            yield _row(
                costs, CLASS if each["is_class"] else FUNCTION, each["name"],
                shown.time_of(values), stale=not each["fresh"], uri=uri, first=each["line"],
                last=each["last"],
                below={"uri": uri, "function": each["name"], "line": each["line"]},
                **_measured(costs, values, each["memory"]),
            )  # fmt: skip
    yield from _lines(session, costs, file, of, inside)


def _function(functions: Sequence[Function], wanted: Mapping[str, Any]) -> Function | None:
    """Return the function of a name that is nearest to where it was: a name may stand twice."""
    line = wanted.get("line")
    alike = [each for each in functions if each["name"] == wanted.get("function")]
    where = line if isinstance(line, int) else 0
    return min(alike, key=lambda each: abs(each["line"] - where), default=None)


def _lines(
    session: Session, costs: Costs, file: File, of: Function | None, inside: Sequence[Function]
) -> Iterator[Row]:
    """Yield the lines of a function that are in none of those inside of it."""
    if costs["by_function"]:
        return
    uri = file.document.uri
    first, last = (of["first"], of["last"]) if of else (0, _EVERY_LINE)
    for line in session.view(file).lines:
        now = line["now"]
        if not first <= now <= last or any(f["first"] <= now <= f["last"] for f in inside):
            continue
        yield _row(
            costs, LINE, f"{now + 1}: {file.document.lines[now].strip()}",
            shown.time_of(line["values"]), stale=not line["fresh"], first=now, last=now,
            uri=uri, below={"uri": uri, "recorded": line["recorded"]},
            **_measured(costs, line["values"], line["memory"]),
        )  # fmt: skip


def _branches(session: Session, costs: Costs, number: int, recording: Any) -> list[Row]:
    """Return the branches right below one; none if it is of another recording."""
    if recording != costs["path"]:
        return []
    found = (branch(session, costs, at) for at in children(costs, max(0, number)))
    return [_of_branch(session, costs, branch) for branch in found]


def _of_branch(session: Session, costs: Costs, branch: Branch) -> Row:
    is_here = branch.path in session.recordings[MAIN]["local"].values()
    uri = _uri(session, branch.path) if is_here else None
    is_parent = bool(children(costs, branch.number))
    return _row(
        costs, branch.kind, branch.name, branch.time, uri=uri, first=branch.line,
        last=branch.line, detail=shown.plain(", ".join(branch.words)),
        below={"node": branch.number, "recording": costs["path"]} if is_parent else None,
    )  # fmt: skip


_PARENT, _KIND, _NAME, _MODULE, _TIME, _CALLS = range(6)
_LINE: Final = "line"
_MOST_CALLS: Final = 50


def items_at(session: Session, file: File, line: int) -> list[lsp.CallHierarchyItem]:
    """Return the branches of the line that stands here; of a function those of all its lines."""
    costs = session.costs
    if costs is None:
        return []
    view = session.view(file)
    here = [f for f in view.functions if f["line"] == line and not f["is_class"]]
    first, last = (here[0]["first"], here[0]["last"]) if here else (line, line)
    recorded = [found["recorded"] for found in view.lines if first <= found["now"] <= last]
    return [_item(session, costs, at) for at in of_lines(session, file, recorded)[:_MOST_CALLS]]


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
    found = [_item(session, costs, at) for at in children(costs, number)[:_MOST_CALLS]]
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
