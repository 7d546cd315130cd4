"""Say what `pyprof2 advise` finds in real recordings, as a table.

Usage: python -m benchmarks.advice TRACE… [--write PAGE]

Each TRACE is a recording or a store; only its name is printed. A row has what fires, with the most
that it may gain as a share of the recorded time, largest first, and what cannot be judged. With
`--write` the table is put into a page of the documentation.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

import pyprof2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PART: Final = re.compile(r"(\.\. table: advice\n).*?(\.\. end table\n)", re.DOTALL)


def main() -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    args = parser.parse_args()
    table = "\n".join(_table(args.traces))
    print(table)
    if args.write:
        page = args.write.read_text(encoding="utf-8")
        new = _PART.sub(lambda part: f"{part[1]}\n{table}\n\n{part[2]}", page)
        args.write.write_text(new, encoding="utf-8")


def _table(traces: Sequence[Path]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 20 50 30", "")
    yield from _row("recording", "fires", "unknown")
    for path in traces:
        run = pyprof2.load(path)
        found, bounds = run.advise(), run.gain_bounds
        for bound in bounds.to_dict("records"):
            own = found[found["rank"] == bound["rank"]]
            name = path.name.split(".")[0] + (f", rank {bound['rank']}" if len(bounds) > 1 else "")
            fires = own[own["status"] == "fires"].to_dict("records")
            words = [_words(record, int(bound["window_ns"])) for record in fires]
            unknown = own.loc[own["status"] == "unknown", "rule"]
            yield from _row(name, ", ".join(words) or "nothing", ", ".join(unknown) or "nothing")


def _words(record: dict[Any, Any], window_ns: int) -> str:
    most = record["at_stake_hi_ns"]
    share = "" if pd.isna(most) else f" {100 * int(most) / max(1, window_ns):.1f} %"
    return f"{record['rule']}{share}"


def _row(*cells: str) -> Iterator[str]:
    for at, cell in enumerate(cells):
        yield f"   {' ' if at else '*'} - {cell}"


if __name__ == "__main__":
    main()
