"""The table of files and sockets in SECURITY.rst names every module that makes or opens one."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.house import source_files

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = (ROOT / "SECURITY.rst").read_text(encoding="utf-8")
MAKES: Final = {
    "mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile", "TemporaryFile",
    "SpooledTemporaryFile", "gettempdir", "mktemp", "bind", "mkfifo", "flock", "lockf",
    "cache_folder", "state_folder", "make_own_folder", "open_own", "SharedMemory",
}  # fmt: skip
"""Functions that make or open what other users of the machine could put in our way."""
SERVERS: Final = re.compile(r"\b\w*(?:HTTP|TCP|Unix\w*)Server\b")


def makes(text: str) -> set[str]:
    """Return which of these functions a module calls."""
    calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    names = {getattr(each, "attr", getattr(each, "id", "")) for each in calls}
    return names & MAKES | {*SERVERS.findall(text)}


def named() -> set[str]:
    """Return the modules that the table names."""
    return {*re.findall(r"``((?:pyprof2|parsers|analysis)/[\w/]+\.py)``", TABLE)}


def test_what_makes_files_or_sockets_is_found() -> None:
    assert makes("import tempfile\ntempfile.mkdtemp()\nx.bind('')") == {"mkdtemp", "bind"}
    assert makes("from tempfile import mkstemp\nmkstemp()") == {"mkstemp"}
    assert makes("class S(ThreadingHTTPServer): ...") == {"ThreadingHTTPServer"}
    assert makes("'tempfile.mkdtemp()'") == set()


def test_the_table_names_each_module_that_makes_files_or_sockets() -> None:
    making = {
        path.relative_to(ROOT).as_posix(): found
        for path, text in source_files().items()
        if (found := makes(text))
    }

    assert len(making) > 20
    assert sorted(making.keys() - named()) == []
    assert sorted(named() - making.keys()) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("pyprof2/own_files.py", "/tmp/pyprof2-watch-"),  # noqa: S108
        ("pyprof2/watch/daemon.py", "pyprof2-watch-"),
        ("pyprof2/watch/datagrams.py", "dynolog"),
        ("pyprof2/lsp/kept.py", "kept.json"),
        ("pyprof2/nvtx/observers.py", "observer.lock"),
        ("pyprof2/store/unfinished.py", ".claim.json"),
        ("pyprof2/watch/recording.py", ".watch-"),
    ],
)
def test_names_in_the_table_are_those_of_the_source(path: str, name: str) -> None:
    assert name in (ROOT / path).read_text(encoding="utf-8")
    assert name in TABLE
