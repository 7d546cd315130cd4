"""The files of `pyprof2 export --skyline` and `--deepview`.

Skyline's two reports are SQLite files, in version 1 of its schemas. A report of its own has exactly
Skyline's tables. Both name a table `stack_frames`; where they are in one file, its rows have the
columns of both, and null for those of the other report: the queries of Skyline's own readers find
in it what they find in a file of one report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from pyprof2.api import run_time
from pyprof2.errors import Pyprof2Error
from pyprof2.reports import files
from pyprof2.reports.files import replacing
from pyprof2.reports.lines import FUNCTIONS
from pyprof2.reports.skyline.deepview import analysis_json, batch_of
from pyprof2.reports.skyline.entries import Entries
from pyprof2.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyprof2.api.run import Run
    from pyprof2.reports.skyline.entries import Frame, MemoryReport, SkylineQuery, TimeReport


_NO_MEMORY: Final = (
    "no allocation is recorded, so there is no memory report; record with "
    "profile(profile_memory=True)"
)


def show(run: Run, query: SkylineQuery) -> list[str]:
    """Write the report, and return lines on its subject and on missing facts.

    Raises:
        Pyprof2Error: only the memory report is asked for, and no memory is recorded.
        UsageError: there is no such step, rank, device or ledger.
    """
    entries = Entries(run, query.rank)
    time = None if query.report == "memory" else entries.time(query.ledger, query.step)
    memory = None if query.report == "time" else entries.memory(query.device)
    if query.report == "memory" and memory is None:
        msg = f"{run.tables.label}: {_NO_MEMORY}"
        raise Pyprof2Error(msg)
    if query.report == "deepview" and time is not None:
        content = analysis_json(run, query, entries, time, memory)
        files.write_text(files.json_text(content) + "\n", query.path)
    else:
        write_report(query.path, time, memory)
    return list(_said(run, query, time, memory))


def _said(
    run: Run, query: SkylineQuery, time: TimeReport | None, memory: MemoryReport | None
) -> Iterator[str]:
    if time is not None:
        step = "the whole recording" if time.step is None else f"step {time.step}"
        calls = counted(len(time.entries), "call")
        yield f"times: {calls} of {step}, rank {time.rank}, {time.ledger}"
        if run_time.lines_are_functions(run.tables):
            yield FUNCTIONS
    if memory is not None:
        yield f"memory: of {memory.device}"
        yield from memory.lacks
    elif query.report != "time":
        yield _NO_MEMORY
    if query.report == "deepview" and batch_of(run, query.batch) is None:
        yield "no throughput: the recording does not say how many samples a step has; --batch-size"


VERSION: Final = 1
"""The version of the schemas, as `PRAGMA user_version`."""
WEIGHT, ACTIVATION = 1, 2
"""The types of entries of memory."""

_NS_PER_MS: Final = 10**6
_PEAK: Final = "peak_usage_bytes"

Rows = dict[str, list[dict[str, Any]]]
"""The rows of each table."""


def write_report(path: Path, time: TimeReport | None, memory: MemoryReport | None) -> None:
    """Write one report, or both, whole or not at all.

    Args:
        path: the file, which is replaced if it is there.
        time: the calls; None: the file has no tables of them.
        memory: the same of memory.
    """
    schema = _schema(has_time=time is not None, has_memory=memory is not None)
    parts = [_time_rows(time)] if time is not None else []
    parts += [_memory_rows(memory)] if memory is not None else []
    with replacing(path) as temporary:
        engine = sa.create_engine(sa.URL.create("sqlite", database=str(temporary)))
        try:
            with engine.begin() as connection:
                connection.execute(sa.text(f"PRAGMA user_version = {VERSION}"))
                schema.create_all(connection)
                for name, rows in (table for part in parts for table in part.items() if table[1]):
                    connection.execute(schema.tables[name].insert(), rows)
        finally:
            engine.dispose()


# -- the schemas ---------------------------------------------------------------------------------


def _schema(*, has_time: bool, has_memory: bool) -> sa.MetaData:
    schema = sa.MetaData()

    def table(name: str, key: str, /, *more: Any, kind: Any = sa.Integer, **columns: Any) -> None:
        others = (_not_null(column, kind) for column, kind in columns.items())
        sa.Table(name, schema, sa.Column(key, kind, primary_key=True), *others, *more)

    if has_time:
        backward = sa.Column("backward_ms", sa.REAL)
        table("run_time_entries", "id", backward, operation_name=sa.Text, forward_ms=sa.REAL)
    if has_memory:
        sizes = {"size_bytes": sa.Integer, "grad_size_bytes": sa.Integer}
        table("weight_entries", "id", name=sa.Text, **sizes)
        table("activation_entries", "id", operation_name=sa.Text, size_bytes=sa.Integer)
        table("entry_types", "entry_type", name=sa.Text)
        table(
            "stack_correlation", "correlation_id",
            sa.UniqueConstraint("correlation_id", "entry_id"),
            sa.Index("entry_type_and_id", "entry_type", "entry_id", unique=True),
            entry_id=sa.Integer, entry_type=sa.Integer,
        )  # fmt: skip
        table("misc_sizes", "key", kind=sa.Text, size_bytes=sa.INT)
    _add_stack_frames(schema, has_time=has_time, has_memory=has_memory)
    return schema


def _add_stack_frames(schema: sa.MetaData, *, has_time: bool, has_memory: bool) -> None:
    """Add the table that both reports have, with Skyline's columns in Skyline's order."""
    of_both = has_time and has_memory
    first = [sa.Column("correlation_id", sa.Integer, nullable=of_both)] if has_memory else []
    last = [sa.Column("entry_id", sa.Integer, nullable=of_both)] if has_time else []
    owners = [column.name for column in first + last]
    # In a unique constraint null equals nothing, so rows of one report are no matter to the other.
    keys = (
        [sa.UniqueConstraint(owner, "ordering") for owner in owners]
        if of_both
        else [sa.PrimaryKeyConstraint(*owners, "ordering")]
    )
    sa.Table(
        "stack_frames",
        schema,
        *first,
        _not_null("ordering", sa.Integer),
        _not_null("file_path", sa.Text),
        _not_null("line_number", sa.Integer),
        *last,
        *keys,
    )


def _not_null(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


# -- the rows ------------------------------------------------------------------------------------


def _time_rows(report: TimeReport) -> Rows:
    entries, frames = [], []
    for number, entry in enumerate(report.entries, 1):
        backward = None if entry.backward_ns is None else entry.backward_ns / _NS_PER_MS
        entries.append(
            {
                "id": number,
                "operation_name": entry.op,
                "forward_ms": entry.forward_ns / _NS_PER_MS,
                "backward_ms": backward,
            }
        )
        frames += _frame_rows("entry_id", number, entry.frames)
    return {"run_time_entries": entries, "stack_frames": frames}


def _memory_rows(report: MemoryReport) -> Rows:
    weights = [
        {
            "id": number,
            "name": w.name,
            "size_bytes": w.size_bytes,
            "grad_size_bytes": w.grad_bytes or 0,
        }
        for number, w in enumerate(report.weights, 1)
    ]
    activations = [
        {"id": number, "operation_name": a.op, "size_bytes": a.size_bytes}
        for number, a in enumerate(report.activations, 1)
    ]
    owners = [(row["id"], WEIGHT) for row in weights]
    owners += [(row["id"], ACTIVATION) for row in activations]
    correlation = [
        {"correlation_id": number, "entry_id": entry_id, "entry_type": kind}
        for number, (entry_id, kind) in enumerate(owners, 1)
    ]
    frames = []
    lines = [entry.frames for entry in report.weights]
    lines += [entry.frames for entry in report.activations]
    for number, own in enumerate(lines, 1):
        frames += _frame_rows("correlation_id", number, own)
    peak = [] if report.peak_bytes is None else [{"key": _PEAK, "size_bytes": report.peak_bytes}]
    return {
        "weight_entries": weights,
        "activation_entries": activations,
        "entry_types": [
            {"entry_type": WEIGHT, "name": "Weight"},
            {"entry_type": ACTIVATION, "name": "Activation"},
        ],
        "stack_correlation": correlation,
        "stack_frames": frames,
        "misc_sizes": peak,
    }


def _frame_rows(owner: str, number: int, frames: Sequence[Frame]) -> list[dict[str, Any]]:
    return [
        {owner: number, "ordering": at, "file_path": frame.path, "line_number": frame.line}
        for at, frame in enumerate(frames)
    ]
