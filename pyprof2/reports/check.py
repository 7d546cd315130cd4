"""The findings of `check` as text, each with its figures, and below it the advice."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from pyprof2.reports import cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from pyprof2.reports import files

FORMATS: Final = ("table", "csv", "json")


def write(findings: pd.DataFrame, target: files.Target) -> None:
    """Write the frame of `run.check()`, in one of `FORMATS`."""
    if target.is_text:
        target.write_lines(_lines(findings, target.line_width))
    else:
        target.write_frame(findings)


def _words(record: Mapping[Any, Any], several: bool) -> Iterator[str]:  # noqa: FBT001
    if several and (rank := _shown(record["rank"])):
        yield f"rank {rank}:"
    yield _shown(record["finding"])
    figures = [_shown(record["count"], ",d"), _shown(record["share_pct"], ".1f", " %")]
    if any(figures):
        yield f"({', '.join(filter(None, figures))})"


def _lines(findings: pd.DataFrame, width: int) -> Iterator[str]:
    """Give each finding with its count and share, and below it the advice."""
    if findings.empty:
        yield "nothing is missing"
        return
    records = findings.to_dict("records")
    head = max(len(str(record["severity"])) for record in records) + 2
    several = len(set(findings["rank"].dropna())) > 1
    for record in records:
        first = f"{_shown(record['severity']):{head}}"
        yield from _wrap(" ".join(_words(record, several)), width, first, " " * head)
        if advice := _shown(record["advice"]):
            yield from _wrap(advice, width, " " * head + "-> ", " " * (head + 3))


def _shown(value: Any, form: str = "", unit: str = "") -> str:
    """Return `value` as text; nothing for null."""
    import pandas as pd

    if pd.isna(value):
        return ""
    return cells.clean(f"{int(value) if form == ',d' else value:{form}}{unit}")


def _wrap(words: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=others)
