"""How well `pyprof2 batch --entry` knows a batch size that it has not seen.

Usage: python -m benchmarks.batch_entry [--rounds N]

One block of a GPT (`batch_block.py`) trains on the CPU, with one thread. Four batch sizes make the
model; two others inside of their range are measured in the same rounds and kept from it. Each
prediction is to be within 10 % of what is measured; where the processes of a size differ by more
than that themselves, the machine cannot tell, and only the interval is checked. Memory is a line
of each phase over the batch, so it is to be exact to 0.5 %. Takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.summaries.batch.model import MEMORY, STEP
from pyprof2.capture.entry_process import EntryRun
from pyprof2.capture.sweep import CPU_TIME, ROUNDS, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.summaries.batch.model import Answer
    from pyprof2.capture.sweep import Sweep

FILE: Final = Path(__file__).with_name("batch_block.py")
MODELLED: Final = (4, 8, 16, 32)
KEPT_BACK: Final = (12, 24)
CLOSE: Final = 0.10
CLOSE_MEMORY: Final = 0.005


@dataclass(frozen=True)
class Check:
    """A prediction beside what was measured.

    Attributes:
        batch: samples in a step.
        said: the prediction.
        found: what was measured, ns or bytes.
        spread: by how much the processes differ, of this size or of those behind the model.
    """

    batch: int
    said: Answer
    found: float
    spread: float

    @property
    def error(self) -> float:
        """By how much the prediction is off."""
        return float(self.said.value or 0) / self.found - 1

    @property
    def is_good(self) -> bool:
        """Whether it is close; on a machine that is too restless, inside the interval."""
        if self.said.measure == MEMORY:
            return abs(self.error) <= CLOSE_MEMORY
        inside = float(self.said.lo or 0) <= self.found <= float(self.said.hi or 0)
        return inside if self.spread > CLOSE else abs(self.error) <= CLOSE


def checks(sweep: Sweep) -> Iterator[Check]:
    """Yield the checks of the sizes that were kept back."""
    model = sweep.model(MODELLED)
    spread = max(sweep.recorded(batch).spread for batch in sweep.recordings)
    for batch in KEPT_BACK:
        truth = sweep.recorded(batch)
        yield Check(batch, model.answer(STEP, batch, {}), truth.step_time_ns, spread)
        if truth.memory is not None:
            peak = max(truth.memory.peaks.values())
            yield Check(batch, model.answer(MEMORY, batch, {}), peak, 0.0)


def main() -> int:
    """Measure, print, and return 1 if a prediction is off."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="default: 5")
    rounds = parser.parse_args().rounds
    sweep = measure(EntryRun(FILE, threads=1), sorted({*MODELLED, *KEPT_BACK}), rounds)
    for batch in sorted(sweep.recordings):
        times = ", ".join(f"{time / 1e6:.2f}" for time in sorted(sweep.recorded(batch).step_ns))
        print(f"batch {batch:3}: {times} ms, {sweep.clock}")
    found = list(checks(sweep))
    for check in found:
        print(
            f"batch {check.batch:3} {check.said.measure:12} said {check.said.value:.4g} "
            f"({check.said.lo:.4g} to {check.said.hi:.4g}), found {check.found:.4g}: "
            f"{100 * check.error:+.2f} %, processes differ by {100 * check.spread:.1f} %: "
            f"{'good' if check.is_good else 'OFF'}"
        )
    # CPU time is what the claim is about.
    return 0 if all(c.is_good for c in found) and sweep.clock == CPU_TIME else 1


if __name__ == "__main__":
    sys.exit(main())
