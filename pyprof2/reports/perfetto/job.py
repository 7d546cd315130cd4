"""Tracks of the job: collectives, waits, and the critical path with who is to blame.

Findings are here as well, each at the rows that are its evidence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.recording import code_column, int_column
from pyprof2.reports.perfetto.rank import FINDINGS, JOB, TIMES, Rank, lane_name
from pyprof2.reports.perfetto.slices import constant
from pyprof2.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyprof2.analysis.intervals import Int
    from pyprof2.api.job import JobOfRanks
    from pyprof2.reports.perfetto.packets import Ints
    from pyprof2.store.parts import TableParts

_MEMBER: Final = (
    "kind", "group_desc", "group_key", "group_size", "seq", "in_bytes", "out_bytes", "dtype",
)  # fmt: skip
_FOUND: Final = ("wait_ns", "transfer_ns", "last_rank", "margin_ns", "instance_id", "match")
_STRETCH: Final = ("kind", "op", "layer", "source", "kernel", "step", "instance", "excess_ns")
_PATH, _BLAME, _COLLECTIVES, _WAITS = range(4)
_TEXTS: Final = (
    "kind", "group_desc", "group_key", "dtype", "match", "op", "layer", "source", "kernel",
)  # fmt: skip


def write_job(rank: Rank, job: JobOfRanks, *, replayed: bool) -> None:
    """Write a rank's collectives, waits and critical path, on its own clock, below track `job`.

    Args:
        rank: which one.
        job: all of them.
        replayed: whether to write the critical path and the blame, too.
    """
    members = _members(rank, job)
    _write(rank, members, "collectives", _COLLECTIVES, (*_MEMBER, *_FOUND), lambda row: row["kind"])
    waits = members[(members["wait_ns"] > 0).fillna(value=False)]
    waits = waits.assign(dur_ns=waits["wait_ns"].astype("int64"))
    _write(rank, waits, "waits", _WAITS, (*_MEMBER, *_FOUND), _waits_for)
    if not replayed:
        return
    path = _path(rank, job)
    shown = _STRETCH if len(job.roles) > 1 else _STRETCH[:-1]
    _write(rank, path, "critical path", _PATH, shown, _stretch_name)
    if len(job.roles) > 1:
        late = path[(path["excess_ns"] > 0).fillna(value=False)]
        _write(rank, late, "blame", _BLAME, shown, _blame_name)


def _members(rank: Rank, job: JobOfRanks) -> pd.DataFrame:
    """Return the members of a rank, matched where they are."""
    columns = ["collective_id", "start_ns", "dur_ns", *_MEMBER]
    own = rank.tables.read("collectives", columns).to_pandas()
    found = job.members[job.members["rank"] == rank.tables.rank].set_index("collective_id")
    matched = found[list(_FOUND)].reindex(own["collective_id"]).reset_index(drop=True)
    frame: pd.DataFrame = pd.concat([own, matched], axis=1)
    return frame


def _path(rank: Rank, job: JobOfRanks) -> pd.DataFrame:
    """Return the stretches of the critical path that run on a rank, on its own clock."""
    several = len(job.roles) > 1
    path = job.path_excesses if several else job.critical_path
    own = path[path["rank"] == rank.tables.rank].reset_index(drop=True)
    start = unaligned(job.reduced.align(rank.tables.rank), own["start_ns"].to_numpy(np.int64))
    found = own.assign(start_ns=start, dur_ns=own["ns"])
    return found.assign(excess_ns=found["excess_ns"].round()) if several else found


def unaligned(align: Callable[[Int], Int], time: Int) -> Int:
    """Return the times on a rank's own clock that are `time` on that of the reference.

    A clock's drift is some ppm, so that one correction leaves less than a ns.
    """
    guess: Int = time - (align(time) - time)
    found: Int = guess - (align(guess) - time)
    return found


def _waits_for(row: pd.Series) -> str:
    last = row["last_rank"]
    return "waits" if pd.isna(last) else f"waits for rank {int(last)}"


def _stretch_name(row: pd.Series) -> str:
    words = [row["kind"], *(w for w in (row["op"] or row["kernel"],) if isinstance(w, str))]
    return " ".join(words)


def _blame_name(row: pd.Series) -> str:
    return f"+{format_time(round(row['excess_ns']))}: {_stretch_name(row)}"


def _write(
    rank: Rank, found: pd.DataFrame, name: str, place: int, shown: Sequence[str],
    words: Callable[[pd.Series], str],
) -> None:  # fmt: skip
    """Write rows as slices of one track; nothing where there are none."""
    if found.empty:
        return
    columns = {n: pa.array(found[n].astype("int64")) for n in ("start_ns", "dur_ns")}
    for n in shown:
        if n in _TEXTS:
            plain = found[n].astype(object)
            texts = pa.array(plain.where(plain.notna(), None), pa.string())
            columns[n] = texts.dictionary_encode()
        else:
            columns[n] = pa.array(found[n].astype("Int64"))
    columns["name"] = pa.array([words(row) for _, row in found.iterrows()]).dictionary_encode()
    table = pa.table(columns)
    group = rank.writer.track("job", rank.root, place=JOB)

    def track(_: int, lane: int) -> int:
        return rank.writer.track(lane_name(name, lane), group, place=place)

    parents = np.zeros(len(found), np.int64)
    rank.write_slices(table, code_column(table, "name"), parents, track, shown)


_EVIDENCE: Final = re.compile(r"(?<!\w)(\w+):([\d,]+)")
_KEYS: Final = {
    "kernels": "kernel_id", "copies": "kernel_id", "ops": "op_id", "launches": "launch_id",
    "ranges": "range_id", "stalls": "stall_id",
}  # fmt: skip
_SHOWN: Final = (
    "finding", "severity", "at_stake_lo_ns", "at_stake_hi_ns", "expected_ns", "limit", "source",
    "remedy", "evidence",
)  # fmt: skip


def write_findings(rank: Rank, found: Sequence[Mapping[str, Any]]) -> None:
    """Write findings, each on a track of its own.

    A finding is shown at the rows that it names as evidence; one that
    names none is shown over all that was recorded.

    Args:
        rank: whose.
        found: rows of the table of findings that fire, None for null.
    """
    for at, finding in enumerate(found):
        group = rank.writer.track("findings", rank.root, place=FINDINGS)
        parts = list(_evidence(rank, finding["evidence"] or "")) or [_recorded(rank)]
        start, duration = (np.concatenate(column) for column in zip(*parts, strict=True))
        table = pa.table({"start_ns": start, "dur_ns": duration})
        for name in _SHOWN:
            kind = pa.int64() if name.endswith("_ns") else pa.string()
            column = pa.array([finding[name]] * table.num_rows, kind)
            column = column if kind == pa.int64() else column.dictionary_encode()
            table = table.append_column(name, column)
        rule: str = finding["rule"]

        def track(_: int, lane: int, rule: str = rule, at: int = at, group: int = group) -> int:
            return rank.writer.track(lane_name(rule, lane), group, place=at)

        title = constant(rule, table.num_rows)
        rank.write_slices(table, title, np.zeros(table.num_rows, np.int64), track, _SHOWN)


def _recorded(rank: Rank) -> tuple[Ints, Ints]:
    trace = rank.tables.read("trace", ["start_ns", "end_ns"])
    start, end = pc.min(trace["start_ns"]).as_py() or 0, pc.max(trace["end_ns"]).as_py() or 0
    return np.array([start]), np.array([max(0, end - start)])


def _evidence(rank: Rank, text: str) -> Iterator[tuple[Ints, Ints]]:
    """Yield start and duration of the rows that a finding names, if there are any."""
    for name, numbers in _EVIDENCE.findall(text):
        ids = np.array([int(number) for number in numbers.split(",") if number], np.int64)
        if name in _KEYS:
            yield from _times_of(rank.parts(name), _KEYS[name], ids)


def _times_of(table: TableParts, key: str, ids: Ints) -> Iterator[tuple[Ints, Ints]]:
    least, greatest = table.bounds(key)
    for part in range(len(table)):
        if ((least[part] <= ids) & (ids <= greatest[part])).any():
            found = table.read(part, [key, *TIMES])
            own = found.filter(pc.is_in(found[key], pa.array(ids)))
            start, duration = (int_column(own, name, 0) for name in TIMES)
            yield start, duration
