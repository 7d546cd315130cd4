"""Text as editors count it, against a slow reader of the protocol's words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.lsp.positions import Text, TextPosition, change_between, points, units

ENCODINGS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
TEXTS = st.text(st.sampled_from("ab \n\r\f\v\x1c\x85\u2028é😀"), max_size=24)


@pytest.mark.parametrize("other", ["\f", "\v", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_line_ends_at_lf_crlf_and_cr_and_nowhere_else(other: str) -> None:
    text = Text(f"a\nb\r\nc\rd{other}e\n")

    assert text.lines == ["a", "b", "c", f"d{other}e", ""]


@given(TEXTS)
def test_the_lines_with_what_is_between_are_the_text(source: str) -> None:
    text = Text(source)

    assert text.lines == re.split(r"\r\n|\r|\n", source)
    assert [
        source[at : at + len(line)] for at, line in zip(text.starts, text.lines, strict=True)
    ] == text.lines


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(line=st.text(st.sampled_from("aé😀"), max_size=8))
def test_columns_are_bytes_of_the_encoding_over_its_width(encoding: str, line: str) -> None:
    codec, width = ENCODINGS[encoding]

    for at in range(len(line) + 1):
        count = len(line[:at].encode(codec)) // width
        assert units(line[:at], encoding) == count
        assert points(line, count, encoding) == at


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(source=TEXTS, at=st.integers(0, 24))
def test_a_place_leads_back_to_its_index(encoding: str, source: str, at: int) -> None:
    at = min(at, len(source))
    if source[at - 1 : at + 1] == "\r\n":
        at -= 1  # nothing can stand between the two
    text = Text(source)

    assert text.index(text.place(at, encoding), encoding) == at


@pytest.mark.parametrize(
    ("place", "index"),
    [((0, 99), 2), ((1, 99), 5), ((9, 0), 5), ((-1, 3), 0), ((0, -1), 0)],
)
def test_beyond_the_text_is_its_nearest_end(place: tuple[int, int], index: int) -> None:
    assert Text("ab\ncd").index(TextPosition(*place), "utf-16") == index


@given(TEXTS, TEXTS)
def test_outside_of_the_change_the_lines_are_the_same(old: str, new: str) -> None:
    before, after = Text(old), Text(new)

    change = change_between(before, after)

    kept = [
        line
        for line in range(len(before.lines))
        if not change.first <= line < change.first + change.removed
    ]
    assert [after.lines[change.moved(line) or 0] for line in kept] == [
        before.lines[line] for line in kept
    ]
    assert len(after.lines) == len(before.lines) - change.removed + change.added


def test_bytes_of_ast_are_places_behind_a_byte_order_mark_and_an_emoji() -> None:
    text = Text('\ufeffs = "😀"; b = 32\n')

    start = text.index_of_bytes(1, len('s = "😀"; b = '.encode()))
    assert text.source[start : start + 2] == "32"
