"""A tab in TensorBoard: the page of `pyprof2 report`, for every recording below `--logdir`.

A *run* is a folder with recordings, as for the profiler's plugin; its *workers* are those that the
names of the files say, and each recording of a worker is a *span*. A page is made when it is first
asked for, in a process of its own, and kept in the user's cache until the recording changes.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
import sys
import threading
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request, Response

from pyprof2 import __version__
from pyprof2.own_files import cache_folder, is_own, make_own_folder
from pyprof2.parsers.formats import ENDINGS, stem_of
from pyprof2.reports.page.html import DATA, REPORT
from pyprof2.store.places import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable

_SPAN: Final = re.compile(r"(?P<worker>.+?)\.(?P<span>\d+)\.pt\.trace\.json(?:\.gz)?")
_STORE: Final = ".pyprof2"
_TRACE: Final = re.compile(rb'"(?:traceEvents|schemaVersion|deviceProperties)"\s*:')
_HEAD_BYTES: Final = 1 << 14
_PAGES: Final = 1
"""So many pages are made at a time: each takes a core, and the memory of its recording."""
_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Shown:
    """A recording or store below the folder of TensorBoard.

    Attributes:
        path: where it is.
        run: the folder that it is in, below that of TensorBoard.
        worker: who recorded it.
        span: which of the worker's recordings; empty: the name does not say.
        key: changes with the file, and with the version of pyprof2.
    """

    path: Path
    run: str
    worker: str
    span: str
    key: str


class Plugin(base_plugin.TBPlugin):
    """The tab, as TensorBoard's entry point `tensorboard_plugins` names it."""

    plugin_name = "pyprof2"

    def __init__(self, context: Any) -> None:
        self._folder = Path(context.logdir) if context.logdir else None
        self._pages = Pages((cache_folder() / "tensorboard").absolute())

    def is_active(self) -> bool:
        """Whether there is anything to show."""
        return self._folder is not None and next(iter(_recordings(self._folder)), None) is not None

    def frontend_metadata(self) -> Any:
        """Say where the program of the tab is."""
        return base_plugin.FrontendMetadata(
            es_module_path="/index.js", tab_name="pyprof2", disable_reload=False
        )

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        """Return the function that answers at each address below that of the plugin."""
        return {
            "/index.js": self._script,
            "/runs": self._runs,
            "/state": self._state,
            "/page": self._page,
        }

    def _shown(self) -> list[Shown]:
        return [] if self._folder is None else shown_below(self._folder)

    def _asked(self, request: Request) -> Shown | None:
        """Return the recording that is asked for; its key names no path that is not below."""
        key = request.args.get("key")
        return next((each for each in self._shown() if each.key == key), None)

    @Request.application
    def _script(self, _request: Request) -> Response:
        return _plain((DATA / "tensorboard.js").read_bytes(), "text/javascript")

    @Request.application
    def _runs(self, _request: Request) -> Response:
        names = ("run", "worker", "span", "key")
        found = [{name: getattr(each, name) for name in names} for each in self._shown()]
        return _plain(msgspec.json.encode(found), "application/json")

    @Request.application
    def _state(self, request: Request) -> Response:
        asked = self._asked(request)
        error = "this recording is gone" if asked is None else None
        ready = False
        if asked is not None:
            ready, error = self._pages.state(asked)
        return _plain(msgspec.json.encode({"ready": ready, "error": error}), "application/json")

    @Request.application
    def _page(self, request: Request) -> Response:
        asked = self._asked(request)
        page = None if asked is None else self._pages.page(asked)
        if page is None:
            return Response("no such page", status=404, mimetype="text/plain")
        response = _plain(page.read_bytes(), "text/html")
        response.headers["Content-Security-Policy"] = REPORT.policy
        return response


def _plain(content: bytes, kind: str) -> Response:
    response = Response(content, content_type=f"{kind}; charset=utf-8")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-cache"
    return response


class Pages:
    """Pages that are made in the background, and kept.

    Args:
        folder: where they are kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._executor = ThreadPoolExecutor(_PAGES, thread_name_prefix="pyprof2-page")
        self._made: dict[str, Future[str | None]] = {}
        self._lock = threading.Lock()

    def state(self, shown: Shown) -> tuple[bool, str | None]:
        """Return whether a page is ready, and why it never will be; begin to make it."""
        if self.page(shown) is not None:
            return True, None
        with self._lock:
            making = self._made.get(shown.key)
            if making is None:
                making = self._made[shown.key] = self._executor.submit(self._make, shown)
        if not making.done():
            return False, None
        error = making.result()
        if error is None and self.page(shown) is None:
            # The cache was emptied meanwhile.
            with self._lock:
                self._made.pop(shown.key, None)
        return False, error

    def page(self, shown: Shown) -> Path | None:
        """Return the page, if it is ready."""
        path = self._folder / f"{shown.key}.html"
        return path if is_own(self._folder, alone=True) and is_own(path) else None

    def _make(self, shown: Shown) -> str | None:
        """Make a page; return why it cannot be made."""
        try:
            make_own_folder(self._folder.parent)
            make_own_folder(self._folder)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        target = self._folder / f"{shown.key}.html"
        names = str(shown.path.absolute()), "-o", str(target)
        done = subprocess.run(  # noqa: S603 -- a program of ours, and a file of the user's
            [sys.executable, "-P", "-m", "pyprof2", "report", "-q", "--force", *names],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
            return lines[-1].removeprefix("pyprof2: ")
        pages = sorted(self._folder.glob("*.html"), key=lambda page: page.stat().st_mtime)
        for old in pages[:-_KEPT]:
            old.unlink(missing_ok=True)
        return None


def shown_below(folder: Path) -> list[Shown]:
    """Return what can be shown below a folder, in order of run, worker and span."""
    found = [_shown(path, folder) for path in _recordings(folder)]
    return sorted(found, key=lambda each: (each.run, each.worker, int(each.span or 0), each.path))


def _shown(path: Path, folder: Path) -> Shown:
    match = _SPAN.fullmatch(path.name)
    name = path.name.removesuffix(_STORE) if path.suffix == _STORE else stem_of(path.name)
    worker, span = (match["worker"], match["span"]) if match else (name, "")
    about = (path / MANIFEST if path.is_dir() else path).stat()
    facts = f"{path.absolute()}\n{about.st_mtime_ns}\n{about.st_size}\n{__version__}"
    key = hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Shown(path, path.parent.relative_to(folder).as_posix(), worker, span, key)


def _recordings(folder: Path) -> list[Path]:
    """Return recordings and stores below a folder; a recording beside its store is that store."""
    found = []
    for place, folders, files in os.walk(folder):
        stores = [name for name in folders if Path(place, name, MANIFEST).is_file()]
        folders[:] = [each for each in folders if each not in stores and not each.startswith(".")]
        found += [Path(place, name) for name in stores]
        parsed = {name.removesuffix(_STORE) for name in stores}
        names = (n for n in files if n.endswith(ENDINGS) and stem_of(n) not in parsed)
        found += [path for path in (Path(place, name) for name in names) if _is_recording(path)]
    return found


def _is_recording(path: Path) -> bool:
    """Whether a file is one, by its head: all kinds of JSON lie beside what TensorBoard shows."""
    if not path.name.endswith((".json", ".gz")):
        return not path.name.startswith(".")
    if ".pt.trace.json" in path.name:
        return True
    try:
        opened = gzip.open if path.name.endswith(".gz") else open
        with opened(path, "rb") as file:
            return _TRACE.search(file.read(_HEAD_BYTES)) is not None
    except (OSError, EOFError, zlib.error):
        return False
