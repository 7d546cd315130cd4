"""Wherever the blocks of a file end, the pieces it is cut into are whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyprof2.parsers import _json
from pyprof2.parsers._json import JsonStream

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = [{"ph": "X", "name": f"e{number}", "ts": number} for number in range(6)]


@pytest.mark.parametrize("between", [",", ", ", ",\n   ", " ,\t"])
def test_pieces_decode_and_hold_all_events_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + between.join(map(json.dumps, EVENTS)) + '], "a": 1}')

    for size in range(1, path.stat().st_size + 1):
        monkeypatch.setattr(_json, "CHUNK_BYTES", size)
        stream = JsonStream(path, "traceEvents")
        pieces = [json.loads(piece) for piece in stream.chunks()]

        assert [event for piece in pieces for event in piece] == EVENTS, size
        assert not stream.problems
        assert list(stream.around) == ["a"]
