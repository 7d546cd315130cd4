"""The facts that all candidates of a replay agree on, by node; the rows of table `graph_nodes`.

A graph's shapes are fixed, so they are those of the capture. Whether it is that capture that was
replayed is known by sizes that are equal on both sides, by the size of the batch, or by a template
in the recording itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.costs.attribute import COUNTS
from pyprof2.analysis.graphs.matching import BY_ORDER, Fit
from pyprof2.analysis.graphs.nodes import CALLS, IDS, OP_NUMBERS, OP_TEXTS, TEXTS
from pyprof2.analysis.graphs.sequences import NO_PLACE, runs_that_differ
from pyprof2.analysis.linking.threads import NO_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.graphs.matching import ReplayedGraph
    from pyprof2.analysis.graphs.nodes import NodeTable
    from pyprof2.analysis.intervals import Bool, Int

OF_SHAPES: Final = ("signature", "params", "compute_dtype", *COUNTS)
"""The columns that say what an op worked on, or follow from it."""
OTHER_SHAPES: Final = "the capture's shapes: nothing says that they are those of this replay"


class Agreed(NamedTuple):
    """The facts that all candidates of a replay agree on, by node.

    Attributes:
        columns: by name as in the table of nodes, null where the candidates differ. Calls are by
            the first node of the replay that is of the same one.
        is_known: which nodes are known at all.
        has_shapes: whether the shapes are the replay's, too.
        sizes: how many sizes are equal, and how many are known on both sides.
        used: the candidates that are left.
    """

    columns: dict[str, Int]
    is_known: Bool
    has_shapes: bool
    sizes: tuple[int, int]
    used: list[Fit]


def agreement(
    nodes: NodeTable,
    replay: ReplayedGraph,
    candidates: Sequence[Fit],
    batch_agrees: bool | None,  # noqa: FBT001 - None: not known
) -> Agreed:
    """Return what the candidates of a replay agree on.

    Args:
        nodes: of all templates.
        replay: its words and sizes.
        candidates: at least one.
        batch_agrees: as in `Chosen`.
    """
    sizes = [_sizes(nodes, replay, each) for each in candidates]
    # Where some have all sizes of the replay, those with others were not replayed.
    equal = [not differs.any() for differs, _ in sizes]
    kept = [at for at, same in enumerate(equal) if same] or list(range(len(candidates)))
    used = [candidates[at] for at in kept]
    known = min(count for _, count in (sizes[at] for at in kept))
    has_shapes = all(equal[at] for at in kept) and batch_agrees is not False
    if batch_agrees is None:
        # Without names the sizes alone may be those of another batch's launches.
        has_shapes &= all(
            each.link != BY_ORDER and (known > 0 or each.template.own) for each in used
        )
    is_known = np.ones(len(replay), bool)
    for at in kept:
        differs, _ = sizes[at]
        is_known &= candidates[at].rows != NO_PLACE
        if differs.any():
            streams = zip(
                replay.in_streams(replay.words),
                replay.in_streams(differs.astype(np.int64)),
                strict=True,
            )
            in_runs = [runs_that_differ(words, differ > 0) for words, differ in streams]
            is_known &= ~np.concatenate(in_runs)
    columns = _same(nodes, used, is_known)
    if not has_shapes:
        columns |= {name: np.full(len(replay), _null(name)) for name in OF_SHAPES}
    differing = int(max(sizes[at][0].sum() for at in kept))
    return Agreed(columns, is_known, has_shapes, (known - differing, known), used)


def _null(name: str) -> int:
    return -1 if name in TEXTS else NO_ID


def _sizes(nodes: NodeTable, replay: ReplayedGraph, candidate: Fit) -> tuple[Bool, int]:
    """Return at which nodes sizes differ, and how many are known on both sides."""
    rows = candidate.rows
    size = np.where(rows == NO_PLACE, -1, nodes.at("size", rows))
    both = (size >= 0) & (replay.sizes >= 0)
    return both & (size != replay.sizes), int(both.sum())


def _same(nodes: NodeTable, candidates: Sequence[Fit], is_known: Bool) -> dict[str, Int]:
    """Return the columns on which all candidates agree, null at nodes that are not known."""
    rows = [np.where(is_known, each.rows, 0) for each in candidates]
    found = {}
    for name in (*OP_TEXTS, *OP_NUMBERS, *IDS, "recorded_id"):
        values = nodes.at(name, rows[0])
        agrees = is_known.copy()
        for other in rows[1:]:
            agrees &= nodes.at(name, other) == values
        found[name] = np.where(agrees, values, _null(name))
    for name in CALLS:
        calls = [first_of_call(nodes.at(name, each), is_known) for each in rows]
        agrees = is_known.copy()
        for other in calls[1:]:
            agrees &= other == calls[0]
        # A call that not all say to have the same nodes shares its counts in another way.
        disputed = is_known & ~agrees
        agrees &= ~np.any([np.isin(each, each[disputed]) for each in calls], axis=0)
        found[name] = np.where(agrees, calls[0], NO_ID)
    # Counts of an op that not all say to be the one have no kernels to be shared among.
    shared = found["cost_call"] != NO_ID
    found |= {name: np.where(shared, found[name], NO_ID) for name in COUNTS}
    return found


def first_of_call(call: Int, is_known: Bool) -> Int:
    """Return of each node the first one that is of the same call; `NO_ID` for none."""
    has = is_known & (call != NO_ID)
    first = np.full(len(call), NO_ID, np.int64)
    _, at, which = np.unique(call[has], return_index=True, return_inverse=True)
    first[has] = np.flatnonzero(has)[at][which]
    return first
