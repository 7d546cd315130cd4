"""The file of the page: a shell that may load nothing, the program, and the data.

All that a recording says is in the data, which is compressed and in base64: none of it can end a
tag or begin one.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DATA: Final = Path(__file__).resolve().parents[2] / "data"
_ENDS: Final = re.compile(r"</(?=(?:script|style)\b)|<!--", re.IGNORECASE)
_POLICY: Final = (
    "default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_OWN: Final = "; connect-src 'self'"


class Program(NamedTuple):
    """The program of a page.

    Attributes:
        name: of its files in `pyprof2/data/built`.
        title: of the page, until the program has a better one.
        connects: whether it may ask the server that it comes from.
    """

    name: str
    title: str
    connects: bool = False

    @property
    def script(self) -> str:
        """The script as it stands on the page."""
        return _inlined(DATA / "built" / f"{self.name}.js")

    @property
    def policy(self) -> str:
        """The content security policy of the page."""
        digest = base64.b64encode(hashlib.sha256(self.script.encode()).digest()).decode("ascii")
        return _POLICY.format(script=f"sha256-{digest}") + (_OWN if self.connects else "")


REPORT: Final = Program("report", "pyprof2 report")


def packed(document: Mapping[str, Any]) -> str:
    """Return a document as JSON, compressed with gzip, in base64."""
    # The last two levels take twice and three times as long, and leave 1.5 % less.
    pack = zlib.compressobj(7, wbits=16 + zlib.MAX_WBITS)
    content = pack.compress(msgspec.json.encode(document)) + pack.flush()
    return base64.b64encode(content).decode("ascii")


def page(data: str, program: Program = REPORT) -> Iterator[str]:
    """Give the parts of the file.

    Args:
        data: what `packed` returns; empty: the program asks for it.
        program: what runs there.
    """
    script, style = program.script, _inlined(DATA / "built" / f"{program.name}.css")
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{program.policy}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="color-scheme" content="light dark">\n'
    yield f"<title>{program.title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    yield '<div id="app"></div>\n<noscript>This page needs JavaScript.</noscript>\n'
    yield f'<script type="application/octet-stream" id="document">{data}</script>\n'
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def _inlined(path: Path) -> str:
    r"""Return a file as it can stand between tags: `</script` in a text of it as `<\/script`."""
    text = path.read_text(encoding="utf-8")
    return _ENDS.sub(lambda found: "<\\" + found[0][1:], text)
