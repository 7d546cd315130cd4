"""The server: its messages and commands; `pyprof2 lsp` runs it."""

from __future__ import annotations

import os
import sys

from lsprotocol import types as lsp

from pyprof2.lsp.app import Server
from pyprof2.lsp.commands import COMMANDS
from pyprof2.lsp.dials import DIALS_COMMANDS, Dials
from pyprof2.lsp.messages import HANDLERS
from pyprof2.lsp.recording_commands import RECORDING_COMMANDS


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
