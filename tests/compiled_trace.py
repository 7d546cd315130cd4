"""The recording of a compiled training in `tests/data`, and what tests change in it."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.markers import COMPILED_KEY, COMPILED_VERSION
from pyprof2.parsers.compile_notes import read_notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.recording import CompiledGraph

FOLDER: Final = Path(__file__).parent / "data" / "compiled"
TRACE: Final = FOLDER / "compiled.json.gz"
SOURCE: Final = "/tmp/compiled/train.py"  # noqa: S108 -- as recorded
"""Where the training was when it was recorded."""


def trace() -> dict[str, Any]:
    """Return the trace as it was recorded."""
    found: dict[str, Any] = json.loads(gzip.decompress(TRACE.read_bytes()))
    return found


def notes(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the notes in a trace, without the line of their version."""
    content = gzip.decompress(base64.b64decode(document[COMPILED_KEY]))
    return [json.loads(line) for line in content.split(b"\n")[1:]]


def encoded(found: list[dict[str, Any]], **first: Any) -> str:
    """Return notes as a trace has them; the line of their version may say more."""
    lines = [{"version": COMPILED_VERSION, **first}, *found]
    return base64.b64encode(gzip.compress("\n".join(map(json.dumps, lines)).encode())).decode()


def graphs() -> list[CompiledGraph]:
    """Return the graphs that the trace has notes of: that of forward, that of backward."""
    found = read_notes(trace()[COMPILED_KEY], lambda path, _root, _outermost: path)
    assert found is not None
    return found


def changed(
    path: Path,
    of_events: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None,
    of_notes: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None,
) -> Path:
    """Write the trace with other events or notes."""
    document = trace()
    if of_events is not None:
        document["traceEvents"] = of_events(document["traceEvents"])
    if of_notes is not None:
        document[COMPILED_KEY] = encoded(of_notes(notes(document)))
    path.write_text(json.dumps(document))
    return path
