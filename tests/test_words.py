"""Private dialect is found in prose and in names, and only where people wrote it."""

from __future__ import annotations

import pytest

from tests.words import FOLDERS, ROOT, files, found_in


@pytest.mark.parametrize(
    "text",
    [
        "The trace tells the step.", "known if told", "def told_rows(): ...", "MAKERS = {}",
        "_tell, _legs", '"""Of what calls it."""', "    # What is left.", "/** What it is. */",
    ],
)  # fmt: skip
def test_dialect_is_found(text: str) -> None:
    assert [line for line, *_ in found_in(text)] == [1]


@pytest.mark.parametrize(
    "text",
    [
        "Calls are told apart, and the stack tells two of them apart.",
        "foretold, legal, making, kind", "a list of what is left",
        ".. generated: costs\n\nwho tells\n\n.. end generated\n",
    ],
)  # fmt: skip
def test_plain_english_and_generated_parts_are_not(text: str) -> None:
    assert list(found_in(text)) == []


def test_a_line_has_its_number_after_a_generated_part() -> None:
    text = ".. generated: a\n\ntells\n\n.. end generated\nmakers\n"

    assert [line for line, *_ in found_in(text)] == [6]


def test_all_folders_have_files() -> None:
    found = [str(path.relative_to(ROOT)) for path in files()]

    assert all(any(name.startswith(folder) for name in found) for folder in FOLDERS)
