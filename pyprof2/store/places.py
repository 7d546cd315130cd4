"""Where recordings, stores and results lie: in files, on standard input, or far away.

What is far away has an address, such as `s3://bucket/net.json.gz`; `remote` brings it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())  # before Python 3.12 this one alone can have heirs

STDIN: Final = Path("-")
MANIFEST: Final = "manifest.json"
"""The file that makes a folder a store."""
STDIN_NAME: Final = "stdin"
WEB: Final = ("http://", "https://")
_LOCAL: Final = "file://"
# A letter and a colon begin paths of Windows.
_ADDRESS: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]+):/+(?P<rest>.+)", re.DOTALL)
_PASSWORD: Final = re.compile(r"(?<=://)[^/@:]*:[^/@]*@")


class Address(_Path):
    """A path that is far away. As text it has no password, and no query, which may be one."""

    _given: str | None = None

    @classmethod
    def of(cls, url: str) -> Address:
        """Return the path of an address, which keeps each of its characters."""
        address = cls(_without_secrets(url))
        address._given = url
        return address

    @property
    def url(self) -> str:
        """The whole address, as fsspec takes it."""
        if self._given is not None:
            return self._given
        found = _ADDRESS.match(super().__str__())
        return f"{found['scheme']}://{found['rest']}" if found else super().__str__()

    def __str__(self) -> str:
        return _without_secrets(self.url)

    def __fspath__(self) -> str:
        return str(self)


def _without_secrets(url: str) -> str:
    plain = _PASSWORD.sub("", url)
    return plain.partition("?")[0] if plain.startswith(WEB) else plain


def place(text: Path | str) -> Path:
    """Return what a text names: a path, or an address."""
    if isinstance(text, Path):
        return text
    if text.startswith(_LOCAL):
        return Path(text.removeprefix(_LOCAL))
    return Address.of(text) if "://" in text and _ADDRESS.match(text) else Path(text)


def folder_of(path: Path) -> Path:
    """Return the folder for what belongs beside a path: the current one if that is not here."""
    return Path() if isinstance(path, Address) or path == STDIN else path.parent


def name_of(path: Path) -> str:
    """Return the name of a file or folder, whatever way a path leads to it."""
    if path == STDIN:
        return STDIN_NAME
    return path.resolve().name if path.name in ("", ".", "..") else path.name
