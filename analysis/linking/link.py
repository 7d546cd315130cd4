"""Link what a recording holds: op to op, op to layer and line and step, launch to op.

Everything here rests on time and thread: what encloses a launch on its thread caused it. The
definitions are those of docs/how-it-works.rst; ties are broken by the recorder's own numbering,
so the order of events in the file does not matter. These are the names that the other wings use;
each stands in the module of its own subject.
"""

from __future__ import annotations

from pyprof2.analysis.linking.directions import is_optimizer_step, link_directions
from pyprof2.analysis.linking.layers import link_layers, link_sharded
from pyprof2.analysis.linking.ops import DIRECTIONS, Ops, link_ops
from pyprof2.analysis.linking.ranges import (
    NO_RANGES,
    Ranges,
    link_steps,
    read_ranges,
    step_number,
)
from pyprof2.analysis.linking.threads import NO_ID, Threads

__all__ = [
    "DIRECTIONS",
    "NO_ID",
    "NO_RANGES",
    "Ops",
    "Ranges",
    "Threads",
    "is_optimizer_step",
    "link_directions",
    "link_layers",
    "link_ops",
    "link_sharded",
    "link_steps",
    "read_ranges",
    "step_number",
]
