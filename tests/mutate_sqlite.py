"""Damage exports of Nsight Systems in every way that we can think of, by seed.

A mutant is made in up to two layers: rows, columns and tables through SQLite, then the bytes of
the file. Whatever comes out is a file that pyprof2 must read, or refuse in one line.
"""

# Names of tables and columns cannot be parameters of a query; here they are quoted.
# ruff: noqa: S608

from __future__ import annotations

import random
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyprof2.markers import Marker, pack_payload
from pyprof2.signatures import Scalar, Tensor
from tests.mutate_trace import Mutant
from tests.nsight_exports import COPIES, ENGINE, SETS, STARTED, Export

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS_MAX: Final = 3000
"""A table of a mutant has no more rows: many small files find more than few large ones."""

NUMBERS: Final[tuple[Any, ...]] = (
    None, 0, -1, 1, 7, 59, 60, 34, 75, 2**31, 2**32 - 1, 2**48, 2**53 + 1, 2**62, 2**63 - 1,
    -(2**63), -(2**62), 10**15 + 1, 4 * 10**18 + 1, 0.5, -0.5, 1e15, 1e300, -1e300, float("inf"),
    float("-inf"),
)  # fmt: skip
"""Numbers at, or far beyond, the edge of what a column may hold; SQLite has no NaN."""

TEXTS: Final[tuple[Any, ...]] = (
    "", " ", "0", "-1", "1.5", "abc", "9" * 5000, "a\x00b", "\x1b[31mred", "a\nb", '"', "'", ";--",
    "é🙂", "\u2028", "<script>alert(1)</script>", "=1+1", "x" * 100_000, b"", b"\xff\xfe",
    b"\x00" * 100, b"\xed\xa0\x80", "pyprof2", "layer:", "layer:" + "a." * 3000, "ProfilerStep#",
    "ProfilerStep#99999999999999999999", "step 3", "aten::mm", "aten::mm, seq = 7",
    "aten::mm, seq = -7, op_id = 3", "aten::mm, seq = 7, op_id = 3, sizes = [[2, 3], [3, 4]]",
    "aten::mm, seq = 7, op_id = 3, sizes = [[99999999999999999999]]",
    "aten::conv2d, op_id = 1, sizes = [[], [[]], [1]]", "aten::cat, op_id = 1, sizes = []",
    "aten::mm, op_id = 1, sizes = " + "[" * 50_000, ", op_id = 1", ", seq = 1", ", , , op_id = , ",
    "a, input_op_ids = [(1,0)]", "autograd::engine::evaluate_function: ", "AccumulateGrad, seq = 3",
    "autograd::engine::evaluate_function: AddmmBackward0, seq = 7", "MmBackward0, seq = 7",
    '{"pyprof2":1}', '{"pyprof2":1,"kind":"op"}', '{"pyprof2":3,"kind":"op","op":"aten::mm"}',
    '{"pyprof2":1,"kind":"op","op":"aten::mm","inputs":[{"shape":[-1]}]}',
    '{"pyprof2":1,"kind":"op","op":"aten::mm","inputs":[{"same":5}]}',
    '{"pyprof2":1,"kind":"op","op":"aten::mm","inputs":[{"shape":[2,3]},{"shape":[3,4]}]}',
    '{"pyprof2":1,"kind":"op","op":"aten::mm","direction":"backward","layer":"a"}',
    '{"pyprof2":1,"kind":"op","op":"","recompute":true}', '{"pyprof2":1,"kind":"step","step":5}',
    '{"pyprof2":1,"kind":"process","rank":0}', '{"pyprof2":1,"kind":"process","rank":12345678}',
    '{"pyprof2":1,"kind":"layer","layer":"a"}', '{"pyprof2":1,"kind":' + "[" * 50_000,
    "cudaGraphLaunch_v10000", "cudaLaunchKernel", "void f<(int)1>(", "operator()", "nccl", "Tesla",
)  # fmt: skip
"""Texts that mean something to somebody, and some that mean nothing to anybody."""

_Connection: TypeAlias = sqlite3.Connection


def read_bases(paths: Sequence[Path] = (), size_max: int = 3_000_000) -> list[bytes]:
    """Return the exports to damage: two made here, and those of the files that are small."""
    with tempfile.TemporaryDirectory() as folder:
        made = [
            export.write(Path(folder, f"{number}.sqlite")).read_bytes()
            for number, export in enumerate((_annotated(), _with_gpu()))
        ]
    return made + [path.read_bytes() for path in paths if path.stat().st_size <= size_max]


def _with_gpu() -> Export:
    """Return an export of two processes with GPU work and PyTorch's own ranges."""
    export = Export().gpu().add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=20)
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
    export.add("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_SHIFT", value="0")
    export.add("DIAGNOSTIC_EVENT", severity=3, text="Buffers were lost")
    for pid in (10, 20):
        for number in range(20):
            at = 1000 * number
            text = f"aten::mm, seq = {number}, op_id = {number}, sizes = [[2, 3], [3, 4]]"
            export.range(text, at, at + 50, pid=pid, tid=pid)
            export.launched("void f<float>(int)", at + 10, number, pid=pid, tid=pid)
            node = f"autograd::engine::evaluate_function: MmBackward0, seq = {number}"
            export.range(node, 30_000 - at, 30_000 - at + 50, pid=pid, tid=ENGINE)
        copy = {"bytes": 4096, "copyKind": 1, "srcKind": 0, "dstKind": 2, "pid": pid}
        export.activity(COPIES, 900, 10, 99, **copy)
        export.activity(SETS, 950, 10, 98, bytes=64, memKind=2, pid=pid)
        export.range("ProfilerStep#3", 0, 90_000, pid=pid, tid=pid, kind=STARTED)
    return export


def _annotated() -> Export:
    """Return an export of our annotation, without GPU work."""
    export = Export().domain().marker(Marker("process", rank=2, world_size=4), 1, None)
    inputs = (Tensor((2, 3), "f32"), Tensor((3, 4), "f32", (1, 3)), Scalar(1))
    for number in range(30):
        at = 1000 * number
        if number % 10 == 0:
            export.marker(Marker("step", step=number // 10), at, None)
        layer, payload = f"blocks.{number % 3}", pack_payload(number, number % 2)
        export.marker(Marker("layer", layer=layer, module="Block"), at, at + 100)
        direction: Any = ("forward", "backward", "optimizer")[number % 3]
        op = Marker("op", op="aten::mm", inputs=inputs, layer=layer, direction=direction)
        export.marker(op, at + 10, at + 50, payload=payload)
    return export


def mutate(seed: int, bases: Sequence[bytes]) -> Mutant:
    """Return the mutant of that number."""
    rng = random.Random(seed)  # noqa: S311
    content = rng.choice(bases)
    damage: list[str] = []
    layers = rng.choice((_CHANGES, _CHANGES, _BYTES, _CHANGES + _BYTES))
    wanted = [rng.choice(layers) for _ in range(rng.choice((1, 1, 2, 3, 8)))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "export.sqlite")
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as connection:
            _shorten(connection)
            for change in _CHANGES:
                for _ in range(wanted.count(change)):
                    # What SQLite refuses is no damage.
                    with suppress(sqlite3.Error, OverflowError, IndexError):
                        change(rng, connection)
                        damage.append(change.__name__)
            connection.commit()
        content = path.read_bytes()
    for change_bytes in _BYTES:
        for _ in range(wanted.count(change_bytes)):
            content = change_bytes(rng, content)
            damage.append(change_bytes.__name__)
    return Mutant(content, tuple(damage))


def _shorten(connection: _Connection) -> None:
    """Take rows off the tables that have many."""
    for table in _tables(connection):
        count = connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0]
        if count > ROWS_MAX:
            connection.execute(f"DELETE FROM {_quoted(table)} WHERE rowid > {ROWS_MAX}")
    connection.commit()
    connection.execute("VACUUM")


def _tables(connection: _Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    return [row[0] for row in connection.execute(query)]


def _columns(connection: _Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_READ: Final = (
    "CUPTI_ACTIVITY",
    "NVTX",
    "StringIds",
    "TARGET_INFO",
    "META",
    "EXPORT",
    "DIAGNOSTIC",
)


def _a_table(rng: random.Random, connection: _Connection) -> str:
    """Return one of the tables that the parser reads, else any."""
    tables = _tables(connection)
    return rng.choice([name for name in tables if name.startswith(_READ)] or tables)


def _a_column(rng: random.Random, connection: _Connection) -> tuple[str, str]:
    table = _a_table(rng, connection)
    return _quoted(table), _quoted(rng.choice(_columns(connection, table)))


def drop_table(rng: random.Random, connection: _Connection) -> None:
    """Take a table away."""
    connection.execute(f"DROP TABLE {_quoted(_a_table(rng, connection))}")


def drop_column(rng: random.Random, connection: _Connection) -> None:
    """Take a column away."""
    connection.execute("ALTER TABLE {} DROP COLUMN {}".format(*_a_column(rng, connection)))


def rename_column(rng: random.Random, connection: _Connection) -> None:
    """Give a column another name, perhaps in another case."""
    table, column = _a_column(rng, connection)
    new = rng.choice((column.swapcase(), _quoted(rng.choice(("x", 'a"b', "select", "é", "a;b")))))
    connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO {new}")


def empty_table(rng: random.Random, connection: _Connection) -> None:
    """Take all rows of a table away."""
    connection.execute(f"DELETE FROM {_quoted(_a_table(rng, connection))}")


def drop_rows(rng: random.Random, connection: _Connection) -> None:
    """Take some rows away."""
    table = _quoted(_a_table(rng, connection))
    connection.execute(f"DELETE FROM {table} WHERE rowid % ? = 0", (rng.randint(2, 9),))


def repeat_rows(rng: random.Random, connection: _Connection) -> None:
    """Put all rows of a table into it once more."""
    table = _quoted(_a_table(rng, connection))
    connection.execute(f"INSERT INTO {table} SELECT * FROM {table}")


def change_values(rng: random.Random, connection: _Connection) -> None:
    """Put a value of any kind into some rows of a column, or all."""
    table, column = _a_column(rng, connection)
    value = rng.choice(rng.choice((NUMBERS, TEXTS)))
    is_long = isinstance(value, (str, bytes)) and len(value) > 1000
    every = ROWS_MAX // 10 if is_long else rng.choice((1, 1, 2, 7, 50))
    connection.execute(
        f"UPDATE {table} SET {column} = ? WHERE rowid % ? = 0",
        (value, every),
    )


def swap_columns(rng: random.Random, connection: _Connection) -> None:
    """Put one column's values into another one."""
    table = _a_table(rng, connection)
    one, other = (_quoted(rng.choice(_columns(connection, table))) for _ in range(2))
    connection.execute(f"UPDATE {_quoted(table)} SET {one} = {other}, {other} = {one}")


def declare_otherwise(rng: random.Random, connection: _Connection) -> None:
    """Make a table anew with columns of other types, or none."""
    table = _a_table(rng, connection)
    kinds = ("TEXT", "REAL", "BLOB", "", "NUMERIC", "VARCHAR(10)", "ANY", "INTEGER")
    declared = ", ".join(f"{_quoted(c)} {rng.choice(kinds)}" for c in _columns(connection, table))
    connection.execute(f"ALTER TABLE {_quoted(table)} RENAME TO moved_away")
    connection.execute(f"CREATE TABLE {_quoted(table)} ({declared})")
    connection.execute(f"INSERT INTO {_quoted(table)} SELECT * FROM moved_away")
    connection.execute("DROP TABLE moved_away")


def make_view(rng: random.Random, connection: _Connection) -> None:
    """Replace a table by a view, which may be endless."""
    table = _quoted(_a_table(rng, connection))
    endless = (
        "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT * FROM n"
    )
    query = rng.choice((endless, "SELECT 1 AS start, 2 AS end"))
    connection.execute(f"DROP TABLE {table}")
    connection.execute(f"CREATE VIEW {table} AS {query}")


def without_rowid(rng: random.Random, connection: _Connection) -> None:
    """Make a table of strings that has no row ids."""
    del rng
    connection.execute("ALTER TABLE StringIds RENAME TO moved_away")
    connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT) WITHOUT ROWID")
    connection.execute("INSERT OR IGNORE INTO StringIds SELECT id, value FROM moved_away")
    connection.execute("DROP TABLE moved_away")


def write_ahead(rng: random.Random, connection: _Connection) -> None:
    """Mark the file as one with a write-ahead log."""
    del rng
    connection.commit()
    connection.execute("PRAGMA journal_mode = wal")


_CHANGES: Final[Any] = (
    drop_table, drop_column, drop_column, rename_column, empty_table, drop_rows, repeat_rows,
    change_values, change_values, change_values, change_values, change_values, swap_columns,
    declare_otherwise, make_view, without_rowid, write_ahead,
)  # fmt: skip


def flip_bytes(rng: random.Random, content: bytes) -> bytes:
    """Change some bytes anywhere."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 3, 30, 1000))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def flip_header(rng: random.Random, content: bytes) -> bytes:
    """Change some bytes of the header, or of the page that lists the tables."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 2, 8))):
        changed[rng.randrange(16, min(len(changed), rng.choice((100, 4096))))] = rng.randrange(256)
    return bytes(changed)


def cut_short(rng: random.Random, content: bytes) -> bytes:
    """Keep the beginning only."""
    return content[: rng.choice((0, 1, 15, 16, 99, 100, 4096, rng.randrange(len(content) + 1)))]


def blank_page(rng: random.Random, content: bytes) -> bytes:
    """Fill a page with zeros."""
    start = 4096 * rng.randrange(max(1, len(content) // 4096))
    return content[:start] + bytes(4096) + content[start + 4096 :]


def swap_pages(rng: random.Random, content: bytes) -> bytes:
    """Put a page where another one is."""
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    one, other = (rng.randrange(len(pages) or 1) for _ in range(2))
    if pages:
        pages[one], pages[other] = pages[other], pages[one]
    return b"".join(pages)


def append_bytes(rng: random.Random, content: bytes) -> bytes:
    """Add something at the end."""
    return content + rng.randbytes(rng.choice((1, 4096, 10_000)))


_BYTES: Final[Any] = (
    flip_bytes, flip_bytes, flip_bytes, flip_header, cut_short, blank_page, swap_pages,
    append_bytes,
)  # fmt: skip
