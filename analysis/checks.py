"""What a recording lacks, what was repaired, and how to record better next time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

Finding = tuple[str, str, int, float | None, str, int | None]
_BOTH: Final = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
_INIT: Final = "call pyprof2.init() in the script"
_SHAPES: Final = f"{_INIT}, or nsys profile --pytorch=autograd-shapes-nvtx"
_ADVICE: Final = {
    "kineto": {
        "gpu": f"on a machine with a GPU: {_BOTH}",
        "ops": _BOTH,
        "launches": "start recording before the work: use a schedule with warm-up steps",
        "outside": "wrap own CUDA calls in record_function or a custom op",
        "shapes": "profile(record_shapes=True)",
        "layers": f"profile(with_stack=True, with_modules=True), or {_INIT}",
        "sources": f"profile(with_stack=True), or {_INIT}",
        "steps": "call prof.step() once per iteration",
        "problem": "newer PyTorch writes cleaner files",
    },
    "nsight": {
        "gpu": "on a machine with a GPU: nsys profile --trace=cuda,nvtx",
        "ops": _SHAPES,
        "launches": "let nsys start before the work, and export the whole of its report",
        "outside": "mark the functions that launch them with pyprof2.wrap()",
        "shapes": _SHAPES,
        "layers": _INIT,
        "sources": _INIT,
        "steps": _INIT,
        "problem": "export the report again, with a newer nsys",
    },
}
"""What to do next time, by profiler and by what is missing."""
_COPY_AGAIN: Final = "let the program write its trace to the end, or copy the file again"
_PROBLEM_ADVICE: Final = (
    (("cut off", "ends inside"), _COPY_AGAIN),
    (
        ("external ids",),
        "nothing is lost: ops are found by time; newer PyTorch writes better ids",
    ),
    (("before the first recorded call",), _ADVICE["nsight"]["launches"]),
    (("no call of the CUDA API",), "nsys profile --trace=cuda,nvtx"),
    (("recorded as a whole",), "nsys profile --cuda-graph-trace=node"),
    (("open at the end",), "let the program end its ranges before nsys stops"),
    (("cost formulas of",), "mend the package that names them, or uninstall it"),
    (("Nsight Systems: ",), "see the diagnostics of the report in nsys-ui"),
    (
        ("marker of another version", "broken marker"),
        "record and parse with the same version of pyprof2",
    ),
)
"""Words of a problem, and what to do about it."""
COLUMNS: Final = ["severity", "finding", "count", "share_pct", "advice", "rank"]


def find_lacks(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> pd.DataFrame:
    """Return one row per finding: first problems, then lacks, then what is fine to know.

    Columns: `severity` (`problem`, `lack`, `info`), `finding`, `count`, `share_pct` (of what the
    finding is about; null where that makes no sense), `advice`, `rank` (null: all).

    Args:
        summary: as `pyprof2.analysis.summary.summarise` returns it.
        manifest: of the store.
    """
    import pandas as pd

    profilers = summary.get("profilers") or ["kineto"]
    advice = _ADVICE[profilers[0]]
    problems = _problems(manifest, advice["problem"])
    found = [*problems, *_lacks(summary, advice), *_facts(summary, manifest)]
    frame = pd.DataFrame(found, columns=COLUMNS)
    return frame.astype({"count": "Int64", "share_pct": "float64", "rank": "Int64"})


def _problems(manifest: Mapping[str, Any], otherwise: str) -> Iterator[Finding]:
    for rank in manifest["ranks"]:
        for problem, count in sorted(rank["problems"].items()):
            known = (text for words, text in _PROBLEM_ADVICE if any(w in problem for w in words))
            yield "problem", problem, count, None, next(known, otherwise), rank["rank"]


def _lacks(s: Mapping[str, Any], advice_on: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is missing, each with the flag to record with."""
    kernels, ops, backward = s["kernel_count"], s["op_count"], s["backward_count"]
    linked = s["linked_count"]
    missing = [
        (
            "no GPU activity: op calls are profiled by their time on the CPU",
            1 if s["no_gpu"] and ops else 0, None,
            advice_on["gpu"],
        ),
        ("nothing was recorded", 0 if kernels or ops or s["copy_count"] else 1, None,
         "let the profiler run while the program works"),
        ("no PyTorch ops", 0 if ops or not kernels else 1, None,
         advice_on["ops"]),
        ("kernels without a launch in the recording", kernels - s["launched_count"], kernels,
         advice_on["launches"]),
        ("kernels launched outside of any op", s["launched_count"] - linked, kernels,
         advice_on["outside"]),
        ("kernels of replayed CUDA graphs: ops ran at capture time", s["graph_count"], kernels,
         "record a few steps without graphs to see their ops"),
        ("linked kernels whose op has no shapes", linked - s["shapes_count"], linked,
         advice_on["shapes"]),
        ("ops without recorded inputs", ops - s["ops_with_shapes_count"] if not kernels else 0, ops,
         advice_on["shapes"]),
        ("backward kernels without a forward op", backward - s["backward_paired_count"], backward,
         "gradients are accumulated without a forward op; for others record whole steps"),
        ("no layers", 1 if ops and not s["ops_with_layer_count"] else 0, None,
         advice_on["layers"]),
        ("no source lines", 1 if ops and not s["ops_with_source_count"] else 0, None,
         advice_on["sources"]),
        ("no steps", 1 if ops and not s["steps"] else 0, None,
         advice_on["steps"]),
    ]  # fmt: skip
    for finding, count, whole, advice in missing:
        if count:
            yield "lack", finding, count, 100 * count / whole if whole else None, advice, None


def _facts(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Finding]:
    if summary["recompute_count"]:
        share = 100 * summary["recompute_count"] / summary["kernel_count"]
        yield (
            "info",
            "kernels of forward ops that checkpointing runs again",
            summary["recompute_count"],
            share,
            "",
            None,
        )
    for rank in manifest["ranks"]:
        pairs, agree = rank.get("pairs_recorded", 0), rank.get("pairs_agree", 0)
        if pairs:
            text = "forward-backward pairs of the recorder that agree with ours"
            yield "info", text, agree, 100 * agree / pairs, "", rank["rank"]
        for what, count in sorted(rank["ignored"].items()):
            yield (
                "info",
                f"events that the tables have no place for: {what.strip()}",
                count,
                None,
                "",
                rank["rank"],
            )
