"""Ten thousand lines: an answer is little work, and nothing waits for an analysis."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from pyprof2.frames import line_hashes
from pyprof2.lsp import features
from pyprof2.lsp.analysis import analyse
from pyprof2.lsp.costs import VALUES, Costs, FileCosts, Node
from pyprof2.lsp.files import Document
from pyprof2.lsp.recordings import FoundRecording
from pyprof2.lsp.session import Session
from tests.counted_calls import calls_of

LINES = 10_000
CALLS_MAX = 40_000
"""Calls of functions in an answer: some 10 ms on the machine on which they were counted."""
PATH = "/w/large.py"
SOURCE = "".join(
    f"def f{at}(x):\n    y = g(x)  # 😀 {at}\n    h(y)\n    batch_size = {at + 1}\n    return y\n"
    for at in range(LINES // 5)
)


def costs() -> Costs:
    """Return costs at two lines of each function; their times grow from first to last."""
    nodes = [
        Node(line=line, parent=-1, module=None, values=[1000 + line, *[1] * (len(VALUES) - 1)])
        for line in range(LINES)
        if line % 5 in (1, 2)
    ]
    file = FileCosts(sha256="", hashes=line_hashes(SOURCE), nodes=nodes, memory={}, rates={})
    return Costs(
        path="/w/net.pyprof2", entry=None, root="/w", ledger="device", steps=1, step_ns=1e6,
        total_ns=1_000_000,
        recorded_at=0, by_function=False, device="", memory_of="", peak_bytes=0, leading=[],
        files={PATH: file}, layers={}, tree=[], findings=[],
    )  # fmt: skip


async def _nothing() -> None:
    """Tell nobody."""


@pytest.fixture
def session() -> Session:
    """Return a session in which the large file is open and analysed; a test types in it."""
    from pyprof2.lsp.files import File

    made = Session(_nothing)
    found = costs()
    made.recordings["main"] = FoundRecording(
        costs=found, local={PATH: PATH}, states={PATH: "same"}, before={PATH: SOURCE}, passed=[]
    )
    item = lsp.TextDocumentItem(f"file://{PATH}", "python", 1, SOURCE)
    document = Document(item, "utf-16")
    file = made.files[item.uri] = File(document, PATH, "python")
    analysis = analyse(SOURCE, "python", found["files"][PATH], SOURCE, trusted=True)
    file.found("main", analysis, document.text)
    return made


def test_an_answer_of_a_large_file_calls_few_functions(session: Session) -> None:
    (file,) = session.files.values()
    session.settings, _ = session.settings.changed({"threshold": 0.01, "maxHints": 400})
    everywhere = lsp.Range(lsp.Position(0, 0), lsp.Position(LINES, 0))
    line = lsp.Range(lsp.Position(5003, 0), lsp.Position(5003, 0))

    calls = {
        "screen": calls_of(
            lambda: features.hints(session, file, lsp.Range(everywhere.start, line.end))
        ),
        "hints": calls_of(lambda: features.hints(session, file, everywhere)),
        "lenses": calls_of(lambda: features.lenses(session, file)),
        "hover": calls_of(lambda: features.hover(session, file, 5001)),
    }

    assert len(features.hints(session, file, everywhere)) == 400
    assert {name: count for name, count in calls.items() if count > CALLS_MAX} == {}


def test_a_keystroke_in_a_large_file_calls_few_functions(session: Session) -> None:
    (file,) = session.files.values()
    at = lsp.Position(5000, 0)
    change = lsp.TextDocumentContentChangePartial(lsp.Range(at, at), "#\n")

    for _ in range(19):
        file.document.apply_change(change)
    typed = calls_of(lambda: file.document.apply_change(change))
    viewed = calls_of(lambda: file.view("main"))
    moved = file.view("main")

    assert max(typed, viewed) < CALLS_MAX
    assert moved.lines[-1]["now"] == LINES - 3 + 20
    assert file.document.text.lines[5000] == "#"
