"""`pyprof2 lsp`: the server of an editor, over stdin and stdout."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from pyprof2.cli import arguments
from pyprof2.errors import refuse_without

if TYPE_CHECKING:
    import argparse


_NEEDED = ("pygls", "yaml")


def add_to(commands: arguments.Commands) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "lsp",
        help="serve an editor: costs beside the lines, the batch size in the code",
        description="Serve an editor over stdin and stdout, as the Language Server Protocol says: "
        "what the newest recording of the workspace says of its lines, and the batch size in the "
        "code. An editor starts it; see the page on editors for how. Nothing of the workspace "
        "runs before you allow it.",
    )
    # Editors' clients add it to the command.
    arguments.flags(command, stdio="the default, and all there is")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Serve until the editor goes."""
    del args
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        refuse_without("the editor's server", "pygls", "PyYAML")
    from pyprof2.lsp.server import run as serve

    serve()
