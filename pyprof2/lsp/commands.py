"""Commands, which every editor runs with `workspace/executeCommand`.

Each answers with an object: `ok`, and a message in `text`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from lsprotocol import types as lsp

from pyprof2.lsp import features, kept, shown
from pyprof2.lsp.app import Answer, Server, answers, uri_of
from pyprof2.lsp.breakdown import opened, rows
from pyprof2.lsp.session import BASELINE, MAIN, SCOPE
from pyprof2.lsp.worker import WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyprof2.lsp.batch_size import Candidate
    from pyprof2.lsp.files import File

_MOST: Final = 1_000_000_000
_MOST_OFFERED: Final = 12
PATIENCE: Final = 15.0
"""Seconds that a panel may wait for the recording, and again for the file that it shows."""

COMMANDS: Final[dict[str, Callable[..., Any]]] = {}
"""The function for each command."""


def said(ls: Server, text: str, *, ok: bool, quiet: bool = False) -> Answer:
    """Return an answer, and show it unless `quiet`."""
    if text and not quiet:
        ls.show(text, lsp.MessageType.Info if ok else lsp.MessageType.Warning)
    return {"ok": ok, "text": text}


# -- what is shown -------------------------------------------------------------------------------


@answers(COMMANDS, "pyprof2.toggleHints")
async def _toggle(ls: Server, *_: Any) -> Answer:
    on = not ls.session.settings.hints
    ls.session.settings, _wrong = ls.session.settings.changed({"hints": on})
    await ls.refresh()
    return said(ls, f"hints are {'on' if on else 'off'}", ok=True, quiet=True)


@answers(COMMANDS, features.CHOOSE)
async def _choose_shown(ls: Server, *given: Any) -> Answer:
    path = given[0] if given else await _choose_recording(ls, "show which recording?")
    if not isinstance(path, str):
        return said(ls, "no recording was chosen", ok=False, quiet=True)
    ls.session.settings, _wrong = ls.session.settings.changed({"recording": path})
    ls.session.hidden = False
    await ls.session.load()
    return said(ls, ls.session.title(), ok=MAIN in ls.session.recordings)


@answers(COMMANDS, "pyprof2.compareWith")
async def _compare(ls: Server, *given: Any) -> Answer:
    path = given[0] if given else await _choose_recording(ls, "compare with which recording?")
    if not isinstance(path, str) or not path:
        await ls.session.drop(BASELINE)
        return said(ls, "nothing is compared", ok=True)
    return await _added(ls, BASELINE, path, None, f"compared with {Path(path).name}")


@answers(COMMANDS, "pyprof2.hideRecording")
async def _hide(ls: Server, *_: Any) -> Answer:
    ls.session.hidden = not ls.session.hidden
    await ls.refresh()
    return said(ls, ls.session.title(), ok=True)


@answers(COMMANDS, "pyprof2.refresh")
async def _refresh(ls: Server, *_: Any) -> Answer:
    await ls.session.load()
    return said(ls, ls.session.title(), ok=MAIN in ls.session.recordings)


@answers(COMMANDS, "pyprof2.setScope")
async def _scope(ls: Server, *given: Any) -> Answer:
    costs = ls.session.costs
    if not given or not given[0] or costs is None:
        await ls.session.drop(SCOPE)
        return said(ls, "no module is chosen", ok=costs is not None)
    ls.session.scope = str(given[0])
    return await _added(ls, SCOPE, costs["path"], ls.session.scope, f"within {given[0]}")


@answers(COMMANDS, features.SHOW_LAYER)
async def _show_layer(ls: Server, *given: Any) -> Answer:
    place = next(ls.session.locations(str(given[0]) if given else ""), None)
    if place is None:
        return said(ls, f"no line of the workspace is known of layer {given}", ok=False)
    return await show_line(ls, *place)


@answers(COMMANDS, "pyprof2.breakdown")
async def _breakdown(ls: Server, *given: Any) -> Answer:
    """Take `below` of a row, or nothing; once asked, the editor hears when the answer changed."""
    ls.has_panel = True
    wanted = given[0] if given and isinstance(given[0], dict) else {}
    session = ls.session
    await session.loaded(PATIENCE)
    if file := opened(session, wanted.get("uri")):
        await session.settle(file.document.uri, PATIENCE)
    found, costs = rows(session, wanted), session.costs
    of = {"ledger": costs["ledger"], "memory_of": costs["memory_of"]} if costs else {}
    return {"ok": costs is not None, "text": session.title(), "rows": found, **of}


@answers(COMMANDS, "pyprof2.state")
async def _state(ls: Server, *_: Any) -> Answer:
    """Return what is shown, for an editor's own panel."""
    session = ls.session
    costs, (batch, words) = session.costs, session.batch()
    return {
        "ok": True,
        "text": session.title(),
        "recording": costs["path"] if costs else None,
        "batch": batch,
        "batch_known_by": words,
        "mismatch": session.mismatch(),
        "states": session.recordings[MAIN]["states"] if MAIN in session.recordings else {},
        "hints": session.settings.hints,
        "profiling": ls.profiling.is_running,
        "tree": costs["tree"] if costs else [],
        "steps": costs["steps"] if costs else 0,
        "total_ns": costs["total_ns"] if costs else 0,
    }


async def _added(ls: Server, name: str, path: str, within: str | None, text: str) -> Answer:
    try:
        await ls.session.add(name, path, within)
    except WorkerError as error:
        return said(ls, str(error), ok=False)
    return said(ls, text, ok=True)


async def _choose_recording(ls: Server, text: str) -> str | None:
    try:
        paths = (await ls.session.search())[:_MOST_OFFERED]
    except WorkerError as error:
        ls.show(str(error), lsp.MessageType.Warning)
        return None
    names = {f"{Path(path).name} ({shown.age_of(path)})": path for path in paths}
    chosen = await ls.choose(text, list(names)) if names else None
    return names.get(chosen or "")


async def show_line(ls: Server, path: str, line: int) -> Answer:
    """Open a file at a line, where the editor can be asked to; else say where it is."""
    window = ls.client_capabilities.window
    where = f"{path}:{line + 1}"
    if window is None or window.show_document is None or not window.show_document.support:
        return said(ls, where, ok=True) | {"path": path, "line": line}
    place = lsp.Range(lsp.Position(line, 0), lsp.Position(line, 0))
    params = lsp.ShowDocumentParams(uri_of(path), take_focus=True, selection=place)
    result = await ls.window_show_document_async(params)
    return {"ok": result.success, "text": where, "path": path, "line": line}


# -- the batch size ------------------------------------------------------------------------------


def is_batch(value: Any) -> TypeGuard[int]:
    """Return whether a value is a number that a batch size can be."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


@answers(COMMANDS, features.SET_BATCH)
async def _set_batch_size(ls: Server, *given: Any) -> Answer:
    """Take a batch size, and the key of a place if there are several."""
    batch = given[0] if given else None
    if not is_batch(batch):
        return said(ls, f"{batch!r} is no batch size of 1 or more", ok=False)
    await analyse_all(ls)
    found = await _place(ls, given[1] if len(given) > 1 else None)
    return found if isinstance(found, dict) else await set_batch(ls, *found, batch)


@answers(COMMANDS, "pyprof2.batchSizes")
async def _batch_sizes(ls: Server, *_: Any) -> Answer:
    await analyse_all(ls)
    chosen = ls.session.kept.get(kept.CANDIDATE)
    return {"ok": True, "text": "", "places": [
        {
            "key": key, "place": features.place_of(file, candidate), "text": candidate.text,
            "value": candidate.value, "refusal": candidate.refusal, "uri": file.document.uri,
            "chosen": key == chosen,
        }
        for file, candidate, key in places(ls)
    ]}  # fmt: skip


@answers(COMMANDS, "pyprof2.chooseBatchSize")
async def _choose_batch_size(ls: Server, *given: Any) -> Answer:
    await analyse_all(ls)
    ls.session.kept.put(kept.CANDIDATE, None)
    found = await _place(ls, given[0] if given else None)
    if isinstance(found, dict):
        return found
    return said(ls, f"the batch size is {features.place_of(*found)}", ok=True)


async def analyse_all(ls: Server) -> None:
    """Analyse the current text of all open files."""
    for uri in list(ls.session.files):
        await ls.session.analyse(uri)


def places(ls: Server) -> Iterator[tuple[File, Candidate, list[Any]]]:
    """Yield where the batch size stands in open files, each with the key that it is known by."""
    root = ls.session.roots[0] if ls.session.roots else ""
    for file in ls.session.files.values():
        for candidate in file.candidates if file.is_current else []:
            yield file, candidate, features.key_of(file, candidate, root)


async def _place(ls: Server, wanted: Any) -> tuple[File, Candidate] | Answer:
    """Return the place of the batch size: asked for, remembered, the only one, or chosen now."""
    found_places = list(places(ls))
    wanted = wanted if wanted is not None else ls.session.kept.get(kept.CANDIDATE)
    asked = [each for each in found_places if each[2] == wanted]
    possible = asked or [each for each in found_places if each[1].value is not None]
    if not possible:
        why = "; ".join(
            f"{features.place_of(f, c)}: {c.text}: {c.refusal}" for f, c, _ in found_places
        )
        return said(ls, why or "no batch size was found in the open files", ok=False)
    found = possible[0]
    if len(possible) > 1:
        names = {
            f"{features.place_of(f, c)}: {c.name} = {c.text}": (f, c, k) for f, c, k in possible
        }
        title = await ls.choose("which of these is the batch size?", list(names))
        if title is None:
            return said(ls, "no place of the batch size was chosen", ok=False, quiet=True)
        found = names[title]
    file, candidate, key = found
    if candidate.value is None:
        place = features.place_of(file, candidate)
        return said(ls, f"{place}: {candidate.text}: {candidate.refusal}", ok=False)
    ls.session.kept.put(kept.CANDIDATE, key)
    ls.dials.changed()
    return file, candidate


async def set_batch(ls: Server, file: File, candidate: Candidate, batch: int) -> Answer:
    """Put a number in the place of a batch size, in one step of undo."""
    place = features.place_of(file, candidate)
    if candidate.value == batch:
        return said(ls, f"{place}: it is {batch} already", ok=True)
    if not file.is_current:
        return said(ls, f"{place}: the text changed meanwhile; try again", ok=False)
    edit = features.edit_of(file, candidate, batch, versioned=ls.takes_versions)
    result = await ls.workspace_apply_edit_async(
        lsp.ApplyWorkspaceEditParams(edit, f"batch size {candidate.text} → {batch}")
    )
    if not result.applied:
        reason = result.failure_reason or "the editor refused it"
        return said(ls, f"{place}: not changed: {reason}", ok=False)
    return {"ok": True, "text": f"{place}: {candidate.text} → {batch}", "uri": file.document.uri}
