"""An editor for tests: starts the server, keeps its own text, and applies edits by itself."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lsprotocol import converters
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

from pyprof2.lsp.app import CHANGED
from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

PROFILES: Final = sorted(path.stem for path in Path(__file__).parent.glob("editors/*.json"))
"""Editors whose `initialize` was recorded: `python -m tests.lsp.record_editor`."""
_WIDTH: Final = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
_PATIENCE: Final = 60.0


class Editor:
    """An editor with one file open.

    Attributes:
        encoding: what was agreed upon.
        text, version: of the file.
        answers: to questions of the server, by what they contain.
        asked: the questions.
        said: the messages.
        edits: what the server wanted to change.
        refreshed: how often it was told to ask anew, by what.
        changed: how often it was told that its panel is, at which versions of the file.
        diagnostics: the last ones of each file.
        progress: titles and texts of progress.
        refuses: whether it refuses edits.
        tells: whether it says what an edit of the server changed, before it answers.
        answer: what will have the answer of a command that was begun.
    """

    def __init__(
        self, profile: str, root: Path, state: Path, through: Sequence[str] = (), **options: Any
    ) -> None:
        """Start the server, perhaps through another command, as ssh is one."""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.answers: dict[str, str] = {}
        self.asked: list[str] = []
        self.said: list[str] = []
        self.edits: list[lsp.WorkspaceEdit] = []
        self.refreshed: list[str] = []
        self.changed: list[int] = []
        self.diagnostics: dict[str, list[lsp.Diagnostic]] = {}
        self.progress: list[str] = []
        self.uri, self.text, self.version = "", "", 0
        self.refuses = self.tells = False
        self.answer: Any = None
        self._client = LanguageClient("tests", "1")
        self._listen()
        known = json.loads((Path(__file__).parent / f"editors/{profile}.json").read_text())
        self.profile = known
        self.pid = self.call(self._start(root, state, known, through, options))

    async def _start(
        self, root: Path, state: Path, known: Any, through: Sequence[str], options: Any
    ) -> int:
        environment = os.environ | {"XDG_STATE_HOME": str(state), "PYTHONPATH": str(ROOT)}
        command = [*through, sys.executable, "-P", "-m", "pyprof2", "lsp"]
        await self._client.start_io(*command, env=environment, cwd=str(root))
        converter = converters.get_converter()
        folders = [lsp.WorkspaceFolder(root.as_uri(), root.name)]
        is_bare = known["clientInfo"]["name"] == "helix"  # outside of a repository
        result = await self._client.initialize_async(
            lsp.InitializeParams(
                capabilities=converter.structure(known["capabilities"], lsp.ClientCapabilities),
                client_info=converter.structure(known["clientInfo"], lsp.ClientInfo),
                root_path=str(root) if is_bare else None,
                root_uri=None if is_bare else root.as_uri(),
                workspace_folders=[] if is_bare else folders, initialization_options=options,
            )
        )  # fmt: skip
        encoding = result.capabilities.position_encoding
        self.encoding = str(getattr(encoding, "value", encoding))
        self.capabilities = result.capabilities
        self._client.initialized(lsp.InitializedParams())
        process = self._client._server
        assert process is not None
        return process.pid

    def _listen(self) -> None:
        handlers: dict[str, Callable[..., Any]] = {
            lsp.WORKSPACE_APPLY_EDIT: lambda p: self._asked_to_apply(p.edit),
            lsp.WINDOW_SHOW_MESSAGE_REQUEST: lambda p: self._asked_to_choose(p),  # noqa: PLW0108 - pygls marks it
            lsp.WINDOW_SHOW_MESSAGE: lambda p: self.said.append(p.message),
            lsp.WINDOW_SHOW_DOCUMENT: lambda _: lsp.ShowDocumentResult(success=True),
            lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS: lambda p: self._published(p),  # noqa: PLW0108
            lsp.WINDOW_WORK_DONE_PROGRESS_CREATE: lambda _: None,
            lsp.PROGRESS: lambda p: self.progress.append(
                p.value.get("title") or p.value["message"]
            ),
            lsp.CLIENT_REGISTER_CAPABILITY: lambda _: None,
            lsp.WORKSPACE_INLAY_HINT_REFRESH: lambda *_: self.refreshed.append("hints"),
            lsp.WORKSPACE_CODE_LENS_REFRESH: lambda *_: self.refreshed.append("lenses"),
            CHANGED: lambda *_: self.changed.append(self.version),
        }
        for name, handler in handlers.items():
            self._client.feature(name)(handler)

    def _asked_to_choose(self, params: lsp.ShowMessageRequestParams) -> Any:
        self.asked.append(params.message)
        titles = [item.title for item in params.actions or []]
        wanted = next((a for word, a in self.answers.items() if word in params.message), None)
        title = next((each for each in titles if wanted and wanted in each), None)
        return lsp.MessageActionItem(title) if title else None

    def _published(self, params: lsp.PublishDiagnosticsParams) -> None:
        self.diagnostics[params.uri] = list(params.diagnostics)

    # -- the text --------------------------------------------------------------------------------

    def open(self, path: Path, text: str | None = None) -> None:
        """Open a file, or other text in its place."""
        self.uri, self.version = path.as_uri(), 1
        self.text = path.read_bytes().decode() if text is None else text
        language = "yaml" if path.suffix == ".yaml" else "python"
        item = lsp.TextDocumentItem(self.uri, language, self.version, self.text)
        self.tell(self._client.text_document_did_open, lsp.DidOpenTextDocumentParams(item))

    def close(self) -> None:
        """Close the file, and forget what was asked and said."""
        document = lsp.TextDocumentIdentifier(self.uri)
        self.tell(self._client.text_document_did_close, lsp.DidCloseTextDocumentParams(document))
        self.asked, self.said, self.edits, self.answers = [], [], [], {}

    def replace(self, old: str, new: str) -> None:
        """Replace the first place of a text, as an editor sends it: by its range."""
        start = self.text.index(old)
        first, last = self.position(start), self.position(start + len(old))
        self.text = self.text.replace(old, new, 1)
        self.version += 1
        change = lsp.TextDocumentContentChangePartial(lsp.Range(first, last), new)
        document = lsp.VersionedTextDocumentIdentifier(uri=self.uri, version=self.version)
        params = lsp.DidChangeTextDocumentParams(document, [change])
        self.tell(self._client.text_document_did_change, params)

    def position(self, index: int) -> lsp.Position:
        """Return a place as this editor counts, from the bytes of its encoding."""
        before = self.text[:index].replace("\r\n", "\n").replace("\r", "\n")
        codec, width = _WIDTH[self.encoding]
        line = before.rpartition("\n")[2]
        return lsp.Position(before.count("\n"), len(line.encode(codec)) // width)

    def part(self, where: lsp.Range) -> tuple[int, int]:
        """Return the characters of a range: the only ones whose positions are its ends."""
        places = [self.position(at) for at in range(len(self.text) + 1)]
        return places.index(where.start), places.index(where.end)

    def _asked_to_apply(self, edit: lsp.WorkspaceEdit) -> lsp.ApplyWorkspaceEditResult:
        self.edits.append(edit)
        if self.refuses:
            return lsp.ApplyWorkspaceEditResult(applied=False, failure_reason="text changed")
        applied = self.apply(edit)
        if applied and self.tells:
            whole = lsp.TextDocumentContentChangeWholeDocument(self.text)
            document = lsp.VersionedTextDocumentIdentifier(uri=self.uri, version=self.version)
            params = lsp.DidChangeTextDocumentParams(document, [whole])
            self._client.text_document_did_change(params)
        return lsp.ApplyWorkspaceEditResult(applied=applied)

    def apply(self, edit: lsp.WorkspaceEdit) -> bool:
        """Apply an edit as one change; an edit of another version is refused."""
        changes = edit.changes or {}
        for change in edit.document_changes or []:
            assert isinstance(change, lsp.TextDocumentEdit)
            if change.text_document.version not in (None, self.version):
                return False
            changes = {change.text_document.uri: change.edits}  # type: ignore[dict-item]
        (new,) = changes[self.uri]
        start, stop = self.part(new.range)
        self.text = self.text[:start] + new.new_text + self.text[stop:]
        self.version += 1
        return True

    def save(self, path: Path) -> None:
        """Write the file, and say so."""
        path.write_bytes(self.text.encode())
        document = lsp.TextDocumentIdentifier(self.uri)
        self.tell(self._client.text_document_did_save, lsp.DidSaveTextDocumentParams(document))

    # -- messages --------------------------------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, Any], patience: float = _PATIENCE) -> Any:
        """Return what a message is answered."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(patience)

    def tell(self, notify: Callable[[Any], None], params: Any) -> None:
        """Send a notification."""

        async def send() -> None:
            notify(params)

        self.call(send())

    def hints(self, first: int = 0, last: int = 100_000) -> list[tuple[int, str]]:
        """Return line, from 1, and text of the hints; each is at the end of its line."""
        where = lsp.Range(lsp.Position(first, 0), lsp.Position(last, 0))
        params = lsp.InlayHintParams(lsp.TextDocumentIdentifier(self.uri), where)
        return [(h.position.line + 1, str(h.label)) for h in self.raw_hints(params)]

    def raw_hints(self, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        """Return the hints as they come."""
        found: list[lsp.InlayHint] = self.call(self._client.text_document_inlay_hint_async(params))
        return found

    def lenses(self) -> list[tuple[int, str]]:
        """Return line, from 1, and text of the lenses."""
        params = lsp.CodeLensParams(lsp.TextDocumentIdentifier(self.uri))
        found = self.call(self._client.text_document_code_lens_async(params))
        return [(each.range.start.line + 1, each.command.title) for each in found]

    def hover(self, line: int) -> str:
        """Return what is said of a line, from 1."""
        place = lsp.Position(line - 1, 0)
        params = lsp.HoverParams(lsp.TextDocumentIdentifier(self.uri), place)
        found = self.call(self._client.text_document_hover_async(params))
        return "" if found is None else str(found.contents.value)

    def actions(self, line: int) -> list[lsp.CodeAction]:
        """Return the code actions of a line, from 1."""
        where = lsp.Range(lsp.Position(line - 1, 0), lsp.Position(line - 1, 0))
        document = lsp.TextDocumentIdentifier(self.uri)
        params = lsp.CodeActionParams(document, where, lsp.CodeActionContext([]))
        found: list[lsp.CodeAction] = self.call(
            self._client.text_document_code_action_async(params)
        )
        return found

    def ask(self, name: str, params: Any) -> Any:
        """Return the answer of any other request, by the name of the client's method."""
        return self.call(getattr(self._client, name)(params))

    def run(self, command: str, *arguments: Any) -> dict[str, Any]:
        """Return what a command answers."""
        params = lsp.ExecuteCommandParams(f"pyprof2.{command}", list(arguments))
        found: dict[str, Any] = self.call(self._client.workspace_execute_command_async(params))
        return found

    def begin(self, command: str, *arguments: Any) -> Any:
        """Run a command and return at once what will have its answer."""
        params = lsp.ExecuteCommandParams(f"pyprof2.{command}", list(arguments))
        work = self._client.workspace_execute_command_async(params)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def cancel_progress(self) -> None:
        """Cancel what is in progress."""
        params = lsp.WorkDoneProgressCancelParams("pyprof2.profile")
        self.tell(self._client.window_work_done_progress_cancel, params)

    def wait(self, found: Callable[[], Any], patience: float = _PATIENCE) -> Any:
        """Return what is found as soon as it is something."""
        end = time.monotonic() + patience
        while not (result := found()):
            assert time.monotonic() < end, f"not within {patience} s"
            time.sleep(0.05)
        return result

    def shut(self) -> None:
        """Say goodbye, and see that the server goes."""
        self.call(self._client.shutdown_async(None))
        self.tell(self._client.exit, None)
        self.wait(lambda: not is_alive(self.pid), 15)
        self.end()

    def hang_up(self) -> None:
        """Close the server's stdin and say nothing."""
        process = self._client._server
        assert process is not None
        assert process.stdin is not None
        self._loop.call_soon_threadsafe(process.stdin.close)

    def end(self) -> None:
        """Stop the client."""
        self._loop.call_soon_threadsafe(self._loop.stop)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes_of(word: str) -> list[int]:
    """Return the processes that have a word among their arguments or in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and is_alive(int(folder.name)):
            try:
                texts = [(folder / name).read_bytes() for name in ("cmdline", "environ")]
            except OSError:
                continue
            if any(word.encode() in text for text in texts):
                found.append(int(folder.name))
    return found
