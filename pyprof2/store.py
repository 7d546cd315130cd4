"""The store: a folder of Parquet files, one folder per canonical table, one file per rank.

It is written to a temporary sibling and renamed, so that a killed run leaves no half store.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pyprof2.errors import OutputExistsError, SchemaError, StoreError
from pyprof2.tables import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

MANIFEST: Final = "manifest.json"
_ROW_GROUP: Final = 1 << 17


class StoreWriter:
    """Writes a store; as a context manager it renames it into place, or leaves nothing.

    Raises:
        OutputExistsError: `path` exists and `force` is not given.
        StoreError: the folder cannot be written.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        refuse_to_overwrite(path, force=force)
        # A link stays, and what it points to is replaced.
        self.path = path = path.resolve() if path.is_symlink() else path
        self._force = force
        _restore_abandoned(path)
        refuse_to_overwrite(path, force=force)
        if path.exists() and not is_store(path):
            msg = (
                f"{path}: not a pyprof2 store, so --force does not replace it; name another output"
            )
            raise OutputExistsError(msg)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(path)
            prefix = f".{path.name}.{os.getpid()}."
            self.folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=path.parent))
        except OSError as error:
            raise StoreError(_os_message(path, error)) from error

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
            raise StoreError(_os_message(self.path, failure)) from failure
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
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
        manifest = {"schema_version": SCHEMA_VERSION, **manifest}
        (self.folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")

    def _publish(self) -> None:
        old = None
        # mkdtemp makes folders for the owner alone; a store is as readable as any other file.
        umask = os.umask(0)
        os.umask(umask)
        self.folder.chmod(0o777 & ~umask)
        if self.path.exists():
            refuse_to_overwrite(self.path, force=self._force)
            old = self.folder.with_suffix(".old")
            self.path.rename(old)
        try:
            self.folder.rename(self.path)
        except OSError:
            if old is not None:
                old.rename(self.path)
            raise
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)


def write_table(folder: Path, name: str, rank: int, parts: Iterable[pa.Table]) -> int:
    """Write one rank's rows of a canonical table, part by part; return their bytes in memory.

    Raises:
        TableError: a part does not have the table's columns.
    """
    table = TABLES[name]
    path = folder / name
    path.mkdir(exist_ok=True)
    nbytes = 0
    with pq.ParquetWriter(
        path / f"rank-{rank}.parquet", table.schema(), compression="zstd", compression_level=1
    ) as writer:
        for part in parts:
            checked = table.conform(part)
            nbytes += checked.nbytes
            writer.write_table(checked, row_group_size=_ROW_GROUP)
    return nbytes


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
        manifest = json.loads((path / MANIFEST).read_text())
        version = manifest["schema_version"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        msg = (
            f"{path}: no readable {MANIFEST}, so not a pyprof2 store; make one with 'pyprof2 parse'"
        )
        raise StoreError(msg) from error
    if version != SCHEMA_VERSION:
        sources = _source_paths(manifest)
        msg = (
            f"{path}: a store of schema version {version}, this pyprof2 reads {SCHEMA_VERSION}; "
            f"make it anew with 'pyprof2 parse --force -o {shlex.quote(str(path))} {sources}'"
        )
        raise SchemaError(msg)
    return manifest  # type: ignore[no-any-return]


def _source_paths(manifest: dict[str, Any]) -> str:
    """Return what the store was made from, as far as another version's manifest tells it."""
    sources = manifest.get("sources")
    paths = [s.get("path") for s in sources or [] if isinstance(s, dict)]
    return " ".join(shlex.quote(p) for p in paths if isinstance(p, str)) or "TRACE"


def read_table(path: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a canonical table of all ranks, in order of rank.

    Raises:
        StoreError: a file is missing or damaged.
        TableError: a file does not have the table's columns.
    """
    table = TABLES[name]
    schema = table.schema(columns)
    files = sorted((path / name).glob("rank-*.parquet"), key=_rank_of)
    try:
        # Each file is read by itself: their dictionaries differ.
        parts = [pq.ParquetFile(file).read(columns=schema.names) for file in files]
    except (OSError, pa.ArrowException) as error:
        kind = type(error).__name__
        msg = f"{path / name}: damaged ({kind}); make the store anew with 'pyprof2 parse --force'"
        raise StoreError(msg) from error
    if not parts:
        msg = f"{path / name}: missing; make the store anew with 'pyprof2 parse --force'"
        raise StoreError(msg)
    whole = pa.concat_tables(parts).unify_dictionaries()
    return whole if columns is not None else table.conform(whole)


def _rank_of(file: Path) -> int:
    digits = file.stem.removeprefix("rank-")
    return int(digits) if digits.isdigit() else -1


def refuse_to_overwrite(path: Path, *, force: bool) -> None:
    """Raise OutputExistsError if `path` exists and `force` is not given."""
    if not force and (path.exists() or path.is_symlink()):
        msg = f"{path}: exists already; give another name with -o, or --force to replace it"
        raise OutputExistsError(msg)


def _abandoned(path: Path, suffix: str) -> list[Path]:
    """Return what runs of pyprof2 that were killed left beside `path`."""
    name = re.compile(rf"\.{re.escape(path.name)}\.(\d+)\.[^.]*{re.escape(suffix)}")
    matches = [name.fullmatch(folder.name) for folder in path.parent.glob(f".*{suffix}")]
    return [path.parent / m[0] for m in matches if m and not _is_running(int(m[1]))]


def _restore_abandoned(path: Path) -> None:
    """Put the old store back if a run was killed after it moved it aside."""
    for folder in _abandoned(path, ".old"):
        if not path.exists() and is_store(folder):
            folder.rename(path)


def _remove_abandoned(path: Path) -> None:
    for folder in _abandoned(path, ".partial") + (
        _abandoned(path, ".old") if path.exists() else []
    ):
        shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError, OverflowError):
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        return True
    return False


def _os_message(path: Path, error: OSError) -> str:
    return (
        f"{path}: cannot write ({error.strerror or error}); give a folder you may write to with -o"
    )
