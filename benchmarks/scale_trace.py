"""Make a large Kineto trace from a real one: the same events again and again, later each time.

Usage: python benchmarks/scale_trace.py TRACE OUT (--copies N | --bytes N)

In every copy the times are shifted by the length of the trace, and the ids by which events name
one another (correlation, External id, flows, sequence numbers, Python ids) and the steps by as
much as there are. So what is linked in the trace is linked in each copy, and in no other way:
every count of the large trace is that of the small one times the number of copies. The metadata
and the base time stay. Only one copy is held in memory.
"""

from __future__ import annotations

import argparse
import gzip
import math
import re
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_IDS: Final = (
    "External id", "external id", "correlation", "id", "Sequence number", "Python id",
    "Python parent id", "Ev Idx", "wait_on_cuda_event_record_corr_id",
)  # fmt: skip
_MAY_BE_ZERO: Final = ("id", "Sequence number", "Python id", "Python parent id", "Ev Idx")
"""Of these, 0 is a number as any other; of the others it stands for none."""
_NUMBER: Final = re.compile(
    rf'("(ts|{"|".join(_IDS)})"\s*:\s*"?|"name"\s*:\s*"(ProfilerStep)#)(\d+)(?![\d.]*[eE])'
)
_ID_END: Final = 1 << 40  # larger ones are no ids but stand for none
_PAUSE_US: Final = 1000


class _Event(msgspec.Struct):
    ph: str = ""
    ts: float | str = 0
    dur: float | str = 0


def main() -> int:
    """Write the large trace, and say how large it is."""
    parser = argparse.ArgumentParser(description="Make a large trace from a real one.")
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("out", type=Path, metavar="OUT", help="gzip if it ends in .gz")
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--copies", type=int)
    size.add_argument("--bytes", type=int, help="of JSON, at least")
    args = parser.parse_args()
    data = args.trace.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    copies = args.copies or math.ceil(args.bytes / len(data))
    written = 0
    with _open(args.out) as file:
        for part in scaled(data, copies):
            written += file.write(part)
    print(f"{args.out}: {copies} copies, {written} bytes of JSON")
    return 0


def _open(path: Path) -> gzip.GzipFile:
    return gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb")  # type: ignore[return-value]


def scaled(data: bytes, copies: int) -> Iterator[bytes]:
    """Yield the text of a trace with the events of `data` so many times."""
    members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    for number, (name, value) in enumerate(members.items()):
        yield b"{" if number == 0 else b",\n"
        yield msgspec.json.encode(name) + b": "
        if name == "traceEvents":
            yield b"["
            yield from _copies_of(bytes(value), copies)
            yield b"]"
        else:
            yield bytes(value)
    yield b"}\n"


def _copies_of(text: bytes, copies: int) -> Iterator[bytes]:
    events = text.decode()[1:-1].strip()
    found = list(_NUMBER.finditer(events))
    values = [int(match[4]) for match in found]
    kinds = [match[2] or match[3] for match in found]
    steps = _step_of(values, kinds, _length_us(text))
    ends = [0, *(match.end(4) for match in found)]
    between = [events[end : match.start(4)] for end, match in zip(ends, found, strict=False)]
    rest = events[ends[-1] :]
    for copy in range(copies):
        numbers = (str(value + copy * step) for value, step in zip(values, steps, strict=True))
        pieces = chain.from_iterable(zip(between, numbers, strict=True))
        yield (",\n" if copy else "").encode() + "".join(chain(pieces, (rest,))).encode()


def _step_of(values: list[int], kinds: list[str], length_us: int) -> list[int]:
    """Return for each number what it grows by from copy to copy."""
    ids = [v for v, kind in zip(values, kinds, strict=True) if kind in _IDS and v < _ID_END]
    numbers = [v for v, kind in zip(values, kinds, strict=True) if kind == "ProfilerStep"]
    grow = dict.fromkeys(_IDS, max(ids, default=0) + 1)
    grow["ts"] = length_us
    grow["ProfilerStep"] = max(numbers, default=0) - min(numbers, default=0) + 1
    return [
        0 if kind in _IDS and _stands_for_none(kind, v) else grow[kind]
        for v, kind in zip(values, kinds, strict=True)
    ]


def _stands_for_none(kind: str, value: int) -> bool:
    return value >= _ID_END or (value == 0 and kind not in _MAY_BE_ZERO)


def _length_us(text: bytes) -> int:
    """Return from the first start to the last end, and a pause, in whole µs."""
    events = msgspec.json.decode(text, type=list[_Event])
    timed = [(float(event.ts), float(event.dur)) for event in events if event.ph == "X"]
    if not timed:
        return _PAUSE_US
    begin, end = min(ts for ts, _ in timed), max(ts + dur for ts, dur in timed)
    return math.ceil(end - begin) + _PAUSE_US


if __name__ == "__main__":
    sys.exit(main())
