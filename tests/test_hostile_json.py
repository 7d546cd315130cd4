"""Hostile JSON is read or refused in one line, in time and memory in proportion to the file."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in Linux's way"),
]

MEMORY_MAX: Final = 260 << 20
TIMES_SIZE: Final = 12
"""So many bytes of memory more for each byte of the file."""
SECONDS_MAX: Final = 15.0
SECONDS_FOR_MB: Final = 1.5
"""Of processors, on any machine; most cases take three in all."""

OP: Final = {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 50,
    "args": {"External id": 1},
}  # fmt: skip
LAUNCH: Final = {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 20,
    "dur": 5, "args": {"correlation": 7, "External id": 1},
}  # fmt: skip
KERNEL: Final = {
    "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 30, "dur": 10,
    "args": {"correlation": 7, "device": 0, "stream": 7, "External id": 1},
}  # fmt: skip


def document(events: list[dict[str, Any]] | None = None, **more: object) -> str:
    """Return the text of a trace of some events, by default of one kernel."""
    own = [OP, LAUNCH, KERNEL] if events is None else events
    return json.dumps({"schemaVersion": 1, "traceEvents": own, **more})


GOOD: Final = document().encode()
LONG: Final = b"k" * (20 << 20)
STEP: Final = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "dur": 9}
FLOW: Final = {"ph": "s", "cat": "fwdbwd", "pid": 1, "tid": 1, "name": "fwdbwd"}
SHAPES: Final = {"Input Dims": [[7] * 60] * 20, "Input type": ["float"] * 20}
PROPERTIES: Final = {"id": 1 << 62, "name": "<b>", "numSms": -1, "totalGlobalMem": 1 << 70}
RANK: Final = {"rank": 1 << 70, "world_size": -5, "backend": "\x1b[31m"}


def changed(old: bytes, new: bytes) -> bytes:
    """Return the good trace with one text of it replaced where it first stands."""
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def bomb(megabytes: int, byte: bytes) -> bytes:
    """Return a gzip file of one byte, repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(byte * (1 << 20)) for _ in range(megabytes)]
    return b"".join([*parts, packer.flush()])


def zipped(data: bytes, name: str = "t.json") -> bytes:
    """Return a zip archive of one file."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return whole.getvalue()


def kernel(number: int, **more: int) -> dict[str, Any]:
    """Return a kernel of a number, on a device and stream of its own where they are given."""
    return KERNEL | {"args": {"correlation": number, "device": 0, "stream": 7} | more}


_ARGS: Final = b'"External id": 1}'
_LIST: Final = b'{"traceEvents":['

CASES: Final[dict[str, Callable[[], bytes]]] = {
    "deep arrays in args": lambda: changed(
        _ARGS, _ARGS[:-1] + b', "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    ),
    "deep objects before the list": lambda: b'{"a":' * 300_000 + b"1" + b"}" * 300_000,
    "deep objects beside the list": lambda: (
        b'{"a":' + b'{"b":' * 300_000 + b"1" + b"}" * 300_000 + b"," + GOOD[1:]
    ),
    "1e308": lambda: changed(b'"ts": 10', b'"ts": 1e308'),
    "1e-308": lambda: changed(b'"ts": 10', b'"ts": 1e-308'),
    "NaN": lambda: changed(b'"ts": 10', b'"ts": NaN'),
    "Infinity": lambda: changed(b'"dur": 50', b'"dur": Infinity'),
    "20 MB key": lambda: changed(_ARGS, _ARGS[:-1] + b',"' + LONG + b'":1}'),
    "20 MB key beside the list": lambda: b'{"' + LONG + b'":1,' + GOOD[1:],
    "20 MB name": lambda: changed(b"gemm", LONG),
    "keys twice": lambda: changed(b'"ts": 30', b'"ts": 30, "ts": 40, "ts": 50'),
    "two lists": lambda: GOOD[:-1] + b',"traceEvents":[]}',
    "null, then a list": lambda: b'{"traceEvents":null,' + GOOD[1:],
    "lone surrogates": lambda: changed(b"gemm", b"\\ud800x\\udfff"),
    "raw surrogates": lambda: changed(b"gemm", b"\xed\xa0\x80"),
    "NUL escaped": lambda: changed(b"gemm", b"a\\u0000b"),
    "NUL": lambda: changed(b"gemm", b"a\0b"),
    "NULs before": lambda: b"\0" * 10 + GOOD,
    "BOM": lambda: b"\xef\xbb\xbf" + GOOD,
    "UTF-16": lambda: GOOD.decode().encode("utf-16"),
    "UTF-32": lambda: GOOD.decode().encode("utf-32"),
    "CR": lambda: json.dumps(json.loads(GOOD), indent=1).replace("\n", "\r").encode(),
    "text behind": lambda: GOOD + b"garbage\n\0\xff",
    "members of gzip": lambda: gzip.compress(GOOD[:100]) + gzip.compress(GOOD[100:]),
    "text behind gzip": lambda: gzip.compress(GOOD) + b"garbage" * 100,
    "zeros behind gzip": lambda: gzip.compress(GOOD) + b"\0" * 100_000,
    "200,000 empty members": lambda: gzip.compress(b"") * 200_000 + gzip.compress(GOOD),
    "gzip in gzip": lambda: gzip.compress(gzip.compress(GOOD)),
    "bomb of blanks": lambda: bomb(4096, b" "),
    "bomb of text": lambda: bomb(2048, b"A"),
    "bomb behind": lambda: gzip.compress(GOOD[:-1] + b',"x":"') + bomb(1024, b"B"),
    "wrong sum": lambda: gzip.compress(GOOD)[:-8] + b"\0" * 8,
    "gzip cut": lambda: gzip.compress(GOOD)[:-12],
    "long header of gzip": lambda: (
        b"\x1f\x8b\x08\x1c" + b"\0" * 6 + b"\xff\xff" + b"x" * 65535 + b"n" * 5_000_000
    ),
    "zip": lambda: zipped(GOOD),
    "zip of zip": lambda: zipped(zipped(GOOD), "a.zip"),
    "zstd": lambda: b"\x28\xb5\x2f\xfd" + b"x" * 100,
    "empty": lambda: b"",
    "brackets": lambda: b"[" * 5_000_000,
    "quotes": lambda: _LIST + b'"' * 3_000_000,
    "commas": lambda: _LIST + b"," * 20_000_000 + b"]}",
    "events of nothing": lambda: _LIST + b"{}," * 2_000_000 + b"{}]}",
    "backslashes": lambda: _LIST + b'{"name":"' + b"\\" * 20_000_000,
    "starts of events": lambda: _LIST + b',{"ph":' * 2_000_000,
    "open strings": lambda: _LIST + b'{"name":"x' * 500_000,
    "digits": lambda: changed(b'"ts": 10', b'"ts": ' + b"9" * 3_000_000),
    "64 devices listed": lambda: document(
        deviceProperties=[{"id": i, "name": "x" * 1000} for i in range(64)]
    ).encode(),
    "wrong properties": lambda: document(deviceProperties=[PROPERTIES]).encode(),
    "wrong rank": lambda: document(distributedInfo=RANK).encode(),
    "rank 999,999,999": lambda: document(
        distributedInfo={"rank": 999_999_999, "world_size": 10**9}
    ).encode(),
    "10,000 threads": lambda: document([OP | {"tid": i, "ts": i} for i in range(10_000)]).encode(),
    "10,000 processes": lambda: document(
        [OP | {"pid": i, "ts": i} for i in range(10_000)]
    ).encode(),
    "10,000 streams": lambda: document([kernel(i, stream=i) for i in range(10_000)]).encode(),
    "10,000 devices": lambda: document([kernel(i, device=i) for i in range(10_000)]).encode(),
    "50,000 ops at one time": lambda: document([OP] * 50_000).encode(),
    "100,000 ops in each other": lambda: document(
        [OP | {"ts": i, "dur": 400_000 - 2 * i} for i in range(100_000)]
    ).encode(),
    "30,000 steps": lambda: document(
        [STEP | {"name": f"ProfilerStep#{i}", "ts": 10 * i} for i in range(30_000)]
    ).encode(),
    "100,000 kernels of one launch": lambda: document(
        [OP, LAUNCH, *(KERNEL | {"ts": 30 + i * 10} for i in range(100_000))]
    ).encode(),
    "100,000 launches of one kernel": lambda: document(
        [OP, KERNEL, *(LAUNCH | {"ts": 20 + i} for i in range(100_000))]
    ).encode(),
    "200,000 flows": lambda: document(
        [OP, *(FLOW | {"id": i % 3, "ts": i} for i in range(200_000))]
    ).encode(),
    "shapes of 60 dimensions": lambda: document(
        [OP | {"ts": i * 60, "args": SHAPES} for i in range(3_000)]
    ).encode(),
}


MEASURES: Final = """
import os, resource, subprocess, sys
child = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL)
resource.prlimit(child.pid, resource.RLIMIT_CPU, (int(sys.argv[1]),) * 2)
_, status, usage = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""
"""A small process: a program begins with the memory of the one that starts it."""


@pytest.mark.parametrize("name", CASES)
def test_hostile_json_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    path, said = tmp_path / "trace.json", tmp_path / "said"
    path.write_bytes(CASES[name]())
    size = path.stat().st_size
    limit = SECONDS_MAX + SECONDS_FOR_MB * size / 1e6

    command = [str(Path(sys.executable).with_name("pyprof2")), "prof", "-q", str(path)]
    with said.open("w") as file:
        measured = subprocess.run(
            [sys.executable, "-c", MEASURES, str(int(limit) + 1), *command],
            stdout=subprocess.PIPE, stderr=file, text=True, check=True,
        )  # fmt: skip
    code, seconds, kilobytes = map(float, measured.stdout.split())

    text = said.read_text()
    assert (code, text.count("\n")) in ((0, 0), (1, 1)), text
    assert "a fault in pyprof2" not in text
    assert seconds < limit
    assert kilobytes * 1024 < MEMORY_MAX + TIMES_SIZE * size
