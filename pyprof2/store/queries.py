"""SQL over a store: one SELECT, in a process with limits, which can read the store and no more.

Beside the tables there are views: all work of devices, and with its costs shared out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from pyprof2.errors import UsageError, refuse, refuse_without
from pyprof2.store import _sql_process
from pyprof2.store.folder import STORED
from pyprof2.tables import KERNELS, Column, Table, real

if TYPE_CHECKING:
    from pathlib import Path

SECONDS: Final = 60.0
_LONGEST: Final = 20_000
_SECONDS_AT_MOST: Final = 86_400.0
_NEEDED: Final = ("SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Without them some Pythons do not start."""
_GRACE: Final = 5
"""Seconds that a query which does not let itself be interrupted has until its process ends."""


@dataclass(frozen=True)
class SqlView:
    """A view: its columns, as those of a table, and the SELECT that makes it."""

    table: Table
    select: str

    @property
    def name(self) -> str:
        """The name in SQL."""
        return self.table.name


_IS_COPY: Final = Column("is_copy", pa.bool_(), "Whether it is a memcpy or memset.", nullable=False)
_IS_COSTED: Final = Column(
    "is_costed", pa.bool_(), "Whether the costs of its op are known.", nullable=False
)
_ROOF_NS: Final = real(
    "roof_ns", "Time that the work would take at the roof; null where that is not known.", "ns"
)

_ACTIVITIES: Final = SqlView(
    Table(
        "activities",
        "One row per kernel, memcpy or memset on a device: tables `kernels` and `copies`.",
        (*KERNELS.columns, _IS_COPY),
    ),
    """SELECT *, false AS is_copy FROM kernels UNION ALL BY NAME
SELECT *, true AS is_copy FROM copies""",
)

# An op's counts belong to the kernels that do its work, in proportion to their time: `cost_key`
# names the op, or its call in a replay of a graph (below 0, so that it is no op's number).
_WORK: Final = SqlView(
    Table(
        "work",
        "One row per row of `activities`, whose `flops` and `bytes` add up over any set of rows: "
        "each count is at one op alone, and shared out among its kernels.",
        (*KERNELS.columns, _IS_COPY, _IS_COSTED, _ROOF_NS),
    ),
    """WITH keyed AS (
    SELECT *, coalesce(-2 - cost_call_id, cost_op_id) AS cost_key,
        coalesce(cost_role <> 'main', false) AS is_helper
    FROM activities
), shared AS (
    SELECT rank, cost_key, sum(dur_ns) FILTER (NOT is_helper) AS working_ns,
        count(roofline_pct) > 0 AS has_roof
    FROM keyed WHERE cost_key IS NOT NULL GROUP BY ALL
)
SELECT keyed.* EXCLUDE (cost_key, is_helper) REPLACE (
        CASE WHEN cost_status IS DISTINCT FROM 'in_parent' THEN flops END AS flops,
        CASE WHEN cost_status IS DISTINCT FROM 'in_parent' THEN bytes END AS bytes
    ),
    coalesce(cost_status IN ('ok', 'assumed', 'in_parent'), false) AS is_costed,
    CASE WHEN is_helper AND has_roof THEN 0
        ELSE roofline_pct / 100 * op_time_ns * (dur_ns / nullif(working_ns, 0)) END AS roof_ns
FROM keyed LEFT JOIN shared USING (rank, cost_key)""",
)

VIEWS: Final = {view.name: view for view in (_ACTIVITIES, _WORK)}


class QueryRows(NamedTuple):
    """The rows of a SELECT.

    Attributes:
        table: the rows; every column holds numbers, truth values or text.
        more: whether there are more rows than were asked for.
    """

    table: pa.Table
    more: bool


def files_of(store: Path) -> dict[str, list[str]]:
    """Return the Parquet files of each table of a store."""
    found = {name: sorted((store / name).glob("rank-*.parquet")) for name in STORED}
    return {name: [str(path.resolve()) for path in paths] for name, paths in found.items() if paths}


def query(
    store: Path, text: str, *, seconds: float = SECONDS, rows: int | None = None
) -> QueryRows:
    """Return the rows of a SELECT.

    Args:
        store: its tables, and the views in `VIEWS`, are what can be read.
        text: the statement, in DuckDB's SQL.
        seconds: how long it may take.
        rows: how many it may give; None: all.

    Raises:
        UsageError: it is no single SELECT, fails, or takes longer; or DuckDB is not installed.
    """
    if importlib.util.find_spec("duckdb") is None:
        refuse_without("SQL", "duckdb")
    if len(text) > _LONGEST:
        refuse(f"a query of over {_LONGEST:,} characters; ask for less")
    seconds = min(seconds, _SECONDS_AT_MOST)
    asked: dict[str, Any] = {"files": files_of(store), "query": text, "seconds": seconds}
    asked["paths"] = list(map(os.path.abspath, filter(None, sys.path)))
    asked |= {"rows": rows, "views": {view.name: view.select for view in VIEWS.values()}}
    # Its environment has nothing to give away; Windows starts no program without one.
    kept = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-I", _sql_process.__file__],
            input=json.dumps(asked).encode(), capture_output=True, check=False, env=kept,
            timeout=seconds + _GRACE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        msg = f"ended after {seconds + _GRACE:g} s; ask for less"
        raise UsageError(msg) from None
    if done.returncode == _sql_process.REFUSED:
        refuse(" ".join(done.stderr.decode().split()))  # DuckDB draws a caret below the statement
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        is_other = done.returncode > 0 and lines and "MemoryError" not in lines[-1]
        why = "the query took more memory or time than it may; ask for less"
        refuse(f"SQL cannot run: {lines[-1]}" if is_other else why)
    table = pa.ipc.open_stream(done.stdout).read_all()
    more = table.schema.metadata[b"more"] == b"yes"
    return QueryRows(table.replace_schema_metadata(None), more)
