"""`pyprof2 sql`: any question to the tables of a store, in SQL."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import pyarrow as pa

    from pyprof2.reports.files import Target

_EXAMPLES: Final = """examples:
  pyprof2 sql net.pyprof2                    the tables, and what a row of each is
  pyprof2 sql net.pyprof2 "DESCRIBE work"    the columns of one
  pyprof2 sql net.pyprof2 "SELECT op, sum(flops) FROM work GROUP BY op ORDER BY 2 DESC"
  pyprof2 sql net.pyprof2 "SELECT * FROM steps" -o steps.csv"""
_ROWS_SHOWN: Final = 100
"""The widest table has over 70 columns, which `DESCRIBE` lists."""
_NAMES: Final = "SELECT table_name AS name FROM information_schema.tables ORDER BY ALL"


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "sql",
        help="ask the tables in SQL",
        description="Answer one SELECT in DuckDB's SQL over the tables of a store. It can read "
        "these tables and nothing else, and change nothing. Needs the extra [sql].",
        epilog=_EXAMPLES,
    )
    arguments.add(command, "input")
    command.add_argument("query", nargs="?", metavar="SELECT", help="default: list the tables")
    command.add_argument(
        "--seconds",
        type=partial(arguments.not_negative, what="a number of seconds"),
        metavar="N",
        help="end the query after so long; default: 60",
    )
    arguments.add(command, f"top format {arguments.OUTPUT}")
    command.set_defaults(run=run, source_root=None)


def run(args: argparse.Namespace) -> None:
    """Write the rows of `args.query`, or the tables that there are."""
    target = arguments.target_of(args)
    from pyprof2.store.folder import STORED
    from pyprof2.store.queries import SECONDS, VIEWS, query

    run = arguments.loaded(args)
    most = _ROWS_SHOWN if args.top is None and target.is_text and args.query else args.top
    seconds = SECONDS if args.seconds is None else args.seconds
    found = query(run.path, args.query or _NAMES, seconds=seconds, rows=most)
    table = found.table
    if not args.query:
        known = STORED | {name: view.table for name, view in VIEWS.items()}
        meanings = [known[name].meaning for name in table["name"].to_pylist()]
        table = table.append_column("meaning", [meanings])
    if not target.is_text:
        target.write_table(table)
        return
    target.write_lines(_lines(table, target, more=found.more and args.top is None))


def _lines(table: pa.Table, target: Target, *, more: bool) -> Iterator[str]:
    """Give the lines of a table, and of what is left out."""
    import pyarrow as pa

    from pyprof2.reports import cells
    from pyprof2.reports.table import drawn

    rows = {
        name: cells.Listing(column.to_pylist(), is_text=pa.types.is_string(column.type))
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    yield from drawn(rows, target).lines
    if more:
        yield f"the first {len(table)} rows; more with --top N, all with -o FILE.csv"
