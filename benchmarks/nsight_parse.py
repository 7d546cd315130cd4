"""How fast a large Nsight Systems export is parsed and linked, beside other ways to read it.

Usage: python -m benchmarks.nsight_parse [EXPORT] [--copies N] [--rounds N] [--ways WAY …]

EXPORT is a real one; by default the 1 s of two H100 among the shared traces (PYPROF2_SHARED). It
is copied N times into one file, with times moved and ids renumbered, so that every copy links as
the original does; with 89 copies it has 1.5 million ranges and 0.3 million kernels. Then, in
interleaved rounds and processes of their own:

- `adbc`: all rows that the parser reads, streamed as Arrow batches and dropped,
- `pandas.read_sql`: the same rows, table by table,
- `adbc to Parquet`: the same batches, written to a Parquet file for each table,
- `parse`: pyprof2's raw tables,
- `parse + link`: and the launch and op of every kernel,
- `store`: all that `pyprof2 parse` does: costs, sums, idle time, results, written as a store.

Exit code 1 if parse + link takes three times as long as adbc, or longer, or the store 1.8 times as
long as adbc to Parquet. `--ways` measures some of them alone: with 950 copies, 16 million ranges,
pandas has no room.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.traces import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIMITS: Final = {"parse + link": ("adbc", 3.0), "store": ("adbc to Parquet", 1.8)}
"""At most so many times the time of another way."""
_DEFAULT: Final = SHARED / "nsight" / "h100_2gpu_1s.sqlite"
_BATCH_ROWS: Final = "65536"
_GAP_NS: Final = 100_000_000
_ID_STEP: Final = 100_000
_OP_ID: Final = ", op_id = "

TABLES: Final = {
    "NVTX_EVENTS": (
        "start", "end", "eventType", "globalTid", "textId", "domainId", "int64Value", "text",
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start", "end", "globalPid", "deviceId", "streamId", "correlationId", "graphNodeId",
        "demangledName", "shortName", "registersPerThread", "gridX", "gridY", "gridZ", "blockX",
        "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory",
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start", "end", "globalTid", "correlationId", "nameId", "eventClass",
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start", "end", "globalPid", "deviceId", "streamId", "correlationId", "graphNodeId",
        "bytes", "copyKind", "srcKind", "dstKind",
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start", "end", "globalPid", "deviceId", "streamId", "correlationId", "graphNodeId",
        "bytes", "memKind",
    ),
}  # fmt: skip
"""The columns that the parser reads."""


def scale(source: Path, target: Path, copies: int) -> None:
    """Write an export with the rows of `source` several times."""
    shutil.copyfile(source, target)
    target.chmod(0o644)
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("PRAGMA journal_mode = off")
        connection.execute("PRAGMA synchronous = off")
        first, last = _span(connection)
        for table in TABLES:
            _repeat(connection, table, copies, last - first + _GAP_NS)
        connection.commit()


def _span(connection: sqlite3.Connection) -> tuple[int, int]:
    spans = [
        connection.execute(f'SELECT min(start), max("end") FROM {t}').fetchone()  # noqa: S608
        for t in TABLES
    ]
    return min(s for s, _ in spans if s is not None), max(e for _, e in spans if e is not None)


def _repeat(connection: sqlite3.Connection, table: str, copies: int, shift: int) -> None:
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    moved = ", ".join(_moved(name, shift) for name in names)
    connection.execute(f"CREATE TEMP TABLE once AS SELECT * FROM {table}")  # noqa: S608
    for number in range(1, copies):
        connection.execute(f"INSERT INTO {table} SELECT {moved} FROM once", {"k": number})  # noqa: S608
    connection.execute("DROP TABLE once")


def _moved(name: str, shift: int) -> str:
    """Return the expression of a column in copy number `:k`."""
    if name in ("start", "end"):
        return f'"{name}" + :k * {shift}'
    if name == "correlationId":
        return f"{name} + :k * {_ID_STEP}"
    if name == "text":
        at = f"instr(text, '{_OP_ID}') + {len(_OP_ID)}"
        number = f"CAST(substr(text, {at}) AS INTEGER) + :k * {_ID_STEP}"
        changed = f"substr(text, 1, {at} - 1) || ({number})"
        return f"CASE WHEN instr(text, '{_OP_ID}') THEN {changed} ELSE text END"
    return f'"{name}"'


def _queries(path: Path) -> Iterator[str]:
    """Yield for each table the query of what is there, each column with its type."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for table, wanted in TABLES.items():
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            casts = ", ".join(
                f'CAST("{name}" AS {"TEXT" if name == "text" else "INTEGER"}) AS "{name}"'
                for name in wanted
                if name in there
            )
            if casts:
                yield f"SELECT {casts} FROM {table}"  # noqa: S608


def read_with_adbc(path: Path) -> int:
    """Stream the rows and drop them; return how many there were."""
    return sum(batch.num_rows for reader in _adbc_readers(path) for batch in reader)


def write_with_adbc(path: Path) -> int:
    """Write the rows as Parquet while they are streamed; return how many there were."""
    from pyarrow.parquet import ParquetWriter

    rows = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, reader in enumerate(_adbc_readers(path)):
            with ParquetWriter(Path(folder, f"{number}.parquet"), reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
                    rows += batch.num_rows
    return rows


def _adbc_readers(path: Path) -> Iterator[Any]:
    """Yield a reader of batches for each table."""
    from adbc_driver_sqlite import dbapi

    options = {"adbc.sqlite.query.batch_rows": _BATCH_ROWS}
    with dbapi.connect(f"file:{path}?mode=ro") as connection:
        for query in _queries(path):
            with connection.cursor(adbc_stmt_kwargs=options) as cursor:
                cursor.execute(query)
                yield cursor.fetch_record_batch()


def read_with_pandas(path: Path) -> int:
    """Read one table after another; return how many rows there were."""
    import pandas as pd

    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return sum(len(pd.read_sql(query, connection)) for query in _queries(path))


def parse(path: Path) -> int:
    """Read the recordings; return how many rows they have."""
    with tempfile.TemporaryDirectory() as folder:
        return sum(r.trace["event_count"] for r in _recordings(path, Path(folder)))


def parse_and_link(path: Path) -> int:
    """Read the recordings and link them; return how many rows they have."""
    from pyprof2.analysis.linking.kernels import link_activities, link_launches
    from pyprof2.analysis.linking.ops import link_ops
    from pyprof2.analysis.linking.pair import pair
    from pyprof2.analysis.linking.threads import Threads

    rows = 0
    with tempfile.TemporaryDirectory() as folder:
        for recording in _recordings(path, Path(folder)):
            tables = [
                recording.read(n, ["pid", "tid"]) for n in ("ops", "launches", "ranges", "flows")
            ]
            threads = Threads.of(tables)
            ops = link_ops(recording, threads)
            pair(ops, recording, threads)
            launches = link_launches(recording, ops, threads)
            link_activities(recording, launches, ops, threads)
            rows += recording.trace["event_count"]
    return rows


def store(path: Path) -> int:
    """Make a store, as the command line does; return how many rows the export has."""
    from pyprof2.api.run import load
    from pyprof2.api.run import parse as make_store
    from pyprof2.pipeline.allocation import give_memory_back

    give_memory_back()
    with tempfile.TemporaryDirectory() as folder:
        made = load(make_store([path], Path(folder, "store")))
        return int(made.trace["event_count"].sum())


def _recordings(path: Path, folder: Path) -> list[Any]:
    from pyprof2.parsers import read_recordings

    return read_recordings(path, folder)


WAYS: Final = {
    "adbc": read_with_adbc,
    "adbc to Parquet": write_with_adbc,
    "pandas.read_sql": read_with_pandas,
    "parse": parse,
    "parse + link": parse_and_link,
    "store": store,
}


def _measure(way: str, path: Path) -> None:
    """Print rows, seconds, seconds of the processor, and how much memory it took at most."""
    _import_everything()
    began, used = time.perf_counter(), time.process_time()
    rows = WAYS[way](path)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    print(rows, seconds, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _import_everything() -> None:
    """Import what the ways need, so that the times are of reading alone."""
    names = ("pandas", "pyprof2.analysis.linking.kernels", "pyprof2.parsers.nsight")
    for name in (*names, "pyprof2.api.run", "pyarrow.parquet"):
        import_module(name)


def main() -> int:
    """Make the file, measure in turn, and print the medians."""
    parser = argparse.ArgumentParser(description="Time the parsing of an Nsight Systems export.")
    parser.add_argument("export", type=Path, nargs="?", default=_DEFAULT)
    parser.add_argument("--copies", type=int, default=89, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=[*WAYS], metavar="WAY")
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        _measure(args.measure, args.export)
        return 0
    if not args.export.exists():
        print(f"{args.export}: no such export; name one", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scaled.sqlite")
        scale(args.export, path, args.copies)
        print(f"{path.stat().st_size / 1e6:.0f} MB, {_sizes(path)}")
        return _report(_rounds(path, args.rounds, args.ways))


def _sizes(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        counts = {
            t: connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0]  # noqa: S608
            for t in TABLES
        }
    words = zip(("ranges", "kernels", "calls", "copies", "memsets"), counts.values(), strict=True)
    return ", ".join(f"{count:,} {word}" for word, count in words)


def _rounds(path: Path, rounds: int, ways: Sequence[str]) -> dict[str, list[tuple[float, ...]]]:
    found: dict[str, list[tuple[float, ...]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            command = [sys.executable, "-m", "benchmarks.nsight_parse", str(path), "--measure", way]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[way].append(tuple(float(word) for word in done.stdout.split()))
    return found


def _report(found: dict[str, list[tuple[float, ...]]]) -> int:
    print(f"{'':<16} {'rows/s':>10} {'seconds':>8} {'CPU s':>7} {'peak MB':>8}")
    for way, runs in found.items():
        rows, seconds, used, memory = map(statistics.median, zip(*runs, strict=True))
        speed = f"{rows / used:>10,.0f} {seconds:>8.2f} {used:>7.2f}"
        print(f"{way:<16} {speed} {memory / 1e6:>8.0f}")
    holds = True
    for way, (other, limit) in LIMITS.items():
        if {way, other} <= found.keys():
            pairs = zip(found[way], found[other], strict=True)
            ratios = [mine[2] / base[2] for mine, base in pairs]
            ratio = statistics.median(ratios)
            holds &= ratio < limit
            spread = f"{ratio:.2f} [{min(ratios):.2f} … {max(ratios):.2f}]"
            print(f"{way} takes {spread} times the CPU of {other}; at most {limit:g}")
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
