"""What an editor shows, in words: of a line, a function, a recording."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

from pyprof2.lsp.costs import VALUES
from pyprof2.reports.cells import clean
from pyprof2.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.lsp.analysis import Line
    from pyprof2.lsp.costs import Costs

STALE: Final = "~"
"""Stands before numbers of lines, or of functions, that are not as they were recorded."""
_PHASES: Final = ("forward", "backward", "recompute", "optimizer", "other")
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


def hint(line: Line, costs: Costs) -> str:
    """Return what stands at the end of a line: time of a step, and memory at the peak."""
    words = [milliseconds(time_of(line["values"]), costs["steps"])]
    if line["memory"]:
        words.append(size(line["memory"]))
    return ("" if line["fresh"] else STALE) + " ".join(words)


def compared(values: Sequence[int | None], costs: Costs) -> str:
    """Return what it was in the recording that is compared with."""
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


def details(line: Line, costs: Costs) -> Iterator[str]:
    """Yield all that is known of a line, as rows of Markdown."""
    values, steps, ns = line["values"], costs["steps"], time_of(line["values"])
    what = "GPU time" if costs["ledger"] == "device" else "host time"
    unit = "a step" if steps else "the recording"
    yield f"**{milliseconds(ns, steps)}** of {unit}, {share(ns, costs):.1f} % ({what})"
    if not line["fresh"]:
        yield f"{STALE} the code around it is not as it was recorded"
    yield from _phases(values, steps)
    yield f"- {times(value(values, 'calls') or 0, steps)} in forward"
    if line["memory"]:
        of = f" on {costs['memory_of']}" if costs["memory_of"] else ""
        yield f"- memory at the peak{of}: {size(line['memory'])}"
    yield from _work(line, costs)
    idle = value(values, "idle_caused_ns")
    if idle:
        yield f"- devices idle meanwhile: {milliseconds(idle, steps)}, no part of the time"


def _phases(values: Sequence[int | None], steps: int) -> Iterator[str]:
    found = [(phase, value(values, f"{phase}_ns")) for phase in _PHASES]
    words = [f"{phase} {milliseconds(ns, steps)}" for phase, ns in found if ns]
    if words:
        yield f"- {', '.join(words)}"


def _work(line: Line, costs: Costs) -> Iterator[str]:
    """Yield what the line computed, how near to the roof, and on what."""
    flops, steps = value(line["values"], "flops"), max(1, costs["steps"])
    if flops:
        yield f"- FLOPs: {_count(flops / steps)}"
    rates = line["rates"]
    if rates.get("tflops"):
        near = f", {rates['roofline_pct']:.0f} % of the roof" if "roofline_pct" in rates else ""
        yield f"- rate of its own ops: {format_rate(rates['tflops'])} TFLOP/s{near}"
    on_cores = value(line["values"], "tensor_core_ns")
    if on_cores is not None and costs["ledger"] == "device":
        whole = milliseconds(time_of(line["values"]), costs["steps"])
        yield f"- Tensor Cores: {milliseconds(on_cores, costs['steps'])} of {whole}"


def _count(flops: float) -> str:
    for unit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if flops >= unit:
            return f"{flops / unit:.3g} {prefix}FLOP"
    return f"{flops:.0f} FLOP"


def recording(costs: Costs, batch: str, mismatch: str) -> str:
    """Return the lens at the top: which recording, how old, at which batch size."""
    name = clean(costs["path"].replace("\\", "/").rpartition("/")[2])
    steps = costs["steps"]
    whole = milliseconds(costs["total_ns"], steps)
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
        return "of the future: this clock or that of the recording is wrong"
    for unit, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {word} ago"
    return "just now"


def plain(text: Any) -> str:
    """Return text of a recording in one line that no terminal acts on."""
    return clean(str(text))


def markdown(text: Any) -> str:
    """Return text of a recording so that Markdown shows it as it is."""
    return "".join(f"\\{each}" if each in "\\`*_[]<>#|!&" else each for each in plain(text))
