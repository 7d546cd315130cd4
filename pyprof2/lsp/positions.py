"""Text as editors count it: lines end at LF, CRLF and CR, and nowhere else; columns have units.

Python's `str.splitlines` also splits at a form feed and at U+2028, and edits would then go to the
wrong line. A *column* here is a number of code points; an editor counts bytes of UTF-8, units of
UTF-16 or code points, whichever was agreed upon.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final, NamedTuple

_END: Final = re.compile(r"(\r\n|\n|\r)")
_BOM: Final = "\ufeff"
UTF8, UTF16, UTF32 = "utf-8", "utf-16", "utf-32"


class TextPosition(NamedTuple):
    """A line and a column, both from 0; the column in code points or in an editor's units."""

    line: int
    column: int


class LineEdit(NamedTuple):
    """Lines of a text that others took the place of.

    Attributes:
        first: the first line that is gone or new.
        removed: how many lines are gone.
        added: how many there are instead.
    """

    first: int
    removed: int
    added: int

    def moved(self, line: int) -> int | None:
        """Return where a line of the old text is now, perhaps with other words; None: nowhere."""
        if line < self.first or self.removed == self.added:
            return line
        if line < self.first + self.removed:
            return None
        return line + self.added - self.removed


class Text:
    """A text and its lines; never changed.

    Attributes:
        source: the whole.
        lines: without their ends. The last is empty where the text ends with a line's end.
        starts: index of the first character of each line.
    """

    __slots__ = ("lines", "source", "starts")

    def __init__(self, source: str) -> None:
        self.source = source
        parts = _END.split(source)
        self.lines = parts[0::2]
        self.starts = [0, *list(accumulate(map(len, parts)))[1::2]]

    def index(self, place: TextPosition, encoding: str) -> int:
        """Return the index of a place that an editor names; beyond the text its nearest end."""
        if place.line < 0:
            return 0
        if place.line >= len(self.lines):
            return len(self.source)
        line = self.lines[place.line]
        return self.starts[place.line] + points(line, place.column, encoding)

    def place(self, index: int, encoding: str) -> TextPosition:
        """Return how an editor names an index."""
        from bisect import bisect_right

        line = bisect_right(self.starts, index) - 1
        return self.in_units(TextPosition(line, index - self.starts[line]), encoding)

    def in_units(self, place: TextPosition, encoding: str) -> TextPosition:
        """Return a place in code points as an editor names it."""
        return TextPosition(place.line, units(self.lines[place.line][: place.column], encoding))

    def index_of_bytes(self, line: int, column: int) -> int:
        """Return the index of a place of `ast`: a line from 1, and a column in bytes of UTF-8."""
        text = self.lines[line - 1]
        # A byte order mark is not parsed.
        skipped = 1 if line == 1 and text.startswith(_BOM) else 0
        return self.starts[line - 1] + skipped + points(text[skipped:], column, UTF8)

    def replaced(self, start: int, stop: int, new: str) -> Text:
        """Return the text with other characters from `start` to `stop`."""
        return Text(self.source[:start] + new + self.source[stop:])


def without_mark(source: str) -> str:
    """Return a text without its byte order mark, as `ast` needs it."""
    return source.removeprefix(_BOM)


def units(text: str, encoding: str) -> int:
    """Return the length of a text in units of an encoding."""
    if encoding == UTF32 or text.isascii():
        return len(text)
    if encoding == UTF8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(character > "\uffff" for character in text)


def points(text: str, count: int, encoding: str) -> int:
    """Return how many code points the first units of a text are.

    Inside of a character it is what comes before that; beyond the text it is the text's length.
    """
    if encoding == UTF32 or text.isascii():
        return max(0, min(count, len(text)))
    for at, character in enumerate(text):
        count -= units(character, encoding)
        if count < 0:
            return at
    return len(text)


def change_between(old: Text, new: Text) -> LineEdit:
    """Return the one range of lines outside of which two texts are equal."""
    before, after = old.lines, new.lines
    shorter = min(len(before), len(after))
    first = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    last = 0
    while last < shorter - first and before[-1 - last] == after[-1 - last]:
        last += 1
    return LineEdit(first, len(before) - first - last, len(after) - first - last)


def language_of(language: str | None, path: str | None) -> str:
    """Return the language of a file, as its editor or its name says."""
    name = (path or "").lower()
    if language == "python" or name.endswith((".py", ".pyw")):
        return "python"
    if language in ("yaml", "yml") or name.endswith((".yaml", ".yml")):
        return "yaml"
    return language or ""
