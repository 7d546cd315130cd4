"""Damage stores in every way that we can think of, by seed: what mailed folders may hold.

A mutant is a folder: files with other bytes, tables with other columns, types or values, another
manifest, other names, links and pipes. pyprof2 must read it, or refuse it in one line.
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tests import mutate_sqlite
from tests.mutate_trace import NUMBERS, OTHERS
from tests.synthetic_trace import synthetic_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MANIFEST: Final = "manifest.json"
_REAL: Final = 3
"""How many real traces: each must be parsed before the first mutant is made."""

_LONG: Final = "x" * 200_000
_TEXTS: Final = (
    "", " ", "\x00", "\x1b[31mred", "a\nb", "\u202e", "=1+1", _LONG, "<" * 50_000, "9" * 5000,
    "[", "[" * 100_000, "{}", "null", "[]", "[null]", "[{}]", '[{"shape":[-1]}]', '{"a":1}',
    '[{"shape":["a"],"dtype":7}]', '[{"shape":[1e400]}]', '{"f32":NaN}', '{"f32":-1}', '{"f32":0}',
    '[{"shape":[4611686018427387904,4611686018427387904],"dtype":"f32"}]', '{"f32":1e300}',
    '[{"value":{"collective":7}}]', '[[{"shape":[2]}],1,"a"]', "M=9999999999999999999,N=-1,K=x",
    "aten::mm", "memcpy", "step", "ProfilerStep#99999999999999999999", "cpu", "cuda", "yes",
)  # fmt: skip
"""Texts for columns of text, some of which are read as JSON."""
_INTS: Final = (
    None, 0, 1, -1, 7, 2**31, 2**53 + 1, 10**15, 2**62, 2**63 - 1, -(2**63), -(2**62),
)  # fmt: skip
_FLOATS: Final = (None, 0.0, -0.0, -1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"))
_TYPES: Final = (
    pa.string(), pa.large_string(), pa.binary(), pa.int8(), pa.int32(), pa.uint64(), pa.float32(),
    pa.float64(), pa.bool_(), pa.decimal128(38, 2), pa.timestamp("ns"), pa.date32(), pa.null(),
    pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64()),
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int64(), pa.int64()),
    pa.fixed_shape_tensor(pa.int64(), [2]),
)  # fmt: skip
_MORE: Final = (AttributeError, TypeError, OverflowError, RecursionError)
_FILE_NAMES: Final = (
    "rank-\u00b2.parquet", "rank-01.parquet", "rank--1.parquet", "rank-0.parquet ",
    "RANK-0.PARQUET",
    "rank-999999999.parquet", "rank-99999999999999999999.parquet", "rank-1.parquet", "x", ".hidden",
    "rank-0.parquet.bak", "a\nb", "\x1b[31m", "-o", "rank-\u0660.parquet", "part-0.parquet",
)  # fmt: skip
_TARGETS: Final = (
    "/dev/zero", "/dev/null", "/etc/passwd", "/", "..", ".", "missing", "manifest.json",
    "/dev/stdin", "../ops/rank-0.parquet",
)  # fmt: skip


@dataclass(frozen=True)
class Link:
    """A symbolic link in place of a file or folder."""

    target: str


@dataclass(frozen=True)
class Special:
    """What is no file: a pipe, or an empty folder."""

    kind: str


Entry: TypeAlias = bytes | Link | Special
Store: TypeAlias = dict[str, Entry]
"""What a store holds, by path inside of it."""


@dataclass(frozen=True)
class StoreMutant:
    """A damaged store: what it holds, and what was done to it."""

    entries: Store
    damage: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write it as the folder `path`; what cannot stand beside another entry is left out."""
        path.mkdir()
        for name, entry in self.entries.items():
            place = path / name
            with suppress(OSError):
                place.parent.mkdir(parents=True, exist_ok=True)
                _write(place, entry)


def _write(place: Path, entry: Entry) -> None:
    if isinstance(entry, bytes):
        place.write_bytes(entry)
    elif isinstance(entry, Link):
        place.symlink_to(entry.target)
    elif entry.kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()


def read_bases(paths: Sequence[Path] = ()) -> list[Store]:
    """Return the stores to damage: two of recordings made here, and those of real small traces."""
    with tempfile.TemporaryDirectory() as folder:
        paths = paths[:_REAL]
        made = Path(folder, "made.json"), Path(folder, "made.sqlite")
        made[0].write_text(json.dumps(synthetic_trace()))
        made[1].write_bytes(mutate_sqlite.read_bases()[1])
        return [_store_of(path, Path(folder, f"{n}")) for n, path in enumerate((*made, *paths))]


def _store_of(trace: Path, store: Path) -> Store:
    # In a process of its own: this one forks, and threads of Arrow's do not survive that.
    words = [sys.executable, "-m", "pyprof2", "parse", "-q", str(trace), "-o", str(store)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    files = (path for path in store.rglob("*") if path.is_file())
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(files)}


def mutate(seed: int, bases: Sequence[Store]) -> StoreMutant:
    """Return the mutant of that number."""
    rng = random.Random(seed)  # noqa: S311
    store = dict(rng.choice(bases))
    layers = rng.choice((_TABLES, _TABLES, _BYTES, _MANIFESTS, _NAMES, _TABLES + _MANIFESTS, _ALL))
    damage = []
    for change in rng.choices(layers, k=rng.choice((1, 1, 2, 3, 8))):
        # What Arrow refuses to write, or is not there any more, is no damage.
        with suppress(pa.ArrowException, OSError, LookupError, ValueError, *_MORE):
            change(rng, store)
            damage.append(change.__name__)
    return StoreMutant(store, tuple(damage))


def _a_table(rng: random.Random, store: Store) -> str:
    """Return the path of a table, if the store has one left."""
    return rng.choice([n for n, e in store.items() if n != MANIFEST and isinstance(e, bytes)])


def _content(store: Store, name: str) -> bytes:
    entry = store[name]
    return entry if isinstance(entry, bytes) else b""


# Tables.


def _rewritten(rng: random.Random, store: Store, change: Callable[[pa.Table], pa.Table]) -> None:
    """Put a table that Arrow reads in place of another."""
    name = _a_table(rng, store)
    out = io.BytesIO()
    compression = rng.choice(("zstd", "zstd", "snappy", "gzip", "none", "brotli", "lz4"))
    size = rng.choice((1 << 17, 1 << 17, 1, 7))
    table = change(pq.read_table(io.BytesIO(_content(store, name))))
    pq.write_table(table, out, compression=compression, row_group_size=size)
    store[name] = out.getvalue()


def _column_with(
    rng: random.Random, store: Store, make: Callable[[pa.Array, int], pa.Array | None]
) -> None:
    """Put what `make` returns in place of a column, given that and the number of rows."""

    def change(table: pa.Table) -> pa.Table:
        at = rng.randrange(table.num_columns)
        made = make(table.column(at).combine_chunks(), table.num_rows)
        return table if made is None else table.set_column(at, table.column_names[at], made)

    _rewritten(rng, store, change)


def columns_dropped(rng: random.Random, store: Store) -> None:
    """Take some columns away."""
    gone = rng.choice((1, 1, 3, 20))
    _rewritten(
        rng, store, lambda t: t.drop_columns(rng.sample(t.column_names, min(gone, t.num_columns)))
    )


def column_renamed(rng: random.Random, store: Store) -> None:
    """Give a column another name, or one twice."""

    def change(table: pa.Table) -> pa.Table:
        names = list(table.column_names)
        new = rng.choice(("", "a\nb", _LONG, names[0], names[-1], names[0].upper(), "\x1b[2J"))
        names[rng.randrange(len(names))] = new
        return table.rename_columns(names)

    _rewritten(rng, store, change)


def column_of_another_type(rng: random.Random, store: Store) -> None:
    """Cast a column, or put nulls of another type in its place."""
    kind = rng.choice(_TYPES)

    def make(column: pa.Array, rows: int) -> pa.Array:
        try:
            return column.cast(kind)
        except pa.ArrowException:
            return pa.nulls(rows, kind)

    _column_with(rng, store, make)


def column_of_nulls(rng: random.Random, store: Store) -> None:
    """Leave nothing in a column."""
    _column_with(rng, store, lambda column, rows: pa.nulls(rows, column.type))


def values_changed(rng: random.Random, store: Store) -> None:
    """Put a value that is far off into some rows of a column, or into all."""
    every = rng.choice((1, 1, 2, 7, 50))

    def make(column: pa.Array, rows: int) -> pa.Array | None:
        kind = column.type
        choice: Any = rng.choice(_INTS if pa.types.is_integer(kind) else _FLOATS)
        if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
            choice = rng.choice(_TEXTS)
        elif pa.types.is_boolean(kind):
            choice = rng.choice((True, False, None))
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return None
        values = [choice if i % every == 0 else v for i, v in enumerate(column.to_pylist())]
        plain = pa.array(values[:rows], kind.value_type if pa.types.is_dictionary(kind) else kind)
        return plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain

    for _ in range(rng.choice((1, 2, 8))):
        _column_with(rng, store, make)


def rows_changed(rng: random.Random, store: Store) -> None:
    """Repeat, drop or reorder rows."""

    def change(table: pa.Table) -> pa.Table:
        how = rng.choice(("none", "twice", "reversed", "some", "many"))
        rows = list(range(table.num_rows))
        kept = {
            "none": [], "twice": rows + rows, "reversed": rows[::-1],
            "some": [row for row in rows if rng.random() < 0.5], "many": rows * 20,
        }[how]  # fmt: skip
        return table.take(pa.array(kept, pa.int64()))

    _rewritten(rng, store, change)


def column_added(rng: random.Random, store: Store) -> None:
    """Add a column that no table has."""
    kind = rng.choice(_TYPES)
    _rewritten(rng, store, lambda t: t.append_column("more", pa.nulls(t.num_rows, kind)))


def schema_metadata(rng: random.Random, store: Store) -> None:
    """Write what pandas or Arrow may take for instructions beside the schema."""
    keys = (b"pandas", b"ARROW:schema", b"ARROW:extension:name", b"PANDAS_ATTRS", b"")
    text = rng.choice((b"{}", b"{", b"\xff", b'{"index_columns":["x"]}', b"[" * 50_000))
    _rewritten(rng, store, lambda t: t.replace_schema_metadata({rng.choice(keys): text}))


# Bytes.


def bytes_flipped(rng: random.Random, store: Store) -> None:
    """Change some bytes of a table, half of the time of its footer."""
    name = _a_table(rng, store)
    data = bytearray(_content(store, name))
    first = rng.choice((0, max(0, len(data) - 2000)))
    for _ in range(rng.choice((1, 1, 3, 30))):
        data[rng.randrange(first, len(data))] = rng.randrange(256)
    store[name] = bytes(data)


def footer_length(rng: random.Random, store: Store) -> None:
    """Give the footer another length."""
    name = _a_table(rng, store)
    length = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, rng.randrange(2**16)))
    store[name] = _content(store, name)[:-8] + length.to_bytes(4, "little") + b"PAR1"


def table_cut(rng: random.Random, store: Store) -> None:
    """Cut a table short, or take a piece out of it."""
    name = _a_table(rng, store)
    data = _content(store, name)
    at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    store[name] = rng.choice((data[:at], data[at:], data[:at] + data[end:], b"", b"PAR1"))


def tables_swapped(rng: random.Random, store: Store) -> None:
    """Put a table in the place of another one."""
    one, other = _a_table(rng, store), _a_table(rng, store)
    store[one], store[other] = store[other], store[one]


def bytes_appended(rng: random.Random, store: Store) -> None:
    """Add something before or behind a table."""
    name = _a_table(rng, store)
    more = rng.choice((b"\x00" * 99, b"PAR1", rng.randbytes(99), _content(store, name)))
    store[name] = rng.choice((_content(store, name) + more, more + _content(store, name)))


# The manifest.


def manifest_values(rng: random.Random, store: Store) -> None:
    """Put other values into the manifest, anywhere."""
    manifest = json.loads(_text(store))
    for _ in range(rng.choice((1, 1, 3))):
        spot = manifest
        while isinstance(spot, (dict, list)) and spot:
            keys: list[Any] = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
            key = rng.choice(keys)
            if not isinstance(spot[key], (dict, list)) or rng.random() < 0.3:
                spot[key] = rng.choice((*_TEXTS, *_INTS, *OTHERS, *NUMBERS))
                break
            spot = spot[key]
    store[MANIFEST] = json.dumps(manifest).encode("utf-8", "surrogatepass")


def manifest_keys(rng: random.Random, store: Store) -> None:
    """Drop, repeat or add keys of the manifest."""
    manifest = json.loads(_text(store))
    spot = rng.choice([manifest, *manifest["ranks"], *manifest["sources"]])
    how = rng.choice(("drop", "add", "empty", "ranks"))
    if how == "drop":
        del spot[rng.choice(list(spot))]
    elif how == "add":
        spot[rng.choice(_TEXTS)] = rng.choice((*_TEXTS, *_INTS))
    elif how == "empty":
        spot.clear()
    else:
        # Other damage may have put long texts into them.
        most = 1000 if len(_text(store)) < 1 << 14 else 2
        manifest["ranks"] = manifest["ranks"] * rng.choice((0, 2, most))
    store[MANIFEST] = json.dumps(manifest).encode("utf-8", "surrogatepass")


def manifest_text(rng: random.Random, store: Store) -> None:
    """Damage the text of the manifest."""
    text = _text(store)
    at = rng.randrange(len(text) + 1)
    store[MANIFEST] = rng.choice((
        b"", text[:at], text[:at] + rng.randbytes(3) + text[at:], b"[" * 100_000,
        b'{"a":' * 100_000, b"\xff\xfe" + text, text + text, text.replace(b"1", b"9" * 5000),
        text.replace(b"0", b"1e400"), text.replace(b'"', b"'"), text.replace(b"{", b"["), b"null",
    ))  # fmt: skip


def _text(store: Store) -> bytes:
    return _content(store, MANIFEST) or b"{}"


# Names, links and pipes.


def file_renamed(rng: random.Random, store: Store) -> None:
    """Give the table of a rank another name, in a folder that may have another one, too."""
    name = _a_table(rng, store)
    folder = rng.choice((Path(name).parent.name, rng.choice(("x", "OPS", "a\nb", "..ops"))))
    store[f"{folder}/{rng.choice(_FILE_NAMES)}"] = store.pop(name)


def file_added(rng: random.Random, store: Store) -> None:
    """Add a file, a copy of a table, or a rank of its own."""
    name = _a_table(rng, store)
    content = rng.choice((store[name], b"", rng.randbytes(99)))
    place = rng.choice((".", Path(name).parent.name, "more", f"{Path(name).parent.name}/deeper"))
    store[f"{place}/{rng.choice(_FILE_NAMES)}"] = content


def entry_missing(rng: random.Random, store: Store) -> None:
    """Take a file away."""
    del store[rng.choice(list(store))]


def entry_replaced(rng: random.Random, store: Store) -> None:
    """Put a link, a pipe or a folder in place of a file, or of the folder around it."""
    name = rng.choice(list(store))
    entry: Entry = rng.choice((Link(rng.choice(_TARGETS)), Special("pipe"), Special("folder")))
    folder = name.partition("/")[0]
    if rng.random() < 0.3 and folder != MANIFEST:
        for path in [path for path in store if path.startswith(f"{folder}/")]:
            del store[path]
        name = folder
    store[name] = entry


_TABLES: Final[Any] = (
    columns_dropped, column_renamed, column_of_another_type, column_of_another_type,
    column_of_nulls, values_changed, values_changed, values_changed, values_changed, rows_changed,
    column_added, schema_metadata,
)  # fmt: skip
_BYTES: Final[Any] = (
    bytes_flipped, bytes_flipped, bytes_flipped, footer_length, table_cut, tables_swapped,
    bytes_appended,
)  # fmt: skip
_MANIFESTS: Final[Any] = (manifest_values, manifest_values, manifest_keys, manifest_text)
_NAMES: Final[Any] = (file_renamed, file_added, entry_missing, entry_replaced, entry_replaced)
_ALL: Final[Any] = _TABLES + _BYTES + _MANIFESTS + _NAMES
