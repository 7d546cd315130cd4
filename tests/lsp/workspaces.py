"""A workspace with a script and a recording of it, whose times the eye can check.

The script has an emoji before the batch size, and lines that end at CRLF where a test asks for it.
In each of two steps of 1 ms line 13 calls the network, whose line 7 has 400 us of a device and line
8 has 100; line 14 runs backward: 300 us of line 7's op. Line 16 is a kernel of 2 us, 0.25 %.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from pyprof2.markers import Marker, format_marker
from pyprof2.pipeline.parsing import parse
from tests.kineto_events import ENGINE, launched, memory, node, op, step, trace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kineto_events import Event

CODE: Final = '''"""A network."""
s = "😀"; batch_size: int = 32  # 😀 keep


class Block:
    def forward(self, x):
        y = self.up(x)  # 😀
        return self.down(y)


def main():
    for x in loader:
        loss = net(x)
        loss.backward()

        log(loss)
'''
STEPS: Final = 2
STEP_NS: Final = 802_000
"""Time of the kernels of a step: 400 + 100 + 300 + 2 us."""
DIMS: Final = {"dims": [[32, 64], [64, 64]], "types": ["float", "float"]}


def source(path: str, *lines: int, ts: int, dur: int) -> Event:
    """Return the marker of the calls that led to what is inside, the innermost line first."""
    text = "\n".join(f"{path}:{line}" for line in lines)
    return op(format_marker(Marker("source", source=text), quoteless=True), ts, dur)


def layer(name: str, ts: int, dur: int) -> Event:
    """Return the marker of a module's call."""
    return op(format_marker(Marker("layer", layer=name), quoteless=True), ts, dur)


def events(path: str, root: str, slower: int = 1) -> list[Event | list[Event]]:
    """Return the recording of a script at a path; `slower`: how many times as long kernels run."""
    marker = Marker("process", rank=0, world_size=1, source_root=root)
    found: list[Event | list[Event]] = [op(format_marker(marker, quoteless=True), 0, 1)]
    for number in range(STEPS):
        t, c = 10 + 2000 * slower * number, 10 * number
        end = t + 1000 * slower
        found += [
            step(number, t, 1000),
            layer("blocks.0", t + 5, 300),
            source(path, 7, 13, ts=t + 10, dur=100),
            op("aten::relu", t + 20, 50, seq=7 + c, fwd=0, **DIMS),
            launched(t + 30, c + 1, at=end, dur=400 * slower),
            source(path, 8, 13, ts=t + 150, dur=100),
            op("aten::linear", t + 160, 50, **DIMS),
            launched(t + 170, c + 2, at=end + 400 * slower, dur=100 * slower),
            source(path, 14, ts=t + 400, dur=300),
            node("ReluBackward0", t + 410, 100, seq=7 + c),
            launched(t + 420, c + 3, at=end + 500 * slower, dur=300 * slower, tid=ENGINE),
            source(path, 16, ts=t + 800, dur=50),
            op("aten::add", t + 810, 20),
            launched(t + 815, c + 4, at=end + 800 * slower, dur=2 * slower),
        ]
    return found


def allocations() -> list[Event]:
    """Return 3 MB that line 7 of the first step allocates, and keeps."""
    address = {"Addr": 4096, "Device Type": 1, "Device Id": 0}
    return [
        memory(
            35, **address, Bytes=3_000_000, **{"Total Allocated": 3_000_000, "Total Reserved": 0}
        )
    ]


def workspace(folder: Path, ends: str = "\n", name: str = "train.py", slower: int = 1) -> Path:
    """Write a script, older than its recording, and the store of that; return the script."""
    folder.mkdir(exist_ok=True)
    script = folder / name
    script.write_bytes(CODE.replace("\n", ends).encode())
    old = time.time() - 3600
    os.utime(script, (old, old))
    record(folder, script, "net", slower)
    return script


def record(folder: Path, script: Path, name: str, slower: int = 1) -> Path:
    """Write a recording of a script, as it is now, and return its store."""
    made = [*events(str(script), str(folder), slower), *allocations()]
    recording = trace(folder.parent / f"{name}.json", *made)
    return parse(recording, folder / f"{name}.pyprof2", force=True)
