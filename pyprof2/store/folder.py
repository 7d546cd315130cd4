"""The store: a folder of Parquet files, one folder per canonical table, one file per rank.

It is written to a temporary sibling and renamed, so that a killed run leaves no half store. Stores
are mailed around: what is read is checked first, and nothing is replaced that is none.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import json
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, Self, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pyprof2 import __version__
from pyprof2.errors import (
    OutputExistsError,
    Pyprof2Error,
    SchemaError,
    StoreError,
    is_shortage,
    shortage,
)
from pyprof2.frames import Code  # noqa: TC001 - what reads a manifest looks it up
from pyprof2.own_files import is_own
from pyprof2.result_tables import RESULTS
from pyprof2.store.parts import TableParts, find_fault
from pyprof2.store.places import MANIFEST
from pyprof2.store.unfinished import CLAIM, Claim, abandoned_claim
from pyprof2.tables import SCHEMA_VERSION, TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from types import TracebackType

STORED: Final = TABLES | RESULTS
"""The tables of a store, by name."""

TOOL: Final = "pyprof2"
_ROW_GROUP: Final = 1 << 17
_PAGES: Final[dict[str, int]] = {"write_batch_size": _ROW_GROUP} | (
    {"max_rows_per_page": _ROW_GROUP} if int(pa.__version__.partition(".")[0]) >= 23 else {}
)
"""A column of a row group is one page: it is read as a whole. Arrow 23 began to cut after 20,000
rows, which makes files a sixth larger and takes more time to write and to read."""
_RANK_FILE: Final = re.compile(r"rank-(0|[1-9][0-9]{0,8})\.parquet", re.ASCII)
_PARTIAL: Final = ".partial"
_OLD: Final = ".old"
_LARGEST_MANIFEST: Final = 1 << 26
_SMALL_TABLE: Final = 1 << 30
"""Bytes in memory that any table may take: a million kernels that are all alike take 0.6 GB."""
_MOST_EXPANSION: Final = 500
"""A larger table of a real recording takes some 20 times the memory of its file."""


class _Entry(TypedDict):
    file: str
    batch_size: int
    on_cpu: bool


class _Rank(TypedDict):
    rank: int
    source: NotRequired[str]
    problems: dict[str, int]
    skipped: dict[str, int]
    annotated: NotRequired[dict[str, int]]
    scanned: NotRequired[dict[str, int]]
    pairs_recorded: NotRequired[int]
    pairs_agree: NotRequired[int]
    nodes_lost: NotRequired[int]
    counter_values: NotRequired[int]
    entry: NotRequired[_Entry]
    claimed: NotRequired[bool]


class _Failed(TypedDict):
    path: str
    error: str


class _Manifest(TypedDict):
    schema_version: int
    tool: str
    sources: list[dict[str, str | int]]
    ranks: list[_Rank]
    code: NotRequired[list[Code]]
    failed: NotRequired[list[_Failed]]
    source_root: NotRequired[str | None]


class StoreWriter:
    """Writes a store; as a context manager it renames it into place, or leaves nothing.

    Raises:
        OutputExistsError: `path` exists and `force` is not given.
        StoreError: the folder cannot be written.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        refuse_to_overwrite(path, force=force)
        self.path = path
        self._force = force
        _recover(path)
        refuse_to_overwrite(path, force=force)
        _refuse_what_is_no_store(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = tempfile.mkdtemp(prefix=f".{path.name}.", suffix=_PARTIAL, dir=path.parent)
            self.folder = Path(folder)
            self._claim = Claim(self.folder, old=self._old.name)
        except OSError as error:
            raise StoreError(_os_message(path, error)) from error

    @property
    def _old(self) -> Path:
        """Where the store that is replaced stands until the new one is in its place."""
        return self.folder.with_suffix(_OLD)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._publish()
        except OSError as failure:
            if is_shortage(failure):
                raise shortage(failure, self.path) from failure
            raise StoreError(_os_message(self.path, failure)) from failure
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._claim.release(self.path if error is None else self.folder)
        if error is not None and is_shortage(error) and not isinstance(error, Pyprof2Error):
            raise shortage(error, self.path) from error
        if isinstance(error, OSError):
            raise StoreError(_os_message(self.path, error)) from error

    def scratch(self, name: str) -> Path:
        """Return a new folder inside the unfinished store for what is not to stay."""
        folder = self.folder / f"scratch-{name}"
        folder.mkdir()
        return folder

    def finish(self, manifest: dict[str, Any]) -> None:
        """Write the manifest and drop the scratch folders: the store is complete."""
        for folder in self.folder.glob("scratch-*"):
            shutil.rmtree(folder)
        head = {"schema_version": SCHEMA_VERSION, "tool": f"{TOOL} {__version__}"}
        manifest = head | {"sources": [], "ranks": []} | manifest
        (self.folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")

    def _publish(self) -> None:
        old = None
        # mkdtemp makes folders for the owner alone; a store is as readable as any other file.
        umask = os.umask(0)
        os.umask(umask)
        self.folder.chmod(0o777 & ~umask)
        if self.path.exists():
            refuse_to_overwrite(self.path, force=self._force)
            _refuse_what_is_no_store(self.path)
            old = self._old
            self.path.rename(old)
        try:
            self.folder.rename(self.path)
        except OSError:
            if old is not None:
                old.rename(self.path)
            raise
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)


class TableWriters:
    """Writes one rank's rows of tables, in parts; as a context manager it closes the files.

    Attributes:
        nbytes: what the rows take in memory.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.nbytes = 0
        self._folder, self._rank = folder, rank
        self._files = contextlib.ExitStack()
        self._writers: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def write(self, name: str, parts: Iterable[pa.Table]) -> None:
        """Append rows to a table.

        Raises:
            TableError: a part does not have the table's columns.
        """
        if name not in self._writers:
            self._writers[name] = self._files.enter_context(self._open(name))
        for part in parts:
            checked = STORED[name].conform(part)
            self.nbytes += checked.nbytes
            self._writers[name].write_table(checked, row_group_size=_ROW_GROUP)

    def _open(self, name: str) -> pq.ParquetWriter:
        schema, path = STORED[name].schema(), self._folder / name
        path.mkdir(exist_ok=True)
        types = pa.types
        texts = [f.name for f in schema if types.is_dictionary(f.type) or types.is_string(f.type)]
        whole = {f.name: "DELTA_BINARY_PACKED" for f in schema if types.is_int64(f.type)}
        # Numbers are mostly distinct: a dictionary of them costs time, and makes files larger.
        # Whole ones are written as differences, which leaves the compression half as much to look
        # at. Nobody asks for the least and the greatest of texts, which are dear to find. With zstd
        # files are a fifth smaller, and take a quarter longer to write and to read.
        return pq.ParquetWriter(
            path / f"rank-{self._rank}.parquet",
            schema,
            compression="lz4",
            use_dictionary=texts or False,
            column_encoding=whole or None,
            write_statistics=[name for name in schema.names if name not in texts] or False,
            **_PAGES,
        )


def write_table(folder: Path, name: str, rank: int, parts: Iterable[pa.Table]) -> int:
    """Write one rank's rows of a table, part by part; return their bytes in memory.

    Raises:
        TableError: a part does not have the table's columns.
    """
    with TableWriters(folder, rank) as writers:
        writers.write(name, parts)
    return writers.nbytes


def is_store(path: Path) -> bool:
    """Whether `path` is a folder with a manifest."""
    return (path / MANIFEST).is_file()


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest.

    Raises:
        StoreError: it is missing or damaged.
        SchemaError: the store was written by another schema version.
    """
    try:
        manifest = _load_manifest(path)
        version = manifest["schema_version"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        msg = (
            f"{path}: no readable {MANIFEST}, so not a pyprof2 store; make one with 'pyprof2 parse'"
        )
        raise StoreError(msg) from error
    if version != SCHEMA_VERSION:
        # As far as another version's manifest says it.
        listed = [s.get("path") for s in manifest.get("sources") or [] if isinstance(s, dict)]
        sources = " ".join(shlex.quote(p) for p in listed if isinstance(p, str)) or "TRACE"
        msg = (
            f"{path}: a store of schema version {version}, this pyprof2 reads {SCHEMA_VERSION}; "
            f"make it anew with 'pyprof2 parse --force -o {shlex.quote(str(path))} {sources}'"
        )
        raise SchemaError(msg)
    try:
        msgspec.convert(manifest, _Manifest)
    except msgspec.ValidationError as error:
        msg = f"{path / MANIFEST}: damaged ({error}); make the store anew with 'pyprof2 parse'"
        raise StoreError(msg) from error
    return manifest


def _load_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_MANIFEST:
        raise ValueError
    manifest: dict[str, Any] = json.loads(file.read_bytes())
    return manifest


def read_table(path: Path, name: str, columns: Collection[str] | None = None) -> pa.Table:
    """Return the rows of a table of all ranks, in order of rank.

    Raises:
        StoreError: a file is missing or damaged.
        TableError: a file does not have the table's columns.
    """
    # Each file is read by itself: their dictionaries differ.
    parts = [read_rank(path, name, rank, columns) for rank in ranks_of(path, name)]
    return pa.concat_tables(parts).unify_dictionaries()


def ranks_of(path: Path, name: str = "trace") -> list[int]:
    """Return the ranks that have a table of this name, in order.

    Raises:
        StoreError: there is none.
    """
    try:
        ranks = [rank for rank, _ in _rank_files(path / name)]
    except OSError as error:
        raise _damaged(path / name, error) from error
    if not ranks:
        msg = f"{path / name}: missing; make the store anew with 'pyprof2 parse --force'"
        raise StoreError(msg)
    return ranks


def read_rank(path: Path, name: str, rank: int, columns: Collection[str] | None = None) -> pa.Table:
    """Return the rows of a table of one rank, with the columns named, in the table's order.

    Raises:
        StoreError: the file is missing or damaged.
        TableError: it does not have the table's columns.
    """
    try:
        return _read_file(_file_of(path, name, rank), rank, STORED[name], columns)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path / name, error) from error


def check_tables(path: Path) -> None:
    """Read every row of every table of a store.

    Raises:
        StoreError: the manifest or a table is damaged.
        SchemaError: the store was written by another schema version.
    """
    read_manifest(path)
    for name, table in STORED.items():
        for rank, _ in _rank_files(path / name):
            parts = open_parts(path, name, rank)
            for part in range(len(parts)):
                parts.read(part, table.names)


def open_parts(path: Path, name: str, rank: int, *, own: bool = False) -> TableParts:
    """Return a table of one rank, whose rows are read part by part.

    `own`: we have just written it, and need not look whether its keys are of rows that exist.

    Raises:
        StoreError: the file is missing or damaged.
    """
    try:
        file = _file_of(path, name, rank)
        # Asked for each part again, and each time it is the whole metadata of another file.
        row_count = functools.cache(functools.partial(_row_count, file))
        parts = TableParts(file, STORED[name], None if own else row_count)
        _refuse_expansion(file, parts.parquet.metadata, in_parts=True)
        what = _fault_of_columns(parts.parquet.schema_arrow, STORED[name].schema())
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path / name, error) from error
    if what is not None:
        msg = f"{file}: {what}; make the store anew with 'pyprof2 parse --force'"
        raise StoreError(msg)
    return parts


def _file_of(path: Path, name: str, rank: int) -> Path:
    # Not found by listing the folder: with many ranks that would be done for each of them.
    file = path / name / f"rank-{rank}.parquet"
    for entry in (path / name, file):
        if entry.is_symlink() or (entry is file and file.exists() and not file.is_file()):
            raise _foreign(entry)
    if not file.exists():
        msg = f"{path / name}: missing; make the store anew with 'pyprof2 parse --force'"
        raise StoreError(msg)
    return file


def _foreign(entry: Path) -> StoreError:
    return StoreError(f"{entry}: not the table of a rank; remove it, or make the store anew")


def _damaged(path: Path, error: Exception) -> Pyprof2Error:
    if is_shortage(error):
        return shortage(error, path)
    kind = type(error).__name__
    return StoreError(f"{path}: damaged ({kind}); make the store anew with 'pyprof2 parse --force'")


def _rank_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of a table in order of their ranks.

    Raises:
        StoreError: there is something else, or a link: a store is what lies in its folder.
    """
    if not folder.exists():
        return []
    files = []
    for entry in [folder, *folder.iterdir()]:
        number = _RANK_FILE.fullmatch(entry.name)
        if entry.is_symlink() or (entry is not folder and not (number and entry.is_file())):
            raise _foreign(entry)
        if number:
            files.append((int(number[1]), entry))
    return sorted(files)


def _read_file(file: Path, rank: int, table: Table, columns: Collection[str] | None) -> pa.Table:
    """Return the columns of one rank.

    Raises:
        StoreError: it would take far more memory than a table of its size does, has columns of
            other types, keys of rows that do not exist, or is of another rank.
    """
    # Nothing is read ahead: threads of Arrow's take longer to start than a small table to read.
    parquet = pq.ParquetFile(file, pre_buffer=False)
    _refuse_expansion(file, parquet.metadata)
    schema = table.schema(None if columns is None else {"rank", *columns})
    what = _fault_of_columns(parquet.schema_arrow, schema)
    if what is None:
        found = parquet.read(columns=schema.names, use_threads=parquet.num_row_groups > 1)
        what = find_fault(table, found, lambda name: _row_count(file, name))
        if found["rank"].unique().to_pylist() not in ([], [rank]):
            what = "rows of other ranks"
        if table.name == "summary" and found.num_rows != 1:
            what = "not one row"
        if what is None:
            return table.conform(found, columns)
    msg = f"{file}: {what}; make the store anew with 'pyprof2 parse --force'"
    raise StoreError(msg)


def _fault_of_columns(found: pa.Schema, wanted: pa.Schema) -> str | None:
    """Return what is wrong with the columns of a file, in words; None if nothing is."""
    lacking = [name for name in wanted.names if found.get_field_index(name) < 0]
    if lacking:
        return f"without columns, or with two of one name ({', '.join(lacking)})"
    unlike = [field.name for field in wanted if found.field(field.name).type != field.type]
    return f"columns of other types ({', '.join(unlike)})" if unlike else None


def _row_count(file: Path, name: str) -> int:
    """Return how many rows another table has of the rank of `file`; a missing one is no bound.

    Raises:
        StoreError: that table is damaged.
    """
    other = file.parent.parent / name / file.name
    try:
        return pq.read_metadata(other).num_rows if other.is_file() else sys.maxsize
    except (OSError, pa.ArrowException) as error:
        raise _damaged(other.parent, error) from error


def _refuse_expansion(file: Path, metadata: pq.FileMetaData, *, in_parts: bool = False) -> None:
    """Raise for a small file that claims to hold very much, before it is read.

    What is read part by part is in memory one part at a time.
    """
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    pages = [group.total_byte_size for group in groups]
    rows = [group.num_rows for group in groups]
    together = functools.partial(max, default=0) if in_parts else sum
    memory = max(together(pages), 8 * together(rows) * metadata.num_columns)
    if memory > max(_SMALL_TABLE, _MOST_EXPANSION * file.stat().st_size):
        msg = (
            f"{file}: would take {memory / 1e9:.1f} GB, more than {_MOST_EXPANSION} times its size;"
            " make the store anew with 'pyprof2 parse --force'"
        )
        raise StoreError(msg)


def refuse_to_overwrite(path: Path, *, force: bool) -> None:
    """Raise OutputExistsError if `path` exists and `force` is not given."""
    if not force and (path.exists() or path.is_symlink()):
        msg = f"{path}: exists already; give another name with -o, or --force to replace it"
        raise OutputExistsError(msg)


def _refuse_what_is_no_store(path: Path) -> None:
    """Raise unless `path` is free, or a store and nothing else."""
    if path.is_symlink():
        msg = f"{path}: is a link, which --force does not replace; name what it points to"
        raise OutputExistsError(msg)
    if path.exists() and not _is_only_a_store(path):
        msg = f"{path}: not a pyprof2 store, so --force does not replace it; name another output"
        raise OutputExistsError(msg)


def _is_only_a_store(path: Path) -> bool:
    """Whether a folder holds a manifest of ours, of any version, tables of ranks, and no more."""
    try:
        manifest = _load_manifest(path)
        ours = str(manifest["tool"]).split()[0] == TOOL and "schema_version" in manifest
        return ours and all(
            entry.name in (MANIFEST, CLAIM) or bool(entry.is_dir() and _rank_files(entry))
            for entry in path.iterdir()
        )
    except (OSError, ValueError, LookupError, TypeError, RecursionError, StoreError):
        return False


def _recover(path: Path) -> None:
    """Finish or undo what runs of ours on this host, which were killed, left at `path`.

    Killed before the new store was in place, a run leaves its unfinished folder and perhaps the
    old store under another name; afterwards, the claim in the new store and the old one.
    """
    for folder in path.parent.glob(f".{glob.escape(path.name)}.*{_PARTIAL}"):
        if abandoned_claim(folder) is None:
            continue
        old = folder.with_suffix(_OLD)
        if not path.exists() and is_own(old) and _is_only_a_store(old):
            old.rename(path)
        _remove_own(old)
        _remove_own(folder)
    if (facts := abandoned_claim(path)) is not None:
        name = Path(facts.get("old", "")).name
        if name.startswith(f".{path.name}.") and name.endswith(_OLD):
            _remove_own(path.parent / name)
        (path / CLAIM).unlink(missing_ok=True)


def _remove_own(folder: Path) -> None:
    if is_own(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _os_message(path: Path, error: OSError) -> str:
    remedy = "give a folder you may write to with -o"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "allow more open files: ulimit -n 1024"
    return f"{path}: cannot write ({error.strerror or error}); {remedy}"
