"""The hover text of a line, and of the function that begins there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lsprotocol import types as lsp

from pyprof2.lsp import shown
from pyprof2.lsp.features import total, was
from pyprof2.lsp.session import SCOPE
from pyprof2.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.lsp.analysis import LineCosts
    from pyprof2.lsp.costs import Costs
    from pyprof2.lsp.files import File
    from pyprof2.lsp.session import Session

_PHASES: Final = ("forward", "backward", "recompute", "optimizer", "other")


def hover(session: Session, file: File, line: int) -> lsp.Hover | None:
    """Return the hover of a line, or of the function that begins there."""
    costs = session.costs
    if costs is None:
        return None
    view = session.view(file)
    found = view.at(line)
    parts = []
    if found is not None and not costs["by_function"]:
        parts.append(hover_text(session, file, found))
    here = [function for function in view.functions if function["line"] == line]
    parts += [shown.markdown(text) for each in here if (text := total(each, costs, 0))]
    return lsp.Hover(_markup("\n\n".join(parts))) if parts else None


def resolved(session: Session, hint: lsp.InlayHint) -> lsp.InlayHint:
    """Return a hint with the hover text of its line as tooltip."""
    data = hint.data if isinstance(hint.data, dict) else {}
    file = session.files.get(str(data.get("uri")))
    if file is not None:
        lines = session.view(file).lines
        line = next((each for each in lines if each["recorded"] == data.get("recorded")), None)
        if line is not None:
            hint.tooltip = _markup(hover_text(session, file, line))
    return hint


def _markup(text: str) -> lsp.MarkupContent:
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, text)


def hover_text(session: Session, file: File, line: LineCosts) -> str:
    """Return the text: overall, within the chosen module, and in the compared recording."""
    costs = session.costs
    if costs is None:
        return ""
    words = list(_details(line, costs))
    words += _within(session, file, line)
    words += [
        f"- before: {text.strip(' ()')}" for text in [was(session, file, line["recorded"])] if text
    ]
    # A paragraph of its own: else it would go on the last point of the list.
    words.append(f"\n{shown.markdown(session.title())}")
    return "\n".join(f"{word}  " for word in words)


def _within(session: Session, file: File, line: LineCosts) -> Iterator[str]:
    """Yield the part of a line within the chosen module."""
    found = session.recordings.get(SCOPE)
    if found is None or found["costs"] is None:
        return
    scoped = session.view(file, SCOPE).at(line["now"])
    name = shown.markdown(session.scope)
    if scoped is None or not shown.time_of(scoped["values"]):
        yield f"- within {name}: nothing"
        return
    steps = found["costs"]["steps"]
    time = shown.milliseconds(shown.time_of(scoped["values"]), steps)
    calls = shown.times(shown.value(scoped["values"], "calls") or 0, steps)
    yield f"- within {name}: {time}, {calls}; lines above count every module"


def _details(line: LineCosts, costs: Costs) -> Iterator[str]:
    """Yield the costs of a line, as rows of Markdown."""
    values, steps, ns = line["values"], costs["steps"], shown.time_of(line["values"])
    what = "GPU time" if costs["ledger"] == "device" else "host time"
    unit = "a step" if steps else "the recording"
    yield f"**{shown.milliseconds(ns, steps)}** of {unit}, {shown.share(ns, costs):.1f} % ({what})"
    if not line["fresh"]:
        yield f"{shown.STALE} the code around it is not as it was recorded"
    found = [(phase, shown.value(values, f"{phase}_ns")) for phase in _PHASES]
    words = [f"{phase} {shown.milliseconds(ns, steps)}" for phase, ns in found if ns]
    if words:
        yield f"- {', '.join(words)}"
    yield f"- {shown.times(shown.value(values, 'calls') or 0, steps)} in forward"
    if line["memory"]:
        of = f" on {costs['memory_of']}" if costs["memory_of"] else ""
        yield f"- memory at the peak{of}: {shown.size(line['memory'])}"
    yield from _work(line, costs)
    idle = shown.value(values, "idle_caused_ns")
    if idle:
        yield f"- devices idle meanwhile: {shown.milliseconds(idle, steps)}, no part of the time"


def _work(line: LineCosts, costs: Costs) -> Iterator[str]:
    """Yield FLOPs, rate, share of the roof, and time on Tensor Cores."""
    flops, steps = shown.value(line["values"], "flops"), max(1, costs["steps"])
    if flops:
        yield f"- FLOPs: {_count(flops / steps)}"
    rates = line["rates"]
    if rates.get("tflops"):
        near = f", {rates['roofline_pct']:.0f} % of the roof" if "roofline_pct" in rates else ""
        yield f"- rate of its own ops: {format_rate(rates['tflops'])} TFLOP/s{near}"
    on_cores = shown.value(line["values"], "tensor_core_ns")
    if on_cores is not None and costs["ledger"] == "device":
        whole = shown.milliseconds(shown.time_of(line["values"]), costs["steps"])
        yield f"- Tensor Cores: {shown.milliseconds(on_cores, costs['steps'])} of {whole}"


def _count(flops: float) -> str:
    for unit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if flops >= unit:
            return f"{flops / unit:.3g} {prefix}FLOP"
    return f"{flops:.0f} FLOP"
