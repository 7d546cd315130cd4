"""Pages for those who come from other tools: each command runs, and gives what is named."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from docs import examples
from pyprof2.cli import build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
PAGES: Final = ("from-hta", "from-nsys-stats", "from-tensorboard", "from-tracelens")
_COLUMN: Final = re.compile(
    r"[a-z_]+_(?:ns|pct|mean|bytes|us|shared)|count|bytes|flops|tflops|gbps|intensity|calls|cause|op"
    r"|rule|finding|stack|layer|grid|block|registers|stream|step|recompute|allocations|occurrences"
)
_AS_TABLES: Final = ("prof", "idle", "ranks", "compare", "advise", "memory")
_NO_TABLE: Final = ("--summary", "--envelope", " -o ")


_NAMES: Final = {
    name
    for action in build_parser()._actions
    if isinstance(action.choices, dict)
    for name in action.choices
}


class Written(NamedTuple):
    """A command in a page, as it can be run, and the columns that its cell names after it."""

    page: str
    command: str
    columns: tuple[str, ...]


def whole(text: str) -> str | None:
    """Return a literal as a command, a shorthand with a recording; None if it is neither."""
    words = text.split()
    if words[0] == "pyprof2" and len(words) > 1:
        return " ".join(words)
    if words[0] not in _NAMES:
        return None
    recording = {
        "ranks": "job", "compare": "train.json faster.json", "parse": "",
        "report": "train.json --force",  # another command may have written it
    }  # fmt: skip
    return " ".join(["pyprof2", words[0], recording.get(words[0], "train.json"), *words[1:]])


def commands(page: str) -> Iterator[Written]:
    text = (DOCS / f"{page}.rst").read_text(encoding="utf-8")
    for cell in re.split(r"\n(?:   )?[* ] - |\n\n", text):
        found: list[str] = []
        columns: dict[str, list[str]] = {}
        for literal in (" ".join(each.split()) for each in re.findall(r"``([^`]+)``", cell)):
            command = whole(literal)
            if command is not None:
                found.append(command)
                columns[command] = []
            elif found and literal.startswith("-c "):
                found[-1] = f"{found[-1]} {literal}"
                columns[found[-1]] = literal.removeprefix("-c ").split(",")
            elif found and _COLUMN.fullmatch(literal):
                columns[found[-1]].append(literal)
        yield from (Written(page, each, tuple(columns[each])) for each in found)


WRITTEN: Final = [each for page in PAGES for each in commands(page)]


def test_the_pages_have_rows() -> None:
    counts = {page: sum(each.page == page for each in WRITTEN) for page in PAGES}

    assert min(counts.values()) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("written", WRITTEN, ids=lambda w: f"{w.page}: {w.command}")
def test_a_command_of_another_tool_has_one_that_runs(written: Written) -> None:
    command = written.command
    is_table = command.split()[1] in _AS_TABLES and not any(x in command for x in _NO_TABLE)
    if not is_table or not written.columns:
        examples.output(command)
        return

    text = examples.output(f"{command} --format csv")

    header = next(csv.reader(io.StringIO(text)))
    assert [name for name in written.columns if name not in header] == []
