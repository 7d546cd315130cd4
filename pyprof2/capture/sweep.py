"""Time and memory of an entry point at several batch sizes, each run in fresh processes.

One process of each batch size is recorded, for the parts of a step and its memory; others only
take times, since a profiler slows a step down. The latter go round: all sizes in an order drawn by
chance, then all of them again, so that what else the machine does meets them alike. It can only
make them slower, so the least counts.
"""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.summaries.batch.limits import Tried
from pyprof2.analysis.summaries.batch.model import FEWEST, STEP, fit_model
from pyprof2.api.batch import recorded_of
from pyprof2.api.run import load
from pyprof2.capture.entry_process import EntryRunError, record, time_iterations
from pyprof2.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyprof2.analysis.summaries.batch.model import Model
    from pyprof2.analysis.summaries.batch.recorded import Recorded
    from pyprof2.capture.entry_process import EntryFacts, EntryRun

ROUNDS: Final = 5
CPU_TIME: Final = "CPU time of one thread"
WALL_TIME: Final = "wall time"
NARROW: Final = 0.2
"""Interval of the time of a step, of the time, from which on no more batch sizes are run."""
_WAITS: Final = 1.2
"""An iteration that always takes more than so many times its CPU time may wait for something."""


@dataclass
class Sweep:
    """The results of runs at several batch sizes.

    Attributes:
        recordings: by batch size.
        facts: of the run that was recorded, by batch size.
        times: of the processes that took times, by batch size.
        failed: why, by batch sizes that could not be run.
    """

    recordings: dict[int, Recorded] = field(default_factory=dict)
    facts: dict[int, EntryFacts] = field(default_factory=dict)
    times: dict[int, list[EntryFacts]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[int, EntryRunError] = field(default_factory=dict)

    @property
    def clock(self) -> str:
        """The clock of the times.

        The time that a process worked is not changed by what else runs. It is how long a step
        takes if one thread does all the work, and waits for nothing: no GPU, disk or clock.
        """
        each = [facts for facts in self.times.values() if facts]
        is_one = all(f.threads == 1 and not f.used_gpu for facts in each for f in facts)
        return CPU_TIME if is_one and not any(map(_waits, each)) else WALL_TIME

    def recorded(self, batch: int, clock: str | None = None) -> Recorded:
        """Return the recording of a batch size, with the times of its processes.

        Args:
            batch: one that was run.
            clock: `CPU_TIME` or `WALL_TIME`; None: `clock`.
        """
        clock = clock or self.clock
        name = "cpu_ns" if clock == CPU_TIME else "wall_ns"
        steps = [min(getattr(facts, name)) for facts in self.times[batch]]
        return replace(self.recordings[batch], step_ns=steps, clock=clock)

    def model(self, batches: Iterable[int] | None = None) -> Model:
        """Return the model of some of the batch sizes, or of all that ran.

        Raises:
            CaptureError: fewer than three ran.
        """
        ran = sorted(self.recordings if batches is None else batches)
        if len(ran) < FEWEST:
            why = "; ".join(f"batch {size}: {error}" for size, error in self.failed.items())
            msg = f"a batch model needs {FEWEST} batch sizes, and ran have {len(ran)}. {why}"
            raise CaptureError(msg)
        return fit_model([self.recorded(batch) for batch in ran])


def sizes_around(default: int) -> list[int]:
    """Return four batch sizes that double each time, around the default of an entry point."""
    least = max(1, default // 2)
    return [least, *(default * factor for factor in (1, 2, 4))] if least < default else [1, 2, 4, 8]


def measure(
    run: EntryRun,
    batches: Sequence[int] | None = None,
    rounds: int = ROUNDS,
    on_run: Callable[[], object] = lambda: None,
    asked: Sequence[int] = (),
) -> Sweep:
    """Run an entry point at some batch sizes; one that cannot be run is left out, and said.

    Args:
        run: how; its batch size does not count.
        batches: the sizes; None: around the default of the entry point, and as long as the
            intervals of those `asked` for are wide, the double of the largest.
        rounds: how many processes of each size take times.
        on_run: called after each process.
        asked: batch sizes that the model will be asked for.

    Raises:
        CaptureError: the first size cannot be run, and not for lack of memory.
    """
    sweep = Sweep()
    first = batches[0] if batches else None
    default = _record(replace(run, batch=first), sweep, on_run)
    for batch in batches or sizes_around(default):
        if batch not in sweep.recordings and batch not in sweep.failed:
            _record(replace(run, batch=batch), sweep, on_run)
    # No secret: a random order, the same in each run.
    chance = random.Random(0)  # noqa: S311
    _take_times(run, sweep, sorted(sweep.recordings), rounds, chance, on_run)
    while batches is None and (size := next_size(sweep, asked)) is not None:
        _record(replace(run, batch=size), sweep, on_run)
        if size in sweep.recordings:
            _take_times(run, sweep, [size], rounds, chance, on_run)
    return sweep


def _take_times(
    run: EntryRun, sweep: Sweep, batches: Sequence[int], rounds: int, chance: random.Random,
    on_run: Callable[[], object],
) -> None:  # fmt: skip
    for _ in range(rounds):
        for batch in chance.sample(batches, len(batches)):
            sweep.times[batch].append(time_iterations(replace(run, batch=batch)))
            on_run()


def next_size(sweep: Sweep, asked: Sequence[int]) -> int | None:
    """Return the batch size that narrows the intervals of those asked for; None: none has to.

    It doubles, up to that which is asked for, and not where memory has ended.
    """
    largest = max(sweep.recordings, default=0)
    beyond = [size for size in asked if size > largest]
    if not beyond or sweep.failed or len(sweep.recordings) < FEWEST:
        return None
    model = sweep.model()
    for found in (model.answer(STEP, size, {}) for size in beyond):
        if found.value is None or found.lo is None or found.hi is None:
            continue
        if (found.hi - found.lo) / found.value > NARROW:
            return min(2 * largest, max(beyond))
    return None


def verify(
    run: EntryRun, batch: int, clock: str, rounds: int, on_run: Callable[[], object] = lambda: None
) -> Tried:
    """Run one batch size, as `measure` does; return its recording, or why it cannot be run."""
    try:
        sweep = measure(run, [batch], rounds, on_run)
        if sweep.failed:
            raise sweep.failed[batch]
        return Tried(batch, sweep.recorded(batch, clock))
    except EntryRunError as error:
        return Tried(batch, None, str(error), error.out_of_memory)


def _record(run: EntryRun, sweep: Sweep, on_run: Callable[[], object]) -> int:
    """Record one batch size, and return it."""
    with tempfile.TemporaryDirectory(prefix="pyprof2-entry-") as folder:
        trace = Path(folder, "entry.json.gz")
        try:
            facts = record(run, trace)
        except EntryRunError as error:
            if run.batch is None or not error.out_of_memory:
                raise
            sweep.failed[run.batch] = error
            return run.batch
        found = recorded_of(facts.batch_size, load(trace))
        held = found.savable()  # while its file is there
        sweep.recordings[facts.batch_size] = replace(found, savable=lambda: held)
        sweep.facts[facts.batch_size] = facts
    on_run()
    return facts.batch_size


def _waits(facts: Sequence[EntryFacts]) -> bool:
    """Return whether iterations wait, and are not just kept from the CPU by other programs."""
    pairs = [(w, c) for each in facts for w, c in zip(each.wall_ns, each.cpu_ns, strict=True)]
    is_longer = min(wall / max(1, cpu) for wall, cpu in pairs) > _WAITS
    return is_longer and min(count for each in facts for count in each.waits) > 0
