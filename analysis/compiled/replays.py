"""The kernels of a replayed CUDA graph as launches of the code that it was captured from.

A replay has names alone. Those of kernels that the compiler wrote are their launches' own: all of
them must be there, in the order of the code. Between two of them are the kernels of ops that the
code calls. As many as calls are these one by one; else each may be of any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.compiled.joining import is_written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.recording import CodeLaunch

_LEAST_ANCHORS: Final = 2
"""A single name may be in many graphs."""
COPIES: Final = frozenset({
    "aten::_to_copy", "aten::clone", "aten::copy_", "aten::fill_", "aten::zero_",
})  # fmt: skip
NO_NAMES: Final = "a replay of compiled code without kernels whose names are of it alone"


def launches_replayed(
    launches: Sequence[CodeLaunch], kernels: Sequence[str]
) -> list[tuple[int, ...]] | str:
    """Return the launches that each kernel of a replay may be, or why they are not known.

    Args:
        launches: of the code, in its order.
        kernels: the names of the kernels in the order of their begin, all on one stream; empty: no
            kernel, but a copy.

    Returns:
        Of each kernel places in the code: one, several, or none for what only prepares inputs.
    """
    anchors = [at for at, launch in enumerate(launches) if is_written(launch)]
    names = {launches[at].name for at in anchors}
    found = [at for at, name in enumerate(kernels) if name in names]
    if min(len(found), len(anchors)) < _LEAST_ANCHORS:
        return NO_NAMES
    for at, place in zip(found, anchors, strict=False):
        if kernels[at] != launches[place].name:
            awaited = launches[place].name
            return f"not the code that was noted: {kernels[at]} where that has {awaited}"
    if len(found) < len(anchors):
        return f"not the code that was noted: it lacks {launches[anchors[len(found)]].name}"
    if len(found) > len(anchors):
        return f"not the code that was noted: {kernels[found[len(anchors)]]} is one more"
    result: list[tuple[int, ...]] = [()] * len(kernels)
    ends = zip([*found, len(kernels)], [*anchors, len(launches)], strict=True)
    at, place = -1, -1
    for next_at, next_place in ends:
        own = [each for each in range(at + 1, next_at) if kernels[each]]
        called = range(place + 1, next_place)
        # Kernels before the first one may copy inputs: how many do is not known.
        one_by_one = len(own) == len(called)
        if len(own) + 1 < next_at - at:
            # A call that only copies may run no kernel, and another one two.
            one_by_one &= len(called) < 2 or not any(launches[c].name in COPIES for c in called)
        for number, each in enumerate(own):
            result[each] = (called[number],) if one_by_one else tuple(called)
        if next_at < len(kernels):
            result[next_at] = (next_place,)
        at, place = next_at, next_place
    return result
