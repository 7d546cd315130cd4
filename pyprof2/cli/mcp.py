"""`pyprof2 mcp`: what agents ask, over stdin and stdout."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments
from pyprof2.errors import refuse, refuse_without

if TYPE_CHECKING:
    import argparse


_NEEDED: Final = ("mcp", "duckdb")
_SKILL: Final = Path(__file__).resolve().parent.parent / "data" / "SKILL.md"
_EXAMPLES: Final = """examples:
  pyprof2 mcp ~/traces     what an agent's configuration names as the command
  pyprof2 mcp --skill      how an agent is to use it, as a skill to give to it"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "mcp",
        help="answer agents: why is it slow, with the evidence",
        description="Answer agents over stdin and stdout, as the Model Context Protocol says: six "
        "tools that read recordings in the folders that are named, and nothing else. Nothing is "
        "written but temporary stores. An agent's program starts it; see the page on agents.",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "folders", type=Path, nargs="*", metavar="DIR", help="folders whose recordings may be read"
    )
    arguments.flags(command, skill="print how to use the tools, for an agent to read")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Serve until the agent goes."""
    skill = _SKILL.read_text(encoding="utf-8")
    if args.skill:
        sys.stdout.write(skill)
        return
    if not args.folders:
        refuse("name the folders whose recordings may be read, as 'pyprof2 mcp traces'")
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        refuse_without("the server for agents", *_NEEDED)
    from pyprof2.agents.folders import Folders
    from pyprof2.agents.server import serve

    serve(Folders.of(args.folders), skill)
