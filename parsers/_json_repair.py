"""Mend JSON text that recorders are known to break, and find where its parts end.

Every pattern here takes time in proportion to the text, whatever the text is: strings are matched
possessively, and one that does not end is matched up to the end of the text.
"""

from __future__ import annotations

import re
from typing import Final

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
TOKEN: Final = re.compile(_STRING + rb"|[\[{]+|[\]}]+", re.DOTALL)
"""A string, or a run of brackets that all open or all close."""

_STRINGS: Final = re.compile(_STRING, re.DOTALL)
# The group has what is right: an escape, a pair of surrogates, a character. The rest is wrong: half
# of a pair, and a backslash that escapes nothing.
_ESCAPE: Final = re.compile(
    rb'(\\["\\/bfnrt]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    rb"|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\"
)
_NOT_A_NUMBER: Final = re.compile(
    rb"(?<=[:\[,])(\s*+)(?:N/A|[-+]?(?:nan|inf|infinity)(?:\(\w*+\))?)(?=\s*+[,\]}])", re.IGNORECASE
)
_NO_VALUE: Final = re.compile(rb":(?=\s*+[,}])")
_EXTRA_COMMA: Final = re.compile(rb",(?=\s*+[\]}])|(?<=[\[{,])\s*+,")
_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_NAME: Final = re.compile(rb'"name"\s*+:\s*+"')
_AFTER_NAME: Final = re.compile(rb'"\s*+,\s*+"(?:ph|cat|pid|tid|ts|dur|args|id|bp|s)"\s*+:')
_BARE_QUOTE: Final = re.compile(rb'(?<!\\)"')


_BACKSLASHES: Final = re.compile(rb'(\\+)("?)')
_PAIR: Final = b"\\\\"


def has_bare_backslash(text: bytes) -> bool:
    """Return whether a string has a backslash that escapes nothing, and none has an escaped one."""
    strings = [match[0] for match in _STRINGS.finditer(text) if b"\\" in match[0]]
    escapes = [match[0] for string in strings for match in _ESCAPE.finditer(string)]
    return b"\\" in escapes and _PAIR not in escapes


def escape_backslashes(text: bytes) -> bytes:
    """Return a text in which a backslash is one, but for one that escapes a quote, as JSON."""

    def doubled(match: re.Match[bytes]) -> bytes:
        escapes = len(match[1]) % 2 if match[2] else 0
        return match[1] + match[1][escapes:] + match[2]

    return _BACKSLASHES.sub(doubled, text)


def restore_backslashes(text: bytes) -> bytes:
    """Return the text that `escape_backslashes` gives this one for."""

    def halved(match: re.Match[bytes]) -> bytes:
        escapes = len(match[1]) % 2 if match[2] else 0
        return match[1][: (len(match[1]) + escapes) // 2] + match[2]

    return _BACKSLASHES.sub(halved, text)


def repair(text: bytes) -> bytes:
    """Return `text` with the known kinds of damage mended.

    Bytes that are not UTF-8, control characters, unknown escapes and half characters in strings,
    `N/A`, `nan`, `inf` or nothing where a value should be, and commas too many.
    """
    text = text.decode("utf-8", "replace").encode()
    parts, last = [], 0
    for match in _STRINGS.finditer(text):
        string = match.group()
        if b"\\" in string:
            string = _ESCAPE.sub(_repair_escape, string)
        if _CONTROL.search(string):
            for code in range(0x20):
                string = string.replace(b"%c" % code, b"\\u%04x" % code)
        parts += [_repair_between(text[last : match.start()]), string]
        last = match.end()
    return b"".join([*parts, _repair_between(text[last:])])


def _repair_between(text: bytes) -> bytes:
    if text in (b":", b",", b":[", b"],", b"},", b":{"):
        return text
    text = _NO_VALUE.sub(b":null", _NOT_A_NUMBER.sub(rb"\1null", text))
    return _EXTRA_COMMA.sub(b"", text)


def _repair_escape(match: re.Match[bytes]) -> bytes:
    return match[1] or (b"\\\\" if match[0] == b"\\" else b"\\ufffd")


def escape_bare_quotes(event: bytes) -> bytes:
    """Return an event whose name's quotes, written without a backslash, are escaped."""
    name = _NAME.search(event)
    after = name and _AFTER_NAME.search(event, name.end())
    if not name or not after:
        return event
    value = _BARE_QUOTE.sub(rb'\\"', event[name.end() : after.start()])
    return event[: name.end()] + value + event[after.start() :]


def closing_bracket(text: bytes) -> int:
    """Return where the object or list ends that `text` is the inside of, or -1."""
    depth = 0
    for token in TOKEN.finditer(text):
        mark = token[0]
        if mark[0] in b"{[":
            depth += len(mark)
        elif mark[0] in b"}]":
            if depth < len(mark):
                return token.start() + depth
            depth -= len(mark)
    return -1
