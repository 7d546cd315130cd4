"""Everything that is known of ops and GPU activities, put together in the order it is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyprof2.analysis import link
from pyprof2.analysis.activities import Activities, Launches, link_activities, link_launches
from pyprof2.analysis.attribute import OpCosts, cost_ops
from pyprof2.analysis.contexts import Calls, find_contexts
from pyprof2.analysis.costs import load_extensions
from pyprof2.analysis.link import NO_RANGES, Ops, Ranges, Threads
from pyprof2.analysis.pair import Pairs, pair
from pyprof2.columns import TextColumn, lookup, merge_texts
from pyprof2.recording import Recording, code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.intervals import Int


@dataclass(frozen=True)
class Linked:
    """The ops in the order of their ids, and for each of them what was found.

    Attributes:
        threads: the numbers of the threads.
        ops, pairs, costs: nesting, forward ops, and costs.
        launches, activities: of the GPU's work, linked with the ops.
        signature: row in the recording's signatures, -1 for none.
        texts: the signatures as text.
        layer, source: as text codes; ops in backward have those of their forward op.
        step: number of the step, `link.NO_ID` for none.
        direction: code into `link.DIRECTIONS`.
        steps: the step ranges, for launches on other threads.
    """

    threads: Threads
    ops: Ops
    pairs: Pairs
    launches: Launches
    activities: Activities
    costs: OpCosts
    signature: Int
    texts: Sequence[str]
    layer: TextColumn
    source: TextColumn
    step: Int
    direction: Int
    steps: Ranges


def link_recording(recording: Recording, source_root: str | None = None) -> Linked:
    """Return what can be known of the recording's ops and GPU activities.

    Args:
        recording: the raw tables.
        source_root: frames of user code below this folder come first.
    """
    load_extensions()
    tables = ("ops", "launches", "ranges", "flows")
    threads = Threads.of(recording.read(name, ["pid", "tid"]) for name in tables)
    ops = link.link_ops(recording, threads)
    pairs = pair(ops, recording, threads)
    launches = link_launches(recording, ops, threads)
    activities = link_activities(recording, launches, ops, threads)
    recorded = recording.read("ops", ["signature_id", "layer", "source"], ops.row)
    signature = int_column(recorded, "signature_id", -1)
    ranges = link.read_ranges(recording, threads)
    layer, source = _places(ops, ranges, source_root)
    steps, annotations = (ranges.get(kind, NO_RANGES) for kind in ("step", "annotation"))
    del ranges  # there may be more frames than ops
    names = code_column(recording.read("activities", ["kernel"], activities.row), "kernel")
    calls = Calls(recording.signatures)
    contexts = find_contexts(ops, pairs, signature, calls, (activities.op, names))
    lender = np.where(pairs.forward >= 0, pairs.forward, pairs.accumulate)
    return Linked(
        threads=threads,
        ops=ops,
        pairs=pairs,
        launches=launches,
        activities=activities,
        costs=cost_ops(ops, contexts),
        signature=signature,
        texts=[text for _, text, _, _ in recording.signatures],
        layer=_inherit(merge_texts(code_column(recorded, "layer"), layer), lender, ops),
        source=_inherit(merge_texts(code_column(recorded, "source"), source), lender, ops),
        step=link.link_steps(steps, threads, ops.thread, ops.start),
        direction=link.link_directions(ops, annotations),
        steps=steps,
    )


def _places(ops: Ops, ranges: dict[str, Ranges], root: str | None) -> tuple[TextColumn, TextColumn]:
    """Return layer and source of each op as the ranges around it tell them."""
    modules, layers = (ranges.get(kind, NO_RANGES) for kind in ("module", "layer"))
    frames, lines = (ranges.get(kind, NO_RANGES) for kind in ("python", "source"))
    return (
        link.link_layers(modules, layers, ops.thread, ops.start),
        link.link_sources(frames, lines, root, ops.thread, ops.start),
    )


def _inherit(texts: TextColumn, lender: Int, ops: Ops) -> TextColumn:
    """Give ops in backward the text of their forward op, where the annotation does not tell it."""
    codes, words = texts
    told = (ops.told.direction >= 0) & (codes >= 0)
    return np.where(ops.backward & ~told, lookup(codes, lender, -1), codes), words
