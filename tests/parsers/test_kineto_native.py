"""The compiled scanner sees what the one in Python sees, or leaves it to that one."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.parsers._json import JsonStream
from pyprof2.parsers._names import NAME_MAX
from pyprof2.parsers.kineto import SCANNERS, read_recordings
from tests.compare_scanners import difference, differences
from tests.kineto_events import kernel, op, trace

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark: Final = pytest.mark.skipif(
    "compiled" not in SCANNERS, reason="there was no compiler when pyprof2 was installed"
)

OP: Final = '"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 3, "dur": 4'
KERNEL: Final = OP.replace("cpu_op", "kernel")

UNDERSTOOD: Final[Mapping[str, str]] = {
    "nothing": "",
    "an empty event": "{}",
    "blanks": '\n{ "ph" :\t"X" , "cat": "cpu_op" ,\r\n"ts": 1, "dur": 1, "args" : { } }',
    "args before what says what they mean": '{"args": {"External id": 5}, ' + OP + "}",
    "a key twice": "{" + OP + ', "ts": 7, "args": {"External id": 1, "External id": 2}}',
    "args twice": "{" + OP + ', "args": {"External id": 1}, "args": {"Sequence number": 2}}',
    "escapes": r'{"ph": "X", "cat": "kernel", "name": "\"\\\/\b\f\n\r\t\u00e9\u0000\ud83d\ude42"}',
    "a word spelt in two ways": "{" + OP + "}, {" + OP.replace("aten", r"\u0061ten") + "}",
    "UTF-8": "{" + OP.replace("aten", "é€🙂\U0010ffff") + "}",
    "texts for numbers": "{" + KERNEL + ', "args": {"correlation": "7", "stream": "s"}}',
    "floats for numbers": "{" + KERNEL + ', "args": {"correlation": 7.0, "occupancy": 1.5e-3}}',
    "nulls": "{" + OP + ', "tid": null, "args": {"External id": null, "external id": 4}}',
    "nothing of the time": '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1}',
    "zeros": "{" + KERNEL + ', "args": {"graph node id": 0, "device": 0, "bytes": -1}}',
    "the longest numbers": "{" + KERNEL + ', "args": {"correlation": 999999999999999999}}',
    "other values inside": '{"x": [1, {"y": [[], {}, "]", true, null, -1.5E+3]}], ' + OP + "}",
    "a list of inputs": "{" + OP + ', "args": {"Input Dims": [[2, 3], []], "Input type": [""]}}',
    "a collective": "{" + OP + ', "args": {"Collective name": "allreduce", "Group size": 8}}',
    "no collective": "{" + OP + ', "args": {"Collective name": "", "Group size": 8}}',
    "instants": '{"ph": "i", "name": "mark"}, {"ph": "i", "name": "[memory]", "ts": 1, "args": {}}',
    "no phase": '{"name": "x"}',
    "an unknown pair": '{"ph": "?", "cat": "\\n"}, {"ph": "?", "cat": "\\u000a"}',
    "a counter": '{"ph": "C", "name": "W", "ts": 1, "args": 7}',
}  # fmt: skip

LEFT: Final[Mapping[str, str]] = {
    "a time that is text": "{" + OP + ', "ts": "5"}',
    "a time with an exponent": "{" + OP + ', "ts": 1.5e3}',
    "a time that is far off": "{" + OP + ', "ts": 4000000000000001}',
    "no time": "{" + OP + ', "ts": null}',
    "a truth for a number": "{" + KERNEL + ', "args": {"correlation": true}}',
    "a number that fits no int64": "{" + KERNEL + ', "args": {"bytes": 18446744073709551615}}',
    "minus nothing": "{" + KERNEL + ', "args": {"correlation": -0}}',
    "a float for an id": "{" + OP + ', "tid": 2.0}',
    "a float that is infinite": "{" + KERNEL + ', "args": {"bytes": 1e400}}',
    "a name that is none": "{" + OP + ', "name": 7}',
    "a long name": "{" + OP + ', "name": "' + "x" * (NAME_MAX + 1) + '"}',
    "args that are none": "{" + OP + ', "args": [1]}',
    "a key with an escape": "{" + OP + r', "\u0074s": 9}',
    "a phase after its args": '{"ph": "X", "cat": "kernel", "args": {"bytes": 1}, "ph": "i"}',
    "half a character": "{" + OP.replace("aten", r"\ud83d") + "}",
    "a control character": "{" + OP.replace("aten", "a\x01") + "}",
    "an unknown escape": "{" + OP.replace("aten", r"a\x41") + "}",
    "no event": "7",
    "a nest": '{"x": ' + "[" * 100 + "]" * 100 + ", " + OP + "}",
    "a comma too many": "{" + OP + ",}",
    "01": "{" + OP + ', "dur": 01}',
    "a quote that ends nothing": "{" + OP.replace("aten", 'a"') + "}",
}  # fmt: skip


def _file(tmp_path: Path, events: bytes) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"traceEvents": [' + events + b"]}")
    return path


def _scanned(events: bytes) -> str:
    stream = JsonStream(Path("no-file.json"), "traceEvents")
    return SCANNERS["compiled"](stream).scan(b"[" + events + b"]").scanner


@pytest.mark.parametrize("case", UNDERSTOOD)
def test_what_is_understood_is_the_same(tmp_path: Path, case: str) -> None:
    events = UNDERSTOOD[case].encode()

    assert _scanned(events) == "compiled"
    assert difference(_file(tmp_path, events)) is None


@pytest.mark.parametrize("case", LEFT)
def test_what_is_not_understood_is_left_to_python(tmp_path: Path, case: str) -> None:
    events = LEFT[case].encode()

    assert _scanned(events) == "python"
    assert difference(_file(tmp_path, events)) is None


@pytest.mark.parametrize(
    "text",
    ["\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x99", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"],
)  # fmt: skip
def test_what_is_no_utf8_is_left_to_python(tmp_path: Path, text: str) -> None:
    events = ("{" + OP.replace("aten", f"a{text}b") + "}").encode("latin-1")

    assert _scanned(events) == "python"
    assert difference(_file(tmp_path, events)) is None


def test_every_beginning_of_a_text_is_left_to_python() -> None:
    text = (
        b"[" + b", ".join(f"{{{OP}}}".encode() for _ in range(3)) + b', {"x": "\\u00e9\xc3\xa9"}]'
    )
    stream = JsonStream(Path("no-file.json"), "traceEvents")
    scanner = SCANNERS["compiled"](stream)
    ends = [at for at in range(len(text) + 1) if scanner._scanner.scan(text[:at]) is not None]  # type: ignore[attr-defined]

    assert ends == [len(text)]


@pytest.mark.parametrize("place", range(40))
def test_a_byte_of_any_value_anywhere_is_no_difference(tmp_path: Path, place: int) -> None:
    rng = random.Random(place)  # noqa: S311
    text = bytearray(", ".join(f"{{{line}}}" for line in (OP, KERNEL)).encode())
    text[rng.randrange(len(text))] = rng.choice((0, 34, 44, 92, 93, 125, 127, 128, 255))

    assert difference(_file(tmp_path, bytes(text))) is None


def test_a_scanner_knows_texts_again(tmp_path: Path) -> None:
    events = [op(f"aten::op{at % 5}", at, at + 1, id=at, dims=[[at % 3]]) for at in range(40_000)]

    assert difference(trace(tmp_path, events, kernel(1, 2, 3))) is None


@pytest.mark.parametrize("name", ["ProfilerStep#{}", "a{:07}", "{:016}", "iteration_{}"])
def test_names_that_only_their_numbers_tell_apart_are_found_as_soon_as_others(name: str) -> None:
    # A text that takes too many probes to find is left to Python.
    events = ", ".join("{" + OP.replace("aten::mm", name.format(n)) + "}" for n in range(20_000))

    assert _scanned(events.encode()) == "compiled"


def test_pure_python_reads_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = trace(tmp_path, op("aten::mm", 1, 2))
    monkeypatch.setenv("PYPROF2_PURE", "1")
    (pure,) = read_recordings(path, tmp_path)
    monkeypatch.setenv("PYPROF2_PURE", "0")
    (fast,) = read_recordings(path, tmp_path)

    assert (pure.scanned, fast.scanned) == ({"python": 1}, {"compiled": 1})


@pytest.mark.real_trace
def test_a_real_trace_is_the_same_in_any_order(kineto_trace: Path, tmp_path: Path) -> None:
    assert difference(kineto_trace) is None
    if kineto_trace.stat().st_size < 200_000:
        whole = json.loads(gzip.decompress(kineto_trace.read_bytes()))
        rng = random.Random(kineto_trace.name)  # noqa: S311
        events = [
            dict(rng.sample(list(event.items()), len(event))) for event in whole["traceEvents"]
        ]
        rng.shuffle(events)
        shuffled = tmp_path / "shuffled.json"
        shuffled.write_text(json.dumps({**whole, "traceEvents": events}))
        assert difference(shuffled) is None


@pytest.mark.minutes
def test_a_damaged_trace_is_the_same(tmp_path: Path) -> None:
    assert list(differences(range(100_000, 100_100), tmp_path)) == []


def test_what_stands_between_values_may_change_at_any_time(tmp_path: Path) -> None:
    rng = random.Random(5)  # noqa: S311
    blanks = ("", "", " ", "\n  ", "\t", " " * 9, "\n" + " " * 300)

    def spaced(*parts: str) -> str:
        return "".join(part + rng.choice(blanks) for part in parts)

    def written(fields: dict[str, object]) -> str:
        names = list(fields)
        if rng.random() < 0.5:
            rng.shuffle(names)
        texts = {name: json.dumps(fields[name]) for name in names if name != "args"}
        if "args" in fields:
            texts["args"] = written(fields["args"])  # type: ignore[arg-type]
        members = [spaced(f'"{name}"', ":", texts[name]) for name in names]
        return spaced("{", ",".join(rng.choice(blanks) + each for each in members), "}")

    events = []
    for at in range(1500):
        category = rng.choice(("cpu_op", "kernel", "python_function", f"new {rng.randrange(40)}"))
        sizes = rng.choice(([[1]], [[1, 2]], [], [[12]], 1, 12, "1", "12", None))
        args = {"External id": at, f"key {rng.randrange(99)}": [at], "Input Dims": sizes}
        event = {"ph": "X", "cat": category, "name": "a" * rng.randrange(4), "pid": 1, "tid": 2}
        events.append(written(event | {"ts": at / 8, "dur": 1.5, "args": args}))
    text = ",".join(events).encode()

    assert _scanned(text) == "compiled"
    assert difference(_file(tmp_path, text)) is None


@pytest.mark.parametrize(("first", "second"), [("1", "12"), ("[1]", "[1, 2]"), ('"a"', '"ab"')])
def test_a_value_that_begins_as_the_one_before_is_another(
    tmp_path: Path, first: str, second: str
) -> None:
    texts = [f'{{{OP}, "args": {{"Input Dims": {each}}}}}' for each in (first, second, first)]
    text = ", ".join(texts).encode()

    assert _scanned(text) == "compiled"
    assert difference(_file(tmp_path, text)) is None
