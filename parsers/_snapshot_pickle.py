"""Unpickle a memory snapshot without running anything of it; a program of its own.

`snapshot.py` starts this file in a process of its own, with nothing but the standard library: a
pickle may be made by anybody. What it may do is held by four walls, the first that applies:

1. Only opcodes that plain data needs are let through: no globals, no calls, no persistent ids, no
   integers of more than eight bytes, no memo index above the bytes read so far.
2. The unpickler itself refuses every global.
3. The process has a limit of memory and of CPU time, both in proportion to the file.
4. What comes out is walked by what a snapshot is made of, never by what is there: a list in two
   places, a key that is no text, or a value of another kind ends it.

The result is columns in a file: a JSON header and arrays of numbers.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import pickle
import re
import sys
from array import array
from collections import Counter
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED: Final = 3
"""The exit code with which stderr has a line that says why."""

_MEMORY_BASE: Final = 320 << 20
_MEMORY_FACTOR: Final = 8
_SECONDS_BASE: Final = 3
_SECONDS_PER_GB: Final = 200
_MOST_DEPTH: Final = 8
_LONGEST_TEXT: Final = 1 << 20
_NO_NOTE: Final = frozenset({"", "N/A", None})

_PLAIN: Final = re.compile(
    rb"(?:[}\]\x94(uesatN\x88\x89\x85\x86\x87)]"  # empty, mark, set, append, memo, None, flags
    rb"|[hKq].|M..|[Jj].{4}|G.{8}|\x80."  # memo, integers, floats, the protocol
    + b"".join(rb"|\x8a%c.{%d}" % (n, n) for n in range(9))  # integers of some bytes
    + rb"|\x8a\x09.{9})*+",
    re.DOTALL,
)
"""Opcodes whose length follows from their first bytes; a quantifier that never goes back."""
_SHORT_TEXT, _TEXT, _PUT, _FRAME, _STOP = b"\x8cXr\x95."

_EVENT_NUMBERS: Final = {"addr": -1, "size": 0, "time_us": -1, "device_free": -1}
_SEGMENT_NUMBERS: Final = {
    "device": 0, "address": -1, "total_size": 0, "allocated_size": 0, "active_size": -1,
    "requested_size": -1,
}  # fmt: skip
_BLOCK_NUMBERS: Final = {"address": -1, "size": 0, "requested_size": -1}
_KNOWN: Final = {
    "snapshot": {"segments", "device_traces", "allocator_settings", "external_annotations"},
    "segment": {
        *_SEGMENT_NUMBERS, "stream", "segment_type", "segment_pool_id", "is_expandable", "frames",
        "blocks", "pool_id",
    },
    "block": {
        *_BLOCK_NUMBERS, "state", "frames", "history", "user_metadata", "compile_context",
        "pool_id",
    },
    "event": {
        *_EVENT_NUMBERS, "action", "stream", "frames", "user_metadata", "compile_context",
        "pool_id", "segment_pool_id", "forward_frames",
    },
    "entry": {"frames", "real_size", "addr"},
    "frame": {"filename", "line", "name", "fx_node_op", "fx_node_name", "fx_original_trace"},
}  # fmt: skip


class Refused(Exception):  # noqa: N818 - what is refused is the file, nothing went wrong
    """The file is no snapshot, or one that is meant to do harm; the text says which."""


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler of plain data."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuse every global."""
        msg = f"names code to run ({module[:60]}.{name[:60]})"
        raise Refused(msg)

    def persistent_load(self, _pid: Any, /) -> NoReturn:
        """Refuse every object that is not in the file."""
        msg = "refers to objects outside of the file"
        raise Refused(msg)


def main(source: str, target: str) -> int:
    """Read the pickle `source`, write its columns to `target`, and end the process.

    Returns:
        The exit code, where the file is refused.
    """
    gc.disable()
    try:
        size = Path(source).stat().st_size
        _limit(size)
        with Path(source).open("rb") as file:
            check_opcodes(file, size)
            file.seek(0)
            found = _PlainUnpickler(file).load()
        with Path(target).open("wb") as out:
            Columns(found).write(out)
        # The system takes the memory back much faster than Python gives up every object.
        os._exit(0)
    except Refused as error:
        return _say(str(error))
    except MemoryError:
        return _say("would take far more memory than a snapshot of its size does")
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError) as error:
        return _say(f"damaged ({type(error).__name__}: {str(error)[:80]})")
    except (OverflowError, RecursionError, AttributeError) as error:
        return _say(f"damaged ({type(error).__name__})")


def _say(text: str) -> int:
    sys.stderr.write(" ".join(text.split()) + "\n")
    return REFUSED


def _limit(size: int) -> None:
    """Let this process have memory and CPU time in proportion to the file."""
    try:
        import resource
    except ImportError:  # Windows has no such limits: the opcodes are checked all the same.
        return
    memory = _MEMORY_BASE + _MEMORY_FACTOR * size
    seconds = _SECONDS_BASE + _SECONDS_PER_GB * size // 10**9
    for kind, wanted in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds)):
        _, hard = resource.getrlimit(kind)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (most, hard))


def check_opcodes(file: IO[bytes], size: int) -> None:
    """Raise Refused unless the file is a pickle of nothing but plain data.

    Args:
        file: open for reading.
        size: its bytes.
    """
    if not size:
        msg = "empty"
        raise Refused(msg)
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = 0
        while (at := _PLAIN.match(data, at).end()) < size:  # type: ignore[union-attr]
            code = data[at]
            if code == _STOP:
                return
            at = _next(data, at, code)
    msg = "ends too early"
    raise Refused(msg)


def _next(data: mmap.mmap, at: int, code: int) -> int:
    """Return where the opcode after this one begins."""
    if code == _SHORT_TEXT:
        return at + 2 + data[at + 1]
    number = int.from_bytes(data[at + 1 : at + 5], "little")
    if code == _TEXT and number <= _LONGEST_TEXT:
        return at + 5 + number
    # Every object takes a byte or more, so an honest index is below the bytes read.
    if code == _PUT and number <= at:
        return at + 5
    if code == _FRAME and int.from_bytes(data[at + 1 : at + 9], "little") <= len(data):
        return at + 9
    what = {
        _TEXT: "a text of its size",
        _PUT: "a memo index above what was read",
        _FRAME: "a frame longer than the file",
    }
    msg = f"byte {at}: {what.get(code, f'opcode {code:#04x}')} is not in a memory snapshot"
    raise Refused(msg)


class Columns:
    """The numbers of a snapshot as columns, its texts and stacks each once."""

    def __init__(self, found: Any) -> None:
        self.numbers: dict[str, array[int]] = {}
        self.texts: dict[str, dict[str, int]] = {}
        self.unread: Counter[str] = Counter()
        self._frames: dict[tuple[str, int, str], int] = {}
        self._frame_at: dict[int, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._stack_at: dict[int, int] = {}
        self._seen: set[int] = set()
        # A snapshot of torch 1.13 is the list of its segments.
        whole = {"segments": found} if isinstance(found, list) else found
        self._keys("snapshot", [_dict(whole, "the whole")])
        self._add_segments(_dicts(whole.get("segments") or [], "segments"))
        traces = whole.get("device_traces") or []
        self._add_events(_list(traces, "device_traces"))
        self.device_count = len(traces)
        self.settings = _plain_settings(whole.get("allocator_settings"))
        for name in set(whole) - {"segments", "device_traces"}:
            _check_depth(whole[name], 1)

    def _once(self, items: list[Any], what: str) -> list[Any]:
        """Return a list that was not seen before: one in many places would be walked for ever."""
        if items and id(items) in self._seen:
            msg = f"one list of {what} in two places"
            raise Refused(msg)
        self._seen.add(id(items))
        return items

    def _keys(self, kind: str, items: Sequence[dict[Any, Any]]) -> None:
        """Count the keys that are not read; none but text is let through."""
        keys = set(chain.from_iterable(items))
        if any(type(key) is not str for key in keys):
            msg = f"a key of a {kind} is no text"
            raise Refused(msg)
        for key in sorted(keys - _KNOWN[kind]):
            self.unread[f"{kind} key {key[:40]}"] += 1
            for item in items:
                _check_depth(item.get(key), 4)

    def _add_numbers(self, kind: str, items: list[dict[str, Any]], keys: dict[str, int]) -> None:
        for key, missing in keys.items():
            values = _values(items, key, missing)
            kinds = set(map(type, values))
            if type(None) in kinds:
                values = [missing if value is None else value for value in values]
            if kinds - {int, type(None)}:
                msg = f"{key} of a {kind} is no whole number"
                raise Refused(msg)
            self.numbers.setdefault(f"{kind}.{key}", array("q")).extend(values)

    def _add_texts(self, name: str, values: Sequence[Any]) -> None:
        codes = self.texts.setdefault(name, {})
        found = {None: -1}
        for value in set(values):
            text = isinstance(value, str)
            found[value] = codes.setdefault(value, len(codes)) if text else -1
        column = self.numbers.setdefault(name, array("i"))
        column.extend(map(found.__getitem__, values))

    def _add_segments(self, segments: list[dict[str, Any]]) -> None:
        self._keys("segment", segments)
        self._once(segments, "segments")
        self._add_numbers("segment", segments, _SEGMENT_NUMBERS)
        flags = [1 if segment.get("is_expandable") is True else 0 for segment in segments]
        self.numbers["segment.expandable"] = array("q", flags)
        for number, segment in enumerate(segments):
            blocks = self._once(_dicts(segment.get("blocks") or [], "blocks"), "blocks")
            self._keys("block", blocks)
            blocks = [self._with_history(block) for block in blocks]
            self._add_numbers("block", blocks, _BLOCK_NUMBERS)
            self.numbers.setdefault("block.segment", array("q")).extend([number] * len(blocks))
            self._add_texts("block.state", _values(blocks, "state", None))
            self._add_stacks("block.stack", _values(blocks, "frames", ()))

    def _with_history(self, block: dict[str, Any]) -> dict[str, Any]:
        """Return a block of torch 2.0 with what is in its newest history, others as they are."""
        history = block.get("history")
        if block.get("frames") is not None or not history:
            return block
        newest, *_ = entries = _dicts(history, "history")
        self._keys("entry", entries)
        told = {"frames": newest.get("frames") or (), "requested_size": newest.get("real_size")}
        return told | {key: value for key, value in block.items() if value is not None}

    def _add_events(self, traces: list[Any]) -> None:
        for device, trace in enumerate(traces):
            events = self._once(_dicts(trace, "device_traces"), "events")
            self._keys("event", events)
            self._add_numbers("event", events, _EVENT_NUMBERS)
            self.numbers.setdefault("event.device", array("i")).extend([device] * len(events))
            self._add_texts("event.action", _values(events, "action", None))
            self._add_texts("event.note", _notes(events))
            self._add_stacks("event.stack", _values(events, "frames", ()))

    def _add_stacks(self, name: str, stacks: list[Any]) -> None:
        """Add the number of each stack; the same list of frames is looked at once."""
        ids = list(map(id, stacks))
        for at, frames in dict(zip(ids, stacks, strict=True)).items():
            if at not in self._stack_at:
                self._stack_at[at] = self._stack(frames)
        column = self.numbers.setdefault(name, array("i"))
        column.extend(map(self._stack_at.__getitem__, ids))

    def _stack(self, frames: Any) -> int:
        if not frames:
            return -1
        items = _dicts(frames, "frames")
        at = self._frame_at
        for frame in items:
            if id(frame) not in at:
                at[id(frame)] = self._frame(frame)
        return self._stacks.setdefault(tuple([at[id(f)] for f in items]), len(self._stacks))

    def _frame(self, frame: dict[str, Any]) -> int:
        self._keys("frame", [frame])
        path, line, name = (frame.get(key) for key in ("filename", "line", "name"))
        if not (isinstance(path, str) and isinstance(name, str) and type(line) is int):
            msg = "a frame without filename, line and name"
            raise Refused(msg)
        return self._frames.setdefault((path, line, name), len(self._frames))

    def write(self, out: IO[bytes]) -> None:
        """Write the header's length, the header, and the arrays one after another."""
        header = {
            "columns": {name: (v.typecode, len(v)) for name, v in self.numbers.items()},
            "texts": {name: list(codes) for name, codes in self.texts.items()},
            "frames": list(self._frames),
            "stacks": list(self._stacks),
            "unread": self.unread,
            "settings": self.settings,
            "device_count": self.device_count,
        }
        text = json.dumps(header).encode()
        out.write(len(text).to_bytes(8, "little") + text)
        for column in self.numbers.values():
            column.tofile(out)


def _values(items: list[dict[str, Any]], key: str, missing: Any) -> list[Any]:
    """Return the value of a key in each item; where none lacks it, without a look at each."""
    try:
        return list(map(itemgetter(key), items))
    except KeyError:
        return [item.get(key, missing) for item in items]


def _notes(events: list[dict[str, Any]]) -> list[Any]:
    """Return what the user, or else the compiler, says that each block is for."""
    by_user, by_compiler = (_values(events, k, "") for k in ("user_metadata", "compile_context"))
    if set(by_user) <= _NO_NOTE:
        by_user = by_compiler
    elif not set(by_compiler) <= _NO_NOTE:
        pairs = zip(by_user, by_compiler, strict=True)
        by_user = [mine if mine not in _NO_NOTE else theirs for mine, theirs in pairs]
    return [None if note in _NO_NOTE else note for note in by_user]


def _dict(value: Any, what: str) -> dict[Any, Any]:
    if type(value) is not dict:
        msg = f"{what} is a {type(value).__name__}, which no memory snapshot has there"
        raise Refused(msg)
    return value


def _list(value: Any, what: str) -> list[Any]:
    if type(value) is not list:
        msg = f"{what} is a {type(value).__name__}, which no memory snapshot has there"
        raise Refused(msg)
    return value


def _dicts(value: Any, what: str) -> list[dict[Any, Any]]:
    items = _list(value, what)
    if odd := set(map(type, items)) - {dict}:
        msg = f"{what} holds a {odd.pop().__name__}, which no memory snapshot has there"
        raise Refused(msg)
    return items


def _check_depth(value: Any, depth: int) -> None:
    """Raise where something that is not read nests deeper than a snapshot does."""
    level, seen = [value], {id(value)}
    while level:
        inner = chain.from_iterable(
            chain(v.keys(), v.values()) if type(v) is dict else v
            for v in level
            if type(v) in (dict, list, tuple)
        )
        fresh = {id(v): v for v in inner if type(v) in (dict, list, tuple)}
        level = [v for key, v in fresh.items() if key not in seen]
        seen.update(fresh)
        depth += 1
        if level and depth > _MOST_DEPTH:
            msg = f"nested more than {_MOST_DEPTH} deep"
            raise Refused(msg)


def _plain_settings(settings: Any) -> dict[str, Any]:
    """Return the allocator's settings that are numbers, texts or flags."""
    if settings is None:
        return {}
    plain = (bool, int, float, str)
    found: dict[str, Any] = {}
    for key, value in _dict(settings, "allocator_settings").items():
        if type(key) is not str:
            msg = "a key of allocator_settings is no text"
            raise Refused(msg)
        if isinstance(value, dict):
            found[key] = [v for v in value.values() if isinstance(v, plain)]
        elif isinstance(value, plain):
            found[key] = value
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
