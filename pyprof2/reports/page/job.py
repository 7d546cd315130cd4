"""Many ranks on the page, and the critical path of one: figures of `ranks` and `whatif`.

A job may have a thousand ranks: those that stand out come first, the others in groups, so that
neither the data nor what is shown of it grows without end.
"""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.job import what_if
from pyprof2.analysis.job.critical_path import path_sums
from pyprof2.analysis.job.slow_ranks import EXCESS_MIN
from pyprof2.frames import shown_line
from pyprof2.reports.page.values import numbers, table
from pyprof2.reports.ranks import answers, by_rank, notes_on, sentences

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyprof2.analysis.job.what_if import Gain
    from pyprof2.api.job import JobOfRanks
    from pyprof2.api.run import Run

MOST_OWNERS: Final = 48
"""Rows of the heat map; of more ranks `ALONE` stand alone, and the others in groups."""
ALONE: Final = 32
MOST_STEPS: Final = 100
"""Columns of it; of more steps each column is several, and shows the largest value."""
MOST_PATH: Final = 1000
_TOO_LARGE: Final = (
    "more work than a report replays: pyprof2 ranks --by blame and pyprof2 whatif do"
)
MOST_BLAME: Final = 200
_SCALED: Final = 3
HEAT: Final = (
    "window_ns", "compute_ns", "exposed_wait_ns", "exposed_transfer_ns", "comm_only_ns", "idle_ns",
)  # fmt: skip
_PATH: Final = ("rank", "kind", "op", "kernel", "layer", "source")


def job_of(run: Run, store: Path) -> dict[str, Any] | None:
    """Return the facts of all ranks together; None for one rank whose device did nothing.

    Args:
        run: the run.
        store: how the user named it, for command lines.
    """
    job = run.ranks
    has_work = not run.summary["no_gpu"] and not job.parts.empty
    if not has_work and len(job.roles) < 2:
        return None
    found: dict[str, Any] = {"answers": answers(job)}
    if not has_work:
        return found | {"sentences": [], "ranks": None, "heat": None} | _not_replayed([])
    ranks = by_rank(job)
    found |= {
        "sentences": list(sentences(job)),
        "ranks": table(ranks),
        "heat": heat_of(job.parts, standing_out(job, ranks)),
    }
    if job.is_replayed:
        return found | _replayed(job, store)
    why_not = _TOO_LARGE if job.not_one_job is None else job.not_one_job
    return found | _not_replayed([why_not])


def _not_replayed(notes: list[str]) -> dict[str, Any]:
    return dict.fromkeys(("window_ns", "path", "blame", "whatif")) | {"notes": notes}


def _replayed(job: JobOfRanks, store: Path) -> dict[str, Any]:
    show = {"source": lambda line: shown_line(line, job.run.source_roots)}
    blame = job.blame.head(MOST_BLAME if len(job.roles) > 1 else 0)
    blame = blame.rename(columns={"ns": "time_ns"})
    gains = list(_gains(job, store))
    frame = what_if.gains_frame([each.gain for each in gains])
    frame = frame.assign(command=pd.Series([each.command for each in gains], dtype=object))
    is_known = not job.clock_error_ns
    blamed = table(blame.drop(columns="step", errors="ignore"), show)
    if len(blame):
        blamed["columns"]["step"] = numbers(blame["step"])
    return {
        "window_ns": job.graph.window_ns,
        "path": table(path_rows(job.critical_path, job.graph.window_ns), show)
        if is_known
        else None,
        "blame": blamed if len(blame) and is_known else None,
        "whatif": table(frame),
        "notes": list(notes_on(frame)),
    }


def path_rows(path: pd.DataFrame, window_ns: int) -> pd.DataFrame:
    """Return the critical path summed by owner, the most first; it adds up to the window.

    Args:
        path: its stretches.
        window_ns: the sum of all of them.

    Returns:
        `_PATH`, `time_ns`, `count`, `share_pct`; of more than `MOST_PATH` rows the rest is one, of
        kind `(others)`.
    """
    by = path.groupby(list(_PATH), dropna=False, observed=True)["ns"]
    sums = by.agg(["sum", "size"]).reset_index().rename(columns={"sum": "time_ns", "size": "count"})
    sums = sums.sort_values("time_ns", ascending=False, kind="stable", ignore_index=True)
    rest = sums.iloc[MOST_PATH:]
    if len(rest):
        more = {
            "kind": "(others)",
            "time_ns": int(rest["time_ns"].sum()),
            "count": int(rest["count"].sum()),
        }
        sums = pd.concat([sums.head(MOST_PATH), pd.DataFrame([more])], ignore_index=True)
    sums["rank"] = sums["rank"].astype("Int64")
    return sums.assign(share_pct=100 * sums["time_ns"] / max(1, window_ns))


class _Asked(NamedTuple):
    """A what-if, and the command line that gives it."""

    gain: Gain
    command: str


def _gains(job: JobOfRanks, store: Path) -> Iterator[_Asked]:
    """Give the gains of changes: slow ranks, all ideal, transfers, ops with most of the path."""
    base = f"pyprof2 whatif {shlex.quote(str(store))}{job.run.span_option}"
    slow = [*job.slow_ranks, *job.slower_of_two]
    for ranks, gain in {each.together or (each.rank,): each.gain for each in slow}.items():
        yield _Asked(gain, f"{base} --rank {' --rank '.join(map(str, ranks))}")
    graph = job.graph
    if len(job.roles) > 1:
        ideal = job.gain("all ranks ideal", lambda: what_if.all_ideal(graph, job.roles))
        yield _Asked(ideal, f"{base} --ideal")
    if (graph.instance >= 0).any():
        for factor in (0.5, 0.0):
            transfers = partial(what_if.scale_transfers, graph, factor)
            gain = job.gain(f"transfers × {factor:g}", transfers)
            yield _Asked(gain, f"{base} --transfers {factor:g}")
    # The ops whose kernels are most of the path.
    path = job.critical_path
    own = path[(path["kind"] == "kernel") & path["op"].notna() & path["instance"].isna()]
    for op in path_sums(own, ["op"])["op"].head(_SCALED) if len(own) else ():
        plain = [f"\\{char}" if char in r"\^$.|?*+()[]{}" else char for char in str(op)]
        pattern = f"^{''.join(plain)}$"
        gain = what_if.evaluate(graph, what_if.scale(graph, "op", pattern, 0.5))
        yield _Asked(gain, f"{base} --scale {shlex.quote(f'op={pattern}=0.5')}")
    yield _Asked(what_if.perfect_overlap(graph), f"{base} --overlap")


def standing_out(job: JobOfRanks, ranks: pd.DataFrame) -> list[int]:
    """Return the ranks, those that a replay blames first, then by how far their times stand out."""
    cost = {slow.rank: slow.gain.gain_ns or 0 for slow in job.slow_ranks} if job.is_replayed else {}
    excess = ranks[["busy_excess_pct", "host_excess_pct"]].max(axis=1).fillna(0)
    excess = excess.where(excess > 100 * EXCESS_MIN, 0)
    order = pd.DataFrame({"rank": ranks["rank"], "excess": -excess})
    order["cost"] = [-cost.get(rank, 0) for rank in ranks["rank"]]
    return order.sort_values(["cost", "excess", "rank"])["rank"].astype(int).tolist()


def heat_of(parts: pd.DataFrame, order: list[int]) -> dict[str, Any]:
    """Return the heat map: a row for each rank and device, or group of them, a column per step.

    Args:
        parts: the windows of all ranks' devices.
        order: the ranks, those that stand out first.

    Returns:
        `rows`: `label`, `ranks`, of each; `steps`: the label of each column; `cells`: table `row,
        column` and `HEAT`, of a group the medians of its ranks, of several steps the largest.
    """
    place = {rank: at for at, rank in enumerate(order)}
    frame = parts.assign(device=parts["device"].fillna(-1).astype("int64"))
    owners = frame[["rank", "device"]].drop_duplicates()
    owners = owners.assign(_at=owners["rank"].map(place)).sort_values(["_at", "device"])
    rows, row_of = _rows(list(owners[["rank", "device"]].itertuples(index=False, name=None)))
    steps, column_of = _columns(frame["step"])
    keys = zip(frame["rank"], frame["device"], strict=True)
    cells = frame[list(HEAT)].astype("Float64")
    cells = cells.assign(row=[row_of[key] for key in keys], column=column_of, owner=frame["rank"])
    # A column has the largest of its steps for each owner, a row the median of its owners.
    of_owner = cells.groupby(["row", "column", "owner"], observed=True)[list(HEAT)].max()
    values = (
        of_owner.groupby(["row", "column"], observed=True)
        .median()
        .round()
        .astype("Int64")
        .reset_index()
    )
    return {"rows": rows, "steps": steps, "cells": table(values)}


def _rows(owners: list[tuple[int, int]]) -> tuple[list[dict[str, Any]], dict[tuple[int, int], int]]:
    devices = len({device for _, device in owners}) > 1
    groups = [[owner] for owner in owners]
    if len(owners) > MOST_OWNERS:
        rest = sorted(owners[ALONE:])
        sizes = np.array_split(np.arange(len(rest)), MOST_OWNERS - ALONE)
        groups = [*groups[:ALONE], *([rest[at] for at in own] for own in sizes)]
    rows = [
        {"label": _label(own, devices=devices), "ranks": sorted({rank for rank, _ in own})}
        for own in groups
    ]
    return rows, {owner: at for at, own in enumerate(groups) for owner in own}


def _label(owners: list[tuple[int, int]], *, devices: bool) -> str:
    rank, device = owners[0]
    if len(owners) == 1:
        return f"rank {rank}, device {device}" if devices else f"rank {rank}"
    return f"{len(owners)} of ranks {rank}\N{EN DASH}{owners[-1][0]}, median"


def _columns(steps: pd.Series) -> tuple[list[str], list[int]]:
    numbers_of = sorted(steps.dropna().astype(int).unique().tolist())
    blocks = np.array_split(np.array(numbers_of, int), min(MOST_STEPS, max(1, len(numbers_of))))
    labels = [
        "all" if not len(own) else str(own[0]) if len(own) == 1
        else f"{own[0]}\N{EN DASH}{own[-1]}, largest"
        for own in blocks
    ]  # fmt: skip
    column_of = {step: at for at, own in enumerate(blocks) for step in own.tolist()}
    return labels, [column_of.get(int(s), 0) if pd.notna(s) else 0 for s in steps]
