"""Frames of Python stacks as recorders write them: `path/file.py(123): function`."""

from __future__ import annotations

import re
import sys
from typing import Final

_FRAME: Final = re.compile(r"(?P<path>.+?)\((?P<line>\d+)\)(?:: .*)?", re.DOTALL)
_LIBRARY: Final = re.compile(
    r"""(?:^|/)(?:
        torch/|torchgen/|functorch/|pyprof2/          # the framework and ourselves
      | lib(?:64)?/python\d[\d.]*/(?!site-packages/|dist-packages/)   # the standard library
    )""",
    re.VERBOSE,
)

# A folder of the user's own may be named like a module, such as `code` or `types`.
_LIBRARY_PACKAGES: Final = {
    "asyncio", "collections", "compression", "concurrent", "ctypes", "curses", "dbm",
    "distutils", "email", "encodings", "ensurepip", "html", "http", "idlelib", "importlib",
    "json", "lib2to3", "logging", "multiprocessing", "pathlib", "pydoc_data", "re", "sqlite3",
    "string", "sysconfig", "tkinter", "tomllib", "turtledemo", "unittest", "urllib", "venv",
    "wsgiref", "xml", "xmlrpc", "zipfile", "zoneinfo",
}  # fmt: skip


def parse_frame(text: str) -> tuple[str, int] | None:
    """Return the path and line of a frame; None for built-ins and what is no frame."""
    match = _FRAME.fullmatch(text)
    return (match["path"], int(match["line"])) if match and len(match["line"]) < 10 else None


def is_user_path(path: str) -> bool:
    """Whether a file is the user's or a package's: not torch, pyprof2, or the standard library.

    Recorders cut the prefix of `sys.path` off, so the standard library shows as `threading.py`
    or `asyncio/events.py`.
    """
    path = path.replace("\\", "/")
    if path.startswith("<") or _LIBRARY.search(path):
        return False
    first, slash, _ = path.partition("/")
    library = _LIBRARY_PACKAGES if slash else sys.stdlib_module_names
    return first.removesuffix(".py") not in library


def user_source(frame: str, root: str | None = None) -> str | None:
    """Return `path:line` of a frame of user code (below `root`, if given), else None."""
    parsed = parse_frame(frame)
    if parsed is None or not is_user_path(parsed[0]):
        return None
    if root is not None and not parsed[0].startswith(root.rstrip("/") + "/"):
        return None
    return f"{parsed[0]}:{parsed[1]}"
