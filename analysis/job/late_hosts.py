"""The work of hosts while others waited for them: which op and line was late.

Before a launch that came late (`host_work`) a stretch is from the end of what the launch came
after to the launch. Its thread is followed back: the one that launched, then the one that launched
before it, then others of its process.

Without a device, as with gloo (`stretches`), a rank hands its part over when its host gets there.
The host's time until then is cut into *stretches*: its outermost ops, and the gaps before them on
their threads. Each is compared with the same stretch of the other ranks of the role: the n-th of
its name before the same collective. Nothing is inferred from waits: these say who was last, not how
long the delay took, for the others had work of their own to do meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.chunked import InMemory, whole
from pyprof2.analysis.time.cause_names import BLOCKING, CODES, NAMES
from pyprof2.analysis.time.host_ranges import FLAGGED, in_memory, read_host
from pyprof2.analysis.time.host_state import CALL_COLUMNS, CallFacts, Host
from pyprof2.analysis.time.idle import INPUT as IDLE_INPUT
from pyprof2.analysis.time.recordings import source_root
from pyprof2.analysis.time.slices import IntervalSlices
from pyprof2.columns import lookup
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.job.job_graph import JobGraph


INPUT: Final = {name: IDLE_INPUT[name] for name in ("ops", "ranges", "stalls", "trace")} | {
    "launches": ("rank", *CALL_COLUMNS)
}
"""The columns of the tables of a rank."""
_KEYS: Final = ["cause", "op", "source", "layer"]
_ON_HOST: Final = ("host", "sync")
_MOST: Final = 200
"""Rows of blame, the worst ones, whose hosts are followed back."""


def host_work(tables: Mapping[str, pa.Table], start: Int, end: Int) -> pd.DataFrame:
    """Return the work of a rank's host in stretches that each end where a launch begins.

    Args:
        tables: columns `INPUT`, of the rank.
        start: of the stretches, on the rank's clock.
        end: of each.

    Returns:
        `stretch` (its row), `cause` (as of idle time), `op`, `source`, `layer`, `ns`; of each
        stretch they add up to its length.
    """
    near = {name: _near(tables[name], start, end) for name in ("launches", "ops", "ranges")}
    parts = {name: InMemory(table) for name, table in near.items()}
    facts = read_host(parts, tables["stalls"], source_root(tables["trace"]), in_memory)
    calls = near["launches"]
    ids = int_column(calls, "launch_id", -1)
    known = CallFacts.of_launches(np.zeros(int(ids.max(initial=-1)) + 1, bool))
    ops = near["ops"]
    host = Host(facts, calls, ops, whole(facts.flagged, FLAGGED.names), known)
    slices = IntervalSlices(np.arange(len(start)), start, end)
    rows = []
    for thread in _threads(host, end):
        seen, state, line, slices = host.states_in(slices, thread)
        rows.append((seen, state.cause, state.op, line))
    none = np.full(len(slices), -1)
    rows.append((slices, np.full(len(slices), CODES["host_unrecorded"]), none, none))
    return pd.concat([_frame(*each, ops, facts.lines) for each in rows], ignore_index=True)


def _near(table: pa.Table, start: Int, end: Int) -> pa.Table:
    """Return the rows that any stretch has a moment in common with, or begin where one ends."""
    order = np.argsort(start, kind="stable")
    begins, latest = start[order], np.maximum.accumulate(end[order])
    own = int_column(table, "start_ns", 0)
    until = own + np.maximum(0, int_column(table, "dur_ns", 0))
    at = np.searchsorted(begins, until, "right") - 1
    return table.filter(pa.array((at >= 0) & (lookup(latest, at, 0) >= own)))


def _threads(host: Host, end: Int) -> list[Int]:
    """Return by stretch the threads to search for the host's work, in this order."""
    calls, process = host.calls, host.threads.process
    order = np.argsort(calls.start, kind="stable")
    at = np.searchsorted(calls.start[order], end, "left")
    own = lookup(calls.thread[order], np.where(at < len(order), at, -1), -1)
    found = [own]
    # The thread that launched before, as that of forward before the first launch of backward.
    before = lookup(calls.thread[order], at - 1, -1)
    found.append(np.where(process(before) == process(own), before, -1))
    for thread in host.busy_threads.tolist():
        here = process(own) == process(np.array([thread]))
        found.append(np.where(here, thread, -1))
    return found


def _frame(
    slices: IntervalSlices, cause: Int, op: Int, line: Int, ops: pa.Table, lines: Sequence[str]
) -> pd.DataFrame:
    texts = {}
    for name in ("op", "source", "layer"):
        code, words = code_column(ops, name)
        codes = lookup(code, op, -1)
        texts[name] = pd.Series(np.array([*words, None], object)[codes], dtype=object)
    of_line = pd.Series(np.array([*lines, None], object)[line], dtype=object)
    texts["source"] = texts["source"].where(texts["source"].notna(), of_line)
    return pd.DataFrame(
        {
            "stretch": slices.of,
            "cause": np.array(NAMES, object)[cause],
            **texts,
            "ns": slices.end - slices.start,
        }
    )


def blamed_work(
    job: JobGraph,
    blame: pd.DataFrame,
    roles: Mapping[int, Any],
    work_of: Callable[[int, Int, Int], pd.DataFrame],
) -> pd.DataFrame:
    """Return blame in which hosts that were late for a launch have their own work before it.

    That is the op and line whose time exceeds that of the same stretches of other ranks of the
    role most. Where nothing was recorded of them, op and line stay those of the launch.

    Args:
        job: the graph.
        blame: as `paths.blame` returns it.
        roles: of the ranks.
        work_of: `host_work` of a rank, of stretches on the clock of the reference.

    Returns:
        `blame` with `cause`, without `event`.
    """
    frame = blame.assign(cause=pd.Series(None, blame.index, dtype=object))
    late = frame["kind"].isin(_ON_HOST) & (frame["worst_ns"] > 0)
    rows = frame.index[late][:_MOST]
    asked = _same_stretches(job, rows, frame.loc[rows, "event"].to_numpy(np.int64), roles)
    found = []
    for rank in asked["rank"].unique().tolist():
        own = asked[asked["rank"] == rank]
        work = work_of(rank, own["start"].to_numpy(np.int64), own["end"].to_numpy(np.int64))
        found.append(work.assign(row=own["row"].to_numpy()[work["stretch"]], rank=rank))
    work = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["row"])
    for row in work["row"].unique().tolist():
        own = work[work["row"] == row]
        peers = asked.loc[(asked["row"] == row) & ~asked["is_own"], "rank"].tolist()
        sums = own.pivot_table("ns", _KEYS, "rank", "sum", dropna=False, observed=True)
        rank = frame.loc[row, "rank"]
        sums = sums.reindex(columns=[rank, *peers]).fillna(0)
        excess = sums[rank] - (sums[peers].median(axis=1) if peers else 0)
        did = dict(zip(_KEYS, excess.index[int(excess.to_numpy(float).argmax())], strict=True))
        texts = {name: word if isinstance(word, str) else None for name, word in did.items()}
        frame.loc[row, "kind"] = "sync" if texts["cause"] in BLOCKING else "host"
        if texts["op"] or texts["source"]:
            frame.loc[row, [*_KEYS]] = [texts[name] for name in _KEYS]
        else:
            frame.loc[row, "cause"] = texts["cause"]
    return frame.drop(columns="event")


def _same_stretches(
    job: JobGraph, rows: pd.Index, events: Int, roles: Mapping[int, Any]
) -> pd.DataFrame:
    """Return the stretches before events, and before the same calls of other ranks of the role."""
    by_key: dict[int, list[int]] = {}
    wanted = np.flatnonzero(np.isin(job.key, job.key[events]) & (job.binding >= 0))
    for event in wanted.tolist():
        by_key.setdefault(int(job.key[event]), []).append(event)
    found = []
    for row, event in zip(rows.tolist(), events.tolist(), strict=True):
        rank = int(job.rank[event])
        for other in by_key.get(int(job.key[event]), [event]):
            peer = int(job.rank[other])
            if other == event or (peer != rank and roles.get(peer) == roles.get(rank)):
                end = int(job.start[other])
                begin = end - max(0, int(job.graph.lag[job.binding[other]]))
                found.append((row, peer, begin, end, other == event))
    names = ["row", "rank", "start", "end", "is_own"]
    return pd.DataFrame(found, columns=names)


OPS: Final = (
    "op_id", "parent_op_id", "start_ns", "dur_ns", "pid", "tid", "op", "layer", "source", "step",
)  # fmt: skip
"""The columns of table `ops` that stretches are found in."""

BLAME: Final = (
    "rank", "instance", "margin_ns", "ns", "excess_ns", "worst_ns", "kind", "op", "kernel", "layer",
    "source", "step", "cause",
)  # fmt: skip
_OF_WORKERS: Final = "gloo:"
_SAME: Final = ("instance", "op", "n", "kind")
_FEWEST_PEERS: Final = 2
_NONE: Final = -1


def stretches(ops: pa.Table, members: pd.DataFrame, rank: int) -> pd.DataFrame:
    """Return the stretches of a rank's host.

    A gap in which a collective was handed over is left out: the host may have waited for it there.

    Args:
        ops: columns `OPS` of the rank.
        members: of the rank: `issued_ns`, `instance_id`; those that are matched count.
        rank: its number.

    Returns:
        `rank`, `instance` that comes next, `kind` (`op`, or `host` for the gap before one), `op`,
        `n` of the same name before the same collective, `ns`, `layer`, `source`, `step`.
    """
    known = members.dropna(subset=["instance_id"]).sort_values("issued_ns", kind="stable")
    issued = known["issued_ns"].to_numpy(np.int64)
    outer = _outermost(ops)
    start, dur = (int_column(outer, name, 0) for name in ("start_ns", "dur_ns"))
    gap, clear = _gaps(outer, start, start + dur, issued)
    texts = outer.select(["op", "layer", "source", "step"]).to_pandas(strings_to_categorical=False)
    texts = texts.astype(dict.fromkeys(("op", "layer", "source"), object))
    at = np.searchsorted(issued, start, "left")
    following = np.append(known["instance_id"].to_numpy(np.int64), _NONE)[at]
    base = texts.assign(rank=rank, instance=following, start_ns=start)
    both = [base.assign(kind="op", ns=dur), base.assign(kind="host", ns=gap)[clear]]
    found = pd.concat(both, ignore_index=True).sort_values("start_ns", kind="stable")
    found["n"] = found.groupby(["instance", "op", "kind"], observed=True).cumcount()
    known_next: pd.DataFrame = found[found["instance"] != _NONE]
    return known_next


def _outermost(ops: pa.Table) -> pa.Table:
    """Return the ops in no other one, in order of time on each thread; not those of workers."""
    keep = pc.and_(
        ops["parent_op_id"].is_null(),
        pc.invert(pc.starts_with(ops["op"].cast(pa.string()), _OF_WORKERS)),
    )
    return ops.filter(keep).sort_by([(c, "ascending") for c in ("pid", "tid", "start_ns")])


def _gaps(outer: pa.Table, start: Int, end: Int, issued: Int) -> tuple[Int, Bool]:
    """Return the gap before each op on its thread, and the gaps without a collective issued."""
    if not len(start):
        return start, np.zeros(0, bool)
    same = np.zeros(len(start), bool)
    same[1:] = True
    for name in ("pid", "tid"):
        column = int_column(outer, name, 0)
        same[1:] &= column[1:] == column[:-1]
    before, begins = np.roll(end, 1), np.roll(start, 1)
    handed = np.searchsorted(issued, start, "left") - np.searchsorted(issued, begins, "left")
    return np.maximum(start - before, 0), same & (handed == 0)


def host_blame(
    found: Sequence[pd.DataFrame], members: pd.DataFrame, roles: Mapping[int, Any]
) -> pd.DataFrame:
    """Return for each collective the rank that was late for it, the worst first.

    It is the last one to arrive, where that is known, else the one whose host exceeded the others
    of its role most; with fewer than two others there is no excess.

    Args:
        found: stretches, of each rank.
        members: of all ranks: `instance_id`, `rank`, `last_rank`, `margin_ns`.
        roles: of each rank.

    Returns:
        columns `BLAME`; `excess_ns` is that of all stretches that took longer than the median of
        the others, `worst_ns` and the place those of the longest of them.
    """
    frame = pd.concat(found, ignore_index=True)
    frame = frame.assign(role=frame["rank"].map(roles).map(str))
    frame["excess"] = _excess(frame)
    last = members.dropna(subset=["last_rank"]).drop_duplicates("instance_id")
    late = dict(zip(last["instance_id"], last["last_rank"], strict=True))
    margin = dict(zip(last["instance_id"], last["margin_ns"], strict=True))
    sums = frame.assign(over=frame["excess"].clip(lower=0)).groupby(
        ["instance", "rank"], observed=True
    )
    total = sums[["over", "ns"]].sum().reset_index().sort_values("over", kind="stable")
    rows = []
    for instance, own in total.groupby("instance", observed=True):
        by = own[own["rank"] == late[instance]] if instance in late else own
        if not len(by) or by["over"].iloc[-1] <= 0:
            continue
        rank = by["rank"].iloc[-1]
        part = frame[(frame["instance"] == instance) & (frame["rank"] == rank)]
        worst = part.loc[part["excess"].idxmax()]
        rows.append(
            {"rank": rank, "instance": instance, "margin_ns": margin.get(instance),
             "ns": by["ns"].iloc[-1], "excess_ns": by["over"].iloc[-1],
             "worst_ns": worst["excess"], "kernel": None, "cause": None,
             **{name: worst[name] for name in ("kind", "op", "layer", "source", "step")}}
        )  # fmt: skip
    blame = pd.DataFrame(rows, columns=BLAME).astype({"instance": "Int64", "margin_ns": "Int64"})
    return blame.sort_values("excess_ns", ascending=False, kind="stable").reset_index(drop=True)


def _excess(frame: pd.DataFrame) -> pd.Series:
    """Return each stretch less the median of the others' same one; null with too few others."""
    by = frame.groupby([*_SAME, "role"], dropna=False, observed=True)["ns"]
    values = pd.Series(np.nan, frame.index)
    for _, own in by:
        if len(own) <= _FEWEST_PEERS:
            continue
        times = own.to_numpy(np.float64)
        for place, index in enumerate(own.index):
            values[index] = times[place] - float(np.median(np.delete(times, place)))
    return values
