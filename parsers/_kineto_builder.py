"""The table builder of the Kineto reader: columns of events become the raw tables.

It knows what the values of the columns mean, and what a recording of a version says in which
words; how they stood in the file it does not see. Each group of tables has a module of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pyprof2 import problems
from pyprof2.parsers._kineto_columns import BEGIN, END, UNKNOWN
from pyprof2.parsers._kineto_counters import CounterTable
from pyprof2.parsers._kineto_devices import DeviceTables
from pyprof2.parsers._kineto_ops import OpTable
from pyprof2.parsers._kineto_pairs import PairedEvents
from pyprof2.parsers._kineto_ranges import RangeTables
from pyprof2.parsers._kineto_shared import Shared
from pyprof2.problems import with_detail

if TYPE_CHECKING:
    from pyprof2.markers import Marker
    from pyprof2.parsers._kineto_columns import Scan
    from pyprof2.recording import Signature, Spool

_SKIPPED_PHASES: Final = {"M": problems.NAMES, "i": problems.MARKS}
_SKIPPED_CATEGORIES: Final = {
    "ac2g": problems.ARROWS,
    "async": problems.ARROWS,
    "async_cpu_to_gpu": problems.ARROWS,
    "async_gpu": problems.ARROWS,
    "trace": problems.OWN_SPAN,
    "gpu_user_annotation": problems.GPU_ANNOTATIONS,
    "cuda_event": problems.CUDA_EVENTS,
}


class TableBuilder:
    """Appends columns of events to the raw tables of one process.

    Attributes:
        spool: the raw tables.
        problems, skipped, annotated: as in `Recording`.
        scanned: how many events there were, by the scanner that read them.
        span: the first start and the last end of what the program did.
    """

    def __init__(self, spool: Spool, problems: Counter[str]) -> None:
        shared = Shared(spool, problems)
        self.spool, self.problems = spool, problems
        self.annotated, self.span = shared.annotated, shared.span
        self.skipped: Counter[str] = Counter()
        self.scanned: Counter[str] = Counter()
        self._ranges, self._devices = RangeTables(shared), DeviceTables(shared)
        self._ops = OpTable(shared, self._ranges)
        self._counters = CounterTable(shared, self.skipped)
        self._append = {
            "op": self._ops.add, "annotation": self._ranges.add, "python": self._ranges.add,
            "launch": self._devices.add_launches, "kernel": self._devices.add_activities,
            "memcpy": self._devices.add_activities, "memset": self._devices.add_activities,
            "mtia": self._devices.add_mtia,
            "overhead": self._devices.add_stalls, "wait": self._devices.add_stalls,
            "memory": self._devices.add_memory, "flow": self._devices.add_flows,
            "counter": self._counters.add_samples, "counted range": self._counters.add_ranges,
        }  # fmt: skip
        self._pairs = PairedEvents(shared)

    def add(self, scan: Scan) -> None:
        """Append what was scanned of a piece of the file."""
        self.scanned[scan.scanner] += scan.count
        for events in scan.groups:
            if events.group == END or events.group.startswith(BEGIN):
                self._pairs.add(events)
            else:
                self._append[events.group](events)
        for (phase, category), count in scan.skipped.items():
            key = _skipped(phase, category)
            self.skipped[key] += count

    def finish(self) -> None:
        """Append what could not be before the end of the recording was known."""
        for events in self._pairs.joined():
            if events.group == UNKNOWN:
                self.skipped[with_detail(problems.UNKNOWN_EVENT, "pairs of B and E")] += len(events)
            else:
                self._append[events.group](events)
        self._ranges.finish(self._ops.span)

    @property
    def process(self) -> Marker | None:
        """What our annotation says of the process."""
        return self._ranges.process

    @property
    def cpu(self) -> Marker | None:
        """What it says of the CPU."""
        return self._ranges.cpu

    @property
    def entry(self) -> Marker | None:
        """What it says of the entry point that is run."""
        return self._ranges.entry

    @property
    def trusts_external_ids(self) -> bool:
        """Whether the external ids of launches are more than their correlation ids again."""
        return self._devices.trusts_external_ids

    def signatures(self) -> list[Signature]:
        """Return the signatures of ops, by `signature_id`."""
        return self._ops.signatures()


def _skipped(phase: str, category: str) -> str:
    """Return what events are that no table has: of a known kind, or of one that may matter."""
    if not phase:
        return problems.NO_PHASE
    if phase in _SKIPPED_PHASES:
        return _SKIPPED_PHASES[phase]
    detail = f"phase {phase}, category {category or 'none'}"
    unknown = with_detail(problems.UNKNOWN_EVENT, detail)
    return _SKIPPED_CATEGORIES.get(category.lower(), unknown)
