"""The server of one editor: its state, and messages to the editor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path

from pyprof2 import __version__
from pyprof2.lsp import features
from pyprof2.lsp.profiling import Profiling
from pyprof2.lsp.session import Session
from pyprof2.reports.cells import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyprof2.lsp.files import File
    from pyprof2.lsp.profiling import Failure

Answer = dict[str, Any]
"""The answer of a command to a panel."""

Handler = TypeVar("Handler", bound="Callable[..., Any]")

CHANGED: Final = "pyprof2/changed"
"""Sent to an editor with a panel when the panel may be out of date."""


def answers(table: dict[str, Callable[..., Any]], name: str) -> Callable[[Handler], Handler]:
    """Enter the function below in a table, as the one for a message or a command."""

    def enter(handler: Handler) -> Handler:
        table[name] = handler
        return handler

    return enter


class DialsPage(Protocol):
    """The page with the dials, as commands use it: `pyprof2.lsp.dials.Dials`."""

    def changed(self) -> None:
        """Wake waiting pages: the code or the recording changed."""

    def serve(self) -> str:
        """Begin to listen, once, and return the address to open."""

    def lacks(self) -> str:
        """Return why there is no model; empty: there may be one."""

    async def ask(self, message: Any) -> Answer:
        """Return the answer to a message."""


class Server(LanguageServer):
    """A server for one editor.

    Attributes:
        session: settings, recordings and open files.
        profiling: the recording that it makes.
        failure: why the last one failed.
        has_panel: whether the editor asked for the breakdown, and shows it.
        dials: the page with the dials.
    """

    dials: DialsPage

    def __init__(self) -> None:
        super().__init__("pyprof2", __version__)
        self.session = Session(self.refresh)
        self.profiling = Profiling()
        self.failure: Failure | None = None
        self.has_panel = False
        self.ending: list[Callable[[], None]] = [self.session.close, self.profiling.cancel]
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_reporting = False

    @property
    def capabilities(self) -> lsp.WorkspaceClientCapabilities:
        """The editor's capabilities for a workspace."""
        return self.client_capabilities.workspace or lsp.WorkspaceClientCapabilities()

    @property
    def takes_versions(self) -> bool:
        """Whether the editor takes edits of one version; Neovim does, and does not say so."""
        edit = self.capabilities.workspace_edit
        return bool(edit and edit.document_changes) or self.client_name == "Neovim"

    client_name = ""

    def file(self, uri: str) -> File | None:
        """Return an open file."""
        return self.session.files.get(uri)

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something beside the messages."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.show(f"{type(error).__name__}: {error}", lsp.MessageType.Error)

    def show(self, text: str, kind: lsp.MessageType = lsp.MessageType.Info) -> None:
        """Show a message."""
        self.window_show_message(lsp.ShowMessageParams(kind, f"pyprof2: {clean(text)}"))

    async def choose(self, text: str, titles: list[str]) -> str | None:
        """Ask, and return which title was chosen; None: none."""
        found = await self.window_show_message_request_async(
            lsp.ShowMessageRequestParams(
                lsp.MessageType.Info,
                f"pyprof2: {clean(text)}",
                [lsp.MessageActionItem(clean(title)) for title in titles],
            )
        )
        return next((title for title in titles if found and clean(title) == found.title), None)

    async def refresh(self) -> None:
        """Have the editor ask anew, where it can be asked to, and send findings."""
        self.dials.changed()
        hint, lens = self.capabilities.inlay_hint, self.capabilities.code_lens
        if hint and hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)
        if lens and lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        if self.has_panel:
            self.protocol.notify(CHANGED)
        for uri in list(self.session.files):
            self.publish(uri)

    def publish(self, uri: str) -> None:
        """Send the diagnostics of a file."""
        file = self.file(uri)
        if file is None:
            return
        found = features.diagnostics(self.session, file)
        if self.failure and file.path == self.failure.path:
            line = min(self.failure.line, len(file.document.lines) - 1)
            where = file.document.range_of_line(line)
            severity = lsp.DiagnosticSeverity.Error
            found.append(
                lsp.Diagnostic(where, clean(self.failure.text), severity, source="pyprof2")
            )
        if found or file.has_diagnostics:
            file.has_diagnostics = bool(found)
            version = file.document.version
            self.text_document_publish_diagnostics(
                lsp.PublishDiagnosticsParams(uri, found, version)
            )

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Show an error; one of showing it is not shown.

        pygls shows that too, and so on: where the editor is gone its server would never end.
        """
        if not self._is_reporting:
            self._is_reporting = True
            super().report_server_error(error, source)
            self._is_reporting = False

    def end(self) -> None:
        """End all that was started."""
        for action in self.ending:
            action()


def uri_of(path: str) -> str:
    """Return the URI of a file."""
    return from_fs_path(path) or ""
