"""Files that are far away: fetched to be read, sent to be kept, by fsspec (extra `[remote]`).

An address is copied here whole, and what belongs at one is written here, and copied when it is
complete.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from pyprof2.errors import OutputExistsError, Pyprof2Error, RemoteError, without
from pyprof2.parsers.formats import ENDINGS
from pyprof2.store.folder import is_store
from pyprof2.store.places import MANIFEST, STDIN, STDIN_NAME, WEB, Address, place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STORE: Final = ".pyprof2"
_SECRETS: Final = re.compile(r"(?<=://)[^/@:\s]*:[^/@\s]*@|\?[^\s'\")]+=[^\s'\")]*")
_NO_RIGHTS: Final = re.compile(
    r"\b(40[13]|forbidden|unauthori[sz]ed|access ?denied|permission|credentials?)\b", re.IGNORECASE
)
_NO_CONNECTION: Final = re.compile(
    r"connect|endpoint|time(?:d )?out|resolve|reset|refused|unreachable|incomplete", re.IGNORECASE
)


def fetch(address: Address, folder: Path, endings: tuple[str, ...], *, progress: bool) -> Path:
    """Copy a file, a store, or the files of a folder into a new folder; return where it is.

    Args:
        address: where it is.
        folder: the new one.
        endings: of the names of those files of a folder that are wanted.
        progress: whether to show a bar on stderr.

    Raises:
        RemoteError: it cannot be read.
    """
    files, root = _filesystem(address)
    with _explained(address):
        names = _names_below(files, root, address, endings)
        target = folder / address.name
        target.parent.mkdir(parents=True)
        with _bar(address, shown=progress) as callback:
            if names is None:
                files.get_file(root, str(target), callback=callback)
            for name in names or ():
                own = target / name
                own.parent.mkdir(parents=True, exist_ok=True)
                files.get_file(f"{root.rstrip('/')}/{name}", str(own))
    if names == []:
        msg = f"{address}: no traces in this folder; name one that has {', '.join(endings)} files"
        raise RemoteError(msg)
    return target


def _names_below(
    files: Any, root: str, address: Address, endings: tuple[str, ...]
) -> list[str] | None:
    """Return the files to bring of a folder, as paths below it; None: it is a file."""
    is_store_name = address.name.endswith(_STORE)
    # A web server that lists nothing would send a recording of gigabytes to be looked at.
    if address.url.startswith(WEB) and not (is_store_name or address.url[-1] == "/"):
        return None
    if not files.isdir(root):
        if is_store_name:
            raise FileNotFoundError(root)
        return None
    holds_store = files.exists(f"{root.rstrip('/')}/{MANIFEST}")
    found = files.find(root, maxdepth=2 if holds_store else 1)
    below = [PurePosixPath(name[len(root.rstrip("/")) :].lstrip("/")) for name in found]
    # A name there leads to no other place here.
    plain = [
        path for path in below if path.name and not path.is_absolute() and ".." not in path.parts
    ]
    return [str(path) for path in plain if holds_store or path.name.endswith(endings)]


@contextlib.contextmanager
def _bar(address: Address, *, shown: bool) -> Iterator[Any]:
    from fsspec.callbacks import NoOpCallback, TqdmCallback

    if not shown:
        yield NoOpCallback()
        return
    words = {"desc": f"fetching {address.name}", "unit": "B", "unit_scale": True, "leave": False}
    callback = TqdmCallback(tqdm_kwargs=words | {"delay": 1})
    try:
        yield callback
    finally:
        callback.close()


# -- writing -----------------------------------------------------------------------------------


@contextlib.contextmanager
def written(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Give where to write what belongs at `path`: there, or here, to be copied in the end.

    Raises:
        OutputExistsError: something is at an address, and `force` is not set.
        RemoteError: nothing can be written there.
    """
    if not isinstance(path, Address):
        yield path
        return
    check_address(path, force=force)
    with tempfile.TemporaryDirectory(prefix="pyprof2-") as folder:
        local = Path(folder, path.name)
        try:
            yield local
        except Pyprof2Error as error:
            error.args = (str(error).replace(str(local), str(path)),)
            raise
        send(local, path)


def check_address(address: Address, *, force: bool) -> None:
    """Raise unless something may be written to an address; see `written`."""
    files, root = _filesystem(address)
    with _explained(address):
        is_there = files.exists(root)
        is_foreign = is_there and files.isdir(root) and not files.exists(f"{root}/{MANIFEST}")
    if is_there and not force:
        msg = f"{address}: exists; give another name, or --force to replace it"
        raise OutputExistsError(msg)
    if is_foreign:
        msg = f"{address}: a folder that is no store, and is not replaced; give another name"
        raise RemoteError(msg)


def send(local: Path, address: Address) -> None:
    """Copy a file or a store to an address; a store without a manifest is none, so that is last."""
    files, root = _filesystem(address)
    with _explained(address):
        if not local.is_dir():
            files.put_file(str(local), root)
            return
        old = set(files.find(root)) if files.exists(root) else set()
        manifest = f"{root}/{MANIFEST}"
        if files.exists(manifest):
            files.rm_file(manifest)
        own = sorted(path for path in local.rglob("*") if path.is_file())
        new = {path: f"{root}/{path.relative_to(local).as_posix()}" for path in own}
        for path in sorted(own, key=lambda path: new[path] == manifest):
            files.makedirs(new[path].rpartition("/")[0], exist_ok=True)
            files.put_file(str(path), new[path])
        for name in old - set(new.values()):
            files.rm_file(name)


# -- what is far away --------------------------------------------------------------------------


def _filesystem(address: Address) -> tuple[Any, str]:
    """Return what reads and writes where an address leads, and its path there."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        msg = f"{address}: {_without_packages(address)}"
        raise RemoteError(msg) from error
    with _explained(address):
        files, root = url_to_fs(address.url)
        # Others write there too.
        files.invalidate_cache()
        return files, root


@contextlib.contextmanager
def _explained(address: Address) -> Iterator[None]:
    """Say in one line what the packages below fsspec raise, each errors of its own."""
    try:
        yield
    except Pyprof2Error:
        raise
    except Exception as error:  # no class is common to them
        reason = _without_packages(address) if isinstance(error, ImportError) else _reason(error)
        msg = f"{address}: {reason}"
        raise RemoteError(msg) from error


def _without_packages(address: Address) -> str:
    scheme = address.url.partition(":")[0].lower()
    client = _CLIENTS.get(scheme)
    return without(f"{scheme}://", "fsspec", *([client] if client else []))


def _reason(error: Exception) -> str:
    text = _SECRETS.sub("", " ".join(str(error).split())) or type(error).__name__
    words = f"{type(error).__name__} {text}"
    reasons = {
        "no kind of address that fsspec knows; s3, gs, az, hdfs and https are some": (
            isinstance(error, ValueError) and "rotocol not known" in text
        ),
        "nothing can be written there; name a file here, or an object of a store": isinstance(
            error, NotImplementedError
        ),
        "nothing is there; look at the address": isinstance(error, FileNotFoundError),
        f"no rights ({text}); give credentials as fsspec takes them, or ask for access": (
            isinstance(error, PermissionError) or _NO_RIGHTS.search(words)
        ),
        f"no connection ({text}); look at the network, and try again": (
            isinstance(error, (ConnectionError, TimeoutError)) or _NO_CONNECTION.search(words)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), f"it failed: {words}")


_CLIENTS: Final = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
    "abfss": "adlfs", "http": "aiohttp", "https": "aiohttp", "hdfs": "pyarrow",
}  # fmt: skip
"""The package that fsspec reads a kind of address with."""
_LONGEST_PATH: Final = 4096


@dataclass(frozen=True)
class Readable:
    """Files and folders that can be opened.

    Attributes:
        paths: where they are.
        names: the beginning of paths in the text of messages, and what the user knows it by.
    """

    paths: list[Path]
    names: list[tuple[str, str]]

    def shown(self, text: str) -> str:
        """Return a text with the names that the user knows."""
        for ours, theirs in self.names:
            text = text.replace(ours, theirs)
        return text


@contextlib.contextmanager
def here(
    paths: Sequence[Path], folder: Path | None = None, *, progress: bool = False
) -> Iterator[Readable]:
    """Bring what is not here; errors inside get the names that the user knows.

    Args:
        paths: files, folders, addresses of such, or `-`, which is standard input.
        folder: a new one for what is brought; by default one that goes in the end.
        progress: whether to show a bar on stderr.

    Raises:
        RemoteError: something cannot be brought.
    """
    if not any(isinstance(path, Address) or path == STDIN for path in paths):
        yield Readable(list(paths), [])
        return
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyprof2-")))
        found = Readable([], [])
        for number, path in enumerate(paths):
            own = folder / str(number)
            if isinstance(path, Address):
                found.paths.append(fetch(path, own, ENDINGS, progress=progress))
                found.names.append((str(found.paths[-1]), str(path)))
            elif path == STDIN:
                own.mkdir(parents=True)
                found.paths.append(own / STDIN_NAME)
                found.names.append((str(found.paths[-1]), str(STDIN)))
                with found.paths[-1].open("wb") as file:
                    shutil.copyfileobj(sys.stdin.buffer, file)
            else:
                found.paths.append(path)
        try:
            yield found
        except Pyprof2Error as error:
            error.args = (found.shown(str(error)),)
            raise


def store_named_in(path: Path) -> Path | None:
    """Return the store whose path is all that a file holds, as `pyprof2 parse > FILE` leaves it."""
    if not path.is_file() or path.stat().st_size > _LONGEST_PATH:
        return None
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if len(lines) != 1 or not lines[0].endswith(_STORE) or "\0" in lines[0]:
        return None
    named = (place(lines[0]), path.parent / lines[0])
    return next((store for store in named if is_store(store)), None)
