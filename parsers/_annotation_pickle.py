"""Unpickle what torch notes of the nodes of graphs, without running anything of it; a program.

`graph_annotations.py` starts this file in a process of its own, with nothing but the standard
library: a pickle may be made by anybody. `torch.cuda._graph_annotations` pickles a
`defaultdict(list)`: two globals and one call, in the place of which stand objects of ours. All else
but plain data is refused, and memory and time of the process are limited.

The result, on stdout, is a JSON object: a text by the id of each node.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import pickletools
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

REFUSED: Final = 3
"""The exit code with which stderr has a line that says why."""
_FILE_MAX: Final = 1 << 26

_MEMORY: Final = 1 << 30
_SECONDS: Final = 60
_LONGEST_TEXT: Final = 1 << 14
_MOST_DEPTH: Final = 8
_DICT: Final = ("collections", "defaultdict")
_LISTS: Final = (("builtins", "list"), ("__builtin__", "list"))
_PLAIN: Final = frozenset({
    "MARK", "STOP", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT",
    "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_LIST", "LIST", "APPEND",
    "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT",
    "SETITEM", "SETITEMS", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET",
    "LONG_BINGET", "PROTO", "FRAME", "GLOBAL", "STACK_GLOBAL", "REDUCE",
})  # fmt: skip
"""The opcodes that such a file may have."""


class _RefusedError(Exception):
    """The file asks for more than such a file has, or is damaged."""


def _refuse(why: str) -> NoReturn:
    """Refuse the file.

    Raises:
        _RefusedError: always.
    """
    raise _RefusedError(why)


class _ListFactory:
    """Stands for `list`, and cannot be called."""


class _Notes(dict[Any, Any]):
    """Stands for `defaultdict(list)`."""

    def __init__(self, factory: object) -> None:
        if factory is not _ListFactory:
            _refuse("a dictionary of another kind")
        super().__init__()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a global."""
        if (module, name) == _DICT:
            return _Notes
        if (module, name) in _LISTS:
            return _ListFactory
        _refuse(f"it asks for {module}.{name}")


def read_texts(data: bytes) -> dict[str, str]:
    """Return a text by the id of each node.

    Raises:
        _RefusedError: it is not what torch writes.
    """
    calls = 0
    for opcode, argument, _ in pickletools.genops(data):
        calls += opcode.name == "REDUCE"
        is_index = opcode.name.endswith(("PUT", "GET"))
        if opcode.name not in _PLAIN or calls > 1 or (is_index and int(argument or 0) > len(data)):
            _refuse(f"opcode {opcode.name}")
        if isinstance(argument, int) and abs(argument) >= 1 << 64:
            _refuse("a number of more than 64 bits")
    found = _Unpickler(io.BytesIO(data), encoding="utf-8").load()
    if not isinstance(found, _Notes):
        _refuse("no dictionary of nodes")
    texts = {}
    for node, notes in found.items():
        if type(node) is not int or type(notes) is not list:
            _refuse("a node without an id, or without a list")
        # The later value of a key that comes again holds.
        merged: dict[str, str] = {}
        for note in notes:
            for key, value in note.items() if type(note) is dict else [("", note)]:
                merged[_plain(key)] = _plain(value)
        shown = [f"{key}={value}" if key else value for key, value in merged.items()]
        if text := ", ".join(shown)[:_LONGEST_TEXT]:
            texts[str(node)] = text
    return texts


def _plain(value: Any, depth: int = 0) -> str:
    """Return plain data as text."""
    if value is None or type(value) in (bool, int, float, str):
        return str(value)[:_LONGEST_TEXT]
    if depth < _MOST_DEPTH and type(value) in (list, tuple):
        return "[" + ", ".join(_plain(each, depth + 1) for each in value[:100]) + "]"
    if depth < _MOST_DEPTH and type(value) is dict:
        pairs = list(value.items())[:100]
        return ", ".join(f"{_plain(a, depth + 1)}={_plain(b, depth + 1)}" for a, b in pairs)
    _refuse(f"a value of type {type(value).__name__}")


def main(path: str) -> int:
    """Write what a file says to stdout; return the exit code."""
    with contextlib.suppress(ImportError):  # where there are no limits, opcodes are checked
        import resource

        for kind, most in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CPU, _SECONDS)):
            _, hard = resource.getrlimit(kind)
            if hard == resource.RLIM_INFINITY or most < hard:
                resource.setrlimit(kind, (most, hard))
    if Path(path).stat().st_size > _FILE_MAX:
        sys.stderr.write("too large\n")
        return REFUSED
    try:
        texts = read_texts(Path(path).read_bytes())
    except _RefusedError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes of the reader
        sys.stderr.write(f"damaged ({type(error).__name__})\n")
        return REFUSED
    sys.stdout.write(json.dumps(texts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
