"""Run the compiled readers on damaged bytes, built so that no fault of their memory goes unseen.

Usage: python -m tests.fuzz_native [--seconds N] [--seed S]

The scanner of traces and the reader of memory snapshots are compiled with
the sanitizers of addresses and of undefined behaviour, which end the process at the first fault;
each object of Python's is a block of memory of its own. Text number S + i is the same in every run,
and so is snapshot number S + i; so what fails is named, and fails again. Each of them is
run for half of the time. Whether they see what the readers in Python see is a matter of
`make fuzz`.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import io
import os
import random
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "native"
_NAMES: Final = ("_scan", "_snapshot_events")
_LIBRARIES: Final = [FOLDER / "pyprof2" / "parsers" / f"{name}.abi3.so" for name in _NAMES]
_FLAGS: Final = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined"
_SETTINGS: Final = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "PYTHONMALLOC": "malloc",
}
_TEXTS_OF_A_SCANNER: Final = 300
_EVENTS_MAX: Final = 12
_TOKENS: Final = (
    b'"', b"\\", b"\\u", b"\\ud83d", b"\\udc00", b"[", b"]", b"{", b"}", b",", b":", b"-", b".",
    b"e5", b"0", b"9" * 18, b"9" * 19, b"9" * 70, b"null", b"tru", b"\x00", b"\x1f", b"\x7f",
    b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x99\x82", b"\xed\xa0\x80", b"[" * 70, b'{"a":' * 70,
    b'"args":{"External id":1},', b'"ph":"i",', b'"cat":"kernel",', b"1e400", b"x" * 20_000, b"",
    b'"args":{"External id":0.' + b"3" * 100 + b"},",
    b"n", b"f",
    b"1.5e-3", b" \n\t\r", b'"ts":1234567890123456.7895,', b"4000000000000000", b"-0.0005",
)  # fmt: skip


def build() -> str | None:
    """Compile the readers with the sanitizers; return the library to load first, if it worked."""
    environment = {**os.environ, "CFLAGS": _FLAGS, "LDFLAGS": "-fsanitize=address,undefined"}
    environment.pop("PYPROF2_PURE", None)
    folders = ["-b", str(FOLDER), "-t", str(FOLDER / "objects")]
    words = ["setup.py", "-q", "build_ext", "--force", *folders]
    subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, check=True)
    compiler = os.environ.get("CC", "cc")
    asked = [compiler, "-print-file-name=libasan.so"]
    found = subprocess.run(asked, check=False, capture_output=True, text=True).stdout.strip()
    is_built = all(path.exists() for path in _LIBRARIES)
    return found if is_built and Path(found).is_absolute() else None


def _load(which: int) -> Any:
    """Load a module that was built here, in place of the one that is installed."""
    name, path = f"pyprof2.parsers.{_NAMES[which]}", _LIBRARIES[which]
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _scanner() -> Callable[..., Any]:
    _load(0)
    from pyprof2.parsers import _kineto_native

    def make(seed: int) -> Any:
        native: Any = _kineto_native
        return native._scan.Scanner(native._SPECIFICATION, native._group_number, seed)

    return make


def _events() -> list[bytes]:
    import msgspec

    from tests.kineto_events import op
    from tests.synthetic_trace import synthetic_trace

    more = [op("aten::mm", 1, 2, id=5, dims=[[2, 3]], types=["float"])]
    found = [msgspec.json.encode(e) for e in [*synthetic_trace()["traceEvents"], *more]]
    return found + [event.replace(b",", b",\n    ").replace(b":", b" : ") for event in found[::7]]


def damaged(seed: int, events: Sequence[bytes]) -> bytes:
    """Return text number `seed`: an array of some events, with a few bytes that are wrong."""
    rng = random.Random(seed)  # noqa: S311
    chosen = rng.choices(events, k=rng.randrange(1, _EVENTS_MAX))
    text = bytearray(b"[" + b",".join(chosen) + b"]")
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(text) + 1)
        what = rng.randrange(5)
        end = min(len(text), at + rng.choice((1, 1, 2, 8, 100)))
        if what == 0:
            text[at:end] = b""
        elif what == 1:
            text[at:at] = rng.choice(_TOKENS)
        elif what == 2:
            text[at:end] = rng.choice(_TOKENS)
        elif what == 3:
            text[at:at] = text[at:end]
        elif at < len(text):
            text[at] = rng.randrange(256)
    if rng.random() < 0.2:
        at = rng.randrange(len(text) + 1)
        text[at:] = rng.choice((b"", b"", b'{"a":', b'{"args":', b"")) + rng.choice(_TOKENS)
    return bytes(text)


def _fuzz_snapshots(seconds: float, seed: int) -> None:
    from tests import compare_snapshots

    make = _load(1).Reader
    contents = [each for each in compare_snapshots.samples().values() if len(each) < 1 << 16]
    began, number, understood = time.monotonic(), seed, 0
    while time.monotonic() - began < seconds:
        content = compare_snapshots.damaged(number, contents)
        print(f"--seed {number}", file=sys.stderr)
        understood += _read_events(make, content)
        number += 1
    print(f"{number - seed} damaged snapshots, {understood} of them understood, no fault of memory")


def _known(index: int) -> bytes | tuple[int, int]:
    """Return something for what stands before the events: they may refer to anything."""
    return (b"frames", b"action", b"/a.py", (0, index), (1, index), (1, -1))[index % 6]


def _read_events(make: Callable[..., Any], content: bytes) -> bool:
    """Let the compiled reader read the events of a pickle; return whether it did."""
    from pyprof2.parsers import _snapshot_pickle

    begin = content.find(b"(}\x94(", content.find(b"device_traces"))
    columns = _snapshot_pickle.Columns(io.BytesIO())
    reader = make(_known, columns.known_frame, columns.known_stack, begin)
    # An array ends where its memory does; a bytes object has a byte more.
    memoized, many = content[:begin].count(b"\x94"), True
    found = reader.read(array("B", content), max(begin, 0), len(content), memoized, many)
    for which in range(3):
        reader.words(which)
    if found is not None:
        columns.add_compiled(reader, found[3], 0)
        for index in range(found[2] + 1):
            reader.text(index)
    return found is not None


def _fuzz(seconds: float, seed: int) -> None:
    make, events = _scanner(), _events()
    began, number, understood = time.monotonic(), seed, 0
    scanner = make(seed)
    while time.monotonic() - began < seconds:
        if (number - seed) % _TEXTS_OF_A_SCANNER == 0:
            scanner = make(number)
        text = damaged(number, events)
        print(f"--seed {number}", file=sys.stderr)  # the last one is the one that failed
        understood += scanner.scan(text) is not None
        for which in range(3):
            scanner.words(which, 0)
        number += 1
    print(f"{number - seed} damaged texts, {understood} of them understood, no fault of memory")


def main() -> int:
    """Build, and fuzz in a process that has the sanitizers."""
    parser = argparse.ArgumentParser(description="Run the compiled readers on damaged bytes.")
    parser.add_argument("--seconds", type=float, default=60, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first; default: %(default)s")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        for fuzz in (_fuzz, _fuzz_snapshots):
            fuzz(args.seconds / 2, args.seed)
        return 0
    library = build()
    if library is None:
        print("no compiler with sanitizers here: not fuzzed")
        return 0
    words = ["--here", "--seconds", str(args.seconds), "--seed", str(args.seed)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz_native", *words],
        cwd=ROOT, env={**os.environ, **_SETTINGS, "LD_PRELOAD": library}, check=False,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        numbers = [line for line in lines if line.startswith("--seed")]
        print("\n".join(["failed at", *numbers[-1:], *(x for x in lines if x not in numbers)]))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
