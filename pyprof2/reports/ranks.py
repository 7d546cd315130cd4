"""Many ranks, and gains of changes, as text for people or as a file.

"Which rank is slow?" is answered in a sentence: there always is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.job.critical_path import path_sums
from pyprof2.analysis.job.rank_parts import PARTS
from pyprof2.analysis.job.slow_ranks import BUSY, GAIN_MIN, ON_HOST, cost_words
from pyprof2.analysis.job.waits import least_rates, payload, transfer_floors
from pyprof2.analysis.job.what_if import INFERRED, MODEL_ERROR_MAX, NOT_MODELLED
from pyprof2.analysis.time.host_clock import clock_words
from pyprof2.columns import with_text
from pyprof2.errors import refuse
from pyprof2.frames import shown_line
from pyprof2.reports import cells, files
from pyprof2.reports.heading import several_devices
from pyprof2.reports.table import drawn, with_short_lines
from pyprof2.result_tables import CLOCKS
from pyprof2.tables import COLLECTIVES, TEXT
from pyprof2.units import counted, format_time, longer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyprof2.analysis.job.slow_ranks import SlowRank
    from pyprof2.api.job import JobOfRanks
    from pyprof2.api.run import Run
    from pyprof2.reports.files import Target

_ROWS_SHOWN: Final = 40
_NOTES_SHOWN: Final = 3
_TIMES: Final = (
    "window_ns", *(f"{part}_ns" for part in PARTS), "exposed_wait_ns", "exposed_transfer_ns",
    "exposed_unmatched_ns", "compute_ns", "comm_ns",
)  # fmt: skip
_OF_RANK: Final = (
    "rank", "verdict", "window_ns", "compute_only_ns", "exposed_wait_ns", "exposed_transfer_ns",
    "comp_comm_ns", "idle_ns", "busy_excess_pct", "host_excess_pct", "exposed_unmatched_ns",
    "copy_only_ns", "overlap_pct", "copy_overlap_ns", "windows",
)  # fmt: skip
"""The columns of the table of ranks; those from the sixth on only where any is not 0."""
_OF_STEP: Final = ("rank", "step", "device", "window_ns")
"""The first columns of the table of steps, which are always shown."""
_KNOWN: Final = {
    "collective": [c for c in COLLECTIVES.columns if c.name != "group_ranks"],
    "clock": [c for c in CLOCKS.columns if not c.name.endswith("_ns")],
}
"""The columns of the views that are tables of the store."""


@dataclass(frozen=True)
class RanksQuery:
    """Which view of the ranks to show, and where.

    Attributes:
        by: one of `VIEWS`.
        rank: only this one; None: all.
        top: how many rows; None: what suits the format.
        target: where to write.
    """

    by: str
    rank: int | None
    top: int | None
    target: files.Target


def by_rank(job: JobOfRanks) -> pd.DataFrame:
    """Return one row per rank: the sums of its parts over the steps, its scores, its verdict."""
    by = job.parts.groupby("rank", observed=True)
    frame = by[list(_TIMES)].sum(min_count=1).assign(windows=by.size())
    overlap = 100 * frame["comp_comm_ns"] / frame["comm_ns"].where(frame["comm_ns"] > 0)
    frame = frame.assign(overlap_pct=overlap.astype("float64"))
    for score in ("busy", "host"):
        rows = job.scores[job.scores["score"] == f"{score}_ns"].set_index("rank")
        frame[f"{score}_excess_pct"] = rows["excess_pct"].reindex(frame.index).astype("float64")
        frame[f"{score}_z"] = rows["z"].reindex(frame.index).astype("Float64")
    known = job.stragglers if job.is_replayed else pd.DataFrame({"rank": [], "verdict": []})
    said = known.set_index("rank")["verdict"].astype(object)
    return frame.assign(verdict=said.reindex(frame.index)).reset_index()


def _by_step(job: JobOfRanks) -> pd.DataFrame:
    """Return one row per rank, device and step: its time, in parts that add up to it."""
    others = [name for name in job.parts if name not in _OF_STEP]
    return job.parts[[*_OF_STEP, *others]]


def _by_collective(job: JobOfRanks) -> pd.DataFrame:
    """Return the members of all ranks; where others are not recorded, the most that was wait."""
    found = job.members.set_index(["rank", "collective_id"])
    whole = job.run.frame("collectives")
    keys = pd.MultiIndex.from_frame(whole[["rank", "collective_id"]])
    names = [
        "instance_id", "members_recorded", "wait_ns", "transfer_ns", "last_rank", "margin_ns",
        "match", "match_note",
    ]  # fmt: skip
    rows = found.reindex(keys)[names].reset_index(drop=True)
    ranks = whole["group_ranks"].map(_listed, na_action="ignore").astype(object)
    frame = whole.assign(group_ranks=ranks, **{name: rows[name] for name in names})
    most = (frame["dur_ns"] - transfer_floors(frame)).astype("Int64")
    return frame.assign(wait_most_ns=most.mask(frame["wait_ns"].notna()))


def _listed(ranks: Any) -> str:
    return ",".join(str(rank) for rank in ranks)


def _by_kind(job: JobOfRanks) -> pd.DataFrame:
    """Return one row per kind, group and size: how many, how long, how fast.

    `untimed_parts` counts the ranks' parts of which no transfer is known: they were not matched
    with those of other ranks, or clocks cannot be compared. Where that is so of all, those of each
    rank by themselves: their latency, and the rates that they had at least.
    """
    keys = ["kind", "group_key", "group_size", "bytes"]
    if not len(job.bandwidths):
        return _by_own_kind(job.run.frame("collectives"), keys)
    by = job.bandwidths.groupby(keys, dropna=False, observed=True)
    frame = by.agg(
        count=("instance_id", "size"), transfer_ns=("transfer_ns", "median"),
        least_ns=("least_ns", "min"), most_ns=("most_ns", "max"),
        algbw_gbps=("algbw_gbps", "median"), busbw_gbps=("busbw_gbps", "median"),
    )  # fmt: skip
    rest = job.members[job.members["transfer_ns"].isna()]
    parts = rest.assign(bytes=payload(rest)).groupby(keys, dropna=False, observed=True).size()
    frame = frame.reset_index().astype({"kind": object, "group_key": object})
    more = parts.rename("untimed_parts").reset_index().astype(frame[keys].dtypes)
    found = frame.merge(more, on=keys, how="outer")
    whole = found.astype({"count": "Int64", "untimed_parts": "Int64"})
    whole = whole.fillna({"count": 0, "untimed_parts": 0})
    return whole.sort_values("transfer_ns", ascending=False, ignore_index=True)


def _by_own_kind(every: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return one row per rank, kind, group and size: how many, how long, how fast at least."""
    frame = every.assign(bytes=payload(every).astype("Int64"), **least_rates(every))
    by = frame.groupby(["rank", *keys], dropna=False, observed=True)
    found = by.agg(
        count=("dur_ns", "size"), total_latency_ns=("dur_ns", "sum"),
        mean_latency_ns=("dur_ns", "mean"), least_algbw_gbps=("least_algbw_gbps", "median"),
        least_busbw_gbps=("least_busbw_gbps", "median"),
    ).reset_index()  # fmt: skip
    return found.sort_values("total_latency_ns", ascending=False, ignore_index=True)


def _by_op(job: JobOfRanks) -> pd.DataFrame:
    """Return one row per rank and op that communicates: calls, bytes, latency and transfer.

    A sum of which a part is not known is not known.
    """
    every = _by_collective(job)
    sums = {"bytes": "in_bytes", "latency_ns": "dur_ns", "transfer_ns": "transfer_ns"}
    by = every.groupby(["rank", "op", "kind"], dropna=False, observed=True)
    count = by.size()
    frame = pd.DataFrame({"count": count})
    for name, column in sums.items():
        total = by[column].sum().astype("Int64").where(by[column].count() == count)
        frame[f"total_{name}"] = total
        frame[f"mean_{name}"] = total.astype("Float64") / count
    return frame.reset_index()


def _by_match(job: JobOfRanks) -> pd.DataFrame:
    """Return how many members were matched in which way, and why others were not."""
    keys = ["rank", "kind", "match", "match_note"]
    members = job.members.astype(dict.fromkeys(keys[1:], object))
    found = members.groupby(keys, dropna=False, observed=True).size()
    return found.rename("count").reset_index()


VIEWS: Final[Mapping[str, Callable[[JobOfRanks], pd.DataFrame]]] = {
    "rank": by_rank,
    "step": _by_step,
    "collective": _by_collective,
    "kind": _by_kind,
    "op": _by_op,
    "layer": lambda job: job.traffic,
    "match": _by_match,
    "clock": lambda job: job.clock_frame,
    "score": lambda job: job.scores,
    "straggler": lambda job: job.stragglers,
    "imbalance": lambda job: job.imbalance,
    "bubble": lambda job: job.bubbles,
    "link": lambda job: job.slow_links,
    "path": lambda job: job.critical_path.drop(columns="event", errors="ignore"),
    "blame": lambda job: job.blame,
}
"""The views by name; the first is the default."""


def show(job: JobOfRanks, query: RanksQuery) -> None:
    """Write a view of the ranks.

    Raises:
        UsageError: the rank was not recorded.
    """
    rows = VIEWS[query.by](job)
    if query.rank is not None:
        job.run.of(query.rank)
        if "rank" not in rows:
            refuse(f"--by {query.by} has rows of several ranks: leave --rank out")
        rows = rows[rows["rank"] == query.rank].reset_index(drop=True)
    target = query.target
    if not target.is_text:
        known = _KNOWN.get(query.by, ())
        # A column of nulls alone would have no type.
        typed = with_text(rows, [str(name) for name in rows if rows[name].dtype == object])
        coded = {column.name: "category" for column in known if column.type == TEXT}
        typed = typed.astype({name: kind for name, kind in coded.items() if name in typed})
        target.write_frame(typed, known, query.top)
        return
    # Which rank is slow comes before all else.
    said = (f"{text[:1].upper()}{text[1:]}." for text in answers(job))
    answer = map(cells.bold, cells.wrapped(said, target.line_width))
    heading = cells.wrapped(_heading(job), target.line_width)
    lines = [*answer, *heading, "", *_table(job, rows, query)]
    if query.by == "rank":
        lines += ["", *cells.wrapped(sentences(job), target.line_width)]
    target.write_lines(lines)


def _heading(job: JobOfRanks) -> Iterator[str]:
    members = job.members
    matched = int(members["instance_id"].notna().sum())
    steps = job.parts["step"].nunique() or members["step"].nunique()
    yield (
        f"{counted(len(job.roles), 'rank')}, {counted(steps, 'step')}, "
        f"{counted(len(members), 'part')} in collectives, {matched:,} of them matched with those "
        "of other ranks"
    )


def _table(job: JobOfRanks, rows: pd.DataFrame, query: RanksQuery) -> list[str]:
    count = query.top or _ROWS_SHOWN
    shown = rows.head(count)
    if query.by == "rank":
        always = _OF_RANK[: _OF_RANK.index("comp_comm_ns")]
        some = [n for n in _OF_RANK if n in always or shown[n].fillna(0).astype(bool).any()]
        shown = shown[some]
    shown = shown.loc[:, shown.notna().any()] if len(shown) else shown
    if not len(shown.columns) or not len(shown):
        return ["nothing to show"]
    more = len(rows) - len(shown)
    rest = [f"{counted(more, 'more row')}: --top {len(rows)}"] if more else []
    always = _OF_STEP if query.by == "step" else tuple(map(str, shown))[:3]
    droppable = [str(name) for name in shown if name not in always][::-1]
    lines = with_short_lines(shown, job.run.source_roots)
    table = drawn(lines, query.target, droppable=droppable)
    if table.left_out:
        rest.append(f"columns that did not fit (-w): {', '.join(table.left_out)}")
    return [*table.lines, *cells.wrapped(rest, query.target.line_width)]


def sentences(job: JobOfRanks) -> Iterator[str]:
    """Give sentences on the parts of the time, and on the basis of the numbers."""
    if _unanswerable(job) is None:
        yield from _pairs(job)
    if job.not_one_job is None and (job.is_replayed or job.is_large):
        yield from _path(job)
    yield from _clocks(job)
    unmatched = job.members[job.members["match_note"].notna()]
    counts = unmatched["match_note"].value_counts()
    for note, count in counts.head(_NOTES_SHOWN).items():
        yield f"{count:,} of {counted(len(job.members), 'part')}: {note}"
    if job.members["wait_ns"].notna().any():
        yield (
            "wait is time before the last rank arrives, and no lost time: pyprof2 whatif says "
            "what is lost"
        )


_LEAST_SHOWN_PCT: Final = 0.05
"""Less is 0.0 % in words."""


def _pairs(job: JobOfRanks) -> Iterator[str]:
    """Say which of two ranks takes longer: two have no score."""
    if len(job.roles) != 2:
        return
    for score, what in (("busy_ns", "computes"), ("host_ns", "waits for its host")):
        rows = job.scores[job.scores["score"] == score].sort_values("time_ns")
        if len(rows) == 2 and rows["time_ns"].iloc[0] > 0:
            (other, less), (one, more) = rows[["rank", "time_ns"]].itertuples(index=False)
            ratio = 100 * (more / less - 1)
            if ratio < _LEAST_SHOWN_PCT or not job.is_much(more - less):
                yield f"rank {one} {what} as long as rank {other}"
                continue
            yield f"rank {one} {what} {longer(ratio, f'rank {other}')}"


def _path(job: JobOfRanks) -> Iterator[str]:
    """Give the shares of the critical path."""
    path, window = job.critical_path, job.window_ns
    if not len(path) or not window:
        return
    if job.clock_error_ns:
        yield f"no critical path: {clock_words(job.clock_error_ns)}"
        return
    sums = path_sums(path, ["kind"]).head(5)
    shares = [f"{kind} {100 * ns / window:.1f} %" for kind, ns in sums.itertuples(index=False)]
    yield f"critical path, {format_time(window)}: {', '.join(shares)}"
    if len(job.roles) > 1:
        of_rank = path_sums(path, ["rank"]).head(5)
        shares = [
            f"rank {r} {100 * ns / window:.1f} %" for r, ns in of_rank.itertuples(index=False)
        ]
        yield f"it runs on: {', '.join(shares)}"


def _clocks(job: JobOfRanks) -> Iterator[str]:
    clocks = job.clock_frame
    moved = clocks[clocks["applied"].astype(bool)]
    if len(moved):
        most = moved.iloc[int(moved["offset_ns"].abs().to_numpy().argmax())]
        error = format_time(int(moved["error_ns"].max()))
        by = format_time(int(abs(most["offset_ns"])))
        if len(moved) == 1:
            yield f"the clock of rank {most['rank']} is moved by {by}; its error is at most {error}"
        else:
            yield (
                f"clocks of {len(moved)} ranks are moved, that of rank {most['rank']} most, by "
                f"{by}; their error is at most {error}"
            )
    if len(clocks["component"].unique()) > 1:
        yield "times are not compared between ranks that share no collective: see --by clock"


_SHOWN: Final = (
    "what", "gain_ns", "lo_ns", "hi_ns", "gain_pct", "bound_ns", "model_error_pct", "note",
)  # fmt: skip


def show_gains(gains: pd.DataFrame, run: Run, target: Target) -> None:
    """Write the gains of changes to a run."""
    if not target.is_text:
        target.write_frame(gains)
        return
    frame = gains[list(_SHOWN)]
    frame = frame.loc[:, frame.notna().any()]
    window = int(gains["window_ns"].iloc[0])
    whole = f"{format_time(run.spent.recorded_ns)} recorded{several_devices(run)}"
    words = f"of {whole}, {format_time(window)} are replayed: from the first launch to the last end"
    first = cells.bold(words)
    table = drawn(frame, target, droppable=["model_error_pct"]).lines
    notes = cells.wrapped(notes_on(gains), target.line_width)
    target.write_lines([first, "", *table, "", *notes])


def notes_on(gains: pd.DataFrame) -> Iterator[str]:
    """Give the meanings of the columns, and the limits of the model."""
    yield "gain: by replay; lo, hi: without and with what was inferred of waits between streams"
    if gains["gain_ns"].isna().any():
        limit = f"{100 * MODEL_ERROR_MAX:g} %"
        alone = f"it stands alone where the replay is off by more than {limit}"
        yield f"bound: no more can be gained; {alone}"
    yield NOT_MODELLED


_NOT_REPLAYED: Final = (
    "what that costs is not replayed, for there is too much work: pyprof2 whatif --rank does"
)


def answers(job: JobOfRanks) -> list[str]:
    """Return which rank is slow, by how much, and in which op and line; the costliest first.

    The first sentence is the answer, whatever was recorded: if no rank is slow, the largest
    excess, or the reason why it is not known.
    """
    unknown = _unanswerable(job)
    if unknown is not None:
        return [unknown]
    found = [*job.slow_ranks, *job.slower_of_two] if job.is_replayed or job.is_large else []
    links = [*_links(job)]
    if not found:
        most, read, size = job.most_excess_pct, len(job.roles), job.world_size
        within = "" if most is None else f" by more than {max(most, 0.1):.1f} % of a step"
        known = f", of the {read} ranks of {size} that were read" if size > read else ""
        nobody = f"no rank is slow: none takes longer than the others{within}{known}"
        # Without a replay scores say which ranks stand out.
        rows = job.standing_out.sort_values("excess_ns", ascending=False).to_dict("records")
        by_score = [
            f"rank {row['rank']} is slow: it "
            f"{'computes' if row['score'] == BUSY else 'waits for its host'} "
            f"{format_time(round(row['excess_ns']))} longer in each step than the ranks of its "
            f"role; {_NOT_REPLAYED}"
            for row in ([] if job.is_replayed or job.is_large else rows)
        ]
        return [*by_score, *links, *_came_late(job)] or [nobody]
    found.sort(key=lambda slow: (not _costs(slow), -(slow.gain.gain_ns or slow.gain.bound_ns)))
    # Ranks that are late together are one sentence, for their cost is one.
    groups = {slow.together or (slow.rank,): slow for slow in found[::-1]}
    said = [_slow(job, slow) for slow in [*groups.values()][::-1]]
    if _costs(found[0]):
        return [*said, *links]
    if links:
        return [*links, *said]
    return [f"no rank makes any step 1 % longer; {said[0]}", *said[1:]]


def _listed_ranks(ranks: Sequence[int]) -> str:
    """Return ranks in words: `rank 3`, `ranks 0, 3 and 6`."""
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"


def _came_late(job: JobOfRanks) -> Iterator[str]:
    """Say which rank the others waited for at the beginning, as far as that is known."""
    late = job.came_late
    if late is not None:
        yield (
            f"no rank is slow, but {_listed_ranks(late.ranks)} came {format_time(late.late_ns)} "
            f"late into the recording, {100 * late.late_ns / job.window_ns:.1f} % of it, and the "
            "others waited in their first collective; why is not recorded: record the step before"
        )


def _unanswerable(job: JobOfRanks) -> str | None:
    """Return why ranks cannot be compared; None where they can."""
    ranks, size = sorted(job.roles), job.world_size
    if job.not_one_job is not None:
        return f"which rank is slow is not known: {job.not_one_job}"
    if len(ranks) == 1:
        alone = f"only rank {ranks[0]} of {size} was read" if size > 1 else "it is a job of one"
        needs = ": name the recordings of all ranks, one file each" if size != 1 else ""
        alone = alone if size else f"only rank {ranks[0]} was read"
        return f"which rank is slow is not known from one rank: {alone}{needs}"
    if not job.is_matched:
        notes = job.members["match_note"].dropna().value_counts()
        why = f": {notes.index[0] if len(notes) else 'none is recorded'}"
        return (
            "which rank is slow is not known, because no collective of one rank was matched with "
            f"those of others{why}; so it is not known which rank waits for which"
        )
    if job.scores.empty or not (job.scores["peers"] > 0).any():
        return (
            "which rank is slow is not known: no two ranks communicate in groups of the same "
            "kinds and sizes, so none does the work of another; --by bubble has what each waits"
        )
    return None


def _costs(slow: SlowRank) -> bool:
    return slow.verdict is None or slow.is_straggler


def _slow(job: JobOfRanks, slow: SlowRank) -> str:
    """Return how a rank stands out, where, and the cost."""
    what = f"{slow.what}{place_words(job, slow)}"
    if not _costs(slow):
        return f"rank {slow.rank} {what}; that is {cost_words(slow)}"
    head = f"rank {slow.rank} is {'slow' if slow.other is None else 'the slower one'}: it {what}"
    wait = f"{counted(slow.waiting, 'rank')} waited for it, and " if slow.waiting else ""
    would = f"{wait}as the others it would save"
    if slow.together:
        own = (each for each in job.slow_ranks if each.rank in slow.together)
        each = (f"rank {one.rank} {one.what}{place_words(job, one)}" for one in own)
        head = f"{_listed_ranks(slow.together)} are slow: {'; '.join(each)}"
        would = "as the others these together would save"
    share = slow.gain.gain_pct
    if share is None:
        return f"{head}; {wait}what that costs is not known, {cost_words(slow)}"
    share_words = f"{share:.1f} % of the recording"
    if slow.gain.note and INFERRED in slow.gain.note:
        share_words += f"; {INFERRED}"
    return f"{head}; {would} {cost_words(slow)}, {share_words}"


def place_words(job: JobOfRanks, slow: SlowRank) -> str:
    """Return in which call, and at which line, most of a rank's excess is."""
    place = slow.place
    if place is None:
        return ""
    late = place.kind in ON_HOST and place.cause in {None, "host_unrecorded"}
    line = line_of(job, slow)
    call = f"{'before' if late else 'in'} {place.op}" if place.op else ""
    where = " ".join(word for word in (call, f"at {line}" if line else "") if word)
    cause = f"{place.cause.replace('_', ' ')}, " if place.cause else ""
    time = format_time(round(place.excess_ns))
    return f", most of it {where or 'in its own work'} ({cause}{time} of the critical path)"


def line_of(job: JobOfRanks, slow: SlowRank) -> str | None:
    """Return the line that most of a slow rank's excess belongs to, as to be shown."""
    source = slow.place.source if slow.place else None
    return None if source is None else shown_line(source, job.run.source_roots)


def _links(job: JobOfRanks) -> Iterator[str]:
    """Say which of two groups of ranks transfers longer, by how much, and the cost."""
    slower = job.slower_of_two_groups
    if slower.empty or not job.is_replayed:
        return
    gain = job.gain_of_links()
    if gain.lo_ns is not None and gain.lo_ns < GAIN_MIN * gain.window_ns:
        return
    row = slower.iloc[int(slower["transfer_ns"].to_numpy(float).argmax())]
    one, other = (
        ", ".join(map(str, sorted(job.ranks_of(str(row[name])))))
        for name in ("group_key", "other_key")
    )
    size = "" if math.isnan(row["bytes"]) else f" of {int(row['bytes'])} bytes"
    took, less = (format_time(round(row[name])) for name in ("transfer_ns", "other_ns"))
    head = (
        f"the ranks {one} have the slower link: {row['kind']}{size} among them transfers in "
        f"{took}, {row['ratio']:.2f} times as long as among the ranks {other} ({less})"
    )
    if gain.gain_ns is None or gain.lo_ns is None or gain.hi_ns is None or gain.gain_pct is None:
        yield f"{head}; what that costs is not known, at most {format_time(gain.bound_ns)}"
        return
    most, lo, hi = (format_time(ns) for ns in (gain.gain_ns, gain.lo_ns, gain.hi_ns))
    share = f"{gain.gain_pct:.1f} % of the recording"
    yield f"{head}; as those it would save {most} ({lo} to {hi}), {share}"
