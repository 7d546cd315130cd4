"""The page with the dials in an editor: its questions, and its edits of the code.

The messages are in `docs/editors.rst`, "For panels of editors". They come through the server on
loopback, or from a panel of the editor, and are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types as lsp

from pyprof2.lsp import commands, features, kept
from pyprof2.lsp.app import Answer, Server, answers
from pyprof2.lsp.batch_size import refusal_of
from pyprof2.lsp.commands import said
from pyprof2.lsp.loopback import Loopback
from pyprof2.lsp.recording_commands import record_sizes
from pyprof2.lsp.worker import Worker, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyprof2.lsp.batch_size import Candidate
    from pyprof2.lsp.files import File

    Place = tuple[File, Candidate, list[Any]]

FEWEST: Final = 3
_LONGEST_WAIT: Final = 20.0
"""Seconds until an answer to who waits for a change, though there is none."""
_PATIENCE: Final = 600.0
"""Seconds that an answer may take: recordings are read for it."""
_SETTLES: Final = 3.0
"""Seconds in which an editor says that it made an edit."""


class Dials:
    """The state of one editor's dials.

    Attributes:
        number: of the state; each change makes another one.
    """

    def __init__(self, ls: Server) -> None:
        self._ls = ls
        self._worker = Worker()
        self._loopback: Loopback | None = None
        self._change = asyncio.Event()
        self._read: tuple[Any, dict[str, Any]] | None = None
        self._dialled: set[tuple[str, str, int]] = set()
        self.number = 1

    def close(self) -> None:
        """Listen no more, and end what was started."""
        if self._loopback is not None:
            self._loopback.close()
        self._worker.close()

    def changed(self) -> None:
        """Wake who waits: the code or the recording is another one."""
        self.number += 1
        self._change.set()
        self._change = asyncio.Event()

    def serve(self) -> str:
        """Begin to listen, once, and return the address to open."""
        from pyprof2.reports.dials import SERVED
        from pyprof2.reports.page.html import page

        if self._loopback is None:
            loop = asyncio.get_running_loop()

            def ask(message: dict[str, Any]) -> Answer:
                answer = asyncio.run_coroutine_threadsafe(self.ask(message), loop)
                return answer.result(_PATIENCE)

            self._loopback = Loopback("".join(page("", SERVED)), SERVED.policy, ask)
        return self._loopback.address

    def lacks(self) -> str:
        """Say why there is no model; empty: there may be one."""
        known = self._ls.session.by_batch()
        if len(known) >= FEWEST:
            return ""
        sizes = ", ".join(map(str, sorted(known))) or "none"
        return (
            f"the dials need recordings at {FEWEST} or more batch sizes; known: {sizes}. Record "
            'others with pyprof2.profile, or name them: setting batches, {"8": "b8.pyprof2", …}'
        )

    async def ask(self, message: Any) -> Answer:
        """Return the answer to a message."""
        tasks: dict[str, Callable[[dict[str, Any]], Coroutine[Any, Any, Answer]]] = {
            "document": self._document, "state": self._state, "choose": self._choose,
            "set": self._set, "show": self._show,
        }  # fmt: skip
        name = message.get("ask") if isinstance(message, dict) else None
        if not isinstance(name, str) or name not in tasks:
            return _refused(f"no such message: {message!r}"[:200])
        return await tasks[name](message)

    # -- the model -------------------------------------------------------------------------------

    async def _document(self, _message: dict[str, Any]) -> Answer:
        """Read the recordings, if they are others than before."""
        if why := self.lacks():
            return _refused(why)
        await commands.analyse_all(self._ls)
        recordings = {str(size): path for size, path in self._ls.session.by_batch().items()}
        values = [place[1].value for place in commands.places(self._ls) if place[1].value]
        asked = {"recordings": recordings, "sizes": sorted(set(values))}
        key = [asked, [_written_at(path) for path in recordings.values()]]
        if self._read is None or self._read[0] != key:
            try:
                self._read = key, await self._worker.ask("dials", **asked)
            except WorkerError as error:
                return _refused(str(error))
        return {"ok": True, "text": "", "document": self._read[1]}

    # -- the code --------------------------------------------------------------------------------

    async def _state(self, message: dict[str, Any]) -> Answer:
        if message.get("seen") == self.number:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._change.wait(), _LONGEST_WAIT)
        await commands.analyse_all(self._ls)
        return {"ok": True, "text": "", "state": self.number, "code": self._code()}

    def _code(self) -> dict[str, Any]:
        """Return where the batch size stands, and whether it may be dialled."""
        found = list(commands.places(self._ls))
        chosen = self._chosen(found)
        places = [
            {
                "key": key, "place": features.place_of(file, candidate), "name": candidate.name,
                "text": candidate.text, "value": candidate.value,
                "refusal": self._refusal(candidate, key),
            }
            for file, candidate, key in found
        ]  # fmt: skip
        why = refusal_of(places, chosen, "the open files")
        return {"places": places, "chosen": chosen, "refusal": why}

    def _chosen(self, found: list[Place]) -> int | None:
        """Return which place is the batch size: the one that was chosen, or the only one."""
        wanted = self._ls.session.kept.get(kept.CANDIDATE)
        for at, (_, _, key) in enumerate(found):
            if key == wanted:
                return at
        free = [at for at, (_, candidate, _) in enumerate(found) if candidate.value is not None]
        return free[0] if len(free) == 1 else None

    def _refusal(self, candidate: Candidate, key: list[Any]) -> str:
        """Say why a place may not be dialled; empty: it may.

        Its number must be that of the recording that is shown, or what a dial made of it since.
        """
        session = self._ls.session
        if candidate.value is None:
            return candidate.refusal
        if session.costs is None:
            return "no recording is shown"
        path = session.costs["path"]
        if (path, json.dumps(key), candidate.value) in self._dialled:
            return ""
        name, (batch, _) = Path(path).name, session.batch()
        if batch is None:
            return f"the batch size of the recording that is shown, {name}, is not known"
        if batch != candidate.value:
            return (
                f"it is {candidate.value}, and the recording that is shown, {name}, has a batch of "
                f"{batch}: it was changed since, or something else says it when the program runs"
            )
        return ""

    def _at(self, message: dict[str, Any]) -> Place | None:
        return next((p for p in commands.places(self._ls) if p[2] == message.get("key")), None)

    async def _choose(self, message: dict[str, Any]) -> Answer:
        await commands.analyse_all(self._ls)
        found = self._at(message)
        if found is None:
            return _refused(_GONE)
        file, candidate, key = found
        place = features.place_of(file, candidate)
        if candidate.value is None:
            return _refused(f"{place}: {candidate.text}: {candidate.refusal}")
        self._ls.session.kept.put(kept.CANDIDATE, key)
        self.changed()
        return {"ok": True, "text": f"the batch size is {place}"}

    async def _set(self, message: dict[str, Any]) -> Answer:
        """Put a number in the place of the one that the page has seen there."""
        await commands.analyse_all(self._ls)
        wanted = message.get("to")
        if not commands.is_batch(wanted):
            return _refused(f"{wanted!r} is no batch size of 1 or more")
        found = list(commands.places(self._ls))
        at = self._chosen(found)
        if at is None or found[at][2] != message.get("key"):
            return _refused(_GONE)
        file, candidate, key = found[at]
        place = features.place_of(file, candidate)
        if candidate.value != message.get("from"):
            return _refused(f"{place}: it is {candidate.text} now, not {message.get('from')}")
        if why := self._refusal(candidate, key):
            return _refused(f"{place}: {why}")
        before, costs = file.document.text, self._ls.session.costs
        answer = await commands.set_batch(self._ls, file, candidate, wanted)
        if not answer["ok"] or costs is None:
            return answer
        self._dialled.add((costs["path"], json.dumps(key), wanted))
        # An editor may answer before it says what changed.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLES):
                while file.document.text is before:
                    await self._change.wait()
        return {"ok": True, "text": answer["text"]}

    async def _show(self, message: dict[str, Any]) -> Answer:
        await commands.analyse_all(self._ls)
        found = self._at(message)
        if found is None or found[0].path is None:
            return _refused(_GONE)
        answer = await commands.show_line(self._ls, found[0].path, found[1].line)
        return {"ok": bool(answer["ok"]), "text": str(answer["text"])}


_GONE: Final = "the batch size is not there any more, or another place was chosen"


def _refused(text: str) -> Answer:
    return {"ok": False, "text": text}


def _written_at(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0


# -- commands: the page in a browser, and for panels of editors ------------------------------------


DIALS_COMMANDS: Final[dict[str, Callable[..., Any]]] = {}


@answers(DIALS_COMMANDS, "pyprof2.dials")
async def _open(ls: Server, *given: Any) -> Answer:
    """Open the page in a browser, unless `{"open": false}` is given.

    What the dials need of an entry point is recorded first, if that is allowed.
    """
    if why := await record_sizes(ls):
        return said(ls, why, ok=False)
    try:
        address = ls.dials.serve()
    except OSError as error:
        return said(ls, f"cannot listen on 127.0.0.1: {error.strerror}", ok=False)
    wanted = given[0] if given and isinstance(given[0], dict) else {}
    if wanted.get("open", True) and not await _shown(ls, address):
        # Only the user sees it: the word in it is theirs.
        ls.show(f"open {address}")
    return {"ok": True, "text": "", "url": address}


async def _shown(ls: Server, address: str) -> bool:
    """Ask the editor to open a browser, and return whether it did."""
    window = ls.client_capabilities.window
    if window is None or window.show_document is None or not window.show_document.support:
        return False
    found = await ls.window_show_document_async(lsp.ShowDocumentParams(address, external=True))
    return found.success


@answers(DIALS_COMMANDS, "pyprof2.dialsPage")
async def _page(ls: Server, *_: Any) -> Answer:
    from pyprof2.reports.dials import PROGRAM
    from pyprof2.reports.page.html import page

    why = await record_sizes(ls)
    return {"ok": not why, "text": why} | ({} if why else {"html": "".join(page("", PROGRAM))})


@answers(DIALS_COMMANDS, "pyprof2.dialsAsk")
async def _ask(ls: Server, *given: Any) -> Answer:
    return await ls.dials.ask(given[0] if given else None)
