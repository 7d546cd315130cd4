"""Unpickle a memory snapshot without running anything of it; a program of its own.

`snapshot.py` starts this file in a process of its own, with nothing but the standard library: a
pickle may be made by anybody. Four walls hold what it may do, the first that applies:

1. Only opcodes that plain data needs are let through: no globals, no calls, no persistent ids, no
   integers of more than eight bytes, no memo index above the bytes read so far.
2. The unpickler itself refuses every global.
3. The process has a limit of memory and of CPU time, both in proportion to the file.
4. The result is walked by what a snapshot is made of, never by what is there: a list in two
   places, a key that is no text, or a value of another kind ends it.

The result is columns in a file: arrays of numbers, and behind them a header in JSON.

Nearly all of a large snapshot is one list of events. Where the opcodes say that it begins, an
object of ours is put in the place of that list, and takes the events a thousand at a time, while
they are read: each is a row then, and its dictionary is emptied. Unpickled as a whole they would
take seven bytes of memory for each byte of the file, and more time to walk than to read.

Where it is installed, a compiled reader (`_snapshot_events.c`) takes the lists of events, and makes
rows without making objects first; what stands before and behind them is unpickled here, as ever.
Whatever goes wrong on that way, the file is read again without it: what is refused, and why, is
decided here alone.
"""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import io
import json
import mmap
import os
import pickle
import pickletools
import re
import struct
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, NoReturn

REFUSED: Final = 3
"""The exit code with which stderr has a line that says why."""

_MEMORY_BASE: Final = 320 << 20
_MEMORY_FACTOR: Final = 8
_SECONDS_BASE: Final = 3
_SECONDS_PER_GB: Final = 200
_MOST_DEPTH: Final = 8
_LONGEST_TEXT: Final = 1 << 20
_LONGEST_REST: Final = 1 << 20
"""The bytes behind the events are few; where there are more, the compiled reader is not used."""
_AT_ONCE: Final = 2048
"""So many events are read at once: they stay in the processor's cache."""
_NO_NOTE: Final = frozenset({"", "N/A", None})

_ONE: Final = rb"[}\]\x94(uesatN\x88\x89\x85\x86\x87)]"
"""Opcodes of one byte: empty, mark, set, append, memo, None, flags."""
_MEMO: Final = rb"h.|j.{4}"
_LENGTHS: Final = (6, 7, 5, 4, 3, 8, 2, 1, 9)  # addresses first, times next
_LONG: Final = rb"\x8a(?:" + b"".join(rb"%c.{%d}|" % (n, n) for n in _LENGTHS) + rb"\x00)"
_NOTE: Final = rb"\x8c\x03.{3}\x94"  # the text N/A, which each event of torch has anew
_FRAMES: Final = rb"\]\x94\((?:" + _MEMO + rb")*+"
_PAIR: Final = b"(?:%b)(?:h.|K.|J.{4}|j.{4}|%b|M..|%b|%b)" % (_MEMO, _LONG, _NOTE, _FRAMES)
_PLAIN: Final = re.compile(
    b"(?:" + 4 * _PAIR + b"|" + _PAIR + b"|" + _ONE + b"++|" + _MEMO
    + rb"|[Kq].|M..|J.{4}|G.{8}|\x80.|" + _LONG + b")*+",
    re.DOTALL,
)  # fmt: skip
"""Opcodes whose length follows from their first bytes; a quantifier that never goes back.

All but a few are keys with their values, which are taken four at a time: whole opcodes each, of
which none begins as another does, so there is one way to match them.
"""
_SHORT_TEXT, _TEXT, _PUT, _FRAME, _STOP = b"\x8cXr\x95."
_LIST, _SINK = b"]\x94", b"NQ\x94"
"""An empty list, and in its place what `persistent_load` returns; both are then in the memo."""
_EVENTS: Final = re.compile(
    rb"\x8c\x0ddevice_traces\x94(?P<frame>\x95.{8})?\]\x94(?P<many>\(?)(?P<empty>(?:\]\x94)*)\]\x94"
    rb"(?=\(\}\x94\()",
    re.DOTALL,
)
"""From the name of the lists of events to the first that has any; before it, those of devices
without."""

_EVENT_NUMBERS: Final = {"addr": -1, "size": 0, "time_us": -1, "device_free": -1}
_EVENT_TEXTS: Final = ("action", "note")
_COMPILED_COLUMNS: Final = (
    *((key, "q", missing) for key, missing in _EVENT_NUMBERS.items()),
    *((key, "i", -1) for key in (*_EVENT_TEXTS, "stack")),
)
"""The columns of the compiled reader in its order, with what stands where an event lacks them."""
_SEGMENT_NUMBERS: Final = {
    "device": 0, "address": -1, "total_size": 0, "allocated_size": 0, "active_size": -1,
    "requested_size": -1,
}  # fmt: skip
_BLOCK_NUMBERS: Final = {"address": -1, "size": 0, "requested_size": -1}
_KNOWN: Final = {
    "snapshot": {
        "segments", "device_traces", "allocator_settings", "external_annotations",
        "pyprof2_devices",
    },
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


_DAMAGED: Final = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, OverflowError,
    RecursionError, AttributeError, struct.error,
)  # fmt: skip
"""Raised where a pickle, or a value in it, is not what it should be."""


class Refused(Exception):  # noqa: N818 - what is refused is the file, nothing went wrong
    """The file is no snapshot, or one that is meant to do harm; the text says which."""


def _refuse(why: str) -> NoReturn:
    """Refuse the file.

    Raises:
        Refused: always.
    """
    raise Refused(why)


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler of plain data."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuse every global."""
        _refuse(f"names code to run ({module[:60]}.{name[:60]})")

    def persistent_load(self, _pid: Any, /) -> Any:
        """Refuse every object that is not in the file."""
        _refuse("refers to objects outside of the file")


class _CompiledUnpickler(_PlainUnpickler):
    """One that lets the compiled reader read the events, when it comes to where they were."""

    def __init__(self, file: _Spliced, events: _CompiledEvents) -> None:
        super().__init__(file)
        self._file = file
        self._events = events

    def persistent_load(self, _pid: Any, /) -> _Sink:
        """Read the events, and go on behind them."""
        self._file.go_on(self._events.read(self.memo.copy()))
        return self._events.sink


class _StreamingUnpickler(_PlainUnpickler):
    """One that gives `sink` in the place of one list; the opcode for it is in no file."""

    def __init__(self, file: _Spliced, sink: _Sink) -> None:
        super().__init__(file)
        self._sink = sink

    def persistent_load(self, _pid: Any, /) -> _Sink:
        """Return what takes the events."""
        return self._sink


class _Sink:
    """Stands for the list of events of a device, and makes rows of them as they are read."""

    def __init__(self, columns: Columns, device: int) -> None:
        self.device = device
        self._columns = columns

    def extend(self, items: list[Any]) -> None:
        """Take the next events: the unpickler calls it where it would append to a list."""
        self._columns.add_events(_dicts(items, "device_traces"), self.device)
        # The memo keeps each of them, for whatever may refer to it: only what is in it goes.
        deque(map(dict.clear, items), 0)


class _Spliced:
    """A pickle with another object in the place of a list; where it is cut, it ends there."""

    def __init__(self, file: IO[bytes], place: EventsPlace, *, is_cut: bool = False) -> None:
        file.seek(0)
        head = bytearray(file.read(place.at) + _SINK)
        # A frame is read as one piece, and this one has another length now.
        end = len(head) if is_cut else place.stop + len(_SINK) - len(_LIST)
        length = end - place.frame - 9
        head[place.frame + 1 : place.frame + 9] = length.to_bytes(8, "little")
        self._head = io.BytesIO(head)
        self._rest = io.BytesIO() if is_cut else file
        file.seek(len(_LIST), os.SEEK_CUR)

    def go_on(self, rest: bytes) -> None:
        """Let other bytes follow where the pickle was cut."""
        self._rest = io.BytesIO(rest)

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        found = self._head.read(size)
        return found if len(found) == size else found + self._rest.read(size - len(found))

    def readline(self) -> bytes:
        """Return the next line, which only opcodes have that are refused before."""
        return self._head.readline() or self._rest.readline()


class _CompiledEvents:
    """The input of the compiled reader from a snapshot, and what is made of its answers."""

    def __init__(self, data: mmap.mmap, place: EventsPlace, columns: Columns, library: str) -> None:
        self.sink = _Sink(columns, place.device)
        self._data = data
        self._place = place
        self._columns = columns
        self._memo: dict[int, Any] = {}
        self._counts: list[int] = []
        seed = int.from_bytes(os.urandom(8), "little")
        # Loaded from its file: its folder is on no path of this process.
        loader = importlib.machinery.ExtensionFileLoader("_snapshot_events", library)
        spec = importlib.util.spec_from_loader("_snapshot_events", loader)
        if spec is None:
            raise ImportError(library)
        compiled = importlib.util.module_from_spec(spec)
        loader.exec_module(compiled)
        make = compiled.Reader
        self._reader = make(self._known, columns.known_frame, columns.known_stack, seed)

    def read(self, memo: dict[int, Any]) -> bytes:
        """Add the events to the columns; return the opcodes that follow, to be unpickled.

        Args:
            memo: what was memoized before, by index.
        """
        self._memo = memo
        first, place = len(memo), self._place
        if first and max(memo) != first - 1:
            _refuse("a memo with gaps")
        # The list itself is in the memo, too.
        at = place.at + len(_LIST)
        found = self._reader.read(self._data, at, place.stop, first + 1, place.many)
        if found is None:
            _refuse("events in another form")
        end, stop, memoized, self._counts = found
        self._columns.add_compiled(self._reader, self._counts, place.device)
        _check(self._data, end)
        rest = self._rest(end, stop, range(first + 1, memoized))
        return _LIST[:1] * (len(self._counts) - 1) + rest

    def check(self, whole: Any) -> None:
        """Raise Refused unless the lists that were read are those of the snapshot, and no more."""
        found = _dict(whole, "the whole").get("device_traces")
        traces = _list(found, "device_traces")
        first, end = self.sink.device, self.sink.device + len(self._counts)
        if len(traces) < end or traces[first] is not self.sink or any(traces[first + 1 : end]):
            _refuse("events that are not where they were")

    def _known(self, index: int) -> bytes | tuple[int, int]:
        """Return what the memo had at an index: a text, or the number of a frame or of a stack."""
        found = self._memo[index]
        if type(found) is str:
            return found.encode()
        if type(found) is dict:
            return 0, self._columns.frame_number(found)
        return 1, self._columns.stack_number(_list(found, "frames"))

    def _rest(self, at: int, stop: int, moved: range) -> bytes:
        """Return the opcodes from `at` on, with memo indices as if the events had none of `moved`.

        A text among the events stands for its index. `stop` is where the frame ends; frames are
        left out, and no opcode may be in two of them, where an unpickler would go astray.
        """
        rest = self._data[at:]
        if len(rest) > _LONGEST_REST:
            _refuse("too much behind the events")
        parts: list[bytes] = []
        frame_end = stop - at
        found: Any = [*pickletools.genops(rest), (None, None, len(rest))]
        for (code, value, begin), (_, _, end) in pairwise(found):
            in_frame = begin < frame_end < len(rest)
            if in_frame and (end > frame_end or code.name == "FRAME"):
                raise Refused(code.name)
            if code.name == "FRAME":
                frame_end = begin + 9 + value
            elif code.code in "hj":
                parts.append(self._moved(value, moved))
            elif code.code in "qr" or frame_end > len(rest):
                raise Refused(code.name)
            else:
                parts.append(rest[begin:end])
        return b"".join(parts)

    def _moved(self, index: int, moved: range) -> bytes:
        """Return the opcode for what was at an index of the memo with the events in it."""
        if index not in moved:
            index -= len(moved) if index >= moved.stop else 0
            return b"j" + index.to_bytes(4, "little")
        text: bytes | None = self._reader.text(index)
        if text is None:
            _refuse("something among the events is in another place, too")
        return b"X" + len(text).to_bytes(4, "little") + text


def main(source: str, target: str, library: str = "") -> int:
    """Read the pickle `source`, write its columns to `target`, and end the process.

    Args:
        source: the pickle.
        target: the file to write.
        library: the compiled reader; nothing: there is none.

    Returns:
        The exit code, where the file is refused.
    """
    gc.disable()
    try:
        size = Path(source).stat().st_size
        _limit(size)
        with Path(source).open("rb") as file:
            if not (library and read_compiled(file, size, Path(target), library)):
                place = check_opcodes(file, size)
                with Path(target).open("wb") as out:
                    read(file, place, Columns(out))
        # The system takes the memory back much faster than Python gives up every object.
        os._exit(0)
    except Refused as error:
        return _say(str(error))
    except MemoryError:
        return _say("would take far more memory than a snapshot of its size does")
    except _DAMAGED as error:
        return _say(f"damaged ({type(error).__name__}: {str(error)[:80]})")


def read(file: IO[bytes], place: EventsPlace | None, columns: Columns) -> None:
    """Unpickle a snapshot whose opcodes are checked, and write its columns.

    Args:
        file: the pickle.
        place: of its events; None: they are read with all the rest.
        columns: take what is in it.
    """
    if place is None:
        file.seek(0)
        columns.add(_PlainUnpickler(file).load())
    else:
        sink = _Sink(columns, place.device)
        columns.add(_StreamingUnpickler(_Spliced(file, place), sink).load(), sink)
    columns.end()


def read_compiled(file: IO[bytes], size: int, target: Path, library: str) -> bool:
    """Read a snapshot with the compiled reader.

    Args:
        file: the pickle, of which nothing is checked.
        size: its bytes.
        target: the file to write.
        library: the compiled reader.

    Returns:
        Whether it did; if not, the reader in Python says what is to be done with the file.
    """
    if not size:
        return False
    try:
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            target.open("wb") as out,
        ):
            place = _check(data, 0, is_up_to_events=True)
            if place is None:
                return False
            columns = Columns(out)
            events = _CompiledEvents(data, place, columns, library)
            found = _CompiledUnpickler(_Spliced(file, place, is_cut=True), events).load()
            events.check(found)
            columns.add(found, events.sink)
            columns.end()
    except (Refused, *_DAMAGED, MemoryError, ImportError, SystemError, OSError):
        return False
    return True


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


class EventsPlace(NamedTuple):
    """Where in a pickle the list of events is, and of which device it is.

    The frame around it begins at `frame` and ends at `stop`; there may be `many` lists after it.
    """

    at: int
    frame: int
    stop: int
    device: int
    many: bool


def check_opcodes(file: IO[bytes], size: int) -> EventsPlace | None:
    """Raise Refused unless the file is a pickle of nothing but plain data.

    Args:
        file: open for reading.
        size: its bytes.

    Returns:
        The first list of events that has any; None: it is in another form than torch writes.
    """
    if not size:
        _refuse("empty")
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _check(data, 0)


def _check(data: mmap.mmap, at: int, *, is_up_to_events: bool = False) -> EventsPlace | None:
    """Check the opcodes from `at` on, all of them or up to the events; see `check_opcodes`."""
    place, frame, end = None, 0, len(data)
    while (at := _PLAIN.match(data, at, end).end()) < len(data):  # type: ignore[union-attr]
        if at == end:
            end = len(data)
            continue
        code = data[at]
        if code == _STOP or (place and is_up_to_events):
            return place
        if code == _FRAME:
            # The unpickler reads a frame as one piece: what crosses its end, it would read as
            # other opcodes.
            if end != len(data):
                _refuse(f"byte {at}: a frame within a frame is not in a memory snapshot")
            frame, end = at, at + 9 + int.from_bytes(data[at + 1 : at + 9], "little")
        if code == _SHORT_TEXT and place is None:
            place = _place(data, at, frame)
        at = _next(data, at, code)
        if end < min(at, len(data)):
            _refuse(f"byte {end}: a frame that ends within an opcode is not in a memory snapshot")
    _refuse("ends too early")


def _place(data: mmap.mmap, at: int, frame: int) -> EventsPlace | None:
    """Return the place of the events, where a text at `at` says that they come next."""
    found = _EVENTS.match(data, at)
    if found is None:
        return None
    place = found.end() - len(_LIST)
    frame = max(frame, found.start("frame"))  # -1: none began since
    end = frame + 9 + int.from_bytes(data[frame + 1 : frame + 9], "little")
    if data[frame] != _FRAME or not frame < place < end:
        return None
    device = len(found["empty"]) // len(_LIST)
    return EventsPlace(place, frame, end, device, bool(found["many"]))


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
    _refuse(f"byte {at}: {what.get(code, f'opcode {code:#04x}')} is not in a memory snapshot")


class Columns:
    """The numbers of a snapshot as columns in a file, its texts and stacks each once."""

    def __init__(self, out: IO[bytes]) -> None:
        self.parts: list[tuple[str, str, int] | tuple[str, str, int, int]] = []
        self.texts: dict[str, dict[str, int]] = {}
        self.unread: Counter[str] = Counter()
        self._out = out
        self._frames: dict[tuple[str, int, str], int] = {}
        self._frame_at: dict[int, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._stack_at: dict[int, int] = {}
        self._stack_of: dict[tuple[int, ...], int] = {}
        self._kept: list[Any] = []
        self._seen: set[int] = set()
        self.settings: dict[str, Any] = {}
        self.non_torch: dict[int, int] = {}
        self.device_count = 0

    def add(self, found: Any, sink: _Sink | None = None) -> None:
        """Add a snapshot, of which `sink` has taken events."""
        # A snapshot of torch 1.13 is the list of its segments.
        whole = {"segments": found} if isinstance(found, list) else found
        self._keys("snapshot", [_dict(whole, "the whole")])
        traces = whole.get("device_traces") or []
        for device, trace in enumerate(_list(traces, "device_traces")):
            if sink is None or trace is not sink or device != sink.device:
                self.add_events(self._once(_dicts(trace, "device_traces"), "events"), device)
        self._add_segments(_dicts(whole.get("segments") or [], "segments"))
        self.device_count = len(traces)
        self.settings = _plain_settings(whole.get("allocator_settings"))
        for each in _dicts(whole.get("pyprof2_devices") or [], "pyprof2_devices"):
            device, used, reserved = (
                _size(each.get(key)) for key in ("device", "used", "reserved")
            )
            if used >= reserved:
                self.non_torch[device] = used - reserved
        for name in set(whole) - {"segments", "device_traces"}:
            _check_depth(whole[name], 1)

    def _write(self, name: str, kind: str, values: Sequence[int]) -> None:
        """Write the next values of a column: so no column is ever in memory."""
        # Three times faster than an array of them.
        self._out.write(struct.pack(f"={len(values)}{kind}", *values))
        self.parts.append((name, kind, len(values)))

    def _write_same(self, name: str, kind: str, value: int, count: int) -> None:
        """Let a column have one value many times: nothing is written."""
        self.parts.append((name, kind, count, value))

    def _once(self, items: list[Any], what: str) -> list[Any]:
        """Return a list that was not seen before: one in many places would be walked for ever."""
        if items and id(items) in self._seen:
            _refuse(f"one list of {what} in two places")
        self._seen.add(id(items))
        return items

    def _keys(self, kind: str, items: Sequence[dict[Any, Any]]) -> None:
        """Count the keys that are not read; none but text is let through."""
        odd = _unknown(kind, items)
        self.unread.update(f"{kind} key {key[:40]}" for key in sorted(odd))

    def _some(self, kind: str, items: list[dict[Any, Any]]) -> Iterator[tuple[int, _ByKey]]:
        """Yield how many of the items are next, and their values by key; see `_keys`."""
        odd: set[str] = set()
        for at in range(0, len(items), _AT_ONCE):
            some = items[at : at + _AT_ONCE]
            columns = _same_keys(some)
            if columns is None or not columns.keys() <= _KNOWN[kind]:
                odd |= _unknown(kind, some)
                known = [(key, [item.get(key) for item in some]) for key in _KNOWN[kind]]
                columns = _ByKey(len(some), known)
            yield len(some), columns
        # Once for each list, in however many parts it comes.
        self.unread |= Counter(f"{kind} key {key[:40]}" for key in sorted(odd))

    def _add_numbers(self, kind: str, columns: _ByKey, keys: dict[str, int]) -> None:
        for key, missing in keys.items():
            values = columns[key]
            if key not in columns:
                self._write_same(f"{kind}.{key}", "q", missing, len(values))
                continue
            kinds = set(map(type, values))
            if type(None) in kinds:
                values = [missing if value is None else value for value in values]
            if kinds - {int, type(None)}:
                _refuse(f"{key} of a {kind} is no whole number")
            self._write(f"{kind}.{key}", "q", values)

    def _add_texts(self, name: str, values: Sequence[Any]) -> None:
        codes = self.texts.setdefault(name, {})
        found = {None: -1}
        distinct = set(values)
        if distinct == {None}:
            self._write_same(name, "i", -1, len(values))
            return
        for value in distinct:
            text = isinstance(value, str)
            found[value] = codes.setdefault(value, len(codes)) if text else -1
        self._write(name, "i", list(map(found.__getitem__, values)))

    def _add_segments(self, segments: list[dict[str, Any]]) -> None:
        self._once(segments, "segments")
        every: list[dict[str, Any]] = []
        places: list[int] = []
        for number, segment in enumerate(segments):
            blocks = self._once(_dicts(segment.get("blocks") or [], "blocks"), "blocks")
            every += blocks
            places += [number] * len(blocks)
        for _, columns in self._some("segment", segments):
            self._add_numbers("segment", columns, _SEGMENT_NUMBERS)
            flags = [1 if flag is True else 0 for flag in columns["is_expandable"]]
            self._write("segment.expandable", "q", flags)
            # The pool that all share has the number 0, 0.
            pools = (pool or (0, 0) for pool in columns["segment_pool_id"])
            is_pair = (isinstance(pool, (tuple, list)) and any(pool) for pool in pools)
            self._write("segment.private", "q", list(map(int, is_pair)))
        self._write("block.segment", "q", places)
        for _, columns in self._some("block", [self._with_history(block) for block in every]):
            self._add_numbers("block", columns, _BLOCK_NUMBERS)
            self._add_texts("block.state", columns["state"])
            self._add_stacks("block.stack", columns["frames"])

    def _with_history(self, block: dict[str, Any]) -> dict[str, Any]:
        """Return a block of torch 2.0 with what is in its newest history, others as they are."""
        history = block.get("history")
        if block.get("frames") is not None or not history:
            return block
        newest, *_ = entries = _dicts(history, "history")
        self._keys("entry", entries)
        newer = {"frames": newest.get("frames") or (), "requested_size": newest.get("real_size")}
        return newer | {key: value for key, value in block.items() if value is not None}

    def add_events(self, events: list[dict[str, Any]], device: int) -> None:
        """Add events of a device, which follow those that were added before."""
        if not all(events):
            _refuse("an event without anything, or one in two places")
        for count, columns in self._some("event", events):
            self._add_numbers("event", columns, _EVENT_NUMBERS)
            self._write_same("event.device", "i", device, count)
            self._add_texts("event.action", columns["action"])
            notes = _notes(columns["user_metadata"], columns["compile_context"])
            self._add_texts("event.note", notes)
            self._add_stacks("event.stack", columns["frames"])

    def _add_stacks(self, name: str, stacks: Sequence[Any]) -> None:
        """Add the number of each stack; the same list of frames is looked at once."""
        known = self._stack_at
        numbers = list(map(known.get, map(id, stacks)))
        if None in numbers:
            for frames in stacks:
                self.stack_number(frames)
            numbers = list(map(known.get, map(id, stacks)))
        self._write(name, "i", numbers)  # type: ignore[arg-type]  # none is missing now

    def stack_number(self, frames: Any) -> int:
        """Return the number of a stack, which is looked at once; -1: it has no frames."""
        number = self._stack_at.get(id(frames))
        if number is None:
            number = self._stack_at[id(frames)] = self._stack(frames)
            # Without this reference another list could get the same id.
            self._kept.append(frames)
        return number

    def _stack(self, frames: Any) -> int:
        """Return the number of a stack; -1: it has no frames."""
        if not frames:
            return -1
        ids = tuple(map(id, _list(frames, "frames")))
        number = self._stack_of.get(ids)
        if number is None:
            stack = tuple(map(self.frame_number, _dicts(frames, "frames")))
            number = self._stacks.setdefault(stack, len(self._stacks))
            self._stack_of[ids] = number
        return number

    def frame_number(self, frame: dict[Any, Any]) -> int:
        """Return the number of a frame, which is looked at once."""
        number = self._frame_at.get(id(frame))
        if number is None:
            number = self._frame_at[id(frame)] = self._frame(frame)
        return number

    def _frame(self, frame: dict[str, Any]) -> int:
        self._keys("frame", [frame])
        path, line, name = (frame.get(key) for key in ("filename", "line", "name"))
        if not (isinstance(path, str) and isinstance(name, str) and type(line) is int):
            _refuse("a frame without filename, line and name")
        return self.known_frame(path, line, name)

    def known_frame(self, path: str, line: int, name: str) -> int:
        """Return the number of a frame of which all is known."""
        return self._frames.setdefault((path, line, name), len(self._frames))

    def known_stack(self, frames: bytes) -> int:
        """Return the number of a stack whose frames have these numbers, 32 bits each."""
        return self._stacks.setdefault(tuple(memoryview(frames).cast("i")), len(self._stacks))

    def add_compiled(self, reader: Any, counts: list[int], device: int) -> None:
        """Add what the compiled reader has read: so many events of `device`, and of those after."""
        for number, count in enumerate(counts, device):
            self._write_same("event.device", "i", number, count)
        for which, (key, kind, missing) in enumerate(_COMPILED_COLUMNS):
            count = reader.write(which, self._out.write)
            if count:
                self.parts.append((f"event.{key}", kind, count))
            else:
                self._write_same(f"event.{key}", kind, missing, sum(counts))
        for which, key in enumerate(_EVENT_TEXTS):
            words = reader.words(which)
            self.texts[f"event.{key}"] = {word.decode(): at for at, word in enumerate(words)}
        odd = [f"event key {word.decode()[:40]}" for word in reader.words(len(_EVENT_TEXTS))]
        if len(set(odd)) < len(odd):
            _refuse("keys that differ behind their beginning alone")
        self.unread |= Counter(odd)

    def end(self) -> None:
        """Write the header behind the numbers, and last how many bytes it has."""
        header = {
            "parts": self.parts,
            "texts": {name: list(codes) for name, codes in self.texts.items()},
            "frames": list(self._frames),
            "stacks": list(self._stacks),
            "unread": self.unread,
            "settings": self.settings,
            "non_torch": self.non_torch,
            "device_count": self.device_count,
        }
        text = json.dumps(header).encode()
        self._out.write(text + len(text).to_bytes(8, "little"))


class _ByKey(dict[str, Sequence[Any]]):
    """The values of each key in some dictionaries; None where one lacks it."""

    def __init__(self, count: int, columns: Iterable[tuple[str, Sequence[Any]]]) -> None:
        super().__init__(columns)
        self._nothing = [None] * count

    def __missing__(self, _: str) -> Sequence[Any]:
        """Return nothing for each dictionary."""
        return self._nothing


def _same_keys(items: list[dict[Any, Any]]) -> _ByKey | None:
    """Return the values of dictionaries that all have the same keys; None: they have not.

    As many keys as the first has, and each of those: so no key of them is looked at by itself.
    """
    names = tuple(items[0])
    if set(map(len, items)) != {len(names)}:
        return None
    try:
        columns = [(name, list(map(itemgetter(name), items))) for name in names]
    except KeyError:
        return None
    return _ByKey(len(items), columns)


def _unknown(kind: str, items: Sequence[dict[Any, Any]]) -> set[str]:
    """Return the keys that are not read; none but text is let through, nor what nests deep."""
    keys = set(chain.from_iterable(items))
    if any(type(key) is not str for key in keys):
        _refuse(f"a key of a {kind} is no text")
    odd = keys - _KNOWN[kind]
    for key in odd:
        for item in items:
            _check_depth(item.get(key), 4)
    return odd


def _notes(by_user: Sequence[Any], by_compiler: Sequence[Any]) -> Sequence[Any]:
    """Return what the user, or else the compiler, says that each block is for."""
    if set(by_user) <= _NO_NOTE:
        by_user = by_compiler
    elif not set(by_compiler) <= _NO_NOTE:
        pairs = zip(by_user, by_compiler, strict=True)
        by_user = [mine if mine not in _NO_NOTE else theirs for mine, theirs in pairs]
    if set(by_user) <= _NO_NOTE:
        return [None] * len(by_user)
    return [None if note in _NO_NOTE else note for note in by_user]


def _dict(value: Any, what: str) -> dict[Any, Any]:
    if type(value) is not dict:
        _refuse(f"{what} is a {type(value).__name__}, which no memory snapshot has there")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if type(value) is _Sink:
        _refuse(f"one list of events in two places, of which one is {what}")
    if type(value) is not list:
        _refuse(f"{what} is a {type(value).__name__}, which no memory snapshot has there")
    return value


def _dicts(value: Any, what: str) -> list[dict[Any, Any]]:
    items = _list(value, what)
    if odd := set(map(type, items)) - {dict}:
        _refuse(f"{what} holds a {odd.pop().__name__}, which no memory snapshot has there")
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
            _refuse(f"nested more than {_MOST_DEPTH} deep")


def _size(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 53:
        _refuse("a number of pyprof2_devices is no whole number, or out of range")
    return number


def _plain_settings(settings: Any) -> dict[str, Any]:
    """Return the allocator's settings that are numbers, texts or flags."""
    if settings is None:
        return {}
    plain = (bool, int, float, str)
    found: dict[str, Any] = {}
    for key, value in _dict(settings, "allocator_settings").items():
        if type(key) is not str:
            _refuse("a key of allocator_settings is no text")
        if isinstance(value, dict):
            found[key] = [v for v in value.values() if isinstance(v, plain)]
        elif isinstance(value, plain):
            found[key] = value
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
