"""SQL over a store, asked by somebody who is not trusted: one SELECT, in a process with limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from pyprof2.agents import _sql_process
from pyprof2.errors import UsageError, refuse
from pyprof2.store.folder import STORED

if TYPE_CHECKING:
    from pathlib import Path

SECONDS: Final = 10.0
ROWS: Final = 100
_LONGEST: Final = 20_000
_GRACE: Final = 5
"""Seconds that a query which does not let itself be interrupted has until its process ends."""


def files_of(store: Path) -> dict[str, list[str]]:
    """Return the Parquet files of each table of a store."""
    found = {name: sorted((store / name).glob("rank-*.parquet")) for name in STORED}
    return {name: [str(path.resolve()) for path in paths] for name, paths in found.items() if paths}


def query(store: Path, text: str, *, seconds: float = SECONDS, rows: int = ROWS) -> dict[str, Any]:
    """Return `columns`, `rows` and whether there are `more` of a SELECT.

    Args:
        store: whose tables are views, by their names.
        text: the statement.
        seconds: how long it may take.
        rows: how many it may give.

    Raises:
        UsageError: it is no single SELECT, fails, or takes longer.
    """
    if len(text) > _LONGEST:
        refuse(f"a query of over {_LONGEST:,} characters; ask for less")
    asked = {"files": files_of(store), "query": text, "seconds": seconds, "rows": rows}
    # Its environment has nothing to give away; Windows starts no program without one.
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-I", _sql_process.__file__],
            input=json.dumps(asked), capture_output=True, text=True, check=False, env=kept,
            timeout=seconds + _GRACE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        msg = f"ended after {seconds + _GRACE:g} s; ask for less"
        raise UsageError(msg) from None
    if done.returncode:
        refuse("the query took more memory or time than it may; ask for less")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        refuse(answer["error"])
    return answer
