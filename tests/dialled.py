"""A workspace with recordings at batch sizes of 8, 16 and 32, whose numbers the eye can check.

A step of a batch of B takes 200 + 10 B us: its forward kernel 10 B us, that of the optimizer 20.
Forward allocates B MB over 5 MB, on a device with 80 MB. So B / (200 + 10 B us) samples a second:
28,571 at 8, 61,538 at 32, never 100,000. The script says 32, which is the newest.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from pyprof2.markers import Marker, format_marker
from pyprof2.pipeline.parsing import parse
from tests.kineto_events import kernel, launch, memory, op, step, trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kineto_events import Event

SIZES: Final = (8, 16, 32)
CODE: Final = '''"""A network."""
s = "😀"; batch_size: int = 32  # 😀 keep


def main():
    for x in loader:
        loss = net(x)
'''
DEVICE: Final = {"id": 0, "name": "Small GPU", "totalGlobalMem": 80_000_000}


def step_ns(batch: int) -> int:
    """Return the time of a step."""
    return 1000 * (200 + 10 * batch)


def held_bytes(batch: int) -> int:
    """Return what is allocated at most."""
    return 1_000_000 * (5 + batch)


def samples(batch: int) -> float:
    """Return samples in a second."""
    return batch / step_ns(batch) * 1e9


def events(batch: int, path: str, root: str) -> Iterator[Event]:
    """Yield three steps of a script at a path."""
    marker = Marker("process", rank=0, world_size=1, source_root=root)
    yield op(format_marker(marker, quoteless=True), 0, 1)
    for number in range(3):
        at, ids = 10 + 10_000 * number, 2 * number
        yield step(number, at, step_ns(batch) // 1000)
        text = format_marker(Marker("source", source=f"{path}:7"), quoteless=True)
        yield op(text, at + 5, 100)
        yield op("aten::mm", at + 10, 50, dims=[[batch, 16], [16, 16]], types=["float", "float"])
        yield launch(at + 20, ids)
        yield kernel(at + 30, 10 * batch, ids, name="gemm")
        for size, moment in ((1_000_000 * batch, 25), (-1_000_000 * batch, 70)):
            total = 5_000_000 + max(size, 0)
            yield memory(
                at + moment, **{"Bytes": size, "Addr": 77, "Device Type": 1, "Device Id": 0,
                "Total Allocated": total, "Total Reserved": total},
            )  # fmt: skip
        yield op("Optimizer.step#SGD.step", at + 110, 80)
        yield op("aten::_foreach_add_", at + 120, 50, dims=[[[16, 16]]], types=["TensorList"])
        yield launch(at + 130, ids + 1)
        yield kernel(at + 150 + 10 * batch, 20, ids + 1, name="multi_tensor_apply_kernel")


def record(folder: Path, script: Path, batch: int) -> Path:
    """Write a recording of a script, and return its store."""
    found = events(batch, str(script), str(folder))
    recording = trace(folder.parent / f"b{batch}.json", *found, deviceProperties=[DEVICE])
    return parse(recording, folder / f"b{batch}.pyprof2")


def workspace(folder: Path, ends: str = "\n") -> Path:
    """Write the script, older than its recordings, and these; return the script."""
    folder.mkdir(exist_ok=True)
    script = folder / "train.py"
    script.write_bytes(CODE.replace("\n", ends).encode())
    old = time.time() - 3600
    os.utime(script, (old, old))
    for batch in SIZES:
        record(folder, script, batch)
    return script


def named(sizes: tuple[int, ...] = SIZES) -> dict[str, str]:
    """Return the setting that names the recordings."""
    return {str(size): f"b{size}.pyprof2" for size in sizes}
