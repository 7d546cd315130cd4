"""What a line of code was when it was recorded: hashes, so that numbers can follow edits.

A store keeps them in its manifest under `code`, for each file of the user's own that was there
unchanged since the recording began. They tell whether a line is still the one that was measured,
and are no copy of it.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WIDTH: Final = 8
"""Hexadecimal digits of a line's hash: two of a million lines differ but for 1 in 4000."""
LARGEST: Final = 1 << 21
"""Bytes of the largest file that is hashed; code that people write is smaller."""
_MOST_FILES: Final = 500
_END: Final = re.compile(r"\r\n|\n|\r")


class Code(TypedDict):
    """What is known of a file of code.

    Attributes:
        path: as the recording names it.
        sha256: of its bytes.
        lines: the hashes of its lines, one after another.
    """

    path: str
    sha256: str
    lines: str


def line_hashes(source: str) -> str:
    """Return the hashes of lines, without the blanks around them, one after another."""
    return "".join(_line_hash(line) for line in _END.split(source))


def _line_hash(line: str) -> str:
    content = line.strip().encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=WIDTH // 2).hexdigest()


def code_of(paths: Iterable[str], began: float) -> Iterator[Code]:
    """Yield what is known of the files that are there and were not changed since.

    Args:
        paths: as the recording names them; what is no full path of a `.py` file is left out.
        began: when the recording began, in seconds since the epoch.
    """
    for path in list(paths)[:_MOST_FILES]:
        content = _content(Path(path), began)
        if content is not None:
            source = content.decode("utf-8", "replace")
            yield Code(
                path=path,
                sha256=hashlib.sha256(content).hexdigest(),
                lines=line_hashes(source.removeprefix("\ufeff")),
            )


def _content(path: Path, began: float) -> bytes | None:
    try:
        # A trace may name any file of who reads it: only code is looked at.
        if path.suffix != ".py" or not path.is_absolute() or not path.is_file():
            return None
        found = path.stat()
        if found.st_mtime > began or found.st_size > LARGEST:
            return None
        return path.read_bytes()
    except (OSError, ValueError):
        return None
