"""Whether the memory of a batch size lies in the interval that the other sizes give.

Usage: python -m benchmarks.batch_left_out [--traces FOLDER] [--entry FILE]

Each of the recordings `part_a100_b2` to `b256` is foretold by the other three. An entry point is
recorded at eight sizes; each is foretold by the others, and by any run of three or more neighbours
that ends at most one doubling away from it. Exit code 1 if one lies outside of its interval.
"""

from __future__ import annotations

import argparse
import sys
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyprof2
from pyprof2.analysis.summaries.batch.model import MEMORY
from pyprof2.capture.entry_process import EntryRun
from pyprof2.capture.sweep import measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.analysis.summaries.batch.model import Model

GIVEN: Final = (2, 16, 64, 256)
SIZES: Final = (1, 2, 4, 8, 12, 16, 24, 32)
LEAST: Final = 3
"""So many recordings make a model."""
TRACES: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "traces"
ENTRY: Final = Path(__file__).with_name("batch_block.py")


class Check(NamedTuple):
    """A size beside the interval that others give, in bytes."""

    used: tuple[int, ...]
    batch: int
    lo: float | None
    value: float | None
    hi: float | None
    truth: int

    @property
    def holds(self) -> bool:
        """Whether it lies inside."""
        return self.lo is not None and self.hi is not None and self.lo <= self.truth <= self.hi

    def __str__(self) -> str:
        said = ", ".join("-" if n is None else f"{n:,.0f}" for n in (self.lo, self.value, self.hi))
        return (
            f"{self.batch:3} by {','.join(map(str, self.used)):20} {said}: {self.truth:,} "
            f"{'holds' if self.holds else 'OUTSIDE'}"
        )


def of_traces(folder: Path) -> Iterator[Check]:
    """Yield each of the given recordings, foretold by the other three."""
    runs = {
        batch: pyprof2.load(folder / "more" / "kineto" / f"part_a100_b{batch}.json.gz")
        for batch in GIVEN
    }
    whole = pyprof2.batch_model(runs)
    for batch in GIVEN:
        used = tuple(each for each in GIVEN if each != batch)
        model = pyprof2.batch_model({each: runs[each] for each in used})
        yield _checked(model, used, batch, whole)


def of_entry(file: Path, sizes: Sequence[int] = SIZES) -> Iterator[Check]:
    """Yield the sizes of an entry point, each foretold by others."""
    sweep = measure(EntryRun(file, threads=1), sizes, 1)
    whole = sweep.model(sizes)
    left_out = [(tuple(s for s in sizes if s != batch), batch) for batch in sizes]
    runs = [
        (tuple(sizes[first:end]), batch)
        for first, end in combinations(range(len(sizes) + 1), 2)
        if end - first >= LEAST
        for batch in sizes
        if batch not in sizes[first:end]
        and sizes[first] <= 2 * batch
        and batch <= 2 * sizes[end - 1]
    ]
    for used, batch in dict.fromkeys([*left_out, *runs]):
        yield _checked(sweep.model(used), used, batch, whole)


def _checked(model: Model, used: tuple[int, ...], batch: int, whole: Model) -> Check:
    answer, truth = (each.answer(MEMORY, batch, {}) for each in (model, whole))
    return Check(used, batch, answer.lo, answer.value, answer.hi, round(truth.value or 0))


def main() -> int:
    """Print each check, and return 1 if one does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--traces", type=Path, default=TRACES, metavar="FOLDER")
    parser.add_argument("--entry", type=Path, default=ENTRY, metavar="FILE")
    args = parser.parse_args()
    found = []
    for name, checks in (
        ("given", of_traces(args.traces)),
        (args.entry.name, of_entry(args.entry)),
    ):
        own = list(checks)
        print(f"{name}: {sum(check.holds for check in own)} of {len(own)} hold", *own, sep="\n")
        found += own
    return 0 if all(check.holds for check in found) else 1


if __name__ == "__main__":
    sys.exit(main())
