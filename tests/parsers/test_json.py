"""The stream of events out of a JSON file: whole, in pieces of any size, and damaged."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.errors import TraceError
from pyprof2.parsers import _json
from pyprof2.parsers._json import DECODE_ERRORS, JsonStream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVENTS: Final = [
    {"ph": "X", "cat": "kernel", "name": f"e{i}", "pid": 0, "tid": 7, "ts": i, "dur": 1}
    for i in range(6)
]
NAMES: Final = [event["name"] for event in EVENTS]
TEXTS: Final = [json.dumps(event) for event in EVENTS]


class Read:
    """What came out of a file: the events, the metadata, and what was counted."""

    def __init__(self, path: Path, content: bytes | str) -> None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        stream = JsonStream(path, "traceEvents")
        self.events: list[Any] = []
        for text in stream.chunks():
            try:
                self.events += msgspec.json.decode(text)
            except (msgspec.ValidationError, *DECODE_ERRORS):
                self.events += [msgspec.json.decode(raw) for raw in stream.salvage(text)]
        self.problems = dict(stream.problems)
        self._stream = stream

    @property
    def around(self) -> dict[str, Any]:
        return {key: msgspec.json.decode(raw) for key, raw in self._stream.around.items()}

    @property
    def names(self) -> list[str]:
        return [event["name"] for event in self.events]


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes | str], Read]:
    return lambda content: Read(tmp_path / "t.json", content)


@pytest.fixture
def in_pieces_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make the file come in pieces of so many bytes."""
    return lambda size: monkeypatch.setattr(_json, "CHUNK_BYTES", size)


def document(
    events: list[str], *, before: str = '"rank": 3, ', after: str = ', "host": "h"'
) -> str:
    return "{" + before + '"traceEvents": [' + ", ".join(events) + "]" + after + "}"


def with_third(text: str) -> str:
    """The document with another text in place of its third event."""
    return document([*TEXTS[:2], text, *TEXTS[3:]])


def third(**fields: Any) -> str:
    """The third event with more fields; a value that starts with `raw:` stands as it is."""
    text = json.dumps(EVENTS[2] | fields)
    for value in fields.values():
        if isinstance(value, str) and value.startswith("raw:"):
            text = text.replace(json.dumps(value), value.removeprefix("raw:"))
    return text


ReadFile: TypeAlias = "Callable[[bytes | str], Read]"
PIECES: Final = [1, 7, 50, 90, 200, 10_000]


@pytest.mark.parametrize("size", PIECES)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "indented"])
def test_pieces_of_any_size_give_the_same(
    read: ReadFile, in_pieces_of: Callable[[int], None], size: int, pack: Any, indent: int | None
) -> None:
    in_pieces_of(size)
    whole = {"rank": 3, "traceEvents": EVENTS, "host": "h"}

    found = read(pack(json.dumps(whole, indent=indent).encode()))

    assert found.events == EVENTS
    assert found.around == {"rank": 3, "host": "h"}
    assert found.problems == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(json.dumps(EVENTS), NAMES, id="a list and nothing around it"),
        pytest.param("\ufeff" + json.dumps(EVENTS), NAMES, id="with a byte order mark"),
        pytest.param('{"traceEvents": []}', [], id="no events"),
        pytest.param("[]", [], id="an empty list"),
        pytest.param(" \n [ ]", [], id="an empty list among space"),
        pytest.param(document(TEXTS[:1]), ["e0"], id="one event"),
        pytest.param('[{"zz": 1, "name": "a"}, {"zz": 2, "name": "b"}]', ["a", "b"], id="odd keys"),
    ],
)
def test_whole_files_have_no_problems(read: ReadFile, text: str, names: list[str]) -> None:
    found = read(text)

    assert found.names == names
    assert found.problems == {}


@pytest.mark.parametrize(
    ("before", "after", "around"),
    [
        pytest.param("", "", {}, id="none"),
        pytest.param('"a": [{"name": 1}], ', "", {"a": [{"name": 1}]}, id="before"),
        pytest.param("", ', "z": {"traceEvents": [1]}', {"z": {"traceEvents": [1]}}, id="after"),
        pytest.param(
            '"traceEvents2": [1], "b": {"traceEvents": [2]}, "c": "traceEvents", ', "",
            {"traceEvents2": [1], "b": {"traceEvents": [2]}, "c": "traceEvents"},
            id="names like that of the list",
        ),
        pytest.param(
            '"q": "\\"traceEvents\\": [", ', "", {"q": '"traceEvents": ['}, id="in a text"
        ),
        pytest.param(
            "", ', "l": [{"name": 1}, {"name": 2}], "z": 3',
            {"l": [{"name": 1}, {"name": 2}], "z": 3}, id="a list like that of the events",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [*range(20, 400, 29), 10_000])
def test_metadata_is_read_before_and_after_the_list(
    read: ReadFile, in_pieces_of: Callable[[int], None], size: int,
    before: str, after: str, around: dict[str, Any],
) -> None:  # fmt: skip
    in_pieces_of(size)

    found = read(document(TEXTS, before=before, after=after))

    assert found.names == NAMES
    assert found.around == around
    assert found.problems == {}


@pytest.mark.parametrize("size", range(20, 500, 13))
def test_events_may_hold_lists_of_what_looks_like_events(
    read: ReadFile, in_pieces_of: Callable[[int], None], size: int
) -> None:
    in_pieces_of(size)
    nested = {"calls": [{"name": "n1"}, {"name": "n2", "args": [{"name": "n3"}]}]}

    found = read(with_third(third(args=nested)))

    assert found.events == [*EVENTS[:2], EVENTS[2] | {"args": nested}, *EVENTS[3:]]
    assert found.around == {"rank": 3, "host": "h"}
    assert found.problems == {}


REPAIRED: Final = {
    "a quote in the name": (r'a "b" c', third(name='raw:"a "b" c"')),
    "a quote and a comma": ('a","b', third(name='raw:"a","b"')),
    "a line break": ("a\nb", third(name='raw:"a\nb"')),
    "a control character": ("a\x00b", third(name='raw:"a\x00b"')),
    "a backslash": (r"C:\Users\x", third(name=r'raw:"C:\Users\x"')),
    "half of a pair": ("a\ufffd", third(name=r'raw:"a\ud83d"')),
    "N/A": ("e2", third(args="raw:N/A")),
    "nan": ("e2", third(args="raw:-nan")),
    "inf in a list": ("e2", third(args="raw:[1, inf, 2]")),
    "Infinity": ("e2", third(args="raw:Infinity")),
    "nan of another compiler": ("e2", third(args="raw:-nan(ind)")),
    "nothing": ("e2", third(args="raw:")),
    "a comma at the end": ("e2", third(args='raw:{"a": 1, }')),
    "a comma at the start": ("e2", third(args='raw:{, "a": 1}')),
    "a comma twice": ("e2", third(args='raw:{"a": 1,, "b": [1, , 2]}')),
    "N/A and a good escape": ("a\\b", third(name="a\\b", args="raw:N/A")),
    "N/A and a list like events": ("e2", third(x="raw:N/A", args=[{"name": "n"}])),
}


@pytest.mark.parametrize("case", REPAIRED)
@pytest.mark.parametrize("size", [40, 150, 10_000])
def test_known_damage_is_mended_and_all_the_rest_stays(
    read: ReadFile, in_pieces_of: Callable[[int], None], size: int, case: str
) -> None:
    name, text = REPAIRED[case]
    in_pieces_of(size)

    found = read(with_third(text))

    assert found.names == ["e0", "e1", name, "e3", "e4", "e5"]
    assert found.around == {"rank": 3, "host": "h"}
    assert sum(found.problems.values()) == 1
    assert "repaired" in next(iter(found.problems))


@pytest.mark.parametrize("size", [40, 150, 10_000])
def test_bytes_that_are_no_utf8_become_the_replacement_character(
    read: ReadFile, in_pieces_of: Callable[[int], None], size: int
) -> None:
    in_pieces_of(size)

    found = read(with_third(third(name="@")).encode().replace(b"@", b"caf\xe9"))

    assert found.names == ["e0", "e1", "caf\ufffd", "e3", "e4", "e5"]
    assert sum(found.problems.values()) == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(third(args="raw:{]"), id="brackets that do not match"),
        pytest.param(third(args='raw:{"a" 1}'), id="no colon"),
        pytest.param('{"ph": "X", "name": "half', id="it breaks off"),
        pytest.param('{"ph": "X", "name": "no end", "args": {', id="brackets that do not end"),
        pytest.param("garbage", id="no JSON at all"),
        pytest.param(third(args="raw:" + "[" * 400), id="brackets that never close"),
    ],
)
@pytest.mark.parametrize("size", [40, 150, 10_000])
def test_what_cannot_be_mended_is_dropped_alone(
    read: ReadFile, in_pieces_of: Callable[[int], None], size: int, text: str
) -> None:
    in_pieces_of(size)

    found = read(with_third(text))

    assert found.names == ["e0", "e1", "e3", "e4", "e5"]
    assert found.around == {"rank": 3, "host": "h"}
    [(problem, count)] = found.problems.items()
    assert problem == f"bytes-lost: {len(text)}"
    whole = size > len(document(TEXTS))
    assert count == max(1, round(len(text) / len(TEXTS[0] + ", "))) or not whole


@pytest.mark.parametrize("byte", [b"\x00", b"#"])
@pytest.mark.parametrize("events", [1, 30, 150])
def test_a_hole_in_the_file_says_its_bytes_and_about_how_many_events_were_in_it(
    read: ReadFile, byte: bytes, events: int
) -> None:
    whole = document([json.dumps(EVENTS[0] | {"name": f"e{i:03}"}) for i in range(400)]).encode()
    first, last = (whole.index(b'"name": "e%03d' % number) for number in (100, 99 + events))
    hole = (byte * (last - first))[: last - first]
    # It begins inside one event and ends inside another, or the same one.
    found = read(whole[:first] + hole + whole[last + 10 :])

    lost = 400 - len(found.names)
    assert events <= lost <= events + 1
    [(problem, count)] = found.problems.items()
    size = int(problem.removeprefix("bytes-lost: ").replace(",", ""))
    assert size == pytest.approx(last - first, abs=200)
    assert count == pytest.approx(lost, rel=0.05, abs=1)


def test_a_second_document_behind_the_trace_is_reported(read: ReadFile) -> None:
    for whole in (document(TEXTS), f"[{', '.join(TEXTS)}]"):
        twice, once = read(f"{whole}\n{whole}"), read(f"{whole}\n")

        assert twice.names == once.names == NAMES
        assert twice.around == once.around
        assert twice.problems == {"second-document": 1}
        assert once.problems == {}


@pytest.mark.parametrize("size", [40, 150, 10_000])
def test_the_last_event_is_mended_too(
    read: ReadFile, in_pieces_of: Callable[[int], None], size: int
) -> None:
    in_pieces_of(size)

    found = read(document([*TEXTS[:5], third(name='raw:"a "b""')]))

    assert found.names == [*NAMES[:5], 'a "b"']
    assert found.around == {"rank": 3, "host": "h"}
    assert found.problems == {"event-repaired": 1}


def test_every_repair_and_every_loss_is_counted(read: ReadFile) -> None:
    bad, lost = third(args="raw:N/A"), third(args="raw:{]")

    found = read(document([bad, bad, lost, TEXTS[0], lost, lost, bad, TEXTS[1]]))

    assert found.names == ["e2", "e2", "e0", "e2", "e1"]
    assert found.problems == {
        "event-repaired": 3,
        f"bytes-lost: {3 * len(lost)}": 3,
    }


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" + ", ".join(TEXTS) + ", ]", id="one behind the last"),
        pytest.param("[" + ", ".join(TEXTS).replace("}, {", "},, {", 1) + "]", id="two"),
        pytest.param("[" + ", ".join(TEXTS).replace("}, {", "} {", 1) + "]", id="none"),
        pytest.param("[, " + ", ".join(TEXTS) + "]", id="one before the first"),
    ],
)
def test_wrong_commas_between_events_lose_none(read: ReadFile, text: str) -> None:
    found = read('{"traceEvents": ' + text + ', "host": "h"}')

    assert found.names == NAMES
    assert found.around == {"host": "h"}
    assert found.problems == {"comma-repaired": 1}


@pytest.mark.parametrize("size", [40, 150, 10_000])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_file_cut_anywhere_gives_every_event_that_is_whole(
    read: ReadFile, in_pieces_of: Callable[[int], None], pack: Any, size: int
) -> None:
    in_pieces_of(size)
    text = document(TEXTS).encode()
    ends = [text.index(event.encode()) + len(event) for event in TEXTS]

    for cut in range(text.index(b"["), len(text) - 1, 11):
        found = read(pack(text[: cut + 1]))
        assert found.names == NAMES[: sum(end <= cut + 1 for end in ends)]
        assert sum(found.problems.values()) == (1 if cut < text.index(b"], ") else 0) or (
            "metadata" in str(found.problems)
        )


def test_a_cut_gzip_gives_what_inflates(read: ReadFile) -> None:
    events = [json.dumps(EVENTS[0] | {"name": f"e{i}", "args": {"x": i * i}}) for i in range(900)]
    packed = gzip.compress(document(events).encode())

    found = read(packed[: len(packed) // 2])

    assert 300 < len(found.names) < 600
    assert found.names == [f"e{i}" for i in range(len(found.names))]
    assert found.problems == {
        "file-cut": 1,
        "last-event-cut": 1,
    }


def test_gzip_files_one_behind_the_other_are_one_text(read: ReadFile) -> None:
    text = document(TEXTS).encode()

    found = read(b"".join(gzip.compress(text[at : at + 100]) for at in range(0, len(text), 100)))

    assert found.names == NAMES
    assert found.problems == {}


def test_gzip_members_may_meet_inside_the_mark_of_one(
    read: ReadFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = document(TEXTS).encode()
    first = gzip.compress(text[:100])
    monkeypatch.setattr(_json, "READ_BYTES", len(first) + 1)

    found = read(first + gzip.compress(text[100:]))

    assert found.names == NAMES
    assert found.problems == {}


def test_zeros_behind_gzip_are_padding(read: ReadFile) -> None:
    assert read(gzip.compress(document(TEXTS).encode()) + b"\x00" * 512).problems == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"hello", "not a JSON file", id="text"),
        pytest.param(b'{"a": 1}', "no traceEvents", id="other JSON"),
        pytest.param(b'{"traceEvents": null}', "no traceEvents", id="no list"),
        pytest.param(b'{"a": {"traceEvents": []}}', "no traceEvents", id="list further inside"),
        pytest.param(b"\x1f\x8b\x00\x01", "not a gzip file", id="no gzip"),
        pytest.param(gzip.compress(b"hello"), "not a JSON file", id="other gzip"),
    ],
)
def test_a_file_that_is_no_trace_is_one_error(read: ReadFile, content: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        read(content)

    assert "t.json: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="directory"):
        list(JsonStream(tmp_path, "traceEvents").chunks())


def test_a_file_that_inflates_a_thousandfold_does_not_fill_the_memory(
    read: ReadFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_json, "CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(_json, "ELEMENT_BYTES_MAX", 1 << 14)
    bomb = document([*TEXTS[:2], '{"ph": "X", "name": "' + "a" * (1 << 22) + '"}', *TEXTS[2:]])

    found = read(gzip.compress(bomb.encode()))

    assert found.names[:2] == ["e0", "e1"]
    assert found.problems["event-too-long"] == 1


@given(st.data())
def test_any_bytes_give_events_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = bytearray(with_third(third(args={"a": [1, {"b": "\\u00e9"}]})).encode())
    changes = data.draw(st.integers(1, 4))
    for _ in range(changes):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))

    with contextlib.suppress(TraceError):
        found = Read(tmp_path_factory.mktemp("bytes") / "t.json", bytes(text))
        # What is put into one of the six can make two of it; texts are no events.
        assert len([event for event in found.events if isinstance(event, dict)]) <= 6 + changes


@pytest.mark.parametrize(
    "unit",
    [
        pytest.param('\\"', id="escaped quotes"),
        pytest.param('"', id="quotes"),
        pytest.param("[", id="brackets"),
        pytest.param(', "name": "', id="names"),
        pytest.param("\\", id="backslashes"),
        pytest.param(",   ", id="commas and space"),
        pytest.param('{"ph": "', id="openings"),
    ],
)
@pytest.mark.parametrize("opening", ['{"traceEvents": [{"ph": "X", "name": "', '{"a": "', "["])
def test_no_text_takes_more_than_a_moment(
    read: ReadFile, in_pieces_of: Callable[[int], None], unit: str, opening: str
) -> None:
    in_pieces_of(1 << 16)
    begin = time.process_time()

    with contextlib.suppress(TraceError):
        read(opening + unit * (300_000 // len(unit)))

    assert time.process_time() - begin < 10


SIX_EVENTS = [{"ph": "X", "name": f"e{number}", "ts": number} for number in range(6)]


@pytest.mark.parametrize("between", [",", ", ", ",\n   ", " ,\t"])
def test_pieces_decode_and_hold_all_events_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + between.join(map(json.dumps, SIX_EVENTS)) + '], "a": 1}')

    for size in range(1, path.stat().st_size + 1):
        monkeypatch.setattr(_json, "CHUNK_BYTES", size)
        stream = JsonStream(path, "traceEvents")
        pieces = [json.loads(piece) for piece in stream.chunks()]

        assert [event for piece in pieces for event in piece] == SIX_EVENTS, size
        assert not stream.problems
        assert list(stream.around) == ["a"]
