"""The calls of compiled graphs in a recording, and the op calls that each makes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.graphs.sequences import group_equal, mixed, ordered_hashes
from pyprof2.analysis.intervals import nearest_marked
from pyprof2.analysis.linking.ranges import ranges_at
from pyprof2.columns import lookup
from pyprof2.recording import code_column, has_text

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.linking.kernels import Launches
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.analysis.linking.pair import Pairs
    from pyprof2.analysis.linking.threads import Threads
    from pyprof2.recording import Recording

_CALL: Final = re.compile(r"## Call CompiledFxGraph (?P<key>\S+) ##")
_REGION: Final = re.compile(r"Torch-Compiled Region: (?P<id>\S+)")
_NUMBERED: Final = re.compile(r"graph_\d+_(?=cpp_)")
"""The begin of the name of a kernel on the CPU in a recording, which the code lacks."""


def call_key(text: str) -> str | None:
    """Return the key of the graph whose call a range is; None for other ranges."""
    match = _CALL.fullmatch(text)
    return None if match is None else match["key"]


def called_name(op: str) -> str:
    """Return the name by which the code of a graph knows what an op call is of."""
    return _NUMBERED.sub("", op)


def count_calls(recording: Recording) -> int:
    """Return how many calls of compiled graphs there are in a recording."""
    known = recording.spool.texts["ranges"]["name"]
    if not any(isinstance(text, str) and call_key(text) for text in known):
        return 0
    name, texts = code_column(recording.read("ranges", ["name"]), "name")
    is_call = np.array([*(call_key(text) is not None for text in texts), False])
    return int(is_call[name].sum())


class GraphCalls(NamedTuple):
    """The calls of graphs in a recording, and the op calls directly in each.

    Attributes:
        key: of each call, as a code into `keys`.
        keys: of graphs.
        compile_id: of the region around each call, or around the forward call of one in backward,
            as a code into `ids`; -1: there is none.
        ids: of compilations.
        is_backward: of each call, whether it is inside of backward.
        first, length: where the op calls of each call are in `made`.
        made: ops, by position; those of a call in the order of their begin.
        owner: of each op of the recording the one of `made` that it is, or that is around it, by
            position among `made`; -1 outside of calls.
        kind: of each call; calls with one key that make the same op calls are of one kind.
        example: of each kind a call of it.
        launch: the call that each launch of the recording is in, -1 for none.
        replays: of each call whether it replays a graph of the device.
        held: of each call the innermost call of a module around it, -1 for none.
    """

    key: Int
    keys: list[str]
    compile_id: Int
    ids: list[str]
    is_backward: np.ndarray[tuple[int], np.dtype[np.bool_]]
    first: Int
    length: Int
    made: Int
    owner: Int
    kind: Int
    example: Int
    launch: Int
    replays: np.ndarray[tuple[int], np.dtype[np.bool_]]
    held: Int


def find_calls(
    recording: Recording, threads: Threads, ops: Ops, pairs: Pairs, launches: Launches
) -> GraphCalls | None:
    """Return the calls of compiled graphs; None: there are none."""
    if not count_calls(recording):
        return None
    name, texts = code_column(recording.read("ranges", ["name"]), "name")
    is_call = np.array([*(call_key(text) is not None for text in texts), False])
    rows = np.flatnonzero(is_call[name])
    if not len(rows) or not len(ops):
        return None
    ranges = ranges_at(recording, threads, rows)
    keys = [call_key(text) or "" for text in ranges.names]
    kinds = recording.read("ranges", ["kind"])
    modules = np.flatnonzero(has_text(kinds, "kind", ("layer", "module")))
    nest = ranges.nest()
    call = nest.innermost(ops.thread, ops.start)
    launch = nest.innermost(launches.thread, launches.start)
    replays = np.zeros(len(rows), bool)
    replays[launch[launches.is_graph & (launch >= 0)]] = True
    outer = lookup(call, ops.parent, -1)
    is_made = (call >= 0) & (outer != call)
    made = np.flatnonzero(is_made)
    made = made[np.lexsort((ops.start[made], call[made]))]
    length = np.bincount(call[made], minlength=len(rows))
    first = np.cumsum(length) - length
    place = np.full(len(ops), -1)
    place[made] = np.arange(len(made))
    owner = lookup(place, nearest_marked(ops.parent, is_made), -1)
    around = ops.nest.innermost(ranges.thread, ranges.start)
    ids, of_op = _regions(ops, pairs)
    hashes = ordered_hashes(mixed(ops.name[made]), first, length)
    groups = group_equal(mixed(hashes.view(np.int64), ranges.name), length)
    return GraphCalls(
        ranges.name,
        keys,
        lookup(of_op, around, -1),
        ids,
        lookup(ops.backward.astype(np.int64), around, 0) > 0,
        first,
        length,
        made,
        np.where(call >= 0, owner, -1),
        groups.which,
        groups.first,
        launch,
        replays,
        ranges_at(recording, threads, modules).nest().innermost(ranges.thread, ranges.start),
    )


def _regions(ops: Ops, pairs: Pairs) -> tuple[list[str], Int]:
    """Return the ids of compilations, and that of the region around each op, as a code.

    A call in backward is of the region of its forward op.
    """
    matches = [_REGION.fullmatch(text) for text in ops.names]
    ids = [match["id"] for match in matches if match is not None]
    code = np.full(len(ops.names) + 1, -1)
    code[[at for at, match in enumerate(matches) if match is not None]] = np.arange(len(ids))
    own = code[ops.name]
    region = lookup(own, nearest_marked(ops.parent, own >= 0), -1)
    forward = nearest_marked(ops.parent, pairs.forward >= 0)
    of_forward = lookup(region, lookup(pairs.forward, forward, -1), -1)
    return ids, np.where(region >= 0, region, of_forward)
