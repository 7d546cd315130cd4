"""The answer to "Which rank is slow?", in a sentence: there always is one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.job.slow_ranks import BUSY, GAIN_MIN, ON_HOST, cost_words
from pyprof2.analysis.job.what_if import INFERRED
from pyprof2.frames import shown_line
from pyprof2.units import counted, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.job.slow_ranks import SlowRank
    from pyprof2.api.job import JobOfRanks

_NO_TIES: Final = "no collective was matched, so it is not known whether other ranks wait for it"
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
        return [*by_score, *links] or [nobody]
    found.sort(key=lambda slow: (not _costs(slow), -(slow.gain.gain_ns or slow.gain.bound_ns)))
    said = [_slow(job, slow) for slow in found]
    if _costs(found[0]):
        return [*said, *links]
    if links:
        return [*links, *said]
    return [f"no rank makes any step 1 % longer; {said[0]}", *said[1:]]


def _unanswerable(job: JobOfRanks) -> str | None:
    """Return why ranks cannot be compared; None where they can."""
    ranks, size = sorted(job.roles), job.world_size
    if len(ranks) == 1:
        alone = f"only rank {ranks[0]} of {size} was read" if size > 1 else "it is a job of one"
        needs = ": name the recordings of all ranks, one file each" if size != 1 else ""
        alone = alone if size else f"only rank {ranks[0]} was read"
        return f"which rank is slow is not known from one rank: {alone}{needs}"
    if job.has_no_work and not job.is_matched:
        return (
            "which rank is slow is not known: no work of a device, and no collective that was "
            "matched, was recorded of any rank"
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
    if not job.is_matched:
        return f"{head}; {_NO_TIES}"
    wait = f"{counted(slow.waiting, 'rank')} waited for it, and " if slow.waiting else ""
    share = slow.gain.gain_pct
    if share is None:
        return f"{head}; {wait}what that costs is not known, {cost_words(slow)}"
    share_words = f"{share:.1f} % of the recording"
    if slow.gain.note and INFERRED in slow.gain.note:
        share_words += f"; {INFERRED}"
    return f"{head}; {wait}as the others it would save {cost_words(slow)}, {share_words}"


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
