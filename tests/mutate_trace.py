"""Damage traces in every way that we can think of; the same seed gives the same damage.

A mutant is made in up to three layers: fields of decoded events, the JSON text, the gzip file.
Whatever comes out is a file that pyprof2 must read, or refuse in one line.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.synthetic_trace import synthetic_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

EVENTS_MAX: Final = 300
"""A mutant has no more events than that: many small files find more than few large ones."""

_DEEP: Final = 100_000
_RAW: Final = re.compile(r'"@raw@((?:[^"\\]|\\.)*)@"')
_AGAIN: Final = "@again@"
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+', re.DOTALL)
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def _raw(text: str) -> str:
    """Return a value that stands in the JSON text exactly as `text`."""
    return f"@raw@{text}@"


def _deep(opening: str, closing: str, inside: str = "") -> str:
    return _raw(opening * _DEEP + inside + closing * _DEEP)


NUMBERS: Final[tuple[Any, ...]] = (
    *map(
        _raw,
        (
            "1e400", "-1e400", "1e-400", "NaN", "-NaN", "nan", "Infinity", "-Infinity", "inf",
            "-0", "-0.0", "0e0", "1E3", "1e3", "1e18", "1.5e-9", "0.0000000000001", "00", "01",
            "+1", ".5", "5.", "0x7f", "1_000", "N/A", "undefined", "--1", "1e", "1e+", "1.2.3",
            "9" * 5000, "-" + "9" * 400, "0." + "3" * 4000, "1e99999999999",
        ),
    ),
    0, -1, 0.5, 1e15, 1e18, 1e19, 1e300, 2**31, 2**32 - 1, 2**53 + 1, 2**62, 2**63 - 1, 2**63,
    -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**30, -(10**18), 4_000_000_000_000_000.001,
)  # fmt: skip
"""Numbers that are at, or far beyond, the edge of what a field may hold, or are none."""

OTHERS: Final[tuple[Any, ...]] = (
    None, True, False, "", " ", "0", "-1", "1.5", "1e400", "nan", "inf", "0x7f", "12 ", "stream 7 ",
    "9" * 5000, "\x00", "\x1b[31mred\x1b[0m", "a\nb", '"', "\\", "\ud800", "\udfff\ud800", "\u2028",
    "é🙂", "<script>alert(1)</script>", "=1+1", "a,b", "x" * 100_000, "kernel", "X", "[memory]",
    "nn.Module: ", "nn.Module: A_0", "layer:", "ProfilerStep#", "ProfilerStep#99999999999999999999",
    "ProfilerStep#-1", "autograd::engine::evaluate_function: ", "aten::mm", "aten::addmm",
    "aten::conv2d", "AccumulateGrad", "void f<(int)1>(", "operator()", "<<<<>>>>((((", "~", "::",
    [], {}, [[]], [[[]]], [None], [1], [-1], [2**62, 2**62], [2**63], [0, 0], [1.5], ["1"],
    [[1], 2],
    [[1, 2], [3, 4]], [[[2**40], [2**40]]], {"a": 1}, {"a": {"b": []}}, [[1]] * 3000,
    _deep("[", "]"), _deep('{"a":', "}", "1"), _raw("[" * _DEEP), _raw("{"), _raw("]"), _raw(""),
    _raw('"\\ud800"'), _raw('"\\u00"'), _raw('"\\x41"'), _raw('"C:\\dir"'), _raw('"a"b"'),
    _raw('"a\tb"'), _raw("'a'"), _raw("// why\n1"), _raw("/* why */ 1"),
)  # fmt: skip
"""Values of other types, text that means something to somebody, and nests of brackets."""

CATEGORIES: Final = (
    "cpu_op", "Operator", "user_annotation", "python_function", "kernel", "Kernel", "gpu_memcpy",
    "gpu_memset", "cuda_runtime", "cuda_driver", "Runtime", "cpu_instant_event", "fwdbwd", "ac2g",
    "overhead", "Trace", "cuda_sync", "gpu_user_annotation", "mtia_ccp_events", "",
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A damaged trace: the bytes of the file, and what was done to it."""

    content: bytes
    damage: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_bytes(self.content)


def read_bases(paths: Sequence[Path], size_max: int = 1_200_000) -> list[dict[str, Any]]:
    """Return the traces to damage: one made here, and those of the files that are small."""
    bases = [synthetic_trace(), synthetic_trace(steps=0)]
    for path in paths:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        if len(data) <= size_max:
            bases.append(json.loads(data))
    return bases


def mutate(seed: int, bases: Sequence[dict[str, Any]]) -> Mutant:
    """Return the mutant of that number."""
    rng = random.Random(seed)  # noqa: S311
    trace = _part_of(rng, rng.choice(bases))
    damage: list[str] = []
    layers = rng.choice((_FIELDS, _FIELDS, _TEXT, _TEXT, _FILE, _FIELDS + _TEXT, _FIELDS + _FILE))
    wanted = [rng.choice(layers) for _ in range(rng.choice((1, 1, 2, 3, 8)))]
    for change in dict.fromkeys(_FIELDS):
        for _ in range(wanted.count(change)):
            trace = change(rng, trace)
            damage.append(change.__name__)
    text = _to_text(rng, trace)
    for change_text in dict.fromkeys(_TEXT):
        for _ in range(wanted.count(change_text)):
            text = change_text(rng, text)
            damage.append(change_text.__name__)
    if any(change in _FILE for change in wanted) or rng.random() < 0.3:
        text = gzip.compress(text, 1, mtime=0)
        damage.append("gzip")
    for change_file in dict.fromkeys(_FILE):
        for _ in range(wanted.count(change_file)):
            text = change_file(rng, text)
            damage.append(change_file.__name__)
    return Mutant(text, tuple(name.strip("_") for name in damage))


def _part_of(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with a run of the events, so that links lead out of it."""
    events = trace["traceEvents"]
    at = rng.randrange(max(1, len(events) - EVENTS_MAX))
    return copy.deepcopy({**trace, "traceEvents": events[at : at + EVENTS_MAX]})


def _to_text(rng: random.Random, trace: Any) -> bytes:
    """Return the JSON text; lone surrogates become bytes that are not UTF-8."""
    indent = rng.choice((None, None, 1))
    text = json.dumps(trace, ensure_ascii=rng.random() < 0.5, indent=indent).replace(_AGAIN, "")
    plain = _RAW.sub(lambda match: json.loads(f'"{match[1]}"'), text)
    return plain.encode("utf-8", "surrogatepass")


# Fields of decoded events.


def _event(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    """Return an event to damage: any, or what is there in place of one."""
    events = trace.get("traceEvents")
    event = rng.choice(events) if isinstance(events, list) and events else {}
    return event if isinstance(event, dict) else {}


def _fields_of(rng: random.Random, event: dict[str, Any]) -> dict[str, Any]:
    """Return the event or its arguments."""
    args = event.get("args")
    return args if isinstance(args, dict) and args and rng.random() < 0.6 else event


def _wrong_number(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    for _ in range(rng.choice((1, 5, 50))):
        fields = _fields_of(rng, _event(rng, trace))
        keys = [key for key, value in fields.items() if isinstance(value, (int, float))]
        if keys:
            fields[rng.choice(keys)] = rng.choice(NUMBERS)
    return trace


def _wrong_type(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    for _ in range(rng.choice((1, 5, 20))):
        fields = _fields_of(rng, _event(rng, trace))
        if fields:
            fields[rng.choice(list(fields))] = rng.choice(OTHERS + NUMBERS)
    return trace


def _wrong_inside(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    """Damage a value inside of a list, such as a dimension."""
    for _ in range(rng.choice((1, 10))):
        fields = _fields_of(rng, _event(rng, trace))
        lists = [value for value in fields.values() if isinstance(value, list) and value]
        if lists:
            values = rng.choice(lists)
            at = rng.randrange(len(values))
            values = values[at] if isinstance(values[at], list) and values[at] else values
            values[rng.randrange(len(values))] = rng.choice(OTHERS + NUMBERS)
    return trace


def _same_field_everywhere(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    """Give one field the same wrong value in all events that have it."""
    chosen = _fields_of(rng, _event(rng, trace))
    if not chosen:
        return trace
    key = rng.choice(list(chosen))
    short = [value for value in OTHERS + NUMBERS if len(str(value)) < 1000]
    value = rng.choice(short)
    for event in trace["traceEvents"]:
        if isinstance(event, dict):
            for fields in (event, event.get("args")):
                if isinstance(fields, dict) and key in fields:
                    fields[key] = value
    return trace


def _fields_missing(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    for _ in range(rng.choice((1, 10, 200))):
        fields = _fields_of(rng, _event(rng, trace))
        if fields:
            del fields[rng.choice(list(fields))]
    return trace


def _fields_twice(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    for _ in range(rng.choice((1, 10))):
        fields = _fields_of(rng, _event(rng, trace))
        if fields:
            key = rng.choice(list(fields))
            fields[key + _AGAIN] = rng.choice((fields[key], *OTHERS))
    return trace


def _fields_shuffled(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    for event in trace.get("traceEvents") or []:
        if isinstance(event, dict):
            for fields in (event, event.get("args")):
                if isinstance(fields, dict):
                    items = list(fields.items())
                    rng.shuffle(items)
                    fields.clear()
                    fields.update(items)
    return trace


def _text_ids(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    keys = rng.sample(["pid", "tid", "id", "correlation", "External id", "stream", "device"], 3)
    template = rng.choice(("{}", "stream {} ", "0x{}", "{}.0", "-{}", "", "thread"))
    for event in trace["traceEvents"]:
        if isinstance(event, dict):
            for fields in (event, event.get("args")):
                for key in keys:
                    if isinstance(fields, dict) and key in fields:
                        fields[key] = template.format(fields[key])
    return trace


def _same_ids(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    """Give one id to everything, or swap the ids of two kinds."""
    key = rng.choice(["correlation", "External id", "Sequence number", "Fwd thread id", "tid"])
    value = rng.choice((0, 1, -1, 2**62))
    for event in trace["traceEvents"]:
        if isinstance(event, dict):
            for fields in (event, event.get("args")):
                if isinstance(fields, dict) and key in fields:
                    fields[key] = value
    return trace


def _other_category(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    for _ in range(rng.choice((1, 10, 100))):
        event = _event(rng, trace)
        event["cat"] = rng.choice(CATEGORIES)
        if rng.random() < 0.3:
            event["ph"] = rng.choice("XiMsfCBEbne")
    return trace


def _absurd_times(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    """Let events overlap, contain one another for ever, or all begin at one time."""
    how = rng.choice(("same", "reversed", "long", "random", "nested"))
    for number, event in enumerate(e for e in trace["traceEvents"] if isinstance(e, dict)):
        start, length = {
            "same": (1, 1),
            "reversed": (-number, 5),
            "long": (number, 9e14),
            "random": (rng.uniform(-1e6, 1e6), rng.choice((-5, 0, 0.001, 1e9))),
            "nested": (number, 10_000 - 2 * number),
        }[how]
        event.update(ts=start, dur=length)
    return trace


def _events_repeated(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    events = trace["traceEvents"]
    if isinstance(events, list):
        events += copy.deepcopy(rng.choices(events, k=rng.choice((1, 300)))) if events else []
        rng.shuffle(events)
    return trace


def _no_events(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    """Put something else in place of an event, of several, or of the list."""
    events = trace["traceEvents"]
    if isinstance(events, list) and events and rng.random() < 0.7:
        for _ in range(rng.choice((1, 10))):
            events[rng.randrange(len(events))] = rng.choice(OTHERS + NUMBERS)
    else:
        trace["traceEvents"] = rng.choice(([], {}, None, "", 7, {"a": []}, [[]], [[], {}]))
    return trace


def _metadata_moved(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    items = list(trace.items())
    rng.shuffle(items)
    return dict(items)


def _metadata_wrong(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    keys = [key for key in trace if key != "traceEvents"]
    for key in rng.sample(keys, min(len(keys), 3)):
        value = trace[key]
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict) and inner and rng.random() < 0.7:
            for name in rng.sample(list(inner), min(len(inner), 3)):
                inner[name] = rng.choice(OTHERS + NUMBERS)
        else:
            trace[key] = rng.choice(OTHERS + NUMBERS)
    return trace


def _list_moved(rng: random.Random, trace: dict[str, Any]) -> dict[str, Any]:
    """Nest the list of events deeper, name it otherwise, or give it twice."""
    how = rng.choice(("nested", "renamed", "twice", "empty first", "before", "as text"))
    events = trace.get("traceEvents")
    if how == "nested":
        return {"inner": trace}
    if how == "renamed":
        return {"TraceEvents": trace.pop("traceEvents", []), **trace}
    if how == "twice":
        return {**trace, "traceEvents" + _AGAIN: copy.deepcopy(events)}
    if how == "empty first":
        return {"traceEvents" + _AGAIN: rng.choice(([], {}, None, 1)), **trace}
    if how == "before":
        return {"note": {"traceEvents": [1]}, "traceEvents" + _AGAIN: "traceEvents", **trace}
    return {**trace, "traceEvents": json.dumps(events)}


# The text.


def _bytes_flipped(rng: random.Random, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(rng.choice((1, 1, 3, 30))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _bytes_replaced(rng: random.Random, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(rng.choice((1, 3, 30))):
        if data:
            data[rng.randrange(len(data))] = rng.choice(b'"\\{}[]:,\x00\x0a\xff\xc3 0-e.')
    return bytes(data)


def _tokens_changed(rng: random.Random, text: bytes) -> bytes:
    """Swap, duplicate or remove tokens."""
    tokens = _TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 3, 20))):
        if len(tokens) < 2:
            break
        one, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        how = rng.randrange(3)
        if how == 0:
            tokens[one], tokens[other] = tokens[other], tokens[one]
        elif how == 1:
            tokens.insert(one, tokens[other])
        else:
            del tokens[one]
    return b"".join(tokens)


def _cut(rng: random.Random, text: bytes) -> bytes:
    how = rng.random()
    if how < 0.6:
        return text[: rng.randrange(len(text) + 1)]
    if how < 0.7:
        return text[: rng.randrange(20)]
    at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    return text[:at] + text[end:]


def _text_inserted(rng: random.Random, text: bytes) -> bytes:
    piece = rng.choice((
        b"\x00", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b'"', b"\\", b"\n", b"\x1b[2J", b"]", b"}",
        b"[", b"{", b"[" * _DEEP, b'{"a":' * _DEEP, b"]" * _DEEP, b'{"ph":' * _DEEP,
        b"{}," * 50_000,
        b" " * 3_000_000, b'"' + b"a" * 3_000_000, b'"a":', b"null,", b'"traceEvents": [',
        b',{"ph":"X","name":"', b"\\u0000" * 1000, rng.randbytes(100), rng.randbytes(10_000),
    ))  # fmt: skip
    at = rng.randrange(len(text) + 1)
    return text[:at] + piece + text[at:]


def _strings_damaged(rng: random.Random, text: bytes) -> bytes:
    """Put into some strings what should not stand in one."""
    share = rng.choice((0.001, 0.01, 0.2))
    piece = rng.choice((
        b'"', b'"bare"', b"\\", b"\\x", b"\\u12", b"\x00", b"\t", b"\n", b"\xff", b"\xc3\x28",
        b"\xed\xa0\x80", b"\\ud800", b"\\", b",", b"{", b"[", b'\\"', b"\\u0000", b"\x7f",
    ))  # fmt: skip

    def damaged(match: re.Match[bytes]) -> bytes:
        string = match.group()
        if rng.random() > share:
            return string
        at = rng.randrange(1, len(string))
        return string[:at] + piece + string[at:]

    return _STRING.sub(damaged, text)


def _other_encoding(rng: random.Random, text: bytes) -> bytes:
    encoding = rng.choice(("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1"))
    return text.decode("utf-8", "replace").encode(encoding, "replace")


def _something_around(rng: random.Random, text: bytes) -> bytes:
    before = rng.choice(
        (b"", b"\xef\xbb\xbf", b" \n\t", b"\x00", b"var x = ", b"[", b"{}", b"//\n")
    )
    after = rng.choice((b"", b"\n\n", b"\x00" * 999, b"}", b"]", b",", text, b"x" * 9999, b"{}"))
    return before + text + after


def _trailing_commas(rng: random.Random, text: bytes) -> bytes:
    closing = rng.choice((b"}", b"]"))
    return text.replace(closing, rng.choice((b",", b",,", b", ,")) + closing)


def _bare_list(_: random.Random, text: bytes) -> bytes:
    start = text.find(b"[", max(0, text.find(b'"traceEvents"')))
    end = text.rfind(b"]")
    return text[start : end + 1] if 0 <= start < end else text


# The file.


def _file_flipped(rng: random.Random, data: bytes) -> bytes:
    return _bytes_flipped(rng, data)


def _header_flipped(rng: random.Random, data: bytes) -> bytes:
    return _bytes_flipped(rng, data[:12]) + data[12:]


def _file_cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.choice((rng.randrange(len(data) + 1), len(data) - rng.randrange(1, 12), 11))]


def _members_joined(rng: random.Random, data: bytes) -> bytes:
    """Append another member: the same, an empty one, one that goes on, or half of one."""
    more = gzip.compress(b',{"ph":"X"}', mtime=0)
    return data + rng.choice((data, gzip.compress(b"", mtime=0), more, more[: len(more) // 2]))


def _file_garbage(rng: random.Random, data: bytes) -> bytes:
    return data + rng.choice((b"\x00" * 512, b"\x1f\x8b", b"\x1f", rng.randbytes(100), b"]}"))


def _gzip_again(_: random.Random, data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def _only_a_header(rng: random.Random, _: bytes) -> bytes:
    return b"\x1f\x8b\x08" + rng.randbytes(rng.randrange(100))


_FIELDS: Final[tuple[Callable[[random.Random, Any], Any], ...]] = (
    _wrong_number, _wrong_number, _wrong_type, _wrong_type, _wrong_inside, _same_field_everywhere,
    _same_field_everywhere, _fields_missing, _fields_twice, _fields_shuffled, _text_ids, _same_ids,
    _other_category, _absurd_times, _events_repeated, _no_events, _metadata_moved,
    _metadata_wrong, _list_moved,
)  # fmt: skip
_TEXT: Final[tuple[Callable[[random.Random, Any], Any], ...]] = (
    _bytes_flipped, _bytes_replaced, _tokens_changed, _tokens_changed, _cut, _cut, _text_inserted,
    _text_inserted, _strings_damaged, _strings_damaged, _other_encoding, _something_around,
    _trailing_commas, _bare_list,
)  # fmt: skip
_FILE: Final[tuple[Callable[[random.Random, Any], Any], ...]] = (
    _file_flipped, _header_flipped, _file_cut, _members_joined, _file_garbage, _gzip_again,
    _only_a_header,
)  # fmt: skip
