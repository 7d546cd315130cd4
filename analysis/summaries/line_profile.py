"""The cost of lines of code, as a tree with totals: `pyprof2 lines`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.intervals import depths
from pyprof2.analysis.time.line_ops import PHASES
from pyprof2.analysis.time.line_tree import (
    BETWEEN_OPS,
    LINE,
    NO_OP,
    THREAD,
    LinePlace,
    StackLines,
    Tree,
)
from pyprof2.analysis.time.step_times import TimedStep, slow_starts, timed_steps
from pyprof2.columns import sum_at
from pyprof2.errors import refuse
from pyprof2.tables import Column, real, whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.intervals import Bool, Int

LEDGERS: Final = ("device", "host")
_ADDED: Final = (
    "time_ns", "count", "flops", "bytes", "costed_ns", "tensor_core_ns", "tensor_core_known_ns",
    "overlap_ns", "idle_caused_ns",
)  # fmt: skip
_OF_DEVICE: Final = ("tensor_core_ns", "tensor_core_known_ns", "overlap_ns", "idle_caused_ns")


def _time(name: str, meaning: str) -> Column:
    return whole(name, meaning, "ns")


COLUMNS: Final = (
    whole("node_id", "Number of the node; a parent comes before its children."),
    whole("parent_id", "The node above; null: none."),
    whole("depth", "Number of nodes on the way to it, itself included."),
    Column("kind", pa.string(), "`thread`, `file`, `line`, `op` or `rest`, a remainder."),
    Column("name", pa.string(), "The thread, file, `path:line`, op or remainder."),
    Column("module", pa.string(), "What the layers below have in common; `*` for numbers."),
    _time("time_ns", "Time in all of the steps, with what is below."),
    _time("own_ns", "Of it what is in no other row: own times add up to the whole."),
    real("share_pct", "Share of the steps' time; null on other threads.", "%"),
    real("median_ns", "Median over steps.", "ns"),
    _time("min_ns", "Least of a step."),
    _time("max_ns", "Most of a step."),
    *(_time(f"{phase}_ns", f"Of the time that in {phase}.") for phase in PHASES),
    whole("calls", "Ops of forward that lines here called, in all of the steps."),
    whole("recompute_calls", "Those that checkpointing ran again."),
    whole("count", "Kernels and copies; on the host ops."),
    whole("flops", "FLOPs that are known; null: of none.", "FLOP"),
    whole("bytes", "Bytes that are known; null: of none.", "B"),
    real("costed_pct", "Share of the time of which FLOPs are known.", "%"),
    _time("tensor_core_ns", "Time on Tensor Cores; null without a verdict, and on the host."),
    real("tensor_core_pct", "Of the time with a verdict.", "%"),
    _time("overlap_ns", "Of the time that beside work which began earlier."),
    _time("idle_caused_ns", "Idle time of devices while the host was here; no part of the time."),
    _time("overall_ns", "Of a line: its time wherever it is called from, recursion once."),
    whole("overall_calls", "Of a line: its calls wherever it is called from."),
)
"""Columns of `line_profile`, a row for each node."""


@dataclass(frozen=True)
class LineQuery:
    """A question about lines.

    Attributes:
        ledger: `device` or `host`; None: `device` where a device worked.
        phase: only this one of `PHASES`; None: all.
        steps: first and last number; None: all but a first one that is an outlier.
        rank: only this one; None: all.
        within: only what modules of this path do; `*` stands for any one name.
        depth: how deep the tree is; None: to the ops.
    """

    ledger: str | None = None
    phase: str | None = None
    steps: tuple[int, int] | None = None
    rank: int | None = None
    within: str | None = None
    depth: int | None = None


class LineProfile(NamedTuple):
    """The cost of lines.

    Attributes:
        table: `COLUMNS`, a row for each node, the longest first among those of one parent.
        ledger: the ledger that it is of.
        ranks: that it is of.
        steps: (rank, number) of each step that it is of; of a whole recording the number is None.
        apart: (rank, number) of first steps that are left out, because they took much longer.
        step_ns: time of each step, without other threads.
        part_ns: of that what is asked for.
    """

    table: pd.DataFrame
    ledger: str
    ranks: list[int]
    steps: list[tuple[int, int | None]]
    apart: list[tuple[int, int]]
    step_ns: Int
    part_ns: Int

    @property
    def total_ns(self) -> int:
        """The time of all steps."""
        return int(self.step_ns.sum())


def line_profile(
    rows: pd.DataFrame,
    stacks: Mapping[int, pa.Table],
    steps: pd.DataFrame,
    query: LineQuery,
    roots: Mapping[int, str | None],
) -> LineProfile:
    """Return what lines cost.

    Args:
        rows: the table `lines`.
        stacks: the table `stacks` of each rank.
        steps: the table `steps`.
        query: what is asked.
        roots: of each rank the folder of the user's own code.

    Raises:
        UsageError: there is no such rank, step, ledger, phase or module.
    """
    rows = _of_rank(rows, query.rank)
    ledger = _ledger(rows, query.ledger)
    rows = rows[rows["ledger"].isin([ledger] if ledger == "device" else [ledger, "threads"])]
    rows, apart = _of_steps(rows, steps, query.steps)
    keys = ["rank", "step_start_ns", "step"]
    number, first = _distinct(rows, keys)
    windows = rows[keys].iloc[first].reset_index(drop=True).sort_values(keys)
    window = np.argsort(windows.index)[number]
    tree, node = _tree(rows, stacks, roots, NO_OP if ledger == "device" else BETWEEN_OPS)
    sums = _TreeSums(tree, rows, node, window, len(windows))
    keep, main = _asked(rows, query), _is(rows["ledger"], ledger)
    in_op = keep & rows["op"].notna().to_numpy()
    parents, layer = tree.parent.tolist(), rows["layer"][in_op].astype(object).to_numpy()
    pairs = pd.DataFrame({"node": node[in_op], "layer": layer}).drop_duplicates()
    for at, text in pairs.itertuples(index=False, name=None):
        tree.enter(at, text if isinstance(text, str) else None, parents)
    step_ns, part_ns = (sums.of_steps(main), sums.of_steps(main & keep))
    return LineProfile(
        sums.table(keep, query, int(step_ns.sum())),
        ledger,
        sorted(set(rows["rank"].tolist())),
        [
            (int(rank), None if pd.isna(step) else int(step))
            for rank, _, step in windows.itertuples(index=False, name=None)
        ],
        apart,
        step_ns,
        part_ns,
    )


# -- which rows ----------------------------------------------------------------------------------


def _of_rank(rows: pd.DataFrame, rank: int | None) -> pd.DataFrame:
    if rank is None:
        return rows
    ranks = sorted(set(rows["rank"].tolist()))
    if rank not in ranks:
        refuse(f"rank {rank}: no such rank; there is {', '.join(map(str, ranks)) or 'none'}")
    return rows[rows["rank"] == rank]


def _ledger(rows: pd.DataFrame, asked: str | None) -> str:
    there = set(rows["ledger"].tolist())
    if asked is None:
        return "device" if "device" in there else "host"
    if asked not in LEDGERS:
        refuse(f"no ledger {asked!r}; there are {' and '.join(LEDGERS)}")
    if asked == "device" and asked not in there:
        refuse("--ledger device: no work of a device was recorded; use --ledger host")
    return asked


def _of_steps(
    rows: pd.DataFrame, steps: pd.DataFrame, asked: tuple[int, int] | None
) -> tuple[pd.DataFrame, list[tuple[int, int]]]:
    """Return the rows of the steps asked for, and the first steps that are left out."""
    rows = rows[rows["step_start_ns"].notna()]
    if asked is not None:
        numbers = sorted(set(rows["step"].dropna().tolist()))
        found = rows[rows["step"].between(*asked).fillna(value=False)]
        if found.empty:
            first, last = asked
            wanted = f"{first}" if first == last else f"{first}:{last}"
            there = f"there are {numbers[0]} to {numbers[-1]}" if numbers else "there is none"
            refuse(f"--step {wanted}: no such step; {there}")
        return found, []
    apart = slow_starts(timed_steps(steps))
    if not apart:
        return rows, []
    own = zip(*(steps[name].tolist() for name in TimedStep._fields), strict=True)
    left_out = steps[np.array([each in apart for each in own], bool)]
    is_apart = pd.MultiIndex.from_frame(rows[["rank", "step_start_ns"]]).isin(
        list(zip(left_out["rank"], left_out["host_start_ns"], strict=True))
    )
    return rows[~is_apart], sorted({(each.rank, each.step) for each in apart})


def _asked(rows: pd.DataFrame, query: LineQuery) -> Bool:
    """Return which rows are of the phase and the module that are asked for."""
    keep = np.ones(len(rows), bool)
    if query.within is not None:
        layers = sorted(set(rows["layer"].dropna()))
        keep &= rows["layer"].isin(_is_within(layers, query.within)).to_numpy()
    if query.phase is not None:
        keep &= _is(rows["phase"], query.phase)
    return keep


def _is_within(layers: Sequence[str], path: str) -> set[str]:
    """Return the layers that are the module of a path, or below it.

    Raises:
        UsageError: there is none.
    """
    # Only the star of fnmatch's wildcards has a meaning here.
    wanted = [name.replace("[", "[[]").replace("?", "[?]") for name in path.split(".")]
    found = {
        layer
        for layer in layers
        if layer.count(".") + 1 >= len(wanted) and all(map(fnmatchcase, layer.split("."), wanted))
    }
    if not found:
        near = difflib.get_close_matches(path, layers, 3, 0)
        refuse(f"--within {path}: no module has this path; nearest: {', '.join(near) or 'none'}")
    return found


# -- the tree and its sums -----------------------------------------------------------------------


def _tree(
    rows: pd.DataFrame,
    stacks: Mapping[int, pa.Table],
    roots: Mapping[int, str | None],
    remainder: str,
) -> tuple[Tree, Int]:
    """Return the tree, and the node of each row."""
    tree, known = Tree(), {rank: StackLines(table, roots[rank]) for rank, table in stacks.items()}
    names = ["rank", "ledger", "tid", "stack_id", "source", "op"]
    number, first = _distinct(rows, names)
    keys = rows.iloc[first][names].astype(object)
    places = []
    for rank, ledger, tid, stack, source, op in keys.where(keys.notna(), None).to_numpy().tolist():
        lines = known[rank].lines(-1 if stack is None else stack)
        lines = lines or (() if source is None else (source,))
        thread = f"thread {tid}" if ledger == "threads" else None
        is_alone = stack is None and source is not None
        places.append((is_alone, LinePlace(thread, lines, known[rank].has_own(lines), op)))
    nodes = {
        at: tree.add(place, remainder) for at, (alone, place) in enumerate(places) if not alone
    }
    # Rows with a line alone are where that line is, if it is in one place only.
    once = tree.lines_in_one_place()
    for at, (is_alone, place) in enumerate(places):
        if is_alone:
            found = once.get(place.lines[0])
            nodes[at] = tree.add(place, remainder) if found is None else found
    node = np.array([nodes[at] for at in range(len(places))], np.int64)
    return tree, node[number] if len(node) else node


def _distinct(rows: pd.DataFrame, names: Sequence[str]) -> tuple[Int, Int]:
    """Return the number of each row's combination of values, and where each begins."""
    groups = rows.groupby(list(names), dropna=False, observed=True, sort=False).ngroup()
    number = groups.to_numpy().astype(np.int64)
    return number, np.unique(number, return_index=True)[1].astype(np.int64)


class _TreeSums:
    """Adds rows up along a tree."""

    def __init__(self, tree: Tree, rows: pd.DataFrame, node: Int, window: Int, count: int) -> None:
        """Take the rows.

        Args:
            tree: the tree.
            rows: of the table `lines`.
            node: of each row.
            window: number of the step of each row.
            count: of steps.
        """
        self._tree, self._rows, self._node = tree, rows, node
        self._window, self._count = window, count
        self._parent = tree.parent

    def of_steps(self, keep: Bool) -> Int:
        """Return the time of these rows in each step."""
        time = _ints(self._rows["time_ns"])
        return sum_at(np.where(keep, self._window, -1), time, max(1, self._count))

    def table(self, keep: Bool, query: LineQuery, total_ns: int) -> pd.DataFrame:
        """Return `COLUMNS` for the nodes that have any of the rows that `keep` marks."""
        own = np.zeros((len(self._parent), max(1, self._count)), np.int64)
        np.add.at(own, (self._node, self._window), _ints(self._rows["time_ns"]) * keep)
        times = self._tree.totals(own)
        columns = self._columns(keep, query.phase) | {
            "median_ns": np.median(times, axis=1),
            "min_ns": times.min(axis=1),
            "max_ns": times.max(axis=1),
        }
        columns |= self._overall(query.phase)
        frame = pd.DataFrame(columns)
        used = self._added({"rows": keep.astype(np.int64)})["rows"] > 0
        depth = depths(self._parent) + 1
        used &= depth <= (query.depth or len(frame) + 1)
        frame = self._named(frame, depth).assign(own_ns=self._own(frame["time_ns"], used))
        main = np.array([kind != THREAD for kind in self._of_root(self._tree.kind)])
        share = 100 * frame["time_ns"] / max(1, total_ns)
        frame["share_pct"] = share.where(main)
        return self._in_order(frame[[column.name for column in COLUMNS]], used)

    def _added(self, columns: Mapping[str, Int]) -> dict[str, Int]:
        """Return columns of the rows added up to totals of the nodes."""
        own = np.zeros((len(self._parent), len(columns)), np.int64)
        np.add.at(own, self._node, np.stack(list(columns.values()), axis=-1))
        return dict(zip(columns, self._tree.totals(own).T, strict=True))

    def _columns(self, keep: Bool, phase: str | None) -> dict[str, Any]:
        rows = self._rows
        values: dict[str, Int] = {name: _ints(rows[name]) * keep for name in _ADDED}
        for each in PHASES:
            values[f"{each}_ns"] = values["time_ns"] * _is(rows["phase"], each)
        calls = _ints(rows["calls"]) * keep
        values["calls"] = calls * _is(rows["phase"], phase or "forward")
        values["recompute_calls"] = calls * _is(rows["phase"], "recompute")
        for name in ("flops", "bytes"):
            values[f"{name}_known"] = rows[name].notna().to_numpy().astype(np.int64) * keep
        sums = self._added(values)
        found: dict[str, Any] = {name: pd.array(sums[name], "Int64") for name in sums}
        for name in ("flops", "bytes"):
            found[name][sums[f"{name}_known"] == 0] = pd.NA
        if not rows["ledger"].eq("device").any():
            found |= {name: pd.array([pd.NA] * len(self._parent), "Int64") for name in _OF_DEVICE}
        found["tensor_core_ns"][sums["tensor_core_known_ns"] == 0] = pd.NA
        found["costed_pct"] = _percent(sums["costed_ns"], sums["time_ns"])
        found["tensor_core_pct"] = _percent(sums["tensor_core_ns"], sums["tensor_core_known_ns"])
        return found

    def _overall(self, phase: str | None) -> dict[str, Any]:
        """Return of each line its time and calls wherever it is called from, recursion once."""
        keep = np.ones(len(self._rows), bool)
        if phase is not None:
            keep = _is(self._rows["phase"], phase)
        sums = self._columns(keep, phase)
        is_line = np.array([kind == LINE for kind in self._tree.kind], bool)
        line = pd.Series(self._tree.text).where(is_line)
        tree = self._tree
        threads = [t if k == THREAD else "" for k, t in zip(tree.kind, tree.text, strict=True)]
        keys = [line, pd.Series(self._of_root(threads))]
        first = tree.is_first
        found = {}
        for name, of in (("overall_ns", "time_ns"), ("overall_calls", "calls")):
            values = pd.Series(np.where(first, sums[of].to_numpy(np.int64), 0))
            overall = (
                values.groupby(keys, dropna=False, observed=True).transform("sum").astype("Int64")
            )
            found[name] = overall.where(is_line).array
        return found

    def _of_root(self, values: Sequence[str]) -> list[str]:
        """Return the value of each node's root."""
        found: list[str] = []
        for at, parent in enumerate(self._parent.tolist()):
            found.append(values[at] if parent < 0 else found[parent])
        return found

    def _named(self, frame: pd.DataFrame, depth: Int) -> pd.DataFrame:
        parent = pd.array(self._parent, "Int64")
        parent[self._parent < 0] = pd.NA
        return frame.assign(
            node_id=np.arange(len(frame)),
            parent_id=parent,
            depth=depth,
            kind=self._tree.kind,
            name=self._tree.text,
            module=pd.Series(self._tree.module, dtype="object"),
        )

    def _own(self, time: pd.Series, used: Bool) -> Int:
        """Return the time of each node less that of the nodes below that are shown."""
        own = time.to_numpy(np.int64, copy=True)
        rows = np.flatnonzero(used & (self._parent >= 0))
        np.subtract.at(own, self._parent[rows], time.to_numpy(np.int64)[rows])
        return own

    def _in_order(self, frame: pd.DataFrame, used: Bool) -> pd.DataFrame:
        """Return the nodes with each below its parent, the longest first; numbered anew."""
        idle = frame["idle_caused_ns"].fillna(0)
        by_time = frame.assign(idle=idle, other=self._of_root(self._tree.kind)).sort_values(
            ["other", "time_ns", "idle", "name"], ascending=[True, False, False, True],
            key=lambda c: c == THREAD if c.name == "other" else c, kind="stable",
        )  # fmt: skip
        children: dict[int, list[int]] = {}
        for node in by_time.index[used[by_time.index]].tolist():
            children.setdefault(int(self._parent[node]), []).append(node)
        order, waiting = [], children.get(-1, [])[::-1]
        while waiting:
            order.append(waiting.pop())
            waiting += children.get(order[-1], [])[::-1]
        number = np.full(len(frame) + 1, -1)
        number[order] = np.arange(len(order))
        found = frame.iloc[order].reset_index(drop=True)
        parent = number[found["parent_id"].fillna(-1).to_numpy(np.int64)]
        parent_id = pd.array(parent, "Int64")
        parent_id[parent < 0] = pd.NA
        return found.assign(node_id=np.arange(len(order)), parent_id=parent_id)


def _ints(values: pd.Series) -> Int:
    return values.fillna(0).to_numpy(np.int64)


def _is(values: pd.Series, word: str) -> Bool:
    found: Bool = (values == word).to_numpy(dtype=bool)
    return found


def _percent(part: Int, total: Int) -> pd.Series:
    return pd.Series(100 * part / np.where(total > 0, total, 1)).where(total > 0)
