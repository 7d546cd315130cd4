"""Hints, lenses, symbols, diagnostics and actions of a file; nothing here reads or parses.

The hover text of a line, and of the function that begins there, is one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types as lsp

from pyprof2.lsp import shown
from pyprof2.lsp.batch_size import KINDS
from pyprof2.lsp.session import BASELINE, SCOPE
from pyprof2.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.lsp.analysis import Function, LineCosts
    from pyprof2.lsp.batch_size import Candidate
    from pyprof2.lsp.costs import Costs
    from pyprof2.lsp.files import File
    from pyprof2.lsp.session import Session

CHOOSE: Final = "pyprof2.chooseRecording"
SET_BATCH: Final = "pyprof2.setBatchSize"
SHOW_LAYER: Final = "pyprof2.showLayer"
_SEVERITY: Final = {
    "high": lsp.DiagnosticSeverity.Warning,
    "medium": lsp.DiagnosticSeverity.Information,
}


def hints(session: Session, file: File, wanted: lsp.Range) -> list[lsp.InlayHint]:
    """Return the hints of the lines in a range: only those with a share worth looking at."""
    costs, settings = session.costs, session.settings
    if costs is None or not settings.hints or costs["by_function"]:
        return []
    least = settings.threshold / 100 * costs["total_ns"]
    return [
        lsp.InlayHint(
            file.document.end_of_line(line["now"]),
            shown.hint(line, costs) + was(session, file, line["recorded"]),
            padding_left=True,
            data={"uri": file.document.uri, "recorded": line["recorded"]},
        )
        for line in session.view(file).largest(least, settings.maxHints)
        if wanted.start.line <= line["now"] <= wanted.end.line
    ]


def was(session: Session, file: File, recorded: int) -> str:
    """Return the time of a line in the recording to compare with; empty: there is none."""
    found = session.recordings.get(BASELINE)
    if found is None or found["costs"] is None:
        return ""
    now = next((e["now"] for e in session.view(file).lines if e["recorded"] == recorded), -1)
    line = session.view(file, BASELINE).at(now)
    return "" if line is None else shown.compared(line["values"], found["costs"])


def lenses(session: Session, file: File) -> list[lsp.CodeLens]:
    """Return the recording at the top, and the totals of functions and classes."""
    if not session.settings.lenses:
        return []
    title, costs = session.title(), session.costs
    is_named = bool(title) and (file.language == "python" or bool(file.candidates))
    found = [lsp.CodeLens(_line(0), lsp.Command(title, CHOOSE))] if is_named else []
    if costs is not None:
        functions = sorted(
            session.view(file).functions,
            key=lambda each: 0 if each["values"] is None else shown.time_of(each["values"]),
            reverse=True,
        )
        found += [
            lsp.CodeLens(_line(function["line"]), lsp.Command(text, ""))
            for function in functions[: session.settings.maxHints]
            if (text := total(function, costs, session.settings.threshold))
        ]
    return sorted(found, key=lambda lens: lens.range.start.line)


def _line(line: int) -> lsp.Range:
    return lsp.Range(lsp.Position(line, 0), lsp.Position(line, 0))


def total(function: Function, costs: Costs, threshold: float) -> str:
    """Return the total of a function; empty where it is below a share in %."""
    values = function["values"]
    if values is None or shown.share(shown.time_of(values), costs) < threshold:
        return ""
    words = shown.total(function["name"], values, function["memory"], costs)
    return ("" if function["fresh"] else shown.STALE) + words


def symbols(session: Session, file: File) -> list[lsp.DocumentSymbol]:
    """Return functions and classes, each with its total, nested as in the code."""
    costs = session.costs
    roots: list[lsp.DocumentSymbol] = []
    by_name: dict[str, lsp.DocumentSymbol] = {}
    for function in session.view(file).functions:
        above, _, name = function["name"].rpartition(".")
        kind = lsp.SymbolKind.Class if function["is_class"] else lsp.SymbolKind.Function
        whole = lsp.Range(
            lsp.Position(function["first"], 0), file.document.end_of_line(function["last"])
        )
        text = "" if costs is None else total(function, costs, 0).partition(": ")[2]
        own = file.document.range_of_line(function["line"])
        symbol = lsp.DocumentSymbol(name, kind, whole, own, detail=text or None, children=[])
        by_name[function["name"]] = symbol
        (by_name[above].children if above in by_name else roots).append(symbol)  # type: ignore[union-attr]
    return roots


def diagnostics(session: Session, file: File) -> list[lsp.Diagnostic]:
    """Return the findings of advice at lines of a file, if that is wanted."""
    costs, found = session.costs, session.recordings.get("main")
    if costs is None or found is None or not session.settings.diagnostics:
        return []
    paths = {there for there, here in found["local"].items() if _is(file, here)}
    rows = []
    for finding in costs["findings"]:
        path, _, number = str(finding["source"]).rpartition(":")
        lines = session.view(file).lines
        now = next((e["now"] for e in lines if e["recorded"] == int(number) - 1), None)
        if path in paths and now is not None:
            text = f"{shown.plain(finding['finding'])}; remedy: {shown.plain(finding['remedy'])}"
            rows.append(
                lsp.Diagnostic(
                    file.document.range_of_line(now),
                    f"{text} (docs: advice, {finding['rule']})",
                    severity=_SEVERITY.get(finding["severity"], lsp.DiagnosticSeverity.Hint),
                    source="pyprof2",
                    code=finding["rule"],
                )
            )
    return rows


def _is(file: File, path: str) -> bool:
    import os

    return os.path.realpath(path) == file.path


# -- the batch size ------------------------------------------------------------------------------


def place_of(file: File, candidate: Candidate) -> str:
    """Return file and line of a place where the batch size stands."""
    name = (file.path or file.document.uri).replace("\\", "/").rpartition("/")[2]
    return f"{name}:{candidate.line + 1}"


def key_of(file: File, candidate: Candidate, root: str) -> list[Any]:
    """Return the key of a place, which edits keep: file, kind, name and number among the like."""
    path = (file.path or file.document.uri).removeprefix(root).lstrip("/\\")
    alike = [c for c in file.candidates if (c.kind, c.name) == (candidate.kind, candidate.name)]
    return [path, candidate.kind, candidate.name, alike.index(candidate)]


def edit_of(file: File, candidate: Candidate, batch: int, *, versioned: bool) -> lsp.WorkspaceEdit:
    """Return the edit that puts another number in the place of one, and nothing else."""
    document = file.document
    new = lsp.TextEdit(document.range_of(candidate.start, candidate.stop), str(batch))
    if not versioned:
        return lsp.WorkspaceEdit(changes={document.uri: [new]})
    of = lsp.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
    return lsp.WorkspaceEdit(document_changes=[lsp.TextDocumentEdit(of, [new])])


def actions(
    file: File, wanted: lsp.Range, *, versioned: bool, shows_refusals: bool
) -> list[lsp.CodeAction]:
    """Return the actions on the batch sizes of a file, if one is in the range.

    Args:
        file: the file; nothing is offered while its text is newer than its analysis.
        wanted: the range.
        versioned: whether the editor takes edits of one version.
        shows_refusals: whether it shows impossible actions, with the reason.
    """
    lines = range(wanted.start.line, wanted.end.line + 1)
    if not file.is_current or not any(each.line in lines for each in file.candidates):
        return []
    found = []
    for candidate in sorted(file.candidates, key=lambda each: each.line not in lines):
        if candidate.value is not None:
            batches = [size for size in (2 * candidate.value, candidate.value // 2) if size]
            found += [
                lsp.CodeAction(
                    f"Batch size {candidate.text} → {size} ({_what(file, candidate)})",
                    lsp.CodeActionKind.RefactorRewrite,
                    edit=edit_of(file, candidate, size, versioned=versioned),
                )
                for size in batches
            ]
        elif shows_refusals:
            found.append(_refused(file, candidate))
    return found


def _refused(file: File, candidate: Candidate) -> lsp.CodeAction:
    return lsp.CodeAction(
        f"Batch size {candidate.text} ({_what(file, candidate)})",
        lsp.CodeActionKind.RefactorRewrite,
        disabled=lsp.CodeActionDisabled(candidate.refusal),
    )


def _what(file: File, candidate: Candidate) -> str:
    return f"{place_of(file, candidate)}, {KINDS[candidate.kind]} {candidate.name}"


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
