"""Whether the two readers of memory snapshots see the same in a file.

Usage: python -m tests.compare_snapshots [--count N] [--seed S]

Run as a program it damages snapshots, as `make fuzz` does, and compares what the readers see. The
compiled one may leave any file to the one in Python; what it does not leave, both must see alike.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import random
import struct
import sys
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pyprof2.parsers import _snapshot_pickle as reader
from pyprof2.parsers.snapshot import COMPILED, _numbers, library
from tests.compare_readers import compare
from tests.snapshots import TORCH, alloc, block, flat, forward, frame, free, segment, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.snapshots import Json

_REFUSED: Final = (reader.Refused, *reader._DAMAGED, MemoryError)
_FRAME: Final = slice(3, 11)
"""Where the length of the only frame is, in a pickle of protocol 4 or 5 that is small."""
_TOKENS: Final = (
    b"N", b"(", b"}", b"]", b"a", b"e", b"s", b"u", b"\x94", b"\x88", b"\x86", b")", b"0", b".",
    b"K\x07", b"M\x01\x02", b"J\xff\xff\xff\xff", b"\x8a\x00", b"\x8a\x01\xff", b"\x8a\x06abcdef",
    b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x8a\x09" + b"\1" * 9, b"G" + b"\0" * 8,
    b"h\x00", b"h\x07", b"h\x20", b"h\xff", b"j\x10\x00\x00\x00", b"j\xff\xff\xff\xff", b"q\x05",
    b"\x8c\x00", b"\x8c\x03N/A\x94", b"\x8c\x04size\x94", b"\x8c\x06frames\x94", b"\x8c\x02\xc3(",
    b"\x8c\x04name", b"\x8c\x03new\x94K\x01", b"X\x02\x00\x00\x00ab\x94", b"X\xff\xff\x00\x00",
    b"]\x94(}\x94(", b"}\x94(", b"K\x00K\x00\x86\x94", b"]\x94]\x94",
    b"\x95" + struct.pack("<Q", 3), b"\x95" + struct.pack("<Q", 1 << 40), b"(e", b"(u",
)  # fmt: skip


def told(content: bytes) -> Any:
    """Return what a file of columns says, with texts in the place of their codes."""
    length = int.from_bytes(content[-8:], "little")
    header = json.loads(content[-8 - length : -8])
    columns = {
        name: values.tolist() for name, values in _numbers(content, header.pop("parts")).items()
    }
    for name, words in header.pop("texts").items():
        columns[name] = [None if at < 0 else words[at] for at in columns.get(name, [])]
    return columns, header


def by_python(content: bytes, path: Path) -> Any:
    """Return what the reader in Python sees in a pickle; None: it refuses it."""
    path.write_bytes(content)
    out = io.BytesIO()
    try:
        with path.open("rb") as file:
            place = reader.check_opcodes(file, len(content))
            reader.read(file, place, reader.Columns(out))
    except _REFUSED:
        return None
    return told(out.getvalue())


def by_compiled(content: bytes, path: Path) -> Any:
    """Return what the compiled reader sees in a pickle; None: it leaves it to the other."""
    path.write_bytes(content)
    target = path.with_suffix(".columns")
    with path.open("rb") as file:
        if not reader.read_compiled(file, len(content), target, library(COMPILED)):
            return None
    return told(target.read_bytes())


def difference(content: bytes, path: Path) -> str | None:
    """Return what the readers see otherwise in a pickle, for which `path` is used; None: nothing.

    What the compiled one leaves to the other is no difference.
    """
    other = by_compiled(content, path)
    if other is None:
        return None
    one = by_python(content, path)
    if one is None:
        return "what is refused is read by the compiled reader"
    # JSON tells what Python takes for equal, as 1 and true.
    texts = [json.dumps(each, sort_keys=True) for each in (one, other)]
    if texts[0] == texts[1]:
        return None
    at = next(i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b)
    return " and ".join(repr(text[max(0, at - 60) : at + 60]) for text in texts)


def _steps(count: int) -> list[Json]:
    """Return events with numbers of all lengths, whose stacks are shared, equal, or of a line."""
    shared = [forward(line) for line in range(5)]
    events = flat(
        *(
            each
            for at in range(count)
            for each in (
                alloc(1 << (at % 50 + 8), 3 + (1 << at % 33), shared[at % 5]),
                *free(1 << (at % 50 + 8), 3 + (1 << at % 33), [shared[at % 3][0]]),
                alloc(at, at, [*shared[at % 2], frame(f"{TORCH}/é{at % 7}.py", -at, "f")]),
            )
        )
    )
    for at, event in enumerate(events):
        event["compile_context"] = ["N/A", "N/A".lower().upper(), "0/0", None][at % 4]
        event["user_metadata"] = ["", "kv cache", "", "", None][at % 5]
    return events


def _newest() -> Json:
    """Return a snapshot of the newest torch, whose texts and frames are in several places."""
    events = _steps(12)
    kept = forward(900)
    for event in events[::3]:
        event |= {"segment_pool_id": (0, 1), "pool_id": (0, 0), "forward_frames": ["a", "b"]}
        event["frames"] = kept
    events[5]["stream"] = None
    events[7]["device_free"] = 1234
    del events[7]["addr"]
    events[9]["newer"] = "x"
    blocks = [
        block(512, address=1 << 20, requested_size=500, frames=kept),
        block(512, "inactive", frames=[]),
    ]
    first, *_ = events
    twice = "expandable_segments:True"
    told = dict.fromkeys(first, 1) | {"conf": twice, "again": twice}
    whole = snapshot([segment(*blocks)], events)
    return whole | {"allocator_settings": told | {"deep": {"a": 1.5, "b": twice}}}


def _oldest() -> Json:
    """Return a snapshot of torch 2.0: frames are in the history of blocks, events lack keys."""
    history = [{"addr": 1 << 20, "real_size": 500, "frames": forward(7)}]
    events = [{"action": "alloc", "addr": at, "size": 512, "stream": 0} for at in range(9)]
    held = segment(block(512, history=history))
    return {"segments": [held], "device_traces": [events]}


def samples() -> dict[str, bytes]:
    """Return snapshots of all forms that have events, as pickles that the compiled reader reads."""
    long = [frame("/a.py", line, "f") for line in range(1001)]
    made = {
        "the newest torch": _newest(),
        "torch 2.0": _oldest(),
        "the third of four devices": snapshot([], [], [], _steps(3), []),
        "three devices of four": snapshot([], _steps(3), [], _steps(4), _steps(2)),
        "1,001 events, and frames": snapshot([], [alloc(at, at, long[at:]) for at in range(1001)]),
    }
    return {
        f"{name}, protocol {protocol}": pickle.dumps(content, protocol)
        for name, content in made.items()
        for protocol in (4, 5)
    }


@cache
def _opcodes(content: bytes) -> dict[str, list[tuple[int, int]]]:
    """Return where the opcodes of a pickle begin and end, by what they are for."""
    places = [(code.name, at or 0) for code, _, at in pickletools.genops(content)]
    found: dict[str, list[tuple[int, int]]] = {"value": [], "text": [], "get": [], "other": []}
    for (name, at), (_, end) in pairwise(places):
        is_value = name in ("NONE", "NEWTRUE", "NEWFALSE", "LONG1") or name.startswith("BININT")
        kind = "text" if "UNICODE" in name else "get" if "GET" in name else "other"
        found["value" if is_value else kind].append((at, end))
    return found


def _exchanged(rng: random.Random, content: bytes) -> bytes:
    """Return a pickle with an opcode in the place of another, mostly of one for the same."""
    kinds = [kind for kind in _opcodes(content).values() if kind]
    ours = rng.choice(kinds)
    at, end = rng.choice(ours)
    first, last = rng.choice(ours if rng.random() < 0.8 else rng.choice(kinds))
    return content[:at] + content[first:last] + content[end:]


def damaged(seed: int, contents: Sequence[bytes]) -> bytes:
    """Return pickle number `seed`: one of `contents` with a few bytes that are wrong."""
    rng = random.Random(seed)  # noqa: S311
    content = bytearray(_exchanged(rng, rng.choice(contents)))
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3, 8))):
        at = rng.randrange(12, len(content))
        end = min(len(content), at + rng.choice((1, 1, 2, 8, 60)))
        what = rng.randrange(6)
        if what == 0:
            content[at:end] = b""
        elif what == 1:
            content[at:at] = rng.choice(_TOKENS)
        elif what == 2:
            content[at:end] = rng.choice(_TOKENS)
        elif what == 3:
            content[at:at] = content[at:end]
        elif what == 4:
            content[at] = rng.randrange(256)
        else:
            content[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.9 and len(content) < 1 << 16:
        content[_FRAME] = struct.pack("<Q", len(content) - _FRAME.stop)
    return bytes(content)


def differences(seeds: Sequence[int], folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbers of the damaged snapshots that the readers see differently, and what."""
    contents = [content for content in samples().values() if len(content) < 1 << 16]
    for seed in seeds:
        found = difference(damaged(seed, contents), folder / "damaged.pickle")
        if found is not None:
            yield seed, found


def left() -> dict[str, bytes]:
    """Return snapshots that the compiled reader leaves to the other."""
    oom = {"action": "oom", "device_free": 7, "size": 9, "frames": []}
    made = {
        "frames of events in segments behind them": dict(reversed(_newest().items())),
        "one event": snapshot([], [oom]),
        "no events": snapshot([segment(block(512))], []),
        "a truth for a number": snapshot([], [oom | {"size": True}, oom]),
        "a key of frames that is not known": snapshot(
            [], [alloc(1, 1, [frame("/a.py", 1, "f") | {"newer": 1}]), oom]
        ),
        "a value of a new key with values in it": snapshot([], [oom | {"newer": [1]}, oom]),
        "a surrogate": snapshot([], [alloc(1, 1, [frame("/\udc80.py", 1, "f")]), oom]),
        "keys that begin alike": snapshot([], [oom | {"n" * 40 + end: 1 for end in "ab"}, oom]),
    }
    found = {name: pickle.dumps(content, 4) for name, content in made.items()}
    return found | {"protocol 2": pickle.dumps(_newest(), 2)}


def main() -> int:
    """Compare the readers on damaged snapshots, and say on which they differ."""
    return compare("snapshots", "readers", differences if library(COMPILED) else None)


if __name__ == "__main__":
    sys.exit(main())
