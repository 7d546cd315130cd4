"""What every command that reads a store takes of a large one: CPU seconds and the most memory held.

Usage: python -m benchmarks.answers STORE [--rounds N] [--only WORD] [--tree FOLDER …]

With folders of several trees of this repository they take turns, and each has its columns: what
differs between them is then not what else the machine did. A store of a million kernels is made by
`scale_trace` and `pyprof2 parse`. The claim: of a million kernels every command takes at most 1.5 s
and 400 MB; `report` 10 s and 500 MB; `export --perfetto` 12 s. Medians; exit code 1 if the first
tree misses any.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.processes import Usage, measure

COMMANDS: Final = (
    "prof STORE", "prof STORE --by step", "prof STORE --by kernel", "prof STORE --by layer",
    "prof STORE --by name --csv", "prof STORE --by stream", "prof STORE --by range",
    "prof STORE --by stack", "prof STORE --op conv", "prof STORE --step 2",
    "prof STORE --by step --breakdown plugin", "prof STORE --summary",
    "lines STORE", "memory STORE", "memory STORE --by op", "energy STORE", "check STORE",
    "idle STORE", "idle STORE --by source", "advise STORE", "explain STORE kernel:7",
    "explain STORE op:7", "whatif STORE --scale op=conv=0.5", "predict STORE --on all",
    "ranks STORE", "ranks STORE --by kind", "compare STORE STORE", "report STORE -o OUT.html",
    "export STORE --perfetto -o OUT.json",
)  # fmt: skip
"""The command lines, which all recordings answer."""
LIMITS: Final = {
    "report": (10.0, 500e6), "export": (12.0, 400e6), "": (1.5, 400e6),
}  # fmt: skip
"""By command, the CPU seconds and bytes it may take; the last is of all others."""


def main() -> int:
    """Measure, and print a row for each command."""
    parser = argparse.ArgumentParser(description="Measure what answers from a store take.")
    parser.add_argument("store", type=Path, metavar="STORE")
    parser.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--only", default="", metavar="WORD", help="command lines with it alone")
    parser.add_argument("--tree", nargs="*", type=Path, default=[Path()], metavar="FOLDER")
    args = parser.parse_args()
    heads = "".join(f"{tree.absolute().name[-12:]:>13} s      MB" for tree in args.tree)
    print(f"{'command':44}{heads}")
    missed = 0
    for line in (each for each in COMMANDS if args.only in each):
        found = _measured(line, args.store, args.tree, args.rounds)
        texts = [f"{_median(own)[0]:>15.2f}{_median(own)[1] / 1e6:>8.0f}" for own in found]
        print(f"{line:44}{''.join(texts)}", flush=True)
        limits = LIMITS.get(line.partition(" ")[0], LIMITS[""])
        missed |= any(took > limit for took, limit in zip(_median(found[0]), limits, strict=True))
    return int(missed)


def _measured(line: str, store: Path, trees: list[Path], rounds: int) -> list[list[Usage]]:
    """Return for each tree what the command took in each round."""
    found: list[list[Usage]] = [[] for _ in trees]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for place, tree in enumerate(trees):
                os.environ |= {"PYTHONPATH": str(tree.absolute()), "PYTHONSAFEPATH": "1"}
                words = [
                    str(store.absolute()) if word == "STORE"
                    else word.replace("OUT", f"{folder}/{number}-{place}")
                    for word in line.split()
                ]  # fmt: skip
                found[place].append(measure([sys.executable, "-m", "pyprof2", "-q", *words]))
    return found


def _median(found: list[Usage]) -> tuple[float, float]:
    cpu = statistics.median(each.cpu_s for each in found)
    return cpu, statistics.median(each.peak_bytes for each in found)


if __name__ == "__main__":
    sys.exit(main())
