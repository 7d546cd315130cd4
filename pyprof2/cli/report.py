"""`pyprof2 report`: one HTML file with all that the other commands print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2 import __version__
from pyprof2.cli import arguments
from pyprof2.parsers.formats import stem_of
from pyprof2.reports import files
from pyprof2.reports.cells import clean
from pyprof2.store.places import STDIN, folder_of, name_of, place

if TYPE_CHECKING:
    import argparse

_STORE: str = ".pyprof2"

_EXAMPLES: Final = """examples:
  pyprof2 report net.pyprof2                       writes net.html
  pyprof2 report net.pyprof2 --source-root ~/net   with its lines of code
  pyprof2 report after.pyprof2 --against before.pyprof2 -o change.html"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "report",
        help="write a page to look at, in one HTML file",
        description="Write a page to look at: steps, findings, tables of ops, kernels, layers and "
        "lines, the roofline, idle time, memory. One HTML file that loads nothing. Prints its "
        "path.",
        epilog=_EXAMPLES,
    )
    arguments.add(command, "input")
    words = "where to write; -: to stdout (default: <stem>.html beside the store or trace)"
    arguments.add(command, "output", type=place, help=words)
    command.add_argument(
        "--against",
        type=place,
        metavar="STORE|TRACE",
        help="show too what made the steps slower or faster than those of this one",
    )
    arguments.add(command, "span")
    arguments.flags(command, no_source="put no source code into the file")
    words = (
        "your own code is below DIR: its lines are named, and the files that they are of are put "
        "into the file; without it none is"
    )
    arguments.add(command, "source-root", help=words)
    command.add_argument(
        "--model",
        type=Path,
        metavar="CONFIG",
        help="of an inference server the model's config.json of Hugging Face: what its phases and "
        "layers could do at most",
    )
    arguments.counts(command, tp="with --model: how many ranks share it")
    arguments.add(command, "force")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the page of `args.input`, and print where it is."""
    output = args.output or default_output(args.input)
    output = None if output == STDIN else output
    files.check_free(output, force=args.force)
    root = args.source_root
    words = f"--source-root {root}: no such folder; name the one with your code"
    arguments.refuse({words: root is not None and not root.is_dir()})
    from pyprof2.reports.page import html
    from pyprof2.reports.page.document import ReportQuery, packed_document

    query = ReportQuery(
        args.input,
        __version__,
        args.against,
        None if args.no_source else root,
        args.model,
        args.tp,
    )
    files.write_parts(html.page(packed_document(arguments.loaded(args), query)), output)
    if output is not None:
        print(clean(str(output)))


def default_output(path: Path) -> Path:
    """Return `<stem>.html` beside a store or trace; of `net.json.gz` the stem is `net`."""
    name = name_of(path)
    stem = name.removesuffix(_STORE) if name.endswith(_STORE) else stem_of(name)
    return folder_of(path) / f"{stem or name}.html"
