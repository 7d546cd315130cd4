"""The data of the page as one object of plain values; see `docs/report-data.rst`."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.summaries.cube import KEYS, cube
from pyprof2.analysis.time.cause_names import CAUSES
from pyprof2.analysis.time.step_parts import IDLE
from pyprof2.api import run_findings, run_profile
from pyprof2.api.comparison import compare
from pyprof2.columns import as_text
from pyprof2.errors import Pyprof2Error, RemoteError, StoreError, fault, is_shortage, say
from pyprof2.pipeline.allocation import release_unused
from pyprof2.reports.page import html, profile
from pyprof2.reports.page.comparison import comparison_of
from pyprof2.reports.page.elsewhere import elsewhere_of
from pyprof2.reports.page.idle import idle_of, windows_of
from pyprof2.reports.page.job import job_of
from pyprof2.reports.page.lines import lines_of
from pyprof2.reports.page.memory import memory_of
from pyprof2.reports.page.overview import bounds_of, findings_of, heading_of, quality_of
from pyprof2.reports.page.roofline import notes_of, roofline_of
from pyprof2.reports.page.serving import serving_of
from pyprof2.reports.page.sources import sources_of
from pyprof2.reports.page.steps import (
    part_label,
    parts_of,
    steps_apart,
    steps_notes,
    steps_of,
    whole_of,
)
from pyprof2.reports.page.timeline import timeline_of
from pyprof2.reports.page.values import cut, zeros
from pyprof2.store.folder import check_tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.analysis.summaries.cube import Cube
    from pyprof2.api.run import Run

SCHEMA: Final = 2
LARGEST: Final = 7_000_000
"""Characters of the data at most: with the program on the page the file stays below 10 MB."""
_SIZES: Final = (
    (50_000, None), (20_000, None), (5_000, None), (2_000, 400), (1_000, 100), (500, 20),
)  # fmt: skip
"""Rows of the profile, and letters of a text, the most first, until the data is small enough."""
_CUBE: Final = "profile"
_UNCUT: Final = ("command", "notes")
"""Half a command line is a wrong one, and half a note says nothing; there are few of both."""
_NO_SOURCE: Final = "no source code is in this file: --source-root DIR names the folder of yours"
_NOTHING: Final = "there is nothing to profile in the recording"
_EMPTY: Final[dict[str, Any]] = {
    "heading": {"sentence": "", "figures": [], "lines": []},
    "findings": [],
    "quality": {"linked_pct": None, "counted_pct": None, "polluted": None},
    "timeline": [],
    "notes": [],
    "meta": {
        "command": "pyprof2 prof", "devices": [], "ranks": [], "has_gpu": False, "causes": {},
        "how_to_record": {}, "first_ns": [], "notes": [],
    },
    _CUBE: {
        "cube": {"rows": 0, "columns": {}},
        "calls": {"op_calls": [], "with": {"first": [0], "rows": []}},
        "helpers": {"row": [], "with": {"first": [0], "rows": []}, "columns": {}},
    },
}  # fmt: skip
"""Sections that the page cannot do without, as they are where they failed."""


@dataclass(frozen=True)
class ReportQuery:
    """The input of the page, and options.

    Attributes:
        input: the store or trace, as the user named it.
        version: of pyprof2.
        against: the store or trace to compare with; None: none.
        source_root: the folder whose files may be embedded; None: none.
        model: the configuration of a server's model; None: none.
        tp: how many ranks share it; None: not given.
    """

    input: Path
    version: str
    against: Path | None = None
    source_root: Path | None = None
    model: Path | None = None
    tp: int | None = None


def packed_document(run: Run, query: ReportQuery) -> str:
    """Return the data of the page of a run, as `html.packed` makes it.

    Where it is too large the profile gets fewer rows, and then texts are cut; totals stay exact.
    A section that fails is left out; the page and stderr say why.

    Raises:
        StoreError, TraceError: the store, or what to compare with, cannot be read.
        UsageError: what was asked for makes no sense, as a comparison without steps.
    """
    sections = _Sections(run, query)
    apart = sections.made("steps", lambda: steps_apart(run)) or {}
    document = _document(run, query, sections, apart)
    found = document.pop(_CUBE)
    sums = cache(lambda: run_profile.sums_apart(run.tables, KEYS, apart, _SIZES[0][0]))
    data, tables = "", _EMPTY[_CUBE]
    for most, length in _SIZES:
        if _CUBE not in sections.failed:
            if most < _SIZES[0][0]:
                found = cube(*sums(), apart, most)
            tables = sections.made(_CUBE, partial(profile.tables_of, run, found))
        notes = sections.made("notes", partial(_folded, run, apart, found, document["roofline"]))
        meta = document["meta"] | {"notes": [*document["meta"]["notes"], *notes]}
        whole = document | tables | {"meta": meta, "failed": sections.failed}
        data = html.packed(whole if length is None else _shortened(whole, length))
        if len(data) <= LARGEST:
            break
    for name, why in sections.failed.items():
        say(f"the page has no section {name}: {why}")
    return data


def _folded(
    run: Run, apart: dict[int, list[int]], found: Cube | Any, roofline: dict[str, Any] | None
) -> list[str]:
    """Say what is folded or left out."""
    of_cube = () if found is _EMPTY[_CUBE] else profile.notes_of(found)
    return [*steps_notes(run, apart), *of_cube, *(notes_of(roofline) if roofline else ())]


@dataclass
class _Sections:
    """Makes the sections of a page: one that fails is left out.

    Attributes:
        run: the run.
        query: the input of the page, and options.
        failed: why sections failed, by name.
    """

    run: Run
    query: ReportQuery
    failed: dict[str, str] = field(default_factory=dict)

    def made(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a section; what the page shows without it, if it cannot be made.

        Raises:
            StoreError: the store is damaged.
        """
        try:
            return make()
        except Exception as error:
            asked = {"serving": self.query.model, "comparison": self.query.against}
            is_refused = isinstance(error, Pyprof2Error) and asked.get(name) is not None
            if is_refused or is_shortage(error) or isinstance(error, (StoreError, RemoteError)):
                raise
            check_tables(self.run.path)
            why = fault(error).replace(str(self.run.path), str(self.query.input))
            self.failed.setdefault(name, why)
            return _EMPTY.get(name)


def _shortened(value: Any, length: int) -> Any:
    """Return the same with no text longer than that; the beginning says most."""
    if isinstance(value, str):
        return cut(value, length)
    if isinstance(value, dict):
        return {n: each if n in _UNCUT else _shortened(each, length) for n, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], (str, dict, list)):
        return [_shortened(each, length) for each in value]
    return value


def _document(
    run: Run, query: ReportQuery, sections: _Sections, apart: dict[int, list[int]]
) -> dict[str, Any]:
    """Return all but the profile, and the largest cube that it can be made of."""
    zero, most = sections.made("times", lambda: zeros(run)) or {}, _SIZES[0][0]
    parts: dict[str, Callable[[], Any]] = {
        "meta": lambda: _meta(run, query, zero),
        "memory": lambda: memory_of(run, zero),
        "heading": lambda: heading_of(run, document["memory"]),
        # While little else is held: the sums are a quarter of a gigabyte, this a tenth of them.
        _CUBE: lambda: cube(*run_profile.sums_apart(run.tables, KEYS, apart, most), apart, most),
        "steps": lambda: steps_of(run, zero, apart),
        "parts": lambda: parts_of(run, zero, apart),
        "whole": lambda: whole_of(run),
        "findings": lambda: findings_of(run),
        "bounds": lambda: bounds_of(run),
        "quality": lambda: quality_of(run),
        "columns": profile.columns_of,
        "roofline": lambda: roofline_of(run),
        "recorded": lambda: windows_of(run),
        "idle": lambda: idle_of(run, apart),
        "timeline": lambda: timeline_of(run, zero),
        "lines": lambda: lines_of(run),
        "serving": lambda: serving_of(run, zero, query.model, query.tp),
        "elsewhere": lambda: elsewhere_of(run),
        "job": lambda: job_of(run, query.input),
        "sources": lambda: _sources(run, query),
        "comparison": lambda: (
            None
            if query.against is None
            else comparison_of(
                # Further axes would separate calls that `pyprof2 compare` takes for the same.
                compare(query.against, run, force=True)._replace(
                    names=(str(query.against), str(query.input))
                )
            )
        ),
    }
    document: dict[str, Any] = {"schema": SCHEMA}
    # The findings take most memory: they come first, when little else is held.
    sections.made("findings", run.advise)
    release_unused()
    for name, make in parts.items():
        document[name] = sections.made(name, make)
        # Else memory that one part freed adds to that of the next one.
        release_unused()
    document["meta"] = {"name": query.input.name, "version": query.version} | document["meta"]
    return document


def _meta(run: Run, query: ReportQuery, zero: dict[int, int]) -> dict[str, Any]:
    summary = run.summary
    notes = [] if query.source_root else [_NO_SOURCE]
    if not run_profile.ledger(run.tables)["count"].sum():
        notes.insert(0, _NOTHING)
    return {
        "command": f"pyprof2 prof {shlex.quote(str(query.input))}{run.tables.span_option}",
        "devices": summary["devices"],
        "ranks": summary["ranks"],
        "has_gpu": not summary["no_gpu"],
        "causes": {part_label(f"{IDLE}{each.name}"): each.meaning for each in CAUSES},
        "how_to_record": asdict(run_findings.how_to_record(run.tables)),
        "first_ns": [{"rank": rank, "first_ns": str(first)} for rank, first in zero.items()],
        "notes": notes,
    }


def _sources(run: Run, query: ReportQuery) -> list[dict[str, Any]]:
    """Return the files of the user's own lines, those with the most time first."""
    if query.source_root is None:
        return []
    rows = run_profile.rows_of(run.tables, ("source", "dur_ns"))
    times = rows.groupby(as_text(rows["source"]), observed=True)["dur_ns"].sum()
    idle = run.idle.groupby(as_text(run.idle["source"]), observed=True)["time_ns"].sum()
    order = times.add(idle, fill_value=0).sort_values(ascending=False, kind="stable")
    return sources_of(order.index.tolist(), query.source_root)
