"""The compiled scanner looks at eight bytes at a time, and at what the event before said.

What is right is known from how the text was made; that it was not left to the scanner in Python is
asserted too.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.parsers._json import JsonStream
from pyprof2.parsers.kineto import SCANNERS
from tests.compare_scanners import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyprof2.parsers._kineto_columns import Scan

pytestmark = pytest.mark.skipif("compiled" not in SCANNERS, reason="there was no compiler")

LONGEST: Final = 20
"""More than two words of eight bytes, at any place in them."""
SPECIAL: Final = ('"', "\\", "\n", "é", "\U0001f600", " ", "/")


def scanned(events: Iterable[str], blank: str = "") -> Scan:
    """Return what the compiled scanner makes of events, as they are written."""
    text = f"[{f',{blank}'.join(events)}{blank}]".encode()
    return SCANNERS["compiled"](JsonStream(Path("no-file.json"), "traceEvents")).scan(text)


def op(name: str = '"aten::mm"', args: str = "{}", blank: str = "") -> str:
    """Return an event, its name as JSON, with this before each key."""
    fields = {"ph": '"X"', "cat": '"cpu_op"', "name": name, "ts": "1", "dur": "2", "args": args}
    return "{" + ",".join(f'{blank}"{key}":{blank}{v}' for key, v in fields.items()) + blank + "}"


def columns(scan: Scan) -> dict[str, list[Any]]:
    """Return the columns of the ops, which the compiled scanner has read."""
    assert scan.scanner == "compiled"
    (ops,) = scan.groups
    return listed(ops)


def test_a_text_is_what_it_says_wherever_in_it_a_byte_is_special() -> None:
    names = [
        f"{'a' * before}{special}{'b' * after}"
        for special in ("", *SPECIAL)
        for before in range(LONGEST)
        for after in range(LONGEST)
    ]

    found = columns(scanned(op(json.dumps(name, ensure_ascii=False)) for name in names))

    assert found["name"] == names


@pytest.mark.parametrize("byte", ["\x00", "\x01", "\x1f", "\t"], ids=ascii)
@pytest.mark.parametrize("before", range(LONGEST))
def test_a_control_character_in_a_text_is_not_understood(byte: str, before: int) -> None:
    assert scanned([op(f'"{"a" * before}{byte}{"b" * 9}"')]).scanner == "python"


@pytest.mark.parametrize("spaces", range(LONGEST))
@pytest.mark.parametrize("first", ["", "\n", "\r\n", "\t", " \n\n\t "], ids=ascii)
def test_blanks_of_any_length_may_stand_between_what_counts(first: str, spaces: int) -> None:
    blank = first + " " * spaces + "\t" * (spaces % 3)
    event = op(args=f'{{{blank}"External id":{blank}7{blank}}}', blank=blank)

    found = columns(scanned([event] * 3, blank))

    assert found["name"] == ["aten::mm"] * 3
    assert found["external_id"] == [7] * 3


def test_another_control_character_is_no_blank() -> None:
    assert scanned([op(blank="\v")]).scanner == "python"


def test_a_category_that_begins_as_the_one_before_is_another() -> None:
    categories = ["cpu_op", "cpu_op", "cpu_op2", "cpu_op", "cpu", "c1", "cpu_op2", "cpu_op", "c1"]
    categories += ["cpu_o", "cpu"]
    phases = ["X", "Xy", "X", "Xy", "X", "X", "", "X", "Xy", "X", "X"]
    events = [
        json.dumps({"ph": phase, "cat": category, "name": str(i), "ts": 1, "dur": 2})
        for i, (phase, category) in enumerate(zip(phases, categories, strict=True))
    ]

    found = scanned(events)

    assert columns(found)["name"] == ["0", "7"]
    pairs = Counter(zip(phases, categories, strict=True))
    assert found.skipped == {pair: n for pair, n in pairs.items() if pair != ("X", "cpu_op")}


NUMBERS: Final = ("0", "7", "-1", "1.5", "1e3", "0.5", "0e0", "9" * 17, "9" * 18, "-" + "9" * 18)


def test_a_number_is_what_its_digits_say() -> None:
    found = scanned(op(args=f'{{"External id":{number}}}') for number in NUMBERS)

    expected = [json.loads(number) for number in NUMBERS]
    assert columns(found)["external_id"] == expected


@pytest.mark.parametrize("number", ["01", "00", "-", "1.", ".5", "1e", "+1", "9" * 19, "1 2", "-0"])
def test_what_is_no_number_or_too_long_is_not_understood(number: str) -> None:
    assert scanned([op(args=f'{{"External id":{number}}}')]).scanner == "python"
