"""Answers in one form for programs and agents: what is known, what it rests on, what to ask next.

`{"schema": 1, "data": …, "evidence": …, "next": […]}`. What is null elsewhere is
words here, so that nobody takes silence for a zero.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from pyprof2.reports.cells import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyprof2.api.run import Run
    from pyprof2.tables import Column

SCHEMA: Final = 1
"""The version of the form; it rises where a reader of the old one would go wrong."""
NOT_RECORDED: Final = "not recorded"
NOT_KNOWN: Final = "not known"

_MADE: Final = frozenset((
    "flops", "bytes", "flops_lo", "flops_hi", "bytes_lo", "bytes_hi", "tflops", "gbps", "intensity",
    "roofline_pct", "bound", "mfu_pct", "hfu_pct", "tensor_core", "tensor_core_pct",
    "lo_ns", "hi_ns", "delta_pct", "expected_ns", "at_stake_lo_ns", "at_stake_hi_ns",
))  # fmt: skip
"""No profiler records them: where one is null, it could not be worked out."""
_TEXT: Final = 240
_LACKS: Final = 6


def envelope(
    data: Any, evidence: Mapping[str, Any], following: Sequence[Any], *, brief: bool = False
) -> dict[str, Any]:
    """Return an answer.

    Args:
        data: the answer itself.
        evidence: what its numbers rest on, see `evidence_of`.
        following: calls that lead on, see `call`.
        brief: whether long text is cut and numbers have six digits.
    """
    said = {"data": data, "evidence": evidence, "next": following}
    return {"schema": SCHEMA} | {name: _plain(each, name, brief) for name, each in said.items()}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return a call that can follow: a tool of `pyprof2 mcp`, or the command of that name."""
    return {"call": tool, "arguments": arguments}


def _plain(value: Any, name: str, brief: bool) -> Any:  # noqa: FBT001
    """Return a value as JSON has it, null in words."""
    import numpy as np
    import pandas as pd

    if isinstance(value, dict):
        return {str(key): _plain(each, str(key), brief) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, name, brief) for each in value]
    if isinstance(value, str):
        text = clean(value)
        more = len(text) - _TEXT if brief else 0
        return text if more <= 0 else f"{text[:_TEXT]}… ({more} more characters)"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Fraction):
        value = float(value)
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return NOT_KNOWN if name in _MADE else NOT_RECORDED
    return float(f"{value:.6g}") if brief and isinstance(value, float) else value


def meanings(columns: Iterable[Column], names: Iterable[str]) -> dict[str, str]:
    """Return what each of some columns means, with its unit; nothing of those without a meaning."""
    known = {column.name: column for column in columns}
    chosen = [known[name] for name in names if name in known and known[name].meaning]
    return {each.name: f"{each.meaning}{f' [{each.unit}]' if each.unit else ''}" for each in chosen}


_SOURCES: Final = 8
"""Files that an answer names: a job may have a thousand."""


def evidence_of(run: Run, columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what the numbers of a recording rest on: its recorder, how much is known, the lacks.

    Args:
        run: the recording.
        columns: what each column of the answer means.
    """
    summary = run.summary
    lacks = [row for row in run.check().to_dict("records") if row["severity"] != "info"]
    names = ("linked_pct", "costed_pct", "no_gpu")
    sources = [str(each) for each in run.trace["source"].tolist()]
    more = len(sources) - _SOURCES
    found: dict[str, Any] = {
        "recording": [*sources[:_SOURCES], *([f"and {more} more"] if more > 0 else [])],
        "device": list(summary["devices"]),
        "profiler": list(summary["profilers"]),
        "coverage": {name: summary[name] for name in names},
        NOT_RECORDED.replace(" ", "_"): [
            f"{row['finding']}{f'; to have it: {advice}' if (advice := row['advice']) else ''}"
            for row in lacks[:_LACKS]
        ],
    }
    if len(lacks) > _LACKS:
        found["more_lacks"] = len(lacks) - _LACKS
    return found | ({"columns": dict(columns)} if columns else {})
