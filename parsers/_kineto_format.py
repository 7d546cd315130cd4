"""How a Kineto trace is known, before anything of it is read."""

from __future__ import annotations

from typing import Final

from pyprof2.formats import TraceFormat

_GZIP: Final = b"\x1f\x8b"
_BEFORE_JSON: Final = b"\xef\xbb\xbf \r\n\t"


def looks_like(head: bytes) -> bool:
    """Whether a file that begins with `head` may be a Kineto trace: gzip, or JSON."""
    return head.startswith(_GZIP) or head.lstrip(_BEFORE_JSON)[:1] in (b"{", b"[")


KINETO: Final = TraceFormat(
    name="kineto",
    files="a Kineto .json or .json.gz",
    source="the JSON that torch.profiler exports",
    suffixes=(".pt.trace.json.gz", ".pt.trace.json", ".json.gz", ".json", ".gz"),
    recognises=looks_like,
    reader="pyprof2.parsers.kineto",
)
