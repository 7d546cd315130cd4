"""`pyprof2 check`: what a recording has and lacks, and how to record what it lacks."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from pyprof2.cli import arguments, output, text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import pandas as pd


def add_to(commands: arguments.Commands, common: argparse.ArgumentParser) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "check",
        parents=[common],
        help="say what a recording has and lacks",
        description="Say what a recording has and lacks, with counts, and for each lack how to "
        "record it next time. The exit code is 0 whatever it finds, 1 if it cannot be read.",
        allow_abbrev=False,
    )
    arguments.add_input(command)
    command.add_argument(
        "--format", choices=("table", "csv", "json"), default="table", help="default: table"
    )
    arguments.add_source_root(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show what `args.input` has and lacks."""
    from pyprof2.run import load

    loaded = load(args.input, source_root=args.source_root, progress=arguments.wants_progress(args))
    findings = loaded.check()
    if args.format == "table":
        lines = list(_lines(findings, text.terminal_width(None)))
        output.write_text("".join(f"{line}\n" for line in lines), None)
    else:
        output.write_frame(findings, args.format, None)


def _lines(findings: pd.DataFrame, width: int) -> Iterator[str]:
    """Give each finding with its count and share, and below it the advice."""
    if findings.empty:
        yield "nothing is missing"
        return
    records = findings.to_dict("records")
    head = max(len(str(record["severity"])) for record in records) + 2
    several = len(set(findings["rank"].dropna())) > 1
    for record in records:
        words = [_shown(record["finding"])]
        if several and (rank := _shown(record["rank"])):
            words.insert(0, f"rank {rank}:")
        figures = [_shown(record["count"], ",d"), _shown(record["share_pct"], ".1f", " %")]
        if any(figures):
            words.append(f"({', '.join(filter(None, figures))})")
        first = f"{_shown(record['severity']):{head}}"
        yield from _wrap(" ".join(words), width, first, " " * head)
        if advice := _shown(record["advice"]):
            yield from _wrap(advice, width, " " * head + "-> ", " " * (head + 3))


def _shown(value: Any, form: str = "", unit: str = "") -> str:
    """Return `value` as text; nothing for null."""
    import pandas as pd

    if pd.isna(value):
        return ""
    return text.clean(f"{int(value) if form == ',d' else value:{form}}{unit}")


def _wrap(words: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=others)
