"""Print what the Python API answers: the rows of each expression on stdin, as JSON.

It is run as a user's program would be, by `python -c` in a process of its own, with nothing
imported but pyprof2.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyprof2


def term_rows(compared: Any) -> Any:
    """Return the rows of a comparison as `compare` writes them."""
    from pyprof2.reports.comparison import term_rows as rows_of

    return rows_of(compared.comparison)


def plain(value: Any) -> Any:
    """Return a cell as JSON has it."""
    if value is None or str(value) in ("nan", "<NA>"):
        return None
    return value.item() if hasattr(value, "item") else value


path = sys.argv[1]
run = pyprof2.load(path)
rows = {
    name: [
        {column: plain(value) for column, value in row.items()}
        for row in eval(expression).to_dict("records")  # noqa: S307 - from our own table
    ]
    for name, expression in json.load(sys.stdin).items()
}
sys.stdout.write(json.dumps(rows))
