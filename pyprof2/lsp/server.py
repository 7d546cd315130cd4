"""The server: its messages and commands; `pyprof2 lsp` runs it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types as lsp
from pygls.uris import to_fs_path

from pyprof2.lsp import breakdown, features
from pyprof2.lsp.app import Server, answers
from pyprof2.lsp.commands import COMMANDS
from pyprof2.lsp.dials import DIALS_COMMANDS, Dials
from pyprof2.lsp.files import Document
from pyprof2.lsp.recording_commands import RECORDING_COMMANDS, on_save
from pyprof2.lsp.settings import SECTION

if TYPE_CHECKING:
    from collections.abc import Callable


def make_server() -> Server:
    """Return a server that knows its messages."""
    server = Server()
    server.dials = dials = Dials(server)
    server.ending.append(dials.close)
    options = {
        lsp.TEXT_DOCUMENT_CODE_ACTION: lsp.CodeActionOptions([lsp.CodeActionKind.RefactorRewrite]),
        lsp.TEXT_DOCUMENT_INLAY_HINT: lsp.InlayHintOptions(resolve_provider=True),
    }
    for message, handler in HANDLERS.items():
        server.feature(message, options.get(message))(handler)
    for name, command in (COMMANDS | RECORDING_COMMANDS | DIALS_COMMANDS).items():
        server.command(name)(command)
    return server


def run() -> None:
    """Serve the editor at the other end of stdin and stdout, until it goes."""
    # Output of libraries must not stand between messages.
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = make_server()
    try:
        server.start_io(stdout=messages)
    finally:
        server.end()


_PATIENCE: Final = 15.0
"""Seconds that a question may wait for the recording; editors give up after 20 and more."""
# Editors see a folder that is moved into its place, and nothing that is in it.
_WATCHED: Final = (
    "**/*.pyprof2", "**/*.pyprof2/manifest.json", "**/*.json.gz", "**/*.sqlite",
)  # fmt: skip

HANDLERS: Final[dict[str, Callable[..., Any]]] = {}
"""The function for each message."""


# -- beginning and settings ----------------------------------------------------------------------


@answers(HANDLERS, lsp.INITIALIZE)
def _initialize(ls: Server, params: lsp.InitializeParams) -> None:
    ls.client_name = params.client_info.name if params.client_info else ""
    folders = [folder.uri for folder in params.workspace_folders or []]
    uris = folders or [uri for uri in (params.root_uri,) if uri]
    paths = [path for uri in uris if (path := to_fs_path(uri))]
    # Helix has only this one for a folder that is in no repository.
    ls.session.open_workspace(paths or [path for path in (params.root_path,) if path])
    options = params.initialization_options
    _set(ls, options if isinstance(options, dict) else {})


@answers(HANDLERS, lsp.INITIALIZED)
def _initialized(ls: Server, _params: lsp.InitializedParams) -> None:
    ls.session.load()
    watched = ls.capabilities.did_change_watched_files
    if watched and watched.dynamic_registration:
        watchers = [lsp.FileSystemWatcher(pattern) for pattern in _WATCHED]
        options = lsp.DidChangeWatchedFilesRegistrationOptions(watchers)
        name = lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES
        registration = lsp.Registration("recordings", name, options)
        ls.client_register_capability(lsp.RegistrationParams([registration]))


@answers(HANDLERS, lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
def _watched(ls: Server, _params: lsp.DidChangeWatchedFilesParams) -> None:
    ls.session.load()


@answers(HANDLERS, lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
def _configured(ls: Server, params: lsp.DidChangeConfigurationParams) -> None:
    given = params.settings if isinstance(params.settings, dict) else {}
    before = ls.session.settings
    _set(ls, given.get(SECTION, given) or {})
    if ls.session.settings != before:
        ls.session.load()


def _set(ls: Server, given: dict[str, Any]) -> None:
    ls.session.settings, wrong = ls.session.settings.changed(given)
    for each in wrong:
        ls.show(f"setting {each}", lsp.MessageType.Warning)


# -- documents -----------------------------------------------------------------------------------


@answers(HANDLERS, lsp.TEXT_DOCUMENT_DID_OPEN)
def _opened(ls: Server, params: lsp.DidOpenTextDocumentParams) -> None:
    encoding = str(getattr(e := ls.workspace.position_encoding, "value", e) or "utf-16")
    document = Document(params.text_document, encoding)
    # In the place of pygls's own, whose lines end elsewhere too.
    for uri, known in ls.workspace.text_documents.items():
        if known.uri == document.uri:
            ls.workspace.text_documents[uri] = document
    ls.session.opened(document, to_fs_path(document.uri))


@answers(HANDLERS, lsp.TEXT_DOCUMENT_DID_CHANGE)
def _changed(ls: Server, params: lsp.DidChangeTextDocumentParams) -> None:
    ls.session.edited(params.text_document.uri)


@answers(HANDLERS, lsp.TEXT_DOCUMENT_DID_CLOSE)
def _closed(ls: Server, params: lsp.DidCloseTextDocumentParams) -> None:
    ls.session.closed(params.text_document.uri)


@answers(HANDLERS, lsp.TEXT_DOCUMENT_DID_SAVE)
def _saved(ls: Server, params: lsp.DidSaveTextDocumentParams) -> None:
    ls.later(on_save(ls, params.text_document.uri))


# -- questions on a file ---------------------------------------------------------------------


@answers(HANDLERS, lsp.TEXT_DOCUMENT_INLAY_HINT)
async def _hints(ls: Server, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    hint = ls.capabilities.inlay_hint
    if not (hint and hint.refresh_support):
        # It cannot be made to ask again, and some do so only after an edit.
        await ls.session.settle(params.text_document.uri, _PATIENCE)
    file = ls.file(params.text_document.uri)
    return [] if file is None else features.hints(ls.session, file, params.range)


@answers(HANDLERS, lsp.INLAY_HINT_RESOLVE)
def _resolve(ls: Server, hint: lsp.InlayHint) -> lsp.InlayHint:
    return features.resolved(ls.session, hint)


@answers(HANDLERS, lsp.TEXT_DOCUMENT_CODE_LENS)
def _lenses(ls: Server, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
    file = ls.file(params.text_document.uri)
    return [] if file is None else features.lenses(ls.session, file)


@answers(HANDLERS, lsp.TEXT_DOCUMENT_HOVER)
def _hover(ls: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    file = ls.file(params.text_document.uri)
    return None if file is None else features.hover(ls.session, file, params.position.line)


@answers(HANDLERS, lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
async def _symbols(ls: Server, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    # Editors keep them until the next edit, and none can be made to ask again.
    await ls.session.settle(params.text_document.uri, _PATIENCE)
    file = ls.file(params.text_document.uri)
    return [] if file is None else features.symbols(ls.session, file)


@answers(HANDLERS, lsp.TEXT_DOCUMENT_CODE_ACTION)
def _actions(ls: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    file = ls.file(params.text_document.uri)
    document = ls.client_capabilities.text_document
    action = document.code_action if document else None
    return [] if file is None else features.actions(
        file,
        params.range,
        versioned=ls.takes_versions,
        shows_refusals=bool(action and action.disabled_support),
    )  # fmt: skip


# -- the tree of calls ---------------------------------------------------------------------------


@answers(HANDLERS, lsp.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY)
def _prepare(ls: Server, params: lsp.CallHierarchyPrepareParams) -> list[lsp.CallHierarchyItem]:
    file = ls.file(params.text_document.uri)
    return [] if file is None else breakdown.items_at(ls.session, file, params.position.line)


@answers(HANDLERS, lsp.CALL_HIERARCHY_OUTGOING_CALLS)
def _outgoing(
    ls: Server, params: lsp.CallHierarchyOutgoingCallsParams
) -> list[lsp.CallHierarchyOutgoingCall]:
    return breakdown.below(ls.session, params.item)


@answers(HANDLERS, lsp.CALL_HIERARCHY_INCOMING_CALLS)
def _incoming(
    ls: Server, params: lsp.CallHierarchyIncomingCallsParams
) -> list[lsp.CallHierarchyIncomingCall]:
    return breakdown.above(ls.session, params.item)


@answers(HANDLERS, lsp.SHUTDOWN)
def _shut_down(ls: Server, *_: Any) -> None:
    """End the running recording and requests.

    Requests are cancelled ahead of pygls, which walks over them while each removes itself.
    """
    ls.profiling.cancel()
    protocol = ls.protocol
    for number, answer in list(protocol._request_futures.items()):  # noqa: SLF001 -- see above
        if number != protocol.msg_id:
            answer.cancel()
