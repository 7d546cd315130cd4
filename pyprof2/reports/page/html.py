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
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DATA: Final = Path(__file__).resolve().parents[2] / "data"
_SCRIPT: Final = "report.js"
_STYLE: Final = "report.css"
_ENDS: Final = re.compile(r"</(?=(?:script|style)\b)|<!--", re.IGNORECASE)
_POLICY: Final = (
    "default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def packed(document: Mapping[str, Any]) -> str:
    """Return a document as JSON, compressed with gzip, in base64."""
    pack = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    content = pack.compress(msgspec.json.encode(document)) + pack.flush()
    return base64.b64encode(content).decode("ascii")


def page(data: str) -> Iterator[str]:
    """Give the parts of the file.

    Args:
        data: what `packed` returns.
    """
    script, style = (_inlined(DATA / name) for name in (_SCRIPT, _STYLE))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = _POLICY.format(script=f"sha256-{digest}")
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="color-scheme" content="light dark">\n'
    yield f"<title>pyprof2 report</title>\n<style>{style}</style>\n</head>\n<body>\n"
    yield '<div id="app"></div>\n<noscript>This page needs JavaScript.</noscript>\n'
    yield f'<script type="application/octet-stream" id="document">{data}</script>\n'
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def _inlined(path: Path) -> str:
    r"""Return a file as it can stand between tags: `</script` in a text of it as `<\/script`."""
    text = path.read_text(encoding="utf-8")
    return _ENDS.sub(lambda found: "<\\" + found[0][1:], text)
