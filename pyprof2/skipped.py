"""The register of what is not read: kinds of events and rows that no table has a place for.

Who skips some counts their slug, which the store keeps; what `check` says of it stands here alone.
Where a kind has a name of its own, that follows the slug: `unknown-event: …`, and stands in the
text at `{}`. What is damaged is a problem: `pyprof2.problems`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyprof2.problems import SEPARATOR


@dataclass(frozen=True, slots=True)
class Skipped:
    """A kind of events or rows that are not read.

    Attributes:
        slug: its name, in a store and in the documentation.
        what: what they are, with `{}` for the detail.
        may_matter: whether a number may lack them; else none needs them.
    """

    slug: str
    what: str
    may_matter: bool = False

    @property
    def text(self) -> str:
        """What `check` says."""
        return self.what if self.may_matter else f"{self.what}, which no number needs"


SKIPPED: Final[dict[str, Skipped]] = {}
"""Every kind, by its slug."""


def _register(slug: str, what: str, *, may_matter: bool = False) -> str:
    """Return the slug under which the kind is now known."""
    SKIPPED[slug] = Skipped(slug, what, may_matter)
    return slug


COUNTERS: Final = _register(
    "counters",
    "values of counters that are no numbers, and counters without values",
    may_matter=True,
)
NAMES: Final = _register("names", "names of processes, threads and categories")
MARKS: Final = _register("marks", "marks of a moment")
ARROWS: Final = _register("arrows", "arrows between launches and GPU work")
OWN_SPAN: Final = _register("own-span", "the recorder's own span")
GPU_ANNOTATIONS: Final = _register("gpu-annotations", "annotations repeated for the GPU")
CUDA_EVENTS: Final = _register("cuda-events", "CUDA events")
GPU_MEMORY: Final = _register("gpu-memory", "events of GPU memory")
BACKTRACES: Final = _register("backtraces", "backtraces of CUDA calls")
GRAPHS_WITH_NODES: Final = _register(
    "graphs-with-nodes", "CUDA graphs whose nodes are in the file too"
)
OTHER_PROCESSES: Final = _register("other-processes", "rows of processes that used no GPU")
TRACED_OPS: Final = _register("traced-ops", "ops that torch.compile traced, and did not run")
NO_PHASE: Final = _register("no-phase", "events without a phase", may_matter=True)
UNKNOWN_EVENT: Final = _register("unknown-event", "events of an unknown kind: {}", may_matter=True)


def look_up(key: str) -> Skipped:
    """Return the kind that was counted under this key, with the detail in its text.

    A store of another version may have one that is not registered: the key is its text.
    """
    slug, _, detail = key.partition(SEPARATOR)
    found = SKIPPED.get(slug)
    if found is None:
        return Skipped(key, key, may_matter=True)
    return Skipped(slug, found.what.replace("{}", detail, 1), found.may_matter)
