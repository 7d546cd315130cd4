"""The state of the server: settings, the recording that is shown, the open files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.lsp import kept, shown
from pyprof2.lsp.files import Document, File, View
from pyprof2.lsp.positions import language_of
from pyprof2.lsp.recordings import CHANGED, MISSING, UNKNOWN, locate
from pyprof2.lsp.settings import Settings
from pyprof2.lsp.worker import Worker, WorkerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from pyprof2.lsp.costs import Costs, FileCosts
    from pyprof2.lsp.recordings import FoundRecording

MAIN, BASELINE, SCOPE = "main", "baseline", "scope"
"""The recording that is shown, the one that it is compared with, and only one module of it."""
_PAUSE: Final = 0.12
"""Seconds without an edit before a file is analysed."""
_MODEL_PROVIDER: Final = re.compile(r"^def (?:skyline|deepview)_model_provider\b", re.MULTILINE)
_LIKELY: Final = 0.2
"""Share of the shapes in forward from which on their first dimension may be the batch."""


class Session:
    """The settings, recordings and files of one editor.

    Attributes:
        settings: of the user.
        roots: folders of the workspace.
        kept: the choices that are remembered of it.
        recordings: `MAIN`, and `BASELINE` and `SCOPE` where there are such.
        scope: the module of `SCOPE`.
        hidden: whether the user has put the numbers away.
        trouble: why there is no recording, or why it is an old one.
        files: the open ones by URI.
    """

    def __init__(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Take the function that has the editor ask anew."""
        self.settings = Settings()
        self.roots: list[str] = []
        self.kept = kept.Choices("")
        self.recordings: dict[str, FoundRecording] = {}
        self.scope = ""
        self.hidden = False
        self.trouble = ""
        self.files: dict[str, File] = {}
        self._changed = changed
        self._reader, self._parser = Worker(), Worker()
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._loading: asyncio.Task[None] | None = None

    def open_workspace(self, roots: Sequence[str]) -> None:
        """Take the folders of the workspace."""
        self.roots = [os.path.realpath(root) for root in roots]
        self.kept = kept.Choices("\0".join(self.roots))

    def close(self) -> None:
        """End what was started."""
        for task in [*self._waiting.values(), *([self._loading] if self._loading else [])]:
            task.cancel()
        self._reader.close()
        self._parser.close()

    # -- recordings ------------------------------------------------------------------------------

    @property
    def costs(self) -> Costs | None:
        """The costs of the recording that is shown; None: there is none, or it is hidden."""
        found = self.recordings.get(MAIN)
        return None if found is None or self.hidden else found["costs"]

    def load(self) -> asyncio.Task[None]:
        """Begin to look for the recording to show; one search at a time, the last one counts."""
        if self._loading is not None:
            self._loading.cancel()
        self._loading = asyncio.ensure_future(self._load())
        return self._loading

    async def _load(self) -> None:
        where = {"roots": self.roots, "mapped": self.settings.pathMap}
        try:
            if self.settings.recording:
                path = str(Path(self.roots[0] if self.roots else "", self.settings.recording))
                found = await self._reader.ask("read", path=path, **where)
            else:
                more = [str(self.kept.recordings)]
                opened = [file.path for file in self.files.values() if file.path is not None]
                found = await self._reader.ask("newest", more=more, opened=opened, **where)
        except WorkerError as error:
            self.trouble = str(error)
        else:
            self._take(found)
        await self._analyse_all()

    def _take(self, found: FoundRecording) -> None:
        if found["costs"] is None:
            self.trouble = "; ".join(found["passed"]) or "no recording in this workspace"
            self.recordings.pop(MAIN, None)
        else:
            self.trouble = ""
            self.recordings[MAIN] = found

    async def search(self) -> list[str]:
        """Return the recordings of the workspace, the newest first."""
        folders = [*self.roots, str(self.kept.recordings)]
        paths: list[str] = await self._reader.ask("search", roots=folders)
        return paths

    async def add(self, name: str, path: str, within: str | None = None) -> None:
        """Read another recording: `BASELINE`, or `SCOPE` of the one that is shown.

        Raises:
            WorkerError: it cannot be read.
        """
        self.recordings[name] = await self._reader.ask(
            "read", path=path, roots=self.roots, mapped=self.settings.pathMap, within=within
        )
        await self._analyse_all()

    async def drop(self, name: str) -> None:
        """Forget a recording."""
        self.recordings.pop(name, None)
        for file in self.files.values():
            file.drop(name)
        await self._changed()

    def costs_in(self, name: str, path: str | None) -> FileCosts | None:
        """Return the costs of a file here in a recording."""
        found = self.recordings.get(name)
        if found is None or found["costs"] is None or path is None:
            return None
        return next(
            (
                found["costs"]["files"][there]
                for there, here in found["local"].items()
                if os.path.realpath(here) == path
            ),
            None,
        )

    def mismatch(self) -> str:
        """Say which files are not as they were recorded."""
        found = self.recordings.get(MAIN)
        if found is None:
            return ""
        words = {CHANGED: "changed since", MISSING: "not here", UNKNOWN: "of unknown age"}
        parts = []
        for state, word in words.items():
            names = [Path(p).name for p, s in found["states"].items() if s == state]
            if names:
                more = f" and {len(names) - 2} more" if len(names) > 2 else ""
                parts.append(f"{', '.join(sorted(names)[:2])}{more} {word}")
        return "; ".join(parts)

    def batch(self) -> tuple[int | None, str]:
        """Return the recorded batch size, and how it is known.

        An entry point's recording says it, and what the server recorded itself it knows. Else it is
        a number in the code that is also the first dimension of many shapes; where two are, nothing
        is known.
        """
        costs = self.costs
        if costs is None:
            return None, ""
        if costs["entry"] is not None:
            size = costs["entry"]["batch_size"]
            return size, f"batch {size}"
        shown_path = os.path.realpath(costs["path"])
        for size, path in self.by_batch().items():
            if os.path.realpath(path) == shown_path:
                return size, f"batch {size}"
        own = (self.kept.get(kept.BATCHES) or {}).get(costs["path"])
        if isinstance(own, int):
            return own, f"batch {own}"
        likely = {size: share for size, share in costs["leading"] if share >= _LIKELY}
        values = {c.value for file in self.files.values() for c in file.candidates}
        found = [size for size in likely if size in values]
        if len(found) != 1:
            return None, ""
        return found[0], f"batch {found[0]} in {100 * likely[found[0]]:.0f} % of the shapes"

    def by_batch(self) -> dict[int, str]:
        """Return the recordings of known batch sizes: those that are named, else our own.

        Of several of our own with one batch size it is the last; an entry point's that is shown
        comes before them.
        """
        root = self.roots[0] if self.roots else ""
        named = {int(size): str(Path(root, path)) for size, path in self.settings.batches.items()}
        own: dict[str, int] = self.kept.get(kept.BATCHES) or {}
        found = {size: path for path, size in own.items() if Path(path).is_dir()}
        if self.costs is not None and (entry := self.costs["entry"]):
            found[entry["batch_size"]] = self.costs["path"]
        return named or found

    def entry_file(self) -> Path | None:
        """Return the entry point here: that of the recording, else an open file with providers."""
        costs = self.costs
        if costs is not None and (entry := costs["entry"]):
            return locate(entry["file"], costs["root"], self.roots, self.settings.pathMap)
        return next(
            (
                Path(file.path)
                for file in self.files.values()
                if file.path is not None and _MODEL_PROVIDER.search(file.document.source)
            ),
            None,
        )

    # -- files -----------------------------------------------------------------------------------

    def opened(self, document: Document, path: str | None) -> None:
        """Take a file that was opened."""
        place = None if path is None else os.path.realpath(path)
        language = language_of(document.language_id, path)
        self.files[document.uri] = File(document, place, language)
        is_chosen = bool(self.settings.recording)
        if self._loading is not None and not is_chosen and self.costs_in(MAIN, place) is None:
            self.load()  # another recording may have this file
        self._analyse_later(document.uri, 0)

    def edited(self, uri: str) -> None:
        """Analyse an edited file soon; until then its numbers move along."""
        if uri in self.files:
            self._analyse_later(uri, _PAUSE)

    def closed(self, uri: str) -> None:
        """Forget a file."""
        self.files.pop(uri, None)
        if task := self._waiting.pop(uri, None):
            task.cancel()

    def view(self, file: File, name: str = MAIN) -> View:
        """Return the costs of a file, by its current text."""
        return file.view(name)

    async def _analyse_all(self) -> None:
        for uri in list(self.files):
            await self.analyse(uri, force=True)
        await self._changed()

    def _analyse_later(self, uri: str, pause: float) -> None:
        if task := self._waiting.get(uri):
            task.cancel()
        self._waiting[uri] = asyncio.ensure_future(self._after(pause, uri))

    async def _after(self, pause: float, uri: str) -> None:
        async def analyse() -> None:
            await self.analyse(uri)
            await self._changed()

        await asyncio.sleep(pause)
        # From here on an edit starts another, and this one's answer is moved along.
        await asyncio.shield(analyse())

    async def settle(self, uri: str, seconds: float) -> None:
        """Wait until a file is analysed and the recording is read, but not for ever."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end and (file := self.files.get(uri)) is not None:
            is_loaded = self._loading is None or self._loading.done()
            if is_loaded and (file.is_current or file.language != "python"):
                return
            await asyncio.sleep(_PAUSE / 4)

    async def loaded(self, seconds: float) -> None:
        """Wait until the recording is read, the last one that was looked for, but not for ever."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (task := self._loading) and not task.done() and (left := end - loop.time()) > 0:
            await asyncio.wait({task}, timeout=left)

    async def analyse(self, uri: str, *, force: bool = False) -> None:
        """Analyse the current text of a file, if that is not done."""
        file = self.files.get(uri)
        if file is None or file.language not in ("python", "yaml"):
            return
        if file.is_current and not force:
            return
        text = file.document.text
        for name in (MAIN, *(n for n in (BASELINE, SCOPE) if n in self.recordings)):
            arguments = self._arguments(name, file, text.source)
            with contextlib.suppress(WorkerError):
                found = await self._parser.ask("analyse", **arguments)
                file.found(name, found, text)

    def _arguments(self, name: str, file: File, source: str) -> dict[str, Any]:
        recording = self.recordings.get(name)
        before = None
        if recording is not None and file.path is not None:
            known = {os.path.realpath(path): text for path, text in recording["before"].items()}
            before = known.get(file.path)
        return {
            "source": source,
            "language": file.language,
            "costs": self.costs_in(name, file.path),
            "before": before,
            "trusted": before is not None,
        }

    # -- what is shown ---------------------------------------------------------------------------

    def title(self) -> str:
        """Return the text of the lens at the top; empty: none."""
        costs = self.costs
        if costs is not None:
            return shown.recording(costs, self.batch()[1], self.mismatch())
        if self.hidden:
            return "pyprof2: numbers are put away"
        return f"pyprof2: {self.trouble}" if self.trouble else ""

    def locations(self, layer: str) -> Iterator[tuple[str, int]]:
        """Yield file and line, from 0, of a layer's own work: where it is now, if that is open."""
        found = self.recordings.get(MAIN)
        if found is None or found["costs"] is None:
            return
        path, _, line = found["costs"]["layers"].get(layer, "").rpartition(":")
        here = found["local"].get(path)
        if here is None:
            return
        recorded = int(line) - 1
        for file in self.files.values():
            if file.path == os.path.realpath(here):
                lines = self.view(file).lines
                yield from ((here, each["now"]) for each in lines if each["recorded"] == recorded)
                return
        if found["states"][path] not in (CHANGED, MISSING):
            yield here, recorded
