"""CPU time that the steps of an inference server add to the first screen of `prof`.

Usage: python -m benchmarks.serving [--rounds N]

Two recordings of 242,000 events are parsed that differ in the names of ranges alone: in one they
are batches of a server, 2,000 steps of 40 kernels, in the other the user's own. `prof` shows both
in turns; the median difference may be 0.3 s at most.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyprof2
from benchmarks.processes import measure
from tests.kineto_events import Event, annotation, kernel, launch, op, trace

STEPS: Final = 2000
KERNELS: Final = 40
MOST_S: Final = 0.3


def main() -> int:
    """Measure, print, and say whether it is little enough."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stores = [_store(Path(folder), name) for name in ("server", "plain")]
        found = []
        for _ in range(args.rounds):
            times = [
                measure([sys.executable, "-m", "pyprof2", "prof", str(store)]).cpu_s
                for store in stores
            ]
            found.append(times[0] - times[1])
            print(f"server {times[0]:.3f} s, plain {times[1]:.3f} s, more {found[-1]:.3f} s")
    more = statistics.median(found)
    print(f"median {more:.3f} s more, at most {MOST_S} s: {'yes' if more <= MOST_S else 'no'}")
    return int(more > MOST_S)


def _store(folder: Path, name: str) -> Path:
    """Parse a recording whose ranges are steps of a server, or called otherwise."""
    events: list[Event] = []
    at = 1000
    for step in range(STEPS):
        keys = 32 * (100 + step)
        sums = f"sq32sk{keys}sqsq32sqsk{keys}"
        batch = f"execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32({sums})"
        events.append(annotation(batch if name == "server" else f"own {step}", at, 420))
        for number in range(KERNELS):
            own, correlation = at + 10 * number, KERNELS * step + number + 1
            shapes = {"dims": [[32, 64], [64, 64]], "types": ["c10::BFloat16"] * 2}
            events += [
                op("aten::mm", own, 8, **shapes),
                launch(own + 2, correlation),
                kernel(own + 5, 5, correlation),
            ]
        at += 450
    return Path(pyprof2.parse(trace(folder / f"{name}.json", events), folder / name))


if __name__ == "__main__":
    sys.exit(main())
