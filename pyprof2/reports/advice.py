"""Findings as text, for people, or as a file."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2 import units
from pyprof2.analysis.summaries.advice import FINDINGS
from pyprof2.errors import UsageError
from pyprof2.frames import shown_line
from pyprof2.reports import cells, files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyprof2.run import Run

_NO_DEVICE: Final = "no work of a device was recorded, so there is nothing to advise"
_OVERLAP: Final = "Times at stake overlap: do not add them up."
_SHOWN: Final = ("rank", "rule", "severity", "finding", "gain", "source", "remedy", "evidence")


@dataclass(frozen=True)
class AdviceQuery:
    """What is asked of the findings.

    Attributes:
        rank: only this one; None: all.
        target: where to write.
    """

    rank: int | None
    target: files.Target


def show(run: Run, query: AdviceQuery) -> None:
    """Write what is asked for.

    Raises:
        UsageError: the rank was not recorded.
    """
    findings, bounds = _of_rank(run.advise(), run.gain_bounds, query.rank)
    target = query.target
    if not target.is_text:
        target.write_frame(findings, FINDINGS.columns)
        return
    if bounds.empty:
        target.write_lines([_NO_DEVICE])
        return
    findings = _with_short_lines(run, findings)
    if target.form == "markdown":
        target.write_lines(_markdown(findings, bounds))
    else:
        target.write_lines(_text(findings, bounds, cells.terminal_width(target.width)))


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


def _with_short_lines(run: Run, findings: pd.DataFrame) -> pd.DataFrame:
    short = [
        shown_line(line, run.source_roots) if isinstance(line, str) else ""
        for line in findings["source"]
    ]
    return findings.assign(source=short)


def _text(findings: pd.DataFrame, bounds: pd.DataFrame, width: int) -> Iterator[str]:
    """Give each finding that fires, then what cannot be judged, then what all gain together."""
    for at, bound in enumerate(bounds.to_dict("records")):
        own = findings[findings["rank"] == bound["rank"]]
        yield from ([""] if at else [])
        if len(bounds) > 1:
            yield cells.bold(f"rank {bound['rank']}")
        for record in own[own["status"] == "fires"].to_dict("records"):
            yield from _finding(record, bound, width)
        yield from _not_judged(own[own["status"] == "unknown"], width)
        yield from _wrap(f"silent: {_names(own[own['status'] == 'silent'])}", width)
        yield from _wrap(_bound_text(bound), width)


def _finding(record: Mapping[Any, Any], bound: Mapping[Any, Any], width: int) -> Iterator[str]:
    head = f"{record['severity']:7}"
    yield from _wrap(f"{record['rule']}: {record['finding']}", width, head, " " * 7)
    details = {
        "gain": _gain(record, bound["window_ns"]),
        "source": record["source"],
        "do": record["remedy"],
        "see": record["evidence"],
    }
    for name, text in details.items():
        if isinstance(text, str) and text:
            yield from _wrap(text, width, f"       {name:7}", " " * 14)


def _not_judged(rows: pd.DataFrame, width: int) -> Iterator[str]:
    """Give the rules that cannot be judged, by what is to be recorded."""
    for needs, own in rows.groupby("needs", sort=False):
        stake = own["at_stake_hi_ns"].max()
        most = "" if pd.isna(stake) else f" (at most {_time(int(stake))})"
        yield from _wrap(f"{_names(own)}{most}: record {needs}", width, "unknown ", " " * 8)


def _gain(record: Mapping[Any, Any], window_ns: int) -> str:
    """Return what the remedy gains: from least to most, and what is expected."""
    if pd.isna(record["at_stake_hi_ns"]):
        return ""
    least, most, expected = (
        int(record[name]) for name in ("at_stake_lo_ns", "at_stake_hi_ns", "expected_ns")
    )
    size = units.time_unit(most)
    between = f"{least / size.size:.3f} to {most / size.size:.3f} {size.label}"
    share = f"at most {100 * most / max(1, window_ns):.1f} %"
    return f"{between} ({share}), expected {expected / size.size:.3f}: {record['limit']}"


def _bound_text(bound: Mapping[Any, Any]) -> str:
    parts = {"host": "the host", "device": "the device at its peak rates", "comm": "communication"}
    name = max(parts, key=lambda part: int(bound[f"{part}_ns"]))
    share = 100 * bound["bound_ns"] / max(1, bound["window_ns"])
    return (
        f"All together gain at most {_time(bound['bound_ns'])} of {_time(bound['window_ns'])} "
        f"({share:.1f} %): {parts[name]} needs {_time(bound[f'{name}_ns'])}. {_OVERLAP}"
    )


def _markdown(findings: pd.DataFrame, bounds: pd.DataFrame) -> list[str]:
    windows = dict(zip(bounds["rank"], bounds["window_ns"], strict=True))
    fires = findings[findings["status"] == "fires"]
    gains = [_gain(record, windows[record["rank"]]) for record in fires.to_dict("records")]
    shown = fires.assign(gain=gains)[list(_SHOWN)].fillna("")
    lines = cells.render_markdown(shown.astype(str), []).splitlines()
    for bound in bounds.to_dict("records"):
        head = f"Rank {bound['rank']}: " if len(bounds) > 1 else ""
        lines += ["", f"{head}{_bound_text(bound)}"]
    return lines


def _names(rows: pd.DataFrame) -> str:
    return ", ".join(map(str, rows["rule"])) or "none"


def _time(time_ns: int) -> str:
    unit = units.time_unit(time_ns)
    return f"{time_ns / unit.size:.3f} {unit.label}"


def _wrap(text: str, width: int, first: str = "", others: str = "") -> Iterable[str]:
    return textwrap.wrap(
        cells.clean(text), width, initial_indent=first, subsequent_indent=others,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
