"""Stream the elements of one huge array out of a JSON file, whole or broken.

The file is inflated and cut into chunks of complete elements, so memory does not grow with the
file. A chunk that does not decode is walked element by element: what is valid is taken as it is,
what is not is repaired, step by step, and skipped where no repair works. All that is counted.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from isal import isal_zlib

from pyprof2.errors import TraceError
from pyprof2.parsers._json_repair import (
    TOKEN,
    closing_bracket,
    escape_backslashes,
    escape_bare_quotes,
    has_bare_backslash,
    repair,
    restore_backslashes,
)
from pyprof2.problems import (
    BYTES_LOST,
    COMMA_REPAIRED,
    END_NO_EVENT,
    EVENT_REPAIRED,
    EVENT_TOO_LONG,
    FILE_CUT,
    LAST_EVENT_CUT,
    LIST_CUT,
    METADATA_BROKEN,
    METADATA_TOO_LONG,
    METADATA_WRONG,
    SECOND_DOCUMENT,
    TOO_MUCH_DAMAGE,
    with_detail,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import IO

CHUNK_BYTES: Final = 4 << 20
READ_BYTES: Final = 1 << 19
_MEMBER_BYTES: Final = 1 << 12
"""With how much of a file the reading of a member of it begins."""
ELEMENT_BYTES_MAX: Final = 4 << 20
"""No element is longer; what is longer is damage, or meant to fill memory."""
AROUND_BYTES_MAX: Final = 32 << 20
"""Nor is what stands before the array, or behind it: the groups of a large job are long."""
MEMBER_BYTES_MAX: Final = 1 << 20
"""Decoded, metadata may take a hundred times as much."""
DAMAGED_MAX: Final = 100_000
"""Elements that cannot be used: with more of them the file is no trace, and not worth the time."""

DECODE_ERRORS: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_READ_ERRORS: Final[Any] = (EOFError, OSError, isal_zlib.error)

_READS: Final = "pyprof2 reads what torch.profiler exports"
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \r\n\t"
_COMMA_BYTES: Final = 2
"""A comma and a blank mostly stand between two elements."""
_WINDOW_BYTES: Final = 1 << 12
"""How much of a block is searched first for the start of an element: mostly some start there."""
_PASSED_BYTES: Final = 1 << 14
"""Text that was walked is cut off in steps of this size: an error of Python's decoder counts all
lines before it."""
# An event starts after a comma or bracket with one of the keys of Chrome's trace format. What
# only looks like one, inside of an event or behind the list, makes a chunk that does not decode.
_ELEMENT_START: Final = re.compile(
    rb'(?<=[,\[])(\s*+)\{\s*+"(?:ph|cat|name|pid|tid|ts|dur|args)"\s*+:'
)
_ANY_START: Final = re.compile(rb"(?<=\},)(\s*+)\{")
_PHASE: Final = re.compile(rb'"ph"\s*+:')
_SEPARATOR: Final = re.compile(rb"[ \r\n\t,]*+")
_VALUES: Final = json.JSONDecoder(strict=False)
_LIST_START: Final = re.compile(rb"\s*+:\s*+\[")
_LIST_MAY_START: Final = re.compile(rb"\s*+:?+\s*+\Z")
_BARE_LIST: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\[")


@dataclass
class _Tally:
    """How many texts there are, and how many bytes they have."""

    count: int = 0
    size: int = 0

    def add(self, size: int) -> None:
        """Count one more text."""
        self.count += 1
        self.size += size


@dataclass
class JsonStream:
    """The array `key` of the JSON object in a file, chunk by chunk, and what stands around it.

    Attributes:
        path: the file, plain or gzip.
        key: the name of the array at the top level.
        around: the other members of the object, not yet decoded, once the stream is used up.
        problems: slugs of what was repaired or dropped, with counts.
        is_bare: whether no backslash in the file is an escape, but before a quote.
        has_bare_backslash: whether one escapes nothing, in a text that is not that of damage alone.
    """

    path: Path
    key: str
    on_progress: Callable[[int], None] | None = None
    is_bare: bool = False
    has_bare_backslash: bool = False
    around: dict[str, msgspec.Raw] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)
    _header: bytes = b""
    _trailer: bytes = b""
    _unused: int = 0
    _is_closed: bool = False
    _damaged: int = 0
    _saved: _Tally = field(default_factory=_Tally)
    _lost: _Tally = field(default_factory=_Tally)

    def chunks(self) -> Iterator[bytes]:
        """Yield `[…]` texts: JSON arrays that hold a few thousand complete elements each.

        A yielded text is not yet known to decode; pass one that does not to `salvage`, before
        asking for the next one.

        Raises:
            TraceError: the file cannot be read, is not JSON, or lacks the array.
        """
        with open_trace(self.path) as file:
            blocks = self._blocks(file)
            rest = self._skip_header(blocks)
            yield from self._elements(blocks, rest)
        self._count_lost()
        self._read_around()

    def member(self, name: str, kind: Any, size_max: int = MEMBER_BYTES_MAX) -> Any:
        """Return a member of the object around the array; None if it is absent or of no `kind`."""
        text = bytes(self.around.get(name, b""))
        if not text:
            return None
        try:
            if len(text) <= size_max:
                return msgspec.json.decode(text, type=kind)
        except (msgspec.ValidationError, *DECODE_ERRORS):
            pass
        self.problems[METADATA_WRONG] += 1
        return None

    def count_damaged(self, count: int = 1) -> None:
        """Count elements that cannot be used; after `DAMAGED_MAX` the stream ends."""
        self._damaged += count
        if self.is_given_up:
            self.problems[with_detail(TOO_MUCH_DAMAGE, f"{DAMAGED_MAX:,}")] = 1

    @property
    def is_given_up(self) -> bool:
        """Whether there was so much damage that the stream ends early."""
        return self._damaged >= DAMAGED_MAX

    def _blocks(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the bytes of the JSON text; a damaged end is counted, what came before stays."""
        try:
            rest = b""
            for read in inflate(file):
                if self.on_progress:
                    self.on_progress(file.tell())
                block = read
                if self.is_bare:
                    whole = rest + read
                    # The byte behind the last backslashes says what they are.
                    end = len(whole.rstrip(b"\\"))
                    block, rest = escape_backslashes(whole[:end]), whole[end:]
                yield block
            if rest:
                yield rest
        except _READ_ERRORS:
            self.problems[FILE_CUT] += 1

    def _skip_header(self, blocks: Iterator[bytes]) -> bytes:
        """Return the bytes after the `[` that opens the array."""
        head = b""
        search = _ArraySearch(self.key)
        for block in blocks:
            head += block
            start = search.start_in(head)
            if start is not None:
                self._header = head[: start - 1]
                return head[start:]
            if len(head) > AROUND_BYTES_MAX:
                break
        if not head:
            msg = f"{self.path}: not a gzip file, or a damaged one; record again or copy it again"
        elif not head.lstrip(_BOM + _SPACE).startswith(b"{"):
            msg = f"{self.path}: not a JSON file; {_READS}"
        else:
            msg = f"{self.path}: no {self.key} in this JSON file; {_READS}"
        raise TraceError(msg)

    def _elements(self, blocks: Iterator[bytes], first: bytes) -> Iterator[bytes]:
        rest = b""
        for read in itertools.chain((first,), blocks):
            # Mostly the block itself shows where to cut: then it is copied once.
            block, cut = read, _last_start(read, max(0, len(read) - _WINDOW_BYTES))
            if cut <= 0:
                block, searched, rest = rest + read, len(rest), b""
                cut = _last_start(block, searched)
                if cut < 0 and len(block) > CHUNK_BYTES:
                    cut = _last_start(block, 0, _ANY_START)
            if cut > 0:
                end = cut
                while end > 0 and block[end - 1] in _SPACE:
                    end -= 1
                end -= end > 0 and block[end - 1] == ord(",")  # nor the comma behind the last
                self._unused = 0
                yield b"".join((b"[", rest, memoryview(block)[:end], b"]"))
                if self.is_given_up:
                    return
                if self._unused or self._is_closed:  # what was yielded is not all used
                    rest = (rest + block)[len(rest) + end - self._unused :]
                else:
                    rest = block[cut:]
            else:
                rest = block
            if self._is_closed:
                self._read_trailer(rest, blocks)
                return
            if len(rest) > ELEMENT_BYTES_MAX:
                break
        yield from self._last_elements(rest, blocks)

    def _last_elements(self, text: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the last elements of the array, and read what stands behind the array."""
        if len(text) > ELEMENT_BYTES_MAX and closing_bracket(text) < 0:
            self.problems[EVENT_TOO_LONG] += 1
            return
        elements, rest = self._walk(text, is_last=True)
        if elements:
            yield b"[" + b",".join(elements) + b"]"
        if self._is_closed:
            self._read_trailer(rest, blocks)
        elif self.is_given_up:
            pass
        elif rest.startswith(b"{"):
            self.problems[LAST_EVENT_CUT] += 1
        elif rest:
            self.problems[END_NO_EVENT] += 1
        else:
            self.problems[LIST_CUT] += 1

    def _read_trailer(self, text: bytes, blocks: Iterator[bytes]) -> None:
        for block in blocks:
            text += block
            if len(text) > AROUND_BYTES_MAX:
                if self._end_of_document(text) < 0:
                    self.problems[METADATA_TOO_LONG] += 1
                    return
                break
        self._trailer = text

    def _end_of_document(self, trailer: bytes) -> int:
        """Return where what stands behind the array ends, -1 if it is not complete."""
        is_bare = not self._header.strip(_BOM + _SPACE)
        return 0 if is_bare else closing_bracket(trailer) + 1 or -1

    def _count_lost(self) -> None:
        """Say how much text could not be saved, and about how many elements stood in it."""
        if self._lost.count:
            size = self._saved.size / max(1, self._saved.count)
            count = round(self._lost.size / size) if size else 0
            key = with_detail(BYTES_LOST, f"{self._lost.size:,}")
            self.problems[key] = max(count, self._lost.count)

    def _read_around(self) -> None:
        """Find the members before and after the array; what is no JSON is left out."""
        if self.is_bare:
            self._header, self._trailer = map(restore_backslashes, (self._header, self._trailer))
        head = self._header.lstrip(_BOM).rstrip()
        head = head[: head.rfind(b'"' + self.key.encode())] if b'"' in head else b""
        end = self._end_of_document(self._trailer)
        tail = self._trailer if end < 0 else self._trailer[: max(0, end - 1)]
        if end >= 0 and self._trailer[end:].lstrip(_SPACE).startswith((b"{", b"[")):
            self.problems[SECOND_DOCUMENT] += 1
        for text in (
            head.rstrip().rstrip(b",") + b"}",
            b"{" + tail.lstrip().lstrip(b",") + b"}",
        ):
            members = _members(text)
            if members is not None:
                self.around.update(members)
            elif text.strip(b"{}[]," + _SPACE):
                self.problems[METADATA_BROKEN] += 1

    def salvage(self, text: bytes) -> list[msgspec.Raw]:
        """Return the elements of `text`, a chunk that does not decode, that can be saved.

        An element that is not complete at the end of the chunk comes again in the next one.
        """
        elements, rest = self._walk(text[1:-1], is_last=False)
        self._unused = len(rest)
        return [msgspec.Raw(element) for element in elements]

    def _walk(self, text: bytes, *, is_last: bool) -> tuple[list[bytes], bytes]:
        """Return the elements that `text` begins with, and what is left of it.

        Left is what stands behind the array if it ends in `text`, else what is not complete.
        """
        elements: list[bytes] = []
        chars = text.decode("latin-1")  # one character a byte: only positions are taken from it
        at = self._skip_commas(text, 0)
        while at < len(text) and chars[at] != "]":
            if at > _PASSED_BYTES:
                text, chars, at = text[at:], chars[at:], 0
            end = _value_end(chars, at)
            following = _next_event(text, at + 1) if end < 0 else None
            stop = following if end < 0 else end
            if stop is None and not is_last:
                return elements, text[at:]
            element, after = self._mend(text[at:stop])
            if not element.startswith(b"{"):
                self.count_damaged()
                if self.is_given_up:
                    return elements, b""
            if element:
                elements.append(element)
                self._saved.add(len(element) + _COMMA_BYTES)
            elif stop is None:
                return elements, text[at:]
            else:
                self._lost.add(len(text[at:stop].rstrip(b"," + _SPACE)))
            if following is not None:
                at = following
                continue
            if stop is None:
                text, chars, end = after, after.decode("latin-1"), 0
            at = self._skip_commas(text, end)
        self._is_closed = at < len(text)
        return elements, text[at + 1 :]

    def _skip_commas(self, text: bytes, at: int) -> int:
        """Return where the next element starts; count what is not one comma between two."""
        separator = _SEPARATOR.match(text, at)
        end = separator.end() if separator else at
        is_between = at > 0 and end < len(text) and text[end] != ord("]")
        commas = text.count(b",", at, end)
        if commas > 1 or (end < len(text) and commas != is_between):
            self.problems[COMMA_REPAIRED] += 1
        return end

    def _mend(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return the element that `piece` begins with, repaired if need be, and what follows it.

        The element is empty if no repair works.
        """
        if _is_valid(piece):
            return piece, b""
        self.has_bare_backslash |= has_bare_backslash(piece)
        # Mostly no quote is bare, and the same repair need not be tried twice.
        for attempt in dict.fromkeys((piece, escape_bare_quotes(piece))):
            mended = repair(attempt)
            end = _value_end(mended.decode("latin-1"), 0)
            if end > 0 and _is_valid(mended[:end]):
                self.problems[EVENT_REPAIRED] += 1
                return mended[:end], mended[end:]
        return b"", b""


def _value_end(chars: str, start: int) -> int:
    """Return the position behind the JSON value that starts at `start`, or -1."""
    try:
        return _VALUES.raw_decode(chars, start)[1]
    except (ValueError, RecursionError):
        return -1


def _next_event(text: bytes, begin: int) -> int | None:
    """Return where the next event starts; what has no phase is part of another event."""
    starts = (match.end(1) for match in _ELEMENT_START.finditer(text, begin))
    for start, end in itertools.pairwise(itertools.chain(starts, (len(text),))):
        if _PHASE.search(text, start, end):
            return start
    return None


def _is_valid(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.ValidationError:
        return True  # a number that is too large: a matter of the field that it stands in
    except DECODE_ERRORS:
        return False
    return True


def _members(text: bytes) -> dict[str, msgspec.Raw] | None:
    """Return the members of a JSON object, repaired if need be."""
    for mend in (bytes, repair):
        try:
            return msgspec.json.decode(mend(text), type=dict[str, msgspec.Raw])
        except (msgspec.ValidationError, *DECODE_ERRORS):
            continue
    return None


def open_trace(path: Path) -> IO[bytes]:
    """Open a file that is not empty.

    Raises:
        TraceError: it is, or cannot be read.
    """
    try:
        file = path.open("rb")
        if not file.read(1):
            file.close()
            msg = f"{path}: the file is empty; record again"
            raise TraceError(msg)
        file.seek(0)
    except OSError as error:
        msg = f"{path}: {error.strerror or error}"
        raise TraceError(msg) from error
    return file


def inflate(file: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks of the file's content, inflated if it is gzip.

    Every byte that inflates is yielded, also those just before damage; and never much more than
    `CHUNK_BYTES` at once, however well they were compressed.
    """
    if file.read(2) == _GZIP:
        file.seek(0)
        yield from _gathered(_inflated(file))
        return
    file.seek(0)
    while block := file.read(CHUNK_BYTES):
        yield block


def _inflated(file: IO[bytes]) -> Iterator[bytes]:
    """Yield what each member of a gzip file holds, in blocks of any size."""
    inflater = isal_zlib.decompressobj(wbits=31)
    step = _MEMBER_BYTES
    while data := memoryview(file.read(READ_BYTES)):
        while data:
            if inflater.eof:
                if not _GZIP.startswith(data[:2]):
                    return  # not another file behind the first one: padding
                inflater, step = isal_zlib.decompressobj(wbits=31), _MEMBER_BYTES
            block = inflater.decompress(data[:step], CHUNK_BYTES)
            # The rest of a step is copied: with members of few bytes, steps are short.
            left = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            data = data[min(step, len(data)) - len(left) :]
            step = min(2 * step, READ_BYTES)
            if block:
                yield block
    if not inflater.eof:
        raise EOFError


def _gathered(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in fewer blocks: many were of few bytes."""
    parts: list[bytes] = []
    size, broken = 0, None
    try:
        for block in blocks:
            parts.append(block)
            size += len(block)
            if size >= READ_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    except _READ_ERRORS as error:
        broken = error
    if parts:
        yield b"".join(parts)
    if broken is not None:
        raise broken


@dataclass
class _ArraySearch:
    """Looks for the `[` of the array `key`, or of a bare array, in a text that grows.

    Attributes:
        key: the name of the array at the top level.
        position: how far the text was read.
        depth: number of open brackets there.
    """

    key: str
    position: int = 0
    depth: int = 0

    def start_in(self, head: bytes) -> int | None:
        """Return the position behind the bracket; `head` begins with what it was before."""
        if bare := _BARE_LIST.match(head):
            return bare.end()
        key = b'"' + self.key.encode() + b'"'
        if head.find(key, self.position) < 0:
            return None
        for token in TOKEN.finditer(head, self.position):
            text = token.group()
            if text[0] in b"{[":
                self.depth += len(text)
            elif text[0] in b"}]":
                self.depth -= len(text)
            elif self.depth == 1 and text == key:
                if match := _LIST_START.match(head, token.end()):
                    return match.end()
                if _LIST_MAY_START.match(head, token.end()):
                    return None
            elif token.end() == len(head):
                return None  # the string may go on
            self.position = token.end()
        return None


def _last_start(text: bytes, begin: int, start: re.Pattern[bytes] = _ELEMENT_START) -> int:
    """Return where the last element that starts behind `begin` starts, or -1."""
    window = _WINDOW_BYTES
    while True:
        at = max(begin, len(text) - window)
        starts = [match.end(1) for match in start.finditer(text, at)]
        if starts or at == begin:
            return starts[-1] if starts else -1
        window *= 8
