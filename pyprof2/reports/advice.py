"""Findings as text, for people, or as a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.summaries.advice import alike
from pyprof2.api import run_time
from pyprof2.columns import as_text
from pyprof2.errors import UsageError
from pyprof2.frames import shown_line
from pyprof2.reports import cells, files
from pyprof2.reports.heading import disturbances, sentence, step_numbers
from pyprof2.reports.table import drawn
from pyprof2.result_tables import ADVICE
from pyprof2.units import format_time, time_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyprof2.api.run import Run
    from pyprof2.units import Unit

_NOTHING: Final = "neither work of a device nor an op was recorded, so there is nothing to advise"
_OF_CPU: Final = (
    "the recorded memory is the CPU's, and rules on memory are for a GPU's: pyprof2 memory shows "
    "what grows, and what forward keeps for backward"
)
_OVERLAP: Final = "Times at stake overlap: do not add them up."
_BOUNDS_SHOWN: Final = 8
_SHOWN: Final = ("rank", "rule", "severity", "finding", "gain", "source", "remedy", "evidence")


@dataclass(frozen=True)
class AdviceQuery:
    """Which findings to show, and where.

    Attributes:
        rank: only this one; None: all.
        target: where to write.
    """

    rank: int | None
    target: files.Target


def show(run: Run, query: AdviceQuery) -> None:
    """Write the findings.

    Raises:
        UsageError: the rank was not recorded.
    """
    findings, bounds = _of_rank(run.advise(), run.gain_bounds, query.rank)
    target = query.target
    if not target.is_text:
        target.write_frame(findings, ADVICE.columns)
        return
    if bounds.empty:
        target.write_lines([_NOTHING])
        return
    roots = run.tables.source_roots
    lines = [shown_line(s, roots) if isinstance(s, str) else "" for s in findings["source"]]
    findings = findings.assign(source=lines)
    if target.form == "markdown":
        target.write_lines(_markdown(findings, bounds))
    else:
        width = target.line_width
        lines = [*_first(run, query, width), *_text(findings, bounds, width)]
        if run_time.idle_windows(run.tables).empty and run.table("memory").num_rows:
            lines += _wrap(_OF_CPU, width)
        target.write_lines(lines)


def _first(run: Run, query: AdviceQuery, width: int) -> Iterable[str]:
    """Return the sentence on the whole recording, and a blank line; nothing of a rank of it."""
    if query.rank is not None:
        return []
    return [*_wrap(sentence(run, disturbances(run.advise())), width), ""]


def _of_rank(
    findings: pd.DataFrame, bounds: pd.DataFrame, rank: int | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    if rank is None or bounds.empty:
        return findings, bounds
    ranks = bounds["rank"].tolist()
    if rank not in ranks:
        there = ", ".join(map(str, ranks))
        msg = f"rank {rank}: no device of such a rank was recorded; ranks with one: {there}"
        raise UsageError(msg)
    return findings[findings["rank"] == rank], bounds[bounds["rank"] == rank]


def _text(findings: pd.DataFrame, bounds: pd.DataFrame, width: int) -> Iterator[str]:
    """Give each finding that fires, then what cannot be judged, then the gain of all together."""
    of_rank = {bound["rank"]: bound for bound in bounds.to_dict("records")}
    rows = alike(findings)
    for row in (row for row in rows if row["status"] == "fires"):
        place = f"{ranks_text(row['ranks'])}, most in rank {row['rank']}: "
        if len(row["ranks"]) == 1:
            place = place.partition(",")[0] + ": "
        place = place if len(of_rank) > 1 else ""
        head = f"{row['severity']:7}"
        yield from _wrap(f"{row['rule']}: {place}{row['finding']}", width, head, " " * 7)
        details = (
            ("gain", _gain(row, of_rank[row["rank"]])), ("source", row["source"]),
            ("do", row["remedy"]), ("see", row["evidence"]),
        )  # fmt: skip
        for name, detail in details:
            if isinstance(detail, str) and detail:
                yield from _wrap(detail, width, f"       {name:7}", " " * 14)
    unknown = [row for row in rows if row["status"] == "unknown"]
    for needs in dict.fromkeys(row["needs"] for row in unknown):
        own = [row for row in unknown if row["needs"] == needs]
        stake = max((row["at_stake_hi_ns"] or 0 for row in own), default=0)
        most = f" (at most {format_time(stake)})" if stake else ""
        text = f"{_names(own, len(of_rank))}{most}: record {needs}"
        yield from _wrap(text, width, "unknown ", " " * 8)
    silent = [row for row in rows if row["status"] == "silent"]
    yield from _wrap(f"silent: {_names(silent, len(of_rank))}", width)
    for text in _bound_texts(of_rank, "rank"):
        yield from _wrap(text, width)
    yield _OVERLAP


def _bound_texts(of_rank: Mapping[Any, Mapping[Any, Any]], word: str) -> Iterator[str]:
    """Give the joint gain of all remedies, by rank; with many ranks only the least and the most."""
    shown_ranks = list(of_rank)
    parts = {"host": "the host", "device": "the device at its peak rates", "comm": "communication"}
    if len(of_rank) > _BOUNDS_SHOWN:
        rows = (row for row in of_rank.values() if pd.notna(row["bound_ns"]))
        share = {row["rank"]: row["bound_ns"] / max(1, row["window_ns"]) for row in rows}
        share = share or dict.fromkeys(of_rank, 0)
        shown_ranks = [min(share, key=share.__getitem__), max(share, key=share.__getitem__)]
    for rank in shown_ranks:
        bound = of_rank[rank]
        if pd.isna(bound["bound_ns"]):
            yield (
                f"{f'{word} {rank}: ' if len(of_rank) > 1 else ''}What all together gain at most "
                f"is not known: FLOPs and bytes are known for {bound['known_pct']:.0f} % of the "
                "time of kernels."
            )
            continue
        known = [part for part in parts if pd.notna(bound[f"{part}_ns"])]
        least = max(known, key=lambda part: int(bound[f"{part}_ns"]))
        share = 100 * bound["bound_ns"] / max(1, bound["window_ns"])
        place = ", on each device" if bound["devices"] > 1 else ""
        yield (
            f"{f'{word} {rank}: ' if len(of_rank) > 1 else ''}"
            f"All together gain at most {format_time(bound['bound_ns'])} of "
            f"{format_time(bound['window_ns'])} recorded{place} ({share:.1f} %): {parts[least]} "
            f"needs {format_time(bound[f'{least}_ns'])}."
        )
    if len(shown_ranks) < len(of_rank):
        yield f"{len(of_rank) - len(shown_ranks)} more ranks lie between these two."


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks as text: `rank 0`, `ranks 0-2`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {step_numbers(ranks)}"


def _gain(row: Mapping[Any, Any], bound: Mapping[Any, Any]) -> str:
    """Return the gain of the remedy, from least to most; expected and most where none is sure.

    All in one unit, with shares of the recorded time.
    """
    if pd.isna(row["at_stake_hi_ns"]):
        return ""
    least, expected, most = (
        int(row[name]) for name in ("at_stake_lo_ns", "expected_ns", "at_stake_hi_ns")
    )
    devices = bound["devices"]
    whole = max(1, devices * bound["window_ns"])
    interval = interval_text((least, expected, most), time_unit(most), whole)
    several = f", sum of {devices} devices" if devices > 1 else ""
    of = f"of the {format_time(whole)} recorded{several}"
    return f"{interval}, {of}: {row['limit']}"


def interval_text(interval: tuple[int, int, int], size: Unit, whole: int) -> str:
    """Return an interval without a number that is there twice, and without a least of nothing.

    Args:
        interval: least, expected, most, in ns.
        size: the unit of them all.
        whole: what they are shares of.
    """
    low = f"{interval[0] / size.size:.3f}"
    least, expected, most = (
        f"{time / size.size:.3f} {size.label} ({100 * time / whole:.1f} %)" for time in interval
    )
    if least == most:
        return most
    if not float(low):
        if not interval[1]:
            return f"nothing is sure, at most {most}"
        return f"expected {expected}" + (
            " and no more" if expected == most else f", at most {most}"
        )
    return f"{low} to {most}, expected {'the most' if expected == most else expected}"


def _markdown(findings: pd.DataFrame, bounds: pd.DataFrame) -> list[str]:
    of_rank = {bound["rank"]: bound for bound in bounds.to_dict("records")}
    rows = [row for row in alike(findings) if row["status"] == "fires"]
    gains = [_gain(row, of_rank[row["rank"]]) for row in rows]
    shown = pd.DataFrame(rows, columns=["ranks", *findings.columns]).assign(gain=gains)
    shown = shown.assign(rank=[step_numbers(row["ranks"]) for row in rows])
    lines = drawn(as_text(shown[list(_SHOWN)].fillna("")), files.Target("markdown")).lines
    for text in _bound_texts(of_rank, "Rank"):
        lines += ["", text]
    return [*lines, "", _OVERLAP]


def _names(rows: Sequence[Mapping[str, Any]], ranks: int) -> str:
    """Return the rules of rows, each with its ranks where not all have it."""
    return (
        ", ".join(
            row["rule"] + ("" if len(row["ranks"]) == ranks else f" ({ranks_text(row['ranks'])})")
            for row in rows
        )
        or "none"
    )


def _wrap(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    return cells.wrapped([text], width, first, others, break_long_words=False)
