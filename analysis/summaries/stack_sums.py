"""Sums by stack: of what layers, lines or ops a row is inside, the outermost first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.axes import NONE
from pyprof2.analysis.intervals import depths
from pyprof2.columns import as_text, lookup, sum_at
from pyprof2.errors import TableError
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from pyprof2.analysis.intervals import Int

    Stack = tuple[str, ...]

LAYERS: Final = "layers"
LINES: Final = "lines"
OPS: Final = "ops"
MEASURES: Final = ("time_ns", "flops", "bytes", "count")
COLUMNS: Final = (
    "rank", "dur_ns", "flops", "bytes", "cost_status", "layer", "op", "op_id", "kernel_short",
    "source", "stack_id", "device_type",
)  # fmt: skip
"""The columns of rows that sums are made of."""
TABLES: Final = {OPS: ("ops", ("op", "parent_op_id")), LINES: ("stacks", ("line", "caller_id"))}
"""The tables of nested names, and the columns that are needed of each."""

_CUT: Final = "…"
_DEEPEST: Final = 1000
_LARGEST_SUM: Final = 9.2e18


def stack_sums(
    rows: pd.DataFrame, of: str, measure: str, nested: Mapping[int, pa.Table]
) -> Counter[Stack]:
    """Return the sum of each stack.

    Args:
        rows: rows of axis `kernel`, with `COLUMNS`.
        of: `layers`, the names of the path of a layer, and the op; `lines`, the stack where one
            was recorded, else the line of the user's own, and the op; `ops`, the ops around the
            launch, and the kernel; of a replayed graph the op that was captured.
        measure: one of `MEASURES`; what is not known of a row adds nothing.
        nested: the table `TABLES[of]` of each rank; of layers none.

    Returns:
        By names, the outermost first, what is not known as `(none)`. The last one of a row without
        op is the kernel. Where no GPU worked rows are ops, timed by their self time.

    Raises:
        TableError: the sum is more than an int64 holds.
    """
    found: Counter[Stack] = Counter()
    for rank, own in rows.groupby("rank", sort=True, observed=True):
        values = values_of(own, measure)
        if values.sum(dtype=np.float64) > _LARGEST_SUM:
            msg = f"{measure} adds up to more than 64 bits hold: the recording is broken"
            raise TableError(msg)
        place, path = _heads(own, of, nested.get(int(str(rank))))
        leaf, leaves = _leaves(own, of)
        keys, group = np.unique(np.stack((place, leaf), axis=1), axis=0, return_inverse=True)
        sums = sum_at(group.ravel(), values, len(keys))
        for (at, last), total in zip(keys.tolist(), sums.tolist(), strict=True):
            if total:
                found[(*path(at), *leaves[last])] += total
    return found


def values_of(rows: pd.DataFrame, measure: str) -> Int:
    """Return what each row adds to the sums of `measure`; 0 where it is not known."""
    if measure == "count":
        return np.ones(len(rows), np.int64)
    if measure == "time_ns":
        return rows["dur_ns"].to_numpy(np.int64)
    # The counts of a row that says `in_parent` stand at the op around it.
    counts = rows["cost_status"].ne("in_parent").to_numpy(bool, na_value=True)
    values = rows[measure].astype("Int64").fillna(0).to_numpy(np.int64)
    return np.where(counts, values, 0)


class _Heads(NamedTuple):
    """All but the last name of rows: of each row a number, and a function to the names."""

    number: Int
    names: Callable[[int], Stack]


def _heads(rows: pd.DataFrame, of: str, nested: pa.Table | None) -> _Heads:
    if of == LAYERS or nested is None:
        codes, distinct = pd.factorize(rows["layer" if of == LAYERS else "source"])
        paths = [tuple(str(t).split(".")) if of == LAYERS else (str(t),) for t in distinct]
        # The code of a null is -1: the last one.
        return _Heads(codes.astype(np.int64), [*paths, (NONE,)].__getitem__)
    name, parent = TABLES[of][1]
    caller = int_column(nested, parent, -1)
    codes, names = code_column(nested, name)
    own = codes.astype(np.int64)
    last, place = {OPS: ("op", "op_id"), LINES: ("source", "stack_id")}[of]
    at = np.asarray(rows[place].astype("Int64").fillna(-1), dtype=np.int64)
    if of == OPS:
        node, caller, own = _distinct(own, caller)
        at = lookup(node, at, -1)
    # Numbers below -1 are names alone: lines without a stack, ops that are in another recording.
    single, texts = pd.factorize(rows[last])
    number = np.where(at >= 0, at, np.where(single >= 0, -2 - single, -1))
    return _Heads(number, _climb(caller, (own, names), [str(each) for each in texts]))


def _climb(above: Int, own: tuple[Int, list[str]], single: list[str]) -> Callable[[int], Stack]:
    """Return a function from a node to the names above it and its own.

    Args:
        above: of each node that above it, -1 for none.
        own: the names of nodes, as codes and texts.
        single: the names that -2 and what is below it stand for; -1 is nothing.
    """
    text, names = own

    def path(node: int) -> Stack:
        if node < 0:
            return (single[-2 - node] if node < -1 else NONE,)
        found: list[str] = []
        while node >= 0 and len(found) < _DEEPEST:
            found.append(names[text[node]] if text[node] >= 0 else NONE)
            node = int(above[node])
        return (*([_CUT] if node >= 0 else []), *reversed(found))

    return path


def _distinct(name: Int, parent: Int) -> tuple[Int, Int, Int]:
    """Return of each row its node in the tree of names; of each node that above it and its name."""
    node, level_of = np.full(len(name), -1), depths(parent)
    above, text = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    count = 0
    order = np.argsort(level_of, kind="stable")
    bounds = np.searchsorted(level_of[order], np.arange(int(level_of.max(initial=-1)) + 2))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[first:last]
        outer = np.where(parent[rows] >= 0, node[parent[rows]], -1)
        both = np.stack((outer, name[rows]), axis=1)
        keys, inverse = np.unique(both, axis=0, return_inverse=True)
        node[rows] = count + inverse.ravel()
        count += len(keys)
        above.append(keys[:, 0])
        text.append(keys[:, 1])
    return node, np.concatenate(above), np.concatenate(text)


def _leaves(rows: pd.DataFrame, of: str) -> tuple[Int, list[Stack]]:
    """Return of each row a number for its last name, and the name of each number."""
    op, kernel = as_text(rows["op"]), as_text(rows["kernel_short"])
    if of == OPS:
        # On the CPU a row is an op, which is the last of those around it already.
        is_op = rows["device_type"].eq("cpu").to_numpy(bool, na_value=False)
        last = kernel.where(~is_op)
    else:
        last = op.where(rows["op"].notna(), kernel)
    codes, names = pd.factorize(last)
    return codes, [*((str(name),) for name in names), ()]
