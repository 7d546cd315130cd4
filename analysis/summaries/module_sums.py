"""Sums of the calls of modules along axis `layer`: time on host and device, self and total.

Modules are called in forward; their work in backward is in the rows of the profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.intervals import Nest, add_to_parents, levels_of, time_without_children
from pyprof2.analysis.summaries.call_sums import beside
from pyprof2.analysis.summaries.profile import Key, KeyGroups, added, chosen, whole_numbers
from pyprof2.analysis.summaries.profile_columns import OF_MODULES
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.columns import combine_keys, lookup, sum_at, text_array
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from pyprof2.analysis.intervals import Int

NEEDED: Final = {
    "ops": ("start_ns", "dur_ns", "pid", "tid", "op", "parent_op_id"),
    "ranges": ("start_ns", "dur_ns", "pid", "tid", "name", "kind"),
    "kernels": ("op_id", "dur_ns"),
    "copies": ("op_id", "dur_ns"),
}
"""The columns of each table that calls of modules are made of."""

_NO_ID: Final = -1
_OF_TOP: Final = ("occurrences", "host_total_ns", "device_total_ns")


def module_calls(tables: Mapping[str, pa.Table], rank: int) -> pa.Table:
    """Return a row for each call of a module in forward, with `OF_MODULES` of that call alone.

    Args:
        tables: those of `NEEDED`, with its columns.
        rank: its number.

    Returns:
        `rank`, `layer`, `caller`, the row of the call around it, -1 for none, and `OF_MODULES`.
    """
    ops, ranges = tables["ops"], tables["ranges"]
    # Our own annotation writes whole paths; frames of modules have names alone.
    own = has_text(ranges, "kind", ("layer",))
    is_path = bool(own.any())
    modules = ranges.filter(own if is_path else has_text(ranges, "kind", ("module",)))
    thread, start, length = _places(ops, modules)
    count = ops.num_rows
    in_node = _innermost(thread, start, length, is_engine(ops["op"]).nonzero()[0], count)
    kept = np.flatnonzero(in_node[count:] < 0)
    modules = modules.take(kept)
    thread, start, length = _places(ops, modules)
    nest = Nest.of(thread[count:], start[count:], (start + length)[count:])
    caller = nest.parents()
    around = nest.innermost(thread[:count], start[:count])
    op_parent = int_column(ops, "parent_op_id", -1)
    outer = lookup(around, op_parent, -1)
    direct = (around >= 0) & ((op_parent < 0) | (outer != around))
    # A module that an op calls is no part of what calls the op.
    op = _innermost(thread, start, length, np.arange(count), count)[count:]
    by_op = (op >= 0) & (lookup(around, op, -1) == caller) & (caller >= 0)
    parent = np.where(by_op, -1, caller)
    device = np.zeros(count, np.int64)
    for work in (tables["kernels"], tables["copies"]):
        device += sum_at(int_column(work, "op_id", -1), int_column(work, "dur_ns", 0), count)
    add_to_parents(device, op_parent, levels_of(op_parent))
    calls = len(kept)
    time, rows = length[count:], np.flatnonzero(direct)
    host = time_without_children(parent, time) - sum_at(around[rows], length[rows], calls)
    own_device = sum_at(around[rows], device[rows], calls)
    whole = own_device.copy()
    add_to_parents(whole, parent, levels_of(parent))
    return pa.table(
        {
            "rank": np.full(calls, rank),
            "layer": text_array((np.arange(calls), _paths(modules, caller, is_path=is_path))),
            "caller": caller,
            "occurrences": np.ones(calls, np.int64),
            "operators": np.bincount(around[rows], minlength=calls),
            "host_self_ns": np.maximum(host, 0),
            "host_total_ns": time,
            "device_self_ns": own_device,
            "device_total_ns": whole,
        }
    )


def _places(ops: pa.Table, modules: pa.Table) -> tuple[Int, Int, Int]:
    """Return thread, start and length of ops and modules, one after another."""
    columns = [
        np.concatenate([int_column(table, name, _NO_ID) for table in (ops, modules)])
        for name in ("pid", "tid", "start_ns", "dur_ns")
    ]
    return combine_keys(*columns[:2]), columns[2], columns[3]


def _innermost(thread: Int, start: Int, length: Int, rows: Int, count: int) -> Int:
    """Return the innermost of some rows, of the first `count`, around each place; -1 for none."""
    found = Nest.of(thread[rows], start[rows], (start + length)[rows]).innermost(thread, start)
    return lookup(rows, found, -1) if count else found


def _paths(modules: pa.Table, caller: Int, *, is_path: bool) -> list[str]:
    codes, names = code_column(modules, "name")
    texts = [names[code] for code in codes.tolist()]
    if is_path:
        return texts
    # The calls stand in order of their starts: those around each before it.
    for row, outer in enumerate(caller.tolist()):
        texts[row] = f"{texts[outer]}.{texts[row]}" if outer >= 0 else texts[row]
    return texts


def with_modules(
    sums: pd.DataFrame,
    calls: Sequence[pa.Table],
    depth: int | None = None,
    *,
    fold_numbers: bool = False,
    rank: int | None = None,
    layer: str | None = None,
) -> pd.DataFrame:
    """Return sums along axis `layer` with the columns `OF_MODULES`.

    Where paths are cut, or folded, a call inside of another one of the same key adds to what is its
    own, and nothing to the totals.

    Args:
        sums: what `summarize` gave.
        calls: `module_calls` of each rank.
        depth: as for `summarize`.
        fold_numbers: as for `summarize`.
        rank: only this one.
        layer: only layers in which this regular expression is found.
    """
    kept = []
    for part in calls:
        group = _by_layer(part, depth, fold_numbers).of
        caller = part["caller"].to_numpy()
        inside = (caller >= 0) & (lookup(group, caller, -1) == group)
        own = {name: part[name] for name in part.column_names}
        own |= {name: pa.array(np.where(inside, 0, part[name].to_numpy())) for name in _OF_TOP}
        kept.append(chosen(pa.table(own), rank=rank, layer=layer))
    every = pa.concat_tables(kept).unify_dictionaries()
    keys, group, count = _by_layer(every, depth, fold_numbers)
    known = np.ones(count, bool)
    found = {
        c.name: whole_numbers(added(every[c.name].to_numpy(), group, count), known)
        for c in OF_MODULES
    }
    return beside(sums, keys | found, ["layer"])


def _by_layer(calls: pa.Table, depth: int | None, fold: bool) -> KeyGroups:  # noqa: FBT001
    return KeyGroups.along(lambda name: Key.of(calls, name), ["layer"], depth, fold_numbers=fold)
