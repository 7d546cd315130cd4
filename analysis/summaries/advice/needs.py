"""How to record what rules need, with the profiler that was used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyprof2.analysis.summaries.advice.facts import Facts

_NSIGHT: Final = "nsight"
_INIT: Final = "pyprof2.init() in the script"
_NEEDS: Final = {
    "shapes": ("profile(record_shapes=True)", _INIT),
    "steps": ("profile(schedule=…), and prof.step() at the end of each", _INIT),
    "Python stacks": ("profile(with_stack=True)", "nsys profile --python-sampling=true"),
    "memory": ("profile(profile_memory=True)", "nsys profile --cuda-memory-usage=true"),
    "allocations of ops": (
        "profile(profile_memory=True), or pyprof2 capture --memory",
        "nsys does not; pyprof2 capture --memory",
    ),
}
"""With torch.profiler, with nsys."""
_LATER: Final = (
    "record later steps: schedule(wait=…, warmup=…), or pyprof2 capture --steps A:B",
    "record later: pyprof2 capture --steps A:B, or nsys profile --delay=SECONDS",
)


def needs(facts: Facts, what: str) -> str:
    """Return what to record, and how.

    Args:
        facts: of the rank.
        what: one of `shapes`, `steps`, `Python stacks`, `memory`,
            `allocations of ops`.
    """
    return f"{what}: {_NEEDS[what][_is_nsight(facts)]}"


def record_later(facts: Facts) -> str:
    """Return how to leave the start of a program out."""
    return _LATER[_is_nsight(facts)]


def _is_nsight(facts: Facts) -> bool:
    return facts.profiler == _NSIGHT
