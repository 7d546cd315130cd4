"""Batch sizes that were run because the model suggested them, and all answers as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.summaries.batch.model import (
    KERNELS,
    MEASURES,
    MEMORY,
    NOT_A_STEP,
    NOT_RECORDED,
    STEP,
    Answer,
    seen,
    throughput,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.analysis.summaries.batch.limits import Limits
    from pyprof2.analysis.summaries.batch.model import Model
    from pyprof2.analysis.summaries.batch.recorded import Recorded

VERIFIED: Final = "verified"
OUT_OF_MEMORY: Final = "out of memory"
FAILED: Final = "failed"


@dataclass(frozen=True)
class Tried:
    """What became of a batch size that was run.

    Attributes:
        batch: samples in a step.
        recorded: what the run says; None: it failed.
        failure: why, in words; None: it did not fail.
        out_of_memory: whether it was for lack of memory.
    """

    batch: int
    recorded: Recorded | None = None
    failure: str | None = None
    out_of_memory: bool = False

    @property
    def status(self) -> str:
        """What an answer of this batch size rests on."""
        if self.recorded is not None:
            return VERIFIED
        return OUT_OF_MEMORY if self.out_of_memory else FAILED

    def answers(self) -> list[Answer]:
        """Return what the run says: one answer for each of `MEASURES`."""
        if self.recorded is None:
            return [Answer(measure, None, None, None, self.status) for measure in MEASURES]
        step = self._answer(STEP)
        return [step, self._answer(KERNELS), throughput(step, self.batch), self._answer(MEMORY)]

    def _answer(self, measure: str) -> Answer:
        recorded = self.recorded
        is_there = recorded is not None and {
            STEP: bool(recorded.step_ns), KERNELS: recorded.is_gpu,
            MEMORY: bool(recorded.memory and recorded.memory.peaks),
        }[measure]  # fmt: skip
        if recorded is None or not is_there:
            status = NOT_A_STEP if measure == STEP else NOT_RECORDED
            return Answer(measure, None, None, None, status)
        return Answer(measure, *seen(recorded, measure), VERIFIED)


def suggested(found: Limits) -> int | None:
    """Return the batch size to try: the largest that fits, else one with 90 % of the throughput."""
    return found.enough if found.largest is None else found.largest


def rows(
    model: Model,
    batches: Sequence[int],
    given: Mapping[str, int] | None = None,
    tried: Mapping[int, Tried] | None = None,
) -> Iterator[dict[str, object]]:
    """Yield a row for each batch size and measure: what `pyprof2 batch --format json` has.

    Of a batch size that was tried it is what was found, and no prediction any more.
    """
    tried = tried or {}
    for batch in [*batches, *(batch for batch in tried if batch not in batches)]:
        found = tried.get(batch)
        for answer in model.answers(batch, given) if found is None else found.answers():
            yield {"batch_size": batch} | vars(answer)
