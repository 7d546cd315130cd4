"""The words of an editor: of a line, a function, a recording."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.lsp.costs import VALUES
from pyprof2.reports.cells import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.lsp.analysis import LineCosts
    from pyprof2.lsp.costs import Costs

STALE: Final = "~"
"""Stands before numbers of lines, or of functions, that are not as they were recorded."""
_TIME: Final = VALUES.index("time_ns")


def value(values: Sequence[int | None], name: str) -> int | None:
    """Return one of `VALUES`; None: it is not known."""
    return values[VALUES.index(name)]


def time_of(values: Sequence[int | None]) -> int:
    """Return the time of all steps."""
    return values[_TIME] or 0


def milliseconds(ns: float, steps: int) -> str:
    """Return the time of a step on average: `12.3 ms`."""
    return f"{_digits(ns / max(1, steps) / 1e6)} ms"


def size(count: int) -> str:
    """Return bytes in MB, as memory is: `30.1 MB`."""
    return f"{_digits(count / 1e6)} MB"


def _digits(number: float) -> str:
    """Return three digits, or all before the point."""
    if number >= 100:
        return f"{number:.0f}"
    return f"{number:.3g}" if number >= 0.01 else "<0.01" if number > 0 else "0"


def share(ns: int, costs: Costs) -> float:
    """Return a time in % of that of all steps."""
    return 100 * ns / costs["total_ns"] if costs["total_ns"] else 0.0


def hint(line: LineCosts, costs: Costs) -> str:
    """Return the hint at the end of a line: time of a step, and memory at the peak."""
    words = [milliseconds(time_of(line["values"]), costs["steps"])]
    if line["memory"]:
        words.append(size(line["memory"]))
    return ("" if line["fresh"] else STALE) + " ".join(words)


def compared(values: Sequence[int | None], costs: Costs) -> str:
    """Return the time in the recording that is compared with."""
    return f" (was {milliseconds(time_of(values), costs['steps'])})"


def total(name: str, values: Sequence[int | None], memory: int | None, costs: Costs) -> str:
    """Return the lens of a function or class."""
    ns = time_of(values)
    words = [milliseconds(ns, costs["steps"]), f"{share(ns, costs):.1f} %"]
    if memory:
        words.append(size(memory))
    calls = value(values, "calls")
    if calls:
        words.append(times(calls, costs["steps"]))
    return f"{clean(name)}: {', '.join(words)}"


def times(calls: int, steps: int) -> str:
    """Return calls of a step on average: `12 op calls`."""
    per_step = calls / max(1, steps)
    number = f"{per_step:.0f}" if math.isclose(per_step, round(per_step)) else f"{per_step:.1f}"
    return f"{number} op call" if number == "1" else f"{number} op calls"


def recording(costs: Costs, batch: str, mismatch: str) -> str:
    """Return the lens at the top: which recording, how old, at which batch size."""
    name = clean(costs["path"].replace("\\", "/").rpartition("/")[2])
    steps = costs["steps"]
    whole = milliseconds(costs["step_ns"], 1)
    words = [
        f"pyprof2: {name}",
        age(time.time() - costs["recorded_at"]),
        *([batch] if batch else []),
        f"step {whole}" if steps else f"{whole} in all, no steps",
        *([mismatch] if mismatch else []),
    ]
    return " · ".join(words)


def age(seconds: float) -> str:
    """Return how long ago something was, in the unit that people would take."""
    if seconds < 0:
        return "recorded in the future: a clock is wrong"
    for unit, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {word} ago"
    return "just now"


def age_of(path: str) -> str:
    """Return how long ago a file was written."""
    return age(max(0.0, time.time() - Path(path).stat().st_mtime))


def plain(text: Any) -> str:
    """Return text of a recording in one line that no terminal acts on."""
    return clean(str(text))


def markdown(text: Any) -> str:
    """Return text of a recording so that Markdown shows it as it is."""
    return "".join(f"\\{each}" if each in "\\`*_[]<>#|!&" else each for each in plain(text))
