"""Where the CPU time of `parse` goes, stage by stage.

Usage: python -m benchmarks.parse_stages [TRACE] [--bytes N]

From a real trace a large one is made (400 MB of JSON, some million events), and parsed in this
process; of each stage the time is its own, without that of the stages in it. PYPROF2_PURE=1 reads
with the scanner in Python.
"""

from __future__ import annotations

import argparse
import functools
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.traces import SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRACE: Final = SHARED / "kineto" / "tl_owlv2_h100.json.gz"


class Stages:
    """Adds up the CPU seconds of functions and generators, each without what it calls."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner: list[float] = []

    def timed(self, stage: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a function, and add what it takes to a stage."""
        began = time.process_time()
        self._inner.append(0.0)
        try:
            return function(*args, **named)
        finally:
            spent = time.process_time() - began
            self.seconds[stage] += spent - self._inner.pop()  # type: ignore[assignment]
            if self._inner:
                self._inner[-1] += spent

    def _each(
        self, stage: str, function: Callable[..., Any], *args: Any, **named: Any
    ) -> Iterator[Any]:
        items = iter(function(*args, **named))
        end = object()
        while (item := self.timed(stage, next, items, end)) is not end:
            yield item

    def watch(self, stage: str, owner: Any, name: str, *, yields: bool = False) -> None:
        """Time a function or method wherever it is called through its owner."""
        function = getattr(owner, name)
        run = self._each if yields else self.timed

        @functools.wraps(function)
        def watched(*args: Any, **named: Any) -> Any:  # a function, so that it is a method, too
            return run(stage, function, *args, **named)

        setattr(owner, name, watched)


def watched() -> Stages:
    """Import what parses, and time its stages from now on."""
    from pyprof2 import recording
    from pyprof2.parsers import _json, kineto
    from pyprof2.pipeline import assemble, parsing, results
    from pyprof2.store import folder

    stages = Stages()
    stages.watch("inflate", _json, "inflate", yields=True)
    stages.watch("cut", _json.JsonStream, "chunks", yields=True)
    for scanner in kineto.SCANNERS.values():
        stages.watch("scan", scanner, "scan")
    stages.watch("build", kineto.TableBuilder, "add")
    stages.watch("spool", recording.Spool, "append")
    stages.watch("spool", recording.Spool, "finish")
    stages.watch("link and cost", parsing, "assemble", yields=True)
    stages.watch("link and cost", assemble, "_ranked", yields=True)
    stages.watch("idle time", parsing, "idle_of_recording", yields=True)
    stages.watch("results", results, "result_tables", yields=True)
    for module in (parsing, results):
        stages.watch("write", module, "write_table")
    stages.watch("write", folder.TableWriters, "write")
    return stages


def main() -> int:
    """Make the trace, parse it, and print the stages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("trace", type=Path, nargs="?", default=TRACE, metavar="TRACE")
    parser.add_argument(
        "--bytes", type=int, default=4 * 10**8, help="of JSON; default: %(default)s"
    )
    args = parser.parse_args()
    if not args.trace.exists():
        print(f"no trace {args.trace}")
        return 0
    stages = watched()
    imports = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder, "big.json.gz")
        words = ["benchmarks.scale_trace", args.trace, big, "--bytes", str(args.bytes)]
        subprocess.run([sys.executable, "-m", *words], check=True)
        from pyprof2.api.run import load, parse

        began = time.process_time()
        store = stages.timed("other", parse, big, Path(folder, "big.pyprof2"))
        whole = time.process_time() - began
        events = int(load(store).trace.event_count[0])
    for stage, seconds in [("import", imports), *stages.seconds.most_common()]:
        print(f"{stage:14} {seconds:6.2f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{'together':14} {imports + whole:6.2f} s for {events:,} events, {peak / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
