"""What it costs to explain replays of graphs: `python -m benchmarks.graph_replays [KERNELS]`.

A recording of replays, by default a million kernels in 2,000 replays, is parsed without and with
the recording of its capture; and a recording without any graph with and without such a one.
Times are of the processor, medians of three.

The claim: to explain a million kernels takes no more than a second.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.pipeline.parsing import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES: Final = 500
REPEATS: Final = 3
_NAMES: Final = [f"kernel_{number % 37}<float, {number % 5}>" for number in range(NODES)]


def _event(category: str, name: str, ts: float, dur: float, **args: Any) -> str:
    place = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 100, "tid": 101}
    return json.dumps(
        {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, **place, "args": args}
    )


def _capture() -> Iterator[str]:
    yield _event("cuda_runtime", "hipStreamBeginCapture", 0, 0.1, correlation=1)
    for at, name in enumerate(_NAMES):
        dims = [[32, 64], [64, at % 7 + 1]]
        inputs = {"Input Dims": dims, "Input type": ["float", "float"]}
        yield _event("cpu_op", "aten::mm", 10 * at + 1, 8, **inputs)
        args = {"correlation": at + 2, "kernel": name, "grid": [1, 1, 1], "block": [64, 1, 1]}
        yield _event("cuda_runtime", "hipLaunchKernel", 10 * at + 2, 1, **args)
    yield _event("cuda_runtime", "hipStreamEndCapture", 10 * NODES + 1, 0.1, correlation=10**6)


def _replays(count: int, call: str) -> Iterator[str]:
    for number in range(count):
        begin = 10_000 + number * 2 * NODES
        correlation = 10**7 + number
        yield _event("cuda_runtime", call, begin, 5, correlation=correlation)
        for at, name in enumerate(_NAMES):
            args = {"correlation": correlation, "device": 0, "stream": 7}
            yield _event("kernel", name, begin + 10 + 1.5 * at, 1, **args)


def _write(path: Path, events: Iterator[str]) -> Path:
    with path.open("w") as file:
        file.write('{"traceEvents": [')
        file.writelines(f"{',' if at else ''}{event}\n" for at, event in enumerate(events))
        file.write("]}")
    return path


def _seconds(path: Path, out: Path, captures: list[Path]) -> float:
    begin = time.process_time()
    parse(path, out, captures=captures, look_for_captures=False, force=True)
    return time.process_time() - begin


def main(kernels: int) -> None:
    """Print the times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        capture = _write(folder / "capture.json", _capture())
        for what, call in (("replays", "hipGraphLaunch"), ("without a graph", "hipLaunchKernel")):
            path = _write(folder / "recording.json", _replays(kernels // NODES, call))
            times: dict[str, list[float]] = {"alone": [], "with its capture": []}
            for _ in range(REPEATS):
                times["alone"].append(_seconds(path, folder / "store", []))
                times["with its capture"].append(_seconds(path, folder / "store", [capture]))
            least = {how: statistics.median(each) for how, each in times.items()}
            shown = ", ".join(f"{how} {seconds:.2f} s" for how, seconds in least.items())
            print(f"{kernels:,} kernels, {what}: {shown}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
